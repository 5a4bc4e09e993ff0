//! Finds groups whose calls wait, and who makes them wait, with the evidence of `explain`.
//!
//! This is the one place where results of `explain` become observations of the guard. An evaluation costs CPU time, so
//! that the next one waits until the evaluations cost at most a small part of the daemon's budget on average.

use std::collections::{BTreeMap, BTreeSet};

use flatwater_explain::aggressor::{Charges, Means as Explained};
use flatwater_explain::{Aggressor, Answerable};
use flatwater_guard::{GroupPath, Means, Suspect, Victim, VictimStall};
use flatwater_host::own_cost::thread_cpu_ns;
use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::{Call, Cause, CauseBasis, DurationBasis, Header, Recording, Source, Target};

use super::machine::Machine;
use crate::cgroup::Hierarchies;
use crate::lookback::LookBack;
use crate::second::{OwnedCall, Second};

/// The span that is judged.
pub const SPAN_NS: u64 = 10_000_000_000;
/// A group is a victim if its calls lost at least this much in the span, in at least `SECONDS_MIN` different seconds.
const STALL_NS_MIN: u64 = 500_000_000;
const SECONDS_MIN: usize = 3;
/// CPU time of evaluations, as a part of the daemon's budget: by default 0.03 % of one core.
const BUDGET_PART: f64 = 0.06;
/// CPU time that may be used at once after a quiet time.
const CPU_CREDIT_NS: f64 = 50e6;
/// The same group is judged at most once in this time.
const AGAIN_NS: u64 = 5_000_000_000;
/// The longest calls are judged.
const CALLS_MAX: usize = 500;
const GROUPS_MAX: usize = 1_024;

/// The budget of evaluations, and when each group was last judged.
#[derive(Debug)]
pub struct Evidence {
    cpu_share: f64,
    credit_ns: f64,
    last_ns: u64,
    judged_ns: BTreeMap<String, u64>,
}

/// The calls of one group in the span.
#[derive(Debug, Default)]
struct Group<'a> {
    stall_ns: u64,
    seconds: BTreeSet<u64>,
    calls: Vec<&'a OwnedCall>,
}

impl Evidence {
    pub fn new(now_ns: u64, budget_share: f64) -> Evidence {
        let cpu_share = budget_share * BUDGET_PART;
        Evidence { cpu_share, credit_ns: CPU_CREDIT_NS, last_ns: now_ns, judged_ns: BTreeMap::new() }
    }

    pub fn set_budget(&mut self, budget_share: f64) {
        self.cpu_share = budget_share * BUDGET_PART;
    }

    /// The stalls of the last span. `is_incomplete`: hooks are shed or events were lost.
    pub fn stalls(&mut self, look_back: &LookBack, is_incomplete: bool, machine: &mut Machine) -> Vec<VictimStall> {
        let Some(newest) = look_back.seconds().next_back() else { return Vec::new() };
        let now_ns = newest.end_ns;
        let passed_ns = now_ns.saturating_sub(std::mem::replace(&mut self.last_ns, now_ns));
        self.credit_ns = (self.credit_ns + passed_ns as f64 * self.cpu_share).min(CPU_CREDIT_NS);
        if (newest.calls.is_empty() && newest.under_way.is_empty()) || self.credit_ns <= 0.0 {
            return Vec::new();
        }
        let began_ns = thread_cpu_ns();
        let since_ns = now_ns.saturating_sub(SPAN_NS);
        let seconds: Vec<&Second> = look_back.seconds().rev().take_while(|second| second.end_ns > since_ns).collect();
        let groups = groups(&seconds, newest);
        self.judged_ns.retain(|_, judged_ns| judged_ns.saturating_add(AGAIN_NS) > now_ns);
        // The group that lost most, so that one with many small stalls does not use up the budget.
        let due = groups.into_iter().filter(|(name, group)| {
            let stalls = group.stall_ns >= STALL_NS_MIN && group.seconds.len() >= SECONDS_MIN;
            stalls && has_aggressor(name, group) && !self.judged_ns.contains_key(name)
        });
        let worst = due.max_by_key(|(_, group)| group.stall_ns);
        let judged = worst.map(|(name, group)| {
            let stall = judge(&name, &group, &seconds, is_incomplete, machine);
            if self.judged_ns.len() < GROUPS_MAX {
                self.judged_ns.insert(name, now_ns);
            }
            stall
        });
        self.credit_ns -= thread_cpu_ns().saturating_sub(began_ns) as f64;
        judged.into_iter().collect()
    }
}

