//! The command `flatwater`: one verb per file, no computation.
//!
//! Each verb has `Args` (whose doc comments are the help texts) and `run`, which returns the exit status: 0 done, 1
//! failed, 2 a mistake of the user; `docs/command-line.md` lists the others. `common` has what several verbs share,
//! `stop` the signals, `progress` the progress bar, and `guest` is process 1 of a vm.

#[cfg(feature = "sim")]
mod agree;
mod causes;
mod check;
mod common;
mod compare;
mod completions;
mod explain;
mod guest;
mod import;
mod kernels;
mod model;
mod precursor;
mod progress;
mod record;
mod report;
mod restore;
mod run;
mod scenarios;
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

use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
    /// Write a recording's summary: a few rows for fleet queries.
    Summary(summary::Args),
    /// Judge whether recording B is better than A: intervals and a verdict.
    Compare(compare::Args),
    /// Measure how far recordings of one scenario agree: host, vm and simulator.
    #[cfg(feature = "sim")]
    Agree(agree::Args),
    /// Prove that a fix helps, by interleaved runs with and without it.
    Verify(verify::Args),
    /// List the built-in scenarios, print one, list knobs and workloads.
    Scenarios(scenarios::Args),
    /// Restore settings that killed runs changed.
    Restore(restore::Args),
    /// Try settings on the simulator; prints a table and the best choice.
    #[cfg(feature = "sim")]
    Whatif(whatif::Args),
    /// Fetch kernels for `run --on vm`, or run a command in a guest.
    Vm(vm::Args),
    /// Prepare the file of a running program ahead of the writes: blocks and locked pages.
    Precursor(precursor::Args),
    /// Print shell completions or the manual page.
    Completions(completions::Args),
    /// Perform one actor of a workload in a separate process.
    #[command(name = "__actor", hide = true)]
    Actor,
}

/// The clap definition of the command, for completions, the manual page and tests.
#[must_use]
pub fn command() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
}

/// Runs the command that the process was started with.
#[must_use]
pub fn main() -> ExitCode {
    if flatwater_vm::guest::is_guest() {
        guest::main();
    }
    let cli = Cli::parse();
    let done = match cli.verb {
        Verb::Run(args) => run::run(args),
        Verb::Record(args) => record::run(args),
        #[cfg(feature = "watch")]
        Verb::Watch(args) => watch::run(&args),
        #[cfg(feature = "top")]
        Verb::Top(args) => top::run(&args),
        Verb::Import(args) => import::run(args),
        Verb::Explain(args) => explain::run(&args),
        Verb::Check(args) => check::run(&args),
        Verb::Causes(args) => causes::run(&args),
        Verb::Report(args) => report::run(&args),
        Verb::Summary(args) => summary::run(&args),
        Verb::Compare(args) => compare::run(&args),
        #[cfg(feature = "sim")]
        Verb::Agree(args) => agree::run(&args),
        Verb::Verify(args) => verify::run(&args),
        Verb::Scenarios(args) => scenarios::run(&args),
        Verb::Restore(args) => restore::run(&args),
        #[cfg(feature = "sim")]
        Verb::Whatif(args) => whatif::run(&args),
        Verb::Vm(args) => vm::run(&args),
        Verb::Precursor(args) => precursor::run(&args),
        Verb::Completions(args) => completions::run(&args),
        Verb::Actor => flatwater_host::driver::process::serve().map(|()| ExitCode::SUCCESS).map_err(Into::into),
    };
    done.unwrap_or_else(|error| common::tell(&error))
}
