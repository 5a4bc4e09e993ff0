//! `run` on this machine: the driver and the session side by side, from the first noise probe to the seal.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::clock::{monotonic_ns, wall_offset_ns};
use super::driver::collect::Collector;
use super::driver::perform::OpMark;
use super::driver::{Driver, Plan};
use super::error::HostError;
use super::session::{Session, SessionOptions};
use super::tracer::{CallTiming, OpSlot, TraceOptions};
use crate::recording::{Clock, EventKind, Gap, Header, Source, Target};
use crate::scenario::Scenario;

/// How to perform a scenario here.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The scenario's files go into a fresh directory under this one.
    pub directory: PathBuf,
    /// The recording; must exist and be empty.
    pub out: PathBuf,
    pub sample_hz: u32,
    pub stack_hz: u32,
    pub cpu: Option<u32>,
    /// `Host`, or `Vm` when we are the guest of one.
    pub source: Source,
    pub time_distorted: bool,
    /// Keep the scenario's files.
    pub keep: bool,
}

/// What a run says while it runs.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    Said(&'a str),
    Measuring { elapsed_ns: u64, total_ns: u64, slow_calls: u64, lost_ns: u64 },
}

/// Between two looks at the inbox.
const TICK: Duration = Duration::from_millis(100);
/// A slow call is attributed this long after its end: by then the tracer has heard of all of it.
const SETTLE_NS: u64 = 500_000_000;
/// Actors begin this long after the driver was started, so that every thread is there.
const LEAD_NS: u64 = 50_000_000;

/// A thread's place with the tracer, or none.
#[derive(Debug)]
pub struct Mark(Option<OpSlot>);

impl OpMark for Mark {
    #[inline]
    fn enter(&mut self, start_ns: u64) {
        if let Some(slot) = &mut self.0 {
            slot.enter(start_ns);
        }
    }

    #[inline]
    fn leave(&mut self, end_ns: u64) {
        if let Some(slot) = &mut self.0 {
            slot.leave(end_ns);
        }
    }
}

/// Performs the scenario and leaves a sealed recording in `options.out`.
pub fn run(
    scenario: &Scenario,
    options: &RunOptions,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Progress<'_>),
) -> Result<(), HostError> {
    let work = WorkDirectory::make(&options.directory, options.keep)?;
    let header = first_header(scenario, options, work.path());
    let trace = TraceOptions { hz: options.stack_hz, ..TraceOptions::own(scenario.threshold.0) };
    let mut session = Session::start(SessionOptions { out: options.out.clone(), header, trace })?;
    let (collector, end_ns) = measure(scenario, options, work.path(), &mut session, stop, tell)?;
    session.header.duration_ns = end_ns.saturating_sub(session.header.clock.start_ns);
    let outcomes = collector.outcomes(session.sampled());
    session.finish(outcomes)?;
    Ok(())
}

fn first_header(scenario: &Scenario, options: &RunOptions, work: &Path) -> Header {
    let parameters = scenario.workloads.iter().flat_map(|spec| {
        spec.params.iter().map(move |(name, value)| (format!("{}.{name}", spec.label), value.to_owned()))
    });
    Header {
        written_by: env!("CARGO_PKG_VERSION").to_owned(),
        source: options.source,
        scenario: Some(scenario.name.clone()),
        scenario_text: Some(scenario.text.clone()),
        seed: scenario.seed,
        threshold_ns: scenario.threshold.0,
        time_distorted: options.time_distorted,
        target: Target {
            what: scenario.name.clone(),
            pids: vec![std::process::id()],
            directory: Some(work.display().to_string()),
            parameters: parameters.collect(),
            ..Target::default()
        },
        ..Header::default()
    }
}

