//! device-slow: the request was at the device, and the device took long.

use std::collections::{BTreeMap, BTreeSet};

use super::{CauseEntry, CauseId, device_compare, swap_storm};
use crate::counters::lasting;
use crate::disks::Busy;
use crate::facts::Facts;
use crate::hung::{self, Hung};
use crate::sums::add_to;
use crate::{Evidence, Finding, Fix, finding, trouble};
use flatwater_recording::schema::{Column, cpu, disks, vmstat};
use flatwater_recording::units::Nanos;
use flatwater_recording::{Cause, Table};

pub const ENTRY: CauseEntry = CauseEntry {
    name: "device-slow",
    span: Some(Cause::DeviceSlow),
    headline: "the device itself is slow: requests take long once they have been issued",
    mechanism: "Between issue and completion (block_rq_issue to block_rq_complete) the kernel can only wait. Causes \
        outside the kernel: a disk's seeks, an SSD that erases blocks, a full write cache, a flush (REQ_PREFLUSH \
        drains the cache), a network behind the device, a cloud volume's limit on IOPS or bytes, throttling below the \
        guest.",
    kernels: "All.",
    in_spans: "The time of the awaited request between issue and completion (block_rq_issue to block_rq_complete). A \
        sleep in io_schedule alone is device-wait: no stack distinguishes a slow device from its queue.",
    in_counters: "/proc/diskstats: time per request (await: read_ns/reads, write_ns/writes) far above what the \
        kind of device needs, while it is busy (io_ns, %util near 100) and the queue is not long enough to explain \
        it by itself.",
    against: "Short queue and short await; or a long await with hundreds of requests in flight: then the load exceeds \
        the device's rate, and the delay is in the queue.",
    fix: "A faster device or a higher limit from its provider; spread over devices; fewer flushes (group commits); \
        keep the call from waiting for the device: buffered writes with a ring (`--set precursor=ring`).",
    prove: "fio with one job and a queue depth of 1 on the idle device: if its latency is as bad, it is the device.",
    sources: &["block/blk-mq.c: blk_mq_start_request, blk_mq_end_request", "Documentation/admin-guide/iostats.rst"],
    find,
};

/// With a short queue, no healthy device needs this long per request.
const AWAIT_MS_MIN: f64 = 50.0;
const QUEUE_SHORT: f64 = 8.0;
/// A device that completes nothing for this long while it has requests is stuck.
const STANDSTILL_NS_MIN: u64 = 150_000_000;
/// The same limits for devices that are flash by their name (NVMe): flash takes 0.1 ms per request and serves
/// dozens at once.
const FLASH_AWAIT_MS_MIN: f64 = 4.0;
const FLASH_QUEUE_SHORT: f64 = 2.0;
/// Without figures of the device: minimum share of CPU time in iowait, and minimum mean number of blocked threads.
const IOWAIT_SHARE_MIN: f64 = 0.3;
const BLOCKED_MIN: f64 = 1.0;
/// Minimum share of time in which some thread waited for I/O.
const PRESSURE_MIN: f64 = 0.2;

fn find(facts: &Facts<'_>) -> Option<Finding> {
    finding::from_spans(facts, Cause::DeviceSlow, ENTRY.headline, fixes())
        .or_else(|| from_requests(facts))
        .or_else(|| from_hung(facts))
        .or_else(|| from_disks(facts))
        .or_else(|| from_idle_rates(facts))
        .or_else(|| device_compare::finding(facts))
        .map(|finding| with_trouble(facts, finding))
        .or_else(|| from_trouble(facts))
        .or_else(|| from_iowait(facts))
        .or_else(|| from_pressure(facts))
}

/// Adds trouble in the kernel's log if calls were timed: it may be the reason for the measured time.
fn with_trouble(facts: &Facts<'_>, finding: Finding) -> Finding {
    match trouble::of_devices(facts).filter(|_| facts.timed()) {
        Some(reported) => finding.with([reported]).fix(failing()),
        None => finding,
    }
}

