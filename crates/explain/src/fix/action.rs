//! What a fix changes, independent of the machine: an action, its target and its value.

use std::fmt;

use flatwater_recording::knob::Key;

use crate::aggressor::Aggressor;

/// What a fix changes. Two fixes with the same action are the same fix, except those without one ([`Action::Advice`]).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// A change that only the fix's text describes: of a program's code, of a kernel, of a machine.
    Advice,
    /// Sets a knob; the value is in the kernel's spelling.
    Set { key: Key, value: String },
    /// Limits what a party uses of a resource.
    Limit { party: Party, resource: Resource },
    /// Moves a party to a new memory cgroup.
    OwnMemory { party: Party },
    /// A party changes what it does, or where.
    Change { party: Party, change: Change },
}

/// A process outside the target, or all programs of a cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Party {
    pub program: String,
    pub pids: Vec<u32>,
    pub cgroup: Option<String>,
    /// Whether the cgroup contains the target as well, so that a limit on it would delay the target.
    pub shares_cgroup: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resource {
    /// What it writes to the disk.
    WriteRate { disk: Option<String>, bytes_per_s: u64 },
    /// Half of the memory that its cgroup uses.
    Memory,
    /// A smaller share of busy CPUs.
    Cpu,
}

/// A change that the party's owner makes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// Its files go to another device, because a journal's commit writes the data of all processes.
    DeviceForData,
    /// Its files go to another device, because a journal's commit writes the inodes of all processes.
    DeviceForInodes,
    /// Its files go to another device, because file systems of one device share its queue.
    DeviceForQueue { disk: Option<String> },
    /// It writes with O_DIRECT, or starts writeback itself.
    DirectWrites,
    /// It leaves the page cache alone.
    KeepPageCache,
    /// It holds locks for a shorter time.
    ShortLocks,
    /// It ends the wait sooner.
    ShortRuns,
}

impl Party {
    pub(crate) fn of(aggressor: &Aggressor) -> Party {
        Party {
            program: aggressor.program.clone(),
            pids: aggressor.pids.clone(),
            cgroup: aggressor.cgroup.clone(),
            shares_cgroup: aggressor.in_own_cgroup,
        }
    }

    /// The cgroup that contains nothing but this party; `None` if a limit needs a new one.
    pub(crate) fn own_cgroup(&self) -> Option<&str> {
        self.cgroup.as_deref().filter(|path| *path != "/" && !self.shares_cgroup)
    }

    /// The cgroup that contains the target as well.
    pub(crate) fn shared_cgroup(&self) -> Option<&str> {
        self.cgroup.as_deref().filter(|path| *path != "/" && self.shares_cgroup)
    }
}

/// `dd (pid 812, cgroup /jobs/backup)`.
impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pids = match self.pids.as_slice() {
            [] => None,
            [pid] => Some(format!("pid {pid}")),
            pids => Some(format!("{} processes", pids.len())),
        };
        let cgroup = self.cgroup.as_ref().map(|path| format!("cgroup {path}"));
        let about: Vec<String> = [pids, cgroup].into_iter().flatten().collect();
        f.write_str(&self.program)?;
        if about.is_empty() { Ok(()) } else { write!(f, " ({})", about.join(", ")) }
    }
}
