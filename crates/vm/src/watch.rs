//! One guest from boot to hand-back: its lines, its watchdog, its end, and nothing left behind.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::cpio::read_entry;
use super::guest::Line;
use super::initramfs::Prepared;
use super::qemu::{self, Machine};
use super::{VmError, VmOptions, VmReport};

/// Between two looks at what the guest said.
const LOOK: Duration = Duration::from_millis(200);
/// Under KVM a guest's first line comes within two seconds. Where the host's KVM is only half there, a guest may
/// hang before its first instruction: emulation shall not have to wait long for its turn.
const KVM_BOOT_MAX: Duration = Duration::from_secs(12);
/// Largest file of a recording that is taken from a guest.
const FILE_BYTES_MAX: usize = 1 << 30;

/// A directory for one guest's files, removed on drop.
#[derive(Debug)]
pub struct WorkDirectory(PathBuf);

const PREFIX: &str = "flatwater-vm-";

fn base() -> PathBuf {
    // Not /tmp, which is memory on many machines: a guest's disk can be large.
    PathBuf::from("/var/tmp")
}

impl WorkDirectory {
    pub fn make() -> Result<WorkDirectory, VmError> {
        let path = base().join(format!("{PREFIX}{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).map_err(VmError::prepare(format!("the directory {}", path.display())))?;
        Ok(WorkDirectory(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for WorkDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes what a run that was killed left: directories of processes that are no more. Their guests ended
/// with them (parent-death signal).
pub fn remove_stale() {
    for entry in fs::read_dir(base()).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(pid) = name.strip_prefix(PREFIX).and_then(|pid| pid.parse::<u32>().ok()) else { continue };
        if !Path::new(&format!("/proc/{pid}")).exists() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// QEMU, ended when dropped.
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
    said: &mut dyn FnMut(&str),
) -> Result<VmReport, VmError> {
    let started = Instant::now();
    let mut command = machine.command(prepared, accelerator);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // SAFETY: the closure makes one system call between fork and exec and touches no memory of the parent.
    unsafe {
        command.pre_exec(|| {
            let kill = Some(rustix::process::Signal::KILL);
            rustix::process::set_parent_process_death_signal(kill).map_err(std::io::Error::from)
        });
    }
    let child = command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => VmError::NoQemu { program: qemu::PROGRAM },
        _ => VmError::Prepare { what: qemu::PROGRAM.to_owned(), source: error },
    })?;
    let mut guest = Guest(child);
    let lines = read_lines(&mut guest.0);
    let mut report = VmReport { release: String::new(), accelerator: "", boot_ns: 0, first_write_ns: 0 };
    let patience = Duration::from_nanos(options.silence_ns_max);
    let silence_max = if accelerator == "kvm" { patience.min(KVM_BOOT_MAX) } else { patience };
    let outcome = follow(&lines, started, silence_max, options, &mut report, said);
    let console = |what: String| {
        let text = String::from_utf8_lossy(&fs::read(&prepared.console).unwrap_or_default()).into_owned();
        let _ = fs::write(options.out.join("console.log"), &text);
        VmError::Guest { what, console: last_lines(&text, 25) }
    };
    match outcome {
        Follow::Done => {}
        Follow::Failed(why) => return Err(VmError::Scenario { why }),
        Follow::Stopped => return Err(VmError::Stopped),
        Follow::Silent => return Err(console(format!("was silent for {} s and was ended", silence_max.as_secs()))),
        Follow::Late => return Err(console("did not finish in the time allowed and was ended".to_owned())),
        Follow::Ended => {
            let mut errors = String::new();
            let _ = guest.0.stderr.take().map(|stderr| stderr.take(4096).read_to_string(&mut errors));
            let why = [death(&prepared.console), errors.trim()].map(str::to_owned);
            let why = why.into_iter().filter(|words| !words.is_empty()).collect::<Vec<String>>().join("; ");
            return Err(console(format!("ended before it was done ({why})")));
        }
    }
    wait_for_end(&mut guest.0);
    if options.keep_console {
        let _ = fs::copy(&prepared.console, options.out.join("console.log"));
    }
    unpack(&prepared.out, &options.out).map_err(VmError::prepare("the recording that the guest handed back"))?;
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
    silence_max: Duration,
    options: &VmOptions,
    report: &mut VmReport,
    said: &mut dyn FnMut(&str),
) -> Follow {
    // Emulated time may run at a tenth of real time when the host is busy.
    let patience = Duration::from_nanos(options.duration_ns) * 10 + Duration::from_secs(600);
    let (mut silent, mut passed, mut looked) = (Duration::ZERO, Duration::ZERO, Instant::now());
    let mut silence_max = silence_max;
    loop {
        if options.stop.load(Ordering::Relaxed) {
            return Follow::Stopped;
        }
        let since_start = || u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let line = lines.recv_timeout(LOOK);
        // A stretch in which we did not run either (stopped, frozen, a host asleep) is not held against the guest.
        let stretch = looked.elapsed().min(LOOK * 5);
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
                    Line::Said(text) => said(&text),
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

fn read_lines(child: &mut Child) -> Receiver<Line> {
    let (send, receive) = channel();
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
                let text = String::from_utf8_lossy(&line).into_owned();
                if let Some(line) = Line::parse(text.trim())
                    && send.send(line).is_err()
                {
                    return;
                }
            }
        });
    }
    receive
}

/// The end of the console, below the line with which a panic began.
fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(count);
    let panic = lines[..from].iter().find(|line| line.contains("Kernel panic"));
    panic.into_iter().chain(&lines[from..]).copied().collect::<Vec<&str>>().join("\n")
}

/// In one word what killed the guest, as its console tells.
fn death(console: &Path) -> &'static str {
    let text = String::from_utf8_lossy(&fs::read(console).unwrap_or_default()).into_owned();
    // The last is the panic of a machine on which only init is left to kill (mm/oom_kill.c: out_of_memory).
    if ["Out of memory", "out of memory", "deadlocked on memory"].iter().any(|words| text.contains(words)) {
        "it ran out of memory: give its nodes more, or the workload less"
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

/// Writes the archive's files under `to`; names that would leave it are refused.
fn unpack(archive: &Path, to: &Path) -> std::io::Result<()> {
    let mut from = BufReader::new(fs::File::open(archive)?);
    while let Some(entry) = read_entry(&mut from, FILE_BYTES_MAX)? {
        let plain = !entry.name.is_empty() && !entry.name.contains('/') && !entry.name.starts_with('.');
        if !plain {
            return Err(std::io::Error::other(format!("the guest handed back a file called '{}'", entry.name)));
        }
        fs::write(to.join(&entry.name), &entry.content)?;
    }
    Ok(())
}
