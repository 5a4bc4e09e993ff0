//! Report: a recording and its explanation, printed. One file per format; each is a pure function.
//!
//! Nothing here computes a conclusion: findings and causes come from the explanation. Missing values are printed as
//! missing (`-`, an empty cell, the gap's reason), never as 0.

pub mod agree;
pub mod chart;
mod counters;
pub mod csv;
mod facts;
pub mod folded;
pub mod free;
pub mod html;
mod imported;
pub mod json;
mod numbers;
pub mod perfetto;
mod quantiles;
mod rows;
pub mod sar;
mod tables;
pub mod text;
pub mod versus;
mod victims;
pub mod vmstat;
pub mod whatif;

use flatwater_explain::Explanation;
use flatwater_recording::Recording;

/// How to print; formats ignore what does not concern them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Columns of the terminal, for `text`.
    pub width: usize,
    /// ANSI colours, for `text`.
    pub colour: bool,
    /// Which table, for `csv`; which layout (`old`, `new`), for `free`.
    pub table: Option<String>,
    /// Length of one row of `sar` and `vmstat`, ns; absent lets them choose by the recording's length.
    pub interval_ns: Option<u64>,
    /// Only what is near the call of this rank by length (1 is the slowest), for `perfetto`.
    pub around: Option<usize>,
}

impl Default for Options {
    fn default() -> Options {
        Options { width: 80, colour: false, table: None, interval_ns: None, around: None }
    }
}

type Render = fn(&Recording, &Explanation, &Options) -> Result<String, ReportError>;

/// A line of the registry.
#[derive(Clone, Copy)]
pub struct Format {
    pub name: &'static str,
    pub sentence: &'static str,
    pub render: Render,
}

impl std::fmt::Debug for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Format").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Every format there is. Adding one is its file and its line here.
pub const FORMATS: &[Format] =
    &[text::FORMAT, json::FORMAT, html::FORMAT, csv::FORMAT, folded::FORMAT, sar::FORMAT, vmstat::FORMAT, free::FORMAT];

/// A format whose output is no text.
#[derive(Clone, Copy)]
pub struct BinaryFormat {
    pub name: &'static str,
    pub sentence: &'static str,
    pub render: fn(&Recording, &Explanation, &Options) -> Result<Vec<u8>, ReportError>,
}

impl std::fmt::Debug for BinaryFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BinaryFormat").field("name", &self.name).finish_non_exhaustive()
    }
}

pub const BINARY_FORMATS: &[BinaryFormat] = &[perfetto::FORMAT];

/// The binary format of this name.
#[must_use]
pub fn find_binary(name: &str) -> Option<&'static BinaryFormat> {
    BINARY_FORMATS.iter().find(|format| format.name == name)
}

/// Why a report could not be printed, and what to ask for instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    #[error("there is no format '{given}'; choose one of {}", names(FORMATS.iter().map(|format| format.name).chain(BINARY_FORMATS.iter().map(|format| format.name))))]
    UnknownFormat { given: String },
    #[error("csv prints one table: name it with --table; this recording holds {}", names(.held.iter().copied()))]
    TableNeeded { held: Vec<&'static str> },
    #[error("there is no table '{given}'; choose one of {}", names(.known.iter().copied()))]
    UnknownTable { given: String, known: Vec<&'static str> },
    #[error("table '{table}' is not in this recording: {why}; it holds {}", names(.held.iter().copied()))]
    TableMissing { table: &'static str, why: String, held: Vec<&'static str> },
    #[error("{format} needs {needs}, which is not in this recording: {why}")]
    NotEnough { format: &'static str, needs: &'static str, why: String },
}

fn names<'a>(list: impl Iterator<Item = &'a str>) -> String {
    let list: Vec<&str> = list.collect();
    if list.is_empty() { "no table at all".to_owned() } else { list.join(", ") }
}

/// The format of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Format> {
    FORMATS.iter().find(|format| format.name == name)
}

/// Prints a recording and its explanation in the format of this name.
pub fn render(
    format: &str,
    recording: &Recording,
    explanation: &Explanation,
    options: &Options,
) -> Result<String, ReportError> {
    let found = find(format).ok_or_else(|| ReportError::UnknownFormat { given: format.to_owned() })?;
    (found.render)(recording, explanation, options)
}
