//! The processes that a recording follows. The list is updated each second, because programs may start after the
//! recording.

use std::collections::BTreeSet;
use std::fs;

use super::{Process, Processes, Selection, container_of, process_of_thread};
use crate::error::HostError;
use crate::proc;
use crate::record::RecordOptions;
use crate::session::Session;
use flatwater_recording::{AccessKind, Gap, WatchedProcess};

/// Read the descriptors and mappings of at most this many processes to find users of io_uring and libaio: reading those
/// of ten thousand would take seconds.
const LOOKED_INTO_MAX: usize = 256;
/// List at most this many processes in the header: a program that forks ten thousand children must not fill it.
const LISTED_MAX: usize = 1024;

/// The selection and the processes found for it so far.
#[derive(Debug)]
pub struct WatchedSet {
    selection: Selection,
    /// The processes found first, when the recording began.
    pub processes: Vec<Process>,
    /// All processes found so far, as they were when found, for the report.
    listed: Vec<WatchedProcess>,
    known: BTreeSet<u32>,
}

impl WatchedSet {
    /// Finds the requested processes. Fails if a process or program is not running.
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

    /// The first process id that the user named, or the lowest id that runs a named program.
    #[must_use]
    pub fn first(&self) -> Option<u32> {
        self.selection.pids.first().copied().or_else(|| self.known.first().copied())
    }

    /// Makes the session follow new processes of the selection; returns their number. The BPF programs follow forks by
    /// themselves, so this finds programs that other processes started, and forks between the first look and the
    /// attachment of the hooks.
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

    /// Whether all processes that were named by id have ended. `false` if a program was named, because it may start
    /// again.
    #[must_use]
    pub fn ended(&self) -> bool {
        let named = &self.selection;
        named.programs.is_empty() && !named.pids.is_empty() && !named.pids.iter().any(|&pid| alive(pid))
    }

    /// For the header: the processes found first and later, at most `LISTED_MAX`.
    #[must_use]
    pub fn listed(&self) -> Vec<WatchedProcess> {
        self.listed.clone()
    }

    /// The processes that have a ring of io_uring or of libaio; looks at no more than `LOOKED_INTO_MAX`.
    #[must_use]
    pub fn users_of(&self, access: AccessKind) -> Vec<u32> {
        self.known.iter().copied().take(LOOKED_INTO_MAX).filter(|&pid| uses(pid, access)).collect()
    }

    /// A gap if the header does not list all processes.
    #[must_use]
    pub fn not_listed(&self) -> Option<Gap> {
        let beyond = self.known.len().checked_sub(self.listed.len()).filter(|beyond| *beyond > 0)?;
        let what = format!("the names and titles of {beyond} of {} watched processes", self.known.len());
        let why = format!("at most {LISTED_MAX} processes are listed");
        Some(Gap::new(what, why, "their calls are recorded; each slow call has its own process id and thread name"))
    }

    /// A gap if `users_of` does not look at all processes.
    #[must_use]
    pub fn not_looked_into(&self) -> Option<Gap> {
        let beyond = self.known.len().checked_sub(LOOKED_INTO_MAX).filter(|beyond| *beyond > 0)?;
        let what = format!("whether {beyond} of {} processes use io_uring or libaio", self.known.len());
        let why = format!(
            "only {LOOKED_INTO_MAX} processes are examined, since reading the descriptors and mappings of all would take seconds"
        );
        Some(Gap::new(what, why, "select fewer processes; timed operations of all processes are counted"))
    }
}

fn listed(process: &Process) -> WatchedProcess {
    let membership = proc::text::read(format!("/proc/{}/cgroup", process.pid)).unwrap_or_default();
    let container = membership.lines().filter_map(|line| line.splitn(3, ':').nth(2)).find_map(container_of);
    let mut listed = WatchedProcess::new(process.pid, process.parent, process.name.clone());
    listed.executable = process.executable.clone();
    listed.threads = process.threads as u64;
    listed.container = container.map(|container| container.to_string());
    let command_line = proc::text::read_first(format!("/proc/{}/cmdline", process.pid), TITLE_BYTES_MAX + 1);
    listed.title = command_line.ok().and_then(|line| title(&line));
    listed
}

/// The longest title, as in the kernel (fs/proc/base.c: get_mm_proctitle): a page.
const TITLE_BYTES_MAX: usize = 4_096;

/// The title that a process wrote over its command line: a single string that contains spaces. A command line has one
/// string per argument; arguments are never recorded, since they may contain passwords.
fn title(command_line: &[u8]) -> Option<String> {
    let end = command_line.iter().rposition(|byte| !matches!(byte, 0 | b' ')).map_or(0, |last| last + 1);
    let text = command_line.get(..end)?;
    let one = !text.contains(&0) && text.contains(&b' ') && command_line.len() <= TITLE_BYTES_MAX;
    one.then(|| String::from_utf8_lossy(text).into_owned())
}

/// Whether the process uses io_uring (a descriptor `anon_inode:[io_uring]`) or libaio (a mapping `/[aio]`, fs/aio.c:
/// aio_setup_ring).
fn uses(pid: u32, access: AccessKind) -> bool {
    match access {
        AccessKind::IoUring => {
            let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            let mut links = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
            links.any(|link| link.to_string_lossy() == "anon_inode:[io_uring]")
        }
        AccessKind::LinuxAio => {
            let of_aio = |line: &str| line.contains(" /[aio]").then_some(());
            proc::text::find_line(format!("/proc/{pid}/maps"), of_aio).is_ok_and(|found| found.is_some())
        }
        _ => false,
    }
}

/// Whether the process exists and is not a zombie.
fn alive(pid: u32) -> bool {
    let stat = proc::text::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next());
    state.is_some_and(|state| state != "Z" && state != "X")
}

#[cfg(test)]
mod tests {
    use super::title;

    #[test]
    fn a_title_is_recorded_and_arguments_are_not() {
        let checkpointer = b"postgres: 16/main: checkpointer \0\0\0\0";
        assert_eq!(title(checkpointer).as_deref(), Some("postgres: 16/main: checkpointer"));
        assert_eq!(title(b"mariadb\0-u\0root\0-psecret\0"), None);
        assert_eq!(title(b"redis-server\0"), None, "an argument without more is the program's name");
        assert_eq!(title(b""), None);
        assert_eq!(title(&b"a title ".repeat(1_000)), None, "longer than any title");
    }
}
