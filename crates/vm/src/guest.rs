//! The guest's side: this process is process 1 of a machine without other programs.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, mount};

use super::Job;
use super::arch::Arch;
use super::cpio::Writer;
use super::initramfs::JOB_PATH;

/// Mount point of the guest's new disk; `OUT` is where the recording is written before it is returned.
pub const WORK: &str = "/work";
pub const OUT: &str = "/out/recording";
/// Serial numbers of the guest's disks. Device names are not reliable: either disk can become nvme0n1.
pub const WORK_DISK: &str = "fw0";
pub const OUT_DISK: &str = "fw1";
/// How long to wait for a disk: drivers find their devices while the guest already runs.
const DISK_PATIENCE: Duration = Duration::from_secs(10);

/// Messages between guest and host, one line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    Booted,
    /// The measured part begins.
    Working,
    Message(String),
    Done,
    Failed(String),
}

impl Line {
    #[must_use]
    pub fn parse(text: &str) -> Option<Line> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        Some(match word {
            "@booted" => Line::Booted,
            "@working" => Line::Working,
            "@message" => Line::Message(rest.to_owned()),
            "@done" => Line::Done,
            "@failed" => Line::Failed(rest.to_owned()),
            _ => return None,
        })
    }

    /// The line in the form in which it is sent.
    #[must_use]
    pub fn text(&self) -> String {
        let one_line = |text: &str| text.replace(['\n', '\r'], "; ");
        match self {
            Line::Booted => "@booted".to_owned(),
            Line::Working => "@working".to_owned(),
            Line::Message(text) => format!("@message {}", one_line(text)),
            Line::Done => "@done".to_owned(),
            Line::Failed(why) => format!("@failed {}", one_line(why)),
        }
    }
}

/// Whether this process is `/init` of a guest: process 1 with this name and a job file.
#[must_use]
pub fn is_guest() -> bool {
    std::process::id() == 1
        && std::env::args().next().is_some_and(|name| name == "/init")
        && Path::new(JOB_PATH).exists()
}

/// The serial port to the host.
#[derive(Debug)]
pub struct Host(File);

impl Host {
    pub fn tell(&mut self, line: &Line) {
        // The host notices a line that cannot be written as silence.
        let _ = writeln!(self.0, "{}", line.text());
    }
}

/// Mounts the kernel's file systems, loads the modules and mounts the new disk. Returns the job.
pub fn prepare() -> io::Result<(Job, Host)> {
    let place = |source: &str, to: &str, kind: &str| -> io::Result<()> {
        fs::create_dir_all(to)?;
        let no_data: Option<&std::ffi::CStr> = None;
        mount(source, to, kind, MountFlags::empty(), no_data).map_err(io::Error::from)
    };
    place("proc", "/proc", "proc")?;
    place("sysfs", "/sys", "sysfs")?;
    place("devtmpfs", "/dev", "devtmpfs")?;
    let mut host = Host(OpenOptions::new().write(true).open(Arch::OWN.lines_device())?);
    host.tell(&Line::Booted);
    // Each missing file system costs one kind of evidence, which the recording then lists as a gap.
    for (source, to, kind) in [
        ("debugfs", "/sys/kernel/debug", "debugfs"),
        ("tracefs", "/sys/kernel/tracing", "tracefs"),
        ("cgroup2", "/sys/fs/cgroup", "cgroup2"),
        ("bpf", "/sys/fs/bpf", "bpf"),
        // The precursor's ring outlives its process only in shared memory.
        ("tmpfs", "/dev/shm", "tmpfs"),
    ] {
        if let Err(error) = place(source, to, kind) {
            host.tell(&Line::Message(format!("no {kind} in this guest: {error}")));
        }
    }
    let _ = fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory +io +cpu");
    let job: Job = serde_json::from_slice(&fs::read(JOB_PATH)?).map_err(io::Error::other)?;
    for module in &job.modules {
        load_module(module)?;
    }
    let disk = disk(Path::new("/sys/block"), WORK_DISK)?;
    place(&disk.display().to_string(), WORK, &job.file_system)
        .map_err(|error| io::Error::other(format!("mount {} on {WORK}: {error}", job.file_system)))?;
    fs::create_dir_all(OUT)?;
    Ok((job, host))
}

