//! What the daemon costs, measured by itself, and what it sheds when that is too much.
//!
//! Cost is the CPU time of this process, without the threads that answer scrapers, and of its hooks (the kernel counts the
//! time of each BPF program on request: kernel/bpf/syscall.c, bpf_enable_stats), as a share of one core. Steps go one at a
//! time, in an order that loses the least first, and come back the same way when there is room again.

use std::fmt;

use flatwater_recording::Gap;

use crate::config::Budget;

/// What is shed, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    #[default]
    Nothing,
    /// No faster samples while something happens.
    FastSamples,
    /// Calls under four times the threshold.
    ShortStalls,
    /// Whose requests the block devices work on.
    Requests,
    /// Counters once in ten seconds.
    Samples,
    /// The hooks: no call is seen any more.
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

    /// What a reader of a recording of that time must know.
    #[must_use]
    pub fn gap(self, at_ns: u64, cost: Cost, budget: &Budget) -> Option<Gap> {
        let what = match self {
            Step::Nothing => return None,
            Step::FastSamples => "samples more often than once a second",
            Step::ShortStalls => "stalls under four times the threshold",
            Step::Requests => "whose requests were ahead in the queues of block devices",
            Step::Samples => "samples of the kernel's counters more often than every ten seconds",
            Step::Hooks => "slow calls",
        };
        let why = format!("shed, because flatwater {cost} and may use {}", share(budget.cpu_share));
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

/// Of one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Of one core.
    pub process_share: f64,
    /// Of the hooks; absent where the kernel does not count it.
    pub hooks_share: Option<f64>,
    /// Of the answers to scrapers. Any user may ask, so that it is reported and nothing is shed for it.
    pub answers_share: f64,
    pub rss_bytes: u64,
}

impl Cost {
    /// What the budget bounds.
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
            write!(f, ", and {} to answer scrapers, which does not count", share(self.answers_share))?;
        }
        Ok(())
    }
}

/// Answers that cost less are not worth a word.
const ANSWERS_NAMED: f64 = 0.000_5;

fn share(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

/// Keeps the cost within the budget.
#[derive(Debug)]
pub struct Keeper {
    budget: Budget,
    step: Step,
    /// Looks in a row that were over, or well under.
    over: u32,
    under: u32,
}

/// One look may be an accident: so many in a row are not. Coming back takes longer than letting go, so that it does
/// not swing.
const OVER_LOOKS: u32 = 3;
const UNDER_LOOKS: u32 = 30;
/// A step comes back only where the cost is this far below the budget.
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

    /// Takes one measurement in; returns the new step if it changed.
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

#[cfg(test)]
mod tests {
    use super::{Cost, Keeper, Step};
    use crate::config::Config;

    fn cost(share: f64) -> Cost {
        Cost { process_share: share / 2.0, hooks_share: Some(share / 2.0), ..Cost::default() }
    }

    #[test]
    fn above_the_budget_one_step_after_the_other_goes_and_below_it_they_come_back() {
        let mut keeper = Keeper::new(Config::default().budget);
        let steps: Vec<Step> = (0..20).filter_map(|_| keeper.look(cost(0.02))).collect();
        assert_eq!(steps, [Step::FastSamples, Step::ShortStalls, Step::Requests, Step::Samples, Step::Hooks]);
        assert_eq!(keeper.look(cost(0.004)), None, "under the budget, not far enough");
        let back: Vec<Step> = (0..150).filter_map(|_| keeper.look(cost(0.001))).collect();
        assert_eq!(back, [Step::Samples, Step::Requests, Step::ShortStalls, Step::FastSamples, Step::Nothing]);
    }

    /// S1: red on 9232d20c, where a loop over /metrics had all hooks shed within 150 s.
    #[test]
    fn s1_nothing_is_shed_for_what_scrapers_cost() {
        let mut keeper = Keeper::new(Config::default().budget);
        let scraped = Cost { answers_share: 0.9, ..cost(0.003) };
        assert!((0..50).all(|_| keeper.look(scraped).is_none()));
    }

    #[test]
    fn one_dear_second_is_no_reason() {
        let mut keeper = Keeper::new(Config::default().budget);
        for _ in 0..50 {
            assert_eq!(keeper.look(cost(0.5)), None);
            assert_eq!(keeper.look(cost(0.003)), None);
        }
    }

    #[test]
    fn what_is_let_go_is_a_gap_with_its_cost() {
        let budget = Config::default().budget;
        let gap = Step::Hooks.gap(5, cost(0.02), &budget).expect("a gap");
        assert!(gap.why.contains("2.00 % of a core") && gap.why.contains("0.50 %"), "{gap:?}");
        let scraped = Cost { answers_share: 0.7, ..cost(0.02) };
        let gap = Step::Hooks.gap(5, scraped, &budget).expect("a gap");
        assert!(gap.why.contains("70.00 % to answer scrapers"), "{gap:?}");
        assert_eq!(Step::Nothing.gap(5, cost(0.02), &budget), None);
    }
}
