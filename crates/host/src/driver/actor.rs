//! Runs one actor on a thread: takes operations from its stream, performs them, and sends their timings in batches.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::PREPARE_NS_MAX;
use super::append::{AppendMethod, PrecursorReport};
use super::files::Files;
use super::locks::Locks;
use super::measured_part::{LOOK_NS, MeasuredPart};
use super::perform::{Executor, OpMark};
use super::process::Children;
use crate::clock::{monotonic_ns, sleep_until};
use crate::own_cost::thread_cpu_ns;
use flatwater_workload::{Op, Stream};

/// A performed operation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Performed {
    pub op: Op,
    pub start_ns: u64,
    pub duration_ns: u64,
    /// When an open-loop actor had planned to begin it.
    pub due_ns: Option<u64>,
    pub bytes: u64,
    pub measured: bool,
}

/// Timings of one thread, in order of time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Batch {
    /// Indexes of the workload in the scenario and of the actor in the workload.
    pub workload: usize,
    pub actor: usize,
    pub pid: u32,
    pub tid: u32,
    pub seen: Vec<Performed>,
    /// Why the actor ended early, if it did.
    pub failure: Option<Failure>,
    /// Whether this is the actor's last batch.
    pub ended: bool,
    /// CPU time of the actor's thread, in its last batch; 0 for child processes, whose CPU time is not this process's.
    pub cpu_ns: u64,
    /// The precursor's report, in the last batch.
    pub precursor: Option<PrecursorReport>,
}

/// An operation that failed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failure {
    pub what: String,
    pub why: String,
    pub storage_full: bool,
}

/// A batch is sent when it has this many operations or is this old.
const BATCH: usize = 1024;
const BATCH_NS: u64 = 100_000_000;
/// Interval between two checks whether other actors still prepare.
const WAIT: Duration = Duration::from_nanos(LOOK_NS);
/// The longest sleep between two checks of the stop flag.
const NAP_NS: u64 = 100_000_000;

/// Everything that an actor's thread needs.
pub struct ActorContext<M> {
    pub workload: usize,
    pub actor: usize,
    pub stream: Box<dyn Stream>,
    pub files: Arc<Files>,
    pub locks: Arc<Locks>,
    pub children: Children,
    pub mark: M,
    pub out: Sender<Batch>,
    pub stop: Arc<AtomicBool>,
    /// The stream's times count from here. Moved to the begin of the measured part when that is known.
    pub start_ns: u64,
    /// Whether the actor begins with the run, so that others wait until it has decided whether to prepare
    /// (`MeasuredPart::expect`).
    pub expected: bool,
    /// No operation begins after this time, postponed as `measured` says.
    pub end_ns: u64,
    pub measured: Arc<MeasuredPart>,
    pub seed: u64,
    pub method: AppendMethod,
}

impl<M> std::fmt::Debug for ActorContext<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ActorContext")
            .field("workload", &self.workload)
            .field("actor", &self.actor)
            .finish_non_exhaustive()
    }
}

struct Outbox<'a> {
    workload: usize,
    actor: usize,
    pid: u32,
    tid: u32,
    seen: Vec<Performed>,
    sent_ns: u64,
    out: &'a Sender<Batch>,
}

impl Outbox<'_> {
    /// An outbox of the calling thread.
    fn new(workload: usize, actor: usize, out: &Sender<Batch>) -> Outbox<'_> {
        let tid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let seen = Vec::with_capacity(BATCH);
        Outbox { workload, actor, pid: std::process::id(), tid, seen, sent_ns: monotonic_ns(), out }
    }

    fn push(&mut self, seen: Performed) {
        self.seen.push(seen);
        let end_ns = seen.start_ns + seen.duration_ns;
        if self.seen.len() >= BATCH || end_ns.saturating_sub(self.sent_ns) >= BATCH_NS {
            self.send(None, None);
            self.sent_ns = end_ns;
        }
    }

    /// `last` is `Some` in the actor's last batch, with the precursor's report.
    fn send(&mut self, failure: Option<Failure>, last: Option<Option<PrecursorReport>>) {
        let seen = std::mem::replace(&mut self.seen, Vec::with_capacity(BATCH));
        let Outbox { workload, actor, pid, tid, .. } = *self;
        // Sending fails only if the run is ending, and the batch is not needed then.
        let ended = last.is_some();
        let (cpu_ns, precursor) = (if ended { thread_cpu_ns() } else { 0 }, last.flatten());
        let _ = self.out.send(Batch { workload, actor, pid, tid, seen, failure, ended, cpu_ns, precursor });
    }
}

/// Which of the two requests to the run this actor has made and not withdrawn.
#[derive(Debug, Default)]
struct Asked {
    prepares: bool,
    keeps: bool,
}

impl Asked {
    fn prepare(&mut self, on: bool, measured: &MeasuredPart, now_ns: u64) {
        match (std::mem::replace(&mut self.prepares, on), on) {
            (false, true) => measured.begin(now_ns),
            (true, false) => measured.ready(now_ns),
            _ => {}
        }
    }

    fn keep(&mut self, on: bool, measured: &MeasuredPart) {
        if std::mem::replace(&mut self.keeps, on) != on {
            measured.keep(on);
        }
    }
}

impl<M> ActorContext<M> {
    /// Draws the first operation before the run begins, because it decides whether the actor prepares. An actor that
    /// does not prepare waits for those that do.
    fn first(&mut self, asked: &mut Asked) -> Option<Op> {
        let op = self.stream.next(0);
        let prepares = op == Some(Op::Measure { on: false });
        asked.prepare(prepares, &self.measured, monotonic_ns().max(self.start_ns));
        self.measured.decided();
        if prepares {
            sleep_until(self.start_ns);
        } else {
            self.begin();
        }
        op
    }

