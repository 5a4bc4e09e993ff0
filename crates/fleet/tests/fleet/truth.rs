//! The facts planted in a synthetic fleet are found, and nothing else.

use flatwater_experiment::verdict::Verdict;
use flatwater_fleet::Fleet;
use flatwater_fleet::generate::{Options, Truth};
use flatwater_fleet::judge::{Changed, Facts, Finding, Findings, findings, rollout};
use flatwater_recording::summary::HourStart;

use crate::{FROM, day, facts, made, options};

/// Whether this finding is one of the planted facts.
fn is_planted(finding: &Finding, truth: &Truth) -> bool {
    match finding {
        Finding::Differs { factor, level, cause, ratio, .. } if factor == "kernel" => {
            *level == truth.kernel && *cause == truth.kernel_cause && ratio.low > 1.0
        }
        Finding::Differs { factor, level, cause, ratio, .. } if factor == "vm_zone_reclaim_mode" => {
            level == "1" && *cause == truth.zone_reclaim_cause && ratio.low > 1.0
        }
        // The fix, or its absence if most hosts have the fix.
        Finding::Differs { factor, cause, .. } => *factor == truth.fix_setting && *cause == truth.fix_cause,
        Finding::Job { aggressor, hour_of_day, .. } => {
            *aggressor == truth.aggressor && *hour_of_day == truth.aggressor_hour
        }
        Finding::Dark { .. } => true,
    }
}

fn judge(found: &Findings, truth: &Truth, with_fix: bool) {
    let false_ones: Vec<String> =
        found.found.iter().filter(|one| !is_planted(one, truth)).map(ToString::to_string).collect();
    assert_eq!(false_ones, [] as [String; 0], "found, but not planted");
    let has = |what: fn(&Finding) -> bool| found.found.iter().any(what);
    assert!(has(|one| matches!(one, Finding::Differs { factor, .. } if factor == "kernel")), "{found}");
    assert!(has(|one| matches!(one, Finding::Differs { factor, .. } if factor == "vm_zone_reclaim_mode")), "{found}");
    assert!(has(|one| matches!(one, Finding::Job { .. })), "{found}");
    if with_fix {
        assert!(has(|one| matches!(one, Finding::Differs { factor, .. } if factor.starts_with("vm_dirty"))), "{found}");
    }
}

fn dark(found: &Findings) -> Vec<String> {
    found
        .found
        .iter()
        .find_map(|one| match one {
            Finding::Dark { hosts, .. } => Some(hosts.clone()),
            _ => None,
        })
        .unwrap_or_default()
}

fn rolled_out(facts: &Facts, truth: &Truth, at: HourStart) {
    let changed = Changed::parse(&truth.fix_setting).expect("known");
    let judged = rollout(facts, &changed, at);
    let line = |cause: &str| judged.by_cause.iter().find(|line| line.cause.as_deref() == Some(cause)).expect("a line");
    let fixed = line(&truth.fix_cause);
    assert_eq!(fixed.verdict, Verdict::Better, "{judged}");
    assert!(fixed.ratio.low < 0.55 && fixed.ratio.high > 0.45, "half of the stall time is left: {judged}");
    for other in judged.by_cause.iter().filter(|line| line.cause.as_ref() != Some(&truth.fix_cause)) {
        assert_eq!(other.verdict, Verdict::NotProven, "{judged}");
    }
    assert_eq!(judged.total.as_ref().map(|line| line.verdict), Some(Verdict::Better), "{judged}");
    // Dark hosts are reported, and do not count as improved.
    assert!(judged.hours_not_observed > 0.0, "{judged}");
}

/// Judges half of the hosts at a time at which nothing changed.
async fn nothing_changed(fleet: &Fleet, hosts: u32) {
    let folder = tempfile::tempdir().expect("a folder");
    let list = folder.path().join("hosts.txt");
    let names: Vec<String> =
        (0..hosts).filter(|number| number % 2 == 0).map(|number| format!("host-{number:05}")).collect();
    std::fs::write(&list, names.join("\n")).expect("written");
    let changed = Changed::parse(list.to_str().expect("text")).expect("a file");
    let judged = rollout(&facts(fleet, day(0, 24)).await, &changed, HourStart::of_hours(FROM.hours() + 12));
    assert_eq!(judged.total.as_ref().map(|line| line.verdict), Some(Verdict::NotProven), "{judged}");
    assert!(judged.by_cause.iter().all(|line| line.verdict == Verdict::NotProven), "{judged}");
}

async fn whole(options: &Options) {
    let folder = tempfile::tempdir().expect("a folder");
    let (fleet, truth) = made(folder.path(), options).await;
    let first = findings(&facts(&fleet, day(0, 24)).await);
    judge(&first, &truth, false);
    let second = findings(&facts(&fleet, day(24, 24)).await);
    judge(&second, &truth, true);
    let both = findings(&facts(&fleet, day(0, 48)).await);
    let mut planted = truth.dark_hosts.clone();
    planted.sort();
    assert_eq!(dark(&both), planted, "hosts that went dark");
    rolled_out(&facts(&fleet, day(0, 48)).await, &truth, HourStart::of_hours(FROM.hours() + 24));
    nothing_changed(&fleet, options.hosts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn planted_facts_are_found_and_nothing_else() {
    whole(&options(900, 48, true)).await;
}

/// `make test-long`: 10,000 hosts, two days.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes: make test-fleet"]
async fn planted_facts_in_ten_thousand_hosts_are_found_and_nothing_else() {
    whole(&options(10_000, 48, true)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes: make test-fleet"]
async fn at_most_one_of_twenty_fleets_has_a_false_finding() {
    let mut wrong = 0;
    for seed in 0..20 {
        let folder = tempfile::tempdir().expect("a folder");
        let (fleet, truth) = made(folder.path(), &Options { seed, ..options(900, 24, true) }).await;
        let found = findings(&facts(&fleet, day(0, 11)).await);
        wrong += u32::from(found.found.iter().any(|one| !is_planted(one, &truth)));
    }
    // One is expected. Four or more have a probability of 1.6 % if the intervals are right.
    assert!(wrong <= 3, "{wrong} of 20");
}