/// The part of the calls' cgroups that root made, by which calls are grouped: users can make any groups below it.
pub fn victim_group(owned: &OwnedCall) -> &str {
    Hierarchies::machine().made_by_root(&owned.owner.cgroup)
}

fn groups<'a>(seconds: &[&'a Second], newest: &'a Second) -> BTreeMap<String, Group<'a>> {
    let mut groups: BTreeMap<String, Group<'a>> = BTreeMap::new();
    let ended = seconds.iter().flat_map(|second| second.calls.iter().map(|owned| (second.end_ns, owned)));
    let hanging = newest.under_way.iter().map(|owned| (newest.end_ns, owned));
    for (end_ns, owned) in ended.chain(hanging) {
        let name = victim_group(owned);
        if groups.len() >= GROUPS_MAX && !groups.contains_key(name) {
            continue;
        }
        let group = groups.entry(name.to_owned()).or_default();
        group.stall_ns = group.stall_ns.saturating_add(owned.call.duration_ns.min(SPAN_NS));
        // A call longer than a second stalls in each second.
        let lasted_s = owned.call.duration_ns / 1_000_000_000;
        group
            .seconds
            .extend((0..=lasted_s.min(10)).map(|back| end_ns / 1_000_000_000 - back.min(end_ns / 1_000_000_000)));
        group.calls.push(owned);
    }
    groups
}

/// A cheap look before the evaluation: the daemon's own attribution charges another group with a part of the time.
fn has_aggressor(name: &str, group: &Group<'_>) -> bool {
    let shares = group.calls.iter().flat_map(|owned| &owned.aggressors);
    let others = shares.filter(|share| Hierarchies::machine().made_by_root(&share.who.cgroup) != name);
    let ns = others.map(|share| share.ns).fold(0, u64::saturating_add);
    let limited = group.calls.iter().flat_map(|owned| &owned.call.segments);
    let limited_ns: u64 =
        limited.filter(|part| is_own_limit(part.cause)).map(|part| part.ns).fold(0, u64::saturating_add);
    ns.max(limited_ns) >= group.stall_ns / 5
}

/// Whether the cause is a limit of the waiting call's own cgroup.
fn is_own_limit(cause: Cause) -> bool {
    matches!(cause, Cause::MemcgReclaim | Cause::MemcgOverHigh | Cause::CpuQuota)
}

/// A recording in memory: the calls of one group, and everything that was observed about waits in the span.
fn recording(name: &str, group: &Group<'_>, seconds: &[&Second]) -> Recording {
    let mut calls: Vec<Call> = group.calls.iter().map(|owned| owned.call.clone()).collect();
    calls.sort_short_by_key(|call| std::cmp::Reverse(call.duration_ns));
    calls.truncate(CALLS_MAX);
    calls.sort_short_by_key(|call| (call.start_ns, call.tid));
    let keys: BTreeSet<(u32, u64)> = calls.iter().map(|call| (call.tid, call.start_ns)).collect();
    let cgroup = Some(name.to_owned()).filter(|name| !name.is_empty());
    let target = Target { what: name.to_owned(), cgroup, ..Target::default() };
    let header = Header { source: Source::Host, target, ..Header::default() };
    let mut recording = Recording { header, calls, ..Recording::default() };
    for second in seconds.iter().rev() {
        let waited = &second.waited;
        let own = |tid: u32, start_ns: u64| keys.contains(&(tid, start_ns));
        recording.waits.extend(waited.waits.iter().filter(|row| own(row.call_tid, row.call_start_ns)).cloned());
        recording.cpu_owners.extend(waited.cpus.iter().filter(|row| own(row.call_tid, row.call_start_ns)).cloned());
        recording.queue_owners.extend(second.users.owners.iter().cloned());
        recording.dirtiers.extend(second.users.dirtiers.iter().cloned());
        recording.memory_users.extend(second.users.memory.iter().cloned());
    }
    // Only requests that these calls waited for: those of other calls would tell of other file systems.
    let awaited: BTreeSet<u64> = recording.waits.iter().filter_map(|wait| wait.request).collect();
    for waited in seconds.iter().rev().map(|second| &second.waited) {
        recording.requests.extend(waited.requests.iter().filter(|row| awaited.contains(&row.id)).cloned());
        recording.queue_ahead.extend(waited.ahead.iter().filter(|row| awaited.contains(&row.request)).cloned());
    }
    recording
}

