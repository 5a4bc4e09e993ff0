//! `run` on this machine: performs a scenario with a [`Driver`] and records it with a [`Session`], from the first noise
//! measurement to the sealed recording.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::clock::{monotonic_ns, wall_offset_ns};
use super::driver::append::AppendMethod;
use super::driver::collect::Collector;
use super::driver::perform::OpMark;
use super::driver::{Driver, KEEP_NS_MAX, Plan};
use super::error::HostError;
use super::machine::storage_of;
use super::noise;
use super::observer::{Look, TimedCalls};
use super::privileges::{self, Needs};
use super::sampler::{SamplerOptions, TargetCgroup, devices_of};
use super::session::{Session, SessionOptions};
use super::settle;
use super::setup::{self, Applied, SetupContext, knobs, preflight};
use super::tracer::{CallTiming, OpSlot, TraceOptions, Tracer};
use flatwater_recording::units::Nanos;
use flatwater_recording::{Call, Clock, EventKind, Gap, Header, LatencyBucket, Note, Setup, Source, Target};
use flatwater_safefs::Dir;
use flatwater_workload::maildir;
use flatwater_workload::scenario::{Scenario, WorkloadSpec};
use flatwater_workload::{ActorStart, Role};
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

const KEPT: &str = "the duration is over, but a workload has yet to move its `at_least`: the run continues";

/// How to perform a scenario on this machine.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The scenario's files are created in a new directory below this one.
    pub directory: PathBuf,
    /// The directory of the recording; must be empty.
    pub out: Dir,
    pub sample_hz: u32,
    pub stack_hz: u32,
    pub cpu: Option<u32>,
    /// `Host`, or `Vm` if this process runs in the guest that `vm` has started.
    pub source: Source,
    pub time_distorted: bool,
    /// Keep the scenario's files.
    pub keep: bool,
    /// Permission to change settings that the whole machine shares (`--apply`).
    pub apply: bool,
    /// Drop privileges once the hooks are attached. `false` if this process performs another run afterwards, which has
    /// to attach hooks and apply settings again.
    pub drop_rights: bool,
}

/// Reported to the user during a run.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    Message(&'a str),
    Measuring { elapsed_ns: u64, total_ns: u64, slow_calls: u64, lost_ns: u64 },
}

/// Length of the noise measurements before and after the measured part.
const NOISE_LENGTH: Duration = Duration::from_secs(1);
/// Interval of the main loop.
const TICK: Duration = Duration::from_millis(100);
/// Interval of slabinfo readings, if wanted: a reading briefly takes the lock of each slab cache.
const SLABS_NS: u64 = 1_000_000_000;
/// Actors begin this long after the driver was started, so that all threads exist by then.
const LEAD_NS: u64 = 50_000_000;

/// The slot in which a thread marks its operations for the tracer, if it has one.
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

/// Lines that the setup logs for the user, kept until the run loop reports them.
type Lines = Arc<Mutex<Vec<String>>>;

