//! Reads the processes of the machine and their parents.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use crate::proc::text;

/// One process (a thread group).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    pub parent: u32,
    /// `comm`: at most 15 bytes; the process can change it.
    pub name: String,
    /// File name of the executable; `None` for kernel threads, and if this process may not read the link.
    pub executable: Option<String>,
    pub threads: usize,
    /// The process is a zombie (or dead).
    pub ended: bool,
}

impl Process {
    /// Whether this is the name of the executable or of the process. The kernel cuts `comm` to 15 bytes, so only as
    /// much of a longer name is compared.
    #[must_use]
    pub fn is_program(&self, name: &str) -> bool {
        let cut = name.char_indices().take_while(|(at, c)| at + c.len_utf8() <= COMM_BYTES).map(|(_, c)| c);
        self.executable.as_deref() == Some(name) || self.name.chars().eq(cut)
    }
}

/// `TASK_COMM_LEN` without the terminating zero (include/linux/sched.h).
const COMM_BYTES: usize = 15;

/// All processes, by process id.
#[derive(Clone, Debug, Default)]
pub struct Processes {
    by_pid: BTreeMap<u32, Process>,
    children: BTreeMap<u32, Vec<u32>>,
}

impl Processes {
    /// Reads /proc. Skips processes that end during the read.
    pub fn read() -> io::Result<Processes> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")?.flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
            found.extend(pid.and_then(|pid| read_process(&entry.path(), pid)));
        }
        Ok(Processes::of(found))
    }

    #[must_use]
    pub fn of(found: Vec<Process>) -> Processes {
        let mut processes = Processes::default();
        for process in found {
            processes.children.entry(process.parent).or_default().push(process.pid);
            processes.by_pid.insert(process.pid, process);
        }
        processes
    }

    #[must_use]
    pub fn get(&self, pid: u32) -> Option<&Process> {
        self.by_pid.get(&pid)
    }

    pub fn all(&self) -> impl Iterator<Item = &Process> {
        self.by_pid.values()
    }

    /// A process and all its descendants; empty if the process does not exist.
    #[must_use]
    pub fn tree(&self, root: u32) -> BTreeSet<u32> {
        let mut tree = BTreeSet::new();
        let mut waiting = vec![root];
        while let Some(pid) = waiting.pop() {
            if self.by_pid.contains_key(&pid) && tree.insert(pid) {
                waiting.extend(self.children.get(&pid).into_iter().flatten());
            }
        }
        tree
    }
}

/// The process that the thread belongs to; `None` if /proc does not list the thread.
pub fn process_of_thread(tid: u32) -> Option<u32> {
    let status = text::read(format!("/proc/{tid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok())
}

fn read_process(directory: &Path, pid: u32) -> Option<Process> {
    let stat = text::read(directory.join("stat")).ok()?;
    let executable = fs::read_link(directory.join("exe")).ok();
    let executable = executable.as_deref().and_then(Path::file_name).map(|name| {
        let name = name.to_string_lossy();
        // The executable was replaced (an upgrade): the process still runs the unlinked file.
        name.strip_suffix(" (deleted)").unwrap_or(&name).to_owned()
    });
    parse_stat(&stat, pid).map(|process| Process { executable, ..process })
}

/// Parses `PID (comm) STATE PPID ... num_threads` (fs/proc/array.c: do_task_stat). The name may contain spaces and
/// parentheses.
fn parse_stat(stat: &str, pid: u32) -> Option<Process> {
    let (open, close) = (stat.find('(')?, stat.rfind(')')?);
    let name = stat.get(open + 1..close)?.to_owned();
    let fields: Vec<&str> = stat.get(close + 1..)?.split_whitespace().collect();
    let ended = matches!(*fields.first()?, "Z" | "X");
    let parent = fields.get(1)?.parse().ok()?;
    let threads = fields.get(17).and_then(|count| count.parse().ok()).unwrap_or(1);
    Some(Process { pid, parent, name, executable: None, threads, ended })
}

#[cfg(test)]
pub(super) mod tests {
    use super::{Process, Processes, parse_stat};

    /// Processes from (pid, parent, name), each with one thread.
    pub fn made(list: &[(u32, u32, &str)]) -> Processes {
        let process = |&(pid, parent, name): &(u32, u32, &str)| Process {
            pid,
            parent,
            name: name.to_owned(),
            threads: 1,
            ..Process::default()
        };
        Processes::of(list.iter().map(process).collect())
    }

    #[test]
    fn a_name_may_contain_spaces_and_parentheses() {
        let stat = "812 (a) b (c) S 7 812 812 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 31 0 100 0 0";
        let process = parse_stat(stat, 812).expect("a process");
        assert_eq!((process.name.as_str(), process.parent, process.threads), ("a) b (c", 7, 31));
        assert!(!process.ended);
        assert!(parse_stat("812 (x) Z 7", 812).expect("a zombie").ended);
        assert!(parse_stat("812 nothing", 812).is_none());
    }

    #[test]
    fn a_program_matches_by_executable_or_by_its_truncated_name() {
        let process =
            Process { name: "elasticsearch-l".to_owned(), executable: Some("java".to_owned()), ..Process::default() };
        assert!(process.is_program("java") && process.is_program("elasticsearch-long-name"));
        assert!(!process.is_program("elasticsearch") && !process.is_program("jav"));
    }

    #[test]
    fn this_process_is_found() {
        let processes = Processes::read().expect("/proc");
        let own = processes.get(std::process::id()).expect("ourselves");
        assert!(own.executable.is_some() && own.threads >= 1 && !own.ended);
        assert!(processes.tree(std::process::id()).contains(&own.pid));
    }
}
