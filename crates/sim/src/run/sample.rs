//! Samples the modelled machine into the recording's tables, under the names that /proc uses.

use crate::kernel::PAGE_BYTES;
use std::rc::Rc;

use crate::Machine;
use crate::mm::memory::Mm;
use crate::v22;
use flatwater_recording::schema::{Column, cgroup, cpu, disks, meminfo, nodes, slabs, vmstat, zones};
use flatwater_recording::{Entity, Series, Table};

pub fn value(column: Column, value: u64) -> (Column, Option<i64>) {
    (column, i64::try_from(value).ok())
}

/// Ten times a second in short runs, once a second in runs over a minute.
pub async fn sampler(m: Rc<Machine>, duration_ns: u64) {
    let interval_ns = if duration_ns <= 60_000_000_000 { 100_000_000 } else { 1_000_000_000 };
    loop {
        // Samples before the recording are dropped.
        if m.clock.now() >= m.samples_from_ns.get() {
            take(&m);
        }
        m.clock.sleep_until(m.clock.now() + interval_ns).await;
    }
}

pub fn take(m: &Machine) {
    let now = m.clock.now();
    let mut series = m.series.borrow_mut();
    // The run may end at the instant of a sample, and two rows of one instant would be summed.
    if now > 0 && series.iter().any(|table| table.at_ns().last() == Some(&now)) {
        return;
    }
    if let Some(old) = &m.old {
        return take_old(m, &mut series, &old.borrow(), now);
    }
    let mm = m.mm.borrow();
    for table in series.iter_mut() {
        match table.table {
            Table::Zones => zones(table, &mm, now),
            Table::Vmstat => vmstat(table, &mm, now),
            Table::Meminfo => meminfo(table, &mm, now),
            Table::Nodes => nodes(table, &mm, now),
            Table::Slabs => slabs(table, &mm, now),
            Table::Cpu => cpu(table, m, now),
            Table::Disks => disks(table, m, now),
            Table::Cgroup => cgroup(table, &mm, now),
            _ => {}
        }
    }
}

fn take_old(m: &Machine, series: &mut [Series], old: &v22::Old, now: u64) {
    for table in series {
        match table.table {
            Table::Vmstat => v22::sample::vmstat(table, old, now),
            Table::Meminfo => v22::sample::meminfo(table, old, now),
            Table::Disks => v22::sample::disks(table, old, now),
            Table::Cpu => cpu(table, m, now),
            _ => {}
        }
    }
}

/// The tables of a run.
pub fn tables(cgroup: bool) -> Vec<Series> {
    let all = [Table::Zones, Table::Vmstat, Table::Meminfo, Table::Nodes, Table::Slabs, Table::Cpu, Table::Disks];
    all.into_iter().chain(cgroup.then_some(Table::Cgroup)).map(Series::new).collect()
}

fn zones(table: &mut Series, mm: &Mm, now: u64) {
    for (index, zone) in mm.zones.iter().enumerate() {
        let lru = mm.chunks.on_lists(index);
        let values = [
            value(zones::FREE, zone.free),
            value(zones::MIN, zone.min),
            value(zones::LOW, zone.low),
            value(zones::HIGH, zone.high),
            value(zones::SPANNED, zone.spanned),
            value(zones::PRESENT, zone.managed),
            value(zones::MANAGED, zone.managed),
            value(zones::SCANNED, zone.scanned),
            value(zones::NR_INACTIVE_FILE, lru[0]),
            value(zones::NR_ACTIVE_FILE, lru[1]),
            value(zones::NR_FILE_PAGES, zone.file),
            value(zones::NR_MAPPED, zone.mapped),
            value(zones::NR_SLAB_RECLAIMABLE, zone.slab_reclaimable),
            value(zones::NR_SLAB_UNRECLAIMABLE, zone.slab - zone.slab_reclaimable),
            value(zones::NR_ANON_PAGES, zone.pinned + zone.anonymous),
            value(zones::CPU_LIST_PAGES, zone.on_cpu_lists),
        ];
        table.record(now, &Entity::on_node(zone.node as u32, zone.kind.name()), &values);
    }
}

