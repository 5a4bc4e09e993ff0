//! Loads that run beside the writer.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;

/// Condition under which the writer appends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Condition {
    /// No load.
    Idle,
    /// A neighbour in the same cgroup, which is at its limit, writes continuously.
    CgroupDirty,
    /// A neighbour in the same cgroup, which is at its limit, reads a file larger than the limit.
    CgroupRead,
    /// Two neighbours append 4 KiB and fsync in a loop.
    Fsync,
    /// A device of 4 MiB/s at its dirty limit, with four writers.
    SlowDevice,
    /// Eight neighbours write 1 MiB at a time.
    Bulk,
    /// The writer's process forks and execs in a loop.
    Fork,
}

impl Condition {
    pub fn all() -> Vec<Condition> {
        use clap::ValueEnum;
        Condition::value_variants().to_vec()
    }

    pub fn name(self) -> &'static str {
        match self {
            Condition::Idle => "idle",
            Condition::CgroupDirty => "cgroup-dirty",
            Condition::CgroupRead => "cgroup-read",
            Condition::Fsync => "fsync",
            Condition::SlowDevice => "slow-device",
            Condition::Bulk => "bulk",
            Condition::Fork => "fork",
        }
    }

    /// Kinds of the neighbours, one process each.
    pub fn neighbours(self) -> Vec<Kind> {
        match self {
            Condition::Idle | Condition::Fork => Vec::new(),
            Condition::CgroupDirty => vec![Kind::Dirty],
            Condition::CgroupRead => vec![Kind::Read],
            Condition::Fsync => vec![Kind::Fsync; 2],
            Condition::SlowDevice => vec![Kind::Dirty; 4],
            Condition::Bulk => vec![Kind::Dirty; 8],
        }
    }
}

/// What a neighbour does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    Dirty,
    Read,
    Fsync,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Dirty => "dirty",
            Kind::Read => "read",
            Kind::Fsync => "fsync",
        }
    }
}

/// Size of a load's file, bytes. Loads start over at its end, so that no disk fills.
const FILE_BYTES: u64 = 192 << 20;

/// Runs the load until killed.
pub fn run(dir: &Path, kind: Kind, number: u32) -> Result<()> {
    let path = dir.join(format!("load-{number}"));
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    let mib = vec![0x5a; 1 << 20];
    match kind {
        Kind::Dirty => loop {
            for at in (0..FILE_BYTES).step_by(mib.len()) {
                file.write_all_at(&mib, at)?;
            }
        },
        Kind::Read => {
            for at in (0..FILE_BYTES).step_by(mib.len()) {
                file.write_all_at(&mib, at)?;
            }
            file.sync_all()?;
            read_for_ever(&file)
        }
        Kind::Fsync => loop {
            for at in (0..FILE_BYTES).step_by(4096) {
                file.write_all_at(&mib[..4096], at)?;
                file.sync_data()?;
            }
        },
    }
}

fn read_for_ever(file: &File) -> Result<()> {
    let mut buffer = vec![0; 1 << 20];
    loop {
        use std::io::{Seek, SeekFrom};
        let mut file = file;
        file.seek(SeekFrom::Start(0))?;
        while file.read(&mut buffer)? > 0 {}
    }
}

/// Forks and execs from the writer's process until stopped.
pub fn fork_until(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let mut command = Command::new("/bin/true");
        // With a hook, the standard library calls fork, which copies page tables, instead of posix_spawn (vfork).
        // SAFETY: the hook makes no call, so it is safe between fork and exec.
        unsafe { std::os::unix::process::CommandExt::pre_exec(&mut command, || Ok(())) };
        let _ = command.status();
    }
}