/// Waits for the disk with this serial number; returns its device file.
fn disk(blocks: &Path, serial: &str) -> io::Result<PathBuf> {
    let patience = Instant::now() + DISK_PATIENCE;
    loop {
        if let Some(name) = with_serial(blocks, serial) {
            return Ok(Path::new("/dev").join(name));
        }
        if Instant::now() > patience {
            let names: Vec<String> = names_in(blocks);
            return Err(io::Error::other(format!(
                "no disk with the serial number {serial} (disks: {}): this kernel has no NVMe driver, or has the driver as a \
                 module that was not found; use a kernel with lib/modules/RELEASE next to its image",
                if names.is_empty() { "none".to_owned() } else { names.join(", ") }
            )));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// The disk with this serial number. The kernel pads serial numbers with spaces. A path of a multipath disk (nvme1c1n1:
/// each controller of QEMU 10 has its own subsystem) has the same serial number, but is hidden and has no device file.
fn with_serial(blocks: &Path, serial: &str) -> Option<String> {
    let attribute = |name: &String, of: &str| fs::read_to_string(blocks.join(name).join(of)).unwrap_or_default();
    let has =
        |name: &String| attribute(name, "device/serial").trim() == serial && attribute(name, "hidden").trim() != "1";
    names_in(blocks).into_iter().find(has)
}

/// Runs the job's command in the work directory and sends its output to the host line by line.
pub fn perform_command(command: &[String], host: &mut Host) -> io::Result<()> {
    let (program, arguments) = command.split_first().ok_or_else(|| io::Error::other("the command is empty"))?;
    let (from, to) = io::pipe()?;
    // flatwater by name, for scripts: under another name than /init, and not as process 1, it is the ordinary command.
    fs::create_dir_all("/bin")?;
    match std::os::unix::fs::symlink("/init", "/bin/flatwater") {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let mut child = Command::new(program)
        .args(arguments)
        .current_dir(WORK)
        .env("PATH", "/bin:/sbin:/usr/bin:/usr/sbin")
        .env("HOME", "/root")
        .env("OUT", OUT)
        .stdin(Stdio::null())
        .stderr(to.try_clone()?)
        .stdout(to)
        .spawn()
        .map_err(|error| io::Error::other(format!("{program}: {error}")))?;
    super::console::each_line(&mut io::BufReader::new(from), 4096, |line| {
        host.tell(&Line::Message(String::from_utf8_lossy(line).into_owned()));
        true
    })?;
    let status = child.wait()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{program} ended with {status}"))) }
}

fn load_module(path: &str) -> io::Result<()> {
    let module = File::open(path)?;
    match rustix::system::finit_module(&module, c"", 0) {
        Err(rustix::io::Errno::EXIST) => Ok(()),
        loaded => loaded.map_err(|error| io::Error::other(format!("load {path}: {error}"))),
    }
}

/// Writes the recording as an archive to the second disk.
pub fn hand_back() -> io::Result<()> {
    let disk = OpenOptions::new().write(true).open(disk(Path::new("/sys/block"), OUT_DISK)?)?;
    let mut archive = Writer::new(BufWriter::new(disk));
    for entry in fs::read_dir(OUT)? {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if path.is_file() {
            archive.file(&name, 0o644, &fs::read(&path)?)?;
        }
    }
    let disk = archive.finish()?.into_inner().map_err(|error| io::Error::other(error.to_string()))?;
    disk.sync_all()
}

/// Switches the machine off.
pub fn power_off() -> ! {
    rustix::fs::sync();
    let _ = rustix::system::reboot(rustix::system::RebootCommand::PowerOff);
    loop {
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::{Line, with_serial};

    /// Fault 2 of the kernel matrix: nvme0n1 and nvme1n1 swap at random.
    #[test]
    fn a_disk_is_found_by_its_serial_number_under_any_name() {
        let blocks = tempfile::tempdir().expect("a directory");
        for (name, serial) in [("nvme0n1", Some("fw1                 \n")), ("nvme1n1", Some("fw0\n")), ("ram0", None)]
        {
            let device = blocks.path().join(name).join("device");
            std::fs::create_dir_all(&device).expect("made");
            if let Some(serial) = serial {
                std::fs::write(device.join("serial"), serial).expect("written");
            }
        }
        assert_eq!(with_serial(blocks.path(), "fw0").as_deref(), Some("nvme1n1"));
        assert_eq!(with_serial(blocks.path(), "fw1").as_deref(), Some("nvme0n1"));
        assert_eq!(with_serial(blocks.path(), "fw2"), None);
    }

    #[test]
    fn a_hidden_multipath_device_is_not_the_disk() {
        let blocks = tempfile::tempdir().expect("a directory");
        for (name, hidden) in [("nvme1c1n1", "1\n"), ("nvme1n1", "0\n")] {
            let block = blocks.path().join(name);
            std::fs::create_dir_all(block.join("device")).expect("made");
            std::fs::write(block.join("device/serial"), "fw1\n").expect("written");
            std::fs::write(block.join("hidden"), hidden).expect("written");
        }
        assert_eq!(with_serial(blocks.path(), "fw1").as_deref(), Some("nvme1n1"));
        std::fs::remove_dir_all(blocks.path().join("nvme1n1")).expect("removed");
        assert_eq!(with_serial(blocks.path(), "fw1"), None);
    }

    #[test]
    fn lines_parse_as_they_were_sent() {
        let lines =
            [Line::Booted, Line::Working, Line::Message("a b".into()), Line::Done, Line::Failed("no: such".into())];
        for line in lines {
            assert_eq!(Line::parse(&line.text()), Some(line));
        }
        assert_eq!(Line::parse("[    1.2] some kernel line"), None);
        assert_eq!(Line::parse(&Line::Failed("a\nb".into()).text()), Some(Line::Failed("a; b".into())));
    }
}
