//! `record`: follows programs that already run, or one that it starts.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::clock::{monotonic_ns, wall_offset_ns};
use super::error::HostError;
use super::imitation::{Limits, Neighbours};
use super::launch::Launched;
use super::machine::storage_of;
use super::noise;
use super::observer::{Interval, Look, TimedCalls};
use super::own_cost::give_back_memory;
use super::privileges::{self, Needs, User};
use super::proc;
use super::run::Progress;
use super::sampler::{SamplerOptions, TargetCgroup, devices_of};
use super::session::{Session, SessionOptions};
use super::settings;
use super::setup::cgroup::is_cgroup;
use super::target::{WatchedSet, describe, find_cgroup, find_unit, first_process};
use super::tracer::{HookCost, Level, Targets, TraceError, TraceOptions, Tracer, functions, measure_hook_cost};
use flatwater_recording::{
    AccessKind, Call, Clock, EventKind, Gap, Header, LatencyBucket, Note, Observed, OpKind, Source, Target,
    WatchedProcess, redact,
};
use flatwater_safefs::Dir;

/// The target, and how to record it.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    pub out: Dir,
    /// Process ids; each selects the process and all its descendants.
    pub pids: Vec<u32>,
    /// Names of programs: all processes that run one of them, also those that start later.
    pub programs: Vec<String>,
    /// A directory under /sys/fs/cgroup, the path that /proc/PID/cgroup shows, or the first digits of a container's id.
    pub cgroup: Option<PathBuf>,
    /// A systemd unit.
    pub unit: Option<String>,
    /// The command to start once the hooks are attached; the recording ends when the command ends.
    pub command: Vec<OsString>,
    /// The user to run the command as; by default the user of this process.
    pub user: Option<User>,
    /// Record the command's arguments unchanged, even if they may contain secrets.
    pub keep_arguments: bool,
    /// `None`: until the targets end or the user stops the recording.
    pub duration: Option<Duration>,
    pub threshold_ns: u64,
    pub sample_hz: u32,
    pub stack_hz: u32,
    /// Also time page faults of the targets. The hook runs on each page fault of the machine.
    pub faults: bool,
    /// The hooks to use; `None`: the cheapest level with exact times that this kernel supports.
    pub level: Option<Level>,
    /// Count what `reproduce` needs.
    pub imitation: bool,
}

impl RecordOptions {
    /// Records into `out` until it is stopped; the target is not chosen yet.
    #[must_use]
    pub fn new(out: Dir) -> RecordOptions {
        RecordOptions {
            out,
            pids: Vec::new(),
            programs: Vec::new(),
            cgroup: None,
            unit: None,
            command: Vec::new(),
            user: None,
            keep_arguments: false,
            duration: None,
            threshold_ns: 1_000_000,
            sample_hz: 1,
            stack_hz: 0,
            faults: false,
            level: None,
            imitation: true,
        }
    }
}

const NOISE_LENGTH: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(100);
/// Look at most this many times for processes that were forked while the hooks were attached.
const FORK_ROUNDS_MAX: usize = 5;

