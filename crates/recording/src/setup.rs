//! The settings of a machine: values of knobs. A fix is a function from Setup to Setup.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::knob::{self, KnobError};

/// Knob key -> value in the kernel's spelling. The keys are those of `KNOBS`; a knob that the machine lacks is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Setup {
    values: BTreeMap<String, String>,
}

/// In the kernel, writing one of a pair clears the other (mm/page-writeback.c: dirty_ratio_handler,
/// dirty_bytes_handler), so the effect of a setup with both would depend on the order of the writes.
const EXCLUSIVE: [(&str, &str); 2] =
    [("vm.dirty_bytes", "vm.dirty_ratio"), ("vm.dirty_background_bytes", "vm.dirty_background_ratio")];

fn rival(key: &str) -> Option<&'static str> {
    EXCLUSIVE.iter().find_map(|(a, b)| if *a == key { Some(*b) } else { (*b == key).then_some(*a) })
}

impl Setup {
    /// The value of a setting.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    /// The value as a number; sizes are in the unit of the knob.
    #[must_use]
    pub fn number(&self, key: &str) -> Option<i64> {
        self.get(key)?.split_whitespace().next()?.parse().ok()
    }

    /// Sets a value in the user's spelling (`64MiB`, `on`): checks it against the knob's range and converts it to the
    /// kernel's spelling.
    pub fn set(&mut self, key: &str, given: &str) -> Result<(), KnobError> {
        let knob = knob::find(key)?;
        let value = knob.parse(given)?;
        self.put(knob.key, value);
        Ok(())
    }

    /// Sets a value, and removes the value of the knob that it clears.
    fn put(&mut self, key: &str, value: String) {
        if value != "0"
            && let Some(cleared) = rival(key)
            && self.get(cleared) != Some("0")
        {
            self.values.remove(cleared);
        }
        self.values.insert(key.to_owned(), value);
    }

    /// Stores a value as read from the kernel, without checks: a kernel may have values that flatwater does not know.
    pub fn observe(&mut self, key: &str, value: &str) {
        self.values.insert(key.to_owned(), value.trim().to_owned());
    }

    /// All settings with their values, ordered by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Whether it has no settings.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// This setup, overridden by the values of `change`.
    #[must_use]
    pub fn with(&self, change: &Setup) -> Setup {
        let mut both = self.clone();
        change.values.iter().for_each(|(key, value)| both.put(key, value.clone()));
        both
    }

    /// (key, own value, other value) for each key whose value differs or that only one setup contains.
    #[must_use]
    pub fn difference<'a>(&'a self, other: &'a Setup) -> Vec<(&'a str, Option<&'a str>, Option<&'a str>)> {
        let keys: std::collections::BTreeSet<&str> = self.iter().chain(other.iter()).map(|(key, _)| key).collect();
        keys.into_iter().map(|key| (key, self.get(key), other.get(key))).filter(|(_, a, b)| a != b).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Setup;

    #[test]
    fn a_limit_in_bytes_replaces_the_one_in_percent_and_vice_versa() {
        let mut base = Setup::default();
        base.set("vm.dirty_ratio", "20").expect("a knob");
        base.set("vm.swappiness", "10").expect("a knob");
        let mut fix = Setup::default();
        fix.set("vm.dirty_bytes", "8MiB").expect("a knob");
        let fixed = base.with(&fix);
        assert_eq!((fixed.get("vm.dirty_bytes"), fixed.get("vm.dirty_ratio")), (Some("8388608"), None));
        assert_eq!(fixed.get("vm.swappiness"), Some("10"));
        assert_eq!(fixed.with(&base).get("vm.dirty_bytes"), None);
    }

    #[test]
    fn observed_values_are_kept_unchanged() {
        let mut seen = Setup::default();
        seen.observe("vm.dirty_bytes", "0");
        seen.observe("vm.dirty_ratio", "20");
        assert_eq!(Setup::default().with(&seen).get("vm.dirty_ratio"), Some("20"));
        assert_eq!(Setup::default().with(&seen).get("vm.dirty_bytes"), Some("0"));
    }
}
