//! Chooses the mode for this machine, with reasons. Pure: [`crate::probe`] collects the facts.

use crate::budget::{Bound, Budget, Limits, Shares, budget};
use crate::lasting::Removal;
use crate::mode::Mode;

/// File systems, by the properties that decide between modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystem {
    /// ext4, xfs: a rewrite goes to the preallocated blocks.
    InPlace,
    /// btrfs, bcachefs, zfs, f2fs: a rewrite takes a new block, so preallocation guarantees nothing.
    CopyOnWrite,
    /// NFS, SMB, FUSE, 9p, Ceph: the server decides when a page is ready.
    Remote,
    /// tmpfs, ramfs: no disk.
    Memory,
    /// Any other, with its magic number (`statfs.f_type`).
    Unknown(u64),
}

/// Properties of the machine and of the file's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Kernel release as (major, minor).
    pub kernel: (u32, u32),
    /// Kind of the file system that holds the file.
    pub file_system: FileSystem,
    /// `fallocate` gave real blocks in the file's directory.
    pub fallocate: bool,
    /// A shared-memory file can be created in `/dev/shm` (or the chosen directory).
    pub shm: bool,
    /// What may remove that file while the machine runs.
    pub removal: Option<Removal>,
    /// Swap is on, so unlocked memory may be swapped out.
    pub swap: bool,
    /// Limits on memory.
    pub limits: Limits,
}

/// Why a mode is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModeRefusal {
    /// Readers want each byte at once, but a ring reaches the file later.
    #[error("readers must see each byte in the file at once, and a ring reaches the file later")]
    ReadAtOnce,
    /// The ring would not survive the process.
    #[error("no shared-memory file can be created, so the ring would be lost with the process")]
    NoSharedMemory,
    /// Shared memory that a dead process leaves may be removed before recovery.
    #[error("{sentence}; or allow it with process_death_may_lose", sentence = .0.sentence())]
    Removable(Removal),
    /// Only shared memory says where the data of a preallocated, unframed file ends, and it may be lost.
    #[error(
        "no shared memory outlives the process, so its death loses the end of an unframed file; frame the records, \
         or allow it with process_death_may_lose"
    )]
    Unframed,
    /// The ring's pages may be swapped out, because this limit is too small to lock them.
    #[error("its memory cannot be locked ({bound} is too small), and swap is on", bound = .0.name())]
    MaySwap(Bound),
    /// The unlocked pages of a window may be evicted, because this limit is too small to lock them.
    #[error("{bound} is too small to lock a window, and unlocked it may be evicted", bound = .0.name())]
    MayEvict(Bound),
    /// A window serves one writer.
    #[error("many producers need a ring")]
    ManyProducers,
    /// The mode has no ring, which many producers need.
    #[error("many producers need a ring; {0} has none")]
    NoRing(&'static str),
    /// A write goes to other blocks than those preallocated.
    #[error("the file system copies on write, so preallocated blocks are not the ones written")]
    CopyOnWrite,
    /// The server decides when a page can be stored into.
    #[error("the file system is remote: a store into a mapping may wait for the server")]
    Remote,
    /// `fallocate` fails.
    #[error("the file system does not preallocate")]
    NoPreallocation,
    /// The kernel cannot populate a mapping for writing without changing it.
    #[error("kernel {major}.{minor} has no MADV_POPULATE_WRITE (5.14)")]
    OldKernel {
        /// Major version of the running kernel.
        major: u32,
        /// Minor version of the running kernel.
        minor: u32,
    },
}

/// The options that matter to the choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wants {
    /// Other readers must see a byte in the file as soon as `append` returns.
    pub readable_at_once: bool,
    /// Several threads append to one appender.
    pub many_producers: bool,
    /// Each record carries its length and a checksum.
    pub framed: bool,
    /// `auto` may take a mode whose records survive the process only after `sync_to`.
    pub process_death_may_lose: bool,
    /// Upper limit of locked memory, bytes.
    pub memory_bytes: u64,
    /// Shares of the machine's limits that the precursor may take.
    pub shares: Shares,
}

/// The chosen mode, with reasons in the order in which they were found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The mode.
    pub mode: Mode,
    /// Memory can be locked. Otherwise the mode runs unlocked, and `reasons` says so.
    pub locked: bool,
    /// Memory that the mode may hold.
    pub budget: Budget,
    /// `window` may use a fallback ring, whose records survive the process only as long as shared memory lasts.
    pub ring_beside: bool,
    /// What may remove the shared memory while the machine runs.
    pub removal: Option<Removal>,
    /// Sentences for people.
    pub reasons: Vec<String>,
}

/// Modes with locked memory are refused below this many lockable bytes.
pub const LOCKED_BYTES_MIN: u64 = 256 << 10;

/// First kernel with MADV_POPULATE_WRITE (`mm/madvise.c: madvise_populate`). Without it the helper would have to store
/// into the pages, and must not where the writer may already be.
const POPULATE_WRITE: (u32, u32) = (5, 14);

