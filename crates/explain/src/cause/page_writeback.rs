//! page-writeback: the call waits until a page has been written to the device.

use super::{CauseEntry, CauseId};
use crate::facts::{Facts, counted_buckets};
use crate::operations::operations;
use crate::server::Server;
use crate::sums::total;
use crate::{Evidence, Finding, Fix, finding};
use flatwater_recording::units::Nanos;
use flatwater_recording::{Cause, OpKind, Source};

pub const ENTRY: CauseEntry = CauseEntry {
    name: "page-writeback",
    span: Some(Cause::PageWriteback),
    headline: "the call waits until a page has been written to the device",
    mechanism: "folio_wait_writeback (wait_on_page_writeback before 5.16; mm/page-writeback.c) sleeps until the \
        page's write is complete. fsync, msync and sync_file_range wait by design (filemap_fdatawait_range); truncate \
        and invalidation wait because the block may be reallocated; a write waits only where pages must be stable \
        (see stable-page) or where the file system waits before it changes a page (ext4 data=journal, write_begin of \
        a partial page).",
    kernels: "All.",
    in_spans: "Measured: a sleep with folio_wait_writeback or wait_on_page_writeback in its stack.",
    in_counters: "nr_writeback is high, the device is busy, and threads are blocked.",
    against: "The waiting call is fsync: waiting is its purpose then, and the reason is the device's speed or the \
        amount of dirty data.",
    fix: "For fsync: write less between two of them, start writeback early (sync_file_range with \
        SYNC_FILE_RANGE_WRITE), or use a faster device. For write: do not rewrite the page that was just written: \
        append whole pages, or keep the tail page in a buffer of your own.",
    prove: "The stack shows who waits; the same workload with whole-page writes has no such segment.",
    sources: &["mm/page-writeback.c: folio_wait_writeback", "mm/filemap.c: __filemap_fdatawait_range"],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let fixes = [Fix::advice(
        "start writeback soon after each write (sync_file_range with SYNC_FILE_RANGE_WRITE), so that little is \
            left to wait for",
    )];
    let Some(finding) = finding::from_spans(facts, Cause::PageWriteback, ENTRY.headline, fixes) else {
        return from_syncs(facts);
    };
    let Some(server) = Server::awaited(facts, Cause::PageWriteback) else { return Some(finding) };
    let written =
        Evidence::statement(format!("the pages are written to {}, not to a disk of this machine", server.name()));
    Some(finding.with([written]).settle(server.settle()))
}

/// Minimum share of syncs in the time of a log's calls without stacks.
const SYNCS_SHARE_MIN: f64 = 0.5;

const SYNCS: [OpKind; 5] = [OpKind::Fsync, OpKind::Fdatasync, OpKind::Sync, OpKind::Syncfs, OpKind::Msync];

/// A histogram of syncs is slow if one in a hundred takes this long. On a healthy device a sync takes milliseconds;
/// etcd asks for less than this for its log.
const SYNC_P99_NS: u64 = 10_000_000;

/// A log of an application's slow syncs (fsync of a WAL, an AOF, a translog) without their waits: a sync waits
/// until its pages and the device's cache are written. Whose pages, and why they took so long, stays open.
fn from_syncs(facts: &Facts<'_>) -> Option<Finding> {
    if facts.recording.header.source != Source::Import || !facts.may_infer() {
        return None;
    }
    let sync = |op: OpKind| SYNCS.contains(&op);
    let sum = facts.sum(Cause::Unexplained);
    let of_calls = total(sum.by_op_ns.iter().filter(|(op, _)| sync(**op)).map(|(_, ns)| *ns));
    let by_calls = facts.significant(Cause::Unexplained).is_some()
        && of_calls as f64 >= SYNCS_SHARE_MIN * facts.lost_ns as f64
        && sum.by_stack_ns.is_empty();
    let counted = facts.counted;
    let by_counts = counted.calls > 0
        && facts.hurt()
        && operations(facts.recording)
            .iter()
            .any(|line| SYNCS.iter().any(|op| op.name() == line.name) && line.from_start.p99_ns >= SYNC_P99_NS)
        && counted_buckets(facts.recording)
            .filter(|bucket| !bucket.from_start.is_empty())
            .all(|bucket| sync(bucket.op));
    if !by_calls && !by_counts {
        return None;
    }
    let (calls, lost_ns, worst_ns) =
        if by_calls { (sum.calls, of_calls, sum.worst_ns) } else { (counted.calls, counted.ns, counted.worst_ns) };
    let text = format!("{calls} slow syncs, {} together, the worst {}", Nanos(lost_ns), Nanos(worst_ns));
    let headline =
        "fsync is slow: it waits until its pages are on the device; the log does not show what keeps the device busy";
    let mut finding =
        Finding::inferred(CauseId::PageWriteback, 0.45, headline).with([Evidence::new(text, lost_ns as f64, "ns")]);
    finding.lost_ns = Some(lost_ns);
    finding.against.push(Evidence::statement(
        "a slow device, a neighbour's writes ahead in the queue, and a journal that commits all look like this from \
         inside the application",
    ));
    Some(finding.settle(
        "`iostat -x 1` while it is slow: f_await and w_await with a short aqu-sz is the device, a long aqu-sz is what \
         others write; `flatwater record -p PID` names them",
    ))
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::RecordingBuilder;
    use flatwater_recording::{Cause, OpKind, Source};

    #[test]
    fn a_histogram_of_syncs_is_judged_by_p99() {
        let pasted = |slow: u64| {
            let all: Vec<u64> = (0..1000).map(|at| if at % 100 < 2 { slow } else { 2_000_000 }).collect();
            RecordingBuilder::new()
                .bucket("etcd", OpKind::Fsync, &all)
                .edit(|recording| recording.header.source = Source::Import)
                .found(&ENTRY)
        };
        assert!(pasted(64_000_000).is_some());
        assert!(pasted(8_000_000).is_none(), "every sync takes some milliseconds");
    }

    #[test]
    fn a_slow_sync_of_an_application_is_named_without_an_aggressor() {
        let build = |op| RecordingBuilder::new().slow(op, &[(Cause::Unexplained, 1800.0)]);
        let pasted = |op| build(op).edit(|recording| recording.header.source = Source::Import);
        let finding = pasted(OpKind::Fdatasync).found(&ENTRY).expect("1.8 s");
        assert!(finding.weight < 0.5 && !finding.against.is_empty() && finding.settle.contains("iostat"));
        assert!(pasted(OpKind::Read).found(&ENTRY).is_none(), "a read does not wait for writeback");
        assert!(build(OpKind::Fdatasync).found(&ENTRY).is_none(), "the tracer would have seen where it waited");
    }
}
