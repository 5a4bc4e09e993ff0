//! Actors that run as processes: `flatwater __actor` with an order on its standard input.
//!
//! The child builds the same pure workload from the same parameters and seed, performs its actor, and writes batches as
//! lines to its standard output. That is one pipe shared by all children and their children; a line is at most PIPE_BUF
//! long, so that the kernel writes it atomically.

use std::io::{self, BufRead, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};

use flatwater_safefs::Dir;
use serde::{Deserialize, Serialize};

use super::actor::{self, ActorContext, Batch};
use super::append::AppendMethod;
use super::files::Files;
use super::locks::Locks;
use super::perform::{NoMark, Timing};
use crate::clock::{monotonic_ns, sleep_ns};
use flatwater_workload::scenario::thread_name;
use flatwater_workload::{self as workload, Params};

/// The order to a child process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// Index of the workload in the scenario.
    pub workload: usize,
    pub name: String,
    /// The workload's label in the scenario.
    #[serde(default)]
    pub label: String,
    pub params: Vec<(String, String)>,
    pub seed: u64,
    pub actor: usize,
    pub root: PathBuf,
    pub start_ns: u64,
    pub end_ns: u64,
    pub method: AppendMethod,
}

/// The processes that one actor has started.
#[derive(Debug)]
pub struct Children {
    order: Order,
    /// The write end of the shared pipe; `None` in a child, where it is the standard output.
    pipe: Option<Arc<io::PipeWriter>>,
    running: Vec<Child>,
}

impl Children {
    #[must_use]
    pub fn new(order: Order, pipe: Option<Arc<io::PipeWriter>>) -> Children {
        Children { order, pipe, running: Vec::new() }
    }

    /// Starts a child with fork and exec, timed as one call. The child begins no operation after `end_ns`.
    pub fn spawn(&mut self, actor: usize, start_ns: u64, end_ns: u64) -> io::Result<Timing> {
        let order = Order { actor, end_ns, ..self.order.clone() };
        let stdout = match &self.pipe {
            Some(pipe) => Stdio::from(pipe.try_clone()?),
            None => Stdio::inherit(),
        };
        let mut child = Command::new("/proc/self/exe")
            .arg("__actor")
            .stdin(Stdio::piped())
            .stdout(stdout)
            .stderr(Stdio::inherit())
            .spawn()?;
        let duration_ns = monotonic_ns().saturating_sub(start_ns);
        let text = serde_json::to_string(&order).map_err(io::Error::other)?;
        let report = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(text.as_bytes()));
        self.running.push(child);
        report.map(|()| Timing { start_ns, duration_ns })
    }

    /// Waits for all children until the stop flag is set (then `end` ends them).
    pub fn wait(&mut self, start_ns: u64, stop: &AtomicBool) -> io::Result<Timing> {
        while !self.running.is_empty() && !stop.load(Ordering::Relaxed) {
            self.running.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
            if !self.running.is_empty() {
                sleep_ns(1_000_000);
            }
        }
        Ok(Timing { start_ns, duration_ns: monotonic_ns().saturating_sub(start_ns) })
    }

    /// Ends the children, which must not outlive their actor: with SIGTERM, and after 2 s with SIGKILL.
    pub fn end(&mut self) {
        for child in &self.running {
            if let Some(pid) = rustix::process::Pid::from_raw(child.id().cast_signed()) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            }
        }
        let patience_ns = monotonic_ns() + 2_000_000_000;
        for child in &mut self.running {
            while matches!(child.try_wait(), Ok(None)) {
                if monotonic_ns() > patience_ns {
                    let _ = child.kill();
                    let _ = child.wait();
                    break;
                }
                sleep_ns(1_000_000);
            }
        }
        self.running.clear();
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.end();
    }
}

/// Reads the lines of all children until the last write end of the pipe is closed.
pub fn relay(pipe: io::PipeReader, out: &Sender<Batch>) {
    let mut lines = io::BufReader::new(pipe).split(b'\n');
    while let Some(Ok(line)) = lines.next() {
        // A killed child may leave part of a line; its other batches are complete.
        if let Ok(batch) = serde_json::from_slice::<Batch>(&line) {
            let _ = out.send(batch);
        }
    }
}

/// Entry point of `flatwater __actor`: reads the order from standard input and performs it.
pub fn serve() -> io::Result<()> {
    // ^C in a terminal signals the whole process group, so a child stops on SIGINT as well as on its parent's SIGTERM.
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, stop.clone())?;
    signal_hook::flag::register(signal_hook::consts::SIGINT, stop.clone())?;
    // Ends when the parent dies, even from SIGKILL.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
    let mut text = String::new();
    io::stdin().take(1 << 20).read_to_string(&mut text)?;
    let order: Order = serde_json::from_str(&text).map_err(io::Error::other)?;
    let entry = workload::find(&order.name).ok_or_else(|| io::Error::other("no such workload"))?;
    let given = order.params.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let params = Params::check(entry.name, entry.params, given).map_err(io::Error::other)?;
    let built: Arc<dyn workload::Workload> = Arc::from((entry.build)(&params, order.seed).map_err(io::Error::other)?);
    let mut actors = built.actors();
    if order.actor >= actors.len() {
        return Err(io::Error::other("no such actor"));
    }
    let chosen = actors.swap_remove(order.actor);
    // Reports name the process, not flatwater.
    let name = thread_name(&order.label, &order.name, &chosen.name);
    if let Ok(name) = std::ffi::CString::new(name) {
        let _ = rustix::thread::set_name(&name);
    }
    let (out, batches) = channel();
    let context = ActorContext {
        workload: order.workload,
        actor: order.actor,
        stream: chosen.stream,
        files: Arc::new(Files::new(Dir::open_own(&order.root)?, built)),
        locks: Arc::new(Locks::default()),
        mark: NoMark,
        out,
        stop,
        start_ns: order.start_ns,
        end_ns: order.end_ns,
        measured: Arc::default(),
        seed: order.seed ^ order.actor as u64,
        method: order.method,
        expected: false,
        children: Children::new(order, None),
    };
    let writer = std::thread::spawn(move || batches.into_iter().try_for_each(|batch| write_lines(&batch)));
    actor::run(context);
    writer.join().map_err(|_| io::Error::other("the writer of batches panicked"))?
}

/// Longest atomic write to a pipe (limits.h: PIPE_BUF).
const LINE_BYTES_MAX: usize = 4096;

fn write_lines(batch: &Batch) -> io::Result<()> {
    // Twelve operations of at most ~300 bytes each fit within the limit.
    let chunks = batch.seen.chunks(12).collect::<Vec<_>>();
    let count = chunks.len().max(1);
    for index in 0..count {
        let last = index + 1 == count;
        let part = Batch {
            seen: chunks.get(index).map(|chunk| chunk.to_vec()).unwrap_or_default(),
            failure: if last { batch.failure.clone() } else { None },
            ended: last && batch.ended,
            cpu_ns: 0,
            precursor: if last { batch.precursor.clone() } else { None },
            ..*batch
        };
        let mut line = serde_json::to_vec(&part).map_err(io::Error::other)?;
        line.push(b'\n');
        if line.len() > LINE_BYTES_MAX {
            return Err(io::Error::other("a batch is longer than an atomic write to a pipe"));
        }
        io::stdout().lock().write_all(&line)?;
        io::stdout().lock().flush()?;
    }
    Ok(())
}
