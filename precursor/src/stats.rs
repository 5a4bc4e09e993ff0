//! Positions, survival and counters of an appender.

use crate::core::Core;
use crate::lasting::Removal;
use crate::mode::Mode;
use crate::options::Framing;

/// End of an appended record: bytes since this file or pattern was first opened, over all its files, including frames
/// and archived files.
///
/// A position is accepted, not durable. [`Survival`] says what it survives; only a [`Durable`] survives the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub(crate) u64);

impl Position {
    /// The position, bytes.
    pub fn bytes(self) -> u64 {
        self.0
    }
}

/// A position up to which everything is on the device. It survives the death of the machine if the device does not lie
/// about its cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Durable(pub(crate) u64);

impl Durable {
    /// The position, bytes.
    pub fn bytes(self) -> u64 {
        self.0
    }
}

/// The call after which a record survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// After `append` (or `commit`) has returned.
    Append,
    /// After `sync_to` has returned for the record's position.
    SyncTo,
}

/// When records of this appender survive, as it was opened on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Survival {
    /// Death of the process by any signal: the call after which reopening or `recover` finds the record. `SyncTo` also
    /// if [`Survival::removal`] may remove the shared memory that `append` relies on.
    pub process_death: After,
    /// Death of the machine: the call after which the record survives.
    pub machine_death: After,
    /// Event that may remove the shared memory while the machine runs, if this mode needs shared memory. Judged only
    /// for `/dev/shm`; a directory on another file system (`shm_dir`) is assumed to outlive the process.
    pub removal: Option<Removal>,
}

/// Counters since open. Times in ns, sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Mode of writing.
    pub mode: Mode,
    /// The mode's memory is locked.
    pub locked: bool,
    /// Records accepted.
    pub appends: u64,
    /// End of the appended data.
    pub position: u64,
    /// Bytes that the writer can append without waiting for the helper: free space in the ring, or warm pages.
    pub run_ahead_bytes: u64,
    /// How often the writer reached a window or a file that was not ready.
    pub late_windows: u64,
    /// How many appends waited.
    pub waits: u64,
    /// Longest append, ns; `None` without `measure`.
    pub worst_append_ns: Option<u64>,
    /// Accepted bytes that are not yet written to the file (`ring`, and `window` while it uses its ring).
    pub flusher_lag_bytes: u64,
    /// Bytes that would be lost if the machine died now.
    pub at_risk_bytes: u64,
    /// Last durable position.
    pub durable: u64,
    /// Upper limit of the memory before the writer: the ring, or the run-ahead.
    pub memory_bytes: u64,
    /// Files begun after the first.
    pub rolls: u64,
    /// Rings added after the first.
    pub grown: u64,
    /// How often `window` switched to its ring because the helper was too slow.
    pub fallbacks: u64,
    /// Bytes left, while the disk cannot give the next blocks; set before the writer is stopped.
    pub out_of_space: Option<u64>,
}

impl Stats {
    /// Uses the writer's own room if it is larger: it may not have read yet what is prepared.
    pub(crate) fn with_room(self, room: u64) -> Stats {
        Stats { run_ahead_bytes: self.run_ahead_bytes.max(room), ..self }
    }
}

impl Core {
    pub(crate) fn survival(&self) -> Survival {
        // Written pages survive the process by themselves. The end of a preallocated file needs frames or the live
        // block, and a ring needs the live block.
        let by_itself = match self.mode {
            Mode::Plain => true,
            Mode::Ring => false,
            // The fallback ring is shared memory too.
            Mode::Window => self.framing == Framing::Records && self.stage.get().is_none(),
            Mode::Prefetch => self.framing == Framing::Records,
        };
        let removal = self.removal.filter(|_| !by_itself);
        let found = by_itself || self.live.survives_process() && removal.is_none();
        let process_death = if found { After::Append } else { After::SyncTo };
        Survival { process_death, machine_death: After::SyncTo, removal }
    }
}
