//! Finds calls that had not returned when the recording ended. The longest call may be among them: a writer behind a
//! frozen file system or a full device returns only when that state ends.
//!
//! The BPF programs keep the state of each thread's call. The states are read after the hooks are detached, so they no
//! longer change. A thread that left the CPU at the last event is still off the CPU.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use aya::Ebpf;
use aya::maps::{HashMap, MapData};
use aya::programs::{Iter, ProgramError};

use super::error::TraceError;
use super::hooks::refused;
use super::layout::{CallState, Stretch, kind, size};
use flatwater_recording::{Gap, HookState, HookStatus};

/// Access to the states of threads.
pub enum States {
    /// An iterator over all threads, whose BPF program sends the states through the ring buffer. Task storage cannot be
    /// read in another way for threads that are not thread group leaders (their pidfd needs 6.9).
    Threads(File),
    /// The hash map that contains the states.
    Hash(HashMap<MapData, u32, CallState>),
    /// The states cannot be read.
    Refused,
}

/// The iterator's target: `iter/task`, used by both BPF objects.
const EACH_TASK: &str = "task";

/// Loads an iterator over all threads and opens it. Reading the file runs the program once per thread, which needs no
/// capability.
pub fn iterator(ebpf: &mut Ebpf, btf: &aya::Btf, program: &str) -> Result<File, TraceError> {
    iter_program(ebpf, program)?.load(EACH_TASK, btf).map_err(|error| refused(&error))?;
    open(ebpf, program)
}

/// Opens a loaded iterator again, to run it once more.
pub fn open(ebpf: &mut Ebpf, program: &str) -> Result<File, TraceError> {
    let tell = |error: ProgramError| refused(&error);
    let iter = iter_program(ebpf, program)?;
    let link = iter.attach().map_err(tell)?;
    iter.take_link(link).map_err(tell)?.into_file().map_err(|error| refused(&error))
}

fn iter_program<'a>(ebpf: &'a mut Ebpf, program: &str) -> Result<&'a mut Iter, TraceError> {
    let program = ebpf.program_mut(program).ok_or(TraceError::NoProgram)?;
    program.try_into().map_err(|error: ProgramError| refused(&error))
}

/// The status of an access to unfinished calls or sleeps, in the form of a hook's status.
pub fn status<T>(name: &str, serves: &str, outcome: &Result<T, TraceError>) -> HookStatus {
    let (state, reason) = match outcome {
        Ok(_) => (HookState::Exact, String::new()),
        Err(why) => (HookState::Unavailable, why.to_string()),
    };
    HookStatus::new(name, vec![serves.to_owned()], state, reason)
}

/// Names of gaps: records that are missing because the states could not be read.
const CALLS: &str = "calls that had not returned when the recording ended";
pub const SLEEPS: &str = "sleeps that had not ended when the recording ended";

/// A gap for states that could not be read; the longest stall may be missing.
pub fn unread(what: &str, error: &dyn std::error::Error) -> Gap {
    let remedy = "record again for longer than the stall lasts; calls that return are recorded without these states";
    Gap::new(what, format!("the kernel's states of threads could not be read: {error}"), remedy)
}

/// Runs the iterator's program for each thread; the program prints nothing.
pub fn run(iterator: &mut File) -> std::io::Result<()> {
    iterator.read_to_end(&mut Vec::new()).map(drop)
}

impl States {
    /// Reads the states from the hash map; those of an iterator come through the ring buffer. Returns a gap if reading
    /// failed.
    pub fn read(&mut self) -> (Vec<CallState>, Option<Gap>) {
        match self {
            States::Threads(iterator) => (Vec::new(), run(iterator).err().map(|error| unread(CALLS, &error))),
            States::Hash(states) => {
                let (mut read, mut gap) = (Vec::new(), None);
                for state in states.iter() {
                    match state {
                        Ok((_, state)) => read.push(state),
                        Err(error) => gap = Some(unread(CALLS, &error)),
                    }
                }
                (read, gap)
            }
            // `check` and the header's list of hooks report this.
            States::Refused => (Vec::new(), None),
        }
    }
}

/// The stretches from the last event of the state to `now_ns`.
pub fn since_last_event(state: &CallState, now_ns: u64) -> Vec<Stretch> {
    let bracket = state.bracket[usize::from(state.depth) & (size::DEPTH - 1)];
    let stretch = |ns, kind, stack| Stretch { ns, stack, kind, bracket, count: 1 };
    let woken_ns = match state.wake_ns {
        at if at >= state.last_ns && at < now_ns => at,
        _ => now_ns,
    };
    let rest_ns = now_ns.saturating_sub(state.last_ns);
    let parts = match state.off {
        kind::ON_CPU => vec![stretch(rest_ns, kind::ON_CPU, -1)],
        kind::ASLEEP => vec![
            stretch(woken_ns.saturating_sub(state.last_ns), kind::ASLEEP, state.sleep_stack),
            stretch(now_ns.saturating_sub(woken_ns), kind::WOKEN, -1),
        ],
        waits => vec![stretch(rest_ns, waits, state.sleep_stack)],
    };
    parts.into_iter().filter(|part| part.ns > 0).collect()
}

/// Limits how long flatwater waits for reads of /proc of processes that may hang: a read of their memory or mappings
/// may hang as well. A read that takes longer counts as failed, and its process is not read again.
#[derive(Debug)]
pub struct Patience {
    each: Duration,
    /// Total for all processes: a thousand threads of a server may hang at once.
    left: Duration,
    silent: HashSet<u32>,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { each: Duration::from_millis(500), left: Duration::from_secs(3), silent: HashSet::new() }
    }
}

