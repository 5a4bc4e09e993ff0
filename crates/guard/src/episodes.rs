//! Ten thousand seeded episodes of the controller against the model of a machine, with injected faults.

use std::collections::BTreeSet;

use crate::action::{Action, Setting};
use crate::controller::{Controller, Decision, Result};
use crate::machine::{Case, Faults, Machine, SECOND, policy};
use crate::observe::{Means, Observation, Order};
use crate::policy::{Mode, Policy};
use crate::reason::{Refusal, Release, StandBack};

/// What happened in an episode.
#[derive(Debug, Default)]
struct Log {
    applied: Vec<Action>,
    proven: u32,
    /// Seconds from the first advice to the proof.
    proven_after_s: Option<u64>,
    refusals: BTreeSet<Refusal>,
    releases: Vec<Release>,
    stood_back: Vec<StandBack>,
    /// Each decision, with the second in which it was made.
    decisions: Vec<String>,
}

/// Runs a case and checks, each second, what must always hold.
fn run(case: &Case, policy: &Policy, seed: u64) -> Log {
    let mut machine = Machine::new(case.clone(), seed);
    let mut controller = Some(Controller::new(policy.clone(), seed));
    let (mut log, mut advised_s) = (Log::default(), None);
    for _ in 0..case.seconds {
        machine.second();
        if case.faults.controller_dies_at == Some(machine.now_s) {
            controller = None;
        }
        // Started again 20 s later, as systemd would.
        if case.faults.controller_dies_at.is_some_and(|at| machine.now_s == at + 20) {
            controller = Some(Controller::new(policy.clone(), seed + 1));
        }
        if let Some(controller) = &mut controller {
            let seen = machine.observe();
            let out = controller.step(&seen);
            check_decisions(&out, case, policy, seed);
            for decision in &out {
                note(decision, &mut log, &mut advised_s, machine.now_s);
                machine.perform(decision);
            }
        }
        // No limit without a live lease: it is at most one lease old.
        if machine.limit.is_some() {
            let age_ns = machine.now_ns() - machine.renewed_ns;
            assert!(age_ns <= policy.times.lease_ns, "seed {seed}: a limit outlives its lease: {age_ns} ns");
        }
    }
    log.applied = machine.applied;
    log
}

fn note(decision: &Decision, log: &mut Log, advised_s: &mut Option<u64>, now_s: u64) {
    log.decisions.push(format!("{now_s} {decision:?}"));
    match decision {
        Decision::Advise(_) => _ = advised_s.get_or_insert(now_s),
        Decision::Refuse { why, .. } => _ = log.refusals.insert(*why),
        Decision::Proven(report) => {
            log.proven += 1;
            assert_eq!(report.result, Result::Proven);
            log.proven_after_s = log.proven_after_s.or(advised_s.map(|at| now_s - at));
        }
        Decision::Ended(report) => log.releases.push(report.why),
        Decision::StandBack { why, .. } => log.stood_back.push(*why),
        _ => {}
    }
}

/// What must hold for the decisions of each step.
fn check_decisions(out: &[Decision], case: &Case, policy: &Policy, seed: u64) {
    let applied: Vec<&Action> = out
        .iter()
        .filter_map(|decision| match decision {
            Decision::Apply { action, .. } => Some(action),
            _ => None,
        })
        .collect();
    assert!(applied.len() <= 1, "seed {seed}: two actions at once: {applied:?}");
    for action in applied {
        assert!(case.may_act(), "seed {seed}: acts without evidence or permission: {action:?} in {case:?}");
        assert_eq!(action.group.as_str(), case.group, "seed {seed}: the wrong group");
        let (value, floor) = match action.setting {
            Setting::IoMax { bytes_per_s, .. } => (bytes_per_s, policy.floor_bytes_per_s),
            Setting::MemoryHigh { bytes } => (bytes, policy.floor_memory_bytes.max(1 << 29)),
            Setting::CpuMax { quota_us } => (quota_us, policy.floor_cpu_us),
            Setting::IoWeight { weight } | Setting::CpuWeight { weight } => (u64::from(weight), 10),
        };
        assert!(value >= floor, "seed {seed}: below the floor: {action:?}");
    }
}

