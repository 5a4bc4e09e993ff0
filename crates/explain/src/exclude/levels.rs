//! Levels of memory from reading to reading: what shrinks, what vanishes, what piles up.

use super::{Matter, View};
use crate::Evidence;
use crate::facts::Facts;
use flatwater_recording::schema::meminfo;
use flatwater_recording::units::Bytes;

/// Readings of memory that shrinks, by which share of what can be had, and how much of it is free in the end.
const SHRINKING_READINGS_MIN: usize = 5;
const SHRUNK_SHARE_MIN: f64 = 0.05;
const FREE_LEFT_MAX: f64 = 0.03;
/// Of the cache, what falls away between two readings while as much becomes free: nobody asked for so much at once.
const VANISHED_SHARE_MIN: f64 = 0.25;
const VANISHED_BYTES_MIN: f64 = 256.0 * 1024.0 * 1024.0;
/// Dirty pages or pages under writeback in one reading, times the median of all and bytes at least.
const PEAK_READINGS_MIN: usize = 5;
const PEAK_PER_MEDIAN_MIN: f64 = 8.0;
const PEAK_BYTES_MIN: f64 = 64.0 * 1024.0 * 1024.0;

/// What can be had shrinks from reading to reading, and hardly anything of it lies free at the end: a log that ends so may end
/// right before the stall.
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
            "what can be had fell from {} to {} while it was watched, and {} of it lie free",
            Bytes(*first as u64),
            Bytes(*last as u64),
            Bytes(left.max(0.0) as u64)
        );
        view.odd(Matter::Memory, Evidence::new(text, first - last, "bytes"));
    }
}

/// A quarter of the cache and more goes from one reading to the next, and lies free: somebody reclaimed far more than was
/// wanted, or threw it away. What was in it must be read again.
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

/// Dirty pages, or those under writeback, that are many times as many as usual at one moment: whoever syncs then waits.
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
