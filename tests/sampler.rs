//! The sampler on fake machines, compared with the procfs crate on this one, and without allocation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs;
use std::path::Path;

use flatwater_host::clock::monotonic_ns;
use flatwater_host::sampler::{BlockDevice, Probe, Sampler, SamplerOptions, Spare, TargetCgroup};
use flatwater_recording::{Entity, Series, Table};
use procfs::{Current, CurrentSI};

/// Counts this thread's allocations.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's guarantees for `layout` are those that the system allocator requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: `alloc` above returned `memory` from the system allocator.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: as for `alloc` and `dealloc`.
        unsafe { System.realloc(memory, layout, bytes) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("a parent")).expect("create");
    fs::write(path, text).expect("write");
}

/// A machine with two nodes and a 4.x kernel: no PSI, no sizes of bdi limits, and a v2 cgroup below one with a limit.
fn two_nodes(root: &Path) -> SamplerOptions {
    let zone = |node: u32, free: u32| {
        format!(
            "Node {node}, zone   Normal\n  per-node stats\n      nr_dirty     {node}5\n  pages free     {free}\n        min      11\n        \
             low      13\n        high     16\n        spanned  4096\n        present  4096\n        managed  4000\n  pagesets\n"
        )
    };
    write(root, "proc/zoneinfo", &(zone(0, 100) + &zone(1, 200)));
    write(
        root,
        "proc/vmstat",
        "nr_free_pages 300\nnr_dirty 20\nnr_writeback 1\nnr_dirty_threshold 50\npgscan_kswapd 7\n",
    );
    write(root, "proc/meminfo", "MemTotal:  1000 kB\nMemFree:  300 kB\n");
    write(root, "proc/stat", "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\nctxt 99\n");
    write(root, "proc/buddyinfo", "Node 0, zone Normal 1 2 3\nNode 1, zone Normal 4 5 6\n");
    for node in [0, 1] {
        let place = format!("sys/devices/system/node/node{node}");
        write(root, &format!("{place}/numastat"), &format!("numa_hit 100\nnuma_miss {node}7\n"));
        write(root, &format!("{place}/meminfo"), &format!("Node {node} MemFree:  1{node} kB\n"));
    }
    write(root, "sys/dev/block/8:1/stat", "1 2 3 4 5 6 7 8 9 10 11\n");
    write(root, "cg/jobs/feed/memory.current", "4096\n");
    write(root, "cg/jobs/feed/memory.max", "max\n");
    write(root, "cg/jobs/feed/memory.stat", "file 4000\n");
    write(root, "cg/jobs/memory.current", "8192\n");
    write(root, "cg/jobs/memory.max", "16384\n");
    let device =
        BlockDevice { name: "sda1".into(), number: "8:1".into(), disk: "sda".into(), disk_number: "8:0".into() };
    let memory = root.join("cg/jobs/feed");
    let cgroup = TargetCgroup { name: "/jobs/feed".into(), version: 2, memory, cpu: None };
    SamplerOptions { devices: vec![device], cgroup: Some(cgroup), root: root.to_owned(), ..SamplerOptions::default() }
}

fn table(series: &[Series], table: Table) -> &Series {
    series.iter().find(|series| series.table == table).unwrap_or_else(|| panic!("no {}", table.name()))
}

fn last(series: &[Series], which: Table, entity: &Entity, column: &str) -> Option<i64> {
    table(series, which).rows_of(entity)?.last(column)
}

