//! The controller: advice for each stall with a known aggressor, and at most one episode at a time.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use flatwater_recording::units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

use crate::action::{Action, Setting};
use crate::episode::Episode;
use crate::group::GroupPath;
use crate::observe::{Lease, Means, Observation, Order, Suspect, Victim, VictimStall, Window};
use crate::plan::{self, NAMED_SHARE_MIN, OWN_LIMIT_SHARE_MIN, Plan};
use crate::policy::{Mode, Policy};
use crate::reason::{Refusal, Release, StandBack};
use crate::trial::Coin;

/// The number of an advice, and of the episode that follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EpisodeId(pub u64);

impl fmt::Display for EpisodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Tell people: a new advice.
    Advise(Box<Advice>),
    /// A limit is not proposed, or a proposed one is not applied.
    Refuse { advice: EpisodeId, why: Refusal },
    /// Put the limit in force, with a lease of this length.
    Apply { episode: EpisodeId, action: Action, lease_ns: u64 },
    /// Renew the lease.
    Keep { episode: EpisodeId },
    /// Remove the limit, unless another program or person has changed the setting.
    Remove { episode: EpisodeId, why: Release },
    /// Measure the victim's calls and the aggressor's use in this window.
    Measure { episode: EpisodeId, window: Window },
    /// The gain is proven; the limit stays.
    Proven(Report),
    /// The episode has ended.
    Ended(Report),
    /// The process with the lease keeps the limit until this time, without the daemon.
    LeaveInForce { episode: EpisodeId, until_ns: u64 },
    /// No further action on this group.
    StandBack { group: GroupPath, why: StandBack },
}

/// Whether the victim's gain was proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Result {
    Proven,
    NotProven,
}

/// The result of an episode.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    pub episode: EpisodeId,
    pub action: Action,
    pub result: Result,
    pub why: Release,
    pub started_ns: u64,
    pub ended_ns: u64,
    pub pairs: u32,
    pub wins: u32,
    pub losses: u32,
    pub p_value: f64,
    /// The share by which the victim's stall time fell.
    pub gain: Option<f64>,
    /// The victim's stall time per second with the limit and without.
    pub stalled_with: f64,
    pub stalled_without: f64,
    /// Bytes or CPU time (us) per second that the aggressor got with the limit and without; absent if not observed.
    pub aggressor_with: Option<f64>,
    pub aggressor_without: Option<f64>,
}

impl Report {
    /// One sentence: the victim's gain beside the aggressor's loss.
    #[must_use]
    pub fn sentence(&self) -> String {
        let per_s = |amount: f64| match self.action.setting {
            Setting::CpuMax { .. } | Setting::CpuWeight { .. } => format!("{:.0} % of a CPU", amount / 1e4),
            _ => format!("{}/s", Bytes(amount as u64)),
        };
        let loss = match (self.aggressor_without, self.aggressor_with) {
            (Some(before), Some(with)) => format!("{} -> {}", per_s(before), per_s(with)),
            _ => "not observed".to_owned(),
        };
        let gain = match self.gain {
            Some(gain) => format!("{:.0} % less stall time", gain * 100.0),
            None => "no stall".to_owned(),
        };
        let proven = if self.result == Result::Proven { "proven" } else { "not proven" };
        format!(
            "{proven} (p <= {:.3}, {} of {} pairs better): victim {gain} ({} -> {} of a second), aggressor {loss}",
            self.p_value,
            self.wins,
            self.pairs,
            Nanos((self.stalled_without * 1e9) as u64),
            Nanos((self.stalled_with * 1e9) as u64),
        )
    }
}

/// The process or cgroup that an advice names.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Aggressor {
    pub program: String,
    pub group: Option<GroupPath>,
    /// Share of the victim's stall time, 0 to 1.
    pub share: f64,
    pub stall_ns: u64,
    pub means: Means,
    pub evidence: Vec<String>,
}

