//! Runs one guest from boot to the return of the recording: its lines, its watchdog, its end, and the cleanup.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{BufReader, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use flatwater_safefs::{Dir, Refusal};
use rustix::fs::{FlockOperation, flock};

use super::console::{Console, lines};
use super::cpio::{Limits, Reader};
use super::guest::Line;
use super::initramfs::Prepared;
use super::qemu::Machine;
use super::{VmError, VmOptions, VmReport, one_cpu, unprivileged};

/// Interval between two checks for lines of the guest.
const LOOK: Duration = Duration::from_millis(200);
/// Under KVM a guest's first line arrives within two seconds. If KVM is only partly usable, a guest may hang before
/// its first instruction; emulation should then be tried soon.
const KVM_BOOT_MAX: Duration = Duration::from_secs(12);
/// The first line must arrive within this fraction of the patience, because an image that does not boot stays silent
/// forever.
const BOOT_SHARE: u32 = 2;
/// Limits for a guest's archive: a recording has about thirty files.
const TAKEN: Limits = Limits { entries: 256, file_bytes: 1 << 30, total_bytes: 2 << 30 };
/// Maximum number of bytes of QEMU's own error output.
const ERROR_BYTES_MAX: u64 = 4096;

/// A directory for one guest's files, removed on drop. Other users may pass through it (QEMU runs as uid 65534) but not
/// list it. Locked while its process lives: unlike a process id, the lock means the same in every pid namespace.
#[derive(Debug)]
pub struct WorkDirectory {
    base: Dir,
    dir: Dir,
    name: String,
}

const PREFIX: &str = "flatwater-vm-";
/// Not /tmp, which is in memory on many machines: a guest's disk can be large.
const BASE: &str = "/var/tmp";

fn no_directory(refusal: Refusal) -> VmError {
    VmError::prepare("the directory of the guest's files")(refusal.into())
}

impl WorkDirectory {
    pub fn make() -> Result<WorkDirectory, VmError> {
        WorkDirectory::make_in(Dir::open(Path::new(BASE)).map_err(no_directory)?)
    }

    fn make_in(base: Dir) -> Result<WorkDirectory, VmError> {
        let pid = std::process::id();
        // An existing name belongs to another process: try the next one.
        for number in 0..1000 {
            let name = format!("{PREFIX}{pid}-{number}");
            if base.exists(&name) {
                continue;
            }
            let dir = match base.make_dir(&name) {
                Ok(dir) => dir,
                Err(refusal) if refusal.is_missing() => continue,
                Err(refusal) => return Err(no_directory(refusal)),
            };
            flock(&dir, FlockOperation::LockExclusive).map_err(|error| VmError::prepare(name.clone())(error.into()))?;
            // Another process may have removed it before it was locked.
            let there = base.stat(&name).ok().map(|stat| (stat.st_dev, stat.st_ino));
            if there != dir.identity().ok() {
                continue;
            }
            unprivileged::let_through(&dir).map_err(VmError::prepare(name.clone()))?;
            return Ok(WorkDirectory { base, dir, name });
        }
        let taken = std::io::Error::other(format!("all names {PREFIX}{pid}-* are taken"));
        Err(VmError::prepare(BASE)(taken))
    }

    pub fn dir(&self) -> &Dir {
        &self.dir
    }
}

impl Drop for WorkDirectory {
    fn drop(&mut self) {
        let _ = self.base.remove_tree(&self.name);
    }
}

/// Removes the directories that killed runs of this user left. Their guests were killed with them (parent-death signal).
/// A directory is in use if a process has locked it, perhaps in another pid namespace (a container that shares /var/tmp),
/// or if the process in its name exists.
pub fn remove_stale() {
    if let Ok(base) = Dir::open(Path::new(BASE)) {
        remove_stale_in(&base);
    }
}

fn remove_stale_in(base: &Dir) {
    let own = rustix::process::geteuid().as_raw();
    for name in base.names().unwrap_or_default() {
        let Some(name) = name.to_str() else { continue };
        let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        let Some(pid) = pid.and_then(|pid| pid.parse::<u32>().ok()) else { continue };
        let ours = base.stat(name).is_ok_and(|stat| stat.st_uid == own);
        // Older versions do not lock their directories.
        if !ours || Path::new(&format!("/proc/{pid}")).exists() {
            continue;
        }
        let Ok(dir) = base.dir(name) else { continue };
        // The lock is held during the removal, so that a process that has just made the directory waits for its end.
        if flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = base.remove_tree(name);
        }
    }
}

