//! A mapped database on four nodes: what zone_reclaim_mode 1, switched on under it, does within 90 s.

use flatwater::recording::{Entity, Recording, Table};
use flatwater::scenario::Scenario;
use flatwater::sim::{self, Ablations, Options};

const SECOND: u64 = 1_000_000_000;
/// The mode is switched on here.
const SWITCHED_S: u64 = 600;

fn run(ablations: Ablations) -> Recording {
    let scenario = Scenario::load("graphdb-zone-reclaim").expect("built in");
    sim::run_with(&scenario, &Options { ablations, seed: None }, |_| true).expect("runs").0
}

/// How much a counter of /proc/vmstat rose from one second to another.
fn rise(recording: &Recording, column: &str, from_s: u64, to_s: u64) -> f64 {
    let rows = recording.table(Table::Vmstat).and_then(|table| table.rows_of(&Entity::default())).expect("vmstat");
    let at =
        |second: u64| rows.values(column).take_while(|(at_ns, _)| *at_ns <= second * SECOND).last().expect(column).1;
    (at(to_s) - at(from_s)) as f64
}

fn longest_s(recording: &Recording, from_s: u64, to_s: u64) -> f64 {
    let within = recording.calls.iter().filter(|call| (from_s * SECOND..to_s * SECOND).contains(&call.start_ns));
    within.map(|call| call.duration_ns).max().unwrap_or(0) as f64 / 1e9
}

#[test]
fn a_mapped_database_scans_millions_and_frees_nothing_once_zone_reclaim_is_on() {
    let recording = run(Ablations::default());
    let rise = |column: &str, from_s, to_s| rise(&recording, column, from_s, to_s);
    assert!(rise("pgscan_direct", 300, SWITCHED_S) < 1000.0, "mode 0: pgscand mostly 0");
    assert!(rise("pgpgin", 300, SWITCHED_S) / 300.0 < 1024.0, "mode 0: all that is read is in memory");
    let scanned = rise("pgscan_direct", SWITCHED_S, SWITCHED_S + 30);
    let freed = rise("pgsteal_direct", SWITCHED_S, SWITCHED_S + 30);
    let at_once = rise("pgscan_direct", SWITCHED_S, SWITCHED_S + 10) / 10.0;
    assert!(at_once > 1e6, "mode 1: over a million pages a second within 30 s: {at_once}");
    assert!(freed < scanned / 100.0, "%vmeff under 1: {freed} of {scanned}");
    assert!(rise("pgscan_kswapd", SWITCHED_S, SWITCHED_S + 90) < 1000.0, "kswapd sleeps: some node is above its mark");
    let before = longest_s(&recording, 300, SWITCHED_S);
    let after = longest_s(&recording, SWITCHED_S, SWITCHED_S + 90);
    assert!(before < 0.3, "mode 0, published 100 to 200 ms at times: {before} s");
    assert!(after > 10.0, "mode 1: over 10 s within 90 s: {after} s");
    let without = run(Ablations { zone_reclaim: false, ..Ablations::default() });
    let longest = longest_s(&without, SWITCHED_S, SWITCHED_S + 90);
    assert!(longest < 0.3, "without zone reclaim nobody waits: {longest} s");
}