/// From timeouts, resets or errors of a device in the kernel's log.
fn from_trouble(facts: &Facts<'_>) -> Option<Finding> {
    let reported = trouble::of_devices(facts).filter(|_| facts.may_infer_place())?;
    let headline = "the kernel reports a device that fails or does not answer: its requests wait until it does";
    let against = Evidence::statement("the log does not show that a call waited for this device");
    let mut finding = Finding::inferred(CauseId::DeviceSlow, 0.6, headline).with([reported]).but([against]);
    finding.fixes.push(failing());
    Some(finding.settle("`iostat -x 1` and `dmesg -w` together: await must jump when the lines appear"))
}

/// The fix for reported device trouble.
fn failing() -> Fix {
    Fix::advice("replace the device, its cable or its path; check its own log (smartctl -x)")
}

/// The fix for a slow device.
#[must_use]
pub fn fixes() -> [Fix; 1] {
    [Fix::advice("test the idle device with fio at queue depth 1; ask its provider for its limits; spread the load")]
}

/// From the time between issue and completion of awaited requests, without the time of other requests.
fn from_requests(facts: &Facts<'_>) -> Option<Finding> {
    let time = facts.charges.device_time();
    let own_ns = time.device_ns.saturating_add(time.flush_ns);
    let mut finding = Finding::from_requests(facts, CauseId::DeviceSlow, own_ns, ENTRY.headline)?;
    if time.flush_ns > 0 {
        let text = format!("{} in write-cache flushes and discards", Nanos(time.flush_ns));
        finding.evidence.push(Evidence::new(text, time.flush_ns as f64, "ns"));
    }
    if time.queued_ns > 0 {
        let text = format!("{} more were spent in its queue, behind other requests", Nanos(time.queued_ns));
        finding.against.push(Evidence::new(text, time.queued_ns as f64, "ns"));
    }
    below(facts, &mut finding);
    let hung = hung::devices(facts);
    finding.evidence.extend(hung.iter().map(Hung::evidence));
    match standing(facts) {
        _ if !hung.is_empty() => finding.fixes.push(unanswered()),
        Some(evidence) => {
            finding.evidence.push(evidence);
            finding.fixes.push(Fix::advice(
                "find out outside this machine why the device stood still (the hypervisor's or the provider's limits \
                 on IOPS and bytes, its snapshots, the controller's log): nothing on this machine can end it",
            ));
        }
        None => finding.fixes.extend(fixes()),
    }
    Some(finding)
}

/// Calls hang while a device has not completed requests of any process for long, a journal commit's for example.
fn from_hung(facts: &Facts<'_>) -> Option<Finding> {
    let hung = hung::devices(facts);
    if facts.still_under_way == 0 || hung.is_empty() {
        return None;
    }
    let headline = "a device does not answer: it does not complete the requests that it received";
    let mut finding = Finding::inferred(CauseId::DeviceSlow, 0.8, headline).with(hung.iter().map(Hung::evidence));
    finding.fixes.push(unanswered());
    Some(
        finding
            .settle("`cat /sys/block/DEVICE/inflight` twice: the same numbers, and no completions in /proc/diskstats"),
    )
}

fn unanswered() -> Fix {
    Fix::advice(
        "find out why the device does not answer: the kernel's log for its timeouts and resets, and what serves it \
         (the hypervisor, the storage network, the file system below a loop device)",
    )
}

/// For awaited requests of loop devices: the time they spent at the disks below.
fn below(facts: &Facts<'_>, finding: &mut Finding) {
    let mut disks: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
    for request in &facts.recording.requests {
        let Some((disk, ns)) = request.below_device.as_deref().zip(request.below_ns) else { continue };
        let sums = disks.entry((&request.device, disk)).or_default();
        add_to(&mut sums.0, ns);
        add_to(&mut sums.1, request.complete_ns.saturating_sub(request.issue_ns.unwrap_or(request.insert_ns)));
    }
    for ((device, disk), (ns, of_ns)) in disks {
        let text = format!(
            "{device} passes its requests on to {disk}: there they spent {} of the {} at {device}",
            Nanos(ns),
            Nanos(of_ns)
        );
        finding.evidence.push(Evidence::new(text, ns as f64, "ns"));
    }
}

