//! Limits the values of a label. Users choose the names of control groups and programs, and containers come and go.

use std::collections::BTreeMap;

use crate::account::Account;

/// Replaces values beyond the limits.
pub const OTHER: &str = "other";
/// Maximum length of a value, characters. Names of systemd and Kubernetes are shorter.
const VALUE_CHARS_MAX: usize = 200;
/// A value that was not used for this long makes room for a new one.
const IDLE_NS: u64 = 600_000_000_000;

/// The known values of one label, up to `max`. One account has at most a quarter of them.
#[derive(Debug)]
pub struct LabelValues {
    known: BTreeMap<String, (Account, u64)>,
    by_account: BTreeMap<Account, usize>,
    max: usize,
}

/// The value to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Known(String),
    /// A new value, which took the place of one that was idle.
    Replaced {
        value: String,
        dropped: String,
    },
    /// All places are taken.
    Other,
}

impl LabelValues {
    #[must_use]
    pub fn new(max: usize) -> LabelValues {
        LabelValues { known: BTreeMap::new(), by_account: BTreeMap::new(), max }
    }

    /// The value to use for this value of an account.
    pub fn of(&mut self, value: &str, account: &Account, now_ns: u64) -> Value {
        // A user chooses the name of a control group, of any length, and each name is in many lines of every answer.
        let value = match value.char_indices().nth(VALUE_CHARS_MAX) {
            Some((at, _)) => format!("{}...", &value[..at]),
            None => value.to_owned(),
        };
        if let Some((_, used_ns)) = self.known.get_mut(&value) {
            *used_ns = now_ns;
            return Value::Known(value);
        }
        let own = self.count(account);
        let dropped = if own >= self.max.div_ceil(4) {
            self.idle(Some(account), now_ns)
        } else if self.known.len() >= self.max {
            self.idle(None, now_ns)
        } else {
            self.insert(&value, account, now_ns);
            return Value::Known(value);
        };
        let Some(dropped) = dropped else { return Value::Other };
        self.remove(&dropped);
        self.insert(&value, account, now_ns);
        Value::Replaced { value, dropped }
    }

    fn count(&self, account: &Account) -> usize {
        self.by_account.get(account).copied().unwrap_or(0)
    }

    /// An idle value of this account, or of the account that has most of them; the one that was not used for longest.
    fn idle(&self, of: Option<&Account>, now_ns: u64) -> Option<String> {
        let mut found: Option<(usize, u64, &String)> = None;
        for (value, (account, used_ns)) in &self.known {
            if used_ns.saturating_add(IDLE_NS) <= now_ns && of.is_none_or(|of| of == account) {
                let unused_ns = now_ns.saturating_sub(*used_ns);
                found = found.max(Some((self.count(account), unused_ns, value)));
            }
        }
        found.map(|(_, _, value)| value.clone())
    }

    fn insert(&mut self, value: &str, account: &Account, now_ns: u64) {
        *self.by_account.entry(account.clone()).or_default() += 1;
        self.known.insert(value.to_owned(), (account.clone(), now_ns));
    }

    fn remove(&mut self, value: &str) {
        let Some((account, _)) = self.known.remove(value) else { return };
        if let Some(count) = self.by_account.get_mut(&account) {
            *count -= 1;
            if *count == 0 {
                self.by_account.remove(&account);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{IDLE_NS, LabelValues, Value};
    use crate::account::Account;

    fn user(uid: u32) -> Account {
        Account::of("/", Some(uid))
    }

    #[test]
    fn an_idle_value_of_the_account_that_has_most_makes_room() {
        let mut values = LabelValues::new(4);
        let known = |value: &str| Value::Known(value.to_owned());
        assert_eq!(values.of("a", &user(1), 0), known("a"));
        assert_eq!(values.of("b", &user(1), 1), Value::Other, "one of four is its part, and it is in use");
        for uid in 2..5 {
            assert_eq!(values.of(&uid.to_string(), &user(uid), 2), known(&uid.to_string()));
        }
        assert_eq!(values.of("5", &user(5), 3), Value::Other);
        assert_eq!(values.of("a", &user(1), IDLE_NS), known("a"), "used again");
        let replaced = |value: &str, dropped: &str| Value::Replaced { value: value.into(), dropped: dropped.into() };
        assert_eq!(values.of("5", &user(5), IDLE_NS + 2), replaced("5", "4"));
        assert_eq!(values.of("b", &user(1), 2 * IDLE_NS), replaced("b", "a"), "its own");
        assert!(values.known.len() == 4 && values.by_account.len() == 4, "{values:?}");
    }
}
