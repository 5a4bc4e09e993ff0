//! Judges a rollout: changed hosts before and after, compared with unchanged hosts of the same stratum.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use flatwater_experiment::verdict::{Ratio, Verdict};
use flatwater_recording::printable;
use flatwater_recording::summary::{HourStart, SummaryRow};
use serde::Serialize;

use super::facts::{Config, Facts};
use super::hosts::HostSums;
use super::strata::{Compared, HOSTS_MIN, Host, compare, limit_extremes, mean};
use crate::left_out::LeftOut;
use crate::{FleetError, time};

/// The change to judge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    Kernel {
        to: Option<String>,
    },
    /// A column of `SummaryRow::SETTINGS`.
    Setting {
        column: &'static str,
        to: Option<String>,
    },
    /// These hosts, whatever the change was.
    Hosts(BTreeSet<String>),
}

impl Changed {
    /// Parses `vm.zone_reclaim_mode`, `vm_dirty_bytes=268435456`, `kernel=6.12.9`, or a file with one host per line.
    pub fn parse(given: &str) -> Result<Changed, FleetError> {
        let (name, to) = given.split_once('=').map_or((given, None), |(name, to)| (name, Some(to.to_owned())));
        if name == "kernel" {
            return Ok(Changed::Kernel { to });
        }
        let column = name.replace('.', "_");
        if let Some(column) = SummaryRow::SETTINGS.iter().find(|known| **known == column) {
            return Ok(Changed::Setting { column, to });
        }
        let path = Path::new(given);
        if !path.is_file() {
            let known = SummaryRow::SETTINGS.join(", ");
            let why = format!("'{given}' is neither a file of hosts nor one of: kernel, {known}");
            return Err(FleetError::Usage(why));
        }
        let text = std::fs::read_to_string(path).map_err(FleetError::file(path))?;
        let hosts = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        Ok(Changed::Hosts(hosts.map(str::to_owned).collect()))
    }

    /// The value in this setup that the change concerns.
    fn value(&self, config: &Config) -> String {
        match self {
            Changed::Setting { column, .. } => {
                let place = SummaryRow::SETTINGS.iter().position(|known| known == column);
                place.and_then(|place| config.settings.get(place)).cloned().unwrap_or_default()
            }
            Changed::Kernel { .. } | Changed::Hosts(_) => config.kernel.clone(),
        }
    }

    fn shown(&self) -> String {
        let to = |to: &Option<String>| to.as_ref().map_or(String::new(), |to| format!(" to {to}"));
        match self {
            Changed::Kernel { to: value } => format!("kernel changed{}", to(value)),
            Changed::Setting { column, to: value } => format!("{column} changed{}", to(value)),
            Changed::Hosts(hosts) => format!("{} hosts of the list changed", hosts.len()),
        }
    }
}

/// The result for one cause, or for all causes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    pub cause: Option<String>,
    /// The ratio of after to before on changed hosts, divided by the same ratio on the others: 0.5 is half the stall
    /// time.
    pub ratio: Ratio,
    pub verdict: Verdict,
    /// Means of stall time per observed hour, ms; the most extreme host at each end is limited to the next one.
    pub changed_before: f64,
    pub changed_after: f64,
    pub others_before: f64,
    pub others_after: f64,
}

/// The verdict on a rollout, and the data that it is based on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rollout {
    pub what: String,
    pub at: String,
    pub hours_before: i64,
    pub hours_after: i64,
    /// Changed hosts and others that are compared, and their strata of kernel and shape.
    pub changed: usize,
    pub others: usize,
    pub strata: usize,
    /// Changed hosts without others of the same kernel and shape; they are left out.
    pub without_control: usize,
    /// Hosts that were not observed before, or not after.
    pub not_observed: usize,
    /// Hosts that changed at another time, or to another value.
    pub otherwise: usize,
    /// Host-hours before and after, of the compared hosts, without observation.
    pub hours_not_observed: f64,
    pub total: Option<Line>,
    /// By cause; the intervals hold for all causes together.
    pub by_cause: Vec<Line>,
    pub notes: Vec<String>,
    #[serde(skip)]
    pub left_out: LeftOut,
}

#[derive(Clone, Debug, Default)]
struct Side {
    sums: HostSums,
    low: String,
    high: String,
    kernel: String,
    shape: String,
}