/// The device of an awaited request, or the disk below it, that completed nothing for longest.
fn standing(facts: &Facts<'_>) -> Option<Evidence> {
    let requests = &facts.recording.requests;
    let names: BTreeSet<&str> =
        requests.iter().flat_map(|one| [Some(one.device.as_str()), one.below_device.as_deref()]).flatten().collect();
    let found = names.into_iter().filter_map(|name| Some((name, facts.standstill(name)?)));
    // Disk activity has gaps; one this long means that the device did not answer.
    let (name, still) = found.filter(|(_, still)| still.ns >= STANDSTILL_NS_MIN).max_by_key(|(_, still)| still.ns)?;
    let text = format!(
        "{name} stood still: it completed nothing for {}, while it had {} requests",
        Nanos(still.ns),
        still.in_flight
    );
    Some(Evidence::new(text, still.ns as f64, "ns").at(still.from_ns))
}

/// Whether the name is that of an NVMe device; other flash cannot be distinguished from disks by name.
#[must_use]
pub fn is_flash(device: &str) -> bool {
    device.starts_with("nvme")
}

/// A disk whose requests took long while its queue was short.
#[must_use]
pub fn slow_disk(facts: &Facts<'_>) -> Option<Evidence> {
    let slow = |disk: &Busy| {
        let limit_ms =
            if is_flash(&disk.device) && disk.queue <= FLASH_QUEUE_SHORT { FLASH_AWAIT_MS_MIN } else { AWAIT_MS_MIN };
        disk.lasting() && disk.await_ms >= limit_ms && disk.queue <= QUEUE_SHORT
    };
    let disk = facts.busy_disks().into_iter().find(slow)?;
    let text = format!(
        "{}: {:.0} ms per request with only {:.1} in the queue, in {} of {} windows ({:.0} requests/s, {:.1} MiB/s)",
        disk.device,
        disk.await_ms,
        disk.queue,
        disk.windows,
        disk.of,
        disk.requests_per_s,
        disk.bytes_per_s / 1_048_576.0
    );
    Some(Evidence::new(text, disk.await_ms, "ms"))
}

fn from_disks(facts: &Facts<'_>) -> Option<Finding> {
    // Stacks may show that calls waited for the device; only its counters show that it was slow.
    let open = facts.may_infer_place() || facts.significant(Cause::DeviceWait).is_some();
    let evidence = slow_disk(facts).filter(|_| open)?;
    let mut finding = Finding::inferred(CauseId::DeviceSlow, 0.75, ENTRY.headline).with([evidence]);
    finding.fixes.extend(fixes());
    Some(
        finding.settle("fio with one job and iodepth=1 on the idle device: if its latency is as bad, it is the device"),
    )
}

/// A device that is asked for this little needs a quick answer: requests and bytes per second of all devices.
const LITTLE_REQUESTS: f64 = 150.0;
const LITTLE_BYTES: f64 = 5e6;
/// It is slow if a write takes this long with a queue that is shorter than this, and it is busy for this share.
const LITTLE_WRITE_MS: f64 = 40.0;
const LITTLE_QUEUE: f64 = 6.0;
const LITTLE_BUSY: f64 = 0.5;

/// From the log of a device that takes long for each write although it is asked for little, in every window.
fn from_idle_rates(facts: &Facts<'_>) -> Option<Finding> {
    if !facts.may_infer_place() {
        return None;
    }
    let table = facts.recording.table(Table::Disks)?;
    let evidence = table.entities().iter().find_map(|entity| little_and_slow(facts, &entity.name))?;
    let headline = "the device takes long for each request although it is asked for little";
    let mut finding = Finding::inferred(CauseId::DeviceSlow, 0.65, headline).with([evidence]);
    finding.fixes.extend(fixes());
    let settle = "fio with one job and iodepth=1 on the idle device: if its latency is as bad, it is the device";
    Some(finding.settle(settle))
}

