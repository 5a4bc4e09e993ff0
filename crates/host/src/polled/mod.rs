//! Finds slow calls of other programs without any hook, for users who may not trace the kernel: reads about once a
//! millisecond what each thread of the target does.
//!
//! `/proc/PID/task/TID/syscall` (fs/proc/base.c: proc_pid_syscall) shows the system call of a blocked thread with its
//! arguments, `wchan` the kernel function in which it sleeps (kernel/sched/core.c: get_wchan skips the scheduler and
//! locks), `io` how many transfers it has completed, and `schedstat` its time on the CPU and waiting for one. The owner
//! of a process may read them all. Durations are known to about a period, causes from one function of the stack, and
//! the process that caused a wait is not seen.

mod call;
mod read;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use call::ThreadCalls;
use read::{ThreadFiles, Unreadable};

use super::clock::monotonic_ns;
use super::tasks::{GapsOnce, PROCESSES_MAX, Watched};
use flatwater_recording::{Call, Gap, Stack};

const PROC: &str = "/proc";
/// The shortest interval between two looks at the threads.
const PERIOD_NS: u64 = 1_000_000;
/// The interval is at least this many times the duration of a look, so that looking takes at most a tenth of one CPU.
const PERIOD_PER_LOOK: u64 = 10;
/// Likewise for listing the threads, which takes longer.
const PERIOD_PER_LISTING: u64 = 40;
/// Calls shorter than this may fall between two looks.
pub const SHORTEST_NS: u64 = 4 * PERIOD_NS;
/// Follow at most this many threads: each needs an open file.
const THREADS_MAX: usize = 512;
/// Looks that were this much later than planned are counted as missed.
const LATE_NS: u64 = SHORTEST_NS;

/// Calls found since the last look, and what could not be read.
#[derive(Debug, Default)]
pub struct Found {
    pub calls: Vec<Call>,
    pub stacks: Vec<Stack>,
    pub gaps: Vec<Gap>,
    /// Number of threads that were found and can be read.
    followed: u64,
}

#[derive(Debug)]
enum Order {
    Add(u32),
    Stop,
}

/// A thread that looks at the target's threads.
#[derive(Debug)]
pub struct PolledCalls {
    watched: Watched,
    threshold_ns: u64,
    found: Arc<Mutex<Found>>,
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
    /// Number of threads that could be read.
    followed: u64,
}

impl PolledCalls {
    /// Prepares to look. Calls that take less than `threshold_ns` are dropped.
    #[must_use]
    pub fn new(watched: Watched, threshold_ns: u64) -> PolledCalls {
        PolledCalls { watched, threshold_ns, found: Arc::default(), orders: None, thread: None, followed: 0 }
    }

    /// Starts looking.
    pub fn begin(&mut self) {
        let (orders, received) = channel();
        let found = Arc::clone(&self.found);
        let mut poller = Poller::new(self.watched.clone(), self.threshold_ns, found);
        // A failure to start a thread leaves `thread` empty; `finish` then reports it.
        let started =
            std::thread::Builder::new().name("flatwater-poll".to_owned()).spawn(move || poller.run(&received));
        (self.orders, self.thread) = (Some(orders), started.ok());
    }

    /// Also looks at a process that began after the recording.
    pub fn add_process(&mut self, pid: u32) {
        match &self.orders {
            // The receiver is gone only after `finish`.
            Some(orders) => _ = orders.send(Order::Add(pid)),
            None => self.watched.add_process(pid),
        }
    }

    /// Whether the calls of any thread could be seen.
    #[must_use]
    pub fn saw_threads(&self) -> bool {
        self.followed > 0
    }

    /// The slow calls that have ended since the last `take`.
    pub fn take(&mut self) -> Found {
        let found = std::mem::take(&mut *self.found.lock().unwrap_or_else(PoisonError::into_inner));
        self.followed += found.followed;
        found
    }

    /// Stops looking and returns the last calls, including calls that have not returned.
    pub fn finish(&mut self) -> Found {
        if let Some(orders) = self.orders.take() {
            let _ = orders.send(Order::Stop);
        }
        let ended = self.thread.take().map(JoinHandle::join);
        let mut found = self.take();
        if !matches!(ended, Some(Ok(()))) {
            let why = "the thread that looks at the target's threads could not run";
            found.gaps.push(Gap::new("slow calls", why, "record as root"));
        }
        found
    }
}

#[derive(Debug)]
struct Followed {
    files: ThreadFiles,
    calls: ThreadCalls,
}

/// The state of the polling thread.
#[derive(Debug)]
struct Poller {
    watched: Watched,
    threshold_ns: u64,
    found: Arc<Mutex<Found>>,
    threads: BTreeMap<u32, Followed>,
    /// Ids of the stacks, by the function in which the thread slept.
    stacks: call::Stacks,
    list_due_ns: u64,
    looks: u64,
    looks_late: u64,
    late_ns_max: u64,
    unreadable: Option<(u32, Unreadable)>,
    /// Processes that could not be listed.
    unlisted: GapsOnce,
    full: bool,
}

