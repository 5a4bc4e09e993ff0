//! /proc/vmstat, and the names that zoneinfo's per-node part shares with it.

use super::flat;
use super::sheet::Sheet;
use flatwater_recording::ColumnKind;

/// `nr_` names are levels, except these, which only ever rise (enum node_stat_item in include/linux/mmzone.h).
const RISING: &[&str] = &[
    "nr_dirtied",
    "nr_written",
    "nr_vmscan_write",
    "nr_vmscan_immediate_reclaim",
    "nr_throttled_written",
    "nr_foll_pin_acquired",
    "nr_foll_pin_released",
];

/// Whether a vmstat name counts events or tells a level.
#[must_use]
pub fn kind_of(name: &str) -> ColumnKind {
    let level = (name.starts_with("nr_") && !name.starts_with("nr_tlb_") && !RISING.contains(&name))
        || name == "workingset_nodes";
    if level { ColumnKind::Gauge } else { ColumnKind::Counter }
}

/// Names as the kernel has them.
#[must_use]
pub fn describe(name: &str) -> (String, ColumnKind) {
    (name.to_owned(), kind_of(name))
}

/// Reads the text into a row of `vmstat`, and the global dirty state, in bytes, into one of `writeback`.
pub fn read(text: &[u8], at_ns: u64, page_bytes: u64, vmstat: &mut Sheet, writeback: &mut Sheet) {
    vmstat.open(at_ns, None, b"");
    flat::read(text, "", vmstat, describe);
    writeback.open(at_ns, None, b"");
    for (theirs, ours) in [
        ("nr_dirty", "dirty_bytes"),
        ("nr_writeback", "writeback_bytes"),
        ("nr_dirty_threshold", "dirty_threshold_bytes"),
        ("nr_dirty_background_threshold", "background_threshold_bytes"),
    ] {
        // Kernels before 2.6.37 do not print the thresholds.
        let pages = vmstat.value(theirs);
        let bytes = pages.map(|pages| pages.saturating_mul(i64::try_from(page_bytes).unwrap_or(4096)));
        writeback.put("", ours.as_bytes(), bytes, |name| (name.to_owned(), ColumnKind::Gauge));
    }
}