fn tell_lines(lines: &Lines, tell: &mut dyn FnMut(Progress<'_>)) {
    let reported = std::mem::take(&mut *lines.lock().unwrap_or_else(PoisonError::into_inner));
    reported.iter().for_each(|line| tell(Progress::Message(line)));
}

/// Whether to read slabinfo: the kernel's cache of inodes matters to scenarios with many small files, and runs on
/// several kernels compare it.
fn counts_inodes(scenario: &Scenario, options: &RunOptions) -> bool {
    let many_files = scenario.workloads.iter().any(|spec| spec.entry.name == maildir::ENTRY.name);
    many_files || options.source == Source::Vm
}

/// Performs the scenario and leaves a sealed recording in `options.out`. Fails with `NotRestored` if a setting could
/// not be restored; the recording is complete even so.
pub fn run(
    scenario: &Scenario,
    options: &RunOptions,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Progress<'_>),
) -> Result<(), HostError> {
    let lines = Lines::default();
    let sink = lines.clone();
    let log: setup::Log =
        Arc::new(move |line| sink.lock().unwrap_or_else(PoisonError::into_inner).push(line.to_owned()));
    // A killed run may have left settings behind, which would be measured as the machine's own.
    setup::recover(&log);
    tell_lines(&lines, tell);
    check_directory(&options.directory)?;
    options.cpu.map_or(Ok(()), check_cpu)?;
    preflight::check(scenario, &options.directory)?;
    let context = SetupContext {
        dir: options.directory.clone(),
        name: scenario.name.clone(),
        apply: options.apply,
        keep: options.keep,
    };
    let applied = Applied::apply(&scenario.setup, &context, log);
    tell_lines(&lines, tell);
    let mut applied = applied?;
    tell(Progress::Message("measuring the machine's noise floor, one second"));
    let mut header = first_header(scenario, options, &applied);
    header.noise_before = Some(noise::measure(options.cpu, NOISE_LENGTH));
    let mut session = Session::start(session_options(scenario, options, &applied, header))?;
    if options.drop_rights {
        privileges::drop_on_all_threads(Needs {
            restoring: true,
            counting_tasks: session.observer.counts_tasks(),
            ..Needs::default()
        })?;
    }
    let measured = applied.enter().map_err(HostError::from);
    let measured = measured.and_then(|()| measure(scenario, options, &mut applied, &mut session, stop, tell));
    // Restore before sealing: sealing must not run within the limits meant for the workload.
    let restored = applied.restore();
    tell_lines(&lines, tell);
    let collector = measured?;
    session.header.noise_after = Some(noise::measure(options.cpu, NOISE_LENGTH));
    let outcomes = collector.outcomes(session.sampled());
    session.finish(outcomes)?;
    if restored.failed.is_empty() { Ok(()) } else { Err(HostError::NotRestored { left: restored.failed.join(", ") }) }
}

fn session_options(scenario: &Scenario, options: &RunOptions, applied: &Applied, header: Header) -> SessionOptions {
    let own = TraceOptions { hz: options.stack_hz, ..TraceOptions::own(scenario.threshold.0) };
    let trace = header.noise_before.as_ref().map_or(own.clone(), |noise| own.above(noise));
    SessionOptions {
        out: options.out.clone(),
        header,
        trace,
        sampler: SamplerOptions {
            hz: options.sample_hz,
            devices: devices_of(applied.work_dir()),
            cgroup: applied
                .memory_cgroup()
                .map_or_else(|| TargetCgroup::of_process(std::process::id()), TargetCgroup::at),
            avoid_cpus: options.cpu.into_iter().collect(),
            ..SamplerOptions::default()
        },
    }
}

fn check_cpu(cpu: u32) -> Result<(), HostError> {
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else { return Ok(()) };
    let allowed: Vec<usize> = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
    if allowed.contains(&(cpu as usize)) {
        return Ok(());
    }
    let names: Vec<String> = allowed.iter().map(ToString::to_string).collect();
    Err(HostError::NoCpu { cpu, allowed: names.join(", ") })
}

/// Fails early, and with a clear reason, if files cannot be created in `path`. Probes with O_TMPFILE: a run that is
/// killed here leaves no file, so the journal of changes need not name one.
pub fn check_directory(path: &Path) -> Result<(), HostError> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let probed = match rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR) {
        // O_TMPFILE is not supported: NFS, FUSE, and kernels up to 3.10 (EISDIR). Checks permissions instead. For root
        // these are granted even on a file system without blocks, such as /proc.
        Err(error @ (Errno::OPNOTSUPP | Errno::ISDIR)) => match rustix::fs::statvfs(path) {
            Ok(place) if place.f_blocks == 0 => Err(error),
            _ => rustix::fs::accessat(CWD, path, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS),
        },
        opened => opened.map(drop),
    };
    probed.map_err(|error| match error {
        Errno::ROFS => HostError::ReadOnly { path: path.to_owned() },
        error => HostError::Directory { path: path.to_owned(), why: std::io::Error::from(error).to_string() },
    })
}

