//! Who had to reclaim memory, interval by interval: a process that asks for pages over a limit, or where the machine has none
//! left, reclaims as many itself. It lives as long as it may: the counts outlive the process.

use aya::maps::{HashMap, Map, MapData};

use super::identity::Identities;
use super::layout::Reclaimer;
use crate::tracer::TraceError;
use crate::tracer::hooks::refused;
use crate::tracer::layout::text;
use flatwater_recording::{MemoryScope, MemoryUser};

/// The kernel side's counts, and what they were the last time. The kernel side bounds their number (RECLAIMERS_MAX).
#[derive(Debug)]
pub struct Reclaimers {
    counts: HashMap<MapData, u64, Reclaimer>,
    before: std::collections::HashMap<u64, Reclaimer>,
}

impl Reclaimers {
    pub fn of(map: Map) -> Result<Reclaimers, TraceError> {
        let counts = HashMap::try_from(map).map_err(|error| refused(&error))?;
        Ok(Reclaimers { counts, before: std::collections::HashMap::new() })
    }

    /// One row for each process that reclaimed since the last time.
    pub fn since_last(&mut self, names: &mut Identities, start_ns: u64, end_ns: u64) -> Vec<MemoryUser> {
        // An entry that was put out while we read comes again, or is lost: it was the one used least.
        let now: std::collections::HashMap<u64, Reclaimer> = self.counts.iter().filter_map(Result::ok).collect();
        let rows = now.iter().filter_map(|(&key, count)| {
            let user = row(key, count, self.before.get(&key), names, end_ns)?;
            Some(MemoryUser { start_ns, width_ns: end_ns.saturating_sub(start_ns), ..user })
        });
        let mut rows: Vec<MemoryUser> = rows.collect();
        rows.sort_by_key(|row| std::cmp::Reverse((row.reclaimed_pages, row.owner.pid)));
        self.before = now;
        rows
    }
}

/// `key`: the process in the low half; the high half is 1 where the whole machine lacked memory (struct reclaimer_key).
fn row(
    key: u64,
    now: &Reclaimer,
    before: Option<&Reclaimer>,
    names: &mut Identities,
    now_ns: u64,
) -> Option<MemoryUser> {
    let tgid = u32::try_from(key & 0xffff_ffff).unwrap_or(0);
    // A count that fell is another process of the same number.
    let before = before.filter(|before| before.calls <= now.calls && before.tid == now.tid);
    let (pages, calls) = before.map_or((0, 0), |before| (before.pages, before.calls));
    let (pages, calls) = (now.pages.saturating_sub(pages), now.calls.saturating_sub(calls));
    (calls > 0).then(|| MemoryUser {
        scope: MemoryScope::Process,
        owner: names.in_group(now.tid, tgid, &text(&now.comm), now.cgroup, now_ns),
        reclaimed_pages: Some(pages),
        reclaims: Some(calls),
        whole_machine: Some(key >> 32 != 0),
        ..MemoryUser::default()
    })
}

#[cfg(test)]
mod tests {
    use super::row;
    use crate::waits::identity::Identities;
    use crate::waits::layout::Reclaimer;

    #[test]
    fn only_what_was_reclaimed_since_the_last_time_counts() {
        let mut names = Identities::default();
        let tgid = u32::MAX - 9;
        let count = |pages, calls| Reclaimer {
            pages,
            calls,
            tid: tgid,
            comm: *b"dd\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            ..Reclaimer::default()
        };
        let mut of = |now: Reclaimer, before: Option<Reclaimer>| {
            row(u64::from(tgid), &now, before.as_ref(), &mut names, 0)
                .map(|row| (row.owner.name, row.reclaimed_pages, row.reclaims))
        };
        assert_eq!(of(count(96, 3), None), Some(("dd".to_owned(), Some(96), Some(3))));
        assert_eq!(of(count(128, 4), Some(count(96, 3))), Some(("dd".to_owned(), Some(32), Some(1))));
        assert_eq!(of(count(96, 3), Some(count(96, 3))), None);
        // The number was given to another process, which has begun again.
        assert_eq!(of(count(32, 1), Some(count(96, 3))), Some(("dd".to_owned(), Some(32), Some(1))));
    }
}