/// File name in the recording's directory.
const CONSOLE_LOG: &str = "console.log";

/// A QEMU process, killed on drop.
struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn boot(
    prepared: &Prepared,
    machine: &Machine,
    accelerator: &str,
    options: &VmOptions,
    message: &mut dyn FnMut(&str),
) -> Result<VmReport, VmError> {
    let started = Instant::now();
    let (console_reader, console_writer) = std::io::pipe().map_err(VmError::prepare("a pipe for the console"))?;
    let mut command = machine.command(prepared, accelerator, console_writer.as_raw_fd());
    // Kept open: at the end of input QEMU regards a virtio port as closed, and the guest would block forever on writing
    // to it.
    let (input, _held) = std::io::pipe().map_err(VmError::prepare("a pipe for QEMU's input"))?;
    command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
    unprivileged::start_unprivileged(&mut command, &console_writer, one_cpu::needed(accelerator));
    let child = command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => VmError::no_qemu(prepared.arch),
        _ => VmError::Prepare { what: prepared.arch.qemu().to_owned(), source: error },
    })?;
    drop(console_writer);
    let console = Console::read(console_reader);
    let mut guest = Guest(child);
    let Some(stdout) = guest.0.stdout.take() else {
        return Err(VmError::prepare("QEMU's output")(std::io::ErrorKind::BrokenPipe.into()));
    };
    let lines = lines(stdout);
    let mut report = VmReport { release: String::new(), accelerator: "", boot_ns: 0, first_write_ns: 0 };
    let patience = Duration::from_nanos(options.silence_ns_max);
    let boot_max = patience / BOOT_SHARE;
    let boot_max = if accelerator == "kvm" { boot_max.min(KVM_BOOT_MAX) } else { boot_max };
    let mut waiting = Waiting::of(guest.0.id());
    let outcome = follow(&lines, started, boot_max, &mut waiting, options, &mut report, message);
    let booted = report.boot_ns > 0;
    let failed = |what: String| {
        let text = console.text();
        let _ = options.out.replace(CONSOLE_LOG, text.as_bytes(), false);
        let console = last_lines(&text, 25);
        match booted {
            true => VmError::Guest { what, console },
            false => VmError::NoBoot { release: prepared.release.clone(), what, console },
        }
    };
    let silence_max = if booted { patience } else { boot_max };
    match outcome {
        Follow::Done => {}
        Follow::Failed(why) => return Err(VmError::Scenario { why }),
        Follow::Stopped => return Err(VmError::Stopped),
        Follow::Silent => return Err(failed(format!("was silent for {} s and was ended", silence_max.as_secs()))),
        Follow::Late => return Err(failed("did not finish in the time allowed and was ended".to_owned())),
        Follow::Ended => {
            let mut errors = String::new();
            let _ = guest.0.stderr.take().map(|stderr| stderr.take(ERROR_BYTES_MAX).read_to_string(&mut errors));
            let why = [death(&console.text()), errors.trim()].map(str::to_owned);
            let why = why.into_iter().filter(|words| !words.is_empty()).collect::<Vec<String>>().join("; ");
            return Err(failed(format!("ended before it was done ({why})")));
        }
    }
    wait_for_end(&mut guest.0);
    if options.keep_console {
        let _ = options.out.replace(CONSOLE_LOG, console.text().as_bytes(), false);
    }
    let taken = (&prepared.out).rewind().and_then(|()| unpack(&mut BufReader::new(&prepared.out), &options.out, TAKEN));
    taken.map_err(VmError::prepare("the recording that the guest returned"))?;
    Ok(report)
}

enum Follow {
    Done,
    Failed(String),
    Stopped,
    Silent,
    Late,
    Ended,
}

