//! Which mode suits this machine, and why. Pure: [`crate::probe`] gathers the facts.

use crate::budget::{Budget, Limits, Shares, budget};
use crate::lasting::Removal;
use crate::plan::Mode;

/// The file systems that matter to the choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystem {
    /// ext4, xfs: blocks of a preallocated range stay where they are.
    InPlace,
    /// btrfs, bcachefs, zfs, f2fs, overlay on them: a rewrite takes a new block, so preallocation promises nothing.
    CopyOnWrite,
    /// NFS, SMB, FUSE, 9p: the server decides.
    Remote,
    /// tmpfs, ramfs: no disk behind it.
    Memory,
    /// Anything else; the number is `statfs.f_type`.
    Unknown(u64),
}

/// What the machine offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Kernel release as (major, minor).
    pub kernel: (u32, u32),
    /// Kind of the file system that holds the file.
    pub file_system: FileSystem,
    /// `fallocate` gave real blocks in the file's folder.
    pub fallocate: bool,
    /// `/dev/shm` (or the chosen folder) takes a shared-memory file.
    pub shm: bool,
    /// What may take that file away while the machine runs.
    pub removal: Option<Removal>,
    /// Swap is on, so that unlocked memory may leave.
    pub swap: bool,
    /// Limits on memory.
    pub limits: Limits,
}

/// Why a mode cannot be had here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModeRefusal {
    /// A ring reaches the file later than readers want to see it.
    #[error("readers must see each byte in the file at once; a ring reaches the file later")]
    ReadAtOnce,
    /// Nothing outlives the process.
    #[error("no shared-memory file can be made, so the ring would die with the process")]
    NoSharedMemory,
    /// What the process leaves in shared memory may be removed before it is recovered.
    #[error("{sentence}; or allow it with process_death_may_lose", sentence = .0.sentence())]
    Removable(Removal),
    /// The end of an unframed file that is longer than its data is known from shared memory alone.
    #[error(
        "the process's death would lose the end of an unframed file: no shared memory that outlasts it; frame the records, \
         or allow it with process_death_may_lose"
    )]
    Unframed,
    /// The ring's pages may leave for swap.
    #[error("its memory can neither be locked (RLIMIT_MEMLOCK) nor be kept otherwise, since swap is on")]
    MaySwap,
    /// Unlocked pages of a window are evicted like any others.
    #[error("RLIMIT_MEMLOCK is too small to lock a window, and unlocked it is evicted")]
    MayEvict,
    /// A window belongs to one writer.
    #[error("many producers share a ring")]
    ManyProducers,
    /// The mode has no ring that many producers could share.
    #[error("many producers share a ring; {0} has none")]
    NoRing(&'static str),
    /// The blocks that are written are not those that were allocated.
    #[error("the file system copies on write, so preallocated blocks are not the ones written")]
    CopyOnWrite,
    /// Pages come and go at the server's leisure.
    #[error("the file system is remote: a store into a mapping may wait for the server")]
    Remote,
    /// `fallocate` gives nothing.
    #[error("the file system does not preallocate")]
    NoPreallocation,
    /// The kernel cannot populate a mapping without a store.
    #[error("kernel {major}.{minor} has no MADV_POPULATE_WRITE (5.14)")]
    OldKernel {
        /// Of the running kernel.
        major: u32,
        /// Of the running kernel.
        minor: u32,
    },
}

/// What the caller wants, as far as it bears on the choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wants {
    /// Other readers must see a byte in the file as soon as `append` returns.
    pub readable_at_once: bool,
    /// Several threads append.
    pub many_producers: bool,
    /// Records carry their length and checksum.
    pub framed: bool,
    /// `auto` may take a mode whose records survive the process only after `sync_to`.
    pub process_death_may_lose: bool,
    /// Ceiling on locked memory, bytes.
    pub memory_bytes: u64,
    /// Shares of the limits.
    pub shares: Shares,
}

/// A mode, whether its memory is locked, and the reasons in the order in which they were found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The mode.
    pub mode: Mode,
    /// Locked memory can be had; otherwise the mode runs unlocked and says so in `reasons`.
    pub locked: bool,
    /// Memory it may hold.
    pub budget: Budget,
    /// `window` may fall back on a ring, whose records survive the process only as shared memory does.
    pub ring_beside: bool,
    /// What may take its shared memory away while the machine runs.
    pub removal: Option<Removal>,
    /// Sentences for people.
    pub reasons: Vec<String>,
}