#[test]
fn ten_thousand_episodes_keep_the_rules() {
    let policy = policy();
    let (mut acted, mut refusals, mut releases) = (0, BTreeSet::new(), BTreeSet::new());
    let (mut could_help, mut helped, mut useless, mut useless_proven) = (0, 0, 0, 0);
    for seed in 0..10_000 {
        let case = Case::of_seed(seed);
        let log = run(&case, &policy, seed);
        assert!(case.may_act() || log.applied.is_empty(), "seed {seed}");
        // A stall without an action has a named refusal, if a suspect was named.
        if log.applied.is_empty() && (case.share >= 0.2 || case.own_limit_share > 0.0) && log.releases.is_empty() {
            let begun = log.decisions.iter().any(|line| line.contains("Advise"));
            assert!(!begun || !log.refusals.is_empty() || case.may_act(), "seed {seed}: no reason: {case:?}");
        }
        acted += u32::from(!log.applied.is_empty());
        refusals.extend(log.refusals.iter().copied());
        releases.extend(log.releases.iter().copied());
        let has_effect = case.helps && !case.faults.no_effect;
        if !log.applied.is_empty() && !has_effect {
            useless += 1;
            useless_proven += u32::from(log.proven > 0);
        }
        if case.may_act() && has_effect && is_calm(&case.faults) {
            could_help += 1;
            helped += u32::from(log.proven > 0);
        }
    }
    println!("acted {acted}; helped {helped} of {could_help}; without effect {useless}, proven {useless_proven}");
    println!("refusals {refusals:?}\nreleases {releases:?}");
    assert!(acted > 500 && could_help > 30, "{acted} {could_help}");
    assert!(helped * 10 >= could_help * 9, "{helped} of {could_help}");
    // The stated error rate holds for each episode; a case has up to two before the group is left alone.
    let bound = 2.0 * policy.error_rate * f64::from(useless);
    assert!(f64::from(useless_proven) <= bound + 3.0 * bound.sqrt(), "{useless_proven} of {useless} without effect");
    for why in [Release::NotProven, Release::KnobChanged, Release::GroupGone, Release::VictimGone, Release::TimeLimit] {
        assert!(releases.contains(&why), "{why:?} did not occur");
    }
    for why in
        [Release::LeaseLost, Release::ApplyFailed, Release::ClockJumped, Release::NotObserved, Release::StallEnded]
    {
        assert!(releases.contains(&why), "{why:?} did not occur");
    }
}

fn is_calm(faults: &Faults) -> bool {
    faults.late_measure < 0.5
        && faults.missing_measure < 0.2
        && faults.lying_measure == 0.0
        && faults.foreign_change_at.is_none()
        && faults.group_vanishes_at.is_none()
        && faults.victim_ends_at.is_none()
        && faults.lease_process_dies_at.is_none()
        && faults.controller_dies_at.is_none()
        && faults.clock_jumps_at.is_none()
        && faults.stall_ends_at.is_none()
        && !faults.write_fails
}

#[test]
fn the_same_seed_gives_the_same_decisions() {
    for seed in 0..50 {
        let case = Case::of_seed(seed);
        assert_eq!(run(&case, &policy(), seed).decisions, run(&case, &policy(), seed).decisions, "seed {seed}");
    }
}

#[test]
fn a_limit_that_helps_is_proven_within_a_minute_and_ends_after_its_time() {
    let mut slowest_s = 0;
    for seed in 0..100 {
        let log = run(&Case { seconds: 140, ..Case::plain() }, &policy(), seed);
        if let Some(after_s) = log.proven_after_s {
            slowest_s = slowest_s.max(after_s);
        }
        assert!(log.proven >= 1, "seed {seed}: {:#?}", log.decisions);
        assert!(
            log.releases.contains(&Release::TimeLimit) || log.releases.is_empty(),
            "seed {seed}: {:?}",
            log.releases
        );
    }
    println!("proven after {slowest_s} s at the latest");
}

