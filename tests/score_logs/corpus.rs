//! The corpus of published logs: `tests/corpus/corpus.toml` and the files beside it.

use std::path::{Path, PathBuf};

use serde::Deserialize;

/// One published log: a paste of one or more files, and its cause.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    pub name: String,
    pub files: Vec<String>,
    pub formats: Vec<String>,
    pub source: String,
    pub cause: String,
    #[serde(default)]
    pub also: Vec<String>,
    pub confirmed: String,
    /// Logs that were added together form a batch. Each batch was scored once before any rule was changed for it.
    #[serde(default = "first_batch")]
    pub batch: u32,
    /// Peculiarities of the format, for readers.
    #[serde(default)]
    pub notes: String,
}

fn first_batch() -> u32 {
    1
}

/// Batches that were first scored without being seen, and then read completely.
const READ_WHOLE: std::ops::RangeInclusive<u32> = 6..=21;

/// Tools of averages, counters and levels, whose figures do not show a stall of 40 ms.
const AVERAGES: &[&str] = &[
    "atop",
    "biotop",
    "cachestat",
    "cgroup",
    "cgroup-files",
    "collectl",
    "docker-stats",
    "dstat",
    "filetop",
    "free",
    "iostat",
    "iotop",
    "kubectl-top",
    "loadavg",
    "loads",
    "meminfo",
    "mpstat",
    "nfsiostat",
    "nmon",
    "node-exporter",
    "pcp",
    "pg-test-fsync",
    "pidstat",
    "pressure",
    "proc-pid",
    "proc-vmstat",
    "ps",
    "sar",
    "settings",
    "slabinfo",
    "slabtop",
    "sysctl",
    "top",
    "vfsstat",
    "vmstat",
    "vmstat-modes",
];

#[derive(Debug, Deserialize)]
struct Corpus {
    log: Vec<Log>,
}

/// The kind of answer that a log requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A cause in the catalogue.
    Cause,
    /// Nothing in the log explains a stalled write.
    Quiet,
    /// A cause outside the catalogue.
    Other,
    /// The log does not show the cause.
    NotEnough,
}

/// The half of the corpus that a log belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// For writing rules.
    Work,
    /// For scoring only; its logs are not read individually.
    Held,
}

impl Part {
    pub fn name(self) -> &'static str {
        match self {
            Part::Work => "work",
            Part::Held => "held",
        }
    }
}

impl Log {
    pub fn kind(&self) -> Kind {
        match self.cause.as_str() {
            "quiet" => Kind::Quiet,
            "not-enough" => Kind::NotEnough,
            cause if cause.starts_with("other:") => Kind::Other,
            _ => Kind::Cause,
        }
    }

    /// Whether the log holds averages, counters and levels only.
    pub fn is_of_averages(&self) -> bool {
        self.formats.iter().all(|format| AVERAGES.contains(&format.as_str()))
    }

    /// Whether the log is quiet or has a cause outside the catalogue.
    pub fn is_control(&self) -> bool {
        matches!(self.kind(), Kind::Quiet | Kind::Other)
    }

    /// The half: the parity of the name's 64-bit FNV-1a hash, so that it does not depend on results. Batches whose
    /// failures were all read while rules were changed belong to `Work`.
    pub fn part(&self) -> Part {
        if READ_WHOLE.contains(&self.batch) {
            return Part::Work;
        }
        let hash = self
            .name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        if hash % 2 == 0 { Part::Work } else { Part::Held }
    }

    pub fn paths(&self) -> Vec<PathBuf> {
        self.files.iter().map(|file| folder().join("logs").join(file)).collect()
    }

    /// The text of all files, concatenated.
    pub fn text(&self) -> String {
        self.paths().iter().map(|path| std::fs::read_to_string(path).expect("a log of the corpus")).collect()
    }
}

pub fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus"))
}

pub fn read() -> Vec<Log> {
    let path = folder().join("corpus.toml");
    let text = std::fs::read_to_string(&path).expect("tests/corpus/corpus.toml");
    let corpus: Corpus = toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    corpus.log
}
