//! `record`: the same watch over programs that exist already, or that are started for it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::clock::{monotonic_ns, wall_offset_ns};
use super::driver::collect::BUCKET_NS;
use super::error::HostError;
use super::noise;
use super::own_cost::give_back_memory;
use super::run::Progress;
use super::sampler::{SamplerOptions, TargetCgroup, devices_of};
use super::session::{Session, SessionOptions};
use super::tracer::{Targets, TraceOptions, measure_hook_cost};
use flatwater_recording::{Clock, EventKind, Gap, Header, LatencyBucket, OpKind, Source, Target};

/// Whom to watch, and how.
#[derive(Clone, Debug, Default)]
pub struct RecordOptions {
    pub out: PathBuf,
    pub pids: Vec<u32>,
    /// A directory under /sys/fs/cgroup.
    pub cgroup: Option<PathBuf>,
    /// Started once everything is attached; the recording ends with it.
    pub command: Vec<OsString>,
    /// `None`: until the targets end or the user says so.
    pub duration: Option<Duration>,
    pub threshold_ns: u64,
    pub sample_hz: u32,
    pub stack_hz: u32,
    /// Page faults of the targets too; costs a hook on each fault of the machine.
    pub faults: bool,
}

const NOISE_LENGTH: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(100);

/// Watches until the targets end, the time is over or the flag is raised. Returns the command's exit status.
pub fn record(
    options: &RecordOptions,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Progress<'_>),
) -> Result<Option<ExitStatus>, HostError> {
    for pid in &options.pids {
        if !alive(*pid) {
            return Err(HostError::NoProcess { pid: *pid });
        }
    }
    let cgroup = options.cgroup.as_deref().map(cgroup_directory).transpose()?;
    let cost = measure_hook_cost();
    give_back_memory();
    match &cost {
        Ok(cost) => tell(Progress::Said(&format!(
            "while this records, every system call of this machine costs about {} ns more (measured now: {} ns without, {} ns with)",
            cost.added_ns, cost.without_ns, cost.with_ns
        ))),
        Err(why) => tell(Progress::Said(&format!(
            "calls of other programs cannot be followed here ({why}); recording the kernel's counters alone"
        ))),
    }
    let mut header = first_header(options);
    let noise = header.noise_before.insert(noise::measure(None, NOISE_LENGTH));
    let targets = Targets { pids: options.pids.clone(), cgroup: cgroup.clone(), faults: options.faults };
    let trace =
        TraceOptions { hz: options.stack_hz, ..TraceOptions::others(options.threshold_ns, targets) }.above(noise);
    header.own_cost.syscall_ns = cost.ok().map(|cost| cost.added_ns);
    let place = working_directory(options);
    let sampler = SamplerOptions {
        hz: options.sample_hz,
        devices: place.as_deref().map(devices_of).unwrap_or_default(),
        cgroup: match (&cgroup, options.pids.first()) {
            (Some(directory), _) => TargetCgroup::at(directory),
            (None, pid) => TargetCgroup::of_process(pid.copied().unwrap_or_else(std::process::id)),
        },
        ..SamplerOptions::default()
    };
    header.target.directory = place.as_ref().ok().map(|place| place.display().to_string());
    header.target.device = sampler.devices.first().map(|device| device.name.clone());
    let mut session = Session::start(SessionOptions { out: options.out.clone(), header, trace, sampler })?;
    if let Err(error) = &place {
        let why = format!("the target's working directory cannot be read: {error}");
        session.gaps(&[Gap::new("the device that the target writes to", why, "run as root")])?;
    }
    let mut command = match options.command.split_first() {
        Some((program, arguments)) => Some(Launched::start(program, arguments, &mut session)?),
        None => None,
    };
    let status = watch(options, &mut session, command.as_mut(), stop, tell)?;
    session.stop_sampling(0)?;
    session.header.noise_after = Some(noise::measure(None, NOISE_LENGTH));
    session.finish(Vec::new())?;
    Ok(status)
}

fn watch(
    options: &RecordOptions,
    session: &mut Session,
    mut command: Option<&mut Launched>,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Progress<'_>),
) -> Result<Option<ExitStatus>, HostError> {
    let start_ns = monotonic_ns();
    let total_ns = options.duration.map_or(0, |length| u64::try_from(length.as_nanos()).unwrap_or(u64::MAX));
    let what = session.header.target.what.clone();
    session.header.clock = Clock { start_ns, wall_offset_ns: Some(wall_offset_ns()) };
    session.event(start_ns, EventKind::Start, &what)?;
    session.publish_header()?;
    let mut status = None;
    let mut bucket_ns = start_ns;
    let mut worst = BTreeMap::new();
    loop {
        std::thread::sleep(TICK);
        let elapsed_ns = monotonic_ns() - start_ns;
        let calls = session.tracer.drain();
        session.calls(&calls)?;
        for call in &calls {
            let known = worst.entry(call.op).or_insert(0);
            *known = call.duration_ns.max(*known);
        }
        let now_ns = monotonic_ns();
        if now_ns - bucket_ns >= BUCKET_NS {
            let latencies = with_worst(session.tracer.latencies(bucket_ns, now_ns), &mut worst);
            session.latency(&latencies)?;
            bucket_ns = now_ns;
        }
        if let Some(trouble) = session.tick()? {
            tell(Progress::Said(&format!("{}: {}", trouble.what, trouble.why)));
        }
        let (slow_calls, lost_ns) = (session.slow_calls(), session.lost_ns());
        tell(Progress::Measuring { elapsed_ns, total_ns, slow_calls, lost_ns });
        if let Some(command) = &mut command {
            status = command.ended();
        }
        let over = total_ns > 0 && elapsed_ns >= total_ns;
        let gone = !options.pids.is_empty() && !options.pids.iter().any(|pid| alive(*pid));
        if over || gone || status.is_some() || stop.load(Ordering::Relaxed) {
            if gone {
                session.event(monotonic_ns(), EventKind::Mark, "the watched processes have ended")?;
            }
            break;
        }
    }
    let end_ns = monotonic_ns();
    let latencies = with_worst(session.tracer.latencies(bucket_ns, end_ns), &mut worst);
    session.latency(&latencies)?;
    session.header.duration_ns = end_ns - start_ns;
    session.event(end_ns, EventKind::End, &what)?;
    Ok(status)
}

