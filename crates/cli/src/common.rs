//! Shared by several verbs: exit status, output, and the directory of a recording.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::message;
pub use super::message::say;
use super::stop::Stop;
use crate::status::Status;
use flatwater_explain::{Explanation, Focus};
use flatwater_recording::units::{Bytes, Nanos};
use flatwater_recording::{Limits, Recording, printable};
use flatwater_report as report;
use flatwater_safefs::{Dir, Refusal};

/// An error that the user can fix: a wrong name or value.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(String);

impl Usage {
    pub fn new(error: impl ToString) -> Usage {
        Usage(error.to_string())
    }
}

/// Prints an error with its causes and returns its exit status. A closed pipe is not an error.
pub fn report_error(error: &anyhow::Error) -> Status {
    let broken_pipe = error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    if broken_pipe.into_iter().any(|error| error.kind() == std::io::ErrorKind::BrokenPipe) {
        // The reader of the output (head, less) has closed the pipe.
        return Status::Done;
    }
    say(format_args!("flatwater: {}", message::of_error(error)));
    if error.is::<Usage>() { Status::Usage } else { Status::Failed }
}

/// A path that does not exist yet, such as `flatwater-20261121-072301` (UTC).
pub fn fresh_output() -> PathBuf {
    let name = chrono::Utc::now().format("flatwater-%Y%m%d-%H%M%S").to_string();
    let mut path = PathBuf::from(&name);
    let mut count = 1;
    while path.exists() {
        count += 1;
        path = PathBuf::from(format!("{name}-{count}"));
    }
    path
}

/// Creates the directory for a recording, or takes an empty one, readable only by its owner and by `group`.
pub fn claim_output(given: Option<PathBuf>, group: Option<&str>) -> anyhow::Result<Dir> {
    let path = given.unwrap_or_else(fresh_output);
    let group = group.map(group_id).transpose()?;
    if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
        let made = std::fs::create_dir_all(above);
        made.with_context(|| format!("cannot make {}: give another output directory with -o", above.display()))?;
    }
    Dir::claim(&path, group).map_err(|refusal| match refusal {
        Refusal::NotEmpty { .. } => anyhow::Error::new(Usage::new(refusal)),
        refusal => anyhow::Error::new(refusal).context("cannot use the output directory: give another with -o"),
    })
}

/// The id of a group, given by name or number.
fn group_id(name: &str) -> anyhow::Result<u32> {
    if let Ok(id) = name.parse() {
        return Ok(id);
    }
    let groups = std::fs::read_to_string("/etc/group").context("cannot read /etc/group: give the group's number")?;
    let found = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    });
    found.ok_or_else(|| anyhow::Error::new(Usage::new(format!("group '{name}' is not in /etc/group"))))
}

/// The formats in which a recording is printed, for clap.
fn formats() -> clap::builder::PossibleValuesParser {
    use clap::builder::PossibleValue;
    let text = report::FORMATS.iter().map(|format| (format.name, format.sentence));
    let binary = report::BINARY_FORMATS.iter().map(|format| (format.name, format.sentence));
    let values = text.chain(binary).map(|(name, about)| PossibleValue::new(name).help(about.trim_end_matches('.')));
    values.collect::<Vec<PossibleValue>>().into()
}

/// Options of how a verb prints a recording.
#[derive(Clone, Debug, clap::Args)]
pub struct Output {
    /// Format of the output.
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = formats(), alias = "output", short_alias = 'O')]
    pub format: String,
    /// Table for csv (zones, vmstat, latency, calls ...).
    #[arg(long, value_name = "TABLE")]
    pub table: Option<String>,
    /// Columns of text output, 40 to 400; by default 80.
    #[arg(long, value_name = "COLUMNS", value_parser = message::number(40_usize, 400))]
    pub width: Option<usize>,
    /// Maximum memory for the decoded tables of a recording (512MiB).
    #[arg(long, value_name = "SIZE")]
    pub max_decoded: Option<Bytes>,
    /// Judge only these calls: program=, thread=, container=, op=, file= or role= with a pattern, comma-separated; or
    /// just a name (redis-server, bio_aof, fsync, background).
    #[arg(long, value_name = "WHO")]
    pub focus: Option<Focus>,
    /// Interval of one row of sar and vmstat (5s); by default at most 120 rows.
    #[arg(long, value_name = "DURATION")]
    pub every: Option<Nanos>,
}

