//! /sys/dev/block/MAJ:MIN/stat: one device's line of /proc/diskstats, without walking all the others.

use super::sheet::Sheet;
use super::text::Scan;
use flatwater_recording::ColumnKind;

/// Name and factor of each field (Documentation/admin-guide/iostats.rst); older kernels print the first 11.
/// Sectors are 512 bytes whatever the device's own are.
const FIELDS: [(&str, i64); 17] = [
    ("reads", 1),
    ("reads_merged", 1),
    ("read_bytes", 512),
    ("read_ns", 1_000_000),
    ("writes", 1),
    ("writes_merged", 1),
    ("write_bytes", 512),
    ("write_ns", 1_000_000),
    ("in_flight", 1),
    ("io_ns", 1_000_000),
    ("queue_ns", 1_000_000),
    ("discards", 1),
    ("discards_merged", 1),
    ("discard_bytes", 512),
    ("discard_ns", 1_000_000),
    ("flushes", 1),
    ("flush_ns", 1_000_000),
];

/// Puts the fields into the open row.
pub fn read(text: &[u8], sheet: &mut Sheet) {
    let mut scan = Scan::new(text);
    for (name, factor) in FIELDS {
        let Some(value) = scan.number() else { return };
        let kind = if name == "in_flight" { ColumnKind::Gauge } else { ColumnKind::Counter };
        sheet.put("", name.as_bytes(), Some(value.saturating_mul(factor)), |name| (name.to_owned(), kind));
    }
}
