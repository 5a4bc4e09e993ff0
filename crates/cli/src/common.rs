//! Shared by several verbs: exit status, output, and the directory of a recording.

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

/// Exit status for a mistake on the command line or in a scenario file; `clap` uses the same.
pub const EXIT_USAGE: u8 = 2;

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
pub fn tell(error: &anyhow::Error) -> ExitCode {
    let broken_pipe = error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    if broken_pipe.into_iter().any(|error| error.kind() == std::io::ErrorKind::BrokenPipe) {
        // The reader of the output (head, less) has closed the pipe.
        return ExitCode::SUCCESS;
    }
    say(format_args!("flatwater: {error:#}"));
    if error.is::<Usage>() { ExitCode::from(EXIT_USAGE) } else { ExitCode::FAILURE }
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

/// Options of how a verb prints a recording.
#[derive(Clone, Debug, clap::Args)]
pub struct Output {
    /// Format of the output.
    #[arg(short = 'O', long = "output", value_name = "FORMAT", default_value = "text")]
    pub format: String,
    /// Table for csv (zones, vmstat, latency, calls ...).
    #[arg(long, value_name = "TABLE")]
    pub table: Option<String>,
    /// Columns of text output, 40 to 400; by default 80.
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

/// Prints a line to standard error. The run continues if the reader is gone (`2>&1 | head`), where `eprintln!` would
/// panic.
pub fn say(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{}", printable::output(&line.to_string()));
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
    let recording = Recording::open_with(path, limits);
    recording.with_context(|| format!("cannot read the recording {}", path.display()))
}

const REPORT: &str = "report.html";

/// Exit status for scripts: 4 if too little was observed for a conclusion, else 0.
pub fn status(explanation: &Explanation) -> ExitCode {
    match explanation.conclusion {
        Conclusion::NotObserved | Conclusion::NotEnough => ExitCode::from(4),
        _ => ExitCode::SUCCESS,
    }
}

/// Explains a new recording, writes its report.html and prints the summary. Returns the signal's exit status if a
/// signal cut the recording short.
pub fn conclude(out: &Dir, output: &Output, stop: Option<&Stop>) -> anyhow::Result<ExitCode> {
    // Read through the directory handle, because the path may lead elsewhere by now.
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
        // The summary is printed and the recording is complete: `report` can write the page later.
        say(format_args!(
            "flatwater: cannot write {}: {error:#}; `flatwater report -O html -o FILE` writes it elsewhere",
            page.display()
        ));
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
