//! The machines of the vm scenarios on the modelled 6.1: the expected behaviour, and its absence without its mechanism.

use flatwater_recording::units::Nanos;
use flatwater_recording::{Entity, Recording, Table};
use flatwater_sim as sim;
use flatwater_workload::scenario::Scenario;

fn run(name: &str, seconds: u64, set: &[(&str, &str)]) -> Recording {
    let mut scenario = Scenario::load(name).expect(name);
    scenario.duration = Nanos::from_secs(seconds);
    for (key, value) in set {
        scenario.setup.set(key, value).expect(key);
    }
    sim::run(&scenario).expect(name).0
}

/// Rise of a counter of /proc/vmstat.
fn rise(recording: &Recording, column: &str) -> i64 {
    let rows = recording.table(Table::Vmstat).expect("sampled");
    rows.by_entity().filter_map(|(_, rows)| rows.rise(column)).sum()
}

fn misses(recording: &Recording) -> i64 {
    let nodes = recording.table(Table::Nodes).expect("sampled");
    nodes.by_entity().filter_map(|(_, rows)| rows.rise("numa_miss")).sum()
}

fn inodes(recording: &Recording) -> (i64, i64) {
    let slabs = recording.table(Table::Slabs).expect("sampled");
    let rows = slabs.rows_of(&Entity::named("ext4_inode_cache")).expect("counted");
    let start_ns = recording.header.clock.start_ns;
    let at_start = rows.values("active_objs").find(|(at_ns, _)| *at_ns >= start_ns).expect("a sample").1;
    (at_start, rows.last("active_objs").expect("a sample"))
}

/// Direct reclaim keeps the node at its low watermark, so that no allocation wakes kswapd. The model has no watermark
/// boosts, which would.
#[test]
fn with_zone_reclaim_the_stream_reclaims_on_its_node_and_kswapd_sleeps() {
    let spilt = run("numa-spill", 16, &[]);
    // A guest without huge pages: khugepaged would raise min_free_kbytes elevenfold.
    let kept = run("numa-zone-reclaim", 16, &[("vm.min_free_kbytes", "1940")]);
    assert!(misses(&spilt) > 10_000, "{}", misses(&spilt));
    assert!(misses(&kept) * 10 < misses(&spilt), "{} against {}", misses(&kept), misses(&spilt));
    let (scanned, stolen) = (rise(&kept, "pgscan_direct"), rise(&kept, "pgsteal_direct"));
    assert!(scanned > 5_000 && stolen * 2 > scanned, "{scanned} scanned, {stolen} stolen");
    assert_eq!(rise(&kept, "allocstall"), 0);
    assert_eq!((rise(&kept, "pgscan_kswapd"), rise(&kept, "pageoutrun")), (0, 0));
}

#[test]
fn kswapd_balances_a_node_as_a_whole() {
    let spilt = run("numa-spill", 16, &[]);
    let (wakes, stolen) = (rise(&spilt, "pageoutrun"), rise(&spilt, "pgsteal_kswapd"));
    assert!(
        wakes > 10 && stolen > 50 * wakes,
        "{stolen} pages in {wakes} rounds: each to the high watermark or beyond"
    );
    assert_eq!(rise(&spilt, "allocstall"), 0);
}

#[test]
fn tree_nodes_stay_when_the_pages_of_a_stream_go() {
    let spilt = run("numa-spill", 16, &[]);
    let slabs = spilt.table(Table::Slabs).expect("sampled");
    let nodes = slabs.rows_of(&Entity::named("radix_tree_node")).and_then(|rows| rows.last("active_objs"));
    // One radix-tree node for every 64 pages read.
    let read: u64 = spilt.latency.iter().map(|bucket| bucket.bytes).sum();
    let expected = (read / (64 * 4096)) as i64;
    assert!(nodes.is_some_and(|nodes| (expected * 9 / 10..=expected * 11 / 10).contains(&nodes)), "{nodes:?}");
}

#[test]
#[ignore = "make test-model"]
fn the_set_up_leaves_its_inodes_in_memory_and_the_pressure_decides_how_many_stay() {
    let [few, many] = ["1000", "1"].map(|pressure| run("maildir-pressure", 14, &[("vm.vfs_cache_pressure", pressure)]));
    let ((at_start, kept), (_, evicted_to)) = (inodes(&many), inodes(&few));
    assert!(at_start > 15_000, "{at_start} of 18 000 files");
    assert!(many.header.clock.start_ns > 0 && many.header.duration_ns == 14_000_000_000);
    assert!(kept > 15_000 && evicted_to + 2_000 < kept, "{kept} with a pressure of 1, {evicted_to} with 1000");
}

/// A store whose pages take so long to fill that the log block is written while the writer of the set-up is still
/// running. A writer that then joined the block's wait queue was never woken, so the set-up did not end.
#[test]
fn a_set_up_ends_though_the_log_block_is_written_while_its_writer_works() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/held-out/maildir-pressure-large.toml");
    let mut scenario = Scenario::load(file).expect("a scenario");
    for assignment in ["kernel=linux-6.12", "duration=2s", "machine.cpu_speed_percent=1"] {
        scenario.set(assignment).expect(assignment);
    }
    let (recording, truth) = sim::run(&scenario).expect("the set-up ends");
    assert!(truth.operations > 500 && recording.header.duration_ns == 2_000_000_000, "{}", truth.operations);
}

/// Memory that a guest's recorder allocates is taken from the page cache, and returned when it is freed.
#[test]
fn memory_of_other_processes_is_missing_in_the_page_cache() {
    let cached = |grows: &str| {
        let mut scenario = Scenario::load("bulk-slow-disk").expect("built in");
        for assignment in ["duration=40s", grows].into_iter().filter(|text| !text.is_empty()) {
            scenario.set(assignment).expect(assignment);
        }
        let recording = sim::run(&scenario).expect("a run").0;
        let table = recording.table(Table::Vmstat).expect("vmstat");
        let rows = table.rows_of(&Entity::default()).expect("its rows");
        rows.values("nr_file_pages").last().map_or(0, |(_, pages)| pages)
    };
    let (alone, beside) = (cached(""), cached("machine.grows=1s:64MiB"));
    let missing = (alone - beside) / 256;
    assert!((48..=72).contains(&missing), "{missing} MiB of 64");
    let returned = cached("machine.grows=1s:64MiB;4s:0");
    assert!((alone - returned) / 256 < 16, "{alone} and {returned} pages");
}
