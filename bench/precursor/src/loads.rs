//! What runs beside the writer.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;

/// What the writer has to live with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Condition {
    /// Nothing.
    Idle,
    /// A neighbour in the same cgroup, at its limit, dirties pages in a stream.
    CgroupDirty,
    /// A neighbour in the same cgroup, at its limit, reads a file larger than the limit.
    CgroupRead,
    /// Two neighbours append 4 KiB and fsync, without pause.
    Fsync,
    /// A device of 4 MiB/s at its dirty limit, four writers.
    SlowDevice,
    /// Eight neighbours write 1 MiB at a time.
    Bulk,
    /// The writer's process forks and execs without pause.
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

    /// The neighbours, one process each.
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

/// A neighbour's occupation.
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

/// Largest file of a load, bytes: loads go round in it, so that no disk fills.
const FILE_BYTES: u64 = 192 << 20;

/// Runs until killed.
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

/// Forks and execs from the writer's own process until stopped.
pub fn fork_until(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let mut command = Command::new("/bin/true");
        // A hook makes the standard library fork instead of posix_spawn (vfork), which copies no page tables.
        // SAFETY: the hook does nothing.
        unsafe { std::os::unix::process::CommandExt::pre_exec(&mut command, || Ok(())) };
        let _ = command.status();
    }
}
