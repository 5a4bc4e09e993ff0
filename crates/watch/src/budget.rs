//! Measures the daemon's cost, and sheds parts of the work above the budget.
//!
//! Cost is a share of one core: the CPU time of this process, without the threads that answer scrapers, and of the
//! hooks. The kernel counts the time of each BPF program on request (kernel/bpf/syscall.c, bpf_enable_stats). The steps
//! are taken one at a time, the least useful work first, and undone in reverse order when there is room again.

use std::fmt;

use flatwater_recording::Gap;

use crate::config::Budget;

/// Parts of the work to shed, in this order. Each step includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    #[default]
    Nothing,
    /// The faster samples after a stall.
    FastSamples,
    /// Calls shorter than four times the threshold.
    ShortStalls,
    /// The owners of block requests.
    Requests,
    /// All samples of counters but one in ten seconds.
    Samples,
    /// The hooks: no call is seen.
    Hooks,
}

impl Step {
    pub const ALL: [Step; 6] =
        [Step::Nothing, Step::FastSamples, Step::ShortStalls, Step::Requests, Step::Samples, Step::Hooks];

    fn next(self) -> Step {
        Step::ALL.into_iter().find(|step| *step > self).unwrap_or(Step::Hooks)
    }

    fn back(self) -> Step {
        Step::ALL.into_iter().rev().find(|step| *step < self).unwrap_or(Step::Nothing)
    }

    /// The gap that a recording made during this step contains.
    #[must_use]
    pub fn gap(self, at_ns: u64, cost: Cost, budget: &Budget) -> Option<Gap> {
        let what = match self {
            Step::Nothing => return None,
            Step::FastSamples => "samples more often than once a second",
            Step::ShortStalls => "stalls under four times the threshold",
            Step::Requests => "owners of requests ahead in the queues of block devices",
            Step::Samples => "samples of the kernel's counters more often than every ten seconds",
            Step::Hooks => "slow calls",
        };
        let why = format!("shed because flatwater {cost}; its budget is {}", share(budget.cpu_share));
        let remedy = "raise budget.cpu_share or threshold in watch.toml";
        Some(Gap::new(what, why, remedy).since(at_ns))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Step::Nothing => "nothing",
            Step::FastSamples => "fast-samples",
            Step::ShortStalls => "short-stalls",
            Step::Requests => "requests",
            Step::Samples => "samples",
            Step::Hooks => "hooks",
        })
    }
}

/// The daemon's cost in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// CPU time of this process as a share of one core, without answers.
    pub process_share: f64,
    /// CPU time of the hooks, as a share of one core; `None` if the kernel does not count it.
    pub hooks_share: Option<f64>,
    /// CPU time of answers to scrapers, as a share of one core. Any user can send requests, so this is reported but
    /// sheds nothing.
    pub answers_share: f64,
    pub rss_bytes: u64,
}

impl Cost {
    /// The share that the budget limits.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.process_share + self.hooks_share.unwrap_or(0.0)
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "uses {} of a core", share(self.share()))?;
        match self.hooks_share {
            Some(hooks) => write!(f, ", {} in its hooks", share(hooks))?,
            None => f.write_str(" (without its hooks, which this kernel does not count)")?,
        }
        if self.answers_share >= ANSWERS_NAMED {
            write!(f, ", and {} to answer scrapers, which is outside the budget", share(self.answers_share))?;
        }
        Ok(())
    }
}

/// Smallest share of a core at which a message mentions the answers.
const ANSWERS_NAMED: f64 = 0.000_5;

fn share(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

/// Chooses the step that keeps the cost within the budget.
#[derive(Debug)]
pub struct Keeper {
    budget: Budget,
    step: Step,
    /// Consecutive measurements above the budget, and well below it.
    over: u32,
    under: u32,
}

/// Consecutive measurements before a step is taken, and before one is undone. One measurement may be an outlier;
/// undoing takes longer, to avoid oscillation.
const OVER_LOOKS: u32 = 3;
const UNDER_LOOKS: u32 = 30;
/// A step is undone only below this share of the budget.
const UNDER_SHARE: f64 = 0.5;

impl Keeper {
    #[must_use]
    pub fn new(budget: Budget) -> Keeper {
        Keeper { budget, step: Step::Nothing, over: 0, under: 0 }
    }

    #[must_use]
    pub fn step(&self) -> Step {
        self.step
    }

    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    pub fn set_budget(&mut self, budget: Budget) {
        self.budget = budget;
    }

    /// Adds one measurement; returns the new step if it changed.
    pub fn look(&mut self, cost: Cost) -> Option<Step> {
        let used = cost.share() / self.budget.cpu_share;
        self.over = if used > 1.0 { self.over + 1 } else { 0 };
        self.under = if used < UNDER_SHARE { self.under + 1 } else { 0 };
        let before = self.step;
        if self.over >= OVER_LOOKS {
            (self.step, self.over) = (self.step.next(), 0);
        } else if self.under >= UNDER_LOOKS {
            (self.step, self.under) = (self.step.back(), 0);
        }
        (self.step != before).then_some(self.step)
    }
}

/// Keeps resident memory within `budget.rss` by the size of the look-back.
#[derive(Debug, Default)]
pub struct MemoryKeeper {
    over: u32,
    room: u32,
}

/// A change of the look-back's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    Halve,
    Double,
}

