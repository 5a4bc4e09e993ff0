//! Tests of the comparison.

use super::{agree, agree_beside};
use flatwater_recording::{ColumnKind, Entity, Recording, Series, Source, Table};

fn recording(start_ns: u64, miss_per_s: i64, free_per_s: i64) -> Recording {
    let mut recording = Recording::default();
    recording.header.clock.start_ns = start_ns;
    recording.header.duration_ns = 20_000_000_000;
    let mut nodes = Series::new(Table::Nodes);
    for second in 0..=20_i64 {
        let at_ns = start_ns + second as u64 * 1_000_000_000;
        for node in 0..2 {
            let free = if node == 0 { (50_000 + free_per_s * second) * 4096 } else { 1000 * 4096 };
            let values = [
                ("numa_miss", ColumnKind::Counter, Some(700 + i64::from(node == 0) * miss_per_s * second)),
                ("MemFree_bytes", ColumnKind::Gauge, Some(free)),
            ];
            nodes.push(at_ns, &Entity::on_node(node, ""), &values);
        }
    }
    recording.series.push(nodes);
    recording
}

#[test]
fn a_recording_agrees_with_itself_at_any_start_time() {
    let found = agree(&recording(5, 1000, -2000), &recording(7_000_000_000, 1000, -2000));
    assert_eq!(found.alignments[0].mean_percent, Some(0.0));
    assert!(found.alignments[0].metrics.iter().all(|metric| metric.same_sign));
    assert!(found.alignments[0].orderings.iter().all(|ordering| ordering.same));
    assert_eq!(found.alignments[0].orderings.len(), 1);
}

#[test]
fn errors_and_signs_are_computed() {
    let found = agree(&recording(0, 1000, -2000), &recording(0, 1100, 2000));
    let metric = |name: &str| found.alignments[0].metrics.iter().find(|metric| metric.name == name).expect("sampled");
    let miss = metric("numa_miss");
    assert!((miss.mean_percent.expect("moves") - 10.0).abs() < 1e-6, "counters by their rise, not their base");
    assert!((miss.worst_percent.expect("moves") - 10.0).abs() < 1e-6);
    assert!(miss.same_sign && !metric("free.node0").same_sign);
}

#[test]
fn missing_metrics_are_named_and_distorted_latencies_left_out() {
    let mut other = recording(0, 1000, 0);
    other.header.time_distorted = true;
    other.series.clear();
    let found = agree(&recording(0, 1000, 0), &other);
    assert!(
        found.alignments[0].metrics.is_empty()
            && found.latencies.is_empty()
            && found.alignments[0].mean_percent.is_none()
    );
    assert!(found.notes.iter().any(|note| note.contains("numa_miss")));
    assert!(found.notes.iter().any(|note| note.contains("distorted")));
}

#[test]
fn a_metric_that_differs_between_runs_of_the_reference_is_not_counted() {
    let (reference, again, other) = (recording(0, 1000, -2000), recording(0, 1500, -2000), recording(0, 1100, -2000));
    let found = agree_beside(&reference, &[again], &other);
    let miss = found.alignments[0].metrics.iter().find(|metric| metric.name == "numa_miss").expect("sampled");
    assert!(miss.is_unsteady() && miss.spread_percent.is_some_and(|spread| (spread - 50.0).abs() < 1e-6));
    assert_eq!(found.alignments[0].mean_percent, Some(0.0), "only the free pages are left, and they agree");
}

/// Misses begin after the tenth second, when half of the work is done. The second repetition ends by then.
#[test]
fn a_repetition_that_ends_early_does_not_confirm_a_metric() {
    use flatwater_recording::{LatencyBucket, OpKind, PackedHistogram, histogram};
    let late = |misses: i64, seconds: u64| {
        let mut recording = recording(0, 0, -2000);
        recording.series.clear();
        let mut nodes = Series::new(Table::Nodes);
        for second in 0..=20_i64 {
            let values = [("numa_miss", ColumnKind::Counter, Some((second - 10).max(0) * misses))];
            nodes.push(second as u64 * 1_000_000_000, &Entity::on_node(0, ""), &values);
        }
        recording.series.push(nodes);
        recording.latency = (0..seconds)
            .map(|second| LatencyBucket {
                start_ns: second * 1_000_000_000,
                width_ns: 1_000_000_000,
                op: OpKind::Read,
                thread: String::new(),
                bytes: 1 << 20,
                from_start: PackedHistogram::pack(&histogram()),
                from_due: None,
                worst_from_start_ns: 0,
                worst_from_due_ns: None,
            })
            .collect();
        recording
    };
    let by_work = |again: &Recording| {
        let found = agree_beside(&late(1000, 20), std::slice::from_ref(again), &late(1200, 20));
        let work = found.alignments.into_iter().find(|one| one.by == "work").expect("bytes were moved");
        work.metrics.into_iter().find(|metric| metric.name == "numa_miss").expect("sampled")
    };
    let seen = by_work(&late(1050, 20));
    assert!(seen.counted && seen.moves_in_reference);
    let unseen = by_work(&late(1000, 10));
    assert!(unseen.moves && !unseen.counted && unseen.spread_percent == Some(100.0));
}

#[test]
fn a_change_that_is_small_beside_memory_does_not_count_as_moving() {
    let mut reference = recording(0, 1000, 0);
    let moves = |reference: &Recording| {
        let found = agree(reference, &recording(0, 1100, 0));
        let miss = found.alignments[0].metrics.iter().find(|metric| metric.name == "numa_miss").expect("sampled");
        miss.moves
    };
    assert!(moves(&reference));
    // 22,000 pages are 0.13 % of 64 GiB.
    reference.header.machine.memory_bytes = Some(64 << 30);
    assert!(!moves(&reference));
}

