//! Pages read again because a full memory cgroup had evicted them, and the processes that took its memory.
//!
//! Two counts show this: the kernel's count of evicted pages that came back (`workingset_refault_file`,
//! mm/workingset.c), and the pages that each member reclaimed because it allocated over the limit.

use std::collections::{BTreeMap, HashSet};

use flatwater_recording::schema::cgroup;
use flatwater_recording::{Recording, RequestOp, Table, Task};

/// The totals over the whole recording.
#[derive(Debug, Default)]
pub struct Evicted<'a> {
    /// Share of the bytes that the cgroup's members read from devices that the cgroup had held before, 0 to 1.
    pub share: f64,
    /// Pages of the cgroup that each process reclaimed.
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
        // Only readers that share the cgroup count; others read on the same devices, too.
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

/// Evicted file pages that came back to the target's cgroup during the recording. Version 1 counts those of child
/// cgroups in a separate column.
fn came_back(recording: &Recording) -> Option<u64> {
    let columns = [cgroup::WORKINGSET_REFAULT_FILE, cgroup::TOTAL_WORKINGSET_REFAULT_FILE];
    let table = recording.table(Table::Cgroup)?;
    let rises = table.by_entity().flat_map(|(_, rows)| columns.map(|column| rows.rise(column)));
    rises.flatten().filter_map(|pages| u64::try_from(pages).ok()).max()
}
