//! A small model of a machine for tests: a victim, one suspect's cgroup, the kernel's knob, and the process that has
//! the lease. Faults are drawn from a seed.

use crate::action::{Action, Device, Direction, Setting};
use crate::controller::Decision;
use crate::group::GroupPath;
use crate::observe::{
    Amount, Knobs, Lease, Means, Measure, Observation, Reading, Sight, Suspect, Victim, VictimStall, Window,
};
use crate::policy::{Mode, Pattern, Policy, Times};
use crate::reason::Refusal;
use crate::trial::Coin;

pub const SECOND: u64 = 1_000_000_000;
const DISK: Device = Device { major: 8, minor: 0 };
/// The writes of the neighbour without a limit.
const RATE: f64 = 40e6;

/// The machine in an episode, and its faults.
#[derive(Clone, Debug)]
pub struct Case {
    pub means: Means,
    pub share: f64,
    pub group: &'static str,
    pub victim: &'static str,
    pub same_file_system: Option<bool>,
    pub own_limit_share: f64,
    pub is_trusted: bool,
    pub knobs: Option<Refusal>,
    /// Whether a limit on the neighbour helps the victim.
    pub helps: bool,
    pub seconds: u64,
    pub faults: Faults,
}

/// Probabilities per second, or seconds at which something happens.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    pub late_measure: f64,
    pub missing_measure: f64,
    /// A measure with a number from nowhere, or a damaged value.
    pub lying_measure: f64,
    pub foreign_change_at: Option<u64>,
    pub group_vanishes_at: Option<u64>,
    pub victim_ends_at: Option<u64>,
    pub lease_process_dies_at: Option<u64>,
    pub controller_dies_at: Option<u64>,
    pub clock_jumps_at: Option<u64>,
    pub stall_ends_at: Option<u64>,
    pub write_fails: bool,
    /// The kernel accepts the limit and does nothing.
    pub no_effect: bool,
}

impl Case {
    pub fn of_seed(seed: u64) -> Case {
        let mut coin = Coin::new(seed ^ 0x5eed);
        let mut upto = |n: u64| coin.next_u64() % n;
        let groups =
            ["/jobs/backup", "/jobs/build", "/jobs/x", "/system.slice/cron.service", "/user.slice/user-7.slice"];
        let means =
            [Means::Device, Means::Memory, Means::Cpu, Means::DirtyPages, Means::Lock, Means::Journal, Means::Other];
        let mut at = |of: u64, seconds: u64| (upto(of) == 0).then(|| 12 + upto(seconds));
        let faults = Faults {
            foreign_change_at: at(8, 90),
            group_vanishes_at: at(12, 90),
            victim_ends_at: at(12, 90),
            lease_process_dies_at: at(12, 90),
            controller_dies_at: at(6, 90),
            clock_jumps_at: at(12, 90),
            stall_ends_at: at(8, 60),
            write_fails: at(20, 1).is_some(),
            no_effect: at(10, 1).is_some(),
            ..Faults::default()
        };
        let faults = Faults {
            late_measure: [0.0, 0.0, 0.2, 0.6][upto(4) as usize],
            missing_measure: [0.0, 0.0, 0.1, 0.4][upto(4) as usize],
            lying_measure: [0.0, 0.0, 0.0, 0.3][upto(4) as usize],
            ..faults
        };
        Case {
            means: if upto(2) == 0 { Means::Device } else { means[upto(7) as usize] },
            share: [0.1, 0.3, 0.6, 0.8, 0.95, f64::NAN][upto(6) as usize],
            group: if upto(2) == 0 { groups[0] } else { groups[upto(5) as usize] },
            victim: ["/db", "/db", "/db", "/other", "/jobs/backup/inner"][upto(5) as usize],
            same_file_system: [Some(false), Some(false), Some(true), None][upto(4) as usize],
            own_limit_share: if upto(6) == 0 { 0.8 } else { 0.0 },
            is_trusted: upto(8) != 0,
            knobs: (upto(8) == 0).then(|| Refusal::ALL[upto(Refusal::ALL.len() as u64) as usize]),
            helps: upto(3) != 0,
            seconds: 150,
            faults,
        }
    }

    /// A case in which a limit is permitted and helps, without faults.
    pub fn plain() -> Case {
        Case {
            means: Means::Device,
            share: 0.9,
            group: "/jobs/backup",
            victim: "/db",
            same_file_system: Some(false),
            own_limit_share: 0.0,
            is_trusted: true,
            knobs: None,
            helps: true,
            seconds: 150,
            faults: Faults::default(),
        }
    }

    /// Whether any limit may be applied in this case.
    pub fn may_act(&self) -> bool {
        let actionable = match self.means {
            Means::Device => self.same_file_system == Some(false),
            Means::DirtyPages | Means::Memory | Means::Cpu => true,
            Means::Lock | Means::Journal | Means::Other => false,
        };
        actionable
            && self.share >= 0.5
            && self.group.starts_with("/jobs/")
            && self.victim == "/db"
            && self.own_limit_share < 0.3
            && self.is_trusted
            && self.knobs.is_none()
    }
}