fn vmstat(table: &mut Series, mm: &Mm, now: u64) {
    let events = &mm.events;
    let lru = |list: usize| (0..mm.zones.len()).map(|zone| mm.chunks.on_lists(zone)[list]).sum();
    let values = [
        value(vmstat::NR_FREE_PAGES, mm.sum(|zone| zone.free)),
        value(vmstat::NR_FILE_PAGES, mm.sum(|zone| zone.file)),
        value(vmstat::NR_INACTIVE_FILE, lru(0)),
        value(vmstat::NR_ACTIVE_FILE, lru(1)),
        value(vmstat::NR_DIRTY, mm.dirty()),
        value(vmstat::NR_WRITEBACK, mm.writeback()),
        value(vmstat::NR_SLAB_RECLAIMABLE, mm.sum(|zone| zone.slab_reclaimable)),
        value(vmstat::PGPGIN, events.pgpgin_kib),
        value(vmstat::PGPGOUT, events.pgpgout_kib),
        value(vmstat::PGALLOC, events.pgalloc),
        value(vmstat::PGFREE, events.pgfree),
        value(vmstat::PGFAULT, events.pgfault),
        value(vmstat::PGMAJFAULT, events.pgmajfault),
        value(vmstat::NR_VMSCAN_WRITE, events.vmscan_write),
        value(vmstat::PGSCAN_KSWAPD, events.pgscan_kswapd),
        value(vmstat::PGSCAN_DIRECT, events.pgscan_direct),
        value(vmstat::PGSTEAL_KSWAPD, events.pgsteal_kswapd),
        value(vmstat::PGSTEAL_DIRECT, events.pgsteal_direct),
        value(vmstat::ALLOCSTALL, events.allocstall),
        value(vmstat::PAGEOUTRUN, events.pageoutrun),
        value(vmstat::SLABS_SCANNED, events.slabs_scanned),
        value(vmstat::PGINODESTEAL, events.pginodesteal),
        value(vmstat::ZONE_RECLAIM_FAILED, events.zone_reclaim_failed),
        value(vmstat::PSWPIN, 0),
        value(vmstat::PSWPOUT, 0),
        value(vmstat::WORKINGSET_REFAULT, events.workingset_refault),
        value(vmstat::WORKINGSET_ACTIVATE, events.workingset_activate),
    ];
    table.record(now, &Entity::default(), &values);
}

fn meminfo(table: &mut Series, mm: &Mm, now: u64) {
    let page = PAGE_BYTES;
    let buffers = mm.block_devices.iter().map(|&device| u64::from(mm.inodes.get(device).pages)).sum::<u64>();
    let cached = mm.sum(|zone| zone.file).saturating_sub(buffers + mm.leaked);
    let values = [
        value(meminfo::MEM_TOTAL_BYTES, mm.managed() * page),
        value(meminfo::MEM_FREE_BYTES, mm.sum(|zone| zone.free) * page),
        value(meminfo::BUFFERS_BYTES, buffers * page),
        value(meminfo::CACHED_BYTES, cached * page),
        value(meminfo::DIRTY_BYTES, mm.dirty() * page),
        value(meminfo::WRITEBACK_BYTES, mm.writeback() * page),
        value(meminfo::ANON_PAGES_BYTES, mm.sum(|zone| zone.pinned + zone.anonymous) * page),
        value(meminfo::MAPPED_BYTES, mm.sum(|zone| zone.mapped) * page),
        value(meminfo::SRECLAIMABLE_BYTES, mm.sum(|zone| zone.slab_reclaimable) * page),
        // The machine has no swap.
        value(meminfo::SWAP_TOTAL_BYTES, 0),
        value(meminfo::SWAP_FREE_BYTES, 0),
    ];
    table.record(now, &Entity::default(), &values);
}

