//! Compares kernels and settings by stall time: hosts that differ in one of them and are alike in everything else that
//! is known.

use std::collections::{BTreeMap, BTreeSet};

use flatwater_experiment::verdict::{Ratio, Verdict};
use flatwater_recording::summary::SummaryRow;

use super::facts::Config;
use super::hosts::HostSums;
use super::strata::{Compared, HOSTS_MIN, Host, compare};

/// Minimum observed time of a host, as a share of the upper quartile of all hosts. Part of a day is a different mixture
/// of hours. A single host that was observed longer must not make all others too short.
const OBSERVED_SHARE_MIN: f64 = 0.75;

/// For one cause, one level of a factor compared with the level that most hosts have.
#[derive(Clone, Debug, PartialEq)]
pub struct Contrast {
    /// `kernel`, or the column of a setting.
    pub factor: String,
    pub level: String,
    pub reference: String,
    pub cause: String,
    pub compared: Compared,
    pub ratio: Ratio,
    pub verdict: Verdict,
}

/// All comparisons made, and the hosts left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contrasts {
    pub made: Vec<Contrast>,
    /// Number of comparisons intended. Each interval is widened by it, so that all of them together are wrong in one of
    /// twenty fleets.
    pub asked: usize,
    pub hosts: usize,
    /// Hosts that were observed for too short a time.
    pub too_short: usize,
}

type Known = BTreeMap<String, (Config, HostSums)>;

/// One comparison: the factor, its index among the settings, the level and the reference.
struct Asked {
    factor: &'static str,
    place: Option<usize>,
    level: String,
    reference: String,
}

fn value_of(config: &Config, place: Option<usize>) -> &str {
    match place {
        None => &config.kernel,
        Some(place) => config.settings.get(place).map_or("", String::as_str),
    }
}

/// Everything that is known of a host except the factor: hosts of a stratum are alike in it.
fn stratum(config: &Config, place: Option<usize>) -> String {
    let settings = config.settings.iter().enumerate().filter(|(at, _)| Some(*at) != place);
    let mut parts: Vec<&str> = settings.map(|(_, value)| value.as_str()).collect();
    if place.is_some() {
        parts.push(&config.kernel);
    }
    parts.push(&config.shape);
    parts.join("\u{1f}")
}

/// Compares kernels and settings, for each cause. `level` (0.95) is the confidence of all comparisons together.
#[must_use]
pub fn contrasts(all: &Known, level: f64) -> Contrasts {
    let mut observed: Vec<f64> = all.values().map(|(_, sums)| sums.observed_ms).collect();
    observed.sort_unstable_by(f64::total_cmp);
    let quartile = observed.get(observed.len() * 3 / 4).copied().unwrap_or(0.0);
    let hosts: Vec<&(Config, HostSums)> =
        all.values().filter(|(_, sums)| sums.observed_ms >= OBSERVED_SHARE_MIN * quartile).collect();
    let causes = causes(&hosts);
    let asked = questions(&hosts);
    let count = asked.len() * causes.len();
    let each = 1.0 - (1.0 - level) / count.max(1) as f64;
    let mut made = Vec::new();
    for one in &asked {
        let compared = hosts.iter().filter_map(|(config, sums)| {
            let value = value_of(config, one.place);
            let treated = value == one.level;
            (treated || value == one.reference).then(|| (stratum(config, one.place), treated, sums))
        });
        let arms: Vec<_> = compared.collect();
        for cause in &causes {
            let of = |(stratum, treated, sums): &(String, bool, &HostSums)| Host {
                stratum: stratum.clone(),
                treated: *treated,
                value: sums.log_rate(Some(cause)),
            };
            let hosts: Vec<Host> = arms.iter().map(of).collect();
            let seed = u64::from(crc32fast::hash(format!("{}={}:{cause}", one.factor, one.level).as_bytes()));
            let Some(compared) = compare(&hosts, each, seed) else { continue };
            made.push(Contrast {
                factor: one.factor.to_owned(),
                level: one.level.clone(),
                reference: one.reference.clone(),
                cause: cause.clone(),
                ratio: Ratio::of(&compared.difference),
                verdict: Verdict::of(&compared.difference, true),
                compared,
            });
        }
    }
    Contrasts { made, asked: count, hosts: hosts.len(), too_short: all.len() - hosts.len() }
}

/// The causes on enough hosts.
fn causes(hosts: &[&(Config, HostSums)]) -> BTreeSet<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, sums) in hosts {
        for cause in sums.by_cause.keys() {
            *counts.entry(cause).or_default() += 1;
        }
    }
    counts.into_iter().filter(|(_, hosts)| *hosts >= HOSTS_MIN).map(|(cause, _)| cause.to_owned()).collect()
}

/// Each level that enough hosts have, with the one that most hosts have as the reference.
fn questions(hosts: &[&(Config, HostSums)]) -> Vec<Asked> {
    let factors = std::iter::once(("kernel", None))
        .chain(SummaryRow::SETTINGS.iter().enumerate().map(|(place, name)| (*name, Some(place))));
    let mut asked = Vec::new();
    for (factor, place) in factors {
        let mut levels: BTreeMap<&str, usize> = BTreeMap::new();
        for (config, _) in hosts {
            *levels.entry(value_of(config, place)).or_default() += 1;
        }
        // A value that was not recorded is not a level.
        levels.remove("");
        let Some((reference, _)) = levels.iter().max_by_key(|(_, hosts)| **hosts) else { continue };
        let reference = (*reference).to_owned();
        for (level, hosts) in levels {
            if hosts >= HOSTS_MIN && level != reference {
                asked.push(Asked { factor, place, level: level.to_owned(), reference: reference.clone() });
            }
        }
    }
    asked
}
