//! The settings of a machine: which knob has which value. A fix is a function from Setup to Setup.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::knob::{self, KnobError};

/// Knob key -> value in the kernel's own spelling. Keys are those of `KNOBS`; a knob that does not exist on
/// the machine is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Setup {
    values: BTreeMap<String, String>,
}

impl Setup {
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    /// The value as a number; sizes in the unit of the knob.
    #[must_use]
    pub fn number(&self, key: &str) -> Option<i64> {
        self.get(key)?.split_whitespace().next()?.parse().ok()
    }

    /// Takes a value as a user wrote it (`64MiB`, `on`), checked against the knob's range and brought into
    /// the kernel's spelling.
    pub fn set(&mut self, key: &str, given: &str) -> Result<(), KnobError> {
        let knob = knob::find(key)?;
        let value = knob.parse(given)?;
        self.values.insert(knob.key.to_owned(), value);
        Ok(())
    }

    /// As read from the kernel: kept without checks, since a kernel may know values that we do not.
    pub fn observe(&mut self, key: &str, value: &str) {
        self.values.insert(key.to_owned(), value.trim().to_owned());
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// This setup with the other's values over it.
    #[must_use]
    pub fn with(&self, change: &Setup) -> Setup {
        let mut both = self.clone();
        both.values.extend(change.values.clone());
        both
    }

    /// (key, ours, theirs) wherever both are known and differ, or only one has it.
    #[must_use]
    pub fn difference<'a>(&'a self, other: &'a Setup) -> Vec<(&'a str, Option<&'a str>, Option<&'a str>)> {
        let keys: std::collections::BTreeSet<&str> = self.iter().chain(other.iter()).map(|(key, _)| key).collect();
        keys.into_iter().map(|key| (key, self.get(key), other.get(key))).filter(|(_, a, b)| a != b).collect()
    }
}
