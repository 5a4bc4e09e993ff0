//! The requirements of tests, and what happens on machines that do not meet them.
//!
//! A developer without root wants a green run, so a test with an unmet requirement prints `SKIPPED` and returns. In CI
//! that would let a broken tracer pass. `FLATWATER_REQUIRE=bpf,memcg,loop` turns a skip for one of those needs into a
//! failure; `FLATWATER_REQUIRE=all` does so for every need. `.ci/run` sets it.

mod started;

use std::ffi::OsStr;
use std::fmt;
use std::process::Command;
use std::time::Duration;

pub use started::Started;

/// The CPU time of this process so far. A test that bounds work compares this, not the clock, since the machine may be busy.
#[must_use]
pub fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let (seconds, nanoseconds) = (u64::try_from(now.tv_sec), u32::try_from(now.tv_nsec));
    Duration::new(seconds.unwrap_or_default(), nanoseconds.unwrap_or_default())
}

/// One requirement of a test that some machines do not meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Effective user 0, to change settings and to become another user.
    Root,
    /// Loadable kernel hooks: BTF, CAP_BPF and a compiled BPF object.
    Bpf,
    /// A memory controller, cgroup v1 or v2, in which a group can be created.
    Memcg,
    /// A CPU cgroup with a quota.
    Cpucg,
    /// Loop devices, mkfs, and a disk that can be slowed down or made to fail.
    Loop,
    /// QEMU and a kernel package to boot in it.
    Qemu,
    /// fio with io_uring and libaio, to compare its latencies with ours.
    Fio,
    /// Chromium and node, for tests of the HTML page.
    Chromium,
    /// Prometheus and promtool, installed by `tools/setup.sh test`.
    Prometheus,
    /// An S3 server, installed below target/ by `tools/setup.sh test`.
    S3,
    /// tmux, the terminal in which the tests of `top` run.
    Tmux,
    /// systemd-analyze, to check the units; systemd itself need not run.
    Systemd,
    /// A JDK 17 and Maven, for the precursor's library in Java.
    Java,
    /// mmdebstrap, rpm and rpmbuild, to install packages in separate root directories.
    Packages,
    /// An idle machine: if a neighbour takes all CPU time, the stall under test does not happen.
    Idle,
    /// `../shared`, a directory that exists only beside the team's checkouts.
    Shared,
}

impl Need {
    /// Every need, in the order in which messages list them.
    pub const ALL: [Need; 16] = [
        Need::Root,
        Need::Bpf,
        Need::Memcg,
        Need::Cpucg,
        Need::Loop,
        Need::Qemu,
        Need::Fio,
        Need::Chromium,
        Need::Prometheus,
        Need::S3,
        Need::Tmux,
        Need::Systemd,
        Need::Java,
        Need::Packages,
        Need::Idle,
        Need::Shared,
    ];

    /// The name of the need in `FLATWATER_REQUIRE`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Need::Root => "root",
            Need::Bpf => "bpf",
            Need::Memcg => "memcg",
            Need::Cpucg => "cpucg",
            Need::Loop => "loop",
            Need::Qemu => "qemu",
            Need::Fio => "fio",
            Need::Chromium => "chromium",
            Need::Prometheus => "prometheus",
            Need::S3 => "s3",
            Need::Tmux => "tmux",
            Need::Systemd => "systemd",
            Need::Java => "java",
            Need::Packages => "packages",
            Need::Idle => "idle",
            Need::Shared => "shared",
        }
    }
}

/// Reports that a test cannot run here; fails it if `FLATWATER_REQUIRE` names the need.
///
/// # Panics
/// If the need is required, or if `FLATWATER_REQUIRE` contains an unknown word: a misspelt need would silently require
/// nothing.
pub fn skip(need: Need, test: &str, why: impl fmt::Display) {
    let required = std::env::var("FLATWATER_REQUIRE").unwrap_or_default();
    match is_required(need, &required) {
        Err(word) => panic!("FLATWATER_REQUIRE: '{word}' is not a need; known: all, {}", known()),
        Ok(true) => panic!("{test} needs {} and FLATWATER_REQUIRE forbids skipping it: {why}", need.name()),
        Ok(false) => eprintln!("\n*** SKIPPED {test}: needs {}: {why}\n", need.name()),
    }
}

