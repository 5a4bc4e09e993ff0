//! What would a setting do? Runs a scenario on the simulator once for each combination of settings, or for a seeded
//! choice of them, and says which it would choose and what that costs elsewhere.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rand_core::Rng;

use super::run::{Options, SimError, run_with};
use crate::recording::knob::{self, KnobError};
use crate::recording::{Entity, KnobKind, OpKind, PackedHistogram, Recording, Table};
use crate::scenario::Scenario;
use crate::units::{Bytes, Nanos};

/// One knob and the values to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    pub key: &'static str,
    pub values: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WhatifError {
    #[error("'{given}' is no sweep: give KEY=FROM..TO or KEY=A,B,C, such as vm.min_free_kbytes=64M..2G")]
    BadSweep { given: String },
    #[error("'{given}' is no goal: give OPERATION.QUANTILE, such as write.p9999, read.max or page-fault.p99")]
    BadGoal { given: String },
    #[error(transparent)]
    Knob(#[from] KnobError),
    #[error("run {number} failed: {why}")]
    Run { number: usize, why: String },
    #[error("no {operation} was measured, so there is nothing to compare: choose a goal among {seen}")]
    Unmeasured { operation: &'static str, seen: String },
}

/// Steps of a range: each end and three between them, evenly on a scale of powers for sizes.
const STEPS: u32 = 5;

impl Sweep {
    /// Reads `vm.min_free_kbytes=64M..2G` or `vm.zone_reclaim_mode=0,1`.
    pub fn parse(given: &str) -> Result<Sweep, WhatifError> {
        let bad = || WhatifError::BadSweep { given: given.to_owned() };
        let (key, values) = given.split_once('=').ok_or_else(bad)?;
        let knob = knob::find(key.trim())?;
        let values = match values.split_once("..") {
            None => values.split(',').map(|value| knob.parse(value)).collect::<Result<Vec<_>, _>>()?,
            Some((from, to)) => {
                let ends = [knob.parse(from)?, knob.parse(to)?].map(|end| end.parse::<f64>());
                let [Ok(from), Ok(to)] = ends else { return Err(bad()) };
                let by_power = matches!(knob.kind, KnobKind::Size { .. } | KnobKind::SizeKib { .. }) && from > 0.0;
                let at = |step: u32| {
                    let part = f64::from(step) / f64::from(STEPS - 1);
                    if by_power { from * (to / from).powf(part) } else { from + (to - from) * part }
                };
                (0..STEPS).map(|step| format!("{}", at(step).round() as u64)).collect()
            }
        };
        let mut unique: Vec<String> = Vec::new();
        for value in values {
            if !unique.contains(&value) {
                unique.push(value);
            }
        }
        Ok(Sweep { key: knob.key, values: unique })
    }
}

/// What is to be small.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    pub operation: OpKind,
    /// 1 is the maximum.
    pub quantile: f64,
}

impl Goal {
    /// Reads `write.p9999` or `read.max`.
    pub fn parse(given: &str) -> Result<Goal, WhatifError> {
        let bad = || WhatifError::BadGoal { given: given.to_owned() };
        let (operation, quantile) = given.rsplit_once('.').ok_or_else(bad)?;
        let operation = OpKind::from_name(operation).ok_or_else(bad)?;
        if quantile == "max" {
            return Ok(Goal { operation, quantile: 1.0 });
        }
        let digits = quantile.strip_prefix('p').filter(|digits| (2..=6).contains(&digits.len())).ok_or_else(bad)?;
        let number: u32 = digits.parse().map_err(|_| bad())?;
        Ok(Goal { operation, quantile: f64::from(number) / 10f64.powi(digits.len() as i32) })
    }
}

/// One combination and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried {
    /// (knob, value) in the order of the sweeps.
    pub settings: Vec<(&'static str, String)>,
    /// The goal's latency, ns.
    pub goal_ns: u64,
    pub median_ns: u64,
    pub slow_calls: u64,
    /// CPU time of the whole machine, as a share of it.
    pub cpu_share: f64,
    /// Least memory that was free.
    pub free_bytes_min: u64,
    /// Pages that reclaim looked at, a second.
    pub scanned_per_s: f64,
    pub read_bytes: u64,
}

/// Every combination, or a seeded choice of `most` of them.
#[must_use]
pub fn combinations(sweeps: &[Sweep], most: usize, seed: u64) -> Vec<Vec<(&'static str, String)>> {
    let mut all: Vec<Vec<(&'static str, String)>> = vec![Vec::new()];
    for sweep in sweeps {
        let longer = all.iter().flat_map(|held| {
            sweep.values.iter().map(move |value| {
                let mut next = held.clone();
                next.push((sweep.key, value.clone()));
                next
            })
        });
        all = longer.take(100_000).collect();
    }
    let dice = super::build::generator(seed, 2);
    while all.len() > most.max(1) {
        let place = dice.borrow_mut().next_u64() % all.len() as u64;
        all.swap_remove(place as usize);
    }
    all
}

/// Runs all of them on `jobs` threads; `told` hears of each one that is done.
pub fn search(
    scenario: &Scenario,
    settings: &[Vec<(&'static str, String)>],
    goal: Goal,
    jobs: usize,
    told: &(dyn Fn(usize) + Sync),
) -> Result<Vec<Tried>, WhatifError> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Result<Tried, WhatifError>)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, settings.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(set) = settings.get(number) else { break };
                    let tried = one(scenario, set, goal, number);
                    let mut done = done.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    done.push((number, tried));
                    told(done.len());
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, tried)| tried).collect()
}