/// Pages scanned per second by kswapd and by callers, for 20 s.
fn scans(kswapd: i64, direct: i64) -> Recording {
    let mut recording = Recording::default();
    recording.header.duration_ns = 20_000_000_000;
    let mut vmstat = Series::new(Table::Vmstat);
    for second in 0..=20_i64 {
        let values = [
            ("pgscan_kswapd", ColumnKind::Counter, Some(kswapd * second)),
            ("pgscan_direct", ColumnKind::Counter, Some(direct * second)),
        ];
        vmstat.push(second as u64 * 1_000_000_000, &Entity::default(), &values);
    }
    recording.series.push(vmstat);
    recording
}

#[test]
fn a_sum_is_counted_only_if_a_part_is_unsteady() {
    let counted = |again: &Recording| {
        let found =
            agree_beside(&scans(1000, 500), std::slice::from_ref(again), &scans(800, 600)).alignments.swap_remove(0);
        let orders = found.orderings.len();
        (found.metrics.into_iter().filter(|one| one.counted).map(|one| one.name).collect::<Vec<_>>(), orders)
    };
    assert_eq!(counted(&scans(1050, 510)), (vec!["pgscan_kswapd".to_owned(), "pgscan_direct".to_owned()], 1));
    // kswapd and callers swap roles: only their sum repeats, and their order does not.
    assert_eq!(counted(&scans(600, 900)), (vec!["pgscan".to_owned()], 0));
}

#[test]
fn work_is_the_sum_of_the_bytes_of_all_rows() {
    use flatwater_recording::{LatencyBucket, OpKind, PackedHistogram, histogram};
    let row = |thread: &str, bytes| LatencyBucket {
        start_ns: 0,
        width_ns: 1_000_000_000,
        op: OpKind::Write,
        thread: thread.to_owned(),
        bytes,
        from_start: PackedHistogram::pack(&histogram()),
        from_due: None,
        worst_from_start_ns: 0,
        worst_from_due_ns: None,
    };
    let mut recording = recording(0, 1000, 0);
    recording.latency = vec![row("", 3 << 20), row("stream-0", 1 << 20)];
    assert_eq!(super::work::progress(&recording).last(), Some(&(1_000_000_000, f64::from(4 << 20))));
}

/// A recording of a host or a simulation with a cgroup (names of v1 or v2) and its device.
fn in_cgroup(source: Source, names: [&'static str; 2], dirty_pages: i64, read_pages_per_s: i64) -> Recording {
    let mut recording = recording(0, 1000, -2000);
    recording.header.source = source;
    recording.header.target.device = Some("vda".to_owned());
    let (mut cgroup, mut disks) = (Series::new(Table::Cgroup), Series::new(Table::Disks));
    for second in 0..=20_i64 {
        let at_ns = second as u64 * 1_000_000_000;
        let gauge = |name, pages: i64| (name, ColumnKind::Gauge, Some(pages * 4096));
        let values = [gauge("usage_bytes", 9000), gauge(names[0], 8000), gauge(names[1], dirty_pages * second / 20)];
        for entity in ["/jobs", "/jobs/feed"] {
            cgroup.push(at_ns, &Entity::named(entity), &values);
        }
        let counter = |name, pages: i64| (name, ColumnKind::Counter, Some(pages * 4096));
        let moved = [counter("read_bytes", read_pages_per_s * second), counter("write_bytes", 10_000 * second)];
        disks.push(at_ns, &Entity::named("vda"), &moved);
    }
    recording.series.extend([cgroup, disks]);
    recording
}

#[test]
fn a_hosts_cgroup_is_compared_by_the_metrics_of_cgroup_and_device() {
    let host = in_cgroup(Source::Host, ["cache", "dirty"], 4000, 50);
    let found = agree(&host, &in_cgroup(Source::Sim, ["file", "file_dirty"], 5000, 0));
    let metrics = &found.alignments[0].metrics;
    assert!(metrics.iter().all(|metric| !metric.name.starts_with("free") && !metric.name.starts_with("numa")));
    let metric = |name: &str| metrics.iter().find(|metric| metric.name == name).expect(name);
    let dirty = metric("cgroup.dirty");
    assert!(dirty.moves && dirty.same_sign && (dirty.mean_percent.expect("moves") - 25.0).abs() < 0.01);
    assert_eq!(dirty.reference.last(), Some(&4000.0), "of the inner one alone");
    assert_eq!(metric("cgroup.kernel").reference.last(), Some(&1000.0), "usage less page cache");
    assert!(metric("disk.written").moves);
    assert!(!metric("disk.read").moves, "half a percent of what the device moved is the file system's own");
}

#[test]
fn changes_just_below_and_above_the_limit_have_the_same_sign() {
    let same_sign = |ours, theirs| {
        let found = agree(&scans(ours, 0), &scans(theirs, 0)).alignments.swap_remove(0);
        let metric = found.metrics.into_iter().find(|one| one.name == "pgscan_kswapd").expect("sampled");
        (metric.moves, metric.same_sign)
    };
    // 50 pages count: 60 and 40 in 20 s are nearly the same, 120 and 0 are not.
    assert_eq!((same_sign(3, 2), same_sign(6, 0), same_sign(0, 0)), ((true, true), (true, false), (false, true)));
}
