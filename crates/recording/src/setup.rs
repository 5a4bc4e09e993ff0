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

/// Writing one of a pair clears the other in the kernel (mm/page-writeback.c: dirty_ratio_handler,
/// dirty_bytes_handler), so that a setup with both would mean whichever was written last.
const EXCLUSIVE: [(&str, &str); 2] =
    [("vm.dirty_bytes", "vm.dirty_ratio"), ("vm.dirty_background_bytes", "vm.dirty_background_ratio")];

fn rival(key: &str) -> Option<&'static str> {
    EXCLUSIVE.iter().find_map(|(a, b)| if *a == key { Some(*b) } else { (*b == key).then_some(*a) })
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
        self.put(knob.key, value);
        Ok(())
    }

    /// Takes a value and forgets that of the knob which it clears.
    fn put(&mut self, key: &str, value: String) {
        if value != "0"
            && let Some(cleared) = rival(key)
            && self.get(cleared) != Some("0")
        {
            self.values.remove(cleared);
        }
        self.values.insert(key.to_owned(), value);
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
        change.values.iter().for_each(|(key, value)| both.put(key, value.clone()));
        both
    }

    /// (key, ours, theirs) wherever both are known and differ, or only one has it.
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
    fn a_limit_in_bytes_takes_the_place_of_the_one_in_percent_and_the_other_way_round() {
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
    fn what_a_kernel_shows_is_kept_as_it_is() {
        let mut seen = Setup::default();
        seen.observe("vm.dirty_bytes", "0");
        seen.observe("vm.dirty_ratio", "20");
        assert_eq!(Setup::default().with(&seen).get("vm.dirty_ratio"), Some("20"));
        assert_eq!(Setup::default().with(&seen).get("vm.dirty_bytes"), Some("0"));
    }
}
