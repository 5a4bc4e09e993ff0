//! Summaries of each hour, for fleets: the stall time by cause, victim and aggressor, and for how much of the hour
//! calls were observed. In an hour without any observation these values are null, never zero.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::time::SystemTime;

use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::summary::{
    self, Blame, HourStart, Summarizer, SummaryError, SummaryOrigin, SummaryRow, Whose,
};
use flatwater_recording::{Call, Cause, Header};
use flatwater_safefs::Refusal;

use crate::account::Account;
use crate::aggressor::Share;
use crate::owner::Owner;
use crate::second::{OwnedCall, Second};
use crate::store::Store;

/// Name at most this many aggressors per slow call.
const NAMED_MAX: usize = 3;
/// Maximum number of combinations of a victim and its aggressors that an hour names. On a machine that starts
/// containers by the thousand, further combinations are counted without names, so that the daemon stays small.
const NAMES_MAX: usize = 2_048;
/// Maximum number of combinations for the victims of one account.
const NAMES_OF_ACCOUNT_MAX: usize = NAMES_MAX / 4;

/// Why an hour has no summary file.
#[derive(Debug, thiserror::Error)]
pub enum HourlyError {
    #[error("the store cannot be used, or its disk is nearly full")]
    NoRoom,
    #[error(transparent)]
    Summary(#[from] SummaryError),
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// The summary of the current hour.
#[derive(Debug)]
pub struct Hourly {
    summary: Summarizer,
    hour: HourStart,
    wall_offset_ns: i64,
    names: HashSet<u64>,
    by_account: HashMap<Account, usize>,
    hasher: RandomState,
}

impl Hourly {
    /// Begins at this time of the header's clock.
    #[must_use]
    pub fn begin(header: &Header, start_ns: u64) -> Hourly {
        let wall_offset_ns = header.clock.wall_offset_ns.unwrap_or_default();
        Hourly {
            summary: Summarizer::new(header, SummaryOrigin::Watch, start_ns),
            hour: hour_of(start_ns, wall_offset_ns),
            wall_offset_ns,
            names: HashSet::new(),
            by_account: HashMap::new(),
            hasher: RandomState::new(),
        }
    }

    /// Whether this time is in another hour.
    #[must_use]
    pub fn is_over(&self, now_ns: u64) -> bool {
        hour_of(now_ns, self.wall_offset_ns) != self.hour
    }

    /// Adds one second. `seen` is whether hooks were attached; a second without hooks was not observed.
    pub fn add(&mut self, second: &Second, seen: bool) {
        let end_ns = if seen { second.end_ns } else { second.start_ns };
        self.summary.observe(second.start_ns, end_ns.max(second.start_ns));
        for owned in &second.calls {
            let (mut whose, mut parts) = (whose(owned), parts(owned));
            let key = self.hasher.hash_one((&whose, parts.iter().map(|part| &part.1).collect::<Vec<_>>()));
            let own = self.by_account.get(&owned.account).copied().unwrap_or(0);
            let is_known = self.names.contains(&key);
            if !is_known && (self.names.len() >= NAMES_MAX || own >= NAMES_OF_ACCOUNT_MAX) {
                whose = Whose::default();
                for (_, blame, _) in &mut parts {
                    if let Some(blame) = blame {
                        (blame.program, blame.cgroup) = (None, None);
                    }
                }
            } else if self.names.insert(key) {
                self.by_account.insert(owned.account.clone(), own + 1);
            }
            self.summary.add(&owned.call, &whose, &parts);
        }
    }

    /// Writes the summary to the store. Returns its name.
    pub fn keep(self, store: Option<&Store>) -> Result<String, HourlyError> {
        let store = store.filter(|store| store.room().is_ok()).ok_or(HourlyError::NoRoom)?;
        Ok(store.put_summary(SystemTime::now(), &summary::to_parquet(&self.finish())?)?)
    }

    /// The rows of the summary.
    #[must_use]
    pub fn finish(self) -> Vec<SummaryRow> {
        let mut rows = self.summary.finish();
        // The hooks that were attached when the hour began may have been shed a moment later, for the rest of the hour.
        for row in rows.iter_mut().filter(|row| row.cause.is_none() && row.observed_ms == Some(0)) {
            (row.calls, row.stall_ns) = (None, None);
            row.not_observed.get_or_insert_with(|| "file-calls".to_owned());
        }
        rows
    }
}

fn hour_of(at_ns: u64, wall_offset_ns: i64) -> HourStart {
    HourStart::of_ns(i64::try_from(at_ns).unwrap_or(i64::MAX).saturating_add(wall_offset_ns))
}

fn named(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn whose(owned: &OwnedCall) -> Whose {
    Whose {
        device: owned.device.as_deref().map(str::to_owned),
        cgroup: named(&owned.owner.cgroup),
        service: named(&owned.owner.container),
        program: named(&owned.owner.program),
    }
}

/// Divides the call's time by cause and aggressor: the largest cause is charged to the observed aggressors first. The
/// remaining time has an unknown aggressor.
fn parts(owned: &OwnedCall) -> Vec<(Cause, Option<Blame>, u64)> {
    let mut shares = owned.aggressors.iter().take(NAMED_MAX).map(|Share { who, ns }| (blame(&owned.owner, who), *ns));
    let mut share = shares.next();
    let mut parts = Vec::new();
    for (cause, mut left_ns) in by_cause(&owned.call) {
        while left_ns > 0
            && let Some((blame, ns)) = &mut share
        {
            let part_ns = left_ns.min(*ns);
            if part_ns > 0 {
                parts.push((cause, Some(blame.clone()), part_ns));
            }
            (left_ns, *ns) = (left_ns - part_ns, *ns - part_ns);
            if *ns == 0 {
                share = shares.next();
            }
        }
        if left_ns > 0 {
            parts.push((cause, Some(Blame { kind: "unknown", ..Blame::default() }), left_ns));
        }
    }
    parts
}

fn by_cause(call: &Call) -> Vec<(Cause, u64)> {
    let mut all: Vec<(Cause, u64)> = call.by_cause().into_iter().collect();
    all.sort_short_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    all
}

fn blame(victim: &Owner, who: &Owner) -> Blame {
    if who == victim {
        return Blame { kind: "own", ..Blame::default() };
    }
    let cgroup = named(&who.cgroup).filter(|path| path != "/");
    Blame { kind: "others", program: named(&who.program), cgroup, means: "" }
}

#[cfg(test)]
mod tests {
    use flatwater_recording::summary::SummaryRow;
    use flatwater_recording::{AccessKind, Call, Cause, Header, Observed, OpKind, Segment};

    use super::{Hourly, NAMES_MAX};
    use crate::aggressor::Share;
    use crate::owner::Owner;
    use crate::second::{OwnedCall, Second};

    const S: u64 = 1_000_000_000;
    /// The clock's zero is 2026-11-22 01:59:57 UTC.
    const OFFSET_NS: i64 = 1_795_312_797 * 1_000_000_000;

    fn header(observed: Observed) -> Header {
        let mut header = Header { observed: vec![observed], threshold_ns: 5_000_000, ..Header::default() };
        header.clock.wall_offset_ns = Some(OFFSET_NS);
        header
    }

    fn owner(program: &str) -> Owner {
        let unit = format!("{program}.service");
        Owner { cgroup: format!("/{unit}").into(), container: unit.into(), program: program.into() }
    }

    fn call(at_ns: u64, ms: u64, aggressors: Vec<Share>) -> OwnedCall {
        let ns = ms * 1_000_000;
        let segments = vec![
            Segment::bracketed(0, ns / 4, Cause::JournalCommit),
            Segment::bracketed(ns / 4, ns - ns / 4, Cause::PageWriteback),
        ];
        let call = Call::new(OpKind::Fsync, at_ns, ns, segments);
        OwnedCall { aggressors, ..OwnedCall::new(call, owner("postgres")) }
    }

    fn second(at: u64, calls: Vec<OwnedCall>) -> Second {
        Second { start_ns: at * S, end_ns: (at + 1) * S, calls, ..Second::default() }
    }

    fn stall_ns(rows: &[SummaryRow]) -> Option<i64> {
        rows.iter().filter_map(|row| row.stall_ns).reduce(|sum, ns| sum + ns)
    }

    #[test]
    fn an_hour_ends_by_wall_clock_time_and_its_calls_add_up() {
        let mut hourly = Hourly::begin(&header(Observed::timed(AccessKind::FileCalls, None)), 0);
        let shares =
            vec![Share { who: owner("tar"), ns: 60_000_000 }, Share { who: owner("postgres"), ns: 30_000_000 }];
        hourly.add(&second(0, vec![call(S / 2, 100, shares)]), true);
        hourly.add(&second(1, vec![call(S + 7, 40, Vec::new())]), true);
        assert!(!hourly.is_over(3 * S - 1) && hourly.is_over(3 * S));
        let rows = hourly.finish();
        assert_eq!((rows[0].observed_ms, rows[0].stall_ns), (Some(2_000), Some(0)));
        assert_eq!(stall_ns(&rows), Some(140_000_000));
        assert_eq!(rows.iter().filter_map(|row| row.calls).sum::<i64>(), 2);
        let of = |kind: &str| -> i64 {
            let rows = rows.iter().filter(|row| row.aggressor_kind.as_deref() == Some(kind));
            rows.filter_map(|row| row.stall_ns).sum()
        };
        assert_eq!((of("others"), of("own"), of("unknown")), (60_000_000, 30_000_000, 50_000_000));
        let tar = rows.iter().find(|row| row.aggressor.as_deref() == Some("tar")).expect("named");
        assert_eq!((tar.cause.as_deref(), tar.service.as_deref()), (Some("page-writeback"), Some("postgres.service")));
    }

    #[test]
    fn seconds_without_hooks_are_not_observed_and_an_hour_without_hooks_is_null() {
        let mut hourly = Hourly::begin(&header(Observed::timed(AccessKind::FileCalls, None)), 0);
        hourly.add(&second(0, Vec::new()), true);
        hourly.add(&second(1, Vec::new()), false);
        let partly = hourly.finish();
        assert_eq!((partly[0].observed_ms, partly[0].stall_ns), (Some(1_000), Some(0)));
        // The hooks were attached when the hour began, and shed at once.
        let mut hourly = Hourly::begin(&header(Observed::timed(AccessKind::FileCalls, None)), 0);
        hourly.add(&second(0, Vec::new()), false);
        let blind = hourly.finish();
        assert_eq!((blind[0].observed_ms, blind[0].calls, blind[0].stall_ns), (Some(0), None, None));
        assert_eq!(blind[0].not_observed.as_deref(), Some("file-calls"));
    }

    #[test]
    fn containers_beyond_the_limit_are_counted_without_names() {
        let mut hourly = Hourly::begin(&header(Observed::timed(AccessKind::FileCalls, None)), 0);
        let calls = (0..NAMES_MAX as u64 + 500)
            .map(|number| OwnedCall::new(call(number, 10, Vec::new()).call, owner(&format!("pod-{number}"))));
        hourly.add(&second(0, calls.collect()), true);
        assert_eq!(hourly.names.len(), NAMES_MAX);
        // Fails on 5d310ca9, which counted each account without a name too.
        assert!(hourly.by_account.len() <= NAMES_MAX, "{}", hourly.by_account.len());
        assert_eq!(stall_ns(&hourly.finish()), Some((NAMES_MAX as i64 + 500) * 10_000_000));
    }

    /// S9: one user's groups do not use up the names of others.
    #[test]
    fn s9_one_users_groups_leave_names_for_others() {
        let mut hourly = Hourly::begin(&header(Observed::timed(AccessKind::FileCalls, None)), 0);
        let his = (0..2 * NAMES_MAX as u64).map(|number| {
            let cgroup = format!("/user.slice/user-1000.slice/{number}");
            let owner = Owner { cgroup: cgroup.as_str().into(), program: "dd".into(), ..Owner::default() };
            OwnedCall::new(call(number, 10, Vec::new()).call, owner)
        });
        hourly.add(&second(0, his.chain([call(7, 10, Vec::new())]).collect()), true);
        let rows = hourly.finish();
        assert!(rows.iter().any(|row| row.service.as_deref() == Some("postgres.service")));
        assert_eq!(stall_ns(&rows), Some((2 * NAMES_MAX as i64 + 1) * 10_000_000));
    }
}
