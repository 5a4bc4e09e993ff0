//! Calls that had not returned when the recording ended. The longest of all may be among them: a writer behind a frozen file
//! system or a full device returns when that ends, not when somebody stops watching.
//!
//! The kernel side keeps the state of each thread's call; it is read once the hooks are detached, so that nothing changes it
//! any more. What happened since a state's last event follows from it: a thread that left the CPU is still away.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use aya::Ebpf;
use aya::maps::{HashMap, MapData};

use super::error::TraceError;
use super::hooks::refused;
use super::layout::{CallState, Stretch, kind, size};
use flatwater_recording::{HookState, HookStatus};

/// Where the states of threads are.
pub enum States {
    /// An iterator over all threads, whose program sends the states through the ring: task storage has no other way out for
    /// threads that do not lead their process (a pidfd of those is of 6.9).
    Threads(File),
    /// The hash that has them.
    Hash(HashMap<MapData, u32, CallState>),
    /// Why they cannot be read.
    Refused,
}

/// The program's name in both objects' iterators, and the kind of thing that they go through.
const EACH_TASK: &str = "task";

/// Loads an iterator over all threads and opens it. Reading the file runs the program, once: no capability is needed for that.
pub fn iterator(ebpf: &mut Ebpf, btf: &aya::Btf, program: &str) -> Result<File, TraceError> {
    let program = ebpf.program_mut(program).ok_or(TraceError::NoProgram)?;
    let tell = |error: aya::programs::ProgramError| refused(&error);
    let iter: &mut aya::programs::Iter = program.try_into().map_err(tell)?;
    iter.load(EACH_TASK, btf).map_err(tell)?;
    let link = iter.attach().map_err(tell)?;
    iter.take_link(link).map_err(tell)?.into_file().map_err(|error| refused(&error))
}

/// What became of a way to what has not ended, as of a hook.
pub fn status<T>(name: &str, serves: &str, outcome: &Result<T, TraceError>) -> HookStatus {
    let (state, reason) = match outcome {
        Ok(_) => (HookState::Exact, String::new()),
        Err(why) => (HookState::Unavailable, why.to_string()),
    };
    HookStatus::new(name, vec![serves.to_owned()], state, reason)
}

/// Runs the iterator's program for each thread; it writes nothing here.
pub fn run(iterator: &mut File) -> std::io::Result<()> {
    iterator.read_to_end(&mut Vec::new()).map(drop)
}

impl States {
    /// Those that the hash holds; an iterator's come through the ring.
    pub fn read(&mut self) -> Vec<CallState> {
        match self {
            States::Threads(iterator) => {
                if let Err(error) = run(iterator) {
                    tracing::warn!("calls that have not ended cannot be read: {error}");
                }
                Vec::new()
            }
            States::Hash(states) => states.iter().flatten().map(|(_, state)| state).collect(),
            States::Refused => Vec::new(),
        }
    }
}

/// How the thread has spent the time since its last event.
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

/// What processes that may hang are asked at a recording's end: one that hangs may hang whoever asks for its memory or its
/// mappings. An answer that takes longer is none, and whoever gave none is not asked again.
#[derive(Debug)]
pub struct Patience {
    each: Duration,
    /// For all together: a server's thousand threads may hang at once.
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
        // Both waits of the kernel end when we do (mmap_read_lock_killable), so that a thread left behind holds up nobody.
        asking.spawn(move || answer.send(ask())).ok()?;
        let told = answered.recv_timeout(self.each.min(self.left));
        self.left = self.left.saturating_sub(since.elapsed());
        if told.is_err() {
            self.silent.insert(tgid);
        }
        told.ok().flatten()
    }
}

fn path_in(tgid: u32, address: u64) -> Option<[u8; size::PATH_BYTES]> {
    let mut path = [0; size::PATH_BYTES];
    let memory = File::open(format!("/proc/{tgid}/mem")).ok()?;
    let read = memory.read_at(&mut path[..size::PATH_BYTES - 1], address).ok()?;
    // Cut short by the end of a mapping it would be another path.
    let end = path[..read].iter().position(|byte| *byte == 0).or((read == size::PATH_BYTES - 1).then_some(read))?;
    path[end..].fill(0);
    Some(path)
}

/// What a call that has ended brings along by itself: the path that it was given, which its thread's memory still holds, and
/// the thread's name.
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
    use super::{Patience, describe, since_last_event};

    fn state(off: u8, wake_ns: u64) -> CallState {
        let blank = CallState::from_record(&[0; HEAD_BYTES]).expect("a record");
        let mut state = CallState { start_ns: 100, last_ns: 200, off, wake_ns, sleep_stack: 7, depth: 1, ..blank };
        state.bracket[1] = 3;
        state
    }

    #[test]
    fn a_thread_that_left_the_cpu_is_still_away() {
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
    fn nothing_has_passed_since_an_event_after_the_moment() {
        assert!(since_last_event(&state(kind::ASLEEP, 0), 150).is_empty());
    }

    #[test]
    fn a_process_that_does_not_answer_is_not_waited_for() {
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let mut patience = Patience::default();
        assert_eq!(patience.ask(7, move || held.recv().ok().map(|()| 1)), None);
        drop(hold);
        assert_eq!(patience.ask(8, || Some(2)), Some(2));
        assert_eq!(patience.ask(7, || Some(3)), None, "it was asked once");
    }

    /// A thousand processes that hang are not a thousand waits.
    #[test]
    fn all_that_hang_together_are_waited_for_once() {
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
    fn path_and_name_are_those_of_the_thread() {
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
