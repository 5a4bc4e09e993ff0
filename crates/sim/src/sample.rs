//! Samples the modelled machine into the recording's tables, under the names that /proc uses.

use std::rc::Rc;

use super::Machine;
use super::memory::Mm;
use super::v22;
use flatwater_recording::ColumnKind::{Counter, Gauge};
use flatwater_recording::{ColumnKind, Entity, Series, Table};

type Value = (&'static str, ColumnKind, Option<i64>);

fn counter(name: &'static str, value: u64) -> Value {
    (name, Counter, i64::try_from(value).ok())
}

fn gauge(name: &'static str, value: u64) -> Value {
    (name, Gauge, i64::try_from(value).ok())
}

/// Ten times a second in short runs, once a second in runs over a minute.
pub async fn sampler(m: Rc<Machine>, duration_ns: u64) {
    let interval_ns = if duration_ns <= 60_000_000_000 { 100_000_000 } else { 1_000_000_000 };
    loop {
        take(&m);
        m.clock.sleep_until(m.clock.now() + interval_ns).await;
    }
}

pub fn take(m: &Machine) {
    let now = m.clock.now();
    let mut series = m.series.borrow_mut();
    // The run may end at the very instant of a sample: two rows of one time would be taken for two parts of a sum.
    if now > 0 && series.iter().any(|table| table.at_ns.last() == Some(&now)) {
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

/// The tables that a run fills.
pub fn tables(cgroup: bool) -> Vec<Series> {
    let all = [Table::Zones, Table::Vmstat, Table::Meminfo, Table::Nodes, Table::Slabs, Table::Cpu, Table::Disks];
    all.into_iter().chain(cgroup.then_some(Table::Cgroup)).map(Series::new).collect()
}

fn zones(table: &mut Series, mm: &Mm, now: u64) {
    for (index, zone) in mm.zones.iter().enumerate() {
        let lru = mm.chunks.on_lists(index);
        let values = [
            gauge("free", zone.free),
            gauge("min", zone.min),
            gauge("low", zone.low),
            gauge("high", zone.high),
            gauge("spanned", zone.spanned),
            gauge("present", zone.managed),
            gauge("managed", zone.managed),
            gauge("scanned", zone.scanned),
            gauge("nr_inactive_file", lru[0]),
            gauge("nr_active_file", lru[1]),
            gauge("nr_file_pages", zone.file),
            gauge("nr_mapped", zone.mapped),
            gauge("nr_slab_reclaimable", zone.slab_reclaimable),
            gauge("nr_slab_unreclaimable", zone.slab - zone.slab_reclaimable),
            gauge("nr_anon_pages", zone.pinned),
            gauge("cpu_list_pages", zone.on_cpu_lists),
        ];
        table.push(now, &Entity::on_node(zone.node as u32, zone.kind.name()), &values);
    }
}

fn vmstat(table: &mut Series, mm: &Mm, now: u64) {
    let events = &mm.events;
    let slab: u64 = mm.zones.iter().map(|zone| zone.slab_reclaimable).sum();
    let lru = |list: usize| mm.chunks.lruvecs.iter().map(|lruvec| lruvec.pages[list]).sum();
    let values = [
        gauge("nr_free_pages", mm.free_pages()),
        gauge("nr_file_pages", mm.file_pages()),
        gauge("nr_inactive_file", lru(0)),
        gauge("nr_active_file", lru(1)),
        gauge("nr_dirty", mm.dirty),
        gauge("nr_writeback", mm.writeback),
        gauge("nr_slab_reclaimable", slab),
        counter("pgpgin", events.pgpgin_kib),
        counter("pgpgout", events.pgpgout_kib),
        counter("pgalloc_normal", events.pgalloc),
        counter("pgfree", events.pgfree),
        counter("pgfault", events.pgfault),
        counter("pgmajfault", events.pgmajfault),
        counter("pgscan_kswapd", events.pgscan_kswapd),
        counter("pgscan_direct", events.pgscan_direct),
        counter("pgsteal_kswapd", events.pgsteal_kswapd),
        counter("pgsteal_direct", events.pgsteal_direct),
        counter("allocstall", events.allocstall),
        counter("pageoutrun", events.pageoutrun),
        counter("slabs_scanned", events.slabs_scanned),
        counter("pginodesteal", events.pginodesteal),
        counter("zone_reclaim_failed", events.zone_reclaim_failed),
    ];
    table.push(now, &Entity::default(), &values);
}

fn meminfo(table: &mut Series, mm: &Mm, now: u64) {
    let page = mm.profile.page_bytes;
    let buffers = u64::from(mm.inodes.get(mm.device).pages);
    let total: u64 = mm.zones.iter().map(|zone| zone.managed).sum();
    let slab: u64 = mm.zones.iter().map(|zone| zone.slab_reclaimable).sum();
    let pinned: u64 = mm.zones.iter().map(|zone| zone.pinned).sum();
    let mapped: u64 = mm.zones.iter().map(|zone| zone.mapped).sum();
    let cached = mm.file_pages().saturating_sub(buffers + mm.leaked);
    let values = [
        gauge("MemTotal_bytes", total * page),
        gauge("MemFree_bytes", mm.free_pages() * page),
        gauge("Buffers_bytes", buffers * page),
        gauge("Cached_bytes", cached * page),
        gauge("Dirty_bytes", mm.dirty * page),
        gauge("Writeback_bytes", mm.writeback * page),
        gauge("AnonPages_bytes", pinned * page),
        gauge("Mapped_bytes", mapped * page),
        gauge("SReclaimable_bytes", slab * page),
        gauge("SwapTotal_bytes", 0),
        gauge("SwapFree_bytes", 0),
    ];
    table.push(now, &Entity::default(), &values);
}

fn nodes(table: &mut Series, mm: &Mm, now: u64) {
    for node in 0..mm.nodes {
        let of = |sum: fn(&super::zone::Zone) -> u64| -> u64 {
            mm.zones.iter().filter(|zone| zone.node == node).map(sum).sum()
        };
        let page = mm.profile.page_bytes;
        let values = [
            counter("numa_hit", mm.events.numa_hit[node]),
            counter("numa_miss", mm.events.numa_miss[node]),
            counter("numa_foreign", mm.events.numa_foreign[node]),
            gauge("MemTotal_bytes", of(|zone| zone.managed) * page),
            gauge("MemFree_bytes", of(|zone| zone.free) * page),
            gauge("FilePages_bytes", of(|zone| zone.file) * page),
            gauge("SReclaimable_bytes", of(|zone| zone.slab_reclaimable) * page),
        ];
        table.push(now, &Entity::on_node(node as u32, ""), &values);
    }
}

fn slabs(table: &mut Series, mm: &Mm, now: u64) {
    for (_, cache) in mm.all_caches() {
        let values = [
            gauge("active_objs", cache.used()),
            gauge("num_objs", cache.slabs() * cache.shape.per_slab),
            gauge("objsize_bytes", cache.shape.bytes),
            gauge("active_slabs", cache.slabs()),
            gauge("num_slabs", cache.slabs()),
        ];
        table.push(now, &Entity::named(cache.shape.name), &values);
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
    // A burst is charged when it ends, so idle time is what is left now; iowait is not told apart from idle.
    let values = [
        counter("user_ns", user.min(busy)),
        counter("system_ns", busy.saturating_sub(user)),
        counter("idle_ns", wall.saturating_sub(busy)),
        counter("iowait_ns", 0),
        counter("ctxt", cpus.switches),
        gauge("procs_running", cpus.running()),
        gauge("procs_blocked", u64::from(m.blocked.get())),
    ];
    table.push(now, &Entity::named("all"), &values);
}

fn disks(table: &mut Series, m: &Machine, now: u64) {
    let block = m.block.borrow();
    let values = [
        counter("reads", block.done[0]),
        counter("read_bytes", block.bytes[0]),
        counter("read_ns", block.wait_ns[0]),
        counter("writes", block.done[1]),
        counter("write_bytes", block.bytes[1]),
        counter("write_ns", block.wait_ns[1]),
        gauge("in_flight", block.in_flight()),
        counter("io_ns", block.busy_ns),
    ];
    table.push(now, &Entity::named("sda"), &values);
}

fn cgroup(table: &mut Series, mm: &Mm, now: u64) {
    let (page, cgroup) = (mm.profile.page_bytes, &mm.cgroup);
    let values = [
        gauge("limit_bytes", cgroup.limit * page),
        gauge("usage_bytes", cgroup.usage() * page),
        gauge("file", cgroup.file(mm) * page),
        gauge("file_dirty", cgroup.dirty * page),
        gauge("file_writeback", cgroup.writeback * page),
        counter("events_max", cgroup.limit_hits),
        counter("pgscan", cgroup.pgscan),
        counter("pgsteal", cgroup.pgsteal),
    ];
    table.push(now, &Entity::named("/flatwater"), &values);
}
