//! device-queue-starved: requests spend their time in the queue, behind other requests.

use super::{CauseEntry, CauseId};
use crate::disks::Busy;
use crate::facts::Facts;
use crate::fix;
use crate::{Evidence, Finding, Fix};
use flatwater_recording::schema::{Column, disks};
use flatwater_recording::units::Nanos;
use flatwater_recording::{Cause, RequestOp, Table};

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
        front the wait is half a second, although the device is healthy. A device with a deep internal queue (NCQ, \
        SAN) may reorder and starve beyond the scheduler's reach.",
    kernels: "All.",
    in_spans: "synchronous-read, journal-commit, page-writeback or request-queue, while the awaited requests (their \
        insertion, issue and completion are measured) were behind those of others.",
    in_counters: "aqu-sz (avgqu-sz) of tens to hundreds, await far above the device time per request (1 / requests \
        per second at 100 % utilisation), r_await as high as w_await.",
    against: "A short queue with a long await: then the device itself is slow (device-slow).",
    fix: "A limit on what the other process writes (io.max); a scheduler that separates them (mq-deadline lets reads \
        pass, bfq gives each process's synchronous writes their turn), a smaller queue.nr_requests, writeback in \
        smaller bursts (vm.dirty_background_bytes low), wbt (queue.wbt_lat_usec), io.latency or \
        io.cost for the latency-critical cgroup, a separate device for the journal.",
    prove: "Stop the bulk writer: await falls to the device time at once.",
    sources: &["block/mq-deadline.c", "block/blk-wbt.c", "Documentation/block/deadline-iosched.rst"],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    from_requests(facts).or_else(|| from_disks(facts)).or_else(|| reads_behind_a_burst(facts))
}

/// From awaited requests that queued behind others' requests or the target's own.
fn from_requests(facts: &Facts<'_>) -> Option<Finding> {
    let time = facts.charges.device_time();
    let mut finding = Finding::from_requests(facts, CauseId::DeviceQueueStarved, time.queued_ns, QUEUED)?;
    let own_ns = time.queued_ns.saturating_sub(time.queued_others_ns);
    let text =
        format!("for requests of others {}, for the target's own {}", Nanos(time.queued_others_ns), Nanos(own_ns));
    finding.evidence.push(Evidence::new(text, time.queued_others_ns as f64, "ns"));
    let served_ns = time.device_ns.saturating_add(time.flush_ns);
    let text = format!("the device itself took {} for the awaited requests", Nanos(served_ns));
    finding.against.push(Evidence::new(text, served_ns as f64, "ns"));
    if own_ns > time.queued_others_ns {
        return Some(finding.fix(Fix::advice(
            "the target's own requests are ahead: write fewer bytes between two syncs, start writeback earlier \
                (sync_file_range)",
        )));
    }
    if mostly_reads(facts) {
        return Some(finding.fix(Fix::knob("let reads pass", knob!("queue.scheduler"), "mq-deadline")));
    }
    let turns = Fix::knob("give each process's synchronous writes their turn", knob!("queue.scheduler"), "bfq");
    let measured = fix::bfq(&finding.aggressors, facts);
    Some(finding.fix(turns.measured(measured)))
}

/// Whether most of the awaited requests' time is that of reads, which mq-deadline prefers. It prefers no write over
/// another.
fn mostly_reads(facts: &Facts<'_>) -> bool {
    let (mut reads_ns, mut all_ns) = (0_u64, 0_u64);
    for request in &facts.recording.requests {
        let ns = request.complete_ns.saturating_sub(request.awaited_ns.unwrap_or(request.insert_ns));
        all_ns = all_ns.saturating_add(ns);
        reads_ns = reads_ns.saturating_add(if request.op == RequestOp::Read { ns } else { 0 });
    }
    reads_ns >= all_ns.div_ceil(2)
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
        "{}: {:.0} requests in the queue, {:.0} ms per request while one was completed every {:.1} ms, in {} of {} \
            windows",
        disk.device,
        disk.queue,
        disk.await_ms,
        disk.service_ms(),
        disk.windows,
        disk.of
    );
    let mut finding = Finding::inferred(CauseId::DeviceQueueStarved, if blamed { 0.8 } else { 0.6 }, ENTRY.headline)
        .with([Evidence::new(text, disk.queue, "requests")]);
    if let (Some(read), Some(write)) = (disk.read_await_ms, disk.write_await_ms) {
        finding.evidence.push(Evidence::new(format!("reads take {read:.0} ms, writes {write:.0} ms"), read, "ms"));
    }
    if !blamed {
        finding.against.push(Evidence::statement(
            "a batch job that keeps the queue full by design looks the same and does no harm",
        ));
    }
    let finding = finding.fix(Fix::knob("let reads and small writes pass", knob!("queue.scheduler"), "mq-deadline"));
    let finding = finding.fix(Fix::knob(
        "write back earlier and in smaller amounts",
        knob!("vm.dirty_background_bytes"),
        "16MiB",
    ));
    Some(finding.settle(
        "run `flatwater record -p PID -t 60s` as root for the program that must be fast: \
     synchronous-read or journal-commit would show it",
    ))
}

/// A queue of at least CROWDED requests is a burst; below CALM is normal work.
const CROWDED: f64 = 32.0;
const CALM: f64 = 8.0;
/// Minimum ratio of the time per read in a burst to that outside, and minimum time, ms.
const READS_SLOWER: f64 = 10.0;
const READ_MS_MIN: f64 = 10.0;
/// Minimum ratio of the writes per second in a burst to those outside.
const WRITES_MORE: f64 = 5.0;

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// From a device's own series: while writes crowd its queue, reads take many times as long as otherwise. The mean
/// over all requests hides this if there are thousands of writes and few reads.
fn reads_behind_a_burst(facts: &Facts<'_>) -> Option<Finding> {
    if !facts.may_infer() {
        return None;
    }
    let series = facts.recording.table(Table::Disks)?;
    series.entities().iter().find_map(|entity| behind_a_burst(facts, &entity.name))
}

