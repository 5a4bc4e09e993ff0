//! Samples the 2.2 machine into the tables that vmstat is printed from, under today's names.

use super::Old;
use flatwater_recording::ColumnKind::{Counter, Gauge};
use flatwater_recording::{ColumnKind, Entity, Series};

type Value = (&'static str, ColumnKind, Option<i64>);

fn value(name: &'static str, kind: ColumnKind, value: u64) -> Value {
    (name, kind, i64::try_from(value).ok())
}

pub fn meminfo(table: &mut Series, old: &Old, now: u64) {
    let bytes = |name, pages: u64| value(name, Gauge, pages * 4096);
    let values = [
        bytes("MemTotal_bytes", old.frames() - old.memory.rules.kernel_bytes.get() / 4096),
        bytes("MemFree_bytes", old.memory.free_pages()),
        bytes("Buffers_bytes", old.buffers.pages),
        bytes("Cached_bytes", old.memory.cached_pages()),
        bytes("SwapTotal_bytes", 0),
        bytes("SwapFree_bytes", 0),
    ];
    table.push(now, &Entity::default(), &values);
}

pub fn vmstat(table: &mut Series, old: &Old, now: u64) {
    let values = [
        // Blocks are 1 KiB.
        value("pgpgin", Counter, old.disk.blocks[0]),
        value("pgpgout", Counter, old.disk.blocks[1]),
        value("pgscan_direct", Counter, old.memory.scanned_ever),
        value("pgfree", Counter, old.memory.freed_ever),
        value("nr_free_pages", Gauge, old.memory.free_pages()),
    ];
    table.push(now, &Entity::default(), &values);
}

pub fn disks(table: &mut Series, old: &Old, now: u64) {
    let disk = &old.disk;
    let values = [
        value("reads", Counter, disk.requests[0]),
        value("read_bytes", Counter, disk.blocks[0] * 1024),
        value("writes", Counter, disk.requests[1]),
        value("write_bytes", Counter, disk.blocks[1] * 1024),
        value("in_flight", Gauge, disk.waiting()),
        value("io_ns", Counter, disk.busy_ns),
    ];
    table.push(now, &Entity::named("sda"), &values);
}
