//! One episode: trials of limits on one cgroup for one victim, and the time for which a proven limit stays.

use std::collections::VecDeque;

use crate::action::Action;
use crate::controller::{Decision, EpisodeId, Report, Result};
use crate::observe::{Lease, Measure, Observation, Reading, Sight, Window};
use crate::policy::{Policy, Times};
use crate::reason::Release;
use crate::trial::{Coin, Pair, Trial, Verdict};

/// The state of an episode.
#[derive(Debug)]
pub struct Episode {
    pub id: EpisodeId,
    times: Times,
    /// From mild to hard, at least one.
    limits: Vec<Action>,
    at: usize,
    trial: Trial,
    phase: Phase,
    /// Pairs whose measures are awaited.
    open: VecDeque<OpenPair>,
    next_window: u64,
    started_ns: u64,
    /// The aggressor's use with and without the limit: sums and numbers of windows.
    aggressor_on: (f64, u32),
    aggressor_off: (f64, u32),
    proven: bool,
}

#[derive(Debug)]
enum Phase {
    /// Before the first pair of a trial: no limit must be in force.
    Clearing {
        since_ns: u64,
    },
    Trial(Block),
    /// A proven limit.
    Holding {
        until_ns: u64,
        confirm_by_ns: u64,
        is_confirmed: bool,
    },
    Ending {
        why: Release,
        again_at_ns: u64,
    },
}

/// Half a pair.
#[derive(Debug)]
struct Block {
    on: bool,
    second: bool,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// The limit was requested, or its end.
    Switching {
        since_ns: u64,
    },
    Settling {
        until_ns: u64,
    },
    Measuring {
        until_ns: u64,
    },
}

#[derive(Debug)]
struct OpenPair {
    on: Half,
    off: Half,
    deadline_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Half {
    window: Option<u64>,
    /// `Some(None)`: measured in vain.
    stalled: Option<Option<f64>>,
}

impl Episode {
    /// `worst_ns`: the victim's longest call.
    pub fn begin(id: EpisodeId, limits: Vec<Action>, policy: &Policy, worst_ns: u64, now_ns: u64) -> Episode {
        Episode {
            id,
            times: policy.times.for_calls_of(worst_ns),
            limits,
            at: 0,
            trial: Trial::new(policy.error_rate_of_step()),
            phase: Phase::Clearing { since_ns: now_ns },
            open: VecDeque::new(),
            next_window: 0,
            started_ns: now_ns,
            aggressor_on: (0.0, 0),
            aggressor_off: (0.0, 0),
            proven: false,
        }
    }

    /// The limit that is tried or in force.
    pub fn action(&self) -> &Action {
        // `begin` gets at least one limit, and `at` stays below their number.
        &self.limits[self.at]
    }

