//! Checks each second against the triggers, which decide whether a recording begins.

use std::collections::BTreeMap;

use flatwater_recording::schema::pressure;
use flatwater_recording::units::Nanos;
use flatwater_recording::{Entity, LatencyBucket, PackedHistogram, Table};
use wildmatch::WildMatch;

use crate::account::Account;
use crate::config::{Scope, Store, Trigger, When};
use crate::lookback::LookBack;
use crate::second::{OwnedCall, Second};

/// A trigger that fired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fired {
    pub name: String,
    /// One sentence: the observation and the limit.
    pub what: String,
    pub at_ns: u64,
    /// The account that the recording counts for.
    pub account: Account,
}

/// The triggers of a configuration, with their state.
#[derive(Debug)]
pub struct Triggers {
    all: Vec<Armed>,
    cooldown_ns: u64,
    per_hour_max: u32,
    /// Times and accounts of the recordings of the last hour.
    fired: Vec<(u64, Account)>,
    /// Triggers that fired without a recording, by reason.
    pub silenced: BTreeMap<Silence, u64>,
}

/// Why a trigger that fired started no recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Silence {
    Cooldown,
    HourlyLimit,
}

#[derive(Debug)]
struct Armed {
    trigger: Trigger,
    /// When it last fired, by account.
    fired_ns: BTreeMap<Account, u64>,
    /// Consecutive seconds in which all calls together exceeded the limit, and those of one account alone.
    row: u32,
    rows: BTreeMap<Account, u32>,
}

impl Armed {
    fn new(trigger: Trigger) -> Armed {
        Armed { trigger, fired_ns: BTreeMap::new(), row: 0, rows: BTreeMap::new() }
    }
}

const HOUR_NS: u64 = 3_600_000_000_000;
/// When the recordings of the hour are used up, an account that had less than half of them still gets some, until the
/// total reaches this many times the limit.
const BEYOND_TIMES: usize = 4;
/// Fewer calls are not enough for a percentile.
const CALLS_FOR_PERCENTILE: u64 = 100;

impl Triggers {
    #[must_use]
    pub fn new(triggers: Vec<Trigger>, store: &Store) -> Triggers {
        let all = triggers.into_iter().map(Armed::new).collect();
        Triggers {
            all,
            cooldown_ns: store.cooldown_ns,
            per_hour_max: store.captures_per_hour_max,
            fired: Vec::new(),
            silenced: BTreeMap::new(),
        }
    }

    /// Replaces the configuration. A trigger that stays the same keeps its cooldown, and recordings of the hour still
    /// count, however often the configuration is read.
    pub fn configure(&mut self, triggers: Vec<Trigger>, store: &Store) {
        let mut known = std::mem::take(&mut self.all);
        let armed = |trigger: Trigger| {
            let same = known.iter().position(|armed| armed.trigger == trigger);
            same.map_or_else(|| Armed::new(trigger), |at| known.swap_remove(at))
        };
        self.all = triggers.into_iter().map(armed).collect();
        (self.cooldown_ns, self.per_hour_max) = (store.cooldown_ns, store.captures_per_hour_max);
    }

    /// Checks each trigger. Returns the first one that fired because of an account that may still have a recording.
    /// The look-back already contains the second.
    pub fn ask(&mut self, second: &Second, held: &LookBack) -> Option<Fired> {
        let at_ns = second.end_ns;
        self.fired.retain(|(fired_ns, _)| fired_ns.saturating_add(HOUR_NS) > at_ns);
        let mut chosen: Option<Fired> = None;
        for armed in &mut self.all {
            armed.fired_ns.retain(|_, fired_ns| fired_ns.saturating_add(self.cooldown_ns) > at_ns);
            // Check every trigger, so that each counts its consecutive seconds.
            let answers = armed.answers(second, held);
            let silence = |account: &Account| match armed.fired_ns.contains_key(account) {
                true => Some(Silence::Cooldown),
                false if is_used_up(&self.fired, account, self.per_hour_max as usize) => Some(Silence::HourlyLimit),
                false => None,
            };
            let Some((first, _)) = answers.first() else { continue };
            let first = silence(first);
            match answers.into_iter().find(|(account, _)| silence(account).is_none()) {
                Some((account, what)) if chosen.is_none() => {
                    armed.fired_ns.insert(account.clone(), at_ns);
                    chosen = Some(Fired { name: armed.trigger.name.clone(), what, at_ns, account });
                }
                Some(_) => {}
                None => {
                    if let Some(silence) = first {
                        *self.silenced.entry(silence).or_default() += 1;
                    }
                }
            }
        }
        self.fired.extend(chosen.as_ref().map(|fired| (at_ns, fired.account.clone())));
        chosen
    }
}

