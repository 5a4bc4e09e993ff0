//! Resolves the target as a user names it (a process with its descendants, a program name, a systemd unit, the first
//! digits of a container id) to processes and one cgroup, which the BPF programs can follow.

mod cgroup;
mod container;
mod hierarchy;
mod process;
mod watched;

pub use cgroup::{CgroupError, find_cgroup, find_unit, first_process};
pub use container::{Container, container_of};
pub use hierarchy::hierarchy_of;
pub use process::{Process, Processes, process_of_thread};
pub use watched::WatchedSet;

use std::collections::BTreeSet;

/// The processes that the user asked for. `processes` may be called again to find new ones.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Process ids; each selects the process and its descendants.
    pub pids: Vec<u32>,
    /// Program names; each selects every process that runs it, with its descendants.
    pub programs: Vec<String>,
}

impl Selection {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pids.is_empty() && self.programs.is_empty()
    }

    /// The processes that match the selection now, in the order of their ids.
    #[must_use]
    pub fn processes(&self, processes: &Processes) -> Vec<Process> {
        let mut chosen: BTreeSet<u32> = BTreeSet::new();
        for &pid in &self.pids {
            chosen.extend(processes.tree(pid));
        }
        let named = processes.all().filter(|process| self.programs.iter().any(|name| process.is_program(name)));
        for process in named {
            chosen.extend(processes.tree(process.pid));
        }
        chosen.iter().filter_map(|pid| processes.get(*pid)).cloned().collect()
    }
}

/// One line for people: `postgres (pid 812), with 6 processes below, 31 threads`.
#[must_use]
pub fn describe(processes: &[Process]) -> String {
    let ids: BTreeSet<u32> = processes.iter().map(|process| process.pid).collect();
    let roots: Vec<&Process> = processes.iter().filter(|process| !ids.contains(&process.parent)).collect();
    let shown: Vec<String> =
        roots.iter().take(ROOTS_SHOWN).map(|root| format!("{} (pid {})", root.name, root.pid)).collect();
    let mut text = shown.join(", ");
    if roots.len() > ROOTS_SHOWN {
        text.push_str(&format!(" and {} more", roots.len() - ROOTS_SHOWN));
    }
    match processes.len() - roots.len() {
        0 => {}
        1 => text.push_str(", with one process below"),
        below => text.push_str(&format!(", with {below} processes below")),
    }
    let threads: usize = processes.iter().map(|process| process.threads).sum();
    if threads > processes.len() {
        text.push_str(&format!(", {threads} threads"));
    }
    text
}

const ROOTS_SHOWN: usize = 4;

#[cfg(test)]
mod tests {
    use super::process::tests::made;
    use super::{Selection, describe};

    #[test]
    fn a_pid_selects_its_descendants() {
        let processes =
            made(&[(1, 0, "init"), (10, 1, "postgres"), (11, 10, "walwriter"), (12, 11, "deep"), (20, 1, "sh")]);
        let selection = Selection { pids: vec![10], programs: Vec::new() };
        let chosen = selection.processes(&processes);
        assert_eq!(chosen.iter().map(|process| process.pid).collect::<Vec<_>>(), [10, 11, 12]);
        assert_eq!(describe(&chosen), "postgres (pid 10), with 2 processes below");
    }

    #[test]
    fn a_program_name_selects_each_process_that_runs_it() {
        let processes =
            made(&[(1, 0, "init"), (10, 1, "redis-server"), (11, 10, "bio"), (20, 1, "redis-server"), (30, 1, "sh")]);
        let selection = Selection { pids: Vec::new(), programs: vec!["redis-server".to_owned()] };
        let chosen = selection.processes(&processes);
        assert_eq!(chosen.iter().map(|process| process.pid).collect::<Vec<_>>(), [10, 11, 20]);
        assert_eq!(describe(&chosen), "redis-server (pid 10), redis-server (pid 20), with one process below");
    }

    #[test]
    fn a_cycle_of_parents_does_not_loop() {
        // Process ids may be reused while /proc is read, so that the parents form a cycle.
        let processes = made(&[(10, 11, "a"), (11, 10, "b")]);
        let selection = Selection { pids: vec![10], programs: Vec::new() };
        assert_eq!(selection.processes(&processes).len(), 2);
    }
}
