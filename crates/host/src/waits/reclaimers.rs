//! Counts, per interval, the memory that each process had to reclaim: a process that allocates over a limit, or while
//! the machine has no free memory, reclaims about as much itself. The counts outlive the process.

use aya::maps::{HashMap, Map, MapData};

use super::identity::Identities;
use super::layout::Reclaimer;
use crate::tracer::TraceError;
use crate::tracer::hooks::refused;
use crate::tracer::layout::text;
use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::{MemoryScope, MemoryUser};

/// The BPF programs' counts, with their values at the last reading; they bound the number of entries (RECLAIMERS_MAX).
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

    /// One row for each process that reclaimed since the last call.
    pub fn since_last(&mut self, names: &mut Identities, start_ns: u64, end_ns: u64) -> Vec<MemoryUser> {
        // The map evicts the least recently used entry. An entry evicted during the reading comes again later, or is
        // lost.
        let now: std::collections::HashMap<u64, Reclaimer> = self.counts.iter().filter_map(Result::ok).collect();
        let rows = now.iter().filter_map(|(&key, count)| {
            let user = row(key, count, self.before.get(&key), names, end_ns)?;
            Some(MemoryUser { start_ns, width_ns: end_ns.saturating_sub(start_ns), ..user })
        });
        let mut rows: Vec<MemoryUser> = rows.collect();
        rows.sort_short_by_key(|row| std::cmp::Reverse((row.reclaimed_pages, row.owner.pid)));
        self.before = now;
        rows
    }
}

/// `key` holds the process id in the low half; the high half is 1 if the whole machine lacked memory (struct
/// reclaimer_key).
fn row(
    key: u64,
    now: &Reclaimer,
    before: Option<&Reclaimer>,
    names: &mut Identities,
    now_ns: u64,
) -> Option<MemoryUser> {
    let tgid = u32::try_from(key & 0xffff_ffff).unwrap_or(0);
    // If the count fell, the process id has been reused.
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
    fn only_reclaim_since_the_last_reading_counts() {
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
        // The process id has been reused, and the new process started from 0.
        assert_eq!(of(count(32, 1), Some(count(96, 3))), Some(("dd".to_owned(), Some(32), Some(1))));
    }
}