fn follow(
    lines: &Receiver<Line>,
    started: Instant,
    boot_max: Duration,
    waiting: &mut Waiting,
    options: &VmOptions,
    report: &mut VmReport,
    message: &mut dyn FnMut(&str),
) -> Follow {
    // Emulated time may run at a tenth of real time if the host is busy.
    let patience = Duration::from_nanos(options.duration_ns) * 10 + Duration::from_secs(600);
    let (mut silent, mut passed, mut looked) = (Duration::ZERO, Duration::ZERO, Instant::now());
    let mut silence_max = boot_max;
    loop {
        if options.stop.load(Ordering::Relaxed) {
            return Follow::Stopped;
        }
        let since_start = || u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let line = lines.recv_timeout(LOOK);
        // If this process did not run either (stopped, frozen, the host asleep), the interval does not count against
        // the guest.
        let stretch = waiting.could_run(looked.elapsed().min(LOOK * 5));
        looked = Instant::now();
        silent += stretch;
        passed += stretch;
        match line {
            Ok(line) => {
                silent = Duration::ZERO;
                silence_max = Duration::from_nanos(options.silence_ns_max);
                match line {
                    Line::Booted => report.boot_ns = since_start(),
                    Line::Working => report.first_write_ns = since_start(),
                    Line::Message(text) => message(&text),
                    Line::Done => return Follow::Done,
                    Line::Failed(why) => return Follow::Failed(why),
                }
            }
            Err(RecvTimeoutError::Timeout) if silent > silence_max => return Follow::Silent,
            Err(RecvTimeoutError::Timeout) if passed > patience => return Follow::Late,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Follow::Ended,
        }
    }
}

/// Time that QEMU waits for a CPU of the host: on a busy host that is most of the time, and a guest that cannot run
/// cannot send lines.
struct Waiting {
    tasks: String,
    known: HashMap<OsString, Duration>,
}

/// At least this fraction of the time counts, so that the wait ends on any machine.
const COUNTS_ONE_IN: u32 = 5;

impl Waiting {
    fn of(pid: u32) -> Waiting {
        Waiting { tasks: format!("/proc/{pid}/task"), known: HashMap::new() }
    }

    /// The part of an interval ending now in which the guest could run.
    fn could_run(&mut self, interval: Duration) -> Duration {
        let tasks = std::fs::read_dir(&self.tasks).into_iter().flatten().flatten();
        let mut waited = Duration::ZERO;
        for task in tasks {
            let Some(so_far) =
                std::fs::read_to_string(task.path().join("schedstat")).ok().and_then(|text| waited_in(&text))
            else {
                continue;
            };
            let before = self.known.insert(task.file_name(), so_far).unwrap_or(so_far);
            waited = waited.max(so_far.saturating_sub(before));
        }
        interval.saturating_sub(waited).max(interval / COUNTS_ONE_IN)
    }
}

/// The wait from /proc/PID/task/TID/schedstat: nanoseconds on a CPU, nanoseconds waiting for one, number of times
/// scheduled.
fn waited_in(schedstat: &str) -> Option<Duration> {
    schedstat.split(' ').nth(1)?.trim().parse().ok().map(Duration::from_nanos)
}

/// The last lines of the console, preceded by the line of a kernel panic if it is further up.
fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(count);
    let panic = lines[..from].iter().find(|line| line.contains("Kernel panic"));
    panic.into_iter().chain(&lines[from..]).copied().collect::<Vec<&str>>().join("\n")
}

/// Why the guest died, according to its console.
fn death(text: &str) -> &'static str {
    // The last text is the panic of a machine without processes to kill except init (mm/oom_kill.c: out_of_memory).
    if ["Out of memory", "out of memory", "deadlocked on memory"].iter().any(|words| text.contains(words)) {
        "it ran out of memory: use larger nodes or a smaller workload"
    } else if text.contains("Kernel panic") {
        "its kernel panicked"
    } else {
        ""
    }
}

