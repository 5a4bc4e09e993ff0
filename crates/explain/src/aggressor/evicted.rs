//! Pages that were read again because a full memory cgroup had evicted them, and who had taken its memory.
//!
//! Two counts say it: the kernel's of evicted pages that came back (`workingset_refault_file`, mm/workingset.c), and that of
//! the pages which each member had to reclaim, since it asked for memory over the limit.

use std::collections::{BTreeMap, HashSet};

use flatwater_recording::schema::cgroup;
use flatwater_recording::{Recording, RequestOp, Table, Task};

/// What the whole recording says of it.
#[derive(Debug, Default)]
pub struct Evicted<'a> {
    /// Of the bytes that the cgroup's members read from devices, the part that it had held before, 0 to 1.
    pub share: f64,
    /// Pages that each process reclaimed of the cgroup.
    pub takers: Vec<(&'a Task, u64)>,
    pub pages: u64,
}

impl<'a> Evicted<'a> {
    #[must_use]
    pub fn of(recording: &'a Recording) -> Evicted<'a> {
        let mut taken: BTreeMap<u32, (&Task, u64)> = BTreeMap::new();
        for row in recording.memory_users.iter().filter(|row| row.whole_machine == Some(false)) {
            let of_task = taken.entry(row.owner.pid).or_insert((&row.owner, 0));
            of_task.1 = of_task.1.saturating_add(row.reclaimed_pages.unwrap_or(0));
        }
        let Some(pages) = came_back(recording).filter(|pages| *pages > 0 && !taken.is_empty()) else {
            return Evicted::default();
        };
        // Others read on the same devices too: only those who share the cgroup count.
        let cgroups: HashSet<&str> = taken.values().filter_map(|(taker, _)| taker.cgroup.as_deref()).collect();
        let members = |task: &Task| {
            taken.contains_key(&task.pid) || task.cgroup.as_deref().is_some_and(|cgroup| cgroups.contains(cgroup))
        };
        let reads = recording.queue_owners.iter().filter(|row| row.op == RequestOp::Read);
        let own = reads.filter(|row| row.owner.as_ref().is_some_and(members));
        let read_bytes: u64 = own.fold(0, |sum, row| sum.saturating_add(row.bytes));
        let again_bytes = pages.saturating_mul(recording.header.machine.page_size_bytes());
        let share = if read_bytes == 0 { 0.0 } else { (again_bytes as f64 / read_bytes as f64).min(1.0) };
        Evicted { share, takers: taken.into_values().collect(), pages }
    }
}

/// Evicted file pages that came back to the target's cgroup while it was recorded; version 1 counts those of the groups below
/// it apart.
fn came_back(recording: &Recording) -> Option<u64> {
    let columns = [cgroup::WORKINGSET_REFAULT_FILE, cgroup::TOTAL_WORKINGSET_REFAULT_FILE];
    let table = recording.table(Table::Cgroup)?;
    let rises = table.by_entity().flat_map(|(_, rows)| columns.map(|column| rows.rise(column)));
    rises.flatten().filter_map(|pages| u64::try_from(pages).ok()).max()
}