/// What would help a victim, or why nothing would.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    pub id: EpisodeId,
    pub first_ns: u64,
    pub last_ns: u64,
    /// When its refusal was last reported.
    #[serde(skip)]
    reported_ns: u64,
    /// How often the same was found.
    pub times: u64,
    pub victim: Victim,
    pub stall_ns: u64,
    /// Absent if the victim waits for its own limit.
    pub aggressor: Option<Aggressor>,
    /// The first limit to try; absent with `refusal`.
    pub action: Option<Action>,
    pub command: Option<String>,
    pub undo: Option<String>,
    /// The cost of the limit for the aggressor.
    pub cost: Option<String>,
    /// Why no limit is proposed, or the proposed one is not applied.
    pub refusal: Option<Refusal>,
}

/// Decides for one machine.
#[derive(Debug)]
pub struct Controller {
    policy: Policy,
    coin: Coin,
    last_ns: Option<u64>,
    next_id: u64,
    advices: VecDeque<Advice>,
    episode: Option<Episode>,
    reports: VecDeque<Report>,
    left_alone: BTreeMap<GroupPath, StandBack>,
    /// Until when a group is left alone after an episode.
    cooling: BTreeMap<GroupPath, u64>,
    not_proven: BTreeMap<GroupPath, u32>,
}

/// A refusal that changes is reported at most once in this time: stalls of one kind vary.
const REPORT_AGAIN_NS: u64 = 60_000_000_000;
const ADVICES_MAX: usize = 64;
const REPORTS_MAX: usize = 64;
/// When this many groups are left alone, the guard acts on no further ones.
const LEFT_ALONE_MAX: usize = 1_024;
/// Episodes on one group without proof before it is left alone.
const NOT_PROVEN_MAX: u32 = 2;

impl Controller {
    /// `seed` decides the order of the windows with and without a limit.
    #[must_use]
    pub fn new(policy: Policy, seed: u64) -> Controller {
        Controller {
            policy,
            coin: Coin::new(seed),
            last_ns: None,
            next_id: 1,
            advices: VecDeque::new(),
            episode: None,
            reports: VecDeque::new(),
            left_alone: BTreeMap::new(),
            cooling: BTreeMap::new(),
            not_proven: BTreeMap::new(),
        }
    }

    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The newest last.
    pub fn advices(&self) -> impl DoubleEndedIterator<Item = &Advice> {
        self.advices.iter()
    }

    /// The newest last.
    pub fn reports(&self) -> impl DoubleEndedIterator<Item = &Report> {
        self.reports.iter()
    }

    /// Groups that are left alone for good.
    pub fn left_alone(&self) -> impl Iterator<Item = (&GroupPath, StandBack)> {
        self.left_alone.iter().map(|(group, why)| (group, *why))
    }

    /// The episode in progress, its limit, and whether it is proven.
    #[must_use]
    pub fn acting(&self) -> Option<(EpisodeId, &Action, bool)> {
        let episode = self.episode.as_ref()?;
        Some((episode.id, episode.action(), episode.is_holding()))
    }