/// Whether this account has used up its recordings of the hour.
fn is_used_up(fired: &[(u64, Account)], account: &Account, max: usize) -> bool {
    let own = fired.iter().filter(|(_, whose)| whose == account).count();
    let has_share = own >= max.div_ceil(2) || fired.len() >= max.saturating_mul(BEYOND_TIMES);
    fired.len() >= max && has_share
}

impl Armed {
    /// The accounts that made the trigger fire, each with the observation; the worst first.
    fn answers(&mut self, second: &Second, held: &LookBack) -> Vec<(Account, String)> {
        let whom = &self.trigger.whom;
        let of_machine = |what: Option<String>| what.map(|what| (Account::machine(), what)).into_iter().collect();
        match &self.trigger.when {
            When::Stall { over_ns } => stalls(second, whom, *over_ns),
            When::StallTime { per_second_ns, seconds } => {
                let (limit_ns, seconds) = (*per_second_ns, *seconds);
                let rates = stall_times(second, whom);
                let sum_ns = rates.iter().map(|(_, ns)| *ns).fold(0, u64::saturating_add);
                self.row = if sum_ns >= limit_ns { self.row + 1 } else { 0 };
                let mut rows = std::mem::take(&mut self.rows);
                let over = rates.iter().filter(|(_, ns)| *ns >= limit_ns);
                self.rows = over.map(|(account, _)| (account.clone(), rows.remove(account).unwrap_or(0) + 1)).collect();
                let what = |ns: u64, row: u32| {
                    format!("calls lost {} a second, {} or more for {row} s", Nanos(ns), Nanos(limit_ns))
                };
                let all = rates.first().filter(|_| self.row >= seconds);
                let all = all.map(|(account, _)| (account.clone(), what(sum_ns, self.row)));
                let each = rates.iter().filter_map(|(account, ns)| {
                    let row = self.rows.get(account).filter(|row| **row >= seconds)?;
                    Some((account.clone(), what(*ns, *row)))
                });
                all.into_iter().chain(each).collect()
            }
            When::Pressure { resource, some_avg10 } => of_machine(pressure_of(second, resource, *some_avg10)),
            When::Percentile { percent, over_ns } => of_machine(percentile(held, whom, *percent, *over_ns)),
        }
    }
}

/// The longest call of each account, if it took at least this long.
fn stalls(second: &Second, whom: &Scope, over_ns: u64) -> Vec<(Account, String)> {
    let mut worst: BTreeMap<&Account, &OwnedCall> = BTreeMap::new();
    let slow = second.calls.iter().chain(&second.under_way).filter(|owned| owned.call.duration_ns >= over_ns);
    for owned in slow.filter(|owned| concerns(whom, owned)) {
        let known = worst.entry(&owned.account).or_insert(owned);
        if owned.call.duration_ns > known.call.duration_ns {
            *known = owned;
        }
    }
    let mut worst: Vec<&OwnedCall> = worst.into_values().collect();
    worst.sort_by_key(|owned| std::cmp::Reverse(owned.call.duration_ns));
    let answer = |owned: &OwnedCall| {
        let (call, owner) = (&owned.call, owned.owner.name());
        let (op, took) = (call.op.name(), Nanos(call.duration_ns));
        let of = if owner.is_empty() { String::new() } else { format!(" in {owner}") };
        let took = if call.still_under_way { format!("has taken {took} so far") } else { format!("took {took}") };
        let what = format!("{op}() of {} (pid {}){of} {took}, limit {}", call.thread, call.pid, Nanos(over_ns));
        (owned.account.clone(), what)
    };
    worst.into_iter().map(answer).collect()
}

