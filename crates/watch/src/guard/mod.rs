//! The guard in the daemon: makes observations for the controller (`flatwater_guard`), and performs its decisions.
//!
//! [`evidence`] finds stalls and their aggressors, [`machine`] reads cgroups, [`measure`] measures windows, and
//! [`list`] prints what `flatwater guard` shows. Limits are set by the process with the lease (`host::setup::lease`).

mod evidence;
pub mod list;
mod machine;
mod measure;

use std::collections::BTreeMap;
use std::io;

use flatwater_guard::{
    Advice, Controller, Decision, EpisodeId, EpisodeResult, GroupPath, Lease, Mode, Observation, Order, Policy,
    Refusal, Release, Report,
};
use flatwater_host::setup;
use flatwater_host::setup::lease::{LeaseClient, boottime_ns, is_any_left};
use flatwater_recording::{CgroupFile, EventKind};

use crate::account::Account;
use crate::cgroup::Hierarchies;
use crate::lookback::LookBack;
use evidence::Evidence;
use machine::Machine;
use measure::OpenWindow;

/// The guard of one machine.
#[derive(Debug)]
pub struct Guard {
    controller: Controller,
    evidence: Evidence,
    machine: Machine,
    lease: Option<LeaseClient>,
    /// A limit that an earlier daemon left in force; checked again every ten seconds.
    is_any_left: bool,
    seconds: u64,
    windows: Vec<OpenWindow>,
    /// The victim of the episode in progress.
    victim: Option<GroupPath>,
    last_ns: u64,
    pub tally: Tally,
}

/// Counters for metrics, since the daemon's start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    pub advices: u64,
    pub refusals: BTreeMap<Refusal, u64>,
    pub releases: BTreeMap<Release, u64>,
    pub episodes_proven: u64,
    pub episodes_not_proven: u64,
    /// Seconds in which a limit was in force.
    pub limited_s: BTreeMap<CgroupFile, f64>,
    /// Stall time that proven limits saved: the gain per second times the time in force.
    pub gained_s: f64,
    pub is_limiting: bool,
    /// CPU time of the guard itself.
    pub cpu_s: f64,
}

/// What happened in a second.
#[derive(Debug, Default)]
pub struct Done {
    /// For the log and the recording.
    pub notes: Vec<Note>,
    /// The account of the victim, if a limit was set: the recording must cover the episode.
    pub acted_for: Option<Account>,
}

#[derive(Debug)]
pub struct Note {
    pub line: String,
    pub event: EventKind,
}

impl Done {
    fn mark(&mut self, line: String) {
        self.notes.push(Note { event: EventKind::Mark(line.clone()), line });
    }
}

const SECOND_NS: u64 = 1_000_000_000;
const LEFT_EVERY_S: u64 = 10;

/// A seed that no other process knows: the order of the windows must not be predictable.
fn seed() -> u64 {
    let mut bytes = [0; 8];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    if filled.is_ok() { u64::from_le_bytes(bytes) } else { boottime_ns() }
}

impl Guard {
    /// `tell` receives a line if limits of a killed daemon were removed.
    pub fn start(policy: Policy, budget_share: f64, now_ns: u64, tell: &mut dyn FnMut(&str)) -> Guard {
        let acts = policy.mode == Mode::Act;
        tell(&format!("guard: {}", policy.summary()));
        if acts {
            recover(tell);
        }
        Guard {
            controller: Controller::new(policy, seed()),
            evidence: Evidence::new(now_ns, budget_share),
            machine: Machine::default(),
            lease: None,
            is_any_left: acts && is_any_left(),
            seconds: 0,
            windows: Vec::new(),
            victim: None,
            last_ns: boottime_ns(),
            tally: Tally::default(),
        }
    }

    pub fn configure(&mut self, policy: Policy, budget_share: f64) {
        self.evidence.set_budget(budget_share);
        self.controller.configure(policy);
    }

    pub fn controller(&self) -> &Controller {
        &self.controller
    }

