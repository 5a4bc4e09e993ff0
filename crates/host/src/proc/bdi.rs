//! /sys/kernel/debug/bdi/MAJ:MIN/stats: how much of the dirty limit is this device's, and how fast it writes.

use super::sheet::Sheet;
use super::text::Scan;
use flatwater_recording::ColumnKind;

/// Line, our column, factor to bytes. `BdiWriteBandwidth` is kBps; the lists count inodes.
const LINES: [(&[u8], &str, i64, ColumnKind); 10] = [
    (b"BdiWriteback:", "writeback_bytes", 1024, ColumnKind::Gauge),
    (b"BdiReclaimable:", "dirty_bytes", 1024, ColumnKind::Gauge),
    (b"BdiDirtyThresh:", "dirty_threshold_bytes", 1024, ColumnKind::Gauge),
    (b"BdiDirtied:", "dirtied_bytes", 1024, ColumnKind::Counter),
    (b"BdiWritten:", "written_bytes", 1024, ColumnKind::Counter),
    (b"BdiWriteBandwidth:", "bandwidth_bytes_per_s", 1024, ColumnKind::Gauge),
    (b"b_dirty:", "inodes_dirty", 1, ColumnKind::Gauge),
    (b"b_io:", "inodes_writing", 1, ColumnKind::Gauge),
    (b"b_more_io:", "inodes_requeued", 1, ColumnKind::Gauge),
    (b"b_dirty_time:", "inodes_dirty_time", 1, ColumnKind::Gauge),
];

/// Puts the lines we know into the open row; the global thresholds that the file repeats are left out.
pub fn read(text: &[u8], sheet: &mut Sheet) {
    let mut scan = Scan::new(text);
    while !scan.is_empty() {
        scan.blanks();
        let key = scan.word();
        if let Some(&(_, ours, factor, kind)) = LINES.iter().find(|(line, ..)| *line == key) {
            let value = scan.number().map(|value| value.saturating_mul(factor));
            sheet.put("bdi", ours.as_bytes(), value, |name| (name.to_owned(), kind));
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