#[test]
fn a_machine_of_two_nodes() {
    let place = tempfile::tempdir().expect("temporary directory");
    let mut probe = Probe::open(&two_nodes(place.path()));
    probe.sample(1);
    probe.sample(2);
    let drained = probe.drain(&mut Spare::default());
    let all = &drained.series;
    let page = rustix::param::page_size() as i64;
    for (which, entity, column, value) in [
        (Table::Zones, Entity::on_node(1, "Normal"), "free", 200),
        (Table::Nodes, Entity::on_node(1, ""), "nr_dirty", 15),
        (Table::Nodes, Entity::on_node(1, ""), "numa_miss", 17),
        (Table::Nodes, Entity::on_node(1, ""), "MemFree_bytes", 11 << 10),
        (Table::Buddy, Entity::on_node(1, "Normal"), "order_2", 6),
        (Table::Vmstat, Entity::default(), "pgscan_kswapd", 7),
        (Table::Writeback, Entity::default(), "dirty_threshold_bytes", 50 * page),
        (Table::Disks, Entity::named("sda1"), "write_bytes", 7 * 512),
        (Table::Cgroup, Entity::named("/jobs/feed"), "usage_bytes", 4096),
        (Table::Cgroup, Entity::named("/jobs"), "limit_bytes", 16_384),
        (Table::Cpu, Entity::named("all"), "ctxt", 99),
    ] {
        assert_eq!(last(all, which, &entity, column), Some(value), "{which:?} {column}");
    }
    assert_eq!(
        last(all, Table::Cgroup, &Entity::named("/jobs/feed"), "limit_bytes"),
        None,
        "`max` is null, not a number"
    );
    assert_eq!(table(all, Table::Nodes).len(), 4, "one row per node and sample");
}

#[test]
fn a_missing_file_is_a_gap_with_a_remedy_and_no_rows() {
    let place = tempfile::tempdir().expect("temporary directory");
    let mut probe = Probe::open(&two_nodes(place.path()));
    probe.sample(1);
    let drained = probe.drain(&mut Spare::default());
    assert!(drained.series.iter().all(|series| series.table != Table::Pressure && series.table != Table::Slabs));
    let gap = |part: &str| drained.gaps.iter().find(|gap| gap.what.contains(part)).unwrap_or_else(|| panic!("{part}"));
    assert!(gap("pressure/memory").remedy.contains("CONFIG_PSI"));
    assert!(gap("debug/bdi/8:0/stats").remedy.contains("mount -t debugfs"));
    assert!(gap("slabinfo").why.contains("No such file"));
    assert!(!drained.gaps.iter().any(|gap| gap.what.contains("max_bytes") || gap.what.contains("cpu.stat")));
}

#[test]
fn a_file_that_goes_away_leaves_no_values_and_one_gap() {
    let place = tempfile::tempdir().expect("temporary directory");
    let options = two_nodes(place.path());
    let mut probe = Probe::open(&options);
    probe.sample(1);
    // A truncated file represents a removed cgroup: reading returns nothing.
    write(place.path(), "cg/jobs/feed/memory.current", "");
    write(place.path(), "proc/vmstat", "");
    probe.sample(2);
    probe.sample(3);
    let drained = probe.drain(&mut Spare::default());
    let series = drained.series;
    assert_eq!(table(&series, Table::Vmstat).at_ns(), [1]);
    let reported: Vec<_> =
        drained.gaps.iter().filter(|gap| gap.what.ends_with("proc/vmstat")).map(|gap| gap.at_ns).collect();
    assert_eq!(reported, [Some(2)]);
    let feed = table(&series, Table::Cgroup).rows_of(&Entity::named("/jobs/feed")).expect("rows");
    assert_eq!(feed.values("usage_bytes").collect::<Vec<_>>(), [(1, 4096)]);
}

/// This machine, with a memory cgroup and a device if it has them.
fn here() -> SamplerOptions {
    let devices = flatwater_host::sampler::devices_of(Path::new("."));
    SamplerOptions { devices, cgroup: TargetCgroup::of_process(std::process::id()), ..SamplerOptions::default() }
}

#[test]
fn a_steady_sample_allocates_nothing() {
    let mut probe = Probe::open(&here());
    let mut spare = Spare::default();
    let before = allocations();
    probe.sample(monotonic_ns());
    assert!(allocations() > before, "the first sample allocates");
    probe.reserve(&mut spare, 40);
    drop(probe.drain(&mut spare));
    for _ in 0..3 {
        let before = allocations();
        for _ in 0..30 {
            probe.sample(monotonic_ns());
        }
        assert_eq!(allocations(), before);
        let drained = probe.drain(&mut spare);
        assert_eq!(table(&drained.series, Table::Vmstat).len(), 30);
    }
}

