//! The look-back: the last minute in memory, so that a recording includes what led to its trigger.
//!
//! It is limited by age and by bytes. Above the bytes, an account that fills more than a quarter of them loses its
//! oldest calls first; only then are the oldest seconds dropped. A recording that lacks a part that was dropped before
//! its age has a gap.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use flatwater_recording::Gap;
use flatwater_recording::units::{Bytes, Nanos};

use crate::account::Account;
use crate::second::Second;

#[derive(Debug)]
pub struct LookBack {
    span_ns: u64,
    /// The configured limit, and the limit in force, which `halve` lowers.
    bytes_configured: usize,
    bytes_max: usize,
    seconds: VecDeque<Stored>,
    bytes: usize,
    by_account: BTreeMap<Account, usize>,
    /// The end of the newest second that was dropped for its size before its age.
    pushed_out_ns: Option<u64>,
    /// Accounts whose calls were dropped, with the end of the newest second without them, and the number of calls.
    shed: BTreeMap<Account, (u64, usize)>,
}

#[derive(Debug)]
struct Stored {
    bytes: usize,
    by_account: BTreeMap<Account, usize>,
    second: Arc<Second>,
}

impl Stored {
    fn new(second: Arc<Second>) -> Stored {
        Stored { bytes: second.bytes(), by_account: second.bytes_by_account(), second }
    }
}

const BYTES_MIN: usize = 1 << 20;
/// An account that fills more than this part of the bytes loses calls before seconds are dropped.
const ACCOUNT_PART: usize = 4;

impl LookBack {
    #[must_use]
    pub fn new(span_ns: u64, bytes_max: u64) -> LookBack {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        LookBack {
            span_ns,
            bytes_configured: bytes_max,
            bytes_max,
            seconds: VecDeque::new(),
            bytes: 0,
            by_account: BTreeMap::new(),
            pushed_out_ns: None,
            shed: BTreeMap::new(),
        }
    }

    /// Adds a second, and drops seconds that are too old or beyond the limit of bytes.
    pub fn push(&mut self, second: Arc<Second>) {
        let now_ns = second.end_ns;
        let stored = Stored::new(second);
        self.bytes += stored.bytes;
        for (account, bytes) in &stored.by_account {
            *self.by_account.entry(account.clone()).or_default() += bytes;
        }
        self.seconds.push_back(stored);
        let span_ns = self.span_ns;
        while self.seconds.front().is_some_and(|oldest| oldest.second.end_ns.saturating_add(span_ns) < now_ns) {
            self.drop_oldest();
        }
        self.shed.retain(|_, (end_ns, _)| end_ns.saturating_add(span_ns) >= now_ns);
        // The newest second stays, however large: a trigger refers to it.
        while self.bytes > self.bytes_max && self.seconds.len() > 1 {
            if !self.shed_largest() {
                self.pushed_out_ns = self.seconds.front().map(|oldest| oldest.second.end_ns);
                self.drop_oldest();
            }
        }
    }

    fn drop_oldest(&mut self) {
        let Some(oldest) = self.seconds.pop_front() else { return };
        self.bytes -= oldest.bytes;
        for (account, bytes) in oldest.by_account {
            self.subtract(&account, bytes);
        }
    }

    fn subtract(&mut self, account: &Account, bytes: usize) {
        let Some(sum) = self.by_account.get_mut(account) else { return };
        *sum = sum.saturating_sub(bytes);
        if *sum == 0 {
            self.by_account.remove(account);
        }
    }