/// The time charged to one program of one group.
#[derive(Debug, Default)]
struct Charged {
    ns: u64,
    measured_ns: u64,
    by_means: BTreeMap<Means, u64>,
    shared_ns: u64,
    separate_ns: u64,
    in_victims_group: bool,
    evidence: Vec<String>,
}

fn judge(
    name: &str,
    group: &Group<'_>,
    seconds: &[&Second],
    is_incomplete: bool,
    machine: &mut Machine,
) -> VictimStall {
    let recording = recording(name, group, seconds);
    let charges = Charges::of(&recording, |_| true);
    let total_ns: u64 = recording.calls.iter().map(|call| call.duration_ns).fold(0, u64::saturating_add).max(1);
    let mut charged: BTreeMap<(String, Option<String>), Charged> = BTreeMap::new();
    let mut limit_ns = 0.0;
    for cause in Cause::ALL {
        let segments = || recording.calls.iter().flat_map(|call| &call.segments).filter(|part| part.cause == *cause);
        let cause_ns: u64 = segments().map(|part| part.ns).fold(0, u64::saturating_add);
        if cause_ns == 0 {
            continue;
        }
        let measured = segments().all(|part| {
            part.duration_basis == DurationBasis::Measured
                && matches!(part.cause_basis, CauseBasis::Bracketed | CauseBasis::Stack)
        });
        let Some((aggressors, answerable)) = charges.of_cause(*cause) else {
            limit_ns += if is_own_limit(*cause) { cause_ns as f64 } else { 0.0 };
            continue;
        };
        limit_ns += own_limit_ns(*cause, cause_ns, &answerable);
        for aggressor in &aggressors {
            let key = (aggressor.program.clone(), aggressor.cgroup.clone());
            charged.entry(key).or_default().add(aggressor, measured);
        }
    }
    let of_group = GroupPath::new(name).ok();
    let program = group.calls.first().map_or("", |owned| &owned.owner.program).to_owned();
    let devices: BTreeSet<&str> = group.calls.iter().filter_map(|owned| owned.device.as_deref()).collect();
    let mut suspects: Vec<Suspect> = charged
        .into_iter()
        .map(|(who, charged)| charged.suspect(who, name, total_ns, seconds, &devices, machine))
        .collect();
    suspects.sort_short_by_key(|suspect| std::cmp::Reverse(suspect.stall_ns));
    VictimStall {
        victim: Victim {
            is_trusted: of_group.as_ref().is_some_and(|group| machine.is_trusted(group)),
            group: of_group,
            program,
            calls: recording.calls.len() as u64,
            worst_ns: recording.calls.iter().map(|call| call.duration_ns).max().unwrap_or(0),
            span_ns: SPAN_NS,
        },
        stall_ns: group.stall_ns,
        own_limit_share: (limit_ns / total_ns as f64).min(1.0),
        is_incomplete: is_incomplete || charges.cut,
        suspects,
    }
}

/// The time of a cause that is due to a limit of the victim's own group.
fn own_limit_ns(cause: Cause, cause_ns: u64, answerable: &Answerable) -> f64 {
    let share = if is_own_limit(cause) { 1.0 } else { answerable.limit };
    cause_ns as f64 * share
}

