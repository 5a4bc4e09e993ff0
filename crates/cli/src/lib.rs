//! The command `flatwater`: one verb per file, no computation.
//!
//! Each verb has `Args` (whose doc comments are the help texts) and `run`, which returns a [`status::Status`]. `pages`
//! has each verb's task, examples and exit statuses, from which `help` makes help texts and `manual` makes manual pages
//! and the reference in docs/command-line.md. `common` has what several verbs share, `message` the form of messages,
//! `stop` the signals, `progress` the progress bar, and `guest` is process 1 of a vm.

mod causes;
mod check;
mod common;
mod compare;
mod completions;
mod explain;
#[cfg(feature = "watch")]
mod guard;
mod guest;
mod help;
mod import;
mod kernels;
#[cfg(feature = "watch")]
mod lease;
mod manual;
mod message;
mod model;
mod other_kernel;
mod pages;
mod precursor;
mod precursor_read;
mod probe;
mod progress;
mod record;
mod report;
mod reproduce;
mod restore;
mod run;
mod scenarios;
mod status;
mod stop;
mod summary;
#[cfg(feature = "top")]
mod top;
mod verify;
mod vm;
#[cfg(feature = "watch")]
mod watch;
#[cfg(feature = "sim")]
mod whatif;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{FromArgMatches, Parser, Subcommand};

use status::Status;

/// Finds slow file calls, shows where their time went, names the cause and proves the fix.
#[derive(Debug, Parser)]
#[command(name = "flatwater", version, max_term_width = 80, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Perform a scenario, record it, explain it and write a report.
    Run(run::Args),
    /// Record running programs, or a command, and explain their stalls.
    Record(record::Args),
    /// Run as a daemon: keep the last minute in memory, write a recording when a stall occurs, serve metrics.
    #[cfg(feature = "watch")]
    Watch(watch::Args),
    /// List what the daemon's guard advises and limits; end a limit.
    #[cfg(feature = "watch")]
    Guard(guard::Args),
    /// Show who waits and who makes them wait, now: one screen, from the running daemon or by tracing directly.
    #[cfg(feature = "top")]
    Top(top::Args),
    /// Explain existing logs (vmstat, sar, free, traces, kernel logs ...), or convert them to a recording.
    Import(import::Args),
    /// Explain a recording (also an unfinished or damaged one), or logs that `import` reads.
    Explain(explain::Args),
    /// Show which causes can be observed on this host, and which settings risk stalls; changes nothing.
    Check(check::Args),
    /// Describe the causes: mechanism, signature, fix, proof.
    Causes(causes::Args),
    /// Print a recording as text, HTML, JSON, csv, sar, vmstat, free, folded stacks or a Perfetto trace.
    Report(report::Args),
    /// Write a scenario, and jobs for fio, that imitate a recording of programs; run and compare it.
    Reproduce(reproduce::Args),
    /// Write a recording's summary: a few rows for fleet queries.
    Summary(summary::Args),
    /// Judge whether recording B is better than A: intervals and a verdict.
    Compare(compare::Args),
    /// Prove that a fix helps, by interleaved runs with and without it.
    Verify(verify::Args),
    /// List the built-in scenarios, print one, list knobs and workloads.
    Scenarios(scenarios::Args),
    /// Measure what a neighbour can do to the files of a directory: isolated, degraded or severe, and by which means.
    Probe(probe::Args),
    /// Restore settings that killed runs changed.
    Restore(restore::Args),
    /// Try settings on a model of the kernel; prints a table and the best choice.
    #[cfg(feature = "sim")]
    Whatif(whatif::Args),
    /// Fetch kernels for `run --on vm`, or run a command in a guest.
    Vm(vm::Args),
    /// Prepare the file of a running program ahead of the writes, or print the records of the library's files.
    Precursor(precursor::Args),
    /// Print shell completions or manual pages.
    Completions(completions::Args),
    /// Perform one actor of a workload in a separate process.
    #[command(name = "__actor", hide = true)]
    Actor,
    /// Hold the guard's limit, and remove it if the daemon dies.
    #[cfg(feature = "watch")]
    #[command(name = "__lease", hide = true)]
    Lease,
    /// Perform one part of a probe in a separate process.
    #[command(name = flatwater_probe::CHILD_VERB, hide = true)]
    ProbeChild,
}

