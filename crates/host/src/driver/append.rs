//! Appends through the precursor: implements `precursor = "ring"` (window, prefetch, plain, auto) on the host.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::path::Path;

use precursor::{Appender, Existing, Options};
use serde::{Deserialize, Serialize};

use flatwater_workload::FileId;

/// The method with which an actor appends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AppendMethod {
    /// With write(), as an ordinary program does.
    #[default]
    Write,
    /// With the precursor in this mode; `None` lets it choose.
    Precursor(Option<ModeName>),
}

/// A mode of the precursor as an index into `MODES`, which can be serialized in an order to a child process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModeName(usize);

const MODES: [&str; 4] = ["plain", "prefetch", "window", "ring"];

impl AppendMethod {
    /// Parses the value of the knob `precursor`.
    #[must_use]
    pub fn of_knob(value: Option<&str>) -> AppendMethod {
        match value {
            None | Some("off") => AppendMethod::Write,
            Some(name) => AppendMethod::Precursor(MODES.iter().position(|known| *known == name).map(ModeName)),
        }
    }
}

/// The precursor's figures for an actor, sent with its last batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrecursorReport {
    pub mode: String,
    /// Why this mode was chosen, and which others were not possible.
    pub reasons: Vec<String>,
    pub appends: u64,
    pub bytes: u64,
    pub late_windows: u64,
    pub waits: u64,
}

/// The files that an actor appends to through the precursor.
#[derive(Debug, Default)]
pub struct Appenders {
    method: AppendMethod,
    open: HashMap<FileId, Appender>,
    report: Option<PrecursorReport>,
}

impl Appenders {
    #[must_use]
    pub fn new(method: AppendMethod) -> Appenders {
        Appenders { method, ..Appenders::default() }
    }

    /// The appender of this file, opened before the clock starts; `None` if the method is write().
    pub fn of(&mut self, file: FileId, path: &Path) -> io::Result<Option<&mut Appender>> {
        let AppendMethod::Precursor(mode) = self.method else { return Ok(None) };
        if let Entry::Vacant(place) = self.open.entry(file) {
            let mode = mode.and_then(|name| precursor::Mode::from_name(MODES[name.0 % MODES.len()]));
            let options = Options::new(path).mode(mode).existing(Existing::Continue);
            let opened = options.open().map_err(|error| io::Error::other(error.to_string()))?;
            place.insert(opened);
        }
        Ok(self.open.get_mut(&file))
    }

    #[must_use]
    pub fn known(&self, file: FileId) -> Option<&Appender> {
        self.open.get(&file)
    }

    /// Closes one file, which truncates it to its exact length, and adds its figures to the report.
    pub fn close(&mut self, file: FileId) -> io::Result<()> {
        let Some(appender) = self.open.remove(&file) else { return Ok(()) };
        let stats = appender.stats();
        let report = self.report.get_or_insert_with(PrecursorReport::default);
        report.mode = stats.mode.name().to_owned();
        report.reasons = appender.reasons().to_vec();
        report.appends += stats.appends;
        report.bytes += stats.position;
        report.late_windows += stats.late_windows;
        report.waits += stats.waits;
        appender.close().map(|_| ()).map_err(|error| io::Error::other(error.to_string()))
    }

    /// Closes all files and returns the report.
    pub fn finish(&mut self) -> (Option<PrecursorReport>, io::Result<()>) {
        let files: Vec<FileId> = self.open.keys().copied().collect();
        let closed = files.into_iter().map(|file| self.close(file)).fold(Ok(()), io::Result::and);
        (self.report.take(), closed)
    }
}