impl Output {
    /// Refuses a format that this verb cannot print, before any work is done.
    pub fn check(&self) -> anyhow::Result<()> {
        if report::find(&self.format).is_none() {
            let format = &self.format;
            bail!(Usage::new(format!(
                "{format} is not text: record first, then `flatwater report RECORDING --format {format} -o FILE`"
            )));
        }
        Ok(())
    }

    #[must_use]
    pub fn options(&self) -> report::Options {
        let terminal = std::io::stdout().is_terminal();
        report::Options {
            width: self.width.unwrap_or(80),
            colour: terminal && std::env::var_os("NO_COLOR").is_none(),
            table: self.table.clone(),
            interval_ns: self.every.map(|every| every.0.max(1)),
            around: None,
        }
    }

    /// Explains the recording by the calls in focus.
    #[must_use]
    pub fn explain(&self, recording: &Recording) -> Explanation {
        flatwater_explain::explain_focused(recording, self.focus.as_ref().unwrap_or(&Focus::default()))
    }

    /// Prints to standard output.
    pub fn print(&self, recording: &Recording, explanation: &Explanation) -> anyhow::Result<()> {
        let rendered = report::render(&self.format, recording, explanation, &self.options());
        let text = rendered.map_err(|error| anyhow::Error::new(Usage::new(error)))?;
        print(&text)
    }
}

/// Prints to standard output and returns errors (`println!` would panic on a closed pipe).
pub fn print(text: &str) -> anyhow::Result<()> {
    let text = printable::output(text);
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    out.flush()?;
    Ok(())
}

/// Whether this `--set` assignment selects the model's kernel.
pub fn names_model(assignment: &str) -> bool {
    assignment.split_once('=').is_some_and(|(key, _)| key.trim() == "kernel")
}

/// Names of the kernels that the simulator models.
#[cfg(feature = "sim")]
pub fn model_profiles() -> Vec<&'static str> {
    flatwater_sim::kernel::PROFILES.iter().map(|profile| profile().name).collect()
}

/// Removes settings that the model does not have from the scenario of a recording, and returns a sentence that names
/// them.
#[cfg(feature = "sim")]
pub fn left_out(scenario: &mut flatwater_workload::scenario::Scenario) -> Option<String> {
    let left = flatwater_sim::leave_out(scenario);
    (!left.is_empty())
        .then(|| format!("assumed: settings without a counterpart in the model have no effect: {}", left.join(", ")))
}

/// Reads a recording, sealed or not.
pub fn read(path: &Path) -> anyhow::Result<Recording> {
    read_within(path, None)
}

/// As `read`, with another limit for the decoded tables than the reader's own.
pub fn read_within(path: &Path, decoded: Option<Bytes>) -> anyhow::Result<Recording> {
    let limits = decoded.map_or_else(Limits::default, |bytes| Limits::of_bytes(bytes.0));
    Ok(Recording::open_with(path, limits)?)
}

const REPORT: &str = "report.html";

/// Explains a new recording, writes its report.html and prints the summary. Returns the signal's exit status if a
/// signal cut the recording short.
pub fn conclude(out: &Dir, output: &Output, stop: Option<&Stop>) -> anyhow::Result<Status> {
    // Read through the directory handle, because the path may lead elsewhere by now.
    let recording = flatwater_recording::read(&out.proc_path())?;
    let explanation = output.explain(&recording);
    let cut = stop.and_then(Stop::status).filter(|_| !recording.header.complete);
    let ended = cut.unwrap_or_else(|| Status::of(&explanation));
    let page = out.path().join(REPORT);
    let html = report::render("html", &recording, &explanation, &report::Options::default());
    let written = html.map_err(anyhow::Error::new).and_then(|html| Ok(out.replace(REPORT, html.as_bytes(), false)?));
    output.print(&recording, &explanation)?;
    if let Err(error) = written {
        // The summary is printed and the recording is complete: `report` can write the page later.
        say(format_args!(
            "flatwater: cannot write {}: {}; `flatwater report --format html -o FILE` writes it elsewhere",
            page.display(),
            message::of_error(&error)
        ));
        return Ok(ended);
    }
    let place = format!("report: {}", page.display());
    if output.format == "text" {
        print(&place)?
    } else {
        say(format_args!("{place}"))
    }
    Ok(ended)
}
