//! A journal beside a dirty stream in one memory cgroup on a device of 4 GiB/s: cgroup v1 and v2, large and small
//! folios.

use flatwater_recording::units::Nanos;
use flatwater_recording::{Entity, OpKind, Recording, Table};
use flatwater_sim as sim;
use flatwater_workload::scenario::Scenario;

const LIMIT_BYTES: i64 = 512 << 20;

fn run(kernel: &str, version: &str) -> Recording {
    let mut scenario = Scenario::load("full-cgroup").expect("built in");
    scenario.kernel = Some(kernel.to_owned());
    scenario.duration = Nanos(10_000_000_000);
    for setting in [format!("model.cgroup_version={version}"), "queue.max_sectors_kb=4096".to_owned()] {
        scenario.set(&setting).expect("a knob");
    }
    let machine = &mut scenario.machine;
    (machine.cpus, machine.node_bytes) = (Some(2), vec![24 << 30]);
    (machine.disk.write_bytes_per_s, machine.disk.iops) = (Some(4 << 30), Some(20_000));
    sim::run(&scenario).expect("runs").0
}

fn rows<'a>(recording: &'a Recording, column: &'a str) -> impl Iterator<Item = i64> + 'a {
    let table = recording.table(Table::Cgroup).expect("a cgroup");
    table.rows_of(&Entity::named("/flatwater")).expect("its rows").values(column).map(|(_, value)| value)
}

/// The largest dirty and writeback memory of the cgroup, in percent of the limit.
fn unclean_percent_max(recording: &Recording) -> i64 {
    let sums = rows(recording, "file_dirty").zip(rows(recording, "file_writeback")).map(|(dirty, under)| dirty + under);
    sums.max().unwrap_or(0) * 100 / LIMIT_BYTES
}

/// Seconds in which the 99th percentile of the journal's writes exceeded the limit.
fn seconds_with_p99_over(recording: &Recording, limit_ns: u64) -> usize {
    let own = recording.latency.iter().filter(|bucket| bucket.op == OpKind::Write && bucket.thread.is_empty());
    own.filter(|bucket| bucket.from_start.unpack().value_at_quantile(0.99) > limit_ns).count()
}

fn disk_written_bytes(recording: &Recording) -> i64 {
    let disks = recording.table(Table::Disks).expect("a disk");
    disks.rows_of(&Entity::named("sda")).and_then(|rows| rows.rise("write_bytes")).expect("write_bytes")
}

#[test]
fn a_v1_cgroup_fills_with_dirty_pages_until_reclaim_wakes_the_flusher() {
    let recording = run("linux-6.18", "1");
    // The global dirty limits, a tenth of 24 GiB, are not reached, and no page is old enough for the periodic flusher.
    let dirty = recording.table(Table::Vmstat).expect("vmstat").rows_of(&Entity::default()).expect("rows");
    assert!(dirty.max("nr_dirty").expect("nr_dirty").1 < (24 << 30) / 4096 / 10);
    assert!(
        disk_written_bytes(&recording) > 20 * LIMIT_BYTES,
        "reclaim wakes the flusher: {}",
        disk_written_bytes(&recording)
    );
    assert!(unclean_percent_max(&recording) > 80, "only reclaim slows the writer down");
    let usage = rows(&recording, "usage_bytes").max().expect("usage");
    assert!(usage <= LIMIT_BYTES, "usage stays below the limit: {usage}");
}

#[test]
fn a_v2_cgroup_has_its_own_dirty_limits() {
    let recording = run("linux-6.18", "2");
    let unclean = unclean_percent_max(&recording);
    assert!((10..=25).contains(&unclean), "dirty_ratio of the cgroup's memory is 20 %, not {unclean}");
    assert!(disk_written_bytes(&recording) > 20 * LIMIT_BYTES);
}

/// A folio of 64 pages is charged as a whole. If it does not fit, a single page of the journal usually still does. With
/// single pages the stream leaves no room, so every new page of the journal has to reclaim.
#[test]
fn large_folios_leave_room_for_single_pages() {
    let (large, small) = (run("linux-6.18", "1"), run("linux-6.1", "1"));
    let hits = |recording: &Recording| rows(recording, "events_max").last().expect("events_max");
    assert!(hits(&small) > 10 * hits(&large), "{} and {}", hits(&small), hits(&large));
    assert_eq!(seconds_with_p99_over(&large, 100_000), 0);
    assert!(seconds_with_p99_over(&small, 100_000) >= 5, "{}", seconds_with_p99_over(&small, 100_000));
}

fn run_text(text: &str) -> Recording {
    let scenario = Scenario::parse("x", text).expect("parses");
    sim::run(&scenario).unwrap_or_else(|error| panic!("{error}")).0
}

/// Without swap the 72 MiB of a program cannot be reclaimed, so the file being read gets the rest of the 128 MiB.
#[test]
fn memory_of_programs_is_charged_and_leaves_the_rest_to_files() {
    let recording = run_text(
        "name = 'x'\nsentence = 'X.'\nduration = '3s'\nkernel = 'linux-6.18'\n[machine]\ncpus = 2\nnodes = ['2GiB']\n\
         disk = { write_bps = '1GB', latency = '50us' }\n[setup]\n'cgroup.memory_limit' = '128MiB'\n\
         [[workload]]\nuse = 'memory'\nsize = '72MiB'\npattern = 'sequential'\nbytes = '64KiB'\n\
         [[workload]]\nuse = 'access'\nfile_size = '256MiB'\nbytes = '64KiB'\npattern = 'sequential'\n",
    );
    let last = |column| rows(&recording, column).last().expect("a sample") >> 20;
    assert_eq!(last("anon"), 72);
    let (usage, file) = (last("usage_bytes"), last("file"));
    assert!((120..=128).contains(&usage) && (45..=56).contains(&file), "{usage} MiB used, {file} MiB by files");
    assert!(rows(&recording, "events_max").last() > Some(100), "the cgroup reaches its limit");
}

/// Memory of the cgroup's other processes is charged from the given instants on (`machine.cgroup_grows`).
#[test]
fn memory_of_other_processes_is_charged_from_its_time_on() {
    let recording = run_text(
        "name = 'x'\nsentence = 'X.'\nduration = '3s'\nkernel = 'linux-6.18'\n[machine]\ncpus = 2\nnodes = ['2GiB']\n\
         disk = { write_bps = '1GB', latency = '50us' }\n[setup]\n'cgroup.memory_limit' = '64MiB'\n\
         [[workload]]\nuse = 'access'\nfile_size = '128MiB'\nbytes = '64KiB'\npattern = 'sequential'\n",
    );
    assert_eq!(rows(&recording, "anon").max(), Some(0));
    let mut scenario =
        Scenario::parse("x", recording.header.scenario_text.as_deref().expect("its text")).expect("parses");
    scenario.set("machine.cgroup_grows=0s:8MiB;1s:24MiB;2s:16MiB").expect("three steps");
    let reported = sim::run(&scenario).expect("runs").0;
    let held: Vec<i64> = rows(&reported, "anon").map(|bytes| bytes >> 20).collect();
    let mut steps = held.clone();
    steps.dedup();
    assert!(steps.ends_with(&[8, 24, 16]), "{steps:?}");
    let file = |recording| rows(recording, "file").last().expect("a sample") >> 20;
    assert!(file(&recording) - file(&reported) >= 14, "{} and {} MiB of files", file(&recording), file(&reported));
}