/// Less locked memory than this is not worth a mode that needs it, bytes.
pub const LOCKED_BYTES_MIN: u64 = 256 << 10;

/// MADV_POPULATE_WRITE came with 5.14 (`mm/madvise.c: madvise_populate`). Without it the helper could only touch pages by
/// storing to them, which it must not do where the writer may already be.
const POPULATE_WRITE: (u32, u32) = (5, 14);

/// Chooses for `auto`: never a mode whose records survive the process's death less than those of `write()`, unless the caller allows
/// it. (Many producers ask for a ring: no other mode takes them.)
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
        (Some(_), None) => (Mode::Window, "window: blocks, pages and write permission are there before the writer is"),
        (Some(_), Some(_)) if old_cure_helps(facts) && !wants.many_producers && unframed.is_none() => (
            Mode::Prefetch,
            "prefetch: an old kernel without a cgroup limit is where reading ahead of the writer helps",
        ),
        _ => (Mode::Plain, "plain: nothing better can be had here"),
    };
    reasons.extend(ring.map(|r| format!("not ring: {r}")));
    if mode != Mode::Ring {
        reasons.extend(window.map(|r| format!("not window: {r}")));
    }
    reasons.push(why.to_owned());
    Choice { ring_beside: removable.is_none(), ..finish(mode, facts, wants, reasons) }
}

/// Examines a mode the caller asked for by name: the reason why it cannot be had, or the choice with its caveats.
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
        None => Ok(finish(mode, facts, wants, vec![format!("{}: asked for", mode.name())])),
    }
}

fn finish(mode: Mode, facts: &Facts, wants: &Wants, mut reasons: Vec<String>) -> Choice {
    let budget = budget(&facts.limits, &wants.shares, wants.memory_bytes, mode == Mode::Window);
    let needs_lock = matches!(mode, Mode::Ring | Mode::Window);
    let locked = needs_lock && lockable(facts, wants);
    if needs_lock && !locked {
        let then = if facts.swap {
            "swap is on, so its pages may be swapped out under pressure"
        } else {
            "without swap its pages stay"
        };
        reasons.push(format!(
            "not locked: RLIMIT_MEMLOCK is too small (raise it with ulimit -l, or grant CAP_IPC_LOCK); {then}"
        ));
    }
    if mode == Mode::Prefetch && facts.limits.cgroup_bytes.is_some() {
        reasons.push("prefetch in a memory cgroup: pages read ahead may be evicted before they are used, and each then costs a read".to_owned());
    }
    if needs_lock && budget.bytes < wants.memory_bytes {
        reasons.push(format!("run-ahead bounded to {} KiB by {}", budget.bytes >> 10, budget.bound.name()));
    }
    Choice { mode, locked, budget, ring_beside: true, removal: facts.removal, reasons }
}

fn lockable(facts: &Facts, wants: &Wants) -> bool {
    budget(&facts.limits, &wants.shares, wants.memory_bytes, false).bytes >= LOCKED_BYTES_MIN.min(wants.memory_bytes)
}

fn ring_refusal(facts: &Facts, wants: &Wants) -> Option<ModeRefusal> {
    if wants.readable_at_once {
        return Some(ModeRefusal::ReadAtOnce);
    }
    if !facts.shm {
        return Some(ModeRefusal::NoSharedMemory);
    }
    (!lockable(facts, wants) && facts.swap).then_some(ModeRefusal::MaySwap)
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
    (!lockable(facts, wants)).then_some(ModeRefusal::MayEvict)
}

/// The cure of 2012 was measured on 2.6.32 and fails inside a cgroup on 6.18, where clean pages read ahead are the first to
/// be evicted. Where between the two it stops helping is not known; the line is drawn at per-cgroup writeback (4.2).
fn old_cure_helps(facts: &Facts) -> bool {
    facts.kernel < (4, 2) && facts.limits.cgroup_bytes.is_none() && facts.fallocate
}

#[cfg(test)]
#[path = "choose_tests.rs"]
mod tests;
