//! The corpus of published logs: `tests/corpus/corpus.toml` and the files beside it.

use std::path::{Path, PathBuf};

use serde::Deserialize;

/// One published log: a paste, in one or several files, and what was the matter.
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
    /// Logs that came together are one batch; each batch was scored once before anybody mended a rule for it.
    #[serde(default = "first_batch")]
    pub batch: u32,
    /// What is odd about the format; for people only.
    #[serde(default)]
    pub notes: String,
}

fn first_batch() -> u32 {
    1
}

/// Scored cold as wholes, then read as wholes.
const READ_WHOLE: std::ops::RangeInclusive<u32> = 6..=21;

#[derive(Debug, Deserialize)]
struct Corpus {
    log: Vec<Log>,
}

/// What a log's cause asks of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A cause of the catalogue.
    Cause,
    /// Nothing in the log explains a stalled write.
    Quiet,
    /// The cause lies outside the catalogue.
    Other,
    /// Nobody could say from this log.
    NotEnough,
}

/// The half that a log belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// To work with.
    Work,
    /// To score only; nobody reads its logs one by one.
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

    /// Quiet logs and those whose cause is none of ours.
    pub fn is_control(&self) -> bool {
        matches!(self.kind(), Kind::Quiet | Kind::Other)
    }

    /// FNV-1a, 64 bits, of the name, modulo 2: fixed before anybody has seen a result. Batches whose every failure was read
    /// while rules were mended are to work with, all of them.
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

    /// All files, one after another.
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