pub fn policy() -> Policy {
    Policy {
        mode: Mode::Act,
        victims: vec![Pattern::of_victims("/db").expect("valid")],
        allow: vec![Pattern::of_aggressors("/jobs/*").expect("valid")],
        hold_ns: 40 * SECOND,
        cool_off_ns: 20 * SECOND,
        ..Policy::default()
    }
}

/// The machine, with the kernel's state and that of the process with the lease. Both outlive the controller.
#[derive(Debug)]
pub struct Machine {
    case: Case,
    coin: Coin,
    pub now_s: u64,
    clock_ns: u64,
    /// The value in the kernel, if it is not the default, and whether the guard set it.
    pub value: Option<(String, bool)>,
    pub limit: Option<Action>,
    /// When the lease ends.
    lease_until_ns: u64,
    lease_process_lives: bool,
    lease: Lease,
    windows: Vec<(Window, Vec<f64>)>,
    late: Vec<(u64, Measure)>,
    /// All changes that the guard made to the kernel.
    pub applied: Vec<Action>,
    /// When the limit was last renewed, for the check that none outlives its lease.
    pub renewed_ns: u64,
}

impl Machine {
    pub fn new(case: Case, seed: u64) -> Machine {
        Machine {
            case,
            coin: Coin::new(seed),
            now_s: 0,
            clock_ns: 1_000 * SECOND,
            value: None,
            limit: None,
            lease_until_ns: 0,
            lease_process_lives: true,
            lease: Lease::Free,
            windows: Vec::new(),
            late: Vec::new(),
            applied: Vec::new(),
            renewed_ns: 0,
        }
    }

    pub fn now_ns(&self) -> u64 {
        self.clock_ns
    }