fn known() -> String {
    Need::ALL.map(Need::name).join(", ")
}

/// Whether the list names this need.
///
/// # Errors
/// The first unknown word.
fn is_required(need: Need, list: &str) -> Result<bool, String> {
    let words = list.split(',').map(str::trim).filter(|word| !word.is_empty());
    let mut required = false;
    for word in words {
        match word {
            "all" => required = true,
            _ if word == need.name() => required = true,
            _ if Need::ALL.iter().any(|known| known.name() == word) => {}
            _ => return Err(word.to_owned()),
        }
    }
    Ok(required)
}

/// Uid and gid of the unprivileged user of the exploits: the overflow ids of the kernel.
pub const UNPRIVILEGED_ID: u32 = 65_534;

/// Runs `work` as `UNPRIVILEGED_ID` on a new thread. Linux credentials belong to a thread, and its new threads inherit
/// them.
pub fn as_unprivileged<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    assert!(rustix::process::geteuid().is_root(), "these exploits are against root: run the tests as root");
    std::thread::scope(|threads| {
        let thread = threads.spawn(|| {
            rustix::thread::set_thread_groups(&[]).expect("root");
            rustix::thread::set_thread_gid(rustix::fs::Gid::from_raw(UNPRIVILEGED_ID)).expect("root");
            rustix::thread::set_thread_uid(rustix::fs::Uid::from_raw(UNPRIVILEGED_ID)).expect("root");
            work()
        });
        thread.join().expect("the other user's part")
    })
}

/// A command that runs as `UNPRIVILEGED_ID`, without other groups. `program` is an absolute path or found in `PATH`.
///
/// # Panics
/// Without root.
#[must_use]
pub fn unprivileged_command(program: impl AsRef<OsStr>) -> Command {
    use std::os::unix::process::CommandExt;
    assert!(rustix::process::geteuid().is_root(), "run the tests as root: only root becomes another user");
    let mut command = Command::new(program);
    // Clears the supplementary groups, too.
    command.uid(UNPRIVILEGED_ID).gid(UNPRIVILEGED_ID);
    command
}

#[cfg(test)]
mod tests {
    use super::{Need, is_required, skip};

    #[test]
    fn a_need_is_required_by_its_name_or_by_all() {
        assert_eq!(is_required(Need::Bpf, "memcg, bpf"), Ok(true));
        assert_eq!(is_required(Need::Bpf, "memcg"), Ok(false));
        assert_eq!(is_required(Need::Qemu, "all"), Ok(true));
        assert_eq!(is_required(Need::Qemu, ""), Ok(false));
    }

    #[test]
    fn a_misspelt_need_is_refused() {
        assert_eq!(is_required(Need::Bpf, "bfp"), Err("bfp".to_owned()));
    }

    #[test]
    fn a_required_need_fails_the_test_that_would_skip() {
        // In a separate process, because all tests of this one share the environment.
        let own = std::env::current_exe().expect("the test's own binary");
        let run = |value: &str| {
            let mut command = std::process::Command::new(&own);
            command.args(["--exact", "tests::skips_for_want_of_bpf", "--ignored"]).env("FLATWATER_REQUIRE", value);
            command.output().expect("the test's own binary runs").status.success()
        };
        assert!(run("memcg"));
        assert!(!run("memcg,bpf"));
    }

    #[test]
    #[ignore = "run by a_required_need_fails_the_test_that_would_skip"]
    fn skips_for_want_of_bpf() {
        skip(Need::Bpf, "skips_for_want_of_bpf", "this is the test of skipping");
    }
}
