//! The findings of a fleet: everything that is significant at 95 %.

use std::collections::BTreeMap;
use std::fmt;

use flatwater_experiment::bootstrap::quantile_t;
use flatwater_experiment::verdict::{Ratio, Verdict};
use flatwater_recording::printable::line;
use rand_pcg::Pcg64;
use serde::Serialize;

use super::contrast::{Contrast, contrasts};
use super::facts::{Facts, of_day};
use super::hosts::{FLOOR_NS, by_setup};
use super::strata::{HOSTS_MIN, error_factor, limit_extremes, mean, resampled, variance_of};
use crate::left_out::LeftOut;
use crate::time;

const LEVEL: f64 = 0.95;
/// Minimum share of the time that a host loses to other programs, on average, for one of them to be named.
const AGGRESSOR_SHARE_MIN: f64 = 0.01;
/// Minimum factor between one hour of the day and the other hours for a job to be named. Load that follows the time of
/// day is not a job.
const JOB_RATIO_MIN: f64 = 3.0;
/// A host is dark if it pushed nothing for this many hours.
const DARK_HOURS: i64 = 3;

/// One finding.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Finding {
    /// Hosts with this kernel, or this value of a setting, lose more or less time to a cause than hosts that are
    /// otherwise alike.
    Differs {
        factor: String,
        level: String,
        reference: String,
        cause: String,
        ratio: Ratio,
        hosts: usize,
        beside: usize,
    },
    /// A program makes others wait, mostly in this hour of the day.
    Job { aggressor: String, cgroup: String, hour_of_day: u32, ratio: Ratio, hosts: usize, share_percent: f64 },
    /// Hosts that pushed nothing in the last hours.
    Dark { hosts: Vec<String>, since: String },
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Findings {
    pub found: Vec<Finding>,
    /// Hosts compared, and number of comparisons.
    pub hosts: usize,
    pub comparisons: usize,
    pub notes: Vec<String>,
    #[serde(skip)]
    pub left_out: LeftOut,
}

/// Computes all findings.
#[must_use]
pub fn findings(facts: &Facts) -> Findings {
    let contrasts = contrasts(&by_setup(facts), LEVEL);
    let mut found: Vec<Finding> = contrasts.made.iter().filter_map(differs).collect();
    let (jobs, jobs_compared) = jobs(facts);
    found.extend(jobs);
    found.extend(dark(facts));
    let mut notes = Vec::new();
    if contrasts.too_short > 0 {
        notes.push(format!(
            "{} hosts are not compared: they were observed under one setup for less than three quarters of the usual time",
            contrasts.too_short
        ));
    }
    if facts.waiting > 0 {
        notes.push(super::waiting(facts.waiting));
    }
    let comparisons = contrasts.asked + jobs_compared;
    Findings { found, hosts: contrasts.hosts, comparisons, notes, left_out: facts.left_out.clone() }
}

fn differs(contrast: &Contrast) -> Option<Finding> {
    (contrast.verdict != Verdict::NotProven).then(|| Finding::Differs {
        factor: contrast.factor.clone(),
        level: contrast.level.clone(),
        reference: contrast.reference.clone(),
        cause: contrast.cause.clone(),
        ratio: contrast.ratio,
        hosts: contrast.compared.treated,
        beside: contrast.compared.controls,
    })
}

/// For each hour of the day on one host: the time that an aggressor caused, ns, and the observed time, ms.
type Day = [(f64, f64); 24];

/// How much of the time that hosts lose to other programs one of them causes.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    hosts: usize,
    /// The mean of the shares on each host, so that one host counts as much as any other, whatever it claims.
    mean: f64,
}

/// The programs that are worth a test.
fn shares(facts: &Facts) -> BTreeMap<u32, Share> {
    let mut shares: BTreeMap<u32, Share> = BTreeMap::new();
    let mut hosts = 0_usize;
    for host in facts.hosts.values() {
        let mut own: BTreeMap<u32, f64> = BTreeMap::new();
        for (who, ns) in host.hours.values().flat_map(|hour| &hour.by_aggressor) {
            *own.entry(*who).or_default() += *ns as f64;
        }
        let all: f64 = own.values().sum();
        hosts += usize::from(all > 0.0);
        for (who, ns) in own.into_iter().filter(|(_, ns)| *ns > 0.0) {
            let share = shares.entry(who).or_default();
            share.hosts += 1;
            share.mean += ns / all;
        }
    }
    shares.values_mut().for_each(|share| share.mean /= hosts as f64);
    shares.retain(|_, share| share.mean >= AGGRESSOR_SHARE_MIN && share.hosts >= HOSTS_MIN);
    shares
}

/// The hours of the day of each host that names one of these programs.
fn days(facts: &Facts, wanted: &BTreeMap<u32, Share>) -> BTreeMap<u32, Vec<Day>> {
    let mut days: BTreeMap<u32, Vec<Day>> = BTreeMap::new();
    for host in facts.hosts.values() {
        let mut seen = [0.0; 24];
        let mut own: BTreeMap<u32, [f64; 24]> = BTreeMap::new();
        for (hour, of) in &host.hours {
            seen[of_day(*hour)] += of.observed_ms as f64;
            for (who, ns) in of.by_aggressor.iter().filter(|(who, _)| wanted.contains_key(who)) {
                own.entry(*who).or_insert([0.0; 24])[of_day(*hour)] += *ns as f64;
            }
        }
        for (who, took) in own {
            days.entry(who).or_default().push(std::array::from_fn(|hour| (took[hour], seen[hour])));
        }
    }
    days
}

