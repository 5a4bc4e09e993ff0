//! The stall time of each host by cause: the figures that are compared.

use std::collections::BTreeMap;

use super::facts::{Config, Facts, HostFacts, HourFacts};

/// Added to stall time per second before its logarithm, ns. Less than this is irrelevant, and a ratio to zero would be
/// infinite. It is a tenth of what `compare` of two recordings uses, since most hours of a fleet are quiet.
pub const FLOOR_NS: f64 = 10_000.0;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostSums {
    pub observed_ms: f64,
    pub by_cause: BTreeMap<String, f64>,
}

impl HostSums {
    /// The logarithm of stall time per observed second, ns, plus the floor.
    #[must_use]
    pub fn log_rate(&self, cause: Option<&str>) -> f64 {
        (self.stall_ns(cause) / (self.observed_ms / 1_000.0) + FLOOR_NS).ln()
    }

    /// Stall time of one cause, or of all causes, ns.
    #[must_use]
    pub fn stall_ns(&self, cause: Option<&str>) -> f64 {
        match cause {
            Some(cause) => self.by_cause.get(cause).copied().unwrap_or(0.0),
            None => self.by_cause.values().sum(),
        }
    }

    pub fn add(&mut self, facts: &Facts, hour: &HourFacts) {
        self.observed_ms += hour.observed_ms as f64;
        for (cause, ns) in &hour.by_cause {
            if let Some(name) = facts.causes.get(*cause as usize) {
                *self.by_cause.entry(name.clone()).or_default() += *ns as f64;
            }
        }
    }
}

/// Each host with the setup that it had for most of the range. Hours under another setup are left out; `rollout`
/// compares those.
#[must_use]
pub fn by_setup(facts: &Facts) -> BTreeMap<String, (Config, HostSums)> {
    let longest = |host: &HostFacts| {
        let mut by_config: BTreeMap<u32, HostSums> = BTreeMap::new();
        for hour in host.hours.values().filter(|hour| hour.observed_ms > 0) {
            by_config.entry(hour.config).or_default().add(facts, hour);
        }
        let most = by_config.into_iter().max_by(|(_, one), (_, other)| one.observed_ms.total_cmp(&other.observed_ms));
        most.and_then(|(config, sums)| Some((facts.configs.get(config as usize)?.clone(), sums)))
    };
    facts.hosts.iter().filter_map(|(name, host)| Some((name.clone(), longest(host)?))).collect()
}