fn nodes(table: &mut Series, mm: &Mm, now: u64) {
    for node in 0..mm.nodes {
        let of = |sum: fn(&crate::mm::zone::Zone) -> u64| -> u64 {
            mm.zones.iter().filter(|zone| zone.node == node).map(sum).sum()
        };
        let page = PAGE_BYTES;
        let values = [
            value(nodes::NUMA_HIT, mm.events.numa_hit[node]),
            value(nodes::NUMA_MISS, mm.events.numa_miss[node]),
            value(nodes::NUMA_FOREIGN, mm.events.numa_foreign[node]),
            value(nodes::MEM_TOTAL_BYTES, of(|zone| zone.managed) * page),
            value(nodes::MEM_FREE_BYTES, of(|zone| zone.free) * page),
            value(nodes::FILE_PAGES_BYTES, of(|zone| zone.file) * page),
            value(nodes::SRECLAIMABLE_BYTES, of(|zone| zone.slab_reclaimable) * page),
        ];
        table.record(now, &Entity::on_node(node as u32, ""), &values);
    }
}

fn slabs(table: &mut Series, mm: &Mm, now: u64) {
    for (_, cache) in mm.all_caches() {
        let values = [
            value(slabs::ACTIVE_OBJS, cache.used()),
            value(slabs::NUM_OBJS, cache.objects()),
            value(slabs::OBJSIZE_BYTES, cache.shape.bytes),
            value(slabs::ACTIVE_SLABS, cache.slabs()),
            value(slabs::NUM_SLABS, cache.slabs()),
        ];
        table.record(now, &Entity::named(cache.shape.name), &values);
    }
}

fn cpu(table: &mut Series, m: &Machine, now: u64) {
    let cpus = m.cpus.borrow();
    let (mut busy, mut user) = (0, 0);
    for cpu in 0..cpus.len() {
        let (all, own) = cpus.busy_ns(cpu);
        busy += all;
        user += own;
    }
    let wall = now * cpus.len() as u64;
    // A burst is charged when it ends; the rest is idle time, which includes waits for I/O: iowait is absent.
    let values = [
        value(cpu::USER_NS, user.min(busy)),
        value(cpu::SYSTEM_NS, busy.saturating_sub(user)),
        value(cpu::IDLE_NS, wall.saturating_sub(busy)),
        value(cpu::CTXT, cpus.switches),
        value(cpu::PROCS_RUNNING, cpus.running()),
        value(cpu::PROCS_BLOCKED, u64::from(m.blocked.get())),
    ];
    table.record(now, &Entity::named("all"), &values);
}

fn disks(table: &mut Series, m: &Machine, now: u64) {
    for device in &m.devices {
        let block = device.block.borrow();
        let values = [
            value(disks::READS, block.done[0]),
            value(disks::READ_BYTES, block.bytes[0]),
            value(disks::READ_NS, block.wait_ns[0]),
            value(disks::WRITES, block.done[1]),
            value(disks::WRITE_BYTES, block.bytes[1]),
            value(disks::WRITE_NS, block.wait_ns[1]),
            value(disks::IN_FLIGHT, block.in_flight()),
            value(disks::IO_NS, block.busy_ns()),
        ];
        table.record(now, &Entity::named(&device.name), &values);
    }
}

fn cgroup(table: &mut Series, mm: &Mm, now: u64) {
    let (page, cgroup) = (PAGE_BYTES, &mm.cgroup);
    let values = [
        value(cgroup::LIMIT_BYTES, cgroup.limit * page),
        value(cgroup::USAGE_BYTES, cgroup.usage() * page),
        value(cgroup::FILE, cgroup.file(mm) * page),
        value(cgroup::ANON, cgroup.anonymous * page),
        value(cgroup::FILE_DIRTY, cgroup.dirty * page),
        value(cgroup::FILE_WRITEBACK, cgroup.writeback * page),
        value(cgroup::EVENTS_MAX, cgroup.limit_hits),
        value(cgroup::PGSCAN, cgroup.pgscan),
        value(cgroup::PGSTEAL, cgroup.pgsteal),
    ];
    table.record(now, &Entity::named("/flatwater"), &values);
}