    /// Replaces the configuration. A limit that it no longer permits is removed in the next step.
    pub fn configure(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// Decides what to do next. Call it about once a second.
    pub fn step(&mut self, seen: &Observation) -> Vec<Decision> {
        let mut out = Vec::new();
        let jumped = self.has_jumped(seen.now_ns);
        self.last_ns = Some(seen.now_ns);
        self.orders(seen, &mut out);
        self.check_policy(seen, jumped, &mut out);
        if let Some(mut episode) = self.episode.take() {
            match episode.step(seen, &self.policy, &mut self.coin, &mut out) {
                Some(report) => self.finish(report, seen.now_ns, &mut out),
                None => self.episode = Some(episode),
            }
        }
        if self.policy.mode != Mode::Off {
            self.cooling.retain(|_, until_ns| *until_ns > seen.now_ns);
            for stall in &seen.stalls {
                self.weigh(stall, seen, jumped, &mut out);
            }
        }
        out
    }

    /// Whether the lease must have ended since the last step, or the clock went back.
    fn has_jumped(&self, now_ns: u64) -> bool {
        self.last_ns.is_some_and(|last_ns| now_ns < last_ns || now_ns - last_ns > self.policy.times.lease_ns)
    }

    fn orders(&mut self, seen: &Observation, out: &mut Vec<Decision>) {
        for order in &seen.orders {
            let Some(episode) = &mut self.episode else { return };
            match order {
                Order::Release(id) if *id != episode.id => {}
                Order::Release(_) | Order::ReleaseAll => {
                    let group = episode.action().group.clone();
                    episode.end(Release::Operator, seen.now_ns, self.policy.times, out);
                    self.stand_back(group, StandBack::Operator, out);
                }
                Order::End => match episode.holds_until_ns().filter(|_| self.policy.keep_at_exit) {
                    Some(until_ns) => out.push(Decision::LeaveInForce { episode: episode.id, until_ns }),
                    None => episode.end(Release::DaemonEnded, seen.now_ns, self.policy.times, out),
                },
            }
        }
    }

    fn check_policy(&mut self, seen: &Observation, jumped: bool, out: &mut Vec<Decision>) {
        let Some(episode) = &mut self.episode else { return };
        if self.policy.mode != Mode::Act || !self.policy.may_limit(&episode.action().group) {
            episode.end(Release::PolicyChanged, seen.now_ns, self.policy.times, out);
        } else if jumped {
            episode.end(Release::ClockJumped, seen.now_ns, self.policy.times, out);
        }
    }

    fn finish(&mut self, report: Report, now_ns: u64, out: &mut Vec<Decision>) {
        let group = report.action.group.clone();
        self.cooling.insert(group.clone(), now_ns.saturating_add(self.policy.cool_off_ns));
        match report.why {
            Release::KnobChanged => self.stand_back(group, StandBack::KnobChanged, out),
            Release::NotProven | Release::TooLittleGain => {
                let count = self.not_proven.entry(group.clone()).or_default();
                *count += 1;
                if *count >= NOT_PROVEN_MAX {
                    self.stand_back(group, StandBack::Twice, out);
                }
            }
            _ if report.result == Result::Proven => {
                self.not_proven.remove(&group);
            }
            _ => {}
        }
        if self.reports.len() >= REPORTS_MAX {
            self.reports.pop_front();
        }
        self.reports.push_back(report.clone());
        out.push(Decision::Ended(report));
    }

    fn stand_back(&mut self, group: GroupPath, why: StandBack, out: &mut Vec<Decision>) {
        if let Entry::Vacant(place) = self.left_alone.entry(group) {
            out.push(Decision::StandBack { group: place.key().clone(), why });
            place.insert(why);
        }
    }

    /// Advises on a stall, and begins an episode if everything permits one.
    fn weigh(&mut self, stall: &VictimStall, seen: &Observation, jumped: bool, out: &mut Vec<Decision>) {
        let named: Vec<&Suspect> = stall.suspects.iter().filter(|suspect| suspect.share >= NAMED_SHARE_MIN).collect();
        if named.is_empty() && stall.own_limit_share >= OWN_LIMIT_SHARE_MIN {
            self.advise(stall, None, Err(Refusal::OwnLimit), seen.now_ns, out);
        }
        for suspect in named {
            let plan = plan::plan(stall, suspect, &self.policy);
            let begin = match &plan {
                Ok(_) if jumped => Err(Refusal::ClockJumped),
                Ok(Plan { obstacle: Some(obstacle), .. }) => Err(*obstacle),
                Ok(plan) => self.may_begin(stall, suspect, seen).map(|()| plan.limits.clone()),
                Err(why) => Err(*why),
            };
            let first = plan.map(|plan| plan.limits[0].clone());
            let refusal = begin.as_ref().err().copied();
            let id = self.advise(stall, Some(suspect), first.map(|first| (first, refusal)), seen.now_ns, out);
            if let Ok(limits) = begin {
                let worst_ns = stall.victim.worst_ns;
                self.episode = Some(Episode::begin(id, limits, &self.policy, worst_ns, seen.now_ns));
            }
        }
    }

    fn may_begin(
        &self,
        stall: &VictimStall,
        suspect: &Suspect,
        seen: &Observation,
    ) -> std::result::Result<(), Refusal> {
        if self.policy.mode != Mode::Act {
            return Err(Refusal::ModeAdvise);
        }
        plan::permitted(stall, suspect, &self.policy)?;
        let group = suspect.group.as_ref().ok_or(Refusal::GroupUnknown)?;
        if self.left_alone.contains_key(group) || self.left_alone.len() >= LEFT_ALONE_MAX {
            return Err(Refusal::StoodBack);
        }
        if self.episode.is_some() || seen.lease != Lease::Free {
            return Err(Refusal::OneAtATime);
        }
        if self.cooling.contains_key(group) {
            return Err(Refusal::CoolingOff);
        }
        Ok(())
    }

    /// Records an advice, and reports it if it is new, or if its refusal has changed and the last report is old.
    fn advise(
        &mut self,
        stall: &VictimStall,
        suspect: Option<&Suspect>,
        limit: std::result::Result<(Action, Option<Refusal>), Refusal>,
        now_ns: u64,
        out: &mut Vec<Decision>,
    ) -> EpisodeId {
        let (action, refusal) = match limit {
            Ok((action, refusal)) => (Some(action), refusal),
            Err(refusal) => (None, Some(refusal)),
        };
        let who = |advice: &Advice| advice.aggressor.as_ref().map(|who| (who.group.clone(), who.means));
        let wanted = suspect.map(|suspect| (suspect.group.clone(), suspect.means));
        let same = |advice: &&mut Advice| advice.victim.group == stall.victim.group && who(advice) == wanted;
        let known = self.advices.iter_mut().rev().find(same);
        let id = known.as_ref().map_or(EpisodeId(self.next_id), |known| known.id);
        let due = known.as_ref().is_none_or(|known| {
            known.refusal != refusal && now_ns.saturating_sub(known.reported_ns) >= REPORT_AGAIN_NS
        });
        let reported_ns = if due { now_ns } else { known.as_ref().map_or(now_ns, |known| known.reported_ns) };
        let new = Advice {
            id,
            reported_ns,
            first_ns: known.as_ref().map_or(now_ns, |known| known.first_ns),
            last_ns: now_ns,
            times: known.as_ref().map_or(1, |known| known.times.saturating_add(1)),
            victim: stall.victim.clone(),
            stall_ns: stall.stall_ns,
            aggressor: suspect.map(aggressor),
            command: action.as_ref().map(Action::command),
            undo: action.as_ref().map(Action::undo_command),
            cost: suspect.zip(action.as_ref()).map(|(suspect, action)| cost(suspect, action.setting)),
            action,
            refusal,
        };
        match known {
            Some(known) => *known = new,
            None => {
                self.next_id += 1;
                if self.advices.len() >= ADVICES_MAX {
                    self.advices.pop_front();
                }
                out.push(Decision::Advise(Box::new(new.clone())));
                self.advices.push_back(new);
            }
        }
        if let Some(why) = refusal.filter(|_| due) {
            out.push(Decision::Refuse { advice: id, why });
        }
        id
    }
}

fn aggressor(suspect: &Suspect) -> Aggressor {
    Aggressor {
        program: suspect.program.clone(),
        group: suspect.group.clone(),
        share: suspect.share,
        stall_ns: suspect.stall_ns,
        means: suspect.means,
        evidence: suspect.evidence.clone(),
    }
}

/// The cost of the limit for the aggressor, beside its present use.
fn cost(suspect: &Suspect, setting: Setting) -> String {
    let amount = suspect.amount;
    match setting {
        Setting::IoMax { .. } => {
            let now = amount.bytes_per_s.map_or_else(|| "unknown".to_owned(), |bytes| format!("{}/s", Bytes(bytes)));
            format!("at most {setting} instead of {now}")
        }
        Setting::MemoryHigh { .. } => {
            let now = amount.memory_bytes.map_or_else(|| "unknown".to_owned(), |bytes| Bytes(bytes).to_string());
            format!("{setting} instead of {now}: it reclaims its own memory, and slows down above that")
        }
        Setting::CpuMax { .. } => {
            let now = amount.cpu_us_per_s.map_or_else(|| "unknown".to_owned(), |us| format!("{} %", us / 10_000));
            format!("at most {setting} instead of {now}")
        }
        Setting::IoWeight { .. } | Setting::CpuWeight { .. } => {
            format!("{setting} instead of 100: less while others want the same, nothing otherwise")
        }
    }
}
