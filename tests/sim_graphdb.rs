//! A mapped database on four nodes with zone_reclaim_mode 0, and what happens within 90 s after mode 1 is switched on.

use flatwater_explain as explain;
use flatwater_recording::units::Nanos;
use flatwater_recording::{Call, Cause, Entity, Recording, Table};
use flatwater_sim::{self as sim, Ablations, Options};
use flatwater_workload::scenario::Scenario;

const SECOND: u64 = 1_000_000_000;

/// Runs the scenario: mode 1 from `switched_s` on, for two minutes.
fn run(switched_s: u64, ablations: Ablations) -> Recording {
    let mut scenario = Scenario::load("graphdb-zone-reclaim").expect("built in");
    scenario.timeline[0].at = Nanos::from_secs(switched_s);
    scenario.duration = Nanos::from_secs(switched_s + 120);
    sim::run_with(&scenario, &Options { ablations, ..Options::default() }, |_| true).expect("runs").0
}

/// The rise of a counter of /proc/vmstat between two instants.
fn rise(recording: &Recording, column: &str, from_s: u64, to_s: u64) -> f64 {
    let rows = recording.table(Table::Vmstat).and_then(|table| table.rows_of(&Entity::default())).expect("vmstat");
    let at =
        |second: u64| rows.values(column).take_while(|(at_ns, _)| *at_ns <= second * SECOND).last().expect(column).1;
    (at(to_s) - at(from_s)) as f64
}

fn slow(recording: &Recording, from_s: u64, to_s: u64) -> impl Iterator<Item = &Call> {
    recording.calls.iter().filter(move |call| (from_s * SECOND..to_s * SECOND).contains(&call.start_ns))
}

fn longest_s<'a>(calls: impl Iterator<Item = &'a Call>) -> f64 {
    calls.map(|call| call.duration_ns).max().unwrap_or(0) as f64 / 1e9
}

/// Minutes of the first `minutes` in which a call took more than `ms`.
fn minutes_over(recording: &Recording, minutes: u64, ms: u64) -> usize {
    (0..minutes).filter(|minute| longest_s(slow(recording, minute * 60, minute * 60 + 60)) * 1e3 > ms as f64).count()
}

#[test]
fn a_mapped_database_scans_millions_and_frees_nothing_once_zone_reclaim_is_on() {
    scans_millions_after(20);
}

#[test]
#[ignore = "make test-model: the case study's whole hour"]
fn a_mapped_database_scans_millions_after_an_hour_without_zone_reclaim() {
    scans_millions_after(60);
}

/// The mode is switched on after this many minutes.
fn scans_millions_after(minutes: u64) {
    let on = minutes * 60;
    let recording = run(on, Ablations::default());
    let rise = |column: &str, from_s, to_s| rise(&recording, column, from_s, to_s);
    assert!(rise("pgscan_direct", 0, on) < 1000.0, "mode 0: pgscand is mostly 0");
    assert!(rise("pgpgin", 0, on) / on as f64 <= 1024.0, "mode 0: nearly all reads are cached");
    let (over, most) = (minutes_over(&recording, minutes, 100), longest_s(slow(&recording, 0, on)));
    println!("mode 0: {over} minutes, {most} s");
    assert!(over > 0, "mode 0: some calls over 100 ms");
    let commits =
        |call: &&Call| call.by_cause().get(&Cause::JournalBuffer).is_some_and(|ns| *ns * 2 > call.duration_ns);
    let (waited, all) = (slow(&recording, 0, on).filter(commits).count(), slow(&recording, 0, on).count());
    assert!(waited * 10 > all * 9, "slow calls wait for the journal's commit: {waited} of {all}");
    let within = |column: &str, from_s: u64, seconds: u64| rise(column, on + from_s, on + from_s + seconds);
    let fastest = (0..6).map(|step| within("pgscan_direct", step * 5, 5) / 5.0).fold(0.0, f64::max);
    println!("mode 1: {fastest} pages/s");
    assert!(fastest > 1e6, "mode 1: over a million pages a second within 30 s: {fastest}");
    let (scanned, freed) = (within("pgscan_direct", 0, 90), within("pgsteal_direct", 0, 90));
    assert!(freed < scanned / 100.0, "%vmeff under 1: {freed} of {scanned}");
    assert!(within("pgscan_kswapd", 0, 90) < 1000.0, "kswapd sleeps, because a node is above its watermark");
    let done = slow(&recording, on, on + 90).filter(|call| call.end_ns() < (on + 90) * SECOND);
    let after = longest_s(done);
    println!("mode 1: {after} s");
    assert!(after > 10.0, "mode 1: over 10 s within 90 s: {after} s");
    let causes: Vec<explain::CauseId> =
        explain::explain(&recording).findings.iter().map(|finding| finding.cause).collect();
    assert!(causes.iter().any(|cause| cause.name().contains("reclaim")), "{causes:?}");
    assert!(!causes.contains(&explain::CauseId::MonitorInterference), "{causes:?}");
}

#[test]
fn without_zone_reclaim_nothing_is_scanned() {
    let without = run(300, Ablations { zone_reclaim: false, ..Ablations::default() });
    assert!(rise(&without, "pgscan_direct", 300, 390) < 1000.0);
    let longest = longest_s(slow(&without, 300, 390));
    // The longest call with mode 0 in an hour takes 0.9 s.
    assert!(longest < 1.0, "as with mode 0: {longest} s");
}
