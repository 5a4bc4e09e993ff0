//! The driver performs the workloads of a scenario with real calls, and collects the actors' timings.
//!
//! It knows nothing of kernels, recordings on disk or explanations; `host/run.rs` connects it with these.

pub mod actor;
pub mod append;
pub mod collect;
pub mod files;
pub mod locks;
pub mod measured_part;
pub mod perform;
mod placement;
pub mod process;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use actor::{ActorContext, Batch};
use collect::{ActorName, Collector};
use files::Files;
use locks::Locks;
use measured_part::MeasuredPart;
use perform::OpMark;
use placement::Placement;
use process::{Children, Order};

use flatwater_safefs::Dir;
use flatwater_workload::scenario::WorkloadSpec;
use flatwater_workload::{Actor, ActorStart, Op, Role, Workload};

/// What the driver performs.
#[derive(Clone, Debug)]
pub struct Plan {
    pub workloads: Vec<WorkloadSpec>,
    pub seed: u64,
    /// All files of the workloads are below this directory.
    pub root: Dir,
    pub threshold_ns: u64,
    /// CLOCK_MONOTONIC times between which operations begin.
    pub start_ns: u64,
    pub end_ns: u64,
    /// The CPU for the foreground, unless a workload has its own.
    pub cpu: Option<u32>,
    /// The NUMA node for all threads, unless a workload has its own.
    pub node: Option<u32>,
    /// SCHED_FIFO priority of the foreground, unless a workload has its own.
    pub fifo_priority: Option<u32>,
    /// The method with which workloads append.
    pub method: append::AppendMethod,
}

/// Preparation may postpone the end by at most this, so that a run is bounded.
pub const PREPARE_NS_MAX: u64 = 300_000_000_000;
/// Actors may prolong a run beyond its duration by at most this.
pub const KEEP_NS_MAX: u64 = 300_000_000_000;

/// The running actors.
pub struct Driver {
    pub collector: Collector,
    files: Vec<Arc<Files>>,
    inbox: Receiver<Batch>,
    threads: Vec<JoinHandle<()>>,
    relay: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    started: usize,
    measured: Arc<MeasuredPart>,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

/// Makes the tracer's mark of a thread; called on that thread with its tid.
pub type MarkMaker<M> = Arc<dyn Fn(u32, Role) -> M + Send + Sync>;

impl Driver {
    /// Starts all actors but those that another actor spawns. `mark` makes the tracer's mark for each thread.
    pub fn start<M: OpMark + 'static>(plan: &Plan, mark: MarkMaker<M>) -> io::Result<Driver> {
        let stop = Arc::new(AtomicBool::new(false));
        let (out, inbox) = channel();
        let (reader, writer) = io::pipe()?;
        let writer = Arc::new(writer);
        let mut driver = Driver {
            collector: Collector::new(plan.threshold_ns, Vec::new(), Vec::new()),
            files: Vec::new(),
            inbox,
            threads: Vec::new(),
            relay: None,
            stop,
            started: 0,
            measured: Arc::default(),
        };
        let (mut names, mut observers) = (Vec::new(), Vec::new());
        let mut all = Vec::with_capacity(plan.workloads.len());
        for (index, spec) in plan.workloads.iter().enumerate() {
            let seed = workload_seed(plan.seed, index);
            let built: Arc<dyn Workload> = Arc::from((spec.entry.build)(&spec.params, seed).map_err(io::Error::other)?);
            let root = workload_root(&plan.root, plan.workloads.len(), &spec.label)?;
            let actors = spec.actors(built.as_ref());
            names.push(actors.iter().map(actor_name).collect());
            observers.push(built.observer());
            let files = Arc::new(Files::new(root.clone(), built));
            driver.files.push(files.clone());
            let context = Context { plan, spec, index, seed, root, files, pipe: writer.clone(), out: out.clone() };
            all.push((context, actors));
        }
        // Set before the first actor can wait for the others.
        let with_the_run = all.iter().filter(|(context, _)| context.spec.start.0 == 0).flat_map(|(_, actors)| actors);
        driver.measured.expect(with_the_run.filter(|actor| actor.start == ActorStart::Immediately).count());
        for (context, actors) in all {
            driver.start_workload(&context, actors, &mark)?;
        }
        driver.collector = Collector::new(plan.threshold_ns, names, observers);
        driver.relay = Some(named("fw-relay", move || process::relay(reader, &out))?);
        Ok(driver)
    }