/// Records until the targets end, `duration` is over, or `stop` is set. Returns the exit status of the command, if it
/// has ended.
pub fn record(
    options: &RecordOptions,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Progress<'_>),
) -> Result<Option<ExitStatus>, HostError> {
    let mut watched = WatchedSet::find(options)?;
    let cgroup = match (&options.cgroup, &options.unit) {
        (Some(given), _) => Some(cgroup_directory(given)?),
        (None, Some(unit)) => Some(find_unit(unit)?),
        (None, None) => None,
    };
    if !watched.processes.is_empty() {
        tell(Progress::Message(&format!("watching {}", describe(&watched.processes))));
    }
    let Hooks { level, cost, why } = choose_hooks(options.level, functions::allowed, measure_hook_cost)?;
    give_back_memory();
    tell(Progress::Message(&who_pays(level, cost.as_ref())));
    let mut header = first_header(options);
    if let Some(why) = why {
        tell(Progress::Message(&why));
        header.notes.push(Note::Text(why));
    }
    header.target.processes = watched.listed();
    let noise = header.noise_before.insert(noise::measure(None, NOISE_LENGTH));
    let targets = Targets { pids: watched.pids(), cgroup: cgroup.clone(), faults: options.faults };
    let trace = TraceOptions { hz: options.stack_hz, level, ..TraceOptions::others(options.threshold_ns, targets) };
    let trace = TraceOptions { profile: options.imitation, ..trace.above(noise) };
    header.own_cost.syscall_ns = cost.and_then(Result::ok).map(|cost| cost.added_ns);
    let place = working_directory(options, cgroup.as_deref(), &watched);
    let sampler = SamplerOptions {
        hz: options.sample_hz,
        devices: place.as_deref().map(devices_of).unwrap_or_default(),
        cgroup: match (&cgroup, watched.first()) {
            (Some(directory), _) => TargetCgroup::at(directory),
            (None, pid) => TargetCgroup::of_process(pid.unwrap_or_else(std::process::id)),
        },
        ..SamplerOptions::default()
    };
    header.target.directory = place.as_ref().ok().map(|place| place.display().to_string());
    header.target.storage = place.as_deref().ok().and_then(storage_of);
    header.target.device = sampler.devices.first().map(|device| device.name.clone());
    let (setup, unread) = settings::observe(place.as_deref().ok(), sampler.cgroup.as_ref());
    header.setup = setup;
    let mut session = Session::start(SessionOptions { out: options.out.clone(), header, trace, sampler })?;
    session.gaps(&unread)?;
    if let Err(error) = &place {
        let why = format!("the target's working directory cannot be read: {error}");
        session.gaps(&[Gap::new("the device that the target writes to", why, "run as root")])?;
    }
    // Drop what the hooks saw while they were being attached.
    let start_ns = monotonic_ns();
    session.observer.begin(start_ns);
    let mut command = match options.command.split_first() {
        Some((program, arguments)) => Some(Launched::start(program, arguments, options.user.as_ref(), &mut session)?),
        None => None,
    };
    // The command has started; nothing after this point needs more privileges.
    privileges::drop_on_all_threads(Needs { counting_tasks: session.observer.counts_tasks(), ..Needs::default() })?;
    // Adds processes that were forked between the first look and the hooks. Repeated, because these fork as well.
    for _ in 0..FORK_ROUNDS_MAX {
        if watched.adopt_new(&mut session)? == 0 {
            break;
        }
    }
    let limits = limits_at_start(options, &watched, cgroup.as_deref(), place.as_deref().ok());
    let status = watch(options, &mut session, (&mut watched, command.as_mut()), start_ns, stop, tell)?;
    session.imitation(limits)?;
    finish(session, &watched, tell)?;
    Ok(status)
}