impl Poller {
    fn new(watched: Watched, threshold_ns: u64, found: Arc<Mutex<Found>>) -> Poller {
        Poller {
            watched,
            threshold_ns,
            found,
            threads: BTreeMap::new(),
            stacks: call::Stacks::default(),
            list_due_ns: 0,
            looks: 0,
            looks_late: 0,
            late_ns_max: 0,
            unreadable: None,
            unlisted: GapsOnce::default(),
            full: false,
        }
    }

    fn run(&mut self, orders: &Receiver<Order>) {
        let mut due_ns = monotonic_ns();
        loop {
            let now_ns = monotonic_ns();
            let wait = Duration::from_nanos(due_ns.saturating_sub(now_ns));
            match orders.recv_timeout(wait) {
                Ok(Order::Add(pid)) => {
                    self.watched.add_process(pid);
                    self.list_due_ns = 0;
                    continue;
                }
                Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let begun_ns = monotonic_ns();
            let late_ns = begun_ns.saturating_sub(due_ns);
            if late_ns > LATE_NS {
                self.looks_late += 1;
                self.late_ns_max = self.late_ns_max.max(late_ns);
            }
            if begun_ns >= self.list_due_ns {
                self.list(begun_ns);
            }
            self.look();
            self.looks += 1;
            let look_ns = monotonic_ns().saturating_sub(begun_ns);
            due_ns = begun_ns + PERIOD_NS.max(look_ns.saturating_mul(PERIOD_PER_LOOK));
        }
        self.end();
    }

    /// Finds the target's threads.
    fn list(&mut self, begun_ns: u64) {
        let mut followed = 0;
        let (processes, unlisted) = self.watched.threads(Path::new(PROC));
        self.unlisted.extend(unlisted);
        // Children of further processes are not listed.
        self.full |= processes.len() > PROCESSES_MAX;
        for (pid, tids) in processes {
            for tid in tids {
                if self.threads.contains_key(&tid) {
                    continue;
                }
                if self.threads.len() >= THREADS_MAX {
                    self.full = true;
                    break;
                }
                match ThreadFiles::open(Path::new(PROC), pid, tid) {
                    Ok(files) => {
                        let calls = ThreadCalls::new(pid, tid, self.threshold_ns);
                        self.threads.insert(tid, Followed { files, calls });
                        followed += 1;
                    }
                    Err(Unreadable::Gone) => {}
                    Err(refused) => _ = self.unreadable.get_or_insert((pid, refused)),
                }
            }
        }
        self.found.lock().unwrap_or_else(PoisonError::into_inner).followed += followed;
        let list_ns = monotonic_ns().saturating_sub(begun_ns);
        self.list_due_ns = begun_ns + PERIOD_NS.max(list_ns.saturating_mul(PERIOD_PER_LISTING));
    }

    fn look(&mut self) {
        let mut ended = Vec::new();
        let mut calls = Vec::new();
        for (tid, followed) in &mut self.threads {
            let at_ns = monotonic_ns();
            match followed.files.sample() {
                Ok(sample) => calls.extend(followed.calls.add(at_ns, sample, &followed.files, &mut self.stacks)),
                Err(Unreadable::Gone) => {
                    calls.extend(followed.calls.thread_ended(at_ns));
                    ended.push(*tid);
                }
                Err(refused) => {
                    self.unreadable.get_or_insert((followed.calls.pid(), refused));
                    ended.push(*tid);
                }
            }
        }
        for tid in ended {
            self.threads.remove(&tid);
        }
        if !calls.is_empty() {
            self.give(calls);
        }
    }

    fn give(&mut self, calls: Vec<Call>) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.calls.extend(calls);
        found.stacks.extend(self.stacks.take_new());
    }

    /// Returns the calls that are under way, and what was not seen.
    fn end(&mut self) {
        let at_ns = monotonic_ns();
        let calls = self.threads.values_mut().filter_map(|followed| followed.calls.under_way(at_ns)).collect();
        self.give(calls);
        let mut gaps = self.gaps();
        gaps.extend(self.unlisted.take());
        self.found.lock().unwrap_or_else(PoisonError::into_inner).gaps.extend(gaps);
    }

    fn gaps(&self) -> Vec<Gap> {
        let mut gaps = Vec::new();
        if let Some((pid, Unreadable::Refused(why))) = &self.unreadable {
            let why = format!("/proc/{pid}/task/*/syscall: {why}");
            let remedy = "start the program with `flatwater record -- CMD`, or record as root";
            gaps.push(Gap::new("calls of some threads", why, remedy));
        }
        if self.full {
            let why = format!("at most {THREADS_MAX} threads of {PROCESSES_MAX} processes are followed without hooks");
            gaps.push(Gap::new("calls of further threads", why, "select fewer processes, or record as root"));
        }
        if self.looks_late > 0 {
            let late_ms = self.late_ns_max / 1_000_000;
            let why = format!(
                "{} of {} looks at the threads came more than {} ms late, at most {late_ms} ms: calls in between may be \
                 missing, and durations are that uncertain",
                self.looks_late,
                self.looks,
                LATE_NS / 1_000_000
            );
            gaps.push(Gap::new("some short calls", why, "record as root: hooks miss none"));
        }
        gaps
    }
}