/// Before and after.
type Pair = [Option<Side>; 2];

/// Judges a change at this hour. The range of the facts must be the time before and after together.
#[must_use]
pub fn rollout(facts: &Facts, changed: &Changed, at: HourStart) -> Rollout {
    let mut sorted = Sorted::default();
    for (name, host) in &facts.hosts {
        let mut pair: Pair = [None, None];
        for (hour, of) in host.hours.iter().filter(|(_, of)| of.observed_ms > 0) {
            let Some(config) = facts.config(of) else { continue };
            let side = pair[usize::from(*hour >= at.hours())].get_or_insert_with(|| Side::new(changed, config));
            side.high = side.high.clone().max(changed.value(config));
            side.low = side.low.clone().min(changed.value(config));
            side.sums.add(facts, of);
        }
        sorted.take(changed, name, pair);
    }
    let (before, after) = (at.hours() - facts.range.from.hours(), facts.range.to.hours() - at.hours());
    sorted.judged(changed, at, (before, after), facts.left_out.clone())
}

impl Side {
    fn new(changed: &Changed, config: &Config) -> Side {
        let value = changed.value(config);
        Side {
            sums: HostSums::default(),
            low: value.clone(),
            high: value,
            kernel: config.kernel.clone(),
            shape: config.shape.clone(),
        }
    }
}

#[derive(Default)]
struct Sorted {
    hosts: Vec<(String, bool, Side, Side)>,
    not_observed: usize,
    otherwise: usize,
}

impl Sorted {
    fn take(&mut self, changed: &Changed, host: &str, [before, after]: Pair) {
        let (Some(before), Some(after)) = (before, after) else {
            self.not_observed += 1;
            return;
        };
        let steady = before.low == before.high && after.low == after.high;
        let is_changed = match changed {
            Changed::Hosts(hosts) => Some(hosts.contains(host)),
            Changed::Kernel { to } | Changed::Setting { to, .. } => match (steady, before.low == after.low) {
                (false, _) => None,
                (true, true) => Some(false),
                (true, false) => to.as_ref().is_none_or(|to| *to == after.low).then_some(true),
            },
        };
        let Some(is_changed) = is_changed else {
            self.otherwise += 1;
            return;
        };
        // A stratum has the same kernel, shape and previous value of the changed property.
        let stratum = [before.kernel.as_str(), &before.shape, &before.low].join("\u{1f}");
        self.hosts.push((stratum, is_changed, before, after));
    }

    fn compare(&self, cause: Option<&str>, level: f64) -> Option<(Line, Compared)> {
        let hosts = self.hosts.iter().map(|(stratum, treated, before, after)| Host {
            stratum: stratum.clone(),
            treated: *treated,
            value: after.sums.log_rate(cause) - before.sums.log_rate(cause),
        });
        let seed = u64::from(crc32fast::hash(cause.unwrap_or("all").as_bytes()));
        let compared = compare(&hosts.collect::<Vec<_>>(), level, seed)?;
        let mean_of = |treated: bool, side: fn(&(String, bool, Side, Side)) -> &Side| {
            let mut of: Vec<f64> = self
                .hosts
                .iter()
                .filter(|host| host.1 == treated)
                .map(|host| per_hour(&side(host).sums, cause))
                .collect();
            limit_extremes(&mut of);
            mean(&of)
        };
        let line = Line {
            cause: cause.map(str::to_owned),
            ratio: Ratio::of(&compared.difference),
            verdict: Verdict::of(&compared.difference, true),
            changed_before: mean_of(true, |host| &host.2),
            changed_after: mean_of(true, |host| &host.3),
            others_before: mean_of(false, |host| &host.2),
            others_after: mean_of(false, |host| &host.3),
        };
        Some((line, compared))
    }

    /// The causes on enough hosts, and the number of the others. Each cause widens the intervals of all.
    fn causes(&self) -> (BTreeSet<String>, usize) {
        let mut hosts: BTreeMap<&String, usize> = BTreeMap::new();
        for (_, _, before, after) in &self.hosts {
            let own: BTreeSet<&String> = before.sums.by_cause.keys().chain(after.sums.by_cause.keys()).collect();
            own.into_iter().for_each(|cause| *hosts.entry(cause).or_default() += 1);
        }
        let all = hosts.len();
        let causes: BTreeSet<String> =
            hosts.into_iter().filter(|(_, hosts)| *hosts >= HOSTS_MIN).map(|(cause, _)| cause.clone()).collect();
        let too_rare = all - causes.len();
        (causes, too_rare)
    }

