//! Figures of devices: times of requests, queues, and how long programs waited for I/O.

use super::{IOWAIT_CALM, Matter, View};
use crate::Evidence;
use crate::facts::Facts;
use flatwater_recording::schema::{Column, cpu, disks, meminfo, vmstat, workload};
use flatwater_recording::units::{Bytes, Nanos};
use flatwater_recording::{OpKind, Recording, Table};

/// Time per request and mean queue up to which a device keeps up; a rotational disk takes some ms per request.
const AWAIT_CALM_MS: f64 = 20.0;
const QUEUE_CALM: f64 = 4.0;
/// Share of the time that one program waited for I/O, by the kernel's delay accounting.
const DELAY_CALM: f64 = 0.05;
const DELAY_SUSPICIOUS: f64 = 0.5;
/// A device keeps up if 99.9 % of at least this many requests take at most this long.
const REQUESTS_MIN: u64 = 100;
const REQUEST_CALM_NS: u64 = 20_000_000;
/// As few requests as this suffice if all were this quick, as on a flash device.
const REQUEST_QUICK_NS: u64 = 4_000_000;
const QUICK_REQUESTS_MIN: u64 = 8;
/// At least this many writes in an interval, so that one late write does not count.
const MOMENT_WRITES_MIN: f64 = 3.0;
/// Share of time in which a device was busy.
const BUSY_SUSPICIOUS: f64 = 0.95;
/// Thresholds of `reads_again`: memory is full if free memory is below this share of the page cache; the cache may
/// grow by this share of the bytes read; iowait and reads of at least this are noticed.
const FREE_FULL: f64 = 0.05;
const GROWTH_MAX: f64 = 0.25;
const IOWAIT_READS: f64 = 0.05;
const READS_AGAIN_BYTES_PER_S: f64 = 20e6;
const AWAIT_SUSPICIOUS_MS: f64 = 50.0;

/// The name of histograms of requests at devices.
pub const BLOCK_IO: &str = "block I/O";

/// Judges the share of the time that a program waited for I/O (iotop, pidstat).
pub(super) fn delays(facts: &Facts<'_>, view: &mut View) {
    let Some(table) = facts.recording.table(Table::Workload) else { return };
    let mut longest: Option<(f64, &str)> = None;
    for entity in table.entities() {
        let Some(share) = facts.rate(workload::IO_DELAY_NS, &entity.name).mean().map(|ns| ns / 1e9) else { continue };
        if longest.is_none_or(|(most, _)| share > most) {
            longest = Some((share, &entity.name));
        }
    }
    let Some((share, name)) = longest else { return };
    let text = format!("{name} waited for I/O {:.1} % of the time, longer than any other program", share * 100.0);
    let evidence = Evidence::new(text, share * 100.0, "%");
    match share {
        share if share >= DELAY_SUSPICIOUS => view.odd(Matter::Device, evidence),
        share if share < DELAY_CALM => view.calm(Matter::Device, evidence),
        _ => {}
    }
}

/// (all, late) of the requests that a tool counted at the device (biolatency, iolatency, btt) or timed one by one
/// (biosnoop, iosnoop). `None` if the histograms are of something else, or if the requests are few and not all as
/// quick as a flash device's.
pub(super) fn of_requests(recording: &Recording) -> Option<(u64, u64)> {
    let buckets = || recording.latency.iter();
    let at_device = buckets().next().is_some()
        && buckets().all(|bucket| bucket.op == OpKind::Other && bucket.thread == BLOCK_IO || is_disk(&bucket.thread));
    let (mut all, mut late, mut longest_ns) = (0_u64, 0_u64, 0_u64);
    for (_, highest_ns, count) in buckets().flat_map(|bucket| bucket.from_start.steps()) {
        all = all.saturating_add(count);
        late = late.saturating_add(if highest_ns > REQUEST_CALM_NS.saturating_mul(2) { count } else { 0 });
        longest_ns = longest_ns.max(highest_ns);
    }
    let enough = all >= REQUESTS_MIN || all >= QUICK_REQUESTS_MIN && longest_ns <= REQUEST_QUICK_NS;
    (at_device && enough).then_some((all, late))
}

/// Whether this names a disk: `sda`, `nvme0n1`, `dm-3`, `mmcblk0`, or a device number such as `202,16`.
fn is_disk(name: &str) -> bool {
    const KINDS: &[&str] = &["sd", "vd", "xvd", "hd", "nvme", "dm-", "md", "mmcblk", "loop", "nbd", "rbd", "zd"];
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    let numbers = name.split_once(',').is_some_and(|(major, minor)| digits(major) && digits(minor));
    let short = name.len() <= 12 && name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-');
    numbers || short && KINDS.iter().any(|kind| name.len() > kind.len() && name.starts_with(kind))
}

/// Whether the log counts requests at devices only, and 99.9 % of them were quick.
#[must_use]
pub fn device_keeps_up(recording: &Recording) -> bool {
    of_requests(recording).is_some_and(|(all, late)| late.saturating_mul(1000) <= all)
}

