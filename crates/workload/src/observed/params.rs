//! The parameters of `observed`.

use crate::histogram::Unit;
use crate::{ParamKind, ParamSpec};

const MINUTE_NS: u64 = 60_000_000_000;
pub const TRANSFER_MAX: u64 = 64 << 20;

const fn spec(name: &'static str, kind: ParamKind, default: &'static str, sentence: &'static str) -> ParamSpec {
    ParamSpec { name, kind, default, sentence }
}

const fn times(name: &'static str, sentence: &'static str) -> ParamSpec {
    spec(name, ParamKind::Histogram { unit: Unit::Time, max: MINUTE_NS }, "", sentence)
}

const fn sizes(name: &'static str, default: &'static str, sentence: &'static str) -> ParamSpec {
    spec(name, ParamKind::Histogram { unit: Unit::Bytes, max: TRANSFER_MAX }, default, sentence)
}

pub const PARAMS: &[ParamSpec] = &[
    spec("threads", ParamKind::Count { min: 1, max: 64 }, "1", "Number of threads."),
    spec("process", ParamKind::Switch, "false", "Whether each thread is a separate process, as other programs are."),
    spec(
        "mix",
        ParamKind::Histogram { unit: Unit::Count, max: 9 },
        "1:1",
        "Operations and their weights: 0 read, 1 write, 2 sync a file, 4 sync the file system, 5 create a file and \
         write it, 7 remove a created file, 8 compute for 5 ms, 9 rewrite the memory.",
    ),
    spec("sync", ParamKind::Choice(&["none", "fsync", "fdatasync"]), "none", "How files are synced."),
    spec(
        "sync_every",
        ParamKind::Histogram { unit: Unit::Count, max: 1 << 32 },
        "",
        "Writes of a thread between two syncs; empty: it syncs only by its mix.",
    ),
    sizes("write_size", "4KiB:1", "Bytes of a write."),
    sizes("read_size", "4KiB:1", "Bytes of a read."),
    spec(
        "create_writes",
        ParamKind::Histogram { unit: Unit::Count, max: 1 << 16 },
        "1:1",
        "Writes to a created file before it is closed.",
    ),
    times("read_pause", "Pause before a read; each drawn value is between the given one and twice that."),
    times("write_pause", "Pause before a write."),
    times("sync_pause", "Pause before a sync of a file or of the file system."),
    times("other_pause", "Pause before other operations."),
    spec("pass", ParamKind::Count { min: 0, max: 1 << 40 }, "0", "Operations between two longer pauses; 0: none."),
    spec(
        "pass_pause",
        ParamKind::Duration { min_ns: 0, max_ns: MINUTE_NS },
        "0s",
        "That pause: the time between two short-lived processes.",
    ),
    spec(
        "loop",
        ParamKind::Choice(&["closed", "open"]),
        "closed",
        "closed: a pause begins when the previous operation ends. open: when it began or was due.",
    ),
    spec("files", ParamKind::Count { min: 1, max: 10_000 }, "1", "Files of each thread (of all, if shared)."),
    spec("shared", ParamKind::Switch, "false", "Whether all threads use the same files."),
    spec("file_size", ParamKind::Size { min: 4096, max: 1 << 34 }, "64MiB", "Size of each file."),
    spec(
        "grow",
        ParamKind::Switch,
        "false",
        "Whether files begin empty and grow to file_size, and again from 0; otherwise they are written before.",
    ),
    spec("sequential", ParamKind::Share, "1", "Share of reads and writes that begin where the previous one ended."),
    spec("direct", ParamKind::Switch, "false", "Open files with O_DIRECT; sizes are rounded up to 4 KiB."),
    spec("data_sync", ParamKind::Switch, "false", "Open files with O_DSYNC."),
    spec("append", ParamKind::Switch, "false", "Open files with O_APPEND."),
    spec("created_max", ParamKind::Count { min: 1, max: 100_000 }, "4096", "Created files of a thread at one time."),
    spec("memory", ParamKind::Size { min: 4096, max: 1 << 32 }, "16MiB", "Memory that each thread rewrites."),
];