    fn judged(self, changed: &Changed, at: HourStart, (before, after): (i64, i64), left_out: LeftOut) -> Rollout {
        let (causes, too_rare) = self.causes();
        let each = 1.0 - 0.05 / causes.len().max(1) as f64;
        let by_cause = causes.iter().filter_map(|cause| self.compare(Some(cause), each).map(|(line, _)| line));
        let mut by_cause: Vec<Line> = by_cause.collect();
        by_cause.sort_by(|one, other| other.changed_before.total_cmp(&one.changed_before));
        let total = self.compare(None, 0.95);
        let possible_ms = self.hosts.len() as f64 * (before + after) as f64 * 3_600_000.0;
        let seen_ms: f64 = self.hosts.iter().map(|host| host.2.sums.observed_ms + host.3.sums.observed_ms).sum();
        let mut notes = Vec::new();
        if total.is_none() {
            notes.push(
                "nothing is compared: too few changed hosts, or too few others of the same kernel and shape".into(),
            );
        }
        if too_rare > 0 {
            notes.push(format!("{too_rare} causes are not compared: they occur on fewer than {HOSTS_MIN} hosts"));
        }
        if before % 24 != 0 || after % 24 != 0 {
            notes.push("before and after are not whole days; the comparison with other hosts in the same hours corrects for that".into());
        }
        let count = |treated: bool| self.hosts.iter().filter(|host| host.1 == treated).count();
        let (line, compared) = total.map_or((None, None), |(line, compared)| (Some(line), Some(compared)));
        Rollout {
            what: changed.shown(),
            at: time::sql(at),
            hours_before: before,
            hours_after: after,
            changed: compared.as_ref().map_or_else(|| count(true), |one| one.treated),
            others: compared.as_ref().map_or_else(|| count(false), |one| one.controls),
            strata: compared.as_ref().map_or(0, |one| one.strata),
            without_control: compared.as_ref().map_or(0, |one| one.without_control),
            not_observed: self.not_observed,
            otherwise: self.otherwise,
            hours_not_observed: ((possible_ms - seen_ms) / 3_600_000.0).max(0.0).round(),
            total: line,
            by_cause,
            notes,
            left_out,
        }
    }
}

/// Stall time per observed hour, ms.
fn per_hour(sums: &HostSums, cause: Option<&str>) -> f64 {
    sums.stall_ns(cause) / 1e6 / (sums.observed_ms / 3_600_000.0)
}

impl std::fmt::Display for Rollout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let verdict = self.total.as_ref().map_or(Verdict::NotProven, |line| line.verdict);
        writeln!(
            f,
            "{}: {} at {}, {} h before and {} h after",
            verdict.name(),
            printable::line(&self.what),
            self.at,
            self.hours_before,
            self.hours_after
        )?;
        writeln!(
            f,
            "{} changed hosts, compared with {} others of the same kernel and shape ({} strata)\n",
            self.changed, self.others, self.strata
        )?;
        writeln!(
            f,
            "{:<22} {:>10}  {:<19} {:<10}  ms/h changed, others",
            "stall time of", "after", "interval", "verdict"
        )?;
        for line in self.total.iter().chain(&self.by_cause) {
            let name = printable::line(line.cause.as_deref().unwrap_or("all causes"));
            let Ratio { value, low, high } = line.ratio;
            writeln!(
                f,
                "{name:<22} {:>9}x  {:<19} {:<10}  {:.1} -> {:.1}, {:.1} -> {:.1}",
                format!("{value:.2}"),
                format!("{low:.2} to {high:.2}"),
                line.verdict.name(),
                line.changed_before,
                line.changed_after,
                line.others_before,
                line.others_after
            )?;
        }
        writeln!(
            f,
            "\nnot observed: {} host-hours of these hosts; {} hosts were not observed before or not after; {} changed at \
             another time or to another value; {} changed hosts had no similar host to compare with",
            self.hours_not_observed, self.not_observed, self.otherwise, self.without_control
        )?;
        for note in &self.notes {
            writeln!(f, "{note}")?;
        }
        write!(f, "{}", self.left_out)
    }
}
