//! How an appender is opened.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::budget::Shares;
use crate::plan::Mode;

/// What happens to an append for which there is no room: a full ring, a window that is not ready, a full disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BackPressure {
    /// The append waits, and the wait is counted.
    #[default]
    Wait,
    /// The append returns [`crate::AppendError::Full`] at once.
    Fail,
    /// A ring grows up to this many bytes in all, then waits; the other modes wait.
    Grow {
        /// Most bytes of all rings together.
        bytes_max: u64,
    },
}

/// What reaches the device without being asked for by `sync_to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Nothing: the machine's death loses what was not passed to `sync_to`.
    #[default]
    OnSync,
    /// A thread of its own syncs everything this often: the machine's death loses at most about that much.
    Every(Duration),
}

/// How the end of data is found in a file longer than its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Framing {
    /// The bytes as appended; the position is journalled beside the file, on every `sync_to`.
    #[default]
    None,
    /// Each record carries its length and checksum (8 bytes, and padding to a multiple of 8): the end is found by reading,
    /// torn tails are seen, and `sync_to` need not write the position.
    Records,
}

/// What to do with a file that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Existing {
    /// Find its true end and append there.
    #[default]
    Continue,
    /// Empty it; of a pattern, remove all its files.
    Replace,
    /// Refuse to open.
    Refuse,
}

/// Options of an appender. Start with [`Options::new`], end with [`Options::open`].
#[derive(Debug, Clone)]
pub struct Options {
    pub(crate) path: PathBuf,
    pub(crate) mode: Option<Mode>,
    pub(crate) roll_bytes: u64,
    pub(crate) window_bytes: Option<u64>,
    pub(crate) ring_bytes: u64,
    pub(crate) memory_bytes_max: u64,
    pub(crate) shares: Shares,
    pub(crate) node: Option<u32>,
    pub(crate) helper_cpu: Option<u32>,
    pub(crate) durability: Durability,
    pub(crate) back_pressure: BackPressure,
    pub(crate) framing: Framing,
    pub(crate) existing: Existing,
    pub(crate) readable_at_once: bool,
    pub(crate) measure: bool,
    pub(crate) shm_dir: PathBuf,
    pub(crate) write_back_bytes_per_s: u64,
    pub(crate) handle_sigbus: bool,
    pub(crate) process_death_may_lose: bool,
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $kind:ty;)*) => {
        $($(#[$doc])* #[must_use] pub fn $name(mut self, $name: $kind) -> Options { self.$name = $name; self })*
    };
}

impl Options {
    /// Options for a file, or for a pattern of files: `{}` in the name stands for the sequence number, eight digits.
    pub fn new(path: impl AsRef<Path>) -> Options {
        Options {
            path: path.as_ref().to_owned(),
            mode: None,
            roll_bytes: 0,
            window_bytes: None,
            ring_bytes: 8 << 20,
            memory_bytes_max: 64 << 20,
            shares: Shares::default(),
            node: None,
            helper_cpu: None,
            durability: Durability::default(),
            back_pressure: BackPressure::default(),
            framing: Framing::default(),
            existing: Existing::default(),
            readable_at_once: false,
            measure: true,
            shm_dir: PathBuf::from("/dev/shm"),
            write_back_bytes_per_s: 0,
            handle_sigbus: true,
            process_death_may_lose: false,
        }
    }

    /// The mode; without this call, or with `None`, the machine is probed and a mode chosen (`auto`).
    #[must_use]
    pub fn mode(mut self, mode: impl Into<Option<Mode>>) -> Options {
        self.mode = mode.into();
        self
    }

    /// Bytes warmed and released at a time (`window`, `prefetch`); rounded to pages. Default: 1 MiB, or less in a small budget.
    #[must_use]
    pub fn window_bytes(mut self, bytes: u64) -> Options {
        self.window_bytes = Some(bytes);
        self
    }

    /// CPU on which the helper threads run; default: wherever the scheduler puts them.
    #[must_use]
    pub fn helper_cpu(mut self, cpu: u32) -> Options {
        self.helper_cpu = Some(cpu);
        self
    }

    /// NUMA node of the ring's or window's memory; default: the node of the thread that opens.
    #[must_use]
    pub fn node(mut self, node: u32) -> Options {
        self.node = Some(node);
        self
    }

    setters! {
        /// Size at which a new file is begun, bytes; the path must hold `{}`. 0 (the default): one file.
        roll_bytes: u64;
        /// Capacity of the ring, bytes; rounded up to a power of two, then bounded by the limits. Default 8 MiB.
        ring_bytes: u64;
        /// Ceiling on run-ahead and rings, bytes, before the machine's limits are applied. Default 64 MiB.
        memory_bytes_max: u64;
        /// Shares of the machine's limits.
        shares: Shares;
        /// What reaches the device unasked. Default: nothing.
        durability: Durability;
        /// What happens when there is no room. Default: wait.
        back_pressure: BackPressure;
        /// Whether records are framed. Default: not.
        framing: Framing;
        /// What to do with an existing file. Default: continue it.
        existing: Existing;
        /// Readers of the file must see each byte once `append` has returned; rules the ring out. Default: no.
        readable_at_once: bool;
        /// Time every append for `worst_append_ns`, about 20 ns each. Default: yes.
        measure: bool;
        /// Folder for the shared-memory file through which appends survive the process. Default `/dev/shm`.
        shm_dir: PathBuf;
        /// Most bytes a second handed to write-back behind the writer; 0 (the default) follows the writer.
        write_back_bytes_per_s: u64;
        /// `window`: install a handler of SIGBUS (once for the process, passing on what is not ours), so that a page that the kernel
        /// refuses is an error of `append` and not the end of the process. Default: yes. A handler that the program installs
        /// later and that does not pass signals on undoes it.
        handle_sigbus: bool;
        /// Lets `auto` take a mode whose records survive the death of this process only after `sync_to`, less than those of `write()`: a
        /// ring in a container's own `/dev/shm`, for one. Default: no. A mode asked for by name needs no leave.
        process_death_may_lose: bool;
    }
}