fn little_and_slow(facts: &Facts<'_>, device: &str) -> Option<Evidence> {
    let rate = |column: Column| facts.rate(column, device);
    let (writes, write_ns) = (rate(disks::WRITES), rate(disks::WRITE_NS));
    let slow = writes
        .points
        .iter()
        .zip(&write_ns.points)
        .filter(|(count, time)| count.value >= 1.0 && time.value / count.value / 1e6 >= LITTLE_WRITE_MS);
    if writes.is_empty() || slow.count() < writes.len() {
        return None;
    }
    let (count, spent) = (writes.mean()?, write_ns.mean()?);
    let requests = count + rate(disks::READS).mean().unwrap_or(0.0);
    let bytes = rate(disks::WRITE_BYTES).mean()? + rate(disks::READ_BYTES).mean().unwrap_or(0.0);
    let queue = rate(disks::QUEUE_NS).mean()? / 1e9;
    let busy = rate(disks::IO_NS).mean()? / 1e9;
    let little = requests <= LITTLE_REQUESTS && bytes <= LITTLE_BYTES && queue <= LITTLE_QUEUE && busy >= LITTLE_BUSY;
    let flush = rate(disks::FLUSH_NS).mean().zip(rate(disks::FLUSHES).mean()).filter(|(_, count)| *count > 0.0);
    let flush = flush.map_or(String::new(), |(ns, count)| format!(" and {:.0} ms per flush", ns / count / 1e6));
    let each_ms = spent / count / 1e6;
    let text = format!(
        "{device}: {each_ms:.0} ms per write{flush} at {requests:.0} requests/s and {:.1} MiB/s, with {queue:.1} queued",
        bytes / 1_048_576.0
    );
    little.then(|| Evidence::new(text, each_ms, "ms"))
}

/// From vmstat or sar -u alone: threads wait for a device, but not which and why.
fn from_iowait(facts: &Facts<'_>) -> Option<Finding> {
    let known = facts.recording.table(Table::Disks).is_some() || swap_storm::explains_waiting(facts);
    let wait = facts.cpu_share(cpu::IOWAIT_NS);
    let (mean, blocked) = (wait.mean()?, facts.blocked().mean().unwrap_or(0.0));
    if known
        || !facts.may_infer_place()
        || !lasting(wait.len(), wait.len(), wait.seconds())
        || mean < IOWAIT_SHARE_MIN
        || blocked < BLOCKED_MIN
    {
        return None;
    }
    let mut finding =
        Finding::inferred(CauseId::DeviceSlow, 0.45, "threads wait for a block device that does not keep up");
    let text =
        format!("{:.0} % of CPU time waited for I/O, with {blocked:.1} threads blocked on average", mean * 100.0);
    finding.evidence.push(Evidence::new(text, mean * 100.0, "%"));
    for (column, what) in [(vmstat::PGPGIN, "read"), (vmstat::PGPGOUT, "written")] {
        if let Some(kib) = facts.vmstat_rate(column).mean() {
            finding.evidence.push(Evidence::new(format!("{:.1} MiB/s {what}", kib / 1024.0), kib, "KiB/s"));
        }
    }
    finding.against.push(Evidence::statement(
        "iowait is idle time with a request pending: a single reader on an idle machine shows it too",
    ));
    finding.fixes.extend(fixes());
    Some(finding.settle(
        "`iostat -x 1` (await, aqu-sz, %util) shows which device and whether its queue or the device itself is slow",
    ))
}