/// The time that the calls of each account lost per second, the most first.
fn stall_times(second: &Second, whom: &Scope) -> Vec<(Account, u64)> {
    let width_ns = second.end_ns.saturating_sub(second.start_ns).max(1);
    let ended = second.calls.iter().map(|owned| (owned, owned.call.duration_ns));
    // A call under way counts with the time that it lost within this second.
    let hanging = second.under_way.iter().map(|owned| (owned, owned.call.duration_ns.min(width_ns)));
    let mut sums: BTreeMap<&Account, u64> = BTreeMap::new();
    for (owned, ns) in ended.chain(hanging).filter(|(owned, _)| concerns(whom, owned)) {
        let sum = sums.entry(&owned.account).or_default();
        *sum = sum.saturating_add(ns);
    }
    let rate = |ns: u64| u64::try_from(u128::from(ns) * 1_000_000_000 / u128::from(width_ns)).unwrap_or(u64::MAX);
    let mut rates: Vec<(Account, u64)> = sums.into_iter().map(|(account, ns)| (account.clone(), rate(ns))).collect();
    rates.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    rates
}

fn pressure_of(second: &Second, resource: &str, some_avg10: f64) -> Option<String> {
    let table = second.series.iter().find(|series| series.table == Table::Pressure)?;
    let rows = table.rows_of(&Entity::named(resource))?;
    let percent = rows.last(pressure::SOME_AVG10_CENTIPERCENT)? as f64 / 100.0;
    let said = || format!("pressure of {resource}: some avg10 is {percent:.1} %, limit {some_avg10:.1} %");
    (percent >= some_avg10).then(said)
}

fn percentile(held: &LookBack, whom: &Scope, percent: f64, over_ns: u64) -> Option<String> {
    let rows = held.seconds().flat_map(|second| &second.latency);
    let theirs = rows.filter(|row: &&LatencyBucket| whom.operation.is_none_or(|op| op == row.op));
    let all = PackedHistogram::merged(theirs.map(|row| &row.from_start));
    if all.len() < CALLS_FOR_PERCENTILE {
        return None;
    }
    let found_ns = all.value_at_percentile(percent);
    let of = whom.operation.map_or("calls".to_owned(), |op| format!("{}() calls", op.name()));
    let (found, limit, count) = (Nanos(found_ns), Nanos(over_ns), all.len());
    (found_ns >= over_ns).then(|| format!("p{percent} of {count} {of} is {found}, limit {limit}"))
}

fn concerns(whom: &Scope, owned: &OwnedCall) -> bool {
    let owner = &owned.owner;
    let fits = |pattern: &str, text: &str| WildMatch::new(pattern).matches(text);
    let of_group = |pattern: &String| fits(pattern, &owner.cgroup) || fits(pattern, &owner.container);
    whom.cgroup.as_ref().is_none_or(of_group)
        && whom.program.as_ref().is_none_or(|pattern| fits(pattern, &owner.program))
        && whom.operation.is_none_or(|op| op == owned.call.op)
}

#[cfg(test)]
mod tests {
    use flatwater_recording::schema::pressure;
    use flatwater_recording::{Entity, Series, Table};

    use super::{Silence, Triggers};
    use crate::config::{Config, Store};
    use crate::lookback::LookBack;
    use crate::owner::Owner;
    use crate::second::{OwnedCall, Second};
    use crate::sight::tests::call;

    const S: u64 = 1_000_000_000;
    const MS: u64 = 1_000_000;

    fn triggers(text: &str, store: &str) -> Triggers {
        let config = Config::parse(&format!("[store]\n{store}\n{text}")).expect("right");
        Triggers::new(config.triggers, &config.store)
    }

    fn second(at_s: u64, calls_ms: &[u64]) -> Second {
        let owner =
            Owner { cgroup: "/db/pg".into(), container: "postgresql.service".into(), program: "postgres".into() };
        let calls = calls_ms.iter().map(|ms| OwnedCall::new(call(at_s * S, ms * MS), owner.clone()));
        Second { start_ns: at_s * S, end_ns: (at_s + 1) * S, calls: calls.collect(), ..Second::default() }
    }

