//! /sys/kernel/debug/bdi/MAJ:MIN/stats: the device's share of the dirty limit, and its write bandwidth.

use super::sheet::Sheet;
use super::text::Scan;
use flatwater_recording::schema::{Column, writeback};

/// Line, column, and factor to bytes. `BdiWriteBandwidth` is in kBps; the lists count inodes.
const LINES: [(&[u8], Column, i64); 10] = [
    (b"BdiWriteback:", writeback::WRITEBACK_BYTES, 1024),
    (b"BdiReclaimable:", writeback::DIRTY_BYTES, 1024),
    (b"BdiDirtyThresh:", writeback::DIRTY_THRESHOLD_BYTES, 1024),
    (b"BdiDirtied:", writeback::DIRTIED_BYTES, 1024),
    (b"BdiWritten:", writeback::WRITTEN_BYTES, 1024),
    (b"BdiWriteBandwidth:", writeback::BANDWIDTH_BYTES_PER_S, 1024),
    (b"b_dirty:", writeback::INODES_DIRTY, 1),
    (b"b_io:", writeback::INODES_WRITING, 1),
    (b"b_more_io:", writeback::INODES_REQUEUED, 1),
    (b"b_dirty_time:", writeback::INODES_DIRTY_TIME, 1),
];

/// Puts known lines into the open row, except the global thresholds, which other files have.
pub fn read(text: &[u8], sheet: &mut Sheet) {
    let mut scan = Scan::new(text);
    while !scan.is_empty() {
        scan.blanks();
        let key = scan.word();
        if let Some(&(_, ours, factor)) = LINES.iter().find(|(line, ..)| *line == key) {
            let value = scan.number().map(|value| value.saturating_mul(factor));
            sheet.put_column("bdi", ours, value);
        }
        scan.next_line();
    }
}

#[cfg(test)]
mod tests {
    use super::read;
    use crate::proc::sheet::{Filled, Sheet};
    use flatwater_recording::Table;

    #[test]
    fn sizes_in_bytes() {
        let text = "BdiWriteback:             12 kB\nBdiReclaimable:         3456 kB\nBdiDirtyThresh:       417320 kB\n\
                    DirtyThresh:         4899148 kB\nBdiWriteBandwidth:    102400 kBps\nb_dirty:                   5\nbdi_list:                  1\n";
        let mut sheet = Sheet::new(Table::Writeback);
        sheet.open(1, None, b"254:0");
        read(text.as_bytes(), &mut sheet);
        for (column, value) in [
            ("writeback_bytes", 12 << 10),
            ("dirty_bytes", 3456 << 10),
            ("dirty_threshold_bytes", 417_320 << 10),
            ("bandwidth_bytes_per_s", 100 << 20),
            ("inodes_dirty", 5),
        ] {
            assert_eq!(sheet.value(column), Some(value), "{column}");
        }
        let mut filled = Filled::default();
        sheet.swap(&mut filled);
        assert_eq!(sheet.series(&filled).columns.len(), 5);
    }
}
