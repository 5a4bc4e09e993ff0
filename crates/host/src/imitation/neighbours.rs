//! Chooses the processes outside the target whose calls are counted: those that made its calls wait, or that kept its
//! devices busy.

use std::collections::BTreeSet;

use crate::observer::Interval;
use crate::target::Processes;
use crate::tracer::Tracer;
use flatwater_recording::{Gap, RequestOp, Task};

/// Count the calls of at most this many processes, without their later children.
const NEIGHBOURS_MAX: usize = 64;
/// A process is a neighbour if it moved or dirtied this much in a second, or made this many requests ...
const BYTES_MIN: u64 = 1 << 20;
const REQUESTS_MIN: u64 = 16;
/// ... or if the device worked this long on its requests while a slow call waited.
const AHEAD_NS_MIN: u64 = 1_000_000;

/// Follow at most this many levels of parents.
const PARENTS_MAX: usize = 3;

#[derive(Debug, Default)]
pub struct Neighbours {
    known: BTreeSet<u32>,
    /// This process and its ancestors, which may include the program that started the target.
    own: BTreeSet<u32>,
    refused: u64,
}

impl Neighbours {
    #[must_use]
    pub fn new() -> Neighbours {
        let mut own = BTreeSet::from([0, 1, std::process::id()]);
        if let Ok(all) = Processes::read() {
            let mut pid = std::process::id();
            while let Some(process) = all.get(pid).filter(|process| process.parent > 1) {
                pid = process.parent;
                if !own.insert(pid) {
                    break;
                }
            }
        }
        Neighbours { own, ..Neighbours::default() }
    }

    /// Counts the calls of further processes from now on, if the interval shows that they disturb.
    pub fn notice(&mut self, interval: &Interval, tracer: &Tracer) {
        let mut found = suspects(interval);
        found.retain(|pid| !self.known.contains(pid) && !self.own.contains(pid));
        if found.is_empty() {
            return;
        }
        let targets: BTreeSet<u32> = tracer.targets().into_iter().collect();
        found.retain(|pid| !targets.contains(pid));
        let Some(all) = (!found.is_empty()).then(|| Processes::read().ok()).flatten() else { return };
        for pid in found {
            // A script starts one short program after the other: its future children count as well.
            let mut above = pid;
            for _ in 0..PARENTS_MAX {
                let alive = all.get(above).filter(|process| !process.ended);
                if alive.is_some() {
                    self.add(above, tracer);
                }
                let parent = tracer.parent_of(above).or_else(|| Some(alive?.parent));
                let Some(parent) = parent.filter(|parent| {
                    let apart = alive.is_some() && !same_cgroup(above, *parent);
                    !targets.contains(parent) && !self.own.contains(parent) && !apart
                }) else {
                    break;
                };
                above = parent;
            }
        }
    }

    fn add(&mut self, pid: u32, tracer: &Tracer) {
        if self.known.contains(&pid) {
            return;
        }
        if self.known.len() >= NEIGHBOURS_MAX || tracer.add_neighbour(pid).is_err() {
            self.refused += 1;
            return;
        }
        self.known.insert(pid);
    }

    /// A gap if there were more neighbours than are counted.
    #[must_use]
    pub fn left_out(&self) -> Option<Gap> {
        let why = format!("{} times no room was left to count a further process", self.refused);
        (self.refused > 0).then(|| Gap::new("operations of some neighbours", why, ""))
    }
}

fn suspects(interval: &Interval) -> BTreeSet<u32> {
    let pid = |task: &Option<Task>| task.as_ref().map(|task| task.pid);
    let busy = interval
        .users
        .owners
        .iter()
        .filter(|row| row.op != RequestOp::Other && (row.bytes >= BYTES_MIN || row.requests >= REQUESTS_MIN));
    let ahead = interval.waited.ahead.iter().filter(|row| row.device_ns >= AHEAD_NS_MIN);
    let dirtiers = interval.users.dirtiers.iter().filter(|row| row.bytes.unwrap_or(0) >= BYTES_MIN);
    let waits = interval.waited.waits.iter();
    let mut found: BTreeSet<u32> = busy.filter_map(|row| pid(&row.owner)).collect();
    found.extend(ahead.filter_map(|row| pid(&row.owner)));
    found.extend(dirtiers.map(|row| row.owner.pid));
    found.extend(waits.clone().filter_map(|wait| pid(&wait.lock_holder)));
    found.extend(interval.waited.requests.iter().filter_map(|request| pid(&request.owner)));
    found
}

fn same_cgroup(one: u32, other: u32) -> bool {
    let of = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok();
    of(one).is_some_and(|group| of(other).as_ref() == Some(&group))
}

#[cfg(test)]
mod tests {
    use super::{Neighbours, suspects};
    use crate::observer::Interval;
    use flatwater_recording::{Dirtier, QueueOwner, RequestOp, Task};

    #[test]
    fn a_process_is_suspected_by_its_requests_or_dirty_pages() {
        let mut interval = Interval::default();
        let owner = |pid, bytes, requests| QueueOwner {
            owner: Some(Task::new(pid, 0, "dd")),
            op: RequestOp::Write,
            bytes,
            requests,
            ..QueueOwner::default()
        };
        interval.users.owners = vec![owner(7, 1 << 20, 1), owner(8, 4_096, 15), owner(9, 0, 16)];
        let dirtier = |pid, bytes| Dirtier { owner: Task::new(pid, 0, "cp"), bytes, ..Dirtier::default() };
        interval.users.dirtiers = vec![dirtier(10, Some(2 << 20)), dirtier(11, None)];
        assert_eq!(suspects(&interval).into_iter().collect::<Vec<_>>(), [7, 9, 10]);
    }

    #[test]
    fn this_process_and_its_ancestors_are_no_neighbours() {
        let own = Neighbours::new().own;
        assert!(own.contains(&std::process::id()) && own.contains(&1), "{own:?}");
    }
}