    /// Drops the oldest calls of the account that fills most, if that is more than its part. Returns whether it did.
    fn shed_largest(&mut self) -> bool {
        let Some((account, bytes)) = self.by_account.iter().max_by_key(|(_, bytes)| **bytes) else { return false };
        if *bytes <= self.bytes_max / ACCOUNT_PART {
            return false;
        }
        let account = account.clone();
        let before_newest = self.seconds.len() - 1;
        let mut older = self.seconds.iter_mut().take(before_newest);
        let Some(stored) = older.find(|stored| stored.by_account.contains_key(&account)) else {
            return false;
        };
        let calls = Arc::make_mut(&mut stored.second).shed(&account);
        let shed = self.shed.entry(account.clone()).or_default();
        *shed = (stored.second.end_ns, shed.1 + calls);
        let bytes = stored.second.bytes();
        self.bytes -= stored.bytes.saturating_sub(bytes);
        stored.bytes = bytes;
        let of_account = stored.by_account.remove(&account).unwrap_or(0);
        self.subtract(&account, of_account);
        true
    }

    /// Sets new limits, in force from the next second on.
    pub fn set_limits(&mut self, span_ns: u64, bytes_max: u64) {
        self.span_ns = span_ns;
        self.bytes_configured = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        self.bytes_max = self.bytes_configured;
    }

    /// Halves the limit of bytes from the next second on, down to `BYTES_MIN`. Returns whether it was above that.
    pub fn halve(&mut self) -> bool {
        let before = self.bytes_max;
        self.bytes_max = (before / 2).max(BYTES_MIN);
        self.bytes_max < before
    }

    /// Doubles the limit of bytes, up to the configured one.
    pub fn double(&mut self) {
        self.bytes_max = self.bytes_max.saturating_mul(2).min(self.bytes_configured);
    }

    /// The limit of bytes in force, if it was halved.
    #[must_use]
    pub fn halved_to(&self) -> Option<u64> {
        (self.bytes_max < self.bytes_configured).then_some(self.bytes_max as u64)
    }

    pub fn seconds(&self) -> impl DoubleEndedIterator<Item = &Second> {
        self.seconds.iter().map(|stored| &*stored.second)
    }

    /// The start of the oldest second; `None` if there is none.
    #[must_use]
    pub fn start_ns(&self) -> Option<u64> {
        self.seconds.front().map(|stored| stored.second.start_ns)
    }

    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The gaps of a recording that begins now: the time that was dropped, and the calls of accounts that filled the
    /// look-back.
    #[must_use]
    pub fn missing(&self) -> Vec<Gap> {
        let newest_ns = self.seconds.back().map_or(0, |stored| stored.second.end_ns);
        let limit = Bytes(self.bytes_max as u64);
        let remedy = match self.halved_to() {
            Some(_) => "raise budget.rss, which has halved the look-back, or threshold",
            None => "raise budget.look_back, or threshold",
        };
        let of_account = |(account, (end_ns, calls)): (&Account, &(u64, usize))| {
            let what = format!("{calls} slow calls of {}", account.as_str());
            let ago = Nanos(newest_ns.saturating_sub(*end_ns));
            let why =
                format!("this account filled the look-back of {limit}: its calls until {ago} before were dropped");
            Gap::new(what, why, remedy)
        };
        self.missing_time(limit, remedy).into_iter().chain(self.shed.iter().map(of_account)).collect()
    }

