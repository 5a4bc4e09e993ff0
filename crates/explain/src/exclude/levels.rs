//! Memory levels over time: available memory that shrinks, page cache that vanishes, dirty pages that pile up.

use super::{Matter, View};
use crate::Evidence;
use crate::facts::Facts;
use flatwater_recording::schema::meminfo;
use flatwater_recording::units::Bytes;

/// Thresholds of `shrinking`: readings, loss as a share of the first reading, and free memory left at the end as a
/// share of the last.
const SHRINKING_READINGS_MIN: usize = 5;
const SHRUNK_SHARE_MIN: f64 = 0.05;
const FREE_LEFT_MAX: f64 = 0.03;
/// Thresholds of `vanishing`, per interval: the loss as a share of the page cache, and in bytes.
const VANISHED_SHARE_MIN: f64 = 0.25;
const VANISHED_BYTES_MIN: f64 = 256.0 * 1024.0 * 1024.0;
/// Thresholds of `dirty_peak`: readings, and the peak relative to the median and in bytes.
const PEAK_READINGS_MIN: usize = 5;
const PEAK_PER_MEDIAN_MIN: f64 = 8.0;
const PEAK_BYTES_MIN: f64 = 64.0 * 1024.0 * 1024.0;

/// Suspects a log whose available memory shrinks until the end, with hardly any left free: it may end right before
/// the stall.
pub fn shrinking(facts: &Facts<'_>, view: &mut View) {
    let tracks = [meminfo::MEM_FREE_BYTES, meminfo::CACHED_BYTES, meminfo::BUFFERS_BYTES];
    let [free, cached, buffers] = tracks.map(|column| facts.meminfo_level(column));
    if free.len() < SHRINKING_READINGS_MIN || free.len() != cached.len() {
        return;
    }
    let buffer = |at: usize| buffers.points.get(at).map_or(0.0, |point| point.value);
    let rows = free.points.iter().zip(&cached.points).enumerate();
    let room: Vec<f64> = rows.map(|(at, (free, cached))| free.value + cached.value + buffer(at)).collect();
    let (Some(first), Some(last), Some(left)) = (room.first(), room.last(), free.last()) else { return };
    let lowest = room.iter().copied().fold(f64::INFINITY, f64::min);
    if *last <= (1.0 - SHRUNK_SHARE_MIN) * first && *last <= lowest * 1.005 && left <= FREE_LEFT_MAX * last {
        let text = format!(
            "free memory and page cache fell from {} to {} during the log, with {} free at the end",
            Bytes(*first as u64),
            Bytes(*last as u64),
            Bytes(left.max(0.0) as u64)
        );
        view.odd(Matter::Memory, Evidence::new(text, first - last, "bytes"));
    }
}

/// Suspects an interval in which a quarter of the page cache or more turned into free memory: reclaim freed far
/// more than was needed, or the cache was dropped, and must be read again.
pub fn vanishing(facts: &Facts<'_>, view: &mut View) {
    let [free, cached] = [meminfo::MEM_FREE_BYTES, meminfo::CACHED_BYTES].map(|column| facts.meminfo_level(column));
    if free.len() != cached.len() {
        return;
    }
    for (free, cached) in free.points.windows(2).zip(cached.points.windows(2)) {
        let ([free_from, free_to], [from, to]) = (free, cached) else { continue };
        let (fell, freed) = (from.value - to.value, free_to.value - free_from.value);
        if fell >= VANISHED_BYTES_MIN && fell >= VANISHED_SHARE_MIN * from.value && freed >= 0.5 * fell {
            let text = format!(
                "the cache fell from {} to {} between two readings, and {} more were free",
                Bytes(from.value as u64),
                Bytes(to.value as u64),
                Bytes(freed as u64)
            );
            return view.odd(Matter::Memory, Evidence::new(text, fell, "bytes"));
        }
    }
}

/// Suspects a moment with many more pages dirty or under writeback than usual, because a sync then waits for them.
pub fn dirty_peak(facts: &Facts<'_>, view: &mut View) {
    for (column, what) in [(meminfo::DIRTY_BYTES, "dirty"), (meminfo::WRITEBACK_BYTES, "under writeback")] {
        let level = facts.meminfo_level(column);
        let mut sorted: Vec<f64> = level.points.iter().map(|point| point.value).collect();
        sorted.sort_by(f64::total_cmp);
        let (Some(median), Some(peak)) = (sorted.get(sorted.len() / 2), sorted.last()) else { continue };
        let many = *peak >= PEAK_BYTES_MIN && *peak >= PEAK_PER_MEDIAN_MIN * median;
        if sorted.len() >= PEAK_READINGS_MIN && many {
            let text = format!(
                "{} were {what} in one of {} readings, {} in most",
                Bytes(*peak as u64),
                sorted.len(),
                Bytes(*median as u64)
            );
            view.odd(Matter::Device, Evidence::new(text, *peak, "bytes"));
        }
    }
}