impl MemoryKeeper {
    /// Adds one measurement. `halved_to` is the look-back's limit in bytes if it was halved: doubling it takes at most
    /// this much more memory.
    pub fn look(&mut self, rss_bytes: u64, budget_bytes: u64, halved_to: Option<u64>) -> Option<Memory> {
        let has_room = halved_to.is_some_and(|limit| rss_bytes.saturating_add(limit) <= budget_bytes);
        self.over = if rss_bytes > budget_bytes { self.over + 1 } else { 0 };
        self.room = if has_room { self.room + 1 } else { 0 };
        if self.over >= OVER_LOOKS {
            self.over = 0;
            return Some(Memory::Halve);
        }
        (self.room >= UNDER_LOOKS).then(|| {
            self.room = 0;
            Memory::Double
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Cost, Keeper, Memory, MemoryKeeper, Step};
    use crate::config::Config;

    fn cost(share: f64) -> Cost {
        Cost { process_share: share / 2.0, hooks_share: Some(share / 2.0), ..Cost::default() }
    }

    #[test]
    fn steps_are_taken_one_at_a_time_above_the_budget_and_undone_below_it() {
        let mut keeper = Keeper::new(Config::default().budget);
        let steps: Vec<Step> = (0..20).filter_map(|_| keeper.look(cost(0.02))).collect();
        assert_eq!(steps, [Step::FastSamples, Step::ShortStalls, Step::Requests, Step::Samples, Step::Hooks]);
        assert_eq!(keeper.look(cost(0.004)), None, "below the budget, but not far enough");
        let back: Vec<Step> = (0..150).filter_map(|_| keeper.look(cost(0.001))).collect();
        assert_eq!(back, [Step::Samples, Step::Requests, Step::ShortStalls, Step::FastSamples, Step::Nothing]);
    }

    /// S1: a loop over /metrics must not shed hooks.
    #[test]
    fn s1_the_cost_of_scrapers_sheds_nothing() {
        let mut keeper = Keeper::new(Config::default().budget);
        let scraped = Cost { answers_share: 0.9, ..cost(0.003) };
        assert!((0..50).all(|_| keeper.look(scraped).is_none()));
    }

    /// Fails on 5d310ca9, where the look-back stayed short for good.
    #[test]
    fn the_look_back_is_halved_above_the_budget_and_restored_when_there_is_room() {
        let mut keeper = MemoryKeeper::default();
        let mut after = |rss: u64, halved_to: Option<u64>| {
            (1..100).find_map(|count| Some((count, keeper.look(rss << 20, 64 << 20, halved_to)?)))
        };
        assert_eq!(after(70, None), Some((3, Memory::Halve)));
        assert_eq!(after(60, Some(8 << 20)), None, "twice as much does not fit");
        assert_eq!(after(56, Some(8 << 20)), Some((30, Memory::Double)));
        assert_eq!(after(20, None), None);
    }

    #[test]
    fn one_expensive_measurement_sheds_nothing() {
        let mut keeper = Keeper::new(Config::default().budget);
        for _ in 0..50 {
            assert_eq!(keeper.look(cost(0.5)), None);
            assert_eq!(keeper.look(cost(0.003)), None);
        }
    }

    #[test]
    fn a_shed_step_is_a_gap_that_states_the_cost() {
        let budget = Config::default().budget;
        let gap = Step::Hooks.gap(5, cost(0.02), &budget).expect("a gap");
        assert!(gap.why.contains("2.00 % of a core") && gap.why.contains("0.50 %"), "{gap:?}");
        let scraped = Cost { answers_share: 0.7, ..cost(0.02) };
        let gap = Step::Hooks.gap(5, scraped, &budget).expect("a gap");
        assert!(gap.why.contains("70.00 % to answer scrapers"), "{gap:?}");
        assert_eq!(Step::Nothing.gap(5, cost(0.02), &budget), None);
    }
}
