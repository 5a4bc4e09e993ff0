//! Performs the runs of a what-if: which combinations, on how many threads, and the figures of each run.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rand_core::Rng;
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};

use super::{Goal, Sweep, WhatifError};
use flatwater_recording::schema::{Column, cpu, meminfo, vmstat};
use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::{Entity, PackedHistogram, Recording, Setup, Table};
use flatwater_workload::scenario::Scenario;

/// A combination of settings and the figures of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// (knob, value) in the order of the sweeps.
    #[serde(skip)]
    pub settings: Vec<(&'static str, String)>,
    /// The knobs of this run, including the kernel's defaults.
    pub setup: Setup,
    /// Latency at the goal's quantile, ns.
    pub goal_ns: u64,
    pub median_ns: u64,
    pub slow_calls: u64,
    /// CPU time of the whole machine, as a share of all its CPU time.
    pub cpu_share: f64,
    /// Least free memory, bytes.
    pub free_bytes_min: u64,
    /// Pages scanned per second.
    pub scanned_per_s: f64,
    pub read_bytes: u64,
}

/// All sweeps together may have at most this many combinations.
pub const COMBINATIONS_MAX: usize = 100_000;

/// All combinations, or a seeded choice of `most` combinations. Refuses sweeps with more than [`COMBINATIONS_MAX`]
/// combinations: a choice among the first of them would never try the later values of the first sweep.
pub fn combinations(sweeps: &[Sweep], most: usize, seed: u64) -> Result<Vec<Vec<(&'static str, String)>>, WhatifError> {
    let count = sweeps.iter().fold(1_u128, |count, sweep| count.saturating_mul(sweep.values.len() as u128));
    if count > COMBINATIONS_MAX as u128 {
        return Err(WhatifError::TooMany { count });
    }
    let mut all: Vec<Vec<(&'static str, String)>> = vec![Vec::new()];
    for sweep in sweeps {
        let longer = all.iter().flat_map(|shorter| {
            sweep.values.iter().map(move |value| {
                let mut next = shorter.clone();
                next.push((sweep.key, value.clone()));
                next
            })
        });
        all = longer.collect();
    }
    let mut dice = Pcg64::new(u128::from(seed), 5);
    while all.len() > most.max(1) {
        let place = dice.next_u64() % all.len() as u64;
        all.swap_remove(place as usize);
    }
    Ok(all)
}

/// Performs all combinations on `jobs` threads and calls `progress` with the number of finished runs after each.
pub fn search<E: std::fmt::Display>(
    scenario: &Scenario,
    settings: &[Vec<(&'static str, String)>],
    goal: Goal,
    jobs: usize,
    perform: &(dyn Fn(&Scenario) -> Result<Recording, E> + Sync),
    progress: &(dyn Fn(usize) + Sync),
) -> Result<Vec<Tried>, WhatifError> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Result<Tried, WhatifError>)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, settings.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(set) = settings.get(number) else { break };
                    let tried = with_settings(scenario, set).and_then(|changed| {
                        let ran = perform(&changed);
                        let recording = ran.map_err(|error| WhatifError::Run { number, why: error.to_string() })?;
                        measure(&recording, set, goal)
                    });
                    let mut done = done.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    done.push((number, tried));
                    progress(done.len());
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_short_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, tried)| tried).collect()
}

pub(super) fn with_settings(scenario: &Scenario, set: &[(&'static str, String)]) -> Result<Scenario, WhatifError> {
    let mut changed = scenario.clone();
    for (key, value) in set {
        changed.setup.set(key, value)?;
        forget_pair(&mut changed.setup, key);
    }
    Ok(changed)
}

/// Clears the other setting of a pair, as the kernel does (mm/page-writeback.c: dirty_ratio_handler): a recorded setup
/// may contain both.
fn forget_pair(setup: &mut Setup, key: &str) {
    match key {
        "vm.dirty_ratio" => setup.observe("vm.dirty_bytes", "0"),
        "vm.dirty_background_ratio" => setup.observe("vm.dirty_background_bytes", "0"),
        _ => {}
    }
}

pub(super) fn measure(recording: &Recording, set: &[(&'static str, String)], goal: Goal) -> Result<Tried, WhatifError> {
    let buckets = recording.latency.iter().filter(|b| b.thread.is_empty() && b.op == goal.operation);
    let mut all = PackedHistogram::merged(buckets.map(|bucket| &bucket.from_start));
    // A call that has not returned counts with its time until the end: otherwise a stalled run would look fast.
    let under_way = recording.calls.iter().filter(|call| call.still_under_way && call.op == goal.operation);
    under_way.for_each(|call| all.saturating_record(call.duration_ns));
    if all.is_empty() {
        let mut seen: Vec<&str> = recording.latency.iter().map(|bucket| bucket.op.name()).collect();
        seen.sort_unstable();
        seen.dedup();
        return Err(WhatifError::Unmeasured { operation: goal.operation.name(), seen: seen.join(", ") });
    }
    let rows = |table: Table, entity: &Entity| recording.table(table).and_then(|series| series.rows_of(entity));
    let (vm, cpu) = (rows(Table::Vmstat, &Entity::default()), rows(Table::Cpu, &Entity::named("all")));
    let seconds = (recording.header.duration_ns as f64 / 1e9).max(1e-9);
    let rise = |column: Column| vm.and_then(|rows| rows.rise(column)).unwrap_or(0).max(0) as f64;
    let cpu_rise = |column: Column| cpu.and_then(|rows| rows.rise(column)).unwrap_or(0).max(0) as f64;
    let busy = cpu_rise(cpu::USER_NS) + cpu_rise(cpu::SYSTEM_NS);
    let free = rows(Table::Meminfo, &Entity::default()).and_then(|rows| rows.min(meminfo::MEM_FREE_BYTES));
    Ok(Tried {
        settings: set.to_vec(),
        setup: recording.header.setup.clone(),
        goal_ns: all.value_at_quantile(goal.quantile),
        median_ns: all.value_at_quantile(0.5),
        slow_calls: recording.calls.len() as u64,
        cpu_share: busy / (busy + cpu_rise(cpu::IDLE_NS)).max(1.0),
        free_bytes_min: free.map_or(0, |(_, bytes)| u64::try_from(bytes).unwrap_or(0)),
        scanned_per_s: (rise(vmstat::PGSCAN_KSWAPD) + rise(vmstat::PGSCAN_DIRECT)) / seconds,
        read_bytes: (rise(vmstat::PGPGIN) * 1024.0) as u64,
    })
}