#[test]
fn a_limit_that_does_not_help_is_rolled_back_and_the_group_left_alone_after_two() {
    for seed in 0..100 {
        let case = Case { helps: false, seconds: 1_500, ..Case::plain() };
        let log = run(&case, &policy(), seed);
        if log.proven == 0 {
            assert!(log.stood_back.contains(&StandBack::Twice), "seed {seed}: {:?}", log.releases);
            assert!(log.refusals.contains(&Refusal::StoodBack), "seed {seed}: {:?}", log.refusals);
        }
    }
}

#[test]
fn a_foreign_value_is_left_alone_for_good() {
    for at in 15..70 {
        let case =
            Case { faults: Faults { foreign_change_at: Some(at), ..Faults::default() }, seconds: 200, ..Case::plain() };
        let log = run(&case, &policy(), at);
        let changes_after = log.decisions.iter().filter(|line| {
            let second: u64 = line.split(' ').next().and_then(|text| text.parse().ok()).expect("a second");
            second > at + 20 && line.contains("Apply")
        });
        assert_eq!(changes_after.count(), 0, "{at}: {:#?}", log.decisions);
    }
}

/// The step after which the controller dies does not matter: the lease ends the limit (checked by `run`), and the next
/// controller begins anew.
#[test]
fn the_controller_may_die_at_any_step() {
    for at in 10..110 {
        let faults = Faults { controller_dies_at: Some(at), ..Faults::default() };
        run(&Case { faults, seconds: 200, ..Case::plain() }, &policy(), at);
    }
}

#[test]
fn advice_mode_changes_nothing_and_says_what_would_help() {
    let policy = Policy { mode: Mode::Advise, ..policy() };
    let log = run(&Case::plain(), &policy, 1);
    assert!(log.applied.is_empty() && log.refusals.contains(&Refusal::ModeAdvise));
    let mut controller = Controller::new(policy, 1);
    let mut machine = Machine::new(Case::plain(), 1);
    (0..10).for_each(|_| machine.second());
    let out = controller.step(&machine.observe());
    let Some(Decision::Advise(advice)) = out.first() else { panic!("{out:?}") };
    assert_eq!(advice.command.as_deref(), Some("echo '8:0 wbps=20000000' > /sys/fs/cgroup/jobs/backup/io.max"));
    assert_eq!(advice.undo.as_deref(), Some("echo '8:0 wbps=max' > /sys/fs/cgroup/jobs/backup/io.max"));
    assert!(advice.cost.as_deref().is_some_and(|cost| cost.contains("instead of 38")), "{advice:?}");
    assert!(controller.step(&machine.observe()).is_empty(), "the same advice is given once");
    assert_eq!(controller.advices().next().map(|advice| advice.times), Some(2));
    let off = Policy { mode: Mode::Off, ..policy_of(&controller) };
    controller.configure(off);
    assert!(controller.step(&machine.observe()).is_empty());
}

fn policy_of(controller: &Controller) -> Policy {
    controller.policy().clone()
}

#[test]
fn each_case_that_must_not_be_acted_upon_has_its_reason() {
    let plain = Case::plain;
    for (case, why) in [
        (Case { own_limit_share: 0.5, ..plain() }, Refusal::OwnLimit),
        (Case { same_file_system: Some(true), ..plain() }, Refusal::SharedJournal),
        (Case { same_file_system: None, ..plain() }, Refusal::FileSystemUnknown),
        (Case { means: Means::Journal, ..plain() }, Refusal::SharedJournal),
        (Case { means: Means::Lock, ..plain() }, Refusal::LockHolder),
        (Case { means: Means::Other, ..plain() }, Refusal::MeansUnknown),
        (Case { share: 0.4, ..plain() }, Refusal::WeakEvidence),
        (Case { group: "/system.slice/cron.service", ..plain() }, Refusal::SystemGroup),
        (Case { group: "/user.slice/user-7.slice", ..plain() }, Refusal::UserSession),
        (Case { group: "/elsewhere", ..plain() }, Refusal::NotAllowed),
        (Case { group: "/", ..plain() }, Refusal::GroupUnknown),
        (Case { victim: "/jobs/backup/inner", ..plain() }, Refusal::OwnGroup),
        (Case { victim: "/not-listed", ..plain() }, Refusal::VictimNotListed),
        (Case { is_trusted: false, ..plain() }, Refusal::GroupNotTrusted),
        (Case { knobs: Some(Refusal::CgroupV1), ..plain() }, Refusal::CgroupV1),
    ] {
        let log = run(&case, &policy(), 3);
        assert!(log.applied.is_empty() && log.refusals.contains(&why), "{why:?}: {:?}", log.refusals);
    }
}