fn first_header(scenario: &Scenario, options: &RunOptions, applied: &Applied) -> Header {
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
            directory: Some(applied.work_dir().display().to_string()),
            storage: storage_of(applied.work_dir()),
            device: applied.device().map(|device| device.name.clone()),
            device_number: applied.device().map(|device| device.number.clone()),
            cgroup: applied.memory_cgroup().map(|path| path.display().to_string()),
            parameters: parameters.collect(),
            ..Target::default()
        },
        ..Header::default()
    }
}

/// Records the settings at the start, and drops what the hooks saw before.
fn begin(scenario: &Scenario, applied: &Applied, session: &mut Session, start_ns: u64) -> Result<(), HostError> {
    session.header.clock = Clock { start_ns, wall_offset_ns: Some(wall_offset_ns()) };
    session.event(start_ns, EventKind::Start(scenario.name.clone()))?;
    let (setup, unread) = knobs::observe(applied.device());
    session.header.setup = setup.with(&in_force(scenario, applied));
    session.header.notes.extend(withheld_note(applied).map(Note::Text));
    session.gaps(&unread)?;
    session.header.target.neighbours = processes_beside(scenario);
    session.observer.begin(start_ns);
    session.publish_header()
}

/// The names of processes that only disturb the measured threads.
fn processes_beside(scenario: &Scenario) -> Vec<String> {
    let of = |spec: &WorkloadSpec| {
        let built = (spec.entry.build)(&spec.params, scenario.seed).ok();
        built.map(|workload| spec.actors(workload.as_ref())).unwrap_or_default()
    };
    let actors = scenario.workloads.iter().flat_map(of);
    let beside = actors.filter(|actor| actor.start == ActorStart::OnSpawn && actor.role == Role::Neighbour);
    beside.map(|actor| actor.name).collect()
}

/// The measured part: from the start of the actors to their end.
fn measure(
    scenario: &Scenario,
    options: &RunOptions,
    applied: &mut Applied,
    session: &mut Session,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Progress<'_>),
) -> Result<Collector, HostError> {
    let start_ns = monotonic_ns() + LEAD_NS;
    let total_ns = scenario.duration.0;
    begin(scenario, applied, session, start_ns)?;
    let plan = plan_of(scenario, options, applied.work()?.clone(), start_ns);
    let tracer = session.observer.tracer.clone();
    let mark = Arc::new(move |tid, _role| Mark(tracer.op_slot(tid)));
    let mut driver = Driver::start(&plan, mark).map_err(HostError::Workload)?;
    let mut timeline = scenario.timeline.iter().peekable();
    let (mut prepared_ns, mut kept) = (0, false);
    let counts_inodes = counts_inodes(scenario, options);
    let mut slabs_due_ns = start_ns;
    while !driver.all_ended() {
        driver.gather(TICK);
        let now_ns = monotonic_ns();
        let (preparing, shift_ns) = driver.preparing(now_ns);
        if !preparing && shift_ns != prepared_ns {
            prepared_ns = shift_ns;
            begin_after_preparing(session, start_ns, prepared_ns)?;
            tell(Progress::Message(&format!("prepared in {}; measuring", Nanos(prepared_ns))));
        }
        while let Some(due) = timeline.next_if(|change| start_ns + shift_ns + change.at.0 <= now_ns) {
            change_now(&due.set, applied, session)?;
        }
        if let Some(trouble) = observe(&mut driver.collector, session, Look::At(now_ns))? {
            tell(Progress::Message(&format!("{}: {}", trouble.what, trouble.why)));
        }
        if counts_inodes && now_ns >= slabs_due_ns {
            session.observer.request_slabs();
            slabs_due_ns = now_ns + SLABS_NS;
        }
        if stop.load(Ordering::Relaxed) {
            driver.stop();
        }
        let elapsed_ns = now_ns.saturating_sub(start_ns + shift_ns).min(total_ns);
        if !kept && elapsed_ns == total_ns && driver.is_kept() {
            kept = true;
            tell(Progress::Message(KEPT));
        }
        let (slow_calls, lost_ns) = (session.slow_calls(), session.lost_ns());
        tell(Progress::Measuring { elapsed_ns, total_ns, slow_calls, lost_ns });
    }
    let mut collector = driver.finish();
    let end_ns = monotonic_ns();
    observe(&mut collector, session, Look::Last(end_ns))?;
    session.event(end_ns, EventKind::End(scenario.name.clone()))?;
    session.header.duration_ns = end_ns.saturating_sub(start_ns + prepared_ns);
    let lasted_ns = session.header.duration_ns;
    session.header.notes.extend(kept.then(|| kept_note(lasted_ns, total_ns)));
    if stop.load(Ordering::Relaxed) && session.header.duration_ns < total_ns {
        session.interrupted(end_ns, total_ns)?;
    }
    conclude(scenario, &collector, session, tell)?;
    Ok(collector)
}

