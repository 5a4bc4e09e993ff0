//! Latencies of all calls of other programs, counted by the kernel side: a mirror of bpf/latency.h.

use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use aya::maps::MapData;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::calls;
use flatwater_recording::latency::{HIGHEST_NS, histogram};
use flatwater_recording::{LatencyBucket, OpKind, PackedHistogram};

const CLASSES: usize = 512;
const ROWS: usize = 64;

/// An array map of words that the kernel side counts in, mapped so that reading it takes no system call.
#[derive(Debug)]
struct SharedWords {
    base: NonNull<u64>,
    words: usize,
    /// Kept open: programs that use the map are loaded later, by its descriptor.
    _map: MapData,
}

// SAFETY: shared memory that is only read, through atomics, and lives as long as this value.
unsafe impl Send for SharedWords {}

impl SharedWords {
    fn map(map: MapData, words: usize) -> std::io::Result<SharedWords> {
        let bytes = words * size_of::<u64>();
        // SAFETY: a fresh mapping at an address that the kernel chooses; nothing else refers to it.
        let base =
            unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, map.fd().as_fd(), 0)? };
        let base = NonNull::new(base.cast()).ok_or_else(|| std::io::Error::other("mapped at address 0"))?;
        Ok(SharedWords { base, words, _map: map })
    }

    fn at(&self, index: usize) -> u64 {
        debug_assert!(index < self.words);
        // SAFETY: the callers stay within `words`; words are aligned, and the kernel adds to them atomically.
        unsafe { AtomicU64::from_ptr(self.base.add(index).as_ptr()) }.load(Ordering::Relaxed)
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: the mapping that `map` made, which nobody else refers to.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.words * size_of::<u64>()) };
    }
}

/// How often targets made each call that reaches files and is not timed.
#[derive(Debug)]
pub struct Untimed(SharedWords);

impl Untimed {
    pub fn map(map: MapData) -> std::io::Result<Untimed> {
        Ok(Untimed(SharedWords::map(map, calls::CALLS)?))
    }

    /// Those that were made at all, most often first.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        let known = calls::UNTIMED.iter().filter_map(|(number, name)| Some((usize::try_from(*number).ok()?, *name)));
        let counted =
            known.filter(|(number, _)| *number < calls::CALLS).map(|(number, name)| (name, self.0.at(number)));
        let mut made: Vec<(&'static str, u64)> = counted.filter(|(_, count)| *count > 0).collect();
        made.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        made
    }
}

/// The kernel side's counts of latencies, and what they were when they were last read.
#[derive(Debug)]
pub struct Totals {
    words: SharedWords,
    before: Vec<u64>,
}

impl Totals {
    pub fn map(map: MapData) -> std::io::Result<Totals> {
        Ok(Totals { words: SharedWords::map(map, CLASSES * ROWS)?, before: vec![0; CLASSES * ROWS] })
    }

    /// What was counted since the last time, one bucket for each kind of call that was made.
    pub fn since_last(&mut self, start_ns: u64, end_ns: u64) -> Vec<LatencyBucket> {
        let mut buckets = Vec::new();
        for (row, op) in OpKind::ALL.iter().enumerate().take(ROWS) {
            let (mut counting, mut worst_ns) = (histogram(), 0);
            for class in 0..CLASSES {
                let place = row * CLASSES + class;
                let now = self.words.at(place);
                let rise = now.saturating_sub(std::mem::replace(&mut self.before[place], now));
                if rise > 0 {
                    let (lowest_ns, highest_ns) = class_bounds(class);
                    counting.saturating_record_n(lowest_ns.midpoint(highest_ns).clamp(1, HIGHEST_NS), rise);
                    worst_ns = highest_ns;
                }
            }
            if !counting.is_empty() {
                buckets.push(LatencyBucket {
                    start_ns,
                    width_ns: end_ns.saturating_sub(start_ns),
                    op: *op,
                    thread: String::new(),
                    bytes: 0,
                    from_start: PackedHistogram::pack(&counting),
                    from_due: None,
                    worst_from_start_ns: worst_ns,
                    worst_from_due_ns: None,
                });
            }
        }
        buckets
    }
}

/// Lowest and highest latency of a class, ns.
fn class_bounds(class: usize) -> (u64, u64) {
    if class < 8 {
        return (class as u64, class as u64);
    }
    let (exponent, eighth) = (class / 8 + 2, (class % 8) as u64);
    if exponent > 62 {
        return (HIGHEST_NS, HIGHEST_NS);
    }
    let width = 1_u64 << (exponent - 3);
    let lowest = (8 + eighth) * width;
    (lowest, lowest + width - 1)
}

/// The row of each system call, for the kernel side: the place of its kind in `OpKind::ALL`.
#[must_use]
pub fn rows() -> [u8; 512] {
    let mut rows = [0; 512];
    for call in calls::all() {
        let place = OpKind::ALL.iter().position(|op| *op == call.op).unwrap_or(0);
        if let Some(row) = usize::try_from(call.number).ok().and_then(|number| rows.get_mut(number)) {
            *row = place as u8;
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::{CLASSES, ROWS, class_bounds};
    use flatwater_recording::OpKind;

    #[test]
    fn classes_join_without_holes_and_are_an_eighth_wide() {
        for class in 1..400 {
            let (before, now) = (class_bounds(class - 1), class_bounds(class));
            assert_eq!(before.1 + 1, now.0, "class {class}");
            assert!((now.1 - now.0) * 8 <= now.0, "class {class} is {now:?}");
        }
        assert!(OpKind::ALL.len() <= ROWS && class_bounds(CLASSES - 1).0 > 0);
    }
}
