//! /proc/vmstat, including the machine's dirty pages and their limits.

use super::flat;
use super::sheet::Sheet;
use flatwater_recording::schema;

/// Puts the text into a row of `vmstat`, and the machine's dirty state, in bytes, into a row of `writeback`.
pub fn read(text: &[u8], at_ns: u64, page_bytes: u64, vmstat: &mut Sheet, writeback: &mut Sheet) {
    vmstat.open(at_ns, None, b"");
    flat::read(text, "", vmstat);
    writeback.open(at_ns, None, b"");
    for (theirs, ours) in [
        (schema::vmstat::NR_DIRTY, schema::writeback::DIRTY_BYTES),
        (schema::vmstat::NR_WRITEBACK, schema::writeback::WRITEBACK_BYTES),
        (schema::vmstat::NR_DIRTY_THRESHOLD, schema::writeback::DIRTY_THRESHOLD_BYTES),
        (schema::vmstat::NR_DIRTY_BACKGROUND_THRESHOLD, schema::writeback::BACKGROUND_THRESHOLD_BYTES),
    ] {
        // Kernels before 2.6.37 do not print the thresholds.
        let pages = vmstat.value(theirs);
        let bytes = pages.and_then(|pages| pages.checked_mul(i64::try_from(page_bytes).ok()?));
        writeback.put_column("", ours, bytes);
    }
}