    fn missing_time(&self, limit: Bytes, remedy: &'static str) -> Option<Gap> {
        let from_ns = self.start_ns()?;
        let pushed_out_ns = self.pushed_out_ns.filter(|end_ns| *end_ns <= from_ns)?;
        let newest_ns = self.seconds.back().map_or(from_ns, |stored| stored.second.end_ns);
        let wanted_ns = newest_ns.saturating_sub(self.span_ns);
        (pushed_out_ns > wanted_ns).then(|| {
            let kept = Nanos(newest_ns.saturating_sub(from_ns));
            Gap::new("the time before that", format!("the look-back is limited to {limit}, enough for {kept}"), remedy)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{ACCOUNT_PART, LookBack};
    use crate::account::Account;
    use crate::owner::Owner;
    use crate::second::{OwnedCall, Second};
    use crate::sight::tests::call;

    const S: u64 = 1_000_000_000;

    fn calls_of(group: &str, at_s: u64, calls: usize) -> impl Iterator<Item = OwnedCall> {
        let owner = Owner { cgroup: group.into(), ..Owner::default() };
        (0..calls).map(move |_| OwnedCall::new(call(at_s * S, 5_000_000), owner.clone()))
    }

    fn second_of(at_s: u64, calls: impl Iterator<Item = OwnedCall>) -> Arc<Second> {
        Arc::new(Second { start_ns: at_s * S, end_ns: (at_s + 1) * S, calls: calls.collect(), ..Second::default() })
    }

    fn second(at_s: u64, calls: usize) -> Arc<Second> {
        second_of(at_s, calls_of("", at_s, calls))
    }

    #[test]
    fn seconds_older_than_the_span_are_dropped() {
        let mut look_back = LookBack::new(10 * S, 1 << 20);
        (0..100).for_each(|at| look_back.push(second(at, 1)));
        assert_eq!(look_back.start_ns(), Some(89 * S));
        assert_eq!(look_back.seconds().count(), 11);
        assert!(look_back.missing().is_empty());
        assert_eq!(look_back.by_account.values().sum::<usize>(), 11 * second(1, 1).bytes_by_account()[&of("")]);
    }

    fn of(group: &str) -> Account {
        Account::of(group, None)
    }

    #[test]
    fn a_flood_of_calls_stays_within_the_limit_and_is_a_gap() {
        let mut look_back = LookBack::new(60 * S, 1 << 20);
        (0..60).for_each(|at| look_back.push(second(at, 1_000)));
        assert!(look_back.bytes() <= 1 << 20, "{}", look_back.bytes());
        let gaps = look_back.missing();
        assert!(gaps.iter().any(|gap| gap.why.contains("1 MiB")), "{gaps:?}");
        // A whole span after the flood nothing is missing.
        (60..200).for_each(|at| look_back.push(second(at, 0)));
        assert!(look_back.missing().is_empty() && look_back.by_account.is_empty());
    }

    /// S9: fails on 5d310ca9, where one user's calls shortened the look-back of all.
    #[test]
    fn s9_an_account_that_fills_the_look_back_loses_its_own_calls() {
        let evil = "/user.slice/user-1000.slice/session-1.scope";
        let mut look_back = LookBack::new(60 * S, 2 << 20);
        for at in 0..60 {
            look_back.push(second_of(at, calls_of(evil, at, 500).chain(calls_of("/db", at, 2))));
        }
        assert!(look_back.bytes() <= 2 << 20, "{}", look_back.bytes());
        assert_eq!(look_back.start_ns(), Some(0), "the others keep the whole time");
        let left = |group: &str| {
            let calls = look_back.seconds().flat_map(|second| &second.calls);
            calls.filter(|owned| owned.account == of(group)).count()
        };
        assert_eq!(left("/db"), 120);
        assert!((500..10_000).contains(&left(evil)), "{}", left(evil));
        let gaps = look_back.missing();
        let [gap] = &gaps[..] else { panic!("{gaps:?}") };
        assert!(gap.what == format!("{} slow calls of user 1000", 30_000 - left(evil)), "{gap:?}");
        let sum: usize = look_back.seconds().map(Second::bytes).sum();
        assert_eq!(look_back.bytes(), sum, "the bytes are counted");
        assert!(ACCOUNT_PART * look_back.by_account[&of("/db")] < 2 << 20);
    }

    #[test]
    fn a_halved_limit_is_restored() {
        let mut look_back = LookBack::new(60 * S, 3 << 20);
        assert!(look_back.halve() && look_back.halve() && !look_back.halve(), "down to 1 MiB");
        assert_eq!(look_back.halved_to(), Some(1 << 20));
        look_back.double();
        assert_eq!(look_back.halved_to(), Some(2 << 20));
        look_back.double();
        assert_eq!(look_back.halved_to(), None);
    }

    #[test]
    fn a_single_second_above_the_limit_is_kept() {
        let mut look_back = LookBack::new(60 * S, 1 << 20);
        look_back.push(second(1, 50_000));
        assert_eq!(look_back.seconds().count(), 1);
    }
}