fn jobs(facts: &Facts) -> (Vec<Finding>, usize) {
    let shares = shares(facts);
    let comparisons = shares.len() * 24;
    let each = 1.0 - (1.0 - LEVEL) / comparisons.max(1) as f64;
    let mut found = Vec::new();
    for (who, days) in days(facts, &shares) {
        let Some(((aggressor, cgroup), share)) = facts.aggressors.get(who as usize).zip(shares.get(&who)) else {
            continue;
        };
        for hour_of_day in 0..24 {
            let Some(ratio) = concentration(&days, hour_of_day, each) else { continue };
            if ratio.low > JOB_RATIO_MIN {
                found.push(Finding::Job {
                    aggressor: aggressor.clone(),
                    cgroup: cgroup.clone(),
                    hour_of_day: hour_of_day as u32,
                    ratio,
                    hosts: share.hosts,
                    share_percent: (1000.0 * share.mean).round() / 10.0,
                });
            }
        }
    }
    (found, comparisons)
}

/// The factor between this hour of the day and the other hours, from each host; whole hosts are resampled.
fn concentration(days: &[Day], hour: usize, level: f64) -> Option<Ratio> {
    let values = days.iter().filter_map(|day| {
        let (took, seen) = *day.get(hour)?;
        let rest = day.iter().enumerate().filter(|(at, _)| *at != hour);
        let (other, other_seen) = rest.fold((0.0, 0.0), |sum, (_, one)| (sum.0 + one.0, sum.1 + one.1));
        let rate = |took: f64, seen_ms: f64| (took / (seen_ms / 1_000.0) + FLOOR_NS).ln();
        // A host that was not observed in this hour contributes nothing.
        (seen > 0.0 && other_seen > 0.0).then(|| rate(took, seen) - rate(other, other_seen))
    });
    let mut values: Vec<f64> = values.collect();
    if values.len() < HOSTS_MIN {
        return None;
    }
    limit_extremes(&mut values);
    let n = values.len() as f64;
    let mut dice = Pcg64::new(hour as u128, 0x6a6f_6273);
    let variance = variance_of(|| resampled(&values, &mut dice));
    let error = (variance * n / (n - 1.0)).sqrt() * error_factor(values.len());
    let reach = quantile_t(n - 3.0, 0.5 + level / 2.0) * error;
    let value = mean(&values);
    Some(Ratio { value: value.exp(), low: (value - reach).exp(), high: (value + reach).exp() })
}

fn dark(facts: &Facts) -> Option<Finding> {
    let last = |host: &super::facts::HostFacts| host.hours.keys().next_back().copied();
    // Counted from the last hour of any other host than the latest one: a gap of the whole store is not a host's fault,
    // and one host whose clock is ahead makes no other dark.
    let mut latest: Vec<i64> = facts.hosts.values().filter_map(last).collect();
    latest.sort_unstable_by_key(|hour| std::cmp::Reverse(*hour));
    let newest = *latest.get(1).or(latest.first())?;
    let since = newest - DARK_HOURS;
    let gone = facts.hosts.iter().filter(|(_, host)| last(host).is_some_and(|last| last <= since));
    let hosts: Vec<String> = gone.map(|(name, _)| name.clone()).collect();
    (!hosts.is_empty())
        .then(|| Finding::Dark { hosts, since: time::sql(flatwater_recording::summary::HourStart::of_hours(since)) })
}

/// One line. Hosts choose the names in it.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Differs { factor, level, reference, cause, ratio, hosts, beside } => write!(
                f,
                "{} {}: {:.2} times the stall time of {} ({:.2} to {:.2}), {hosts} hosts compared with \
                 {beside} similar hosts that have {}",
                line(factor),
                line(level),
                ratio.value,
                line(cause),
                ratio.low,
                ratio.high,
                line(reference)
            ),
            Finding::Job { aggressor, cgroup, hour_of_day, ratio, hosts, share_percent } => write!(
                f,
                "{} ({}) makes {hosts} hosts wait from {hour_of_day:02}:00 to {:02}:00 UTC, {:.1} times as much \
                 as in its other hours ({:.1} to {:.1}); {share_percent} % of the time that a host loses to other \
                 programs, on average",
                line(aggressor),
                line(cgroup),
                (hour_of_day + 1) % 24,
                ratio.value,
                ratio.low,
                ratio.high
            ),
            Finding::Dark { hosts, since } => {
                let named: Vec<_> = hosts.iter().take(5).map(|host| line(host)).collect();
                let more = if hosts.len() > 5 { ", ..." } else { "" };
                write!(
                    f,
                    "{} hosts are dark; they pushed nothing after {since}: {}{more}",
                    hosts.len(),
                    named.join(", ")
                )
            }
        }
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.found {
            writeln!(f, "{finding}")?;
        }
        if self.found.is_empty() {
            writeln!(f, "no finding at 95 %")?;
        }
        writeln!(
            f,
            "\n{} hosts, {} comparisons; the intervals hold for all comparisons together at 95 %",
            self.hosts, self.comparisons
        )?;
        for note in &self.notes {
            writeln!(f, "{note}")?;
        }
        write!(f, "{}", self.left_out)
    }
}
