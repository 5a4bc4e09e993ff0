//! Answers what a setting would do: performs a scenario once for each combination of settings, or for a seeded choice
//! of combinations, and says which one it recommends and what that costs elsewhere. The caller passes a closure that
//! performs the scenario (in the simulator).

mod cgroup_memory;
mod choice;
mod copies;
mod device;
pub mod machine;
pub mod recorded;
mod search;

pub use choice::{choose, costs};
pub use copies::search_copies;
pub use search::{COMBINATIONS_MAX, Tried, combinations, search};

use crate::figure;
use flatwater_recording::OpKind;
use flatwater_recording::knob::{self, KnobError, KnobKind};

/// A knob and the values to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    pub key: &'static str,
    pub values: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WhatifError {
    #[error("'{given}' is not a sweep: give KEY=FROM..TO or KEY=A,B,C, such as vm.min_free_kbytes=64M..2G")]
    BadSweep { given: String },
    #[error("'{given}' is not a goal: give [OPERATION.]QUANTILE, such as write.p99.99, read.max or page-fault.p99")]
    BadGoal { given: String },
    #[error(transparent)]
    Knob(#[from] KnobError),
    #[error("the model of {kernel} does not know {key}, so every value would give the same; it knows {known}")]
    NotModelled { key: &'static str, kernel: String, known: String },
    #[error(
        "the sweeps have {count} combinations, more than {COMBINATIONS_MAX}: give fewer sweeps, or fewer values each"
    )]
    TooMany { count: u128 },
    #[error("the warm machine cannot be copied: fork: {why}; without --warm each run starts at time 0")]
    Copy { why: String },
    #[error("run {number} failed: {why}")]
    Run { number: usize, why: String },
    #[error("no {operation} was measured, so there is nothing to compare: choose a goal among {seen}")]
    Unmeasured { operation: &'static str, seen: String },
}

/// Values of a range: both ends and three between them, equally spaced, for sizes on a logarithmic scale.
const STEPS: u32 = 5;

impl Sweep {
    /// Parses `vm.min_free_kbytes=64M..2G` or `vm.zone_reclaim_mode=0,1`.
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
                // Sizes between the ends are rounded to whole MiB, which people can read and type.
                let mib = match knob.kind {
                    KnobKind::SizeKib { .. } => 1024.0,
                    KnobKind::Size { .. } => 1_048_576.0,
                    _ => 1.0,
                };
                let whole = |step: u32| match at(step) {
                    value if step > 0 && step < STEPS - 1 && value >= 2.0 * mib => (value / mib).round() * mib,
                    value => value.round(),
                };
                (0..STEPS).map(|step| format!("{}", whole(step) as u64)).collect()
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

/// Refuses a sweep over a knob that the model of this kernel ignores: every value would give the same result.
pub fn check_modelled(sweeps: &[Sweep], kernel: &str, known: &[&str]) -> Result<(), WhatifError> {
    match sweeps.iter().find(|sweep| !known.contains(&sweep.key)) {
        None => Ok(()),
        Some(sweep) => {
            let known = if known.is_empty() { "no knob".to_owned() } else { known.join(", ") };
            Err(WhatifError::NotModelled { key: sweep.key, kernel: kernel.to_owned(), known })
        }
    }
}

/// The latency to minimize.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    pub operation: OpKind,
    /// 0 to 1; 1 is the maximum.
    pub quantile: f64,
}

impl Goal {
    /// Parses what [`crate::figure::Figure`] does, of which only quantiles can be minimized: `fdatasync.p99`,
    /// `write.p9999`, `read.max`. Without an operation: of writes.
    pub fn parse(given: &str) -> Result<Goal, WhatifError> {
        let (operation, rest) = figure::split(given.trim());
        let quantile = if matches!(rest, "max" | "worst") { Some(1.0) } else { figure::quantile(rest) };
        let quantile = quantile.ok_or_else(|| WhatifError::BadGoal { given: given.to_owned() })?;
        Ok(Goal { operation: operation.unwrap_or(OpKind::Write), quantile })
    }
}

#[cfg(test)]
mod tests {
    use super::{Goal, Sweep, combinations};
    use flatwater_recording::OpKind;

    #[test]
    fn a_sweep_is_a_range_or_a_list_in_the_knobs_unit() {
        let sizes = Sweep::parse("vm.min_free_kbytes=64M..1G").expect("a range");
        assert_eq!(sizes.values, ["65536", "131072", "262144", "524288", "1048576"]);
        let small = Sweep::parse("vm.dirty_bytes=4M..256M").expect("a range");
        assert_eq!(small.values[1], "11534336", "11 MiB, as people write it");
        assert_eq!(Sweep::parse("vm.zone_reclaim_mode=0,1").expect("a list").values, ["0", "1"]);
        for bad in ["vm.swappiness", "vm.swapiness=1,2", "vm.zone_reclaim_mode=0,9"] {
            assert!(Sweep::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_goal_is_an_operation_and_a_quantile() {
        assert_eq!(Goal::parse("write.p9999"), Ok(Goal { operation: OpKind::Write, quantile: 0.9999 }));
        assert_eq!(Goal::parse("read.max").map(|goal| goal.quantile), Ok(1.0));
        assert_eq!(Goal::parse("p99").map(|goal| goal.operation), Ok(OpKind::Write));
        assert!(
            Goal::parse("write").is_err() && Goal::parse("juggle.p99").is_err() && Goal::parse("write.p9x").is_err()
        );
    }

    #[test]
    fn too_many_combinations_are_reduced_to_a_seeded_choice() {
        let sweeps = ["vm.swappiness=0..100", "vm.zone_reclaim_mode=0,1,3"].map(|text| Sweep::parse(text).expect(text));
        let chosen = |most, seed| combinations(&sweeps, most, seed).expect("few");
        assert_eq!(chosen(100, 1).len(), 15);
        let some = chosen(6, 1);
        assert_eq!((some.len(), &some), (6, &chosen(6, 1)));
        assert_ne!(some, chosen(6, 2));
    }

    /// Beyond 100,000 combinations the later values of the first sweeps were never tried, without a word.
    #[test]
    fn more_combinations_than_can_be_listed_are_refused() {
        let values = |count: u32| (0..count).map(|value| value.to_string()).collect::<Vec<String>>();
        let sweep = |count| Sweep { key: "vm.swappiness", values: values(count) };
        assert_eq!(combinations(&[sweep(1000), sweep(100)], 10, 1).map(|all| all.len()), Ok(10));
        let error = combinations(&[sweep(1001), sweep(100)], 10, 1).expect_err("too many").to_string();
        assert!(error.contains("100100 combinations") && error.contains("give fewer"), "{error}");
        assert!(combinations(&vec![sweep(1000); 30], 10, 1).is_err(), "the count does not overflow");
    }
}