/// The kernel counts latencies in classes an eighth wide; the worst of a slow one is known exactly from its call.
fn with_worst(mut buckets: Vec<LatencyBucket>, worst: &mut BTreeMap<OpKind, u64>) -> Vec<LatencyBucket> {
    for bucket in &mut buckets {
        let exact_ns = worst.remove(&bucket.op).unwrap_or(0);
        // Only if the slowest class holds that very call: it may have been drained in another bucket's second.
        if exact_ns <= bucket.worst_from_start_ns && exact_ns + exact_ns / 7 >= bucket.worst_from_start_ns {
            bucket.worst_from_start_ns = exact_ns;
        }
    }
    buckets
}

fn first_header(options: &RecordOptions) -> Header {
    let words: Vec<String> = options.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let what = match (&words[..], &options.pids[..], &options.cgroup) {
        ([], [], Some(cgroup)) => format!("cgroup {}", cgroup.display()),
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

/// Where the target most likely writes: its working directory, or ours for a command.
fn working_directory(options: &RecordOptions) -> io::Result<PathBuf> {
    match options.pids.first() {
        Some(pid) => std::fs::read_link(format!("/proc/{pid}/cwd")),
        None => std::env::current_dir(),
    }
}

fn comm(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).map(|name| name.trim().to_owned()).unwrap_or_default()
}

/// There, and not a zombie that waits for its parent.
fn alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .and_then(|rest| rest.split_whitespace().next())
        .is_some_and(|state| state != "Z" && state != "X")
}

/// Accepts a directory, or the path within the hierarchy that /proc/PID/cgroup shows.
fn cgroup_directory(given: &Path) -> Result<PathBuf, HostError> {
    let relative = given.strip_prefix("/").unwrap_or(given);
    let bases = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/memory"];
    let candidates = [given.to_owned()].into_iter().chain(bases.iter().map(|base| Path::new(base).join(relative)));
    let found = candidates.into_iter().find(|path| path.join("cgroup.procs").is_file());
    found.ok_or_else(|| HostError::NoCgroup {
        path: given.display().to_string(),
        why: "there is no cgroup.procs in it".to_owned(),
    })
}

/// A command that was held before its first instruction until the tracer had it as a target. If it still runs
/// when we stop watching, it goes on: it is the user's, not ours.
struct Launched(Child);

impl Launched {
    fn start(program: &OsString, arguments: &[OsString], session: &mut Session) -> Result<Launched, HostError> {
        let failed = |source: io::Error| HostError::Command { command: program.to_string_lossy().into_owned(), source };
        let (mut pid_reader, pid_writer) = io::pipe().map_err(failed)?;
        let (go_reader, mut go_writer) = io::pipe().map_err(failed)?;
        let mut command = Command::new(program);
        command.args(arguments);
        let (tell_pid, wait_go) = (pid_writer.as_raw_fd(), go_reader.as_raw_fd());
        // SAFETY: between fork and exec the closure makes plain reads, writes and closes on descriptors that
        // the child has inherited, and allocates nothing.
        unsafe {
            command.pre_exec(move || {
                let pid = rustix::process::getpid().as_raw_nonzero().get().to_ne_bytes();
                let told = libc::write(tell_pid, pid.as_ptr().cast(), pid.len());
                let mut go = [0_u8; 1];
                let heard = libc::read(wait_go, go.as_mut_ptr().cast(), 1);
                if told == 4 && heard == 1 { Ok(()) } else { Err(io::Error::from(io::ErrorKind::BrokenPipe)) }
            });
        }
        // `spawn` returns only after the exec, which waits for us: so it waits on a thread of its own.
        let spawning = std::thread::spawn(move || {
            let spawned = command.spawn();
            drop((pid_writer, go_reader));
            spawned
        });
        let mut pid = [0_u8; 4];
        if pid_reader.read_exact(&mut pid).is_ok() {
            let pid = i32::from_ne_bytes(pid).cast_unsigned();
            session.add_process(pid)?;
        }
        let _ = go_writer.write_all(&[1]);
        let spawned = spawning.join().unwrap_or_else(|_| Err(io::Error::other("the spawning thread panicked")));
        spawned.map(Launched).map_err(failed)
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().ok().flatten()
    }
}
