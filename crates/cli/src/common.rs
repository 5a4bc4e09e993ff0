//! What several verbs share: exit status, output, where a recording goes.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};

use super::stop::Stop;
use flatwater_explain::{Conclusion, Explanation, Focus};
use flatwater_recording::store::Limits;
use flatwater_recording::units::{Bytes, Nanos};
use flatwater_recording::{Recording, printable};
use flatwater_report as report;
use flatwater_safefs::{Dir, Refusal};

/// Exit status for what the user got wrong on the command line or in a scenario file; `clap` uses the same.
pub const EXIT_USAGE: u8 = 2;

/// An error for the user to fix: wrong names, wrong values.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(String);

impl Usage {
    pub fn new(error: impl ToString) -> Usage {
        Usage(error.to_string())
    }
}

/// Prints an error with its causes and turns it into an exit status.
pub fn tell(error: &anyhow::Error) -> ExitCode {
    let broken_pipe = error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    if broken_pipe.into_iter().any(|error| error.kind() == std::io::ErrorKind::BrokenPipe) {
        // The reader of our output (head, less) has seen enough.
        return ExitCode::SUCCESS;
    }
    say(format_args!("flatwater: {error:#}"));
    if error.is::<Usage>() { ExitCode::from(EXIT_USAGE) } else { ExitCode::FAILURE }
}

/// `flatwater-20261121-072301`, in UTC, not yet existing.
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

/// The directory for a recording, made or empty, ours alone; `group` may read what is put there.
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

/// The number of a group, by name or number.
fn group_id(name: &str) -> anyhow::Result<u32> {
    if let Ok(id) = name.parse() {
        return Ok(id);
    }
    let groups = std::fs::read_to_string("/etc/group").context("cannot read /etc/group: give the group's number")?;
    let found = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    });
    found.ok_or_else(|| anyhow::Error::new(Usage::new(format!("there is no group '{name}' in /etc/group"))))
}

/// How a verb prints.
#[derive(Clone, Debug, clap::Args)]
pub struct Output {
    /// Format of the output.
    #[arg(short = 'O', long = "output", value_name = "FORMAT", default_value = "text")]
    pub format: String,
    /// Table for csv (zones, vmstat, latency, calls ...).
    #[arg(long, value_name = "TABLE")]
    pub table: Option<String>,
    /// Columns of text output; the terminal's, at most 100, by default 80.
    #[arg(long, value_name = "COLUMNS")]
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
    /// Refuses an unknown format before any work is done.
    pub fn check(&self) -> anyhow::Result<()> {
        if report::find(&self.format).is_none() {
            bail!(Usage::new(report::ReportError::UnknownFormat { given: self.format.clone() }));
        }
        Ok(())
    }

    #[must_use]
    pub fn options(&self) -> report::Options {
        let terminal = std::io::stdout().is_terminal();
        report::Options {
            width: self.width.unwrap_or(80).clamp(40, 400),
            colour: terminal && std::env::var_os("NO_COLOR").is_none(),
            table: self.table.clone(),
            interval_ns: self.every.map(|every| every.0.max(1)),
            around: None,
        }
    }

    /// What the recording comes to, of the calls in focus.
    #[must_use]
    pub fn explain(&self, recording: &Recording) -> Explanation {
        flatwater_explain::explain_focused(recording, self.focus.as_ref().unwrap_or(&Focus::default()))
    }

    /// Renders to standard output.
    pub fn print(&self, recording: &Recording, explanation: &Explanation) -> anyhow::Result<()> {
        let rendered = report::render(&self.format, recording, explanation, &self.options());
        let text = rendered.map_err(|error| anyhow::Error::new(Usage::new(error)))?;
        print(&text)
    }
}

/// Writes to standard output, errors included (`println!` would panic on a closed pipe).
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

/// A line on standard error. Where nobody reads that any more (`2>&1 | head`) the run continues: `eprintln!` would
/// panic.
pub fn say(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{}", printable::output(&line.to_string()));
}

/// Whether this `--set` chooses the model's kernel.
pub fn names_model(assignment: &str) -> bool {
    assignment.split_once('=').is_some_and(|(key, _)| key.trim() == "kernel")
}

/// The kernels that the simulator knows by name.
#[cfg(feature = "sim")]
pub fn model_profiles() -> Vec<&'static str> {
    flatwater_sim::kernel::PROFILES.iter().map(|profile| profile().name).collect()
}

/// Removes the settings that the model does not have from a recorded machine's scenario, and names them.
#[cfg(feature = "sim")]
pub fn left_out(scenario: &mut flatwater_workload::scenario::Scenario) -> Option<String> {
    let left = flatwater_sim::leave_out(scenario);
    (!left.is_empty())
        .then(|| format!("assumed: settings that the model does not have make no difference: {}", left.join(", ")))
}

/// Reads a recording, sealed or not.
pub fn read(path: &Path) -> anyhow::Result<Recording> {
    read_within(path, None)
}

/// The same, with another bound on what may be decoded than the reader's own.
pub fn read_within(path: &Path, decoded: Option<Bytes>) -> anyhow::Result<Recording> {
    let limits = decoded.map_or_else(Limits::default, |bytes| Limits::of_bytes(bytes.0));
    let recording = Recording::open_with(path, limits);
    recording.with_context(|| format!("cannot read the recording {}", path.display()))
}

const REPORT: &str = "report.html";

/// What scripts need to know of an explanation: 0, or 4 where too little was observed for anything to be said.
pub fn status(explanation: &Explanation) -> ExitCode {
    match explanation.conclusion {
        Conclusion::NotObserved | Conclusion::NotEnough => ExitCode::from(4),
        _ => ExitCode::SUCCESS,
    }
}

/// Explains a fresh recording, writes its report.html and prints the summary. Where a signal cut it short, its status is
/// the signal's.
pub fn conclude(out: &Dir, output: &Output, stop: Option<&Stop>) -> anyhow::Result<ExitCode> {
    // By the handle: what was recorded, whatever stands at its path now.
    let recording = flatwater_recording::read(&out.proc_path());
    let recording = recording.with_context(|| format!("cannot read the recording {}", out.path().display()))?;
    let explanation = output.explain(&recording);
    let cut = stop.and_then(Stop::status).filter(|_| !recording.header.complete);
    let ended = cut.unwrap_or_else(|| status(&explanation));
    let page = out.path().join(REPORT);
    let html = report::render("html", &recording, &explanation, &report::Options::default());
    let written = html.map_err(anyhow::Error::new).and_then(|html| Ok(out.replace(REPORT, html.as_bytes(), false)?));
    output.print(&recording, &explanation)?;
    if let Err(error) = written {
        // The summary is printed and the recording stands: a page that did not fit on the disk is made by `report` later.
        say(format_args!("flatwater: no {}: {error:#}; `flatwater report -O html` makes it elsewhere", page.display()));
        return Ok(ended);
    }
    let told = format!("report: {}", page.display());
    if output.format == "text" {
        print(&told)?
    } else {
        say(format_args!("{told}"))
    }
    Ok(ended)
}