/// From /proc/pressure/io alone: threads wait for block I/O, but not for which device, and whether at it or in its
/// queue.
fn from_pressure(facts: &Facts<'_>) -> Option<Finding> {
    let known = facts.recording.table(Table::Disks).is_some() || swap_storm::explains_waiting(facts);
    let pressed = facts.pressed("io").filter(|pressed| pressed.some >= PRESSURE_MIN)?;
    if known || !facts.may_infer_place() {
        return None;
    }
    let finding = Finding::inferred(CauseId::DeviceSlow, 0.4, "threads wait for a block device that does not keep up");
    let mut finding = finding
        .with([pressed.evidence("block I/O")])
        .but([Evidence::statement("PSI counts every wait for I/O, including those of batch readers")]);
    finding.fixes.extend(fixes());
    Some(finding.settle(
        "`iostat -x 1` (await, aqu-sz, %util) shows which device and whether its queue or the device itself is slow",
    ))
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::{RecordingBuilder, evidence_text, rising};
    use flatwater_recording::{Cause, Entity, OpKind, Table};

    fn disk(reads_per_s: i64, read_ms: i64, busy_percent: i64) -> RecordingBuilder {
        let columns = [
            ("reads", rising(reads_per_s, 8)),
            ("writes", rising(0, 8)),
            ("read_ns", rising(reads_per_s * read_ms * 1_000_000, 8)),
            ("write_ns", rising(0, 8)),
            ("io_ns", rising(busy_percent * 10_000_000, 8)),
        ];
        let columns: Vec<(&str, &[i64])> = columns.iter().map(|(name, values)| (*name, values.as_slice())).collect();
        RecordingBuilder::new().counters(Table::Disks, &Entity::named("sda"), &columns)
    }

    #[test]
    fn long_requests_in_a_short_queue_are_device_slow() {
        assert!(disk(20, 120, 98).found(&ENTRY).is_some());
    }

    #[test]
    fn a_fast_an_idle_or_an_overloaded_device_is_not() {
        assert!(disk(5_000, 1, 99).found(&ENTRY).is_none(), "1 ms each");
        assert!(disk(2, 120, 10).found(&ENTRY).is_none(), "idle most of the time");
        assert!(disk(400, 300, 99).found(&ENTRY).is_none(), "120 in the queue: the load is the delay");
    }

    #[test]
    fn device_trouble_in_the_log_is_added_to_measured_time() {
        let slow = |line: &str| {
            RecordingBuilder::new().slow(OpKind::Fsync, &[(Cause::DeviceSlow, 900.0)]).report(line).found(&ENTRY)
        };
        let timeout = slow("nvme nvme0: I/O 12 QID 3 timeout, aborting").expect("900 ms");
        assert!(evidence_text(&timeout).contains("QID 3 timeout, aborting"), "{}", evidence_text(&timeout));
        assert!(timeout.fixes.iter().any(|fix| fix.text.contains("smartctl -x")), "{:?}", timeout.fixes);
        let other = RecordingBuilder::new().slow(OpKind::Fsync, &[(Cause::DeviceSlow, 900.0)]);
        let other = other.report("blk_update_request: I/O error, dev sdb, sector 1");
        let other = other.edit(|recording| recording.header.target.device = Some("sda".to_owned()));
        let other = other.found(&ENTRY).expect("900 ms");
        assert!(!evidence_text(&other).contains("dev sdb"), "{}", evidence_text(&other));
        let calm = slow("usb 1-1: new high-speed USB device").expect("900 ms");
        assert!(!calm.fixes.iter().any(|fix| fix.text.contains("smartctl -x")));
    }

    #[test]
    fn flash_is_slow_where_a_disk_is_not() {
        let named = |name: &str, ms: i64| {
            let columns = [
                ("requests", rising(200, 8)),
                ("request_ns", rising(200 * ms * 1_000_000, 8)),
                ("io_ns", rising(870_000_000, 8)),
            ];
            let columns: Vec<(&str, &[i64])> =
                columns.iter().map(|(name, values)| (*name, values.as_slice())).collect();
            RecordingBuilder::new().counters(Table::Disks, &Entity::named(name), &columns)
        };
        assert!(named("nvme0n1", 5).found(&ENTRY).is_some(), "5 ms each, one at a time");
        assert!(named("sda", 5).found(&ENTRY).is_none() && named("nvme0n1", 1).found(&ENTRY).is_none());
    }

    #[test]
    fn io_pressure_is_weak_evidence() {
        let shown = |some: i64| {
            let columns: [(&str, &[i64]); 2] =
                [("some_avg10_centipercent", &[some]), ("full_avg10_centipercent", &[some / 2])];
            RecordingBuilder::new().gauges(Table::Pressure, &Entity::named("io"), &columns)
        };
        let finding = shown(4_520).found(&ENTRY).expect("45 % of 10 s");
        assert!(
            evidence_text(&finding).contains("waited for block I/O 45 % of the 10 s"),
            "{}",
            evidence_text(&finding)
        );
        assert!(finding.weight < 0.5 && shown(300).found(&ENTRY).is_none());
    }

    #[test]
    fn iowait_alone_is_weak_evidence() {
        let (wait, idle) = (rising(450_000_000, 10), rising(550_000_000, 10));
        let all = Entity::named("all");
        let build = |blocked: i64| {
            let builder =
                RecordingBuilder::new().counters(Table::Cpu, &all, &[("iowait_ns", &wait), ("idle_ns", &idle)]);
            builder.gauges(Table::Cpu, &all, &[("procs_blocked", &[blocked; 10])])
        };
        assert!(build(3).found(&ENTRY).is_some_and(|finding| finding.weight < 0.5));
        assert!(build(0).found(&ENTRY).is_none());
    }
}