    /// One second has passed. `is_incomplete`: events were lost, or hooks that name aggressors are shed.
    pub fn second(
        &mut self,
        look_back: &LookBack,
        is_incomplete: bool,
        orders: Vec<Order>,
        tell: &mut dyn FnMut(&str),
    ) -> Done {
        let mut done = Done::default();
        let mode = self.controller.policy().mode;
        self.seconds += 1;
        if self.is_any_left && self.seconds.is_multiple_of(LEFT_EVERY_S) {
            self.is_any_left = is_any_left();
        }
        // During an episode only its victim matters.
        let idle = mode != Mode::Off && self.controller.acting().is_none();
        let stalls = match idle {
            true => self.evidence.stalls(look_back, is_incomplete, &mut self.machine),
            false => Vec::new(),
        };
        let mut measures = Vec::new();
        self.windows.retain_mut(|window| match window.measure(look_back, is_incomplete) {
            Some(measure) => {
                measures.push(measure);
                false
            }
            None => true,
        });
        let seen = Observation { now_ns: boottime_ns(), stalls, measures, lease: self.lease_state(tell), orders };
        self.count_time(&seen);
        let victims: Vec<_> = seen.stalls.iter().map(|stall| stall.victim.group.clone()).collect();
        let decisions = self.controller.step(&seen);
        for decision in decisions {
            self.perform(decision, &mut done);
        }
        // An episode begins one step before its first limit.
        if self.victim.is_none() && self.controller.acting().is_some() {
            self.victim = victims.into_iter().flatten().next();
        }
        if let Some(lease) = &mut self.lease {
            lease.clear();
        }
        done
    }

    fn lease_state(&mut self, tell: &mut dyn FnMut(&str)) -> Lease {
        if self.is_any_left {
            return Lease::Pending;
        }
        let Some(lease) = &mut self.lease else { return Lease::Free };
        let state = lease.state();
        if let Some(why) = lease.why.take() {
            tell(&format!("guard: the limit: {why}"));
        }
        if state == Lease::Lost {
            if let Some(lease) = self.lease.take() {
                lease.abandon();
            }
            recover(tell);
        }
        state
    }

    fn count_time(&mut self, seen: &Observation) {
        let passed_ns = seen.now_ns.saturating_sub(std::mem::replace(&mut self.last_ns, seen.now_ns));
        let passed_s = passed_ns.min(5 * SECOND_NS) as f64 / 1e9;
        self.tally.is_limiting = false;
        if let Lease::Held { action, .. } = &seen.lease {
            self.tally.is_limiting = true;
            *self.tally.limited_s.entry(action.setting.file()).or_default() += passed_s;
        }
    }

    fn perform(&mut self, decision: Decision, done: &mut Done) {
        match decision {
            Decision::Advise(advice) => {
                self.tally.advices += 1;
                done.mark(advice_line(&advice));
            }
            Decision::Refuse { advice, why } => {
                *self.tally.refusals.entry(why).or_default() += 1;
                if why != Refusal::ModeAdvise {
                    done.mark(format!("guard: {advice}: no limit is set: {} ({})", why.name(), why.sentence()));
                }
            }
            Decision::Apply { action, lease_ns, .. } => {
                let old = Some(action.setting.default_value());
                let key = format!("guard {} of {}", action.setting.file().name(), action.group);
                let event = EventKind::SetupChange { key, old, new: action.setting.value() };
                done.notes.push(Note { line: String::new(), event });
                done.acted_for = Some(self.victims_account());
                match self.lease_process() {
                    Ok(lease) => lease.apply(&action, lease_ns),
                    Err(error) => done.mark(format!("guard: the process with the lease cannot be started: {error}")),
                }
            }
            Decision::Keep { .. } => self.with_lease(LeaseClient::renew),
            Decision::Remove { .. } => {
                if let Some((_, action, _)) = self.controller.acting() {
                    let key = format!("guard {} of {}", action.setting.file().name(), action.group);
                    let event = EventKind::SetupChange {
                        key,
                        old: Some(action.setting.value()),
                        new: action.setting.default_value(),
                    };
                    done.notes.push(Note { line: String::new(), event });
                }
                self.with_lease(LeaseClient::remove);
            }
            Decision::Measure { window, .. } => {
                let action = self.controller.acting().map(|(_, action, _)| action.clone());
                if let Some((victim, action)) = self.victim.clone().zip(action) {
                    self.windows.push(OpenWindow::begin(window, victim, action));
                }
            }
            Decision::Proven(report) => done.mark(report_line(report.episode, "kept", &report)),
            Decision::Ended(report) => self.ended(&report, done),
            Decision::LeaveInForce { episode, until_ns } => {
                done.mark(format!("guard: {episode}: the limit stays in force after the daemon's end (guard.at_exit)"));
                self.with_lease(|lease| lease.leave(until_ns));
            }
            Decision::StandBack { group, why } => {
                done.mark(format!("guard: {group} is left alone from here on: {} ({})", why.name(), why.sentence()));
            }
        }
    }