fn behind_a_burst(facts: &Facts<'_>, device: &str) -> Option<Finding> {
    let track = |column: Column| facts.rate(column, device);
    let (reads, read_ns, writes) = (track(disks::READS), track(disks::READ_NS), track(disks::WRITES));
    let same = |track: &crate::counters::Track, at_ns: u64| {
        track.points.iter().find(|point| point.at_ns == at_ns).map(|point| point.value)
    };
    // (queue, ms per read, writes per second) of each interval with reads.
    let each: Vec<(f64, f64, f64)> = track(disks::QUEUE_NS)
        .points
        .iter()
        .filter_map(|point| {
            let count = same(&reads, point.at_ns).filter(|count| *count > 0.0)?;
            let ms = same(&read_ns, point.at_ns)? / count / 1e6;
            Some((point.value / 1e9, ms, same(&writes, point.at_ns)?))
        })
        .collect();
    let of = |crowded: bool| each.iter().filter(move |one| if crowded { one.0 >= CROWDED } else { one.0 < CALM });
    let (burst, calm) = (of(true).count(), of(false).count());
    let (slow, usual) = (median(of(true).map(|one| one.1).collect())?, median(of(false).map(|one| one.1).collect())?);
    let (many, few) = (median(of(true).map(|one| one.2).collect())?, median(of(false).map(|one| one.2).collect())?);
    let behind = slow >= READ_MS_MIN && slow >= READS_SLOWER * usual && many >= WRITES_MORE * few;
    if burst < 2 || calm < 2 || !behind {
        return None;
    }
    let text = format!(
        "{device}: a read takes {slow:.0} ms while {many:.0} writes/s fill the queue ({burst} intervals), and \
            {usual:.1} ms otherwise ({few:.0} writes/s)"
    );
    let finding =
        Finding::inferred(CauseId::DeviceQueueStarved, 0.65, ENTRY.headline).with([Evidence::new(text, slow, "ms")]);
    let finding = finding.fix(Fix::knob("let reads and small writes pass", knob!("queue.scheduler"), "mq-deadline"));
    Some(finding.settle(
        "run `flatwater record -p PID -t 60s` as root for the program that must be fast: \
     synchronous-read or journal-commit would show it",
    ))
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::{RecordingBuilder, evidence_text, rising};
    use flatwater_recording::{Entity, Table};

    fn disk(writes_per_s: i64, write_ms: i64) -> RecordingBuilder {
        let columns = [
            ("reads", rising(4, 8)),
            ("read_ns", rising(4 * write_ms * 1_000_000, 8)),
            ("writes", rising(writes_per_s, 8)),
            ("write_ns", rising(writes_per_s * write_ms * 1_000_000, 8)),
            ("io_ns", rising(990_000_000, 8)),
        ];
        let columns: Vec<(&str, &[i64])> = columns.iter().map(|(name, values)| (*name, values.as_slice())).collect();
        RecordingBuilder::new().counters(Table::Disks, &Entity::named("sda"), &columns)
    }

    #[test]
    fn a_long_queue_is_distinguished_from_a_slow_device() {
        let finding = disk(196, 600).found(&ENTRY).expect("120 requests in the queue");
        assert!(
            evidence_text(&finding)
                .contains("120 requests in the queue, 600 ms per request while one was completed every 5.0 ms"),
            "{}",
            evidence_text(&finding)
        );
        assert!(disk(10, 300).found(&ENTRY).is_none(), "4 in the queue");
        assert!(disk(20_000, 1).found(&ENTRY).is_none(), "20 in the queue, 1 ms each");
    }

    /// Rows of (reads, ms per read, writes, queue), one a second.
    fn rows(rows: &[(i64, i64, i64, i64)]) -> RecordingBuilder {
        let sum = |value: fn(&(i64, i64, i64, i64)) -> i64| {
            let mut total = 0;
            let sums = std::iter::once(0).chain(rows.iter().map(move |row| {
                total += value(row);
                total
            }));
            sums.collect::<Vec<i64>>()
        };
        let columns = [
            ("reads", sum(|row| row.0)),
            ("read_ns", sum(|row| row.0 * row.1 * 1_000_000)),
            ("writes", sum(|row| row.2)),
            ("write_ns", sum(|row| row.2 * 5_000_000)),
            ("queue_ns", sum(|row| row.3 * 1_000_000_000)),
        ];
        let columns: Vec<(&str, &[i64])> = columns.iter().map(|(name, values)| (*name, values.as_slice())).collect();
        RecordingBuilder::new().counters(Table::Disks, &Entity::named("sda"), &columns)
    }

    #[test]
    fn reads_behind_a_burst_of_writes_show_in_the_series() {
        let calm = (6_000, 1, 300, 2);
        let burst = (80, 28, 27_000, 142);
        let finding = rows(&[calm, calm, burst, burst, burst, calm]).found(&ENTRY).expect("28 ms beside 1 ms");
        assert!(
            evidence_text(&finding).contains("a read takes 28 ms while 27000 writes/s"),
            "{}",
            evidence_text(&finding)
        );
        assert!(rows(&[calm, calm, (80, 1, 27_000, 142), (80, 1, 27_000, 142), calm]).found(&ENTRY).is_none());
        assert!(rows(&[calm, burst, calm]).found(&ENTRY).is_none(), "one interval is a moment");
        assert!(rows(&[burst, burst, burst]).found(&ENTRY).is_none(), "the usual time per read is unknown");
    }
}
