//! Prints a recording and its explanation. Each format is one file with a pure function; [`FORMATS`] and
//! [`BINARY_FORMATS`] list them, [`render`] finds one by name.
//!
//! This crate draws no conclusions: findings and causes come from the [`Explanation`]. A missing value is printed as
//! missing (`-`, an empty cell, the reason of the gap), never as 0.
//!
//! - [`text`] prints the summary for a terminal, [`html`] a self-contained page with charts, [`json`] the explanation.
//! - [`csv`], [`folded`], [`sar`], [`vmstat`], [`free`] and [`perfetto`] print tables, stacks and traces for other
//!   tools.
//! - [`chart`] draws an SVG of a recording; [`agree`], [`versus`] and [`whatif`] print the results of experiments.

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
pub mod reproduction;
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

/// Options of all formats. A format ignores options that do not apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Columns of the terminal, for `text`.
    pub width: usize,
    /// ANSI colours, for `text`.
    pub colour: bool,
    /// The table, for `csv`; the layout (`old`, `new`), for `free`.
    pub table: Option<String>,
    /// Interval of one row of `sar` and `vmstat`, ns; if absent, it follows from the length of the recording.
    pub interval_ns: Option<u64>,
    /// Only the time around the N-th slowest call (1 is the slowest), for `perfetto`.
    pub around: Option<usize>,
}

impl Default for Options {
    fn default() -> Options {
        Options { width: 80, colour: false, table: None, interval_ns: None, around: None }
    }
}

type Render = fn(&Recording, &Explanation, &Options) -> Result<String, ReportError>;

/// A text format: its name, description and function.
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

/// All text formats. A new format needs its file and an entry here.
pub const FORMATS: &[Format] =
    &[text::FORMAT, json::FORMAT, html::FORMAT, csv::FORMAT, folded::FORMAT, sar::FORMAT, vmstat::FORMAT, free::FORMAT];

/// A format whose output is not text.
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

/// Why a report cannot be printed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    #[error("'{given}' is not a format; choose one of {}", names(FORMATS.iter().map(|format| format.name).chain(BINARY_FORMATS.iter().map(|format| format.name))))]
    UnknownFormat { given: String },
    #[error("csv prints one table: name it with --table; this recording holds {}", names(.held.iter().copied()))]
    TableNeeded { held: Vec<&'static str> },
    #[error("'{given}' is not a table; choose one of {}", names(.known.iter().copied()))]
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

/// The text format of this name.
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

#[cfg(test)]
mod tests {
    use super::{BINARY_FORMATS, FORMATS, Options};
    use flatwater_explain::testing::extreme;

    #[test]
    fn no_recorded_number_makes_a_format_panic() {
        for seed in 0..150 {
            let recording = extreme(seed);
            let explanation = flatwater_explain::explain(&recording);
            let options = Options { around: Some(1), table: Some("new".to_owned()), ..Options::default() };
            for options in [Options::default(), options] {
                for format in FORMATS {
                    let rendered =
                        std::panic::catch_unwind(|| (format.render)(&recording, &explanation, &options).is_ok());
                    assert!(rendered.is_ok(), "{} of seed {seed}", format.name);
                    assert!(format.name != "text" || rendered.is_ok_and(|printed| printed), "text prints anything");
                }
                for format in BINARY_FORMATS {
                    let rendered =
                        std::panic::catch_unwind(|| (format.render)(&recording, &explanation, &options).is_ok());
                    assert!(rendered.is_ok(), "{} of seed {seed}", format.name);
                }
            }
        }
    }
}
