//! Reads the latencies of all calls of other programs, which the BPF programs count: a mirror of bpf/latency.h.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use aya::maps::{Array, Map, MapData};
use hdrhistogram::Histogram;
use memmap2::{MmapOptions, MmapRaw};

use super::calls;
use super::error::TraceError;
use super::hooks::refused;
use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::{HIGHEST_NS, LatencyBucket, OpKind, PackedHistogram, histogram};

const CLASSES: usize = 512;
const ROWS: usize = 64;

type Row = [u64; CLASSES];

/// An array map of rows in which the BPF programs count.
enum CountedRows {
    /// Mapped into this process: reading needs no system call.
    Mapped(Mapping),
    /// Before 5.5: one system call per row.
    Asked(Array<MapData, Row>),
}

impl std::fmt::Debug for CountedRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, CountedRows::Mapped(_)) { "Mapped" } else { "Asked" })
    }
}

#[derive(Debug)]
struct Mapping {
    memory: MmapRaw,
    rows: usize,
    /// Kept open: programs that are loaded later refer to the map's descriptor.
    _map: MapData,
}

impl CountedRows {
    fn of(map: Map, rows: usize, shared: bool) -> Result<CountedRows, TraceError> {
        if !shared {
            return Array::try_from(map).map(CountedRows::Asked).map_err(|error| refused(&error));
        }
        match map {
            Map::Array(data) => Mapping::new(data, rows).map(CountedRows::Mapped).map_err(|error| refused(&error)),
            other => Err(TraceError::NotAnArray { name: "of counts", found: format!("{other:?}") }),
        }
    }

    /// The counts of a row; zeros if it cannot be read.
    fn row(&self, row: usize) -> Row {
        match self {
            CountedRows::Mapped(mapping) => std::array::from_fn(|word| mapping.at(row * CLASSES + word)),
            CountedRows::Asked(array) => array.get(&(row as u32), 0).unwrap_or([0; CLASSES]),
        }
    }
}

impl Mapping {
    fn new(map: MapData, rows: usize) -> std::io::Result<Mapping> {
        let memory = MmapOptions::new().len(rows * size_of::<Row>()).map_raw_read_only(&map.fd().as_fd())?;
        Ok(Mapping { memory, rows, _map: map })
    }

    fn at(&self, index: usize) -> u64 {
        debug_assert!(index < self.rows * CLASSES);
        let words = self.memory.as_mut_ptr().cast::<u64>();
        // SAFETY: the callers stay within the rows of the mapping, which is aligned to a page and only read here; the
        // BPF programs add to the words atomically.
        unsafe { AtomicU64::from_ptr(words.add(index)) }.load(Ordering::Relaxed)
    }
}

/// Counts of file system calls of targets that are not timed, by call.
#[derive(Debug)]
pub struct Untimed(CountedRows);

impl Untimed {
    pub fn of(map: Map, shared: bool) -> Result<Untimed, TraceError> {
        Ok(Untimed(CountedRows::of(map, 1, shared)?))
    }

    /// The calls with a count above 0, most frequent first.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        let known = calls::UNTIMED.iter().filter_map(|(number, name)| Some((usize::try_from(*number).ok()?, *name)));
        let row = self.0.row(0);
        let counted = known.filter_map(|(number, name)| Some((name, *row.get(number)?)));
        let mut made: Vec<(&'static str, u64)> = counted.filter(|(_, count)| *count > 0).collect();
        made.sort_short_by_key(|(_, count)| std::cmp::Reverse(*count));
        made
    }
}

/// Latency counts by row and class, with their values at the last reading.
#[derive(Debug)]
pub struct ClassCounts {
    rows: CountedRows,
    before: Vec<Row>,
    /// Empty between readings. A histogram takes a quarter of a MiB; allocating one per row and reading would make free
    /// memory fluctuate, which on a full machine raises watermarks and wakes kswapd.
    counting: Histogram<u64>,
}

impl ClassCounts {
    /// Wraps a map with `count` rows; `shared` if user space can map it.
    pub fn of(map: Map, count: usize, shared: bool) -> Result<ClassCounts, TraceError> {
        let rows = CountedRows::of(map, count, shared)?;
        Ok(ClassCounts { rows, before: vec![[0; CLASSES]; count], counting: histogram() })
    }

    /// What these rows counted since the last call: one bucket per row with a count.
    pub fn since_last(
        &mut self,
        rows: impl Iterator<Item = (usize, OpKind)>,
        start_ns: u64,
        end_ns: u64,
    ) -> Vec<LatencyBucket> {
        let mut buckets = Vec::new();
        for (row, op) in rows {
            let mut worst_ns = 0;
            let now = self.rows.row(row);
            let before = std::mem::replace(&mut self.before[row], now);
            for (class, (now, before)) in now.into_iter().zip(before).enumerate() {
                let rise = now.saturating_sub(before);
                if rise > 0 {
                    let (lowest_ns, highest_ns) = class_bounds(class);
                    self.counting.saturating_record_n(lowest_ns.midpoint(highest_ns).clamp(1, HIGHEST_NS), rise);
                    worst_ns = highest_ns;
                }
            }
            if !self.counting.is_empty() {
                buckets.push(LatencyBucket {
                    start_ns,
                    width_ns: end_ns.saturating_sub(start_ns),
                    op,
                    thread: String::new(),
                    bytes: 0,
                    from_start: PackedHistogram::pack(&self.counting),
                    from_due: None,
                    worst_from_start_ns: worst_ns,
                    worst_from_due_ns: None,
                });
                self.counting.reset();
            }
        }
        buckets
    }
}

/// The BPF programs' counts of system calls and page faults.
#[derive(Debug)]
pub struct Totals(ClassCounts);

impl Totals {
    pub fn of(map: Map, shared: bool) -> Result<Totals, TraceError> {
        Ok(Totals(ClassCounts::of(map, ROWS, shared)?))
    }

    /// The counts since the last call: one bucket per kind of call.
    pub fn since_last(&mut self, start_ns: u64, end_ns: u64) -> Vec<LatencyBucket> {
        self.0.since_last(OpKind::ALL.iter().copied().enumerate().take(ROWS), start_ns, end_ns)
    }
}

/// Lowest and highest latency of a class, ns.
pub fn class_bounds(class: usize) -> (u64, u64) {
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

/// The row of each system call for the BPF programs: the index of the call's `OpKind` in `OpKind::ALL`.
#[must_use]
pub fn rows() -> [u8; 512] {
    let mut rows = [0; 512];
    for call in calls::all() {
        let place = OpKind::ALL.iter().position(|op| *op == call.op).unwrap_or(0);
        if let Some(row) = usize::try_from(call.number).ok().and_then(|number| rows.get_mut(number)) {
            *row = place as u8;
        }
    }
    // Page faults have no system call number: bpf/foreign.h counts them as -1, the last index.
    if let (Some(row), Some(place)) = (rows.last_mut(), OpKind::ALL.iter().position(|op| *op == OpKind::PageFault)) {
        *row = place as u8;
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::{CLASSES, ROWS, class_bounds};
    use flatwater_recording::OpKind;

    #[test]
    fn classes_have_no_holes_and_are_at_most_an_eighth_wide() {
        for class in 1..400 {
            let (before, now) = (class_bounds(class - 1), class_bounds(class));
            assert_eq!(before.1 + 1, now.0, "class {class}");
            assert!((now.1 - now.0) * 8 <= now.0, "class {class} is {now:?}");
        }
        assert!(OpKind::ALL.len() <= ROWS && class_bounds(CLASSES - 1).0 > 0);
    }
}
