//! device-queue-starved: requests spend their time in the queue, behind those of others.

use super::CauseEntry;
use crate::disks::Busy;
use crate::facts::Facts;
use crate::{Evidence, Finding, Fix};
use flatwater_recording::units::Nanos;
use flatwater_recording::{Cause, RequestOp};

const QUEUED: &str = "the awaited request waited for others, in the device's queue or beside them at the device";
const AWAIT_MS_MIN: f64 = 50.0;
const QUEUE_MIN: f64 = 8.0;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "device-queue-starved",
    span: None,
    headline: "requests wait in the device's queue behind those of others, mostly writeback",
    mechanism: "The flusher submits thousands of requests at once; a read, or the few writes of a journal commit, \
        queue up behind them. The I/O scheduler decides the order: none keeps the order of arrival, mq-deadline gives \
        reads priority and lets a write wait 5 s at most, bfq shares by process. With 100 requests of 5 ms each in \
        front the wait is half a second, although the device is healthy. A device with a deep queue of its own (NCQ, \
        SAN) may reorder and starve beyond the scheduler's reach.",
    kernels: "All.",
    in_spans: "synchronous-read, journal-commit, page-writeback or request-queue, while the device serves others.",
    in_counters: "aqu-sz (avgqu-sz) of tens to hundreds, await far above the device time per request (1 / requests \
        per second at 100 % utilisation), r_await as high as w_await.",
    against: "A short queue with a long await: then the device itself is slow (device-slow).",
    fix: "A scheduler that separates them (queue.scheduler = mq-deadline or bfq), a smaller queue.nr_requests, \
        writeback in smaller bursts (vm.dirty_background_bytes low), wbt (queue.wbt_lat_usec), io.latency or \
        io.cost for the latency-critical cgroup, a device of its own for the journal.",
    prove: "Stop the bulk writer: await falls to the device time at once.",
    sources: &["block/mq-deadline.c", "block/blk-wbt.c", "Documentation/block/deadline-iosched.rst"],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    from_requests(facts).or_else(|| from_disks(facts))
}

/// The requests that were waited for stood in the queue behind others, theirs or the target's own.
fn from_requests(facts: &Facts<'_>) -> Option<Finding> {
    let time = facts.charges.device_time();
    let mut finding = Finding::from_requests(facts, ENTRY.name, time.queued_ns, QUEUED)?;
    let own_ns = time.queued_ns.saturating_sub(time.queued_others_ns);
    let text =
        format!("for requests of others {}, for the target's own {}", Nanos(time.queued_others_ns), Nanos(own_ns));
    finding.evidence.push(Evidence::new(text, time.queued_others_ns as f64, "ns"));
    let text = format!("the device itself took {} for the awaited requests", Nanos(time.device_ns + time.flush_ns));
    finding.against.push(Evidence::new(text, (time.device_ns + time.flush_ns) as f64, "ns"));
    if own_ns > time.queued_others_ns {
        return Some(finding.fix(Fix::advice(
            "the target's own requests are ahead: write fewer bytes between two syncs, start writeback earlier \
                (sync_file_range)",
        )));
    }
    Some(finding.fix(if mostly_reads(facts) {
        Fix::knob("let reads pass", "queue.scheduler", "mq-deadline")
    } else {
        Fix::advice(
            "let each process's own synchronous writes have their turn: queue.scheduler=bfq, where the kernel has it \
             (mq-deadline lets only reads pass)",
        )
    }))
}

/// Whether most of the time of the awaited requests is that of reads, which mq-deadline prefers; among writes it prefers none.
fn mostly_reads(facts: &Facts<'_>) -> bool {
    let (mut reads_ns, mut all_ns) = (0_u64, 0_u64);
    for request in &facts.recording.requests {
        let ns = request.complete_ns.saturating_sub(request.awaited_ns.unwrap_or(request.insert_ns));
        all_ns = all_ns.saturating_add(ns);
        reads_ns = reads_ns.saturating_add(if request.op == RequestOp::Read { ns } else { 0 });
    }
    2 * (reads_ns as u128) >= all_ns as u128
}

fn from_disks(facts: &Facts<'_>) -> Option<Finding> {
    let places = [
        Cause::SynchronousRead,
        Cause::JournalCommit,
        Cause::PageWriteback,
        Cause::RequestQueue,
        Cause::DeviceSlow,
        Cause::DeviceWait,
        Cause::JournalBuffer,
    ];
    let blamed = places.into_iter().any(|cause| facts.significant(cause).is_some());
    if !facts.may_infer() || (facts.spans_tell_all() && !blamed) {
        return None;
    }
    let starved = |disk: &Busy| {
        disk.lasting()
            && disk.await_ms >= AWAIT_MS_MIN
            && disk.queue >= QUEUE_MIN
            && disk.await_ms >= 4.0 * disk.service_ms()
    };
    let disk = facts.busy_disks().into_iter().find(starved)?;
    let text = format!(
        "{}: {:.0} requests in the queue, {:.0} ms per request where the device needs about {:.1} ms, in {} of {} \
            windows",
        disk.device,
        disk.queue,
        disk.await_ms,
        disk.service_ms(),
        disk.windows,
        disk.of
    );
    let mut finding = Finding::inferred(ENTRY.name, if blamed { 0.8 } else { 0.6 }, ENTRY.headline)
        .with([Evidence::new(text, disk.queue, "requests")]);
    if let (Some(read), Some(write)) = (disk.read_await_ms, disk.write_await_ms) {
        finding.evidence.push(Evidence::new(format!("reads take {read:.0} ms, writes {write:.0} ms"), read, "ms"));
    }
    if !blamed {
        finding
            .against
            .push(Evidence::said("a batch job that keeps the queue full by design looks the same and does no harm"));
    }
    let finding = finding.fix(Fix::knob("let reads and small writes pass", "queue.scheduler", "mq-deadline"));
    let finding =
        finding.fix(Fix::knob("write back earlier and in smaller amounts", "vm.dirty_background_bytes", "16MiB"));
    Some(finding.settle("run `flatwater record -p PID -t 60s` as root for the program that must be fast: synchronous-read or journal-commit would show it"))
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::{Made, rising, said};
    use flatwater_recording::{Entity, Table};

    fn disk(writes_per_s: i64, write_ms: i64) -> Made {
        let columns = [
            ("reads", rising(4, 8)),
            ("read_ns", rising(4 * write_ms * 1_000_000, 8)),
            ("writes", rising(writes_per_s, 8)),
            ("write_ns", rising(writes_per_s * write_ms * 1_000_000, 8)),
            ("io_ns", rising(990_000_000, 8)),
        ];
        let columns: Vec<(&str, &[i64])> = columns.iter().map(|(name, values)| (*name, values.as_slice())).collect();
        Made::new().counters(Table::Disks, &Entity::named("sda"), &columns)
    }

    #[test]
    fn a_long_queue_is_told_from_a_slow_device() {
        let finding = disk(196, 600).found(&ENTRY).expect("120 requests in the queue");
        assert!(
            said(&finding)
                .contains("120 requests in the queue, 600 ms per request where the device needs about 5.0 ms"),
            "{}",
            said(&finding)
        );
        assert!(disk(10, 300).found(&ENTRY).is_none(), "4 in the queue");
        assert!(disk(20_000, 1).found(&ENTRY).is_none(), "20 in the queue, 1 ms each");
    }
}