/// The measured part: from the actors' start to their end.
fn measure(
    scenario: &Scenario,
    options: &RunOptions,
    root: &Path,
    session: &mut Session,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Progress<'_>),
) -> Result<(Collector, u64), HostError> {
    let start_ns = monotonic_ns() + LEAD_NS;
    let total_ns = scenario.duration.0;
    session.header.clock = Clock { start_ns, wall_offset_ns: Some(wall_offset_ns()) };
    session.event(start_ns, EventKind::Start, &scenario.name)?;
    let plan = Plan {
        workloads: scenario.workloads.clone(),
        seed: scenario.seed,
        root: root.to_owned(),
        threshold_ns: scenario.threshold.0,
        start_ns,
        end_ns: start_ns + total_ns,
        cpu: options.cpu,
    };
    let tracer = session.tracer.clone();
    let mark = Arc::new(move |tid, _role| Mark(tracer.op_slot(tid)));
    let mut driver = Driver::start(&plan, mark).map_err(HostError::Workload)?;
    while !driver.all_ended() {
        driver.gather(TICK);
        let now_ns = monotonic_ns();
        hand_on(&mut driver.collector, session, Some(now_ns))?;
        if let Some(trouble) = session.tick()? {
            tell(Progress::Said(&format!("{}: {}", trouble.what, trouble.why)));
        }
        if stop.load(Ordering::Relaxed) {
            driver.stop();
        }
        let elapsed_ns = now_ns.saturating_sub(start_ns).min(total_ns);
        let (slow_calls, lost_ns) = (session.slow_calls(), session.lost_ns());
        tell(Progress::Measuring { elapsed_ns, total_ns, slow_calls, lost_ns });
    }
    let mut collector = driver.finish();
    let end_ns = monotonic_ns();
    hand_on(&mut collector, session, None)?;
    session.event(end_ns, EventKind::End, &scenario.name)?;
    for failure in &collector.failures {
        let remedy = if failure.storage_full { "give the directory more room, or a shorter run" } else { "" };
        session.gaps(&[Gap::new(format!("the rest of a workload ({})", failure.what), &failure.why, remedy)])?;
        tell(Progress::Said(&format!("{}: {}", failure.what, failure.why)));
    }
    Ok((collector, end_ns))
}

/// Passes on what is complete: latency buckets, and slow calls with their parts.
fn hand_on(collector: &mut Collector, session: &mut Session, now_ns: Option<u64>) -> Result<(), HostError> {
    session.latency(&collector.ready(now_ns))?;
    let limit_ns = now_ns.map_or(u64::MAX, |now_ns| now_ns.saturating_sub(SETTLE_NS));
    let slow = collector.slow_before(limit_ns);
    if slow.is_empty() {
        return Ok(());
    }
    let mut calls = Vec::with_capacity(slow.len());
    for call in slow {
        let neighbours = &mut session.header.target.neighbours;
        if !call.foreground && !neighbours.contains(&call.thread) {
            neighbours.push(call.thread.clone());
        }
        let seen = &call.seen;
        let timing = CallTiming {
            tid: call.tid,
            start_ns: seen.start_ns,
            end_ns: seen.start_ns + seen.duration_ns,
            bytes: (seen.bytes > 0).then_some(seen.bytes),
        };
        let found = session.tracer.attribute(&timing);
        calls.push(call.into_call(found.parts, 0, found.damaged));
    }
    session.calls(&calls)
}

/// A fresh directory for the scenario's files, removed at the end.
#[derive(Debug)]
struct WorkDirectory {
    path: PathBuf,
    keep: bool,
}

impl WorkDirectory {
    fn make(under: &Path, keep: bool) -> Result<WorkDirectory, HostError> {
        let path = under.join(format!(".flatwater-work-{}", std::process::id()));
        match std::fs::create_dir(&path) {
            Ok(()) => Ok(WorkDirectory { path, keep }),
            Err(error) if error.kind() == std::io::ErrorKind::ReadOnlyFilesystem => {
                Err(HostError::ReadOnly { path: under.to_owned() })
            }
            Err(error) => Err(HostError::Directory { path: under.to_owned(), why: error.to_string() }),
        }
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for WorkDirectory {
    fn drop(&mut self) {
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