fn means_of(means: Explained) -> Means {
    match means {
        Explained::Queue | Explained::Beside | Explained::Cache | Explained::Data => Means::Device,
        Explained::Lock => Means::Lock,
        Explained::DirtyPages => Means::DirtyPages,
        Explained::Memory => Means::Memory,
        Explained::Journal => Means::Journal,
        Explained::Cpu => Means::Cpu,
        _ => Means::Other,
    }
}

impl Charged {
    fn add(&mut self, aggressor: &Aggressor, measured: bool) {
        let ns = aggressor.stall_ns;
        self.ns = self.ns.saturating_add(ns);
        self.measured_ns = self.measured_ns.saturating_add(if measured { ns } else { 0 });
        let by_means = self.by_means.entry(means_of(aggressor.means)).or_default();
        *by_means = by_means.saturating_add(ns);
        match aggressor.same_file_system {
            Some(true) => self.shared_ns = self.shared_ns.saturating_add(ns),
            Some(false) => self.separate_ns = self.separate_ns.saturating_add(ns),
            None => {}
        }
        self.in_victims_group |= aggressor.in_own_cgroup;
        self.evidence.extend(aggressor.evidence.iter().map(|evidence| evidence.text.clone()));
    }

    /// The means of the most time, unless a part was spent on a lock or in a journal: a limit would lengthen that part.
    fn means(&self) -> Means {
        let harmful = [Means::Lock, Means::Journal]
            .into_iter()
            .find(|means| self.by_means.get(means).is_some_and(|ns| *ns >= self.ns / 5));
        let most = self.by_means.iter().max_by_key(|(_, ns)| **ns).map(|(means, _)| *means);
        harmful.or(most).unwrap_or(Means::Other)
    }