/// Ends the recording. Each step that takes long is reported, because the planned time is over.
fn finish(mut session: Session, watched: &WatchedSet, tell: &mut dyn FnMut(Progress<'_>)) -> Result<(), HostError> {
    session.stop_sampling(0)?;
    tell(Progress::Message("recorded; measuring the machine's noise floor, one second"));
    session.header.noise_after = Some(noise::measure(None, NOISE_LENGTH));
    session.header.target.processes = with_killed(watched.listed(), session.observer.tracer.killed());
    tell(Progress::Message("sealing the recording"));
    session.finish(Vec::new())?;
    Ok(())
}

/// `None` if no operations are counted.
fn limits_at_start(
    options: &RecordOptions,
    watched: &WatchedSet,
    cgroup: Option<&Path>,
    place: Option<&Path>,
) -> Option<Limits> {
    let first = || watched.first().or_else(|| first_process(cgroup?));
    options.imitation.then(|| Limits::at_start(first(), place))
}

/// The hooks to use.
#[derive(Debug)]
struct Hooks {
    level: Level,
    /// The measured cost of a hook on every system call, for level 2 only.
    cost: Option<Result<HookCost, TraceError>>,
    /// Why level 2 was chosen although the user did not ask for it.
    why: Option<String>,
}

/// Returns the requested level, or by default the level with exact times that costs least on this kernel.
fn choose_hooks(
    asked: Option<Level>,
    functions_allowed: impl FnOnce() -> Result<(), TraceError>,
    measure_cost: impl FnOnce() -> Result<HookCost, TraceError>,
) -> Result<Hooks, HostError> {
    let of_level = |level| Ok(Hooks { level, cost: None, why: None });
    let refused = match asked {
        Some(Level::Sleeps) => return of_level(Level::Sleeps),
        Some(Level::Calls) => None,
        Some(Level::Files) | None => match functions_allowed() {
            Ok(()) => return of_level(Level::Files),
            Err(why) => Some(why),
        },
    };
    match (refused, measure_cost()) {
        // Function hooks are refused, but other hooks work here. Fail, since otherwise no call would be timed and the
        // user can choose another level.
        (Some(why), Ok(cost)) if asked.is_some() => Err(HostError::NoFunctions { why, added_ns: cost.added_ns }),
        (refused, cost) => {
            let why = refused.filter(|_| cost.is_ok()).map(|refused| {
                // One reason is enough here: the others are those of the tracer's variants for older kernels.
                let refused = refused.to_string();
                let reason = refused.split("; ").next().unwrap_or_default();
                format!(
                    "every system call of this machine is hooked (level 2), because this kernel refuses hooks on the \
                     functions of single system calls (level 1): {reason}; `flatwater check --hooks` lists each hook"
                )
            });
            Ok(Hooks { level: Level::Calls, cost: Some(cost), why })
        }
    }
}

/// Describes what the recording costs the machine. `cost` is `None` if not every system call is hooked.
fn who_pays(level: Level, cost: Option<&Result<HookCost, TraceError>>) -> String {
    match cost {
        None if level == Level::Files => {
            "while this records, system calls on files take some ns longer, for all programs; other system calls are not slowed".to_owned()
        }
        None => "no system call is slowed: calls are found by their sleeps, so their time on the CPU is not recorded"
            .to_owned(),
        Some(Ok(cost)) => format!(
            "while this records, every system call of this machine takes about {} ns longer (measured now: {} ns without, {} ns with)",
            cost.added_ns, cost.without_ns, cost.with_ns
        ),
        Some(Err(why)) => {
            format!("cannot trace here ({why}); looking once a millisecond at the threads in /proc instead")
        }
    }
}

fn watch(
    options: &RecordOptions,
    session: &mut Session,
    (watched, mut command): (&mut WatchedSet, Option<&mut Launched>),
    start_ns: u64,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Progress<'_>),
) -> Result<Option<ExitStatus>, HostError> {
    let total_ns = options.duration.map_or(0, |length| u64::try_from(length.as_nanos()).unwrap_or(u64::MAX));
    let what = session.header.target.what.clone();
    session.header.clock = Clock { start_ns, wall_offset_ns: Some(wall_offset_ns()) };
    session.event(start_ns, EventKind::Start(what.clone()))?;
    if session.observer.level == Level::Sleeps || session.observer.polled_ns_min().is_some() {
        session.event(start_ns, EventKind::Timing { every_call: false })?;
    }
    session.publish_header()?;
    let mut status = None;
    let mut hooked = HookedCalls { start_ns, threshold_ns: session.header.threshold_ns };
    let mut counts = OperationCounts::default();
    let mut neighbours = options.imitation.then(Neighbours::new);
    loop {
        std::thread::sleep(TICK);
        let elapsed_ns = monotonic_ns() - start_ns;
        let mut interval = session.observer.look(&mut hooked, Look::At(start_ns + elapsed_ns));
        counts.add(&mut interval);
        if let Some(neighbours) = &mut neighbours {
            neighbours.notice(&interval, &session.observer.tracer);
        }
        if interval.second_ended {
            watched.adopt_new(session)?;
        }
        if let Some(trouble) = session.write(interval)? {
            tell(Progress::Message(&format!("{}: {}", trouble.what, trouble.why)));
        }
        let (slow_calls, lost_ns) = (session.slow_calls(), session.lost_ns());
        tell(Progress::Measuring { elapsed_ns, total_ns, slow_calls, lost_ns });
        if let Some(command) = &mut command {
            status = command.ended();
        }
        let over = total_ns > 0 && elapsed_ns >= total_ns;
        let gone = watched.ended();
        if over || gone || status.is_some() || stop.load(Ordering::Relaxed) {
            if gone {
                session.event(monotonic_ns(), EventKind::Mark("the watched processes have ended".to_owned()))?;
            }
            break;
        }
    }
    let end_ns = monotonic_ns();
    let mut interval = session.observer.look(&mut hooked, Look::Last(end_ns));
    counts.add(&mut interval);
    session.write(interval)?;
    session.header.observed = observed(session, options, watched, &counts);
    let mut limits: Vec<Gap> = watched.not_looked_into().into_iter().chain(watched.not_listed()).collect();
    limits.extend(neighbours.and_then(|neighbours| neighbours.left_out()));
    session.gaps(&limits)?;
    session.header.duration_ns = end_ns - start_ns;
    // Without a planned length, a signal is the normal end.
    if stop.load(Ordering::Relaxed) && session.header.duration_ns < total_ns {
        session.interrupted(end_ns, total_ns)?;
    }
    session.event(end_ns, EventKind::End(what))?;
    Ok(status)
}

/// Adds the targets that SIGKILL ended (the OOM killer, for example); some lived too briefly to be found in /proc.
fn with_killed(mut listed: Vec<WatchedProcess>, killed: Vec<(u32, String)>) -> Vec<WatchedProcess> {
    for (pid, name) in killed {
        if !listed.iter().any(|process| process.pid == pid) {
            let mut process = WatchedProcess::default();
            (process.pid, process.name) = (pid, name);
            listed.push(process);
        }
    }
    listed
}

/// Replaces the worst latency of each bucket by the slowest call's exact duration. The BPF program counts
/// latencies in classes an eighth wide.
fn set_worst(buckets: &mut [LatencyBucket], worst: &mut BTreeMap<OpKind, u64>) {
    for bucket in buckets {
        let exact_ns = worst.remove(&bucket.op).unwrap_or(0);
        // Only if the bucket's slowest class contains that call: the call may have been drained in the second of
        // another bucket.
        if exact_ns <= bucket.worst_from_start_ns && exact_ns + exact_ns / 7 >= bucket.worst_from_start_ns {
            bucket.worst_from_start_ns = exact_ns;
        }
    }
}

fn first_header(options: &RecordOptions) -> Header {
    let words: Vec<String> = options.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let words = if options.keep_arguments { words } else { redact::words(&words) };
    let what = match (&words[..], &options.pids[..], &options.cgroup) {
        ([], [], Some(cgroup)) => format!("cgroup {}", cgroup.display()),
        ([], [], None) => match &options.unit {
            Some(unit) => format!("unit {unit}"),
            None => options.programs.join(", "),
        },
        ([], pids, _) => pids.iter().map(|pid| format!("pid {pid} ({})", comm(*pid))).collect::<Vec<_>>().join(", "),
        (words, _, _) => words.join(" "),
    };
    Header {
        written_by: env!("CARGO_PKG_VERSION").to_owned(),
        source: Source::Host,
        threshold_ns: options.threshold_ns,
        target: Target {
            what,
            pids: options.pids.clone(),
            cgroup: options.cgroup.as_ref().map(|path| path.display().to_string()),
            ..Target::default()
        },
        ..Header::default()
    }
}

/// The directory where the target most likely writes: the first process's working directory, or this process's for
/// a command.
fn working_directory(options: &RecordOptions, cgroup: Option<&Path>, watched: &WatchedSet) -> io::Result<PathBuf> {
    let of_cgroup = || first_process(cgroup?);
    match watched.first().or_else(of_cgroup) {
        Some(pid) => std::fs::read_link(format!("/proc/{pid}/cwd")),
        None if options.command.is_empty() => Err(io::Error::other("the cgroup holds no process yet")),
        None => std::env::current_dir(),
    }
}

/// Counts the operations by how they were made, and keeps the longest of each kind since its last bucket.
#[derive(Debug, Default)]
struct OperationCounts {
    calls: u64,
    io_uring: u64,
    libaio: u64,
    worst: BTreeMap<OpKind, u64>,
}

/// Cuts off the parts of calls before `start_ns` and drops calls that are then below the threshold.
fn within(start_ns: u64, threshold_ns: u64, mut calls: Vec<Call>) -> Vec<Call> {
    calls.iter_mut().for_each(|call| call.begin_at(start_ns));
    calls.retain(|call| call.duration_ns.max(call.after_exit_ns) >= threshold_ns);
    calls
}

/// Calls of other programs, which hooks time.
struct HookedCalls {
    /// The start of the recording.
    start_ns: u64,
    threshold_ns: u64,
}

impl TimedCalls for HookedCalls {
    fn settled(&mut self, tracer: &Tracer, _look: Look) -> Vec<Call> {
        within(self.start_ns, self.threshold_ns, tracer.drain())
    }

    fn latencies(&mut self, tracer: &Tracer, second_ns: Option<u64>, look: Look) -> Vec<LatencyBucket> {
        second_ns.map(|start_ns| tracer.latencies(start_ns, look.ns())).unwrap_or_default()
    }
}

impl OperationCounts {
    /// Counts the observations, and makes the worst latency of each bucket exact.
    fn add(&mut self, interval: &mut Interval) {
        for call in &interval.calls {
            let known = self.worst.entry(call.op).or_insert(0);
            *known = call.duration_ns.max(*known);
        }
        set_worst(&mut interval.latencies, &mut self.worst);
        set_worst(&mut interval.operations, &mut self.worst);
        self.calls += counted(&interval.latencies);
        for bucket in &interval.operations {
            match bucket.op.access() {
                AccessKind::LinuxAio => self.libaio += bucket.from_start.count(),
                _ => self.io_uring += bucket.from_start.count(),
            }
        }
    }
}

/// The number of operations that the BPF program counted.
fn counted(latencies: &[LatencyBucket]) -> u64 {
    latencies.iter().map(|bucket| bucket.from_start.count()).sum()
}

/// For each kind of access: whether the targets' operations were timed, and how many there were.
fn observed(
    session: &Session,
    options: &RecordOptions,
    watched: &WatchedSet,
    counts: &OperationCounts,
) -> Vec<Observed> {
    // At level 0, calls that did not sleep are not seen, so the number of calls is unknown.
    let level = session.observer.level;
    let polled = session.observer.polled_threads();
    let timed = (level != Level::Sleeps && !polled).then_some(counts.calls);
    let blind = session.observer.tracer.gaps().first().filter(|_| !session.observer.tracer.sees());
    let by_sleeps = level == Level::Sleeps && !session.observer.sees_waits();
    let mut seen = match blind {
        None if by_sleeps => [AccessKind::FileCalls, AccessKind::PageFaults]
            .map(|access| Observed::missed(access, "no hook finds calls by their sleeps here", "record with --level 1"))
            .to_vec(),
        Some(_) if polled => {
            vec![Observed::timed(AccessKind::FileCalls, None), Observed::timed(AccessKind::PageFaults, None)]
        }
        Some(gap) => vec![
            Observed::missed(AccessKind::FileCalls, gap.why.clone(), gap.remedy.clone()),
            Observed::missed(AccessKind::PageFaults, gap.why.clone(), gap.remedy.clone()),
        ],
        None if options.faults => {
            vec![Observed::timed(AccessKind::FileCalls, timed), Observed::timed(AccessKind::PageFaults, None)]
        }
        None => {
            let off = "--no-faults was given";
            let faults = Observed::missed(AccessKind::PageFaults, off, "record without --no-faults");
            vec![Observed::timed(AccessKind::FileCalls, timed), faults]
        }
    };
    let untimed = session.observer.tracer.untimed();
    if !untimed.is_empty() {
        let shown: Vec<String> = untimed.iter().take(5).map(|(name, count)| format!("{name}() {count}")).collect();
        let total = untimed.iter().map(|(_, count)| count).sum();
        seen.push(Observed::missed(AccessKind::OtherCalls, shown.join(", "), "").counted(total));
    }
    for (access, count) in [(AccessKind::IoUring, counts.io_uring), (AccessKind::LinuxAio, counts.libaio)] {
        // libaio has no tracepoints: its operations are timed only if system calls are (level 2).
        let timed = session.observer.sees_waits() && (access == AccessKind::IoUring || level == Level::Calls);
        let pids = watched.users_of(access);
        if timed && (count > 0 || !pids.is_empty()) {
            seen.push(Observed::timed(access, Some(count)).of(pids));
        } else if !pids.is_empty() {
            let why = format!("{} do not pass through the timed system calls", access.noun());
            let remedy = match level {
                Level::Sleeps | Level::Files => "record with --level 2",
                Level::Calls => {
                    "time them by the program's own statistics; what their workers wait for is in /proc/PID/stack"
                }
            };
            seen.push(Observed::missed(access, why, remedy).of(pids));
        }
    }
    seen
}

fn comm(pid: u32) -> String {
    proc::text::read(format!("/proc/{pid}/comm")).map(|name| name.trim().to_owned()).unwrap_or_default()
}

/// Shorter words of hexadecimal digits are taken for a path.
const ID_DIGITS_MIN: usize = 4;

/// Accepts a directory, the path within the hierarchy that /proc/PID/cgroup shows, or the first digits of a container's
/// id.
pub fn cgroup_directory(given: &Path) -> Result<PathBuf, HostError> {
    let relative = given.strip_prefix("/").unwrap_or(given);
    let bases = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/memory"];
    let candidates = [given.to_owned()].into_iter().chain(bases.iter().map(|base| Path::new(base).join(relative)));
    // Checks the file system, not only the files: any user can create a directory that contains cgroup.procs.
    if let Some(found) = candidates.into_iter().find(|path| is_cgroup(path) && path.join("cgroup.procs").is_file()) {
        return Ok(found);
    }
    let digits =
        given.to_str().filter(|text| text.len() >= ID_DIGITS_MIN && text.bytes().all(|b| b.is_ascii_hexdigit()));
    if let Some(digits) = digits {
        return Ok(find_cgroup(digits)?);
    }
    let why = "it is not a directory on a cgroup file system".to_owned();
    Err(HostError::NoCgroup { path: given.display().to_string(), why })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use flatwater_safefs::Dir;

    use super::{RecordOptions, WatchedSet, choose_hooks, working_directory};
    use crate::tracer::{HookCost, Level, TraceError};

    /// Without `--level`, level 2 was chosen silently, although it slows every system call.
    #[test]
    fn the_choice_of_level_2_is_explained() {
        let cost = HookCost { without_ns: 100, with_ns: 150, added_ns: 50, spread_ns: 1 };
        let refused = || Err(TraceError::NoFunctionHooks);
        let by_default = choose_hooks(None, refused, || Ok(cost)).expect("level 2");
        let why = by_default.why.expect("a reason");
        assert!(by_default.level == Level::Calls && why.contains(&TraceError::NoFunctionHooks.to_string()), "{why}");
        assert!(choose_hooks(Some(Level::Calls), refused, || Ok(cost)).expect("level 2").why.is_none(), "asked for");
        // Without any hook, the note at the top of the report explains it (session.rs: what_is_missing).
        assert!(choose_hooks(None, refused, || Err(TraceError::NotBuilt)).expect("no hooks").why.is_none());
        let level_1 = choose_hooks(None, || Ok(()), || Ok(cost)).expect("level 1");
        assert!(level_1.level == Level::Files && level_1.cost.is_none() && level_1.why.is_none());
        assert!(choose_hooks(Some(Level::Files), refused, || Ok(cost)).is_err(), "the user can choose another level");
    }

    /// The directory selects the file system and device whose counters are read. An earlier version took flatwater's
    /// own directory.
    #[test]
    fn a_cgroup_has_the_directory_of_the_first_process() {
        let (out, place, group) = (tempfile::tempdir(), tempfile::tempdir(), tempfile::tempdir());
        let (out, place, group) = (out.expect("made"), place.expect("made"), group.expect("made"));
        let mut options = RecordOptions::new(Dir::claim(&out.path().join("rec"), None).expect("claimed"));
        let watched = WatchedSet::find(&options).expect("the options name no program");
        let directory_of = |options: &RecordOptions| working_directory(options, Some(group.path()), &watched);
        std::fs::write(group.path().join("cgroup.procs"), "").expect("written");
        let empty = directory_of(&options).expect_err("the cgroup is empty");
        assert!(empty.to_string().contains("no process yet"), "{empty}");

        let mut child = Command::new("sleep").arg("60").current_dir(place.path()).spawn().expect("starts");
        std::fs::create_dir(group.path().join("container")).expect("made");
        std::fs::write(group.path().join("container/cgroup.procs"), format!("{}\n", child.id())).expect("written");
        let found = directory_of(&options);
        options.command = vec!["true".into()];
        let own = working_directory(&options, None, &watched);
        child.kill().expect("is there");
        child.wait().expect("ended");
        assert_eq!(found.expect("found"), place.path().canonicalize().expect("is there"));
        assert_eq!(own.expect("ours"), std::env::current_dir().expect("ours"));
    }
}
