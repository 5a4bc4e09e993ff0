//! The processes that a recording follows, found again each second: programs may start after it did.

use std::collections::BTreeSet;
use std::fs;

use super::{Process, Processes, Selection, container_of, process_of_thread};
use crate::error::HostError;
use crate::proc;
use crate::record::RecordOptions;
use crate::session::Session;
use flatwater_recording::{AccessKind, Gap, WatchedProcess};

/// Processes whose descriptors and mappings are read to learn whether they use io_uring or libaio: reading those of ten
/// thousand would cost seconds.
const LOOKED_INTO_MAX: usize = 256;
/// Processes that the header names: a program that forks ten thousand children must not fill it.
const LISTED_MAX: usize = 1024;

/// The selection and the processes that were found for it so far.
#[derive(Debug)]
pub struct WatchedSet {
    selection: Selection,
    /// Those of the first look.
    pub processes: Vec<Process>,
    /// All that were seen, each as it was then, for the report.
    listed: Vec<WatchedProcess>,
    known: BTreeSet<u32>,
}

impl WatchedSet {
    /// Looks for the processes that were asked for; each must be there.
    pub fn find(options: &RecordOptions) -> Result<WatchedSet, HostError> {
        let selection = Selection { pids: options.pids.clone(), programs: options.programs.clone() };
        if selection.is_empty() {
            return Ok(WatchedSet { selection, processes: Vec::new(), listed: Vec::new(), known: BTreeSet::new() });
        }
        let all = Processes::read().map_err(HostError::NoProc)?;
        let selection = Selection {
            pids: selection.pids.iter().map(|&pid| process_of_thread(pid).unwrap_or(pid)).collect(),
            ..selection
        };
        if let Some(&pid) = selection.pids.iter().find(|pid| all.get(**pid).is_none_or(|process| process.ended)) {
            return Err(HostError::NoProcess { pid });
        }
        for program in &selection.programs {
            if !all.all().any(|process| process.is_program(program)) {
                return Err(HostError::NoProgram { program: program.clone() });
            }
        }
        let processes = selection.processes(&all);
        let known = processes.iter().map(|process| process.pid).collect();
        let listed = processes.iter().take(LISTED_MAX).map(listed).collect();
        Ok(WatchedSet { selection, processes, listed, known })
    }

    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        self.known.iter().copied().collect()
    }

    /// The process that was named first, or the first that runs the program.
    #[must_use]
    pub fn first(&self) -> Option<u32> {
        self.selection.pids.first().copied().or_else(|| self.known.first().copied())
    }

    /// Has the session follow those that have joined; how many they are. The kernel side follows forks by itself: this
    /// finds programs that were started by others, and forks that fell between the first look and the hooks.
    pub fn adopt_new(&mut self, session: &mut Session) -> Result<usize, HostError> {
        if self.selection.is_empty() {
            return Ok(0);
        }
        let now = self.selection.processes(&Processes::read().map_err(HostError::NoProc)?);
        let mut new = 0;
        for process in &now {
            if self.known.insert(process.pid) {
                session.add_process(process.pid)?;
                new += 1;
                if self.listed.len() < LISTED_MAX {
                    self.listed.push(listed(process));
                }
            }
        }
        Ok(new)
    }

    /// All that were named by their id have ended. A program may start again, so its end ends nothing.
    #[must_use]
    pub fn ended(&self) -> bool {
        let named = &self.selection;
        named.programs.is_empty() && !named.pids.is_empty() && !named.pids.iter().any(|&pid| alive(pid))
    }

    /// For the header: those that were there and those that were found later, at most `LISTED_MAX`.
    #[must_use]
    pub fn listed(&self) -> Vec<WatchedProcess> {
        self.listed.clone()
    }

    /// Those that hold a ring of io_uring, or one of libaio.
    #[must_use]
    pub fn users_of(&self, access: AccessKind) -> Vec<u32> {
        self.known.iter().copied().take(LOOKED_INTO_MAX).filter(|&pid| uses(pid, access)).collect()
    }

    /// Processes that `users_of` leaves out, if there are any.
    #[must_use]
    pub fn not_looked_into(&self) -> Option<Gap> {
        let beyond = self.known.len().checked_sub(LOOKED_INTO_MAX).filter(|beyond| *beyond > 0)?;
        let what = format!("whether {beyond} of {} processes use io_uring or libaio", self.known.len());
        let why = format!(
            "the descriptors and mappings of {LOOKED_INTO_MAX} processes are read, since those of all would take seconds"
        );
        Some(Gap::new(what, why, "watch fewer processes; operations that were timed are counted of all of them"))
    }
}

fn listed(process: &Process) -> WatchedProcess {
    let membership = proc::text::read(format!("/proc/{}/cgroup", process.pid)).unwrap_or_default();
    let container = membership.lines().filter_map(|line| line.splitn(3, ':').nth(2)).find_map(container_of);
    let mut listed = WatchedProcess::new(process.pid, process.parent, process.name.clone());
    listed.executable = process.executable.clone();
    listed.threads = process.threads as u64;
    listed.container = container.map(|container| container.to_string());
    listed.title = fs::read(format!("/proc/{}/cmdline", process.pid)).ok().and_then(|line| title(&line));
    listed
}

/// The title that a process wrote over its command line: one string with spaces, where a command line has a string for
/// each argument. Arguments are never recorded: they may hold passwords.
fn title(command_line: &[u8]) -> Option<String> {
    let end = command_line.iter().rposition(|byte| !matches!(byte, 0 | b' ')).map_or(0, |last| last + 1);
    let text = command_line.get(..end)?;
    let one = !text.contains(&0) && text.contains(&b' ');
    one.then(|| String::from_utf8_lossy(text).into_owned())
}

/// io_uring is a descriptor (`anon_inode:[io_uring]`); libaio's ring is a mapping (`/[aio]`, fs/aio.c: aio_setup_ring).
fn uses(pid: u32, access: AccessKind) -> bool {
    match access {
        AccessKind::IoUring => {
            let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            let mut links = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
            links.any(|link| link.to_string_lossy() == "anon_inode:[io_uring]")
        }
        AccessKind::LinuxAio => {
            proc::text::read(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps.contains(" /[aio]"))
        }
        _ => false,
    }
}

/// There, and not a zombie that waits for its parent.
fn alive(pid: u32) -> bool {
    let stat = proc::text::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next());
    state.is_some_and(|state| state != "Z" && state != "X")
}

#[cfg(test)]
mod tests {
    use super::title;

    #[test]
    fn a_title_is_one_string_and_arguments_are_none() {
        let checkpointer = b"postgres: 16/main: checkpointer \0\0\0\0";
        assert_eq!(title(checkpointer).as_deref(), Some("postgres: 16/main: checkpointer"));
        assert_eq!(title(b"mariadb\0-u\0root\0-psecret\0"), None);
        assert_eq!(title(b"redis-server\0"), None, "an argument without more is the program's name");
        assert_eq!(title(b""), None);
    }
}