    fn suspect(
        mut self,
        (program, cgroup): (String, Option<String>),
        victim: &str,
        total_ns: u64,
        seconds: &[&Second],
        devices: &BTreeSet<&str>,
        machine: &mut Machine,
    ) -> Suspect {
        let means = self.means();
        let made_by_root = cgroup.as_deref().map(|path| Hierarchies::machine().made_by_root(path));
        let group = made_by_root.and_then(|path| GroupPath::new(path).ok());
        let same_file_system = match (self.shared_ns, self.separate_ns) {
            (0, 0) => None,
            (shared_ns, separate_ns) => Some(shared_ns.saturating_mul(10) > separate_ns),
        };
        self.evidence.truncate(4);
        let facts = group.as_ref().map(|group| machine.facts(group, means, seconds, devices));
        let facts = facts.unwrap_or_default();
        Suspect {
            program,
            is_in_root_group: cgroup.is_none() || cgroup.as_deref() == Some("/"),
            is_trusted: facts.is_trusted,
            share: self.ns as f64 / total_ns as f64,
            stall_ns: self.ns,
            means,
            is_measured: self.measured_ns.saturating_mul(10) >= self.ns.saturating_mul(9),
            is_in_victims_group: self.in_victims_group || made_by_root == Some(victim),
            same_file_system,
            evidence: self.evidence,
            amount: facts.amount,
            knobs: facts.knobs,
            group,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use flatwater_guard::{Means, VictimStall};
    use flatwater_recording::{
        Cause, CauseBasis, DurationBasis, QueueAhead, Request, RequestOp, Segment, Task, Wait, Waited, WakerKind,
    };

    use super::{Evidence, Machine};
    use crate::aggressor::Share;
    use crate::lookback::LookBack;
    use crate::owner::Owner;
    use crate::second::{OwnedCall, Second};
    use crate::sight::tests::call;

    const S: u64 = 1_000_000_000;
    const MS: u64 = 1_000_000;

    fn task(pid: u32, name: &str, cgroup: &str) -> Task {
        Task::new(pid, pid, name).in_cgroup(Some(cgroup.to_owned()))
    }

    /// A second in which a call of /db takes 400 ms, 300 of them behind requests of `dd` in /jobs to this file system.
    fn second(at_s: u64, file_system: &str, cause: Cause) -> Arc<Second> {
        let (start_ns, took_ns) = (at_s * S + MS, 400 * MS);
        let mut slow = call(start_ns, took_ns);
        slow.segments = vec![Segment::new(0, took_ns, cause, DurationBasis::Measured, CauseBasis::Stack)];
        let owner = Owner { cgroup: "/db".into(), program: "postgres".into(), ..Owner::default() };
        let who = Owner { cgroup: "/jobs".into(), program: "dd".into(), ..Owner::default() };
        let owned = OwnedCall {
            device: Some("vda".into()),
            aggressors: vec![Share { who, ns: 300 * MS }],
            ..OwnedCall::new(slow, owner)
        };
        let wait = Wait {
            call_tid: 7,
            call_start_ns: start_ns,
            sleeper: task(7, "journal", "/db"),
            start_ns,
            duration_ns: took_ns,
            waker_kind: WakerKind::Device,
            request: Some(at_s),
            ..Wait::default()
        };
        let request = |id: u64, place: &str| Request {
            id,
            device: "vda".into(),
            op: RequestOp::Write,
            insert_ns: start_ns,
            complete_ns: start_ns + took_ns,
            owner: Some(task(7, "journal", "/db")),
            file_system: Some(place.to_owned()),
            ..Request::default()
        };
        let ahead = QueueAhead {
            request: at_s,
            owner: Some(task(9, "dd", "/jobs")),
            op: RequestOp::Write,
            device_ns: 300 * MS,
            file_system: Some(file_system.to_owned()),
            ..QueueAhead::default()
        };
        // The last request is one that another program waited for.
        let requests = vec![request(at_s, "254:1"), request(at_s + 1_000, "254:2")];
        let waited = Waited { waits: vec![wait], requests, ahead: vec![ahead], ..Waited::default() };
        Arc::new(Second { start_ns: at_s * S, end_ns: (at_s + 1) * S, calls: vec![owned], waited, ..Second::default() })
    }

    fn judged(file_system: &str, cause: Cause, seconds: u64) -> Vec<VictimStall> {
        let mut look_back = LookBack::new(60 * S, 1 << 24);
        (10..10 + seconds).for_each(|at| look_back.push(second(at, file_system, cause)));
        let (mut evidence, mut machine) = (Evidence::new(0, 1.0), Machine::default());
        let found = evidence.stalls(&look_back, false, &mut machine);
        assert!(evidence.stalls(&look_back, false, &mut machine).is_empty(), "the same group is judged once in 5 s");
        found
    }

    #[test]
    fn a_neighbour_ahead_in_the_queue_is_a_suspect() {
        let found = judged("254:2", Cause::PageWriteback, 5);
        let [stall] = &found[..] else { panic!("{found:?}") };
        assert_eq!(stall.victim.group.as_ref().map(|group| group.as_str()), Some("/db"));
        assert_eq!((stall.victim.calls, &*stall.victim.program, stall.stall_ns), (5, "postgres", 2 * S));
        let [suspect] = &stall.suspects[..] else { panic!("{stall:?}") };
        assert_eq!(suspect.group.as_ref().map(|group| group.as_str()), Some("/jobs"));
        assert_eq!((suspect.means, suspect.same_file_system), (Means::Device, Some(false)));
        assert!((0.7..0.8).contains(&suspect.share), "{}", suspect.share);
        assert!(suspect.is_measured && !suspect.is_in_victims_group && !suspect.is_in_root_group);
        assert!(!suspect.evidence.is_empty() && stall.own_limit_share < 0.01);
    }

    #[test]
    fn the_file_system_is_that_of_the_victims_own_requests() {
        let found = judged("254:1", Cause::PageWriteback, 5);
        assert_eq!(found[0].suspects[0].same_file_system, Some(true));
    }

    #[test]
    fn a_limit_of_the_victims_own_cgroup_is_not_charged_to_others() {
        let found = judged("254:2", Cause::CpuQuota, 5);
        assert!(found[0].own_limit_share > 0.9, "{found:?}");
    }

    #[test]
    fn two_seconds_are_no_evidence() {
        assert!(judged("254:2", Cause::PageWriteback, 2).is_empty());
    }
}
