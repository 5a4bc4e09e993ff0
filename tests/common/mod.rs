//! Helpers that cause stalls and remove their resources when dropped, also after a panic.
//!
//! - `MemoryGroup`: a memory cgroup (v1 or v2) with a limit.
//! - `CpuGroup`: a CPU cgroup with a quota.
//! - `LoopDisk`: a file system on a loop device on a file; its speed can be limited.
//! - `Neighbour`: a process that loads the machine for a bounded time and ends with the test.
//! - `Victim`: a thread of the test whose operations are timed and traced.

pub mod exploit;
pub mod fixture;
pub mod groups;
pub mod loopdisk;
pub mod neighbour;
pub mod victim;

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Serializes the stalls of one test binary, because they disturb each other.
pub fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A new directory on the disk of the build (not a tmpfs), removed when dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory below target/");
        Scratch(path)
    }

    pub fn path(&self) -> &std::path::Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Writes the result of a measurement to `target/NAME` and prints the path.
pub fn write_result(name: &str, text: &str) {
    let folder = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target"));
    std::fs::create_dir_all(folder).expect("target/");
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    println!("written: target/{name}");
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs a tool. Returns its standard output, or its standard error if it fails.
pub fn tool(name: &str, arguments: &[&str]) -> Result<String, String> {
    let output =
        std::process::Command::new(name).args(arguments).output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    } else {
        Err(format!("{name} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
    }
}

/// Waits until the machine has few dirty pages. Above the global limits the kernel throttles every writer, and a test
/// of another stall would find that throttling instead.
///
/// Fails after 30 s.
pub fn wait_for_few_dirty_pages() -> Result<(), String> {
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        let vmstat = std::fs::read_to_string("/proc/vmstat").map_err(|error| error.to_string())?;
        let value = |name: &str| {
            let line = vmstat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|value| value.trim().parse::<u64>().ok()).unwrap_or(0)
        };
        let (held, limit) = (value("nr_dirty") + value("nr_writeback"), value("nr_dirty_background_threshold"));
        if held * 4 <= limit {
            return Ok(());
        }
        if std::time::Instant::now() > patience {
            return Err(format!("{held} dirty pages of other programs, the background limit is {limit}"));
        }
        std::thread::sleep(std::time::Duration::from_millis(250));
    }
}