    fn start_workload<M: OpMark + 'static>(
        &mut self,
        context: &Context<'_>,
        actors: Vec<Actor>,
        mark: &MarkMaker<M>,
    ) -> io::Result<()> {
        let Context { plan, spec, .. } = context;
        let locks = Arc::new(Locks::default());
        let planned_ns = plan.start_ns + spec.start.0;
        let end_ns = spec.duration.map_or(plan.end_ns, |length| plan.end_ns.min(planned_ns + length.0));
        let expected = spec.start.0 == 0;
        for (index, actor) in actors.into_iter().enumerate() {
            if actor.start == ActorStart::OnSpawn {
                continue;
            }
            self.started += 1;
            let (role, mark) = (actor.role, mark.clone());
            let (files, locks, out) = (context.files.clone(), locks.clone(), context.out.clone());
            let measured = self.measured.clone();
            let (order, pipe) = (context.order(index, planned_ns, end_ns), context.pipe.clone());
            let method = plan.method;
            let (workload, seed, stop) = (context.index, context.seed ^ index as u64, self.stop.clone());
            let placement = Placement {
                cpu: spec.cpu.or(plan.cpu.filter(|_| role == Role::Foreground)),
                node: spec.node.or(plan.node),
                fifo_priority: spec.fifo_priority.or(plan.fifo_priority.filter(|_| role == Role::Foreground)),
            };
            let thread = named(&actor.name.clone(), move || {
                placement.take();
                let tid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
                let mark = mark(tid, role);
                let start_ns = if expected { planned_ns } else { measured.put_off(planned_ns, &stop) };
                let stream = actor.stream;
                let children = Children::new(Order { start_ns, ..order }, Some(pipe));
                actor::run(ActorContext {
                    workload,
                    actor: index,
                    stream,
                    files,
                    locks,
                    children,
                    mark,
                    out,
                    stop,
                    start_ns,
                    expected,
                    end_ns,
                    measured,
                    seed,
                    method,
                });
            })?;
            self.threads.push(thread);
        }
        Ok(())
    }

    /// Whether an actor is preparing, so that nothing is measured, and by how much preparation has postponed planned
    /// times so far.
    #[must_use]
    pub fn preparing(&self, now_ns: u64) -> (bool, u64) {
        (self.measured.is_preparing(), self.measured.shift_ns(now_ns))
    }

    /// Whether an actor still has work without which the run must not end.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.measured.is_kept()
    }

    /// Collects batches from the actors for at most `patience`.
    pub fn gather(&mut self, patience: Duration) {
        let until = std::time::Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(std::time::Instant::now());
            match self.inbox.recv_timeout(left) {
                Ok(batch) => {
                    let files = &self.files;
                    self.collector.take(batch, &|workload, op| file_name(files, workload, op));
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
            if left.is_zero() {
                return;
            }
        }
    }

    /// Whether every actor that the driver started has ended.
    #[must_use]
    pub fn all_ended(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Asks all actors to end after their current operation.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Waits for the actors, also for a thread within a slow call (whose time is what the run is about), and collects
    /// the last batches.
    pub fn finish(mut self) -> Collector {
        self.stop();
        while !self.all_ended() {
            self.gather(Duration::from_millis(50));
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        if let Some(relay) = self.relay.take() {
            let _ = relay.join();
        }
        self.gather(Duration::ZERO);
        while let Ok(batch) = self.inbox.try_recv() {
            let files = &self.files;
            self.collector.take(batch, &|workload, op| file_name(files, workload, op));
        }
        self.collector
    }
}

struct Context<'a> {
    plan: &'a Plan,
    spec: &'a WorkloadSpec,
    index: usize,
    seed: u64,
    root: Dir,
    files: Arc<Files>,
    pipe: Arc<io::PipeWriter>,
    out: Sender<Batch>,
}

impl Context<'_> {
    fn order(&self, actor: usize, start_ns: u64, end_ns: u64) -> Order {
        let params = self.spec.params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Order {
            workload: self.index,
            name: self.spec.entry.name.to_owned(),
            label: self.spec.label.clone(),
            params,
            seed: self.seed,
            actor,
            root: self.root.path().to_owned(),
            start_ns,
            end_ns,
            method: self.plan.method,
        }
    }
}

/// Gives each workload its own random stream, so that adding a workload does not change the others.
#[must_use]
pub fn workload_seed(seed: u64, index: usize) -> u64 {
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(index as u64)
}

/// The directory of a workload: `root` if it is the only one, else a subdirectory.
fn workload_root(root: &Dir, workloads: usize, label: &str) -> io::Result<Dir> {
    Ok(if workloads == 1 { root.clone() } else { root.make_dir(label)? })
}

fn actor_name(actor: &Actor) -> ActorName {
    ActorName { thread: actor.name.clone(), foreground: actor.role == Role::Foreground }
}

fn file_name(files: &[Arc<Files>], workload: usize, op: &Op) -> Option<String> {
    let file = op.file()?;
    files.get(workload).map(|files| files.path(file).display().to_string())
}

fn named(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body)
}
