//! Samples the 2.2 machine into the tables of vmstat, under today's names.

use super::Old;
use crate::kernel::PAGE_BYTES;
use crate::run::sample::value;
use flatwater_recording::schema::{disks, meminfo, vmstat};
use flatwater_recording::{Entity, Series};

pub fn meminfo(table: &mut Series, old: &Old, now: u64) {
    let bytes = |column, pages: u64| value(column, pages * PAGE_BYTES);
    let values = [
        bytes(meminfo::MEM_TOTAL_BYTES, old.frames() - old.memory.rules.kernel_bytes.get() / PAGE_BYTES),
        bytes(meminfo::MEM_FREE_BYTES, old.memory.free_pages()),
        bytes(meminfo::BUFFERS_BYTES, old.buffers.pages),
        bytes(meminfo::CACHED_BYTES, old.memory.cached_pages()),
        bytes(meminfo::SWAP_TOTAL_BYTES, 0),
        bytes(meminfo::SWAP_FREE_BYTES, 0),
    ];
    table.record(now, &Entity::default(), &values);
}

pub fn vmstat(table: &mut Series, old: &Old, now: u64) {
    let values = [
        // Blocks are 1 KiB.
        value(vmstat::PGPGIN, old.disk.blocks[0]),
        value(vmstat::PGPGOUT, old.disk.blocks[1]),
        value(vmstat::PGSCAN_DIRECT, old.memory.scanned_ever),
        value(vmstat::PGFREE, old.memory.freed_ever),
        value(vmstat::NR_FREE_PAGES, old.memory.free_pages()),
    ];
    table.record(now, &Entity::default(), &values);
}

pub fn disks(table: &mut Series, old: &Old, now: u64) {
    let disk = &old.disk;
    let values = [
        value(disks::READS, disk.requests[0]),
        value(disks::READ_BYTES, disk.blocks[0] * 1024),
        value(disks::WRITES, disk.requests[1]),
        value(disks::WRITE_BYTES, disk.blocks[1] * 1024),
        value(disks::IN_FLIGHT, disk.waiting()),
        value(disks::IO_NS, disk.busy_ns),
    ];
    table.record(now, &Entity::named("sda"), &values);
}
