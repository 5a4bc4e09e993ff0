//! What an appender has done, and what each of its promises is worth.

use crate::core::Core;
use crate::lasting::Removal;
use crate::options::Framing;
use crate::plan::Mode;

/// The end of an appended record: bytes since the first open of this file or pattern, over all its files, framing included, also
/// those that have been archived since.
///
/// It says what was accepted. What it survives is [`Survival`]; that it survives the machine is said by [`Durable`] alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub(crate) u64);

impl Position {
    /// The number, bytes.
    pub fn bytes(self) -> u64 {
        self.0
    }
}

/// A position that `sync_to` has put on the device: everything before it survives the machine's death, as far as the device
/// keeps its word about its own cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Durable(pub(crate) u64);

impl Durable {
    /// The number, bytes.
    pub fn bytes(self) -> u64 {
        self.0
    }
}

/// The call after which a record survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// `append` (or `commit`) has returned.
    Append,
    /// `sync_to` has returned for its position.
    SyncTo,
}

/// What survives what, for an appender as it was opened on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Survival {
    /// Death of the process, by any signal: from when on a record is found by reopening or by `recover`. `SyncTo` also where
    /// [`Survival::removal`] may take away what an `append` rests on.
    pub process_death: After,
    /// Death of the machine: from when on.
    pub machine_death: After,
    /// What may take the shared memory away before the machine's death, where this mode needs it. It is judged for `/dev/shm` alone: a
    /// folder on another file system (`shm_dir`) is taken to outlive the process.
    pub removal: Option<Removal>,
}

/// Counters since open. Times in ns, sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Method of writing.
    pub mode: Mode,
    /// Its memory is locked.
    pub locked: bool,
    /// Records accepted.
    pub appends: u64,
    /// End of data.
    pub position: u64,
    /// Bytes the writer may still append without meeting the helper: room in the ring, or the warm stretch.
    pub run_ahead_bytes: u64,
    /// Times the writer reached a window or a file that was not ready.
    pub late_windows: u64,
    /// Times an append waited.
    pub waits: u64,
    /// Longest append, ns; `None` without `measure`.
    pub worst_append_ns: Option<u64>,
    /// Bytes accepted and not yet given to the file (`ring`, and `window` while it uses its ring).
    pub flusher_lag_bytes: u64,
    /// Bytes that the machine's death would lose now.
    pub at_risk_bytes: u64,
    /// Last durable position.
    pub durable: u64,
    /// Memory held before the writer at most: the ring, or the bound on run-ahead.
    pub memory_bytes: u64,
    /// Files begun after the first.
    pub rolls: u64,
    /// Rings added after the first.
    pub grown: u64,
    /// Times `window` went over to its ring because its helper could not keep up.
    pub fallbacks: u64,
    /// Set while the disk cannot give the next blocks: bytes left. Reported before the writer is stopped by it.
    pub out_of_space: Option<u64>,
}

impl Stats {
    /// The writer knows its own room better than another thread does: it may not have read what is prepared.
    pub(crate) fn with_room(self, room: u64) -> Stats {
        Stats { run_ahead_bytes: self.run_ahead_bytes.max(room), ..self }
    }
}

impl Core {
    pub(crate) fn survival(&self) -> Survival {
        // A page-cache write outlives the process by itself; the position of a preallocated file, and a ring, need the live
        // block or frames to be found.
        let by_itself = match self.mode {
            Mode::Plain => true,
            Mode::Ring => false,
            // The ring that `window` falls back on is shared memory too.
            Mode::Window => self.framing == Framing::Records && self.stage.get().is_none(),
            Mode::Prefetch => self.framing == Framing::Records,
        };
        let removal = self.removal.filter(|_| !by_itself);
        let found = by_itself || self.live.survives_process() && removal.is_none();
        let process_death = if found { After::Append } else { After::SyncTo };
        Survival { process_death, machine_death: After::SyncTo, removal }
    }
}
