//! Options of an appender.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::budget::Shares;
use crate::keep::Keep;
use crate::mode::Mode;

/// What an append does without room: the ring is full, or the window is not ready. A full disk is always an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BackPressure {
    /// The append waits; `waits` counts it.
    #[default]
    Wait,
    /// The append returns [`crate::AppendError::Full`].
    Fail,
    /// The ring grows up to this many bytes in all, then the append waits. Other modes wait.
    Grow {
        /// Upper limit of all rings together, bytes.
        bytes_max: u64,
    },
}

/// What is synced without a call of `sync_to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Nothing: if the machine dies, records after the last `sync_to` may be lost.
    #[default]
    OnSync,
    /// A thread of the library syncs everything at this interval, so about this much is lost if the machine dies.
    Every(Duration),
}

/// How recovery finds the end of the data in a file that is longer than its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Framing {
    /// The file contains exactly the appended bytes. Each `sync_to` writes the position to the sidecar.
    #[default]
    None,
    /// Each record carries its length, a checksum, its number and optionally a time: 24 bytes, and padding to a multiple
    /// of 8. Each file begins with a header of 64 bytes. The end is found by reading, torn records are detected, and
    /// `sync_to` need not write the position.
    Records,
}

/// What to do if the file exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Existing {
    /// Find the end of the data and append there.
    #[default]
    Continue,
    /// Discard its contents; with a pattern, remove all its files.
    Replace,
    /// Fail.
    Refuse,
}

/// Options of an appender: start with [`Options::new`], end with [`Options::open`].
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
    pub(crate) times: bool,
    pub(crate) existing: Existing,
    pub(crate) readable_at_once: bool,
    pub(crate) measure: bool,
    pub(crate) shm_dir: PathBuf,
    pub(crate) write_back_bytes_per_s: u64,
    pub(crate) handle_sigbus: bool,
    pub(crate) process_death_may_lose: bool,
    pub(crate) keep: Keep,
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $kind:ty;)*) => {
        $($(#[$doc])* #[must_use] pub fn $name(mut self, $name: $kind) -> Options { self.$name = $name; self })*
    };
}

impl Options {
    /// Options for a file, or for a pattern of files in whose name `{}` is an eight-digit sequence number.
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
            times: false,
            existing: Existing::default(),
            readable_at_once: false,
            measure: true,
            shm_dir: PathBuf::from("/dev/shm"),
            write_back_bytes_per_s: 0,
            handle_sigbus: true,
            process_death_may_lose: false,
            keep: Keep::default(),
        }
    }

    /// The mode. By default, or with `None`, the machine is probed and a mode chosen (`auto`).
    #[must_use]
    pub fn mode(mut self, mode: impl Into<Option<Mode>>) -> Options {
        self.mode = mode.into();
        self
    }

    /// Bytes warmed and released at a time (`window`, `prefetch`), rounded down to pages. Default: 1 MiB, less in a
    /// small budget.
    #[must_use]
    pub fn window_bytes(mut self, bytes: u64) -> Options {
        self.window_bytes = Some(bytes);
        self
    }

    /// Age at which a new file begins, at the first append after it; needs `roll_bytes`. The age of a framed file counts
    /// from its header, that of an unframed one from the open or the roll. Default: at no age.
    #[must_use]
    pub fn roll_every(mut self, age: Duration) -> Options {
        self.keep.roll_every = Some(age);
        self
    }

    /// Most files of the pattern, the current one included; older ones are removed by a thread of the library, whether or
    /// not they were read or synced. Default 0: all are kept.
    #[must_use]
    pub fn retain_files(mut self, files: u64) -> Options {
        self.keep.files = files;
        self
    }

    /// Most bytes of the files of the pattern, as for `retain_files`. The current file is never removed. Default 0: all
    /// are kept.
    #[must_use]
    pub fn retain_bytes(mut self, bytes: u64) -> Options {
        self.keep.bytes = bytes;
        self
    }

    /// CPU of the helper threads. The machine must have it; [`crate::Appender::reasons`] reports if the threads cannot
    /// be pinned to it. Default: any.
    #[must_use]
    pub fn helper_cpu(mut self, cpu: u32) -> Options {
        self.helper_cpu = Some(cpu);
        self
    }

    /// NUMA node of the ring or window, a preference. The machine must have it. Default: the node of the thread that
    /// opens.
    #[must_use]
    pub fn node(mut self, node: u32) -> Options {
        self.node = Some(node);
        self
    }

    setters! {
        /// Size at which a new file begins, bytes; the name must then contain `{}`. Default 0: one file.
        roll_bytes: u64;
        /// Capacity of the ring, bytes; rounded up to a power of two, then limited by the budget. Default 8 MiB.
        ring_bytes: u64;
        /// Upper limit of run-ahead and rings, bytes; the machine's limits may reduce it. Default 64 MiB.
        memory_bytes_max: u64;
        /// Shares of the machine's limits that the precursor may take.
        shares: Shares;
        /// What is synced without a call of `sync_to`. Default: nothing.
        durability: Durability;
        /// What an append does without room. Default: it waits.
        back_pressure: BackPressure;
        /// Whether records are framed. Default: no.
        framing: Framing;
        /// Framed records carry the time of their append, in ns since 1970. About 20 ns each. Default: no.
        times: bool;
        /// What to do if the file exists. Default: continue it.
        existing: Existing;
        /// Readers of the file see each byte once `append` has returned; excludes a ring. Default: no.
        readable_at_once: bool;
        /// Measure every append for `worst_append_ns`, about 20 ns each. Default: yes.
        measure: bool;
        /// Directory for shared memory, through which appends survive the process. Default `/dev/shm`.
        shm_dir: PathBuf;
        /// Most bytes per second handed to write-back behind the writer. Default 0: one and a half times the writer's
        /// rate.
        write_back_bytes_per_s: u64;
        /// `window`: install a SIGBUS handler, so that a page that the kernel refuses becomes an error of `append`
        /// instead of ending the process. Installed once per process; passes other faults to the previous handler. A
        /// handler that the program installs later must do the same. Default: yes.
        handle_sigbus: bool;
        /// Allow `auto` to choose a mode whose records survive the death of this process only after `sync_to`, which is
        /// less than `write()` gives: for example a ring in a container's own `/dev/shm`. Default: no. A mode requested
        /// by name needs no permission.
        process_death_may_lose: bool;
    }
}
