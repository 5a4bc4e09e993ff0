//! Rules about writing: dirty limits relative to the device's speed, the flusher, the I/O scheduler.

use super::{Advice, Snapshot, Weight};
use crate::{CauseId, Evidence};
use flatwater_recording::Table;
use flatwater_recording::schema::{disks, vmstat};
use flatwater_recording::units::Bytes;

/// Seconds of writing that the dirty limit may allow; a sync can take that long.
const SECONDS_MAX: f64 = 5.0;
/// Assumed if the device's speed is unknown; the evidence says so.
const ASSUMED_BYTES_PER_S: f64 = 200e6;
/// A device that wrote less than this since boot (256 MiB) has no known speed.
const WRITTEN_MIN: i64 = 256 << 20;

/// Name and speed of the device that wrote most, in bytes/s of busy time since boot.
fn device_speed(snapshot: &Snapshot<'_>) -> Option<(String, f64)> {
    let disks = snapshot.recording.table(Table::Disks)?;
    let each = disks.by_entity().filter_map(|(entity, rows)| {
        let written = rows.last(disks::WRITE_BYTES).filter(|bytes| *bytes >= WRITTEN_MIN)?;
        let total = written.checked_add(rows.last(disks::READ_BYTES).unwrap_or(0))?;
        let busy_ns = rows.last(disks::IO_NS).filter(|ns| *ns > 0)?;
        Some((entity.name.clone(), total as f64 * 1e9 / busy_ns as f64, written))
    });
    each.max_by_key(|(.., written)| *written).map(|(name, speed, _)| (name, speed))
}

/// The dirty limit in bytes: vm.dirty_bytes, otherwise the threshold in /proc/vmstat, otherwise vm.dirty_ratio of
/// memory.
fn limit_bytes(snapshot: &Snapshot<'_>) -> Option<f64> {
    let bytes = snapshot.knob("vm.dirty_bytes").filter(|bytes| *bytes > 0);
    let page_bytes = snapshot.recording.header.machine.page_size_bytes() as f64;
    let threshold = snapshot.vmstat(vmstat::NR_DIRTY_THRESHOLD).map(|pages| pages as f64 * page_bytes);
    let ratio = || Some(snapshot.knob("vm.dirty_ratio")? as f64 / 100.0 * snapshot.memory_bytes()?);
    bytes.map(|bytes| bytes as f64).or(threshold).or_else(ratio)
}

pub fn dirty_limits(snapshot: &Snapshot<'_>) -> Vec<Advice> {
    let Some(limit) = limit_bytes(snapshot) else { return Vec::new() };
    let measured = device_speed(snapshot);
    let speed = measured.as_ref().map_or(ASSUMED_BYTES_PER_S, |(_, speed)| *speed);
    let seconds = limit / speed.max(1.0);
    if seconds <= SECONDS_MAX {
        return Vec::new();
    }
    let of = match &measured {
        Some((name, speed)) => format!("{name} has moved {:.0} MB/s while busy since boot", speed / 1e6),
        None => format!("at an assumed {:.0} MB/s (nothing was measured)", ASSUMED_BYTES_PER_S / 1e6),
    };
    let text = format!("up to {} may be dirty, {seconds:.0} s of writing: {of}", Bytes(limit as u64));
    let why = "the limit allows more dirty data than the device writes in seconds, and writers and syncs wait for it";
    // The bytes that the device writes in one second, rounded down to MiB, between 16 MiB and 1 GiB.
    let second = ((speed / 1_048_576.0) as u64).clamp(16, 1024) << 20;
    let background = (second / 4).max(8 << 20);
    let evidence = [Evidence::new(text, seconds, "s")];
    let weight = if measured.is_some() { Weight::Invites } else { Weight::Hint };
    let limit = Advice::knob(snapshot, knob!("vm.dirty_bytes"), &second.to_string(), CauseId::DirtyThrottle, why)
        .with(evidence.clone());
    let early = "writeback starts late, with much dirty data, and then comes in bursts";
    let start =
        Advice::knob(snapshot, knob!("vm.dirty_background_bytes"), &background.to_string(), CauseId::DirtyBurst, early)
            .with(evidence);
    [limit, start].into_iter().map(|advice| advice.weight(weight)).collect()
}

pub fn flusher(snapshot: &Snapshot<'_>) -> Vec<Advice> {
    if snapshot.knob("vm.dirty_writeback_centisecs") != Some(0) {
        return Vec::new();
    }
    let why = "the periodic flusher is off: old dirty data waits until a limit is reached, and then comes in a burst";
    vec![Advice::knob(snapshot, knob!("vm.dirty_writeback_centisecs"), "500", CauseId::DirtyBurst, why)]
}

/// From this mean time of a read since boot, in ms, a queue without a scheduler is suspect.
const READ_MS_MIN: f64 = 20.0;

pub fn scheduler(snapshot: &Snapshot<'_>) -> Vec<Advice> {
    let Some(scheduler) = snapshot.text("queue.scheduler").filter(|name| name.contains("none")) else {
        return Vec::new();
    };
    let device = snapshot.recording.header.target.device.as_deref();
    let Some(disks) = snapshot.recording.table(Table::Disks) else { return Vec::new() };
    let slow = disks.by_entity().find_map(|(entity, rows)| {
        let reads = rows.last(disks::READS).filter(|reads| *reads >= 1000)?;
        let mean_ms = rows.last(disks::READ_NS)? as f64 / reads as f64 / 1e6;
        let ours = device.is_none_or(|device| device == entity.name);
        (ours && mean_ms >= READ_MS_MIN).then(|| (entity.name.clone(), mean_ms))
    });
    let Some((name, mean_ms)) = slow else { return Vec::new() };
    let why = format!("reads queue behind writeback: {name} has no scheduler ({scheduler})");
    let text = format!("a read of {name} took {mean_ms:.0} ms on average since boot");
    let advice = Advice::knob(snapshot, knob!("queue.scheduler"), "mq-deadline", CauseId::DeviceQueueStarved, why);
    vec![advice.with([Evidence::new(text, mean_ms, "ms")])]
}