fn wait_for_end(child: &mut Child) {
    let patience = Instant::now() + Duration::from_secs(20);
    while Instant::now() < patience {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Unpacks the archive's files into `to`: plain names of allowed characters, each once, within the limits.
pub fn unpack(archive: &mut impl Read, to: &Dir, limits: Limits) -> std::io::Result<()> {
    unpack_by(archive, limits, |name| Ok(to.create(name)?))
}

/// Like `unpack`, with a writer from `create`, which must refuse a name that it has created before.
pub(crate) fn unpack_by<W: Write>(
    archive: &mut impl Read,
    limits: Limits,
    mut create: impl FnMut(&str) -> std::io::Result<W>,
) -> std::io::Result<()> {
    let mut from = Reader::new(archive, limits);
    while let Some(head) = from.next_head()? {
        let known = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let plain = !head.name.is_empty() && !head.name.starts_with('.') && head.name.chars().all(known);
        if !plain || !head.is_file() {
            let why = format!("the guest returned something that is not a file of a recording: {:?}", head.name);
            return Err(std::io::Error::other(why));
        }
        from.content(&mut create(&head.name)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use flatwater_safefs::Dir;

    use std::time::Duration;

    use super::{PREFIX, TAKEN, Waiting, WorkDirectory, remove_stale_in, unpack, waited_in};
    use crate::cpio::Writer;

    #[test]
    fn waiting_for_a_cpu_does_not_count_against_a_guest_within_limits() {
        assert_eq!(waited_in("1500 2000000000 7\n"), Some(Duration::from_secs(2)));
        assert_eq!(waited_in(""), None);
        let tasks = tempfile::tempdir().expect("a directory");
        let task = tasks.path().join("71");
        std::fs::create_dir(&task).expect("made");
        let mut waiting = Waiting { tasks: tasks.path().display().to_string(), known: Default::default() };
        let mut could_run = |waited_ms: u64| {
            std::fs::write(task.join("schedstat"), format!("5 {} 7\n", waited_ms * 1_000_000)).expect("written");
            waiting.could_run(Duration::from_millis(100)).as_millis()
        };
        assert_eq!(could_run(9_000), 100, "earlier waits are not part of this interval");
        assert_eq!(could_run(9_030), 70);
        assert_eq!(could_run(9_030), 100);
        assert_eq!(could_run(9_130), 20, "at least a fifth counts");
        assert_eq!(Waiting::of(u32::MAX).could_run(Duration::from_millis(100)).as_millis(), 100);
    }

    /// Process ids of another pid namespace do not exist in /proc: the directory of a running guest was removed.
    #[test]
    fn a_directory_in_use_stays_although_its_process_is_in_another_namespace() {
        let place = tempfile::tempdir().expect("a directory");
        let base = || Dir::open_own(place.path()).expect("ours");
        let guest = WorkDirectory::make_in(base()).expect("made");
        // The name that the same directory has if the process is in a namespace whose ids are not ours.
        let foreign = format!("{PREFIX}{}-0", u32::MAX);
        base().rename(&guest.name, &foreign).expect("renamed");
        guest.dir().create("disk").expect("created");
        remove_stale_in(&base());
        assert!(base().exists(&foreign) && guest.dir().exists("disk"), "it is in use");
        drop(guest);
        remove_stale_in(&base());
        assert!(!base().exists(&foreign), "its process has ended");
    }

    #[test]
    fn only_plain_files_with_unique_names_are_unpacked() {
        let archive = |fill: &dyn Fn(&mut Writer<Vec<u8>>)| {
            let mut writer = Writer::new(Vec::new());
            fill(&mut writer);
            writer.finish().expect("memory")
        };
        let take = |fill: &dyn Fn(&mut Writer<Vec<u8>>)| {
            let place = tempfile::tempdir().expect("a directory");
            let to = Dir::open_own(place.path()).expect("ours");
            unpack(&mut archive(fill).as_slice(), &to, TAKEN).map(|()| to.names().expect("listed"))
        };
        let good = take(&|writer| writer.file("header.json", 0o777, b"{}").expect("memory"));
        assert_eq!(good.expect("taken"), ["header.json"]);
        for name in ["../evil", "a/b", ".hidden", "", "\u{1b}[2J", "\u{202e}x"] {
            assert!(take(&|writer| writer.file(name, 0o644, b"x").expect("memory")).is_err(), "{name:?}");
        }
        assert!(take(&|writer| writer.symlink("link", "/etc/passwd").expect("memory")).is_err());
        let twice = |writer: &mut Writer<Vec<u8>>| {
            writer.file("a", 0o644, b"x").expect("memory");
            writer.file("a", 0o644, b"y").expect("memory");
        };
        assert!(take(&twice).is_err());
    }
}
