//! What fixes changed where they were tried; `docs/recipes` says how.

use serde::Serialize;

/// The effect of a fix on the latency of the program that waited.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Measured {
    /// The neighbour, and the p99 of the waiting calls before and after.
    pub effect: &'static str,
    /// The page with the method and all figures.
    pub page: &'static str,
}

/// fio, 100 fdatasync() calls a second, beside three `dd conv=fsync` in another cgroup.
pub(super) static WRITE_LIMIT: Measured = Measured {
    effect: "fdatasync() beside three dd conv=fsync, limited to 4 MiB/s: p99 27.7 -> 3.9 ms",
    page: "docs/recipes/fio.md",
};

pub(super) static WRITE_LIMIT_OTHER_FILE_SYSTEM: Measured = Measured {
    effect: "fdatasync() beside three dd conv=fsync on another file system, limited to 4 MiB/s: p99 67.6 -> 3.0 ms",
    page: "docs/recipes/fio.md",
};

pub(crate) static BFQ: Measured = Measured {
    effect: "fdatasync() beside three dd conv=fsync: p99 27.7 -> 12.1 ms, the longest 53 -> 124 ms",
    page: "docs/recipes/fio.md",
};

pub(super) static OWN_MEMORY_CGROUP: Measured = Measured {
    effect: "write() beside a neighbour that left the full memory cgroup: the longest 136 -> 15 ms",
    page: "docs/recipes/fio.md",
};