fn one(scenario: &Scenario, set: &[(&'static str, String)], goal: Goal, number: usize) -> Result<Tried, WhatifError> {
    let mut changed = scenario.clone();
    for (key, value) in set {
        changed.setup.set(key, value)?;
    }
    let ran = run_with(&changed, &Options::default(), |_| true);
    let (recording, _) = ran.map_err(|error: SimError| WhatifError::Run { number, why: error.to_string() })?;
    measure(&recording, set, goal)
}

fn measure(recording: &Recording, set: &[(&'static str, String)], goal: Goal) -> Result<Tried, WhatifError> {
    let buckets = recording.latency.iter().filter(|b| b.thread.is_empty() && b.op == goal.operation);
    let all = PackedHistogram::merged(buckets.map(|bucket| &bucket.from_start));
    if all.is_empty() {
        let mut seen: Vec<&str> = recording.latency.iter().map(|bucket| bucket.op.name()).collect();
        seen.sort_unstable();
        seen.dedup();
        return Err(WhatifError::Unmeasured { operation: goal.operation.name(), seen: seen.join(", ") });
    }
    let rows = |table: Table, entity: &Entity| recording.table(table).and_then(|series| series.rows_of(entity));
    let (vm, cpu) = (rows(Table::Vmstat, &Entity::default()), rows(Table::Cpu, &Entity::named("all")));
    let seconds = (recording.header.duration_ns as f64 / 1e9).max(1e-9);
    let rise = |column: &str| vm.and_then(|rows| rows.rise(column)).unwrap_or(0).max(0) as f64;
    let cpu_rise = |column: &str| cpu.and_then(|rows| rows.rise(column)).unwrap_or(0).max(0) as f64;
    let busy = cpu_rise("user_ns") + cpu_rise("system_ns");
    let free = rows(Table::Meminfo, &Entity::default()).and_then(|rows| rows.min("MemFree_bytes"));
    Ok(Tried {
        settings: set.to_vec(),
        goal_ns: all.value_at_quantile(goal.quantile),
        median_ns: all.value_at_quantile(0.5),
        slow_calls: recording.calls.len() as u64,
        cpu_share: busy / (busy + cpu_rise("idle_ns")).max(1.0),
        free_bytes_min: free.map_or(0, |(_, bytes)| u64::try_from(bytes).unwrap_or(0)),
        scanned_per_s: (rise("pgscan_kswapd") + rise("pgscan_direct")) / seconds,
        read_bytes: (rise("pgpgin") * 1024.0) as u64,
    })
}

/// The one to choose: the lowest goal; among those within 5 % of it the one that costs least CPU.
#[must_use]
pub fn choose(tried: &[Tried]) -> Option<&Tried> {
    let best = tried.iter().map(|one| one.goal_ns).min()?;
    let close = tried.iter().filter(|one| one.goal_ns as f64 <= best as f64 * 1.05);
    close.min_by(|a, b| a.cpu_share.total_cmp(&b.cpu_share))
}

/// What the choice costs beside the setting that the scenario has: one sentence for each thing that became worse.
#[must_use]
pub fn costs(chosen: &Tried, before: &Tried) -> Vec<String> {
    let mut said = Vec::new();
    if chosen.cpu_share > before.cpu_share * 1.05 {
        said.push(format!("CPU {:.2} % instead of {:.2} %", chosen.cpu_share * 100.0, before.cpu_share * 100.0));
    }
    if chosen.free_bytes_min as f64 > before.free_bytes_min as f64 * 1.1 {
        let (now, was) = (Bytes(chosen.free_bytes_min), Bytes(before.free_bytes_min));
        said.push(format!("{now} always kept free instead of {was}: less page cache"));
    }
    if chosen.scanned_per_s > before.scanned_per_s * 1.1 + 1.0 {
        said.push(format!("{:.0} pages scanned a second instead of {:.0}", chosen.scanned_per_s, before.scanned_per_s));
    }
    if chosen.median_ns as f64 > before.median_ns as f64 * 1.05 {
        said.push(format!("the median call takes {} instead of {}", Nanos(chosen.median_ns), Nanos(before.median_ns)));
    }
    if chosen.read_bytes as f64 > before.read_bytes as f64 * 1.1 + 1e6 {
        said.push(format!("{} read instead of {}", Bytes(chosen.read_bytes), Bytes(before.read_bytes)));
    }
    said
}

#[cfg(test)]
mod tests {
    use super::{Goal, Sweep, combinations};
    use crate::recording::OpKind;

    #[test]
    fn sweeps_are_ranges_or_lists_in_the_knobs_own_unit() {
        let sizes = Sweep::parse("vm.min_free_kbytes=64M..1G").expect("a range");
        assert_eq!(sizes.values, ["65536", "131072", "262144", "524288", "1048576"]);
        assert_eq!(Sweep::parse("vm.zone_reclaim_mode=0,1").expect("a list").values, ["0", "1"]);
        for bad in ["vm.swappiness", "vm.swapiness=1,2", "vm.zone_reclaim_mode=0,9"] {
            assert!(Sweep::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn goals_name_an_operation_and_a_quantile() {
        assert_eq!(Goal::parse("write.p9999"), Ok(Goal { operation: OpKind::Write, quantile: 0.9999 }));
        assert_eq!(Goal::parse("read.max").map(|goal| goal.quantile), Ok(1.0));
        assert!(
            Goal::parse("write").is_err() && Goal::parse("juggle.p99").is_err() && Goal::parse("write.p9x").is_err()
        );
    }

    #[test]
    fn too_many_combinations_become_a_seeded_choice() {
        let sweeps = ["vm.swappiness=0..100", "vm.zone_reclaim_mode=0,1,3"].map(|text| Sweep::parse(text).expect(text));
        assert_eq!(combinations(&sweeps, 100, 1).len(), 15);
        let some = combinations(&sweeps, 6, 1);
        assert_eq!((some.len(), &some), (6, &combinations(&sweeps, 6, 1)));
        assert_ne!(some, combinations(&sweeps, 6, 2));
    }
}