    fn ended(&mut self, report: &Report, done: &mut Done) {
        *self.tally.releases.entry(report.why).or_default() += 1;
        match report.result {
            EpisodeResult::Proven => {
                self.tally.episodes_proven += 1;
                let in_force_s = report.ended_ns.saturating_sub(report.started_ns) as f64 / 1e9;
                self.tally.gained_s += (report.stalled_without - report.stalled_with).max(0.0) * in_force_s;
            }
            EpisodeResult::NotProven => self.tally.episodes_not_proven += 1,
        }
        self.victim = None;
        self.windows.clear();
        done.mark(report_line(report.episode, &format!("released ({})", report.why.name()), report));
    }

    fn victims_account(&self) -> Account {
        let group = self.victim.as_ref().map_or("", GroupPath::as_str);
        Account::of(Hierarchies::machine().made_by_root(group), None)
    }

    fn lease_process(&mut self) -> io::Result<&mut LeaseClient> {
        if self.lease.is_none() {
            self.lease = Some(LeaseClient::start()?);
        }
        self.lease.as_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn with_lease(&mut self, order: impl FnOnce(&mut LeaseClient)) {
        if let Some(lease) = &mut self.lease {
            order(lease);
        }
    }

    /// The daemon ends in order: removes the limit, or leaves it in force if `guard.at_exit` says so.
    pub fn end(mut self, look_back: &LookBack, tell: &mut dyn FnMut(&str)) -> Done {
        let done = self.second(look_back, true, vec![Order::End], tell);
        let keeps =
            self.controller.acting().is_some_and(|(_, _, proven)| proven) && self.controller.policy().keep_at_exit;
        if let Some(lease) = self.lease.take() {
            lease.close(keeps);
        }
        done
    }
}

/// Removes limits of a killed daemon.
fn recover(tell: &mut dyn FnMut(&str)) {
    let lines = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let log: setup::Log = {
        let lines = std::sync::Arc::clone(&lines);
        std::sync::Arc::new(move |line: &str| crate::answers::lock(&lines).push(line.to_owned()))
    };
    setup::recover(&log);
    drop(log);
    for line in crate::answers::lock(&lines).drain(..) {
        tell(&format!("guard: {line}"));
    }
}

fn report_line(id: EpisodeId, what: &str, report: &Report) -> String {
    format!("guard: {id}: {what}: {} of {}: {}", report.action.setting, report.action.group, report.sentence())
}

/// One line for the log: the victim, the aggressor, and what would help.
fn advice_line(advice: &Advice) -> String {
    let victim = advice.victim.group.as_ref().map_or("the root group", GroupPath::as_str);
    let lost = flatwater_recording::units::Nanos(advice.stall_ns);
    let span = flatwater_recording::units::Nanos(advice.victim.span_ns);
    let by = match &advice.aggressor {
        Some(who) => {
            let group = who.group.as_ref().map_or("the root group", GroupPath::as_str);
            format!("{:.0} % made by {} in {group}", who.share * 100.0, who.program)
        }
        None => "for its own limit".to_owned(),
    };
    let help = match (&advice.command, &advice.cost, advice.refusal) {
        (Some(command), Some(cost), _) => format!("would help: {command} ({cost})"),
        (_, _, Some(why)) => format!("no limit: {}", why.name()),
        _ => "no limit is known that would help".to_owned(),
    };
    format!(
        "guard: {}: {} in {victim} lost {lost} in {span}, {by}; {help}; flatwater guard show {}",
        advice.id, advice.victim.program, advice.id
    )
}