    fn ask(triggers: &mut Triggers, second: Second) -> Option<super::Fired> {
        let mut held = LookBack::new(60 * S, 1 << 24);
        held.push(second.clone().into());
        triggers.ask(&second, &held)
    }

    #[test]
    fn a_matching_call_over_the_limit_fires() {
        let mut triggers = triggers("[[trigger]]\nstall = \"100ms\"\ncgroup = \"postgresql*\"\n", "");
        assert_eq!(ask(&mut triggers, second(1, &[99])), None);
        let fired = ask(&mut triggers, second(2, &[5, 120])).expect("fires");
        assert!(fired.what.contains("120 ms") && fired.what.contains("postgresql.service"), "{fired:?}");
        let mut others = self::triggers("[[trigger]]\nstall = \"100ms\"\nprogram = \"redis*\"\n", "");
        assert_eq!(ask(&mut others, second(1, &[500])), None);
    }

    /// On a file system that is frozen for an hour, a recording after the call returns comes too late.
    #[test]
    fn a_call_under_way_fires_a_trigger() {
        let hanging = |at_s: u64| {
            let mut hanging = second(at_s, &[700]);
            hanging.under_way = std::mem::take(&mut hanging.calls);
            hanging.under_way.iter_mut().for_each(|owned| owned.call.still_under_way = true);
            hanging
        };
        let mut stall = triggers("[[trigger]]\nstall = \"500ms\"\nprogram = \"postgres\"\n", "");
        let fired = ask(&mut stall, hanging(1)).expect("fires");
        assert!(fired.what.contains("has taken 700 ms so far"), "{fired:?}");
        let mut time = triggers("[[trigger]]\nstall_time_per_s = \"600ms\"\nseconds = 3\n", "");
        let fired: Vec<bool> = (1..4).map(|at| ask(&mut time, hanging(at)).is_some()).collect();
        assert_eq!(fired, [false, false, true]);
    }

    #[test]
    fn a_trigger_has_a_cooldown_and_an_hour_has_a_limit() {
        let text = "[[trigger]]\nstall = \"100ms\"\n";
        let mut triggers = triggers(text, "cooldown = \"10s\"\ncaptures_per_hour = 2");
        let fired: Vec<u64> = (0..60).filter(|at| ask(&mut triggers, second(*at, &[200])).is_some()).collect();
        assert_eq!(fired, [0, 10]);
        assert_eq!(triggers.silenced.get(&Silence::Cooldown), Some(&(9 + 9)));
        assert_eq!(triggers.silenced.get(&Silence::HourlyLimit), Some(&40));
        assert!(ask(&mut triggers, second(3_700, &[200])).is_some(), "the hour is over");
    }

    /// Configuration management may reload the configuration each second; the silence stays the same.
    #[test]
    fn earlier_recordings_count_after_the_configuration_is_read_again() {
        let (text, store) = ("[[trigger]]\nstall = \"100ms\"\n", "cooldown = \"10s\"\ncaptures_per_hour = 2");
        let again = Config::parse(&format!("[store]\n{store}\n{text}")).expect("right");
        let mut triggers = triggers(text, store);
        let fired = (0..60).filter(|at| {
            triggers.configure(again.triggers.clone(), &again.store);
            ask(&mut triggers, second(*at, &[200])).is_some()
        });
        assert_eq!(fired.collect::<Vec<u64>>(), [0, 10]);
        let other = Config::parse("[store]\ncaptures_per_hour = 3\n[[trigger]]\nstall = \"150ms\"\n").expect("right");
        triggers.configure(other.triggers, &other.store);
        assert!(
            ask(&mut triggers, second(60, &[200])).is_some(),
            "the other trigger has not fired, and one more recording is allowed"
        );
        assert!(ask(&mut triggers, second(61, &[200])).is_none());
    }