    fn uniform(&mut self) -> f64 {
        (self.coin.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn gone(&self) -> bool {
        self.case.faults.group_vanishes_at.is_some_and(|at| self.now_s >= at)
    }

    /// The victim's stall time in this second, from what the kernel limits now.
    fn stalled(&mut self) -> f64 {
        let over = self.case.faults.stall_ends_at.is_some_and(|at| self.now_s >= at);
        if over {
            return 0.0;
        }
        let noise = 0.7 + 0.6 * self.uniform();
        let limited = self.limit.is_some() && self.case.helps && !self.case.faults.no_effect;
        let level = if limited { 0.05 } else { 0.6 };
        // Occasional bursts, with and without the limit.
        if self.uniform() < 0.03 { 1.0 } else { level * noise }
    }

    /// One second passes: the lease expires, faults happen, windows fill.
    pub fn second(&mut self) {
        self.now_s += 1;
        self.clock_ns += SECOND;
        let faults = self.case.faults.clone();
        if faults.clock_jumps_at == Some(self.now_s) {
            self.clock_ns += 3_600 * SECOND;
        }
        if faults.lease_process_dies_at == Some(self.now_s) {
            self.lease_process_lives = false;
            // The kernel closes its pipe; the daemon recovers from the journal and starts another one.
            self.remove();
            self.lease = Lease::Lost;
        }
        if faults.foreign_change_at == Some(self.now_s) {
            self.value = Some(("12345".to_owned(), false));
            self.limit = None;
        }
        if self.gone() && self.limit.is_some() {
            (self.limit, self.value) = (None, None);
        }
        if self.limit.is_some() && self.clock_ns >= self.lease_until_ns {
            self.remove();
            self.lease = Lease::Free;
        }
        let stalled = self.stalled();
        let now_ns = self.clock_ns;
        for (window, seconds) in &mut self.windows {
            if now_ns > window.from_ns && now_ns <= window.to_ns {
                seconds.push(stalled);
            }
        }
    }

    /// Removes the guard's value, and no other.
    fn remove(&mut self) {
        if self.value.as_ref().is_some_and(|(_, ours)| *ours) {
            self.value = None;
        }
        self.limit = None;
    }

    pub fn perform(&mut self, decision: &Decision) {
        match decision {
            Decision::Apply { action, lease_ns, .. } => {
                assert_eq!(self.limit, None, "two limits at once");
                if self.lease == Lease::Lost {
                    self.lease_process_lives = true;
                }
                self.lease = if self.case.faults.write_fails {
                    Lease::Failed
                } else if self.gone() {
                    Lease::Gone
                } else if self.value.as_ref().is_some_and(|(_, ours)| !*ours) {
                    Lease::Foreign
                } else {
                    self.value = Some((action.setting.value(), true));
                    self.limit = Some(action.clone());
                    self.applied.push(action.clone());
                    self.lease_until_ns = self.clock_ns + lease_ns;
                    self.renewed_ns = self.clock_ns;
                    Lease::Held { action: action.clone(), reading: Reading::Missing }
                };
            }
            Decision::Keep { .. } if self.limit.is_some() => {
                self.lease_until_ns = self.clock_ns + Times::DEFAULT.lease_ns;
                self.renewed_ns = self.clock_ns;
            }
            Decision::Remove { .. } => {
                self.remove();
                self.lease = Lease::Free;
            }
            Decision::Measure { window, .. } => self.windows.push((*window, Vec::new())),
            _ => {}
        }
    }

    /// The observation that the controller gets after this second.
    pub fn observe(&mut self) -> Observation {
        let lease = match &self.lease {
            Lease::Held { action, .. } => Lease::Held { action: action.clone(), reading: self.reading(action.setting) },
            other => other.clone(),
        };
        // A failure is reported once; then nothing is in force.
        if matches!(self.lease, Lease::Failed | Lease::Foreign | Lease::Gone | Lease::Lost) {
            self.lease = Lease::Free;
        }
        let measures = self.measures();
        let ended = self.case.faults.victim_ends_at.is_some_and(|at| self.now_s >= at);
        let stalls =
            if self.now_s >= 10 && !ended && self.now_s.is_multiple_of(5) { vec![self.stall()] } else { Vec::new() };
        Observation { now_ns: self.clock_ns, stalls, measures, lease, orders: Vec::new() }
    }

    fn reading(&self, setting: Setting) -> Reading {
        if self.gone() {
            return Reading::Gone;
        }
        Reading::Value(self.value.as_ref().map_or_else(|| setting.default_value(), |(value, _)| value.clone()))
    }

    fn measures(&mut self) -> Vec<Measure> {
        let now_ns = self.clock_ns;
        let (done, open): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.windows).into_iter().partition(|(window, _)| now_ns >= window.to_ns + SECOND);
        self.windows = open;
        let mut out = Vec::new();
        let faults = self.case.faults.clone();
        for (window, seconds) in done {
            let ended = faults.victim_ends_at.is_some_and(|at| self.now_s >= at);
            let victim = match seconds.len() {
                _ if ended => Sight::Gone,
                0 => Sight::NotObserved,
                count => Sight::Stalled(seconds.iter().sum::<f64>() / count as f64),
            };
            let aggressor_per_s = Some(if self.limit.is_some() { RATE / 2.0 } else { RATE });
            let measure = Measure { number: window.number, victim, aggressor_per_s };
            if self.uniform() < faults.missing_measure {
                continue;
            }
            if self.uniform() < faults.late_measure {
                let at_ns = now_ns + (1 + self.coin.next_u64() % 15) * SECOND;
                self.late.push((at_ns, measure));
                continue;
            }
            out.push(measure);
        }
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.late).into_iter().partition(|(at_ns, _)| now_ns >= *at_ns);
        self.late = later;
        out.extend(due.into_iter().map(|(_, measure)| measure));
        if self.uniform() < faults.lying_measure {
            let lies = [f64::NAN, -1.0, f64::INFINITY, 1e300];
            let number = self.coin.next_u64() % 40;
            let lie = lies[(self.coin.next_u64() % 4) as usize];
            out.push(Measure { number, victim: Sight::Stalled(lie), aggressor_per_s: Some(lie) });
            out.extend(out.first().cloned());
        }
        out
    }

    fn stall(&self) -> VictimStall {
        let case = &self.case;
        let group = GroupPath::new(case.group).ok();
        let knobs = match case.knobs {
            Some(why) => Knobs::none(why),
            None => Knobs {
                io_max: Ok(String::new()),
                io_weight: Err(Refusal::NoController),
                memory_high: Ok("max\n".to_owned()),
                cpu_max: Ok("max 100000\n".to_owned()),
                cpu_weight: Ok("100\n".to_owned()),
            },
        };
        let suspect = Suspect {
            program: "dd".to_owned(),
            group,
            is_in_root_group: false,
            is_trusted: case.is_trusted,
            share: case.share,
            stall_ns: SECOND,
            means: case.means,
            is_measured: true,
            is_in_victims_group: false,
            same_file_system: case.same_file_system,
            evidence: vec!["its requests were ahead".to_owned()],
            amount: Amount {
                device: Some(DISK),
                direction: Some(Direction::Write),
                bytes_per_s: Some(RATE as u64),
                memory_bytes: Some(1 << 30),
                cpu_us_per_s: Some(900_000),
            },
            knobs,
        };
        VictimStall {
            victim: Victim {
                group: GroupPath::new(case.victim).ok(),
                program: "postgres".to_owned(),
                is_trusted: true,
                calls: 40,
                worst_ns: SECOND / 2,
                span_ns: 10 * SECOND,
            },
            stall_ns: 2 * SECOND,
            own_limit_share: case.own_limit_share,
            is_incomplete: false,
            suspects: vec![suspect],
        }
    }
}