    pub fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Ending { .. })
    }

    pub fn is_holding(&self) -> bool {
        matches!(self.phase, Phase::Holding { .. })
    }

    /// When a proven limit ends.
    pub fn holds_until_ns(&self) -> Option<u64> {
        match self.phase {
            Phase::Holding { until_ns, is_confirmed: true, .. } => Some(until_ns),
            _ => None,
        }
    }

    /// Ends the episode: removes the limit and waits until that is confirmed.
    pub fn end(&mut self, why: Release, now_ns: u64, times: Times, out: &mut Vec<Decision>) {
        if !self.is_ending() {
            self.phase = Phase::Ending { why, again_at_ns: now_ns.saturating_add(times.confirm_max_ns) };
            out.push(Decision::Remove { episode: self.id, why });
        }
    }

    /// Advances the episode. Returns its report once no limit is in force any more.
    pub fn step(
        &mut self,
        seen: &Observation,
        policy: &Policy,
        coin: &mut Coin,
        out: &mut Vec<Decision>,
    ) -> Option<Report> {
        let times = self.times;
        if let Phase::Ending { why, again_at_ns } = &mut self.phase {
            let why = *why;
            return match seen.lease {
                Lease::Free | Lease::Failed | Lease::Foreign | Lease::Gone | Lease::Lost => {
                    Some(self.report(why, seen.now_ns))
                }
                Lease::Held { .. } | Lease::Pending => {
                    if seen.now_ns >= *again_at_ns {
                        *again_at_ns = seen.now_ns.saturating_add(times.confirm_max_ns);
                        out.push(Decision::Remove { episode: self.id, why });
                    }
                    None
                }
            };
        }
        if let Some(why) = self.broken(seen) {
            self.end(why, seen.now_ns, times, out);
            return None;
        }
        if let Some(why) = self.collect(seen) {
            self.end(why, seen.now_ns, times, out);
            return None;
        }
        match self.trial.verdict() {
            _ if self.proven => {}
            Verdict::Open => {}
            verdict => self.conclude(verdict, seen, policy, out),
        }
        self.advance(seen, coin, out);
        if matches!(seen.lease, Lease::Held { .. }) && !self.is_ending() {
            out.push(Decision::Keep { episode: self.id });
        }
        None
    }

    /// Why the limit cannot be relied upon, whatever the phase.
    fn broken(&self, seen: &Observation) -> Option<Release> {
        match &seen.lease {
            Lease::Lost => Some(Release::LeaseLost),
            Lease::Failed => Some(Release::ApplyFailed),
            Lease::Foreign => Some(Release::KnobChanged),
            Lease::Gone => Some(Release::GroupGone),
            Lease::Held { action, reading } => match reading {
                _ if action.group != self.action().group => Some(Release::KnobChanged),
                Reading::Gone => Some(Release::GroupGone),
                Reading::Value(value) if *value != action.setting.value() => Some(Release::KnobChanged),
                Reading::Value(_) | Reading::Missing => None,
            },
            Lease::Free if self.must_be_on() => Some(Release::LeaseLost),
            Lease::Free | Lease::Pending => None,
        }
    }

    /// Whether the limit was confirmed, so that it must still be in force.
    fn must_be_on(&self) -> bool {
        match &self.phase {
            Phase::Trial(block) => block.on && !matches!(block.stage, Stage::Switching { .. }),
            Phase::Holding { is_confirmed, .. } => *is_confirmed,
            Phase::Clearing { .. } | Phase::Ending { .. } => false,
        }
    }

    /// Takes measures; returns a reason if the episode must end.
    fn collect(&mut self, seen: &Observation) -> Option<Release> {
        for measure in &seen.measures {
            let Some(on) = self.put(measure) else { continue };
            if measure.victim == Sight::Gone {
                return Some(Release::VictimGone);
            }
            if let Some(amount) = measure.aggressor_per_s.filter(|amount| amount.is_finite() && *amount >= 0.0) {
                let sum = if on { &mut self.aggressor_on } else { &mut self.aggressor_off };
                *sum = (sum.0 + amount, sum.1 + 1);
            }
        }
        // In the order of the pairs, so that a late measure does not change the order of the evidence.
        while let Some(pair) = self.open.front() {
            let late = pair.deadline_ns.is_some_and(|deadline_ns| seen.now_ns > deadline_ns);
            let complete = pair.on.stalled.is_some() && pair.off.stalled.is_some();
            if !complete && !late {
                break;
            }
            let measured = pair.on.stalled.flatten().zip(pair.off.stalled.flatten());
            self.trial.add(measured.map(|(on, off)| Pair { on, off }));
            self.open.pop_front();
        }
        None
    }

    /// Stores a measure; returns whether the limit was in force, or `None` if the window is not awaited.
    fn put(&mut self, measure: &Measure) -> Option<bool> {
        let stalled = match measure.victim {
            Sight::Stalled(per_s) => Some(per_s),
            Sight::Idle | Sight::Gone | Sight::NotObserved => None,
        };
        for pair in &mut self.open {
            for (half, on) in [(&mut pair.on, true), (&mut pair.off, false)] {
                if half.window == Some(measure.number) && half.stalled.is_none() {
                    half.stalled = Some(stalled);
                    return Some(on);
                }
            }
        }
        None
    }

    fn conclude(&mut self, verdict: Verdict, seen: &Observation, policy: &Policy, out: &mut Vec<Decision>) {
        let (now_ns, times) = (seen.now_ns, self.times);
        let enough = self.trial.gain().is_some_and(|gain| gain >= policy.gain_min);
        let why = match verdict {
            Verdict::Proven if enough => {
                self.proven = true;
                self.open.clear();
                let until_ns = now_ns.saturating_add(policy.hold_ns);
                let confirm_by_ns = now_ns.saturating_add(times.confirm_max_ns);
                self.phase = Phase::Holding { until_ns, confirm_by_ns, is_confirmed: false };
                out.push(Decision::Proven(self.report(Release::TimeLimit, now_ns)));
                if !matches!(seen.lease, Lease::Held { .. }) {
                    out.push(Decision::Apply {
                        episode: self.id,
                        action: self.action().clone(),
                        lease_ns: times.lease_ns,
                    });
                }
                return;
            }
            Verdict::Proven => Release::TooLittleGain,
            Verdict::Quiet => return self.end(Release::StallEnded, now_ns, times, out),
            Verdict::NotObserved => return self.end(Release::NotObserved, now_ns, times, out),
            Verdict::NotProven | Verdict::Open => Release::NotProven,
        };
        if self.at + 1 >= self.limits.len() {
            return self.end(why, now_ns, times, out);
        }
        // The next trial begins without a limit.
        self.trial = Trial::new(policy.error_rate_of_step());
        self.open.clear();
        (self.aggressor_on, self.aggressor_off) = ((0.0, 0), (0.0, 0));
        self.phase = Phase::Clearing { since_ns: now_ns };
        out.push(Decision::Remove { episode: self.id, why });
        self.at += 1;
    }

    fn advance(&mut self, seen: &Observation, coin: &mut Coin, out: &mut Vec<Decision>) {
        let (now_ns, times) = (seen.now_ns, self.times);
        match &mut self.phase {
            Phase::Clearing { since_ns } => match seen.lease {
                Lease::Free => self.begin_pair(coin.heads(), seen, times, out),
                _ if now_ns.saturating_sub(*since_ns) > times.confirm_max_ns => {
                    self.end(Release::ApplyFailed, now_ns, times, out);
                }
                _ => {}
            },
            Phase::Trial(_) => self.advance_block(seen, times, coin, out),
            Phase::Holding { until_ns, confirm_by_ns, is_confirmed } => {
                let held = matches!(&seen.lease, Lease::Held { action, .. } if *action == self.limits[self.at]);
                *is_confirmed |= held;
                if now_ns >= *until_ns {
                    self.end(Release::TimeLimit, now_ns, times, out);
                } else if !*is_confirmed && now_ns > *confirm_by_ns {
                    self.end(Release::ApplyFailed, now_ns, times, out);
                }
            }
            Phase::Ending { .. } => {}
        }
    }

    fn begin_pair(&mut self, on: bool, seen: &Observation, times: Times, out: &mut Vec<Decision>) {
        self.open.push_back(OpenPair { on: Half::default(), off: Half::default(), deadline_ns: None });
        self.begin_block(on, false, seen, times, out);
    }

    fn begin_block(&mut self, on: bool, second: bool, seen: &Observation, times: Times, out: &mut Vec<Decision>) {
        let is_on = matches!(seen.lease, Lease::Held { .. });
        let stage = if is_on == on {
            // Nothing changes, so nothing has to settle.
            Stage::Settling { until_ns: seen.now_ns }
        } else {
            let (episode, action) = (self.id, self.action().clone());
            out.push(match on {
                true => Decision::Apply { episode, action, lease_ns: times.lease_ns },
                false => Decision::Remove { episode, why: Release::NotProven },
            });
            Stage::Switching { since_ns: seen.now_ns }
        };
        self.phase = Phase::Trial(Block { on, second, stage });
        self.measure_if_settled(seen.now_ns, times, out);
    }

    /// Begins the block's window once the change has settled.
    fn measure_if_settled(&mut self, now_ns: u64, times: Times, out: &mut Vec<Decision>) {
        let Phase::Trial(block) = &mut self.phase else { return };
        let Stage::Settling { until_ns } = block.stage else { return };
        if now_ns < until_ns {
            return;
        }
        let to_ns = now_ns.saturating_add(times.window_ns);
        let window = Window { number: self.next_window, from_ns: now_ns, to_ns };
        block.stage = Stage::Measuring { until_ns: to_ns };
        self.next_window += 1;
        if let Some(pair) = self.open.back_mut() {
            let half = if block.on { &mut pair.on } else { &mut pair.off };
            half.window = Some(window.number);
        }
        out.push(Decision::Measure { episode: self.id, window });
    }

    fn advance_block(&mut self, seen: &Observation, times: Times, coin: &mut Coin, out: &mut Vec<Decision>) {
        let now_ns = seen.now_ns;
        let Phase::Trial(block) = &mut self.phase else { return };
        let (on, second) = (block.on, block.second);
        match block.stage {
            Stage::Switching { since_ns } => {
                let done = match &seen.lease {
                    Lease::Held { action, .. } => on && *action == self.limits[self.at],
                    Lease::Free => !on,
                    _ => false,
                };
                if done {
                    block.stage = Stage::Settling { until_ns: since_ns.saturating_add(times.settle_ns) };
                    self.measure_if_settled(now_ns, times, out);
                } else if now_ns.saturating_sub(since_ns) > times.confirm_max_ns {
                    self.end(Release::ApplyFailed, now_ns, times, out);
                }
            }
            Stage::Settling { .. } => self.measure_if_settled(now_ns, times, out),
            Stage::Measuring { until_ns } if now_ns >= until_ns => {
                if !second {
                    return self.begin_block(!on, true, seen, times, out);
                }
                if let Some(pair) = self.open.back_mut() {
                    pair.deadline_ns = Some(now_ns.saturating_add(times.late_max_ns));
                }
                self.begin_pair(coin.heads(), seen, times, out);
            }
            Stage::Measuring { .. } => {}
        }
    }

    /// The result so far.
    pub fn report(&self, why: Release, now_ns: u64) -> Report {
        let (stalled_with, stalled_without) = self.trial.means();
        let mean = |(sum, count): (f64, u32)| (count > 0).then(|| sum / f64::from(count));
        Report {
            episode: self.id,
            action: self.action().clone(),
            result: if self.proven { Result::Proven } else { Result::NotProven },
            why,
            started_ns: self.started_ns,
            ended_ns: now_ns,
            pairs: self.trial.pairs(),
            wins: self.trial.wins,
            losses: self.trial.losses,
            p_value: self.trial.p_value(),
            gain: self.trial.gain(),
            stalled_with,
            stalled_without,
            aggressor_with: mean(self.aggressor_on),
            aggressor_without: mean(self.aggressor_off),
        }
    }
}
