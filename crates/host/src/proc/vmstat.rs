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
        let bytes = i64::try_from(page_bytes).ok().zip(pages).map(|(size, pages)| pages.saturating_mul(size));
        writeback.put_column("", ours, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::read;
    use crate::proc::sheet::Sheet;
    use flatwater_recording::{Table, schema};

    #[test]
    fn dirty_bytes_follow_the_size_of_a_page() {
        let bytes = |page_bytes: u64| {
            let (mut vmstat, mut writeback) = (Sheet::new(Table::Vmstat), Sheet::new(Table::Writeback));
            read(b"nr_dirty 3\n", 1, page_bytes, &mut vmstat, &mut writeback);
            writeback.value(schema::writeback::DIRTY_BYTES)
        };
        assert_eq!((bytes(4 << 10), bytes(64 << 10)), (Some(12 << 10), Some(192 << 10)));
        // An unusable size was taken for 4 KiB.
        assert_eq!(bytes(u64::MAX), None);
    }
}