    #[test]
    fn a_pattern_that_backtracks_ends_and_a_star_matches_any_text() {
        let matches = |pattern: &str, text: &str| wildmatch::WildMatch::new(pattern).matches(text);
        assert!(!matches(&("*a".repeat(40) + "b"), &"a".repeat(4096)));
        assert!(matches("*postgres*", "/system.slice/postgresql@16-main.service") && matches("*", ""));
        assert!(matches("/kubepods*/pod?-*", "/kubepods.slice/x/pod7-a") && !matches("a?", "a"));
    }

    /// S9: fails on 9232d20c, where the stalls of one user silenced the trigger for all and used up the recordings of
    /// the hour.
    #[test]
    fn s9_one_users_stalls_do_not_use_up_recordings_of_others() {
        let text = "[[trigger]]\nstall = \"100ms\"\n";
        let mut triggers = triggers(text, "cooldown = \"10s\"\ncaptures_per_hour = 2");
        let of = |at_s: u64, whose: &[(&str, u64)]| {
            let owned = |(group, ms): &(&str, u64)| {
                let owner = Owner { cgroup: (*group).into(), ..Owner::default() };
                OwnedCall::new(call(at_s * S, ms * MS), owner)
            };
            Second { calls: whose.iter().map(owned).collect(), ..second(at_s, &[]) }
        };
        let evil = "/user.slice/user-1000.slice/session-1.scope";
        for at in 0..60 {
            // The user can create any number of groups below their own.
            let his = format!("{evil}/{at}");
            let fired = ask(&mut triggers, of(at, &[(&his, 900)]));
            assert_eq!(fired.is_some(), at == 0 || at == 10, "{at}: the user has had both recordings of the hour");
        }
        let both = |at| of(at, &[(evil, 900), ("/system.slice/postgresql.service", 200)]);
        let fired = ask(&mut triggers, both(61)).expect("the database's own share");
        assert!(fired.what.contains("200 ms") && fired.account.as_str().contains("postgresql"), "{fired:?}");
        assert!(
            ask(&mut triggers, both(80)).is_none(),
            "one recording is its share when those of the hour are used up"
        );
        let mut triggers = self::triggers("[[trigger]]\nstall_time_per_s = \"300ms\"\nseconds = 2\n", "");
        let fired = |at, triggers: &mut Triggers, whose: &[(&str, u64)]| ask(triggers, of(at, whose)).is_some();
        assert!(!fired(1, &mut triggers, &[(evil, 900)]) && fired(2, &mut triggers, &[(evil, 900)]));
        let both = [(evil, 900), ("/system.slice/postgresql.service", 400)];
        assert!(
            !fired(3, &mut triggers, &both) && fired(4, &mut triggers, &both),
            "over the limit by itself in two seconds"
        );
    }

    #[test]
    fn stall_time_counts_seconds_in_a_row() {
        let mut triggers = triggers("[[trigger]]\nstall_time_per_s = \"300ms\"\nseconds = 3\n", "");
        let answers = [[400], [400], [10], [400], [400], [400]];
        let fired: Vec<bool> =
            answers.iter().zip(1..).map(|(ms, at)| ask(&mut triggers, second(at, ms)).is_some()).collect();
        assert_eq!(fired, [false, false, false, false, false, true]);
    }

    #[test]
    fn pressure_is_that_of_the_machine() {
        let mut triggers = triggers("[[trigger]]\npressure = \"io\"\nsome_avg10 = 20.0\n", "");
        let with = |at: u64, centipercent| {
            let mut series = Series::new(Table::Pressure);
            let io = Entity::named("io");
            series.record(at * S, &io, &[(pressure::SOME_AVG10_CENTIPERCENT, centipercent)]);
            Second { series: vec![series], ..second(at, &[]) }
        };
        assert_eq!(ask(&mut triggers, with(1, Some(1_999))), None);
        assert_eq!(ask(&mut triggers, with(2, None)), None, "a missing value is neither zero nor over the limit");
        assert!(ask(&mut triggers, with(3, Some(2_000))).is_some());
    }

    #[test]
    fn the_limits_of_the_store_have_defaults() {
        let Store { captures_per_hour_max, cooldown_ns, .. } = Config::default().store;
        assert!(captures_per_hour_max > 0 && cooldown_ns > 0);
    }
}