/// The note for a run that lasted longer than planned because the machine was too slow for the scenario's `at_least`.
fn kept_note(lasted_ns: u64, planned_ns: u64) -> Note {
    let (lasted, planned) = (Nanos(lasted_ns), Nanos(planned_ns));
    let end =
        if lasted_ns >= planned_ns + KEEP_NS_MAX { "and was ended before it was done" } else { "until it was done" };
    Note::Text(format!(
        "the run lasted {lasted} instead of {planned}: a workload had yet to move its `at_least`, {end}"
    ))
}

fn change_now(set: &Setup, applied: &mut Applied, session: &mut Session) -> Result<(), HostError> {
    for change in applied.change(set)? {
        session.event(monotonic_ns(), change.event())?;
    }
    Ok(())
}

/// What the actors do, and where.
fn plan_of(scenario: &Scenario, options: &RunOptions, root: Dir, start_ns: u64) -> Plan {
    let placed = |key| scenario.setup.number(key).and_then(|number| u32::try_from(number).ok());
    Plan {
        workloads: scenario.workloads.clone(),
        seed: scenario.seed,
        root,
        threshold_ns: scenario.threshold.0,
        start_ns,
        end_ns: start_ns + scenario.duration.0,
        cpu: options.cpu.or_else(|| placed("placement.cpu")),
        node: placed("placement.node"),
        fifo_priority: placed("placement.fifo_priority"),
        method: AppendMethod::of_knob(scenario.setup.get("precursor")),
    }
}

/// The scenario's settings without those that needed `--apply` and did not get it.
fn in_force(scenario: &Scenario, applied: &Applied) -> Setup {
    let mut setup = Setup::default();
    for (key, value) in scenario.setup.iter().filter(|(key, _)| applied.withheld().iter().all(|one| one.key != *key)) {
        setup.observe(key, value);
    }
    setup
}

fn withheld_note(applied: &Applied) -> Option<String> {
    let reported: Vec<String> = applied.withheld().iter().map(ToString::to_string).collect();
    (!reported.is_empty()).then(|| format!("without --apply these were not set: {}", reported.join("; ")))
}