#[test]
fn samples_match_the_procfs_crate() {
    let mut probe = Probe::open(&here());
    probe.sample(monotonic_ns());
    let all = probe.drain(&mut Spare::default()).series;
    let theirs = procfs::Meminfo::current().expect("meminfo");
    let none = Entity::default();
    // Values that do not change.
    assert_eq!(last(&all, Table::Meminfo, &none, "MemTotal_bytes"), i64::try_from(theirs.mem_total).ok());
    assert_eq!(last(&all, Table::Meminfo, &none, "CommitLimit_bytes"), theirs.commit_limit.map(|limit| limit as i64));
    // Counters: flatwater read them before procfs did.
    let stat = procfs::KernelStats::current().expect("stat");
    let ours = last(&all, Table::Cpu, &Entity::named("all"), "ctxt").expect("ctxt");
    assert!((0..=stat.ctxt as i64).contains(&ours));
    let ticks_ns = 1_000_000_000 / procfs::ticks_per_second() as i64;
    let user_ns = last(&all, Table::Cpu, &Entity::named("all"), "user_ns").expect("user_ns");
    assert!((0..=stat.total.user as i64 * ticks_ns).contains(&user_ns));
    assert_eq!(table(&all, Table::Cpu).len(), 1 + stat.cpu_time.len());
    let vmstat = procfs::vmstat().expect("vmstat");
    let mut compared = 0;
    for (name, theirs) in &vmstat {
        let ours = last(&all, Table::Vmstat, &none, name).unwrap_or_else(|| panic!("{name} is missing"));
        if name.starts_with("pg") {
            assert!(ours <= *theirs, "{name}");
            compared += 1;
        }
    }
    assert!(compared > 10);
    assert_eq!(table(&all, Table::Vmstat).columns.len(), vmstat.len());
}

#[test]
fn populated_zones_have_rows_and_their_free_blocks_add_up() {
    let mut probe = Probe::open(&here());
    probe.sample(monotonic_ns());
    let all = probe.drain(&mut Spare::default()).series;
    let theirs = fs::read_to_string("/proc/zoneinfo").expect("zoneinfo");
    let populated =
        theirs.lines().filter(|line| line.trim_start().starts_with("present") && !line.ends_with(" 0")).count();
    assert_eq!(table(&all, Table::Zones).len(), populated);
    // Free blocks add up to the free pages, except for the per-CPU lists and changes between the two reads.
    for (entity, rows) in table(&all, Table::Buddy).by_entity() {
        let blocks: i64 = (0..=10).filter_map(|order| rows.last(format!("order_{order}")).map(|n| n << order)).sum();
        let free = last(&all, Table::Zones, entity, "free").expect("free");
        assert!((blocks - free).abs() <= free / 4 + 4096, "{entity:?}: {blocks} in blocks, {free} free");
    }
}

#[test]
fn the_thread_samples_at_its_rate_and_ends() {
    let mut sampler = Sampler::start(&SamplerOptions { hz: 100, ..here() });
    std::thread::sleep(std::time::Duration::from_millis(300));
    let first = sampler.drain();
    sampler.request_slabs();
    std::thread::sleep(std::time::Duration::from_millis(200));
    let end = sampler.stop();
    let moments = |drained: &[Series]| table(drained, Table::Vmstat).at_ns().to_vec();
    let all: Vec<u64> = [moments(&first.series), moments(&end.drained.series)].concat();
    assert_eq!(all.len() as u64, end.samples);
    assert!(all.len() > 5 && all.len() <= 60, "{} samples in half a second", all.len());
    assert!(all.windows(2).all(|pair| pair[0] < pair[1]));
    assert!(end.cpu_ns > 0);
    if rustix::process::geteuid().is_root() && Path::new("/proc/slabinfo").exists() {
        let mut slabs = table(&first.series, Table::Slabs).at_ns().to_vec();
        slabs.extend(table(&end.drained.series, Table::Slabs).at_ns());
        slabs.dedup();
        assert_eq!(slabs.len(), 3, "at the start, on request, at the end");
    }
}