/// A user can give a group any name below their own, and can run slow calls in it.
#[test]
fn a_process_that_poses_as_a_victim_gets_no_cgroup_limited() {
    for (victim, is_trusted, why) in [
        ("/user.slice/user-1000.slice/db", true, Refusal::VictimNotListed),
        ("/elsewhere/db", true, Refusal::VictimNotListed),
        ("/db2", true, Refusal::VictimNotListed),
        ("/db/delegated", true, Refusal::VictimNotListed),
        ("/db", false, Refusal::VictimNotTrusted),
    ] {
        let mut machine = Machine::new(Case { victim, ..Case::plain() }, 4);
        let mut controller = Controller::new(policy(), 4);
        let mut refusals = BTreeSet::new();
        for _ in 0..60 {
            machine.second();
            let mut seen = machine.observe();
            seen.stalls.iter_mut().for_each(|stall| stall.victim.is_trusted = is_trusted);
            for decision in controller.step(&seen) {
                assert!(!matches!(decision, Decision::Apply { .. }), "{victim}: {decision:?}");
                if let Decision::Refuse { why, .. } = decision {
                    refusals.insert(why);
                }
            }
        }
        assert!(refusals.contains(&why), "{victim}: {refusals:?}");
    }
}

#[test]
fn an_operator_ends_an_episode_and_the_group_stays_alone() {
    let mut machine = Machine::new(Case::plain(), 5);
    let mut controller = Controller::new(policy(), 5);
    let mut released = false;
    for second in 0..120 {
        machine.second();
        let mut seen = machine.observe();
        if second == 40 {
            assert!(controller.acting().is_some());
            seen.orders.push(Order::ReleaseAll);
        }
        let out = controller.step(&seen);
        out.iter().for_each(|decision| machine.perform(decision));
        released |= out.iter().any(|decision| matches!(decision, Decision::Remove { why: Release::Operator, .. }));
        assert!(second <= 42 || machine.limit.is_none(), "{second}");
    }
    assert!(released);
    assert_eq!(controller.left_alone().next().map(|(_, why)| why), Some(StandBack::Operator));
}

#[test]
fn a_policy_that_no_longer_permits_a_limit_ends_it() {
    let mut machine = Machine::new(Case::plain(), 6);
    let mut controller = Controller::new(policy(), 6);
    for second in 0..60 {
        machine.second();
        if second == 30 {
            controller.configure(Policy { mode: Mode::Advise, ..policy() });
        }
        let seen = machine.observe();
        controller.step(&seen).iter().for_each(|decision| machine.perform(decision));
        assert!(second <= 31 || machine.limit.is_none(), "{second}");
    }
    assert!(controller.reports().any(|report| report.why == Release::PolicyChanged));
}

#[test]
fn a_proven_limit_is_left_in_force_at_the_end_only_if_configured() {
    for keep_at_exit in [false, true] {
        let mut machine = Machine::new(Case::plain(), 9);
        let mut controller = Controller::new(Policy { keep_at_exit, hold_ns: 600 * SECOND, ..policy() }, 9);
        for _ in 0..110 {
            machine.second();
            let seen = machine.observe();
            controller.step(&seen).iter().for_each(|decision| machine.perform(decision));
        }
        assert!(controller.acting().is_some_and(|(_, _, proven)| proven), "{:?}", controller.acting());
        let seen = Observation { orders: vec![Order::End], ..machine.observe() };
        let out = controller.step(&seen);
        let left = out.iter().any(|decision| matches!(decision, Decision::LeaveInForce { .. }));
        let removed = out.iter().any(|decision| matches!(decision, Decision::Remove { .. }));
        assert_eq!((left, removed), (keep_at_exit, !keep_at_exit));
    }
}