pub(super) fn devices(facts: &Facts<'_>, view: &mut View) {
    if let Some((all, late)) = of_requests(facts.recording) {
        let text =
            format!("{all} requests were timed at the device; {late} took longer than {}", Nanos(REQUEST_CALM_NS));
        let evidence = Evidence::new(text, late as f64, "requests");
        if device_keeps_up(facts.recording) {
            view.calm(Matter::Device, evidence)
        } else {
            view.odd(Matter::Device, evidence)
        }
    }
    let Some(table) = facts.recording.table(Table::Disks) else { return };
    let mut slowest: Option<(f64, f64, &str)> = None;
    for entity in table.entities() {
        slow_moment(facts, &entity.name, view);
        let mean = |column: Column| facts.rate(column, &entity.name).mean();
        let both = |one: Column, other: Column| Some(mean(one)? + mean(other)?);
        let requests = mean(disks::REQUESTS).or_else(|| both(disks::READS, disks::WRITES)).filter(|rate| *rate > 0.0);
        let spent = mean(disks::REQUEST_NS).or_else(|| both(disks::READ_NS, disks::WRITE_NS));
        let Some(each_ms) = requests.zip(spent).map(|(requests, ns)| ns / requests / 1e6) else { continue };
        let queue = mean(disks::QUEUE_NS).or(spent).unwrap_or(0.0) / 1e9;
        if slowest.is_none_or(|(most, ..)| each_ms > most) {
            slowest = Some((each_ms, queue, &entity.name));
        }
    }
    let Some((each_ms, queue, name)) = slowest else { return };
    let text = format!("{name}, the slowest device, took {each_ms:.1} ms per request with {queue:.1} in the queue");
    let evidence = Evidence::new(text, each_ms, "ms");
    match () {
        () if each_ms >= AWAIT_SUSPICIOUS_MS && queue >= 1.0 => view.odd(Matter::Device, evidence),
        () if each_ms <= AWAIT_CALM_MS || queue <= QUEUE_CALM / 8.0 => view.calm(Matter::Device, evidence),
        () if queue <= QUEUE_CALM => view.calm(Matter::Device, evidence),
        () => view.odd(Matter::Device, evidence),
    }
}

/// Suspects an interval with slow writes and a short queue, which the mean over all intervals hides.
fn slow_moment(facts: &Facts<'_>, name: &str, view: &mut View) {
    let rates = |column: Column| facts.rate(column, name);
    let (writes, spent) = (rates(disks::WRITES), rates(disks::WRITE_NS));
    let each = writes.points.iter().zip(&spent.points).filter(|(count, time)| {
        let (count, seconds) = (count.value, (count.at_ns.saturating_sub(count.from_ns)) as f64 / 1e9);
        count * seconds >= MOMENT_WRITES_MIN && time.value / count / 1e6 >= AWAIT_SUSPICIOUS_MS
    });
    let worst = each.max_by(|a, b| (a.1.value / a.0.value).total_cmp(&(b.1.value / b.0.value)));
    let Some((count, time)) = worst.filter(|_| writes.len() > 1) else { return };
    let (ms, queue) = (time.value / count.value / 1e6, time.value / 1e9);
    // With a longer queue, the requests waited for each other.
    if queue <= QUEUE_CALM {
        let text = format!("{name}: {ms:.0} ms per write in one interval, with {queue:.1} in the queue");
        view.odd(Matter::Device, Evidence::new(text, ms, "ms").at(count.at_ns));
    }
}

/// Suspects a device that is busy all the time while CPUs wait for I/O. Its request times do not exclude a stall: a
/// program that reads one block after another waits for each.
pub(super) fn busy_device(facts: &Facts<'_>, view: &mut View) {
    let Some(wait) = facts.cpu_share(cpu::IOWAIT_NS).mean().filter(|wait| *wait >= IOWAIT_CALM) else { return };
    let Some(table) = facts.recording.table(Table::Disks) else { return };
    let busy = table.entities().iter().filter_map(|entity| {
        let share = facts.rate(disks::IO_NS, &entity.name).mean()? / 1e9;
        (share >= BUSY_SUSPICIOUS).then_some((share, &entity.name))
    });
    let Some((share, name)) = busy.max_by(|a, b| a.0.total_cmp(&b.0)) else { return };
    let text =
        format!("{name} was busy {:.0} % of the time, and CPUs waited for I/O {:.0} %", share * 100.0, wait * 100.0);
    view.odd(Matter::Device, Evidence::new(text, share * 100.0, "%"));
}

/// Suspects reads that leave the page cache as large as it was, while memory is full: evicted pages may be read
/// again.
pub(super) fn reads_again(facts: &Facts<'_>, view: &mut View) {
    let Some(table) = facts.recording.table(Table::Meminfo) else { return };
    let Some((_, rows)) = table.by_entity().next() else { return };
    let levels = |column: Column| Some((rows.first(column)? as f64, rows.last(column)? as f64));
    let cache = [meminfo::CACHED_BYTES, meminfo::BUFFERS_CACHED_BYTES].into_iter().find_map(levels);
    let (Some(cache), Some(free)) = (cache, levels(meminfo::MEM_FREE_BYTES)) else { return };
    let rate = facts.vmstat_rate(vmstat::PGPGIN);
    let Some(read) = rate.mean().map(|kib| kib * 1024.0 * rate.seconds()) else { return };
    let wait = facts.cpu_share(cpu::IOWAIT_NS).mean().unwrap_or(0.0);
    let full = free.1 < FREE_FULL * cache.1;
    let unchanged = (cache.1 - cache.0).abs() <= read * GROWTH_MAX;
    if full
        && unchanged
        && wait >= IOWAIT_READS
        && rate.mean().is_some_and(|kib| kib * 1024.0 >= READS_AGAIN_BYTES_PER_S)
    {
        let text = format!(
            "{} were read while the cache went from {} to {} with {} free: pages that are read may evict others that \
             are needed again",
            Bytes(read as u64),
            Bytes(cache.0.max(0.0) as u64),
            Bytes(cache.1.max(0.0) as u64),
            Bytes(free.1.max(0.0) as u64)
        );
        view.odd(Matter::Memory, Evidence::new(text, read, "bytes"));
    }
}
