//! Parameters of workloads: declared once, checked when a scenario is read, listed by the command line.

use std::collections::BTreeMap;

use super::histogram::{Histogram, Unit};
use flatwater_recording::knob::nearest;
use flatwater_recording::units::{Bytes, Nanos};

/// One declared parameter.
#[derive(Clone, Copy, Debug)]
pub struct ParamSpec {
    pub name: &'static str,
    pub kind: ParamKind,
    /// The default in the user's spelling.
    pub default: &'static str,
    pub sentence: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    Count {
        min: u64,
        max: u64,
    },
    Size {
        min: u64,
        max: u64,
    },
    Duration {
        min_ns: u64,
        max_ns: u64,
    },
    /// Words `VALUE:COUNT`.
    Histogram {
        unit: Unit,
        max: u64,
    },
    /// A share from 0 to 1.
    Share,
    Switch,
    Choice(&'static [&'static str]),
}

/// Adjusts a workload to the size of the machine: `--scale` sets it for all workloads that declare it.
pub const SCALE: ParamSpec = ParamSpec {
    name: "scale",
    kind: ParamKind::Share,
    default: "1",
    sentence: "Multiplies the amounts marked (scaled), so that a case study's size fits a smaller machine.",
};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamError {
    #[error("workload '{workload}' has no parameter '{name}'{}; it takes {}", .nearest.as_ref().map(|n| format!(" (did you mean '{n}'?)")).unwrap_or_default(), .known.join(", "))]
    Unknown { workload: String, name: String, nearest: Option<String>, known: Vec<String> },
    #[error("'{given}' is not a valid value of {workload}.{name}: expected {wanted}")]
    BadValue { workload: String, name: String, given: String, wanted: String },
    #[error("workload '{workload}': {why}")]
    Impossible { workload: String, why: String },
}

/// Checked parameters: each declared one has a value, either given or default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params {
    values: BTreeMap<&'static str, String>,
    /// The units of histograms.
    units: BTreeMap<&'static str, Unit>,
}

impl Params {
    /// Checks the given parameters against the declared ones; parameters that are not given get their defaults.
    pub fn check<'a>(
        workload: &str,
        specs: &'static [ParamSpec],
        given: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Params, ParamError> {
        let mut values: BTreeMap<&'static str, String> =
            specs.iter().map(|spec| (spec.name, spec.default.to_owned())).collect();
        for (name, value) in given {
            let spec = specs.iter().find(|spec| spec.name == name).ok_or_else(|| ParamError::Unknown {
                workload: workload.to_owned(),
                name: name.to_owned(),
                nearest: nearest(name, specs.iter().map(|spec| spec.name)).map(str::to_owned),
                known: specs.iter().map(|spec| spec.name.to_owned()).collect(),
            })?;
            if spec.kind.read(value).is_none() {
                return Err(ParamError::BadValue {
                    workload: workload.to_owned(),
                    name: name.to_owned(),
                    given: value.to_owned(),
                    wanted: spec.kind.wanted(),
                });
            }
            values.insert(spec.name, value.trim().to_owned());
        }
        let unit = |spec: &ParamSpec| match spec.kind {
            ParamKind::Histogram { unit, .. } => Some((spec.name, unit)),
            _ => None,
        };
        Ok(Params { values, units: specs.iter().filter_map(unit).collect() })
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(name, value)| (*name, value.as_str()))
    }

    /// The value of a declared parameter. An undeclared name is a bug in the workload, which its first test finds.
    fn raw(&self, name: &str) -> &str {
        self.values.get(name).unwrap_or_else(|| panic!("parameter '{name}' is not declared by this workload"))
    }

    #[must_use]
    pub fn count(&self, name: &str) -> u64 {
        self.raw(name).parse().unwrap_or_default()
    }

    #[must_use]
    pub fn size_bytes(&self, name: &str) -> u64 {
        self.raw(name).parse::<Bytes>().unwrap_or_default().0
    }

    #[must_use]
    pub fn duration_ns(&self, name: &str) -> u64 {
        self.raw(name).parse::<Nanos>().unwrap_or_default().0
    }

    /// A histogram, in the declared unit.
    #[must_use]
    pub fn histogram(&self, name: &str) -> Histogram {
        let text = self.raw(name);
        let unit = self.units.get(name).copied().unwrap_or(Unit::Count);
        Histogram::parse(text, unit, u64::MAX).unwrap_or_default()
    }

    #[must_use]
    pub fn share(&self, name: &str) -> f64 {
        self.raw(name).parse().unwrap_or_default()
    }

    /// A count multiplied by the workload's `scale`, at least 1.
    #[must_use]
    pub fn scaled_count(&self, name: &str) -> u64 {
        scaled(self.count(name), self.share(SCALE.name))
    }

    /// A size multiplied by the workload's `scale`, at least 1 byte.
    #[must_use]
    pub fn scaled_size_bytes(&self, name: &str) -> u64 {
        scaled(self.size_bytes(name), self.share(SCALE.name))
    }

    #[must_use]
    pub fn switch(&self, name: &str) -> bool {
        matches!(self.raw(name), "true" | "on" | "1" | "yes")
    }

    #[must_use]
    pub fn choice(&self, name: &str) -> &str {
        self.raw(name)
    }
}

fn scaled(amount: u64, scale: f64) -> u64 {
    if scale >= 1.0 { amount.max(1) } else { ((amount as f64 * scale).round() as u64).max(1) }
}

impl ParamKind {
    /// `Some` if the text is a valid value of this kind.
    fn read(self, text: &str) -> Option<()> {
        let text = text.trim();
        let fits = match self {
            ParamKind::Count { min, max } => text.parse::<u64>().is_ok_and(|n| (min..=max).contains(&n)),
            ParamKind::Size { min, max } => text.parse::<Bytes>().is_ok_and(|n| (min..=max).contains(&n.0)),
            ParamKind::Duration { min_ns, max_ns } => {
                text.parse::<Nanos>().is_ok_and(|n| (min_ns..=max_ns).contains(&n.0))
            }
            ParamKind::Histogram { unit, max } => Histogram::parse(text, unit, max).is_some(),
            ParamKind::Share => text.parse::<f64>().is_ok_and(|share| (0.0..=1.0).contains(&share)),
            ParamKind::Switch => ["true", "false", "on", "off", "1", "0", "yes", "no"].contains(&text),
            ParamKind::Choice(choices) => choices.contains(&text),
        };
        fits.then_some(())
    }

    /// The accepted values, in words.
    #[must_use]
    pub fn wanted(self) -> String {
        match self {
            ParamKind::Count { min, max } => format!("a whole number from {min} to {max}"),
            ParamKind::Size { min, max } => format!("a size from {} to {}", Bytes(min), Bytes(max)),
            ParamKind::Duration { min_ns, max_ns } => format!("a duration from {} to {}", Nanos(min_ns), Nanos(max_ns)),
            ParamKind::Histogram { unit, max } => {
                let example = match unit {
                    Unit::Count => "16:3",
                    Unit::Bytes => "4KiB:3",
                    Unit::Time => "500us:3",
                };
                format!("words VALUE:COUNT such as {example}, with values up to {max}")
            }
            ParamKind::Share => "a share from 0 to 1".to_owned(),
            ParamKind::Switch => "true or false".to_owned(),
            ParamKind::Choice(choices) => format!("one of {}", choices.join(", ")),
        }
    }
}