/// The clap definition of the command, for completions, the manual page and tests.
#[must_use]
pub fn command() -> clap::Command {
    help::decorated(<Cli as clap::CommandFactory>::command())
}

/// The reference part of docs/command-line.md, which `flatwater completions markdown` prints.
#[must_use]
pub fn reference() -> String {
    manual::reference(command())
}

/// Warns of options that have another name now. They will be removed in 0.4.
fn warn_of_old_options(words: &[OsString]) {
    const OLD: [(&str, &str); 3] = [("-O", "--format"), ("--output", "--format"), ("--to", "--out")];
    let own = words.iter().skip(1).take_while(|word| *word != "--").filter_map(|word| word.to_str());
    let own: Vec<&str> = own.collect();
    for (old, new) in OLD {
        let is_old = |word: &&str| match old {
            "-O" => word.starts_with(old),
            _ => *word == old || word.strip_prefix(old).is_some_and(|rest| rest.starts_with('=')),
        };
        if own.iter().any(is_old) {
            common::say(format_args!("flatwater: {old} is now {new}; the old name will be removed in 0.4"));
        }
    }
}

/// Parses the command line. `Err` has the exit status if the process has nothing more to do.
fn parsed() -> Result<Cli, Status> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let mut command = command();
    let parsed = command.try_get_matches_from_mut(&words).and_then(|found| Cli::from_arg_matches(&found));
    match parsed {
        Ok(cli) => {
            warn_of_old_options(&words);
            Ok(cli)
        }
        // Help and version; without any word, the verbs.
        Err(error) if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let status = if error.use_stderr() { Status::Usage } else { Status::Done };
            Err(error.print().map_or_else(|error| common::report_error(&error.into()), |()| status))
        }
        Err(error) => {
            // A verb without the old name refuses it.
            if error.kind() != ErrorKind::UnknownArgument {
                warn_of_old_options(&words);
            }
            let verb = words.get(1).and_then(|word| word.to_str()).filter(|verb| pages::of(verb).is_some());
            common::say(format_args!("flatwater: {}", message::of_clap(&error, verb)));
            Err(Status::Usage)
        }
    }
}

/// Runs the command that the process was started with.
#[must_use]
pub fn main() -> ExitCode {
    if flatwater_vm::guest::is_guest() {
        guest::main();
    }
    let cli = match parsed() {
        Ok(cli) => cli,
        Err(status) => return status.into(),
    };
    let done = match cli.verb {
        Verb::Run(args) => run::run(args),
        Verb::Record(args) => record::run(args),
        #[cfg(feature = "watch")]
        Verb::Watch(args) => watch::run(&args),
        #[cfg(feature = "watch")]
        Verb::Guard(args) => guard::run(&args),
        #[cfg(feature = "watch")]
        Verb::Lease => lease::run(),
        #[cfg(feature = "top")]
        Verb::Top(args) => top::run(&args),
        Verb::Import(args) => import::run(args),
        Verb::Explain(args) => explain::run(&args),
        Verb::Check(args) => check::run(&args),
        Verb::Causes(args) => causes::run(&args),
        Verb::Report(args) => report::run(&args),
        Verb::Reproduce(args) => reproduce::run(&args),
        Verb::Summary(args) => summary::run(&args),
        Verb::Compare(args) => compare::run(&args),
        Verb::Verify(args) => verify::run(&args),
        Verb::Scenarios(args) => scenarios::run(&args),
        Verb::Probe(args) => probe::run(&args),
        Verb::Restore(args) => restore::run(&args),
        #[cfg(feature = "sim")]
        Verb::Whatif(args) => whatif::run(&args),
        Verb::Vm(args) => vm::run(&args),
        Verb::Precursor(args) => precursor::run(&args),
        Verb::Completions(args) => completions::run(&args),
        Verb::ProbeChild => flatwater_probe::child::serve().map(|()| Status::Done).map_err(Into::into),
        Verb::Actor => flatwater_host::driver::process::serve().map(|()| Status::Done).map_err(Into::into),
    };
    done.unwrap_or_else(|error| common::report_error(&error)).into()
}