impl Patience {
    pub fn ask<T: Send + 'static>(&mut self, tgid: u32, ask: impl FnOnce() -> Option<T> + Send + 'static) -> Option<T> {
        if self.left.is_zero() || self.silent.contains(&tgid) {
            return None;
        }
        let (answer, answered) = mpsc::channel();
        let asking = std::thread::Builder::new().name("flatwater-ask".to_owned());
        let since = Instant::now();
        // Both waits in the kernel (mmap_read_lock_killable) end when this process exits, so an abandoned thread does
        // no harm.
        asking.spawn(move || answer.send(ask())).ok()?;
        let reported = answered.recv_timeout(self.each.min(self.left));
        self.left = self.left.saturating_sub(since.elapsed());
        if reported.is_err() {
            self.silent.insert(tgid);
        }
        reported.ok().flatten()
    }
}

fn path_in(tgid: u32, address: u64) -> Option<[u8; size::PATH_BYTES]> {
    let mut path = [0; size::PATH_BYTES];
    let memory = File::open(format!("/proc/{tgid}/mem")).ok()?;
    let read = memory.read_at(&mut path[..size::PATH_BYTES - 1], address).ok()?;
    // Cut off by the end of a mapping, the path would name another file.
    let end = path[..read].iter().position(|byte| *byte == 0).or((read == size::PATH_BYTES - 1).then_some(read))?;
    path[end..].fill(0);
    Some(path)
}

/// Fills in what a finished call's record contains: the path argument, read from the thread's memory, and the thread's
/// name.
pub fn describe(state: &mut CallState, path_at: Option<u64>, patience: &mut Patience) {
    let comm = std::fs::read(format!("/proc/{}/task/{}/comm", state.tgid, state.tid)).unwrap_or_default();
    state.comm = [0; 16];
    let name = comm.strip_suffix(b"\n").unwrap_or(&comm);
    state.comm.iter_mut().zip(name.iter().take(15)).for_each(|(to, from)| *to = *from);
    state.path = [0; size::PATH_BYTES];
    let tgid = state.tgid;
    if let Some(path) = path_at.and_then(|address| patience.ask(tgid, move || path_in(tgid, address))) {
        state.path = path;
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::{CallState, HEAD_BYTES, kind};
    use super::{Patience, States, describe, since_last_event};

    /// A directory serves as an iterator that fails: it can be opened, but reading it is an error.
    #[test]
    fn a_failing_iterator_leaves_a_gap() {
        let broken = std::fs::File::open("/").expect("a folder");
        let (read, gap) = States::Threads(broken).read();
        assert!(read.is_empty());
        let gap = gap.expect("a gap");
        assert!(gap.what.contains("had not returned") && gap.why.contains("directory"), "{gap:?}");
        assert!(!gap.remedy.is_empty());
        let whole = std::fs::File::open("/dev/null").expect("an empty file");
        assert!(States::Threads(whole).read().1.is_none());
    }

    fn state(off: u8, wake_ns: u64) -> CallState {
        let blank = CallState::from_record(&[0; HEAD_BYTES]).expect("a record");
        let mut state = CallState { start_ns: 100, last_ns: 200, off, wake_ns, sleep_stack: 7, depth: 1, ..blank };
        state.bracket[1] = 3;
        state
    }

    #[test]
    fn a_thread_that_left_the_cpu_is_still_off_it() {
        let parts = |off, wake_ns| -> Vec<(u64, u8, i32, u8)> {
            let parts = since_last_event(&state(off, wake_ns), 1_000);
            parts.iter().map(|part| (part.ns, part.kind, part.stack, part.bracket)).collect()
        };
        assert_eq!(parts(kind::ASLEEP, 0), [(800, kind::ASLEEP, 7, 3)]);
        assert_eq!(parts(kind::ASLEEP, 700), [(500, kind::ASLEEP, 7, 3), (300, kind::WOKEN, -1, 3)]);
        assert_eq!(parts(kind::PREEMPTED, 0), [(800, kind::PREEMPTED, 7, 3)]);
        assert_eq!(parts(kind::ON_CPU, 0), [(800, kind::ON_CPU, -1, 3)]);
    }

    #[test]
    fn an_event_after_the_end_adds_no_stretch() {
        assert!(since_last_event(&state(kind::ASLEEP, 0), 150).is_empty());
    }

    #[test]
    fn a_process_that_does_not_answer_is_skipped() {
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let mut patience = Patience::default();
        assert_eq!(patience.ask(7, move || held.recv().ok().map(|()| 1)), None);
        drop(hold);
        assert_eq!(patience.ask(8, || Some(2)), Some(2));
        assert_eq!(patience.ask(7, || Some(3)), None, "it is not asked again");
    }

    /// The total wait is bounded, even for a thousand hanging processes.
    #[test]
    fn the_total_wait_for_hanging_processes_is_bounded() {
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let held = std::sync::Arc::new(std::sync::Mutex::new(held));
        let mut patience = Patience::default();
        let started = (0..1_000).filter(|tgid| {
            let (held, asked) = (held.clone(), patience.left);
            assert_eq!(patience.ask(*tgid, move || held.lock().ok()?.recv().ok()), None);
            !asked.is_zero()
        });
        assert!(started.count() < 1_000);
        drop(hold);
    }

    #[test]
    fn describe_reads_path_and_name_of_the_thread() {
        let path = c"/srv/journal/a";
        let mut state = state(kind::ASLEEP, 0);
        (state.tgid, state.tid) = (std::process::id(), std::process::id());
        describe(&mut state, Some(path.as_ptr() as u64), &mut Patience::default());
        assert_eq!(super::super::layout::text(&state.path), "/srv/journal/a");
        assert!(!super::super::layout::text(&state.comm).is_empty());
        describe(&mut state, Some(8), &mut Patience::default());
        assert_eq!(super::super::layout::text(&state.path), "");
    }
}