/// Records the failures of the workload and notes about the run, and stops sampling.
fn conclude(
    scenario: &Scenario,
    collector: &Collector,
    session: &mut Session,
    tell: &mut dyn FnMut(Progress<'_>),
) -> Result<(), HostError> {
    for failure in &collector.failures {
        let remedy = if failure.storage_full { "give the directory more room, or a shorter run" } else { "" };
        session.gaps(&[Gap::new(format!("the rest of a workload ({})", failure.what), &failure.why, remedy)])?;
        tell(Progress::Message(&format!("{}: {}", failure.what, failure.why)));
    }
    if collector.foreign_slow() > 0 {
        let (count, threshold) = (collector.foreign_slow(), Nanos(scenario.threshold.0));
        session.header.notes.push(Note::Text(format!(
            "{count} calls over {threshold} of processes that the workload started are counted in the latencies but \
             not kept one by one: only threads of the run itself are traced"
        )));
    }
    let reasons = collector.precursor_reasons();
    if !reasons.is_empty() {
        session.header.notes.push(Note::Text(format!("precursor: {}", reasons.join("; "))));
    }
    session.service_times()?;
    session.stop_sampling(collector.workload_cpu_ns())
}

/// Moves the start of the recording to the end of the preparation; counter rows from before then lie before the start.
fn begin_after_preparing(session: &mut Session, start_ns: u64, prepared_ns: u64) -> Result<(), HostError> {
    session.header.clock.start_ns = start_ns + prepared_ns;
    session.header.notes.retain(|note| !matches!(note, Note::Prepared { .. }));
    session.header.notes.push(Note::Prepared { ns: prepared_ns });
    // Those of the preparation.
    drop(session.observer.service_times());
    session.publish_header()
}

/// Records the observations since the last look. Returns a write error the first time that one occurs.
fn observe(collector: &mut Collector, session: &mut Session, look: Look) -> Result<Option<Gap>, HostError> {
    let neighbours = &mut session.header.target.neighbours;
    let interval = session.observer.look(&mut OwnCalls { collector, neighbours }, look);
    session.write(interval)
}

/// The calls of the workloads, which time their own.
struct OwnCalls<'a> {
    collector: &'a mut Collector,
    /// The names of threads whose calls are not judged.
    neighbours: &'a mut Vec<String>,
}

impl TimedCalls for OwnCalls<'_> {
    fn settled(&mut self, tracer: &Tracer, look: Look) -> Vec<Call> {
        let limit_ns = match look {
            Look::At(now_ns) => now_ns.saturating_sub(settle::OWN_CALL_NS),
            Look::Last(_) => u64::MAX,
        };
        let slow = self.collector.slow_before(limit_ns);
        let mut calls = Vec::with_capacity(slow.len());
        for call in slow {
            if !call.foreground && !self.neighbours.contains(&call.thread) {
                self.neighbours.push(call.thread.clone());
            }
            let seen = &call.seen;
            let timing = CallTiming {
                tid: call.tid,
                start_ns: seen.start_ns,
                end_ns: seen.start_ns + seen.duration_ns,
                bytes: (seen.bytes > 0).then_some(seen.bytes),
            };
            let found = tracer.attribute(&timing);
            calls.push(call.into_call(found.segments, 0, found.damaged));
        }
        calls
    }

    fn latencies(&mut self, _tracer: &Tracer, _second_ns: Option<u64>, look: Look) -> Vec<LatencyBucket> {
        self.collector.ready((!look.is_last()).then_some(look.ns()))
    }
}

#[cfg(test)]
mod tests {
    use super::check_directory;
    use rustix::fs::inotify;
    use rustix::io::Errno;
    use std::path::Path;

    #[test]
    fn the_probe_of_a_directory_creates_no_name() {
        let dir = tempfile::tempdir().expect("a directory");
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).expect("inotify");
        inotify::add_watch(&watch, dir.path(), inotify::WatchFlags::CREATE).expect("watched");
        check_directory(dir.path()).expect("a directory that can be written to");
        let named = rustix::io::read(&watch, &mut [0u8; 4096]);
        assert_eq!(named, Err(Errno::AGAIN), "a name was created");
    }

    #[test]
    fn unusable_directories_are_refused_early() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let of_a_file = check_directory(file.path()).expect_err("a file is not a directory").to_string();
        assert!(of_a_file.contains(&file.path().display().to_string()), "{of_a_file}");
        let missing = check_directory(&file.path().with_extension("missing")).expect_err("it is missing").to_string();
        assert!(missing.contains("No such file or directory"), "{missing}");
        let of_proc = check_directory(Path::new("/proc")).expect_err("no files can be made there").to_string();
        assert!(of_proc.contains("/proc"), "{of_proc}");
    }
}
