//! The guest's side: we are process 1 of a machine that has nothing but us.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use rustix::mount::{MountFlags, mount};

use super::Job;
use super::cpio::Writer;
use super::initramfs::JOB_PATH;

/// Where the guest's fresh disk is mounted, and where its recording is written before it is handed back.
pub const WORK: &str = "/work";
pub const OUT: &str = "/out/recording";
/// Lines to the host go to the second serial port: the first is the kernel's console.
const LINES_TO: &str = "/dev/ttyS1";

/// What guest and host say to each other: one line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    Booted,
    /// The measured part begins.
    Working,
    Said(String),
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
            "@said" => Line::Said(rest.to_owned()),
            "@done" => Line::Done,
            "@failed" => Line::Failed(rest.to_owned()),
            _ => return None,
        })
    }

    fn text(&self) -> String {
        let one_line = |text: &str| text.replace(['\n', '\r'], "; ");
        match self {
            Line::Booted => "@booted".to_owned(),
            Line::Working => "@working".to_owned(),
            Line::Said(text) => format!("@said {}", one_line(text)),
            Line::Done => "@done".to_owned(),
            Line::Failed(why) => format!("@failed {}", one_line(why)),
        }
    }
}

/// Are we `/init` of a guest? Nobody else is process 1 under that name with a job beside it.
#[must_use]
pub fn is_guest() -> bool {
    std::process::id() == 1
        && std::env::args().next().is_some_and(|name| name == "/init")
        && Path::new(JOB_PATH).exists()
}

/// The line to the host.
#[derive(Debug)]
pub struct Host(File);

impl Host {
    pub fn tell(&mut self, line: &Line) {
        // A line that cannot be written is noticed on the other side as silence.
        let _ = writeln!(self.0, "{}", line.text());
    }
}

/// Mounts what a kernel offers, loads the modules, mounts the fresh disk. Returns the job.
pub fn prepare() -> io::Result<(Job, Host)> {
    let place = |source: &str, to: &str, kind: &str| -> io::Result<()> {
        fs::create_dir_all(to)?;
        let no_data: Option<&std::ffi::CStr> = None;
        mount(source, to, kind, MountFlags::empty(), no_data).map_err(io::Error::from)
    };
    place("proc", "/proc", "proc")?;
    place("sysfs", "/sys", "sysfs")?;
    place("devtmpfs", "/dev", "devtmpfs")?;
    let mut host = Host(OpenOptions::new().write(true).open(LINES_TO)?);
    host.tell(&Line::Booted);
    // What is missing here costs one kind of evidence, which the recording then lists as a gap.
    for (source, to, kind) in [
        ("debugfs", "/sys/kernel/debug", "debugfs"),
        ("tracefs", "/sys/kernel/tracing", "tracefs"),
        ("cgroup2", "/sys/fs/cgroup", "cgroup2"),
        ("bpf", "/sys/fs/bpf", "bpf"),
        // The precursor's ring outlives its process only in shared memory.
        ("tmpfs", "/dev/shm", "tmpfs"),
    ] {
        if let Err(error) = place(source, to, kind) {
            host.tell(&Line::Said(format!("no {kind} in this guest: {error}")));
        }
    }
    let _ = fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory +io +cpu");
    let job: Job = serde_json::from_slice(&fs::read(JOB_PATH)?).map_err(io::Error::other)?;
    for module in &job.modules {
        load_module(module)?;
    }
    place("/dev/nvme0n1", WORK, &job.file_system)
        .map_err(|error| io::Error::other(format!("mount {} on {WORK}: {error}", job.file_system)))?;
    fs::create_dir_all(OUT)?;
    Ok((job, host))
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
    let disk = OpenOptions::new().write(true).open("/dev/nvme1n1")?;
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

/// Ends the machine.
pub fn power_off() -> ! {
    rustix::fs::sync();
    let _ = rustix::system::reboot(rustix::system::RebootCommand::PowerOff);
    loop {
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::Line;

    #[test]
    fn lines_survive_the_serial_port() {
        let lines =
            [Line::Booted, Line::Working, Line::Said("a b".into()), Line::Done, Line::Failed("no: such".into())];
        for line in lines {
            assert_eq!(Line::parse(&line.text()), Some(line));
        }
        assert_eq!(Line::parse("[    1.2] some kernel line"), None);
        assert_eq!(Line::parse(&Line::Failed("a\nb".into()).text()), Some(Line::Failed("a; b".into())));
    }
}
