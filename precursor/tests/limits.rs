//! Locked memory on the real kernel: several appenders of one process at full speed stay within the shares of
//! RLIMIT_MEMLOCK and of the memory cgroup's limit.
//!
//! The child is this test binary (`child` below), started with the limit in force.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use precursor::{Mode, Options, limits};

const MIB: u64 = 1 << 20;
/// Besides windows and rings, each appender locks two pages: its live block and the writer's fields.
const SMALL_BYTES: u64 = 2 * 4096;
const APPENDERS: u64 = 3;

fn locked_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmLck:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Prints the most bytes locked at any time, and the smallest limit as the library reads it.
#[test]
fn child() {
    let Some(dir) = std::env::var_os("PRECURSOR_LIMITS_DIR").map(PathBuf::from) else { return };
    let mode = Mode::from_name(&std::env::var("PRECURSOR_LIMITS_MODE").unwrap()).unwrap();
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let open = |i| Options::new(dir.join(format!("log-{i}"))).mode(mode).window_bytes(64 << 10).open();
    let mut logs: Vec<_> = (0..APPENDERS).map(|i| open(i).unwrap()).collect();
    let mut most = locked_bytes();
    for round in 0..2000 {
        for log in &mut logs {
            for _ in 0..16 {
                log.append(&[round as u8; 1000]).unwrap();
            }
        }
        most = most.max(locked_bytes());
    }
    let held: u64 = logs.iter().map(|log| log.stats().memory_bytes).sum();
    for log in logs {
        log.close().unwrap();
    }
    let limits = limits();
    println!("locked {most} held {held} limit {}", limits.memlock_bytes.or(limits.cgroup_bytes).unwrap_or(0));
}

struct Outcome {
    locked: u64,
    limit: u64,
}

/// Runs the child. `prepare` gets its process ID before it opens a file.
fn outcome(mode: Mode, memlock: Option<u64>, prepare: impl FnOnce(u32)) -> Outcome {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "limits::child", "--nocapture", "--test-threads=1"]);
    command.env("PRECURSOR_LIMITS_DIR", dir.path()).env("PRECURSOR_LIMITS_MODE", mode.name());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    // SAFETY: prctl and setrlimit take plain numbers and a local, and are async-signal-safe, as needed between fork and
    // exec.
    unsafe {
        command.pre_exec(move || {
            // Lowering the limit needs no privilege.
            if let Some(bytes) = memlock {
                const CAP_IPC_LOCK: libc::c_ulong = 14;
                libc::prctl(libc::PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0);
                let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
                libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit);
            }
            Ok(())
        })
    };
    let mut child = command.spawn().unwrap();
    prepare(child.id());
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"go\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find(|l| l.contains("locked ")).unwrap_or_else(|| panic!("{text}"));
    let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [locked, held, limit] = numbers[..] else { panic!("{line}") };
    println!("{}: {line}", mode.name());
    assert!(output.status.success() && locked > 0 && locked <= held + APPENDERS * SMALL_BYTES, "{line}");
    Outcome { locked, limit }
}

#[test]
fn locked_memory_stays_within_half_of_rlimit_memlock() {
    for mode in [Mode::Ring, Mode::Window] {
        let got = outcome(mode, Some(4 * MIB), |_| ());
        assert_eq!(got.limit, 4 * MIB, "the child still has CAP_IPC_LOCK");
        assert!(got.locked <= 2 * MIB + APPENDERS * SMALL_BYTES, "{mode:?}: {} locked", got.locked);
    }
}

struct Group(PathBuf);

impl Group {
    fn create(limit: u64) -> std::io::Result<Group> {
        let v1 = Path::new("/sys/fs/cgroup/memory");
        let (root, file) = match v1.is_dir() {
            true => (v1, "memory.limit_in_bytes"),
            false => (Path::new("/sys/fs/cgroup"), "memory.max"),
        };
        let group = Group(root.join(format!("precursor-limits-{}", std::process::id())));
        std::fs::create_dir(&group.0)?;
        std::fs::write(group.0.join(file), limit.to_string())?;
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The processes have ended, but the kernel may need a moment until the group is empty.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

#[test]
fn locked_memory_stays_within_a_quarter_of_the_cgroup() {
    let group = match Group::create(64 * MIB) {
        Ok(group) => group,
        Err(e) => return needs::skip(needs::Need::Memcg, "limits", e),
    };
    for mode in [Mode::Ring, Mode::Window] {
        let got = outcome(mode, None, |pid| std::fs::write(group.0.join("cgroup.procs"), pid.to_string()).unwrap());
        assert_eq!(got.limit, 64 * MIB);
        assert!(got.locked <= 16 * MIB + APPENDERS * SMALL_BYTES, "{mode:?}: {} locked", got.locked);
    }
}
