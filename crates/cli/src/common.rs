//! What several verbs share: exit status, signals, output, where a recording goes.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};

use flatwater_explain::{Conclusion, Explanation};
use flatwater_recording::Recording;
use flatwater_recording::units::Nanos;
use flatwater_report as report;

/// Exit status for what the user got wrong on the command line or in a scenario file; `clap` uses the same.
pub const EXIT_USAGE: u8 = 2;

/// An error that is the user's to mend: wrong names, wrong values.
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

/// The first SIGINT or SIGTERM raises the flag, so that the run ends with a summary; the second ends the
/// process at once, after `at_once` has put back what must be put back.
pub fn stop_on_signal(at_once: impl Fn() + Send + 'static) -> anyhow::Result<Arc<AtomicBool>> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let stop = Arc::new(AtomicBool::new(false));
    let raised = stop.clone();
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot watch signals")?;
    std::thread::Builder::new().name("fw-signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            if raised.swap(true, Ordering::SeqCst) {
                say(format_args!("flatwater: stopping at once; what was recorded until now can be explained"));
                at_once();
                std::process::exit(128 + signal);
            }
            say(format_args!("flatwater: ending; a second signal stops at once"));
        }
    })?;
    Ok(stop)
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

/// The directory for a recording: must not hold anything that we would overwrite.
pub fn claim_output(given: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let path = given.unwrap_or_else(fresh_output);
    match std::fs::read_dir(&path) {
        Ok(mut entries) => {
            if entries.next().is_some() {
                bail!(Usage::new(format!("{} is not empty: give another -o, or remove it first", path.display())));
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let made = std::fs::create_dir_all(&path);
            made.with_context(|| format!("cannot make the output directory {}: give another with -o", path.display()))?;
        }
        Err(error) => {
            return Err(error).with_context(|| format!("cannot use {} as output directory", path.display()));
        }
    }
    Ok(path)
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
    /// Time that one row of sar and vmstat covers (5s); by default at most 120 rows.
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
        }
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
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    out.flush()?;
    Ok(())
}

/// A line on standard error. Where nobody reads that any more (`2>&1 | head`) the run goes on: `eprintln!` would panic.
pub fn say(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The kernels that the simulator knows by name.
pub fn model_profiles() -> Vec<&'static str> {
    flatwater_sim::kernel::PROFILES.iter().map(|profile| profile().name).collect()
}

/// Reads a recording, sealed or not.
pub fn read(path: &Path) -> anyhow::Result<Recording> {
    flatwater_recording::read(path).with_context(|| format!("cannot read the recording {}", path.display()))
}

/// What scripts need to know of an explanation: 0, or 4 where nothing was observed, so that nothing can be said.
pub fn status(explanation: &Explanation) -> ExitCode {
    match explanation.conclusion {
        Conclusion::NotObserved => ExitCode::from(4),
        _ => ExitCode::SUCCESS,
    }
}

/// Explains a fresh recording, writes its report.html and prints the summary.
pub fn conclude(out: &Path, output: &Output) -> anyhow::Result<ExitCode> {
    let recording = read(out)?;
    let explanation = flatwater_explain::explain(&recording);
    let page = out.join("report.html");
    let html = report::render("html", &recording, &explanation, &report::Options::default());
    let written = html.map_err(anyhow::Error::new).and_then(|html| Ok(std::fs::write(&page, html)?));
    output.print(&recording, &explanation)?;
    written.with_context(|| format!("cannot write {}", page.display()))?;
    let told = format!("report: {}", page.display());
    if output.format == "text" {
        print(&told)?
    } else {
        say(format_args!("{told}"))
    }
    Ok(status(&explanation))
}