/// Chooses a mode for `auto`. Never one whose records are lost more easily than after `write()` when the process dies,
/// unless the caller allows it or has many producers, which need a ring.
pub fn choose(facts: &Facts, wants: &Wants) -> Choice {
    let mut reasons = Vec::new();
    let may_lose = wants.process_death_may_lose || wants.many_producers;
    let removable = facts.removal.filter(|_| !may_lose);
    let ring = ring_refusal(facts, wants).or(removable.map(ModeRefusal::Removable));
    // `window` and `prefetch` preallocate.
    let endless = !may_lose && !wants.framed && (!facts.shm || facts.removal.is_some());
    let unframed = endless.then_some(ModeRefusal::Unframed);
    let window = window_refusal(facts, wants).or(unframed);
    let (mode, why) = match (&ring, &window) {
        (None, _) => {
            (Mode::Ring, "ring: the writer touches only its own memory, so neither reclaim nor throttling can reach it")
        }
        (Some(_), None) => (Mode::Window, "window: blocks, pages and write permission are ready ahead of the writer"),
        (Some(_), Some(_)) if old_cure_helps(facts) && !wants.many_producers && unframed.is_none() => (
            Mode::Prefetch,
            "prefetch: reading ahead of the writer helps on an old kernel, unless the cgroup limits memory",
        ),
        _ => (Mode::Plain, "plain: no better mode is possible here"),
    };
    reasons.extend(ring.map(|r| format!("not ring: {r}")));
    if mode != Mode::Ring {
        reasons.extend(window.map(|r| format!("not window: {r}")));
    }
    reasons.push(why.to_owned());
    Choice { ring_beside: removable.is_none(), ..finish(mode, facts, wants, reasons) }
}

/// Checks a mode that the caller requested by name: the reason why it is refused, or the choice with its caveats.
pub fn examine(mode: Mode, facts: &Facts, wants: &Wants) -> Result<Choice, ModeRefusal> {
    let refusal = match mode {
        Mode::Ring => ring_refusal(facts, &Wants { readable_at_once: false, ..*wants }),
        Mode::Window => window_refusal(facts, wants),
        Mode::Prefetch if wants.many_producers => Some(ModeRefusal::NoRing(mode.name())),
        Mode::Prefetch if !facts.fallocate => Some(ModeRefusal::NoPreallocation),
        Mode::Plain if wants.many_producers => Some(ModeRefusal::NoRing(mode.name())),
        Mode::Prefetch | Mode::Plain => None,
    };
    match refusal {
        Some(reason) => Err(reason),
        None => Ok(finish(mode, facts, wants, vec![format!("{}: requested", mode.name())])),
    }
}

fn finish(mode: Mode, facts: &Facts, wants: &Wants, mut reasons: Vec<String>) -> Choice {
    let budget = budget(&facts.limits, &wants.shares, wants.memory_bytes, mode == Mode::Window);
    let needs_lock = matches!(mode, Mode::Ring | Mode::Window);
    let unlocked_by = lock_bound(facts, wants).filter(|_| needs_lock);
    let locked = needs_lock && unlocked_by.is_none();
    if let Some(bound) = unlocked_by {
        let then = if facts.swap {
            "swap is on, so its pages may be swapped out under pressure"
        } else {
            "swap is off, so its pages stay in memory"
        };
        let remedy = match bound {
            Bound::Memlock => " (raise it with ulimit -l, or grant CAP_IPC_LOCK)",
            Bound::Cgroup => " (raise memory.max, or shares.cgroup_percent)",
            Bound::Asked | Bound::Dirty => "",
        };
        reasons.push(format!("not locked: {} is too small{remedy}; {then}", bound.name()));
    }
    if mode == Mode::Prefetch && facts.limits.cgroup_bytes.is_some() {
        reasons.push("prefetch in a memory cgroup: pages read ahead may be evicted before they are used, and each then costs a read".to_owned());
    }
    if needs_lock && budget.bytes < wants.memory_bytes {
        reasons.push(format!("run-ahead limited to {} KiB by {}", budget.bytes >> 10, budget.bound.name()));
    }
    Choice { mode, locked, budget, ring_beside: true, removal: facts.removal, reasons }
}

/// The limit that is too small to lock memory, if one is.
fn lock_bound(facts: &Facts, wants: &Wants) -> Option<Bound> {
    let budget = budget(&facts.limits, &wants.shares, wants.memory_bytes, false);
    (budget.bytes < LOCKED_BYTES_MIN.min(wants.memory_bytes)).then_some(budget.bound)
}

fn ring_refusal(facts: &Facts, wants: &Wants) -> Option<ModeRefusal> {
    if wants.readable_at_once {
        return Some(ModeRefusal::ReadAtOnce);
    }
    if !facts.shm {
        return Some(ModeRefusal::NoSharedMemory);
    }
    lock_bound(facts, wants).filter(|_| facts.swap).map(ModeRefusal::MaySwap)
}

fn window_refusal(facts: &Facts, wants: &Wants) -> Option<ModeRefusal> {
    if wants.many_producers {
        return Some(ModeRefusal::ManyProducers);
    }
    match facts.file_system {
        FileSystem::CopyOnWrite => {
            return Some(ModeRefusal::CopyOnWrite);
        }
        FileSystem::Remote => {
            return Some(ModeRefusal::Remote);
        }
        FileSystem::InPlace | FileSystem::Memory | FileSystem::Unknown(_) => {}
    }
    if !facts.fallocate {
        return Some(ModeRefusal::NoPreallocation);
    }
    if facts.kernel < POPULATE_WRITE {
        let (major, minor) = facts.kernel;
        return Some(ModeRefusal::OldKernel { major, minor });
    }
    lock_bound(facts, wants).map(ModeRefusal::MayEvict)
}

/// `prefetch` was measured on 2.6.32. On 6.18 it fails inside a cgroup, where clean pages that were read ahead are
/// evicted first. The kernel at which it stops helping is unknown; 4.2 is chosen, the first with per-cgroup writeback.
fn old_cure_helps(facts: &Facts) -> bool {
    facts.kernel < (4, 2) && facts.limits.cgroup_bytes.is_none() && facts.fallocate
}

#[cfg(test)]
#[path = "choose_tests.rs"]
mod tests;