    /// Waits until the measured part begins for all actors, and moves `start_ns` there.
    fn begin(&mut self) {
        if !std::mem::take(&mut self.expected) {
            return;
        }
        let latest_ns = self.start_ns.saturating_add(PREPARE_NS_MAX);
        while !self.measured.is_begun() && monotonic_ns() < latest_ns && !self.stop.load(Ordering::Relaxed) {
            std::thread::sleep(WAIT);
        }
        self.start_ns += self.measured.shift_ns(monotonic_ns());
        sleep_until(self.start_ns);
    }
}

/// Runs the actor until its stream ends, the scenario ends, the stop flag is set, or an operation fails.
pub fn run<M: OpMark>(mut context: ActorContext<M>) {
    let mut executor = Executor::new(context.files.clone(), context.locks.clone(), context.seed, context.method);
    let out = context.out.clone();
    let mut outbox = Outbox::new(context.workload, context.actor, &out);
    let mut asked = Asked::default();
    let mut due_ns = None;
    let mut first = context.expected.then(|| context.first(&mut asked));
    let failure = loop {
        let now_ns = monotonic_ns();
        let end_ns = context.measured.end_ns(context.end_ns, now_ns);
        if context.stop.load(Ordering::Relaxed) || now_ns >= end_ns {
            break None;
        }
        let next = first.take().unwrap_or_else(|| context.stream.next(now_ns.saturating_sub(context.start_ns)));
        let Some(op) = next else { break None };
        let timing = match op {
            Op::SleepUntil { at_ns } => {
                due_ns = Some(context.start_ns + at_ns);
                if at_ns + context.start_ns > now_ns + BATCH_NS {
                    outbox.send(None, None);
                }
                nap_until(context.start_ns + at_ns, end_ns, &context.stop);
                continue;
            }
            Op::Sleep { ns } => {
                nap_until(now_ns + ns, end_ns, &context.stop);
                continue;
            }
            Op::Measure { on } => {
                asked.prepare(!on, &context.measured, now_ns);
                if on {
                    context.begin();
                }
                continue;
            }
            Op::KeepRunning { on } => {
                asked.keep(on, &context.measured);
                continue;
            }
            Op::Compute { ns } => compute(now_ns, ns),
            Op::Mark { .. } => Ok(super::perform::Timing { start_ns: now_ns, duration_ns: 0 }),
            Op::Spawn { actor } => context.children.spawn(actor, now_ns, end_ns),
            Op::WaitSpawned => context.children.wait(now_ns, &context.stop),
            call => executor.perform(call, &mut context.mark),
        };
        match timing {
            Ok(timing) => outbox.push(Performed {
                op,
                start_ns: timing.start_ns,
                duration_ns: timing.duration_ns,
                due_ns: due_ns.take(),
                bytes: bytes_of(&op),
                // Operations beside another actor's preparation are not part of the run either.
                measured: !asked.prepares && !context.measured.is_preparing(),
            }),
            Err(error) if forgiven(&op, &error) => {}
            Err(error) => break Some(failure_of(&op, &error, &context)),
        }
    };
    asked.prepare(false, &context.measured, monotonic_ns());
    asked.keep(false, &context.measured);
    let (report, closed) = executor.let_go();
    context.children.end();
    let failure = failure.or_else(|| closed.err().map(|error| failure_of(&Op::WaitSpawned, &error, &context)));
    outbox.send(failure, Some(report));
}

/// Errors to ignore: in a tree that other actors change, a name may already be gone (or exist), as in a real mail
/// store.
fn forgiven(op: &Op, error: &io::Error) -> bool {
    match op {
        Op::Stat { .. } | Op::Unlink { .. } | Op::Rmdir { .. } | Op::Rename { .. } | Op::List { .. } => {
            error.kind() == io::ErrorKind::NotFound
        }
        Op::Create { .. } => error.kind() == io::ErrorKind::AlreadyExists,
        _ => false,
    }
}

fn failure_of<M>(op: &Op, error: &io::Error, context: &ActorContext<M>) -> Failure {
    let name = op.kind().map_or("operation", |kind| kind.name());
    let what = match op.file() {
        Some(file) => format!("{name} of {}", context.files.path(file).display()),
        None => name.to_owned(),
    };
    let full = [Some(libc::ENOSPC), Some(libc::EDQUOT)].contains(&error.raw_os_error());
    Failure { what, why: error.to_string(), storage_full: full || error.kind() == io::ErrorKind::StorageFull }
}

fn bytes_of(op: &Op) -> u64 {
    match *op {
        Op::Append { bytes, .. } | Op::Write { bytes, .. } | Op::Read { bytes, .. } => bytes,
        Op::ReadKept { bytes, .. } | Op::Touch { bytes, .. } | Op::TouchOwn { bytes, .. } => bytes,
        _ => 0,
    }
}

/// Sleeps in short naps, to notice the stop flag.
fn nap_until(at_ns: u64, end_ns: u64, stop: &AtomicBool) {
    let at_ns = at_ns.min(end_ns);
    loop {
        let now_ns = monotonic_ns();
        if now_ns >= at_ns || stop.load(Ordering::Relaxed) {
            return;
        }
        sleep_until(at_ns.min(now_ns + NAP_NS));
    }
}

fn compute(start_ns: u64, ns: u64) -> io::Result<super::perform::Timing> {
    let mut now_ns = start_ns;
    while now_ns < start_ns + ns {
        std::hint::spin_loop();
        now_ns = monotonic_ns();
    }
    Ok(super::perform::Timing { start_ns, duration_ns: now_ns - start_ns })
}
