//! /sys/dev/block/MAJ:MIN/stat: one device's line of /proc/diskstats, without the other devices.

use super::sheet::Sheet;
use super::text::Scan;
use flatwater_recording::schema::{Column, disks};

/// Column and factor of each field (Documentation/admin-guide/iostats.rst); older kernels print only the first 11. A
/// sector is 512 bytes, whatever the device's sector size.
const FIELDS: [(Column, i64); 17] = [
    (disks::READS, 1),
    (disks::READS_MERGED, 1),
    (disks::READ_BYTES, 512),
    (disks::READ_NS, 1_000_000),
    (disks::WRITES, 1),
    (disks::WRITES_MERGED, 1),
    (disks::WRITE_BYTES, 512),
    (disks::WRITE_NS, 1_000_000),
    (disks::IN_FLIGHT, 1),
    (disks::IO_NS, 1_000_000),
    (disks::QUEUE_NS, 1_000_000),
    (disks::DISCARDS, 1),
    (disks::DISCARDS_MERGED, 1),
    (disks::DISCARD_BYTES, 512),
    (disks::DISCARD_NS, 1_000_000),
    (disks::FLUSHES, 1),
    (disks::FLUSH_NS, 1_000_000),
];

/// Puts the fields into the open row.
pub fn read(text: &[u8], sheet: &mut Sheet) {
    let mut scan = Scan::new(text);
    for (column, factor) in FIELDS {
        let Some(value) = scan.number() else { return };
        sheet.put_column("", column, Some(value.saturating_mul(factor)));
    }
}
