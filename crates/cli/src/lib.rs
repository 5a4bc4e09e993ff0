//! The command line: one verb per file, no logic. Exit status 0 done, 1 could not, 2 usage; `compare` and
//! `verify` 3 when the difference is not proven.

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
mod precursor;
mod progress;
mod record;
mod report;
mod restore;
mod run;
mod scenarios;
mod stop;
mod summary;
mod verify;
mod vm;
mod watch;
mod whatif;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Finds the slow write(), says where its time went, names the cause and proves the fix.
#[derive(Debug, Parser)]
#[command(name = "flatwater", version, max_term_width = 80, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Perform a scenario, record the kernel around it, explain and report.
    Run(run::Args),
    /// Watch programs that exist already, or a command, and explain.
    Record(record::Args),
    /// Always on: keeps the last minute, seals a recording when a stall comes, gives metrics.
    Watch(watch::Args),
    /// Make a recording of logs you already have (vmstat, sar, free, traces, kernel logs ...), and explain it.
    Import(import::Args),
    /// Explain a recording (also an unsealed or torn one), or logs as import takes them.
    Explain(explain::Args),
    /// What this host lets us see, and which of its settings invite a stall; changes nothing.
    Check(check::Args),
    /// The catalogue of causes: mechanism, signature, fix, proof.
    Causes(causes::Args),
    /// Print a recording as HTML, JSON, text, sar, vmstat, csv or folded stacks.
    Report(report::Args),
    /// Write a recording's summary: a few thin rows, which fleets are asked by.
    Summary(summary::Args),
    /// Whether recording B is better than A: intervals and a verdict.
    Compare(compare::Args),
    /// How far two recordings of one scenario agree: host, vm and simulator.
    Agree(agree::Args),
    /// Prove that a fix helps, by interleaved runs with and without it.
    Verify(verify::Args),
    /// List the built-in scenarios, print one, list knobs and workloads.
    Scenarios(scenarios::Args),
    /// Put back what killed runs had changed.
    Restore(restore::Args),
    /// Try settings on the simulator: a table, and the one to choose.
    Whatif(whatif::Args),
    /// Kernels for `run --on vm`.
    Vm(vm::Args),
    /// Prepare the file of a running program before it: blocks, pages, locked.
    Precursor(precursor::Args),
    /// Print a shell's completions, or the manual page.
    Completions(completions::Args),
    /// One actor of a workload, as a process of its own.
    #[command(name = "__actor", hide = true)]
    Actor,
}

/// The command's grammar, for completions, man pages and tests.
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
        Verb::Watch(args) => watch::run(&args),
        Verb::Import(args) => import::run(args),
        Verb::Explain(args) => explain::run(&args),
        Verb::Check(args) => check::run(&args),
        Verb::Causes(args) => causes::run(&args),
        Verb::Report(args) => report::run(&args),
        Verb::Summary(args) => summary::run(&args),
        Verb::Compare(args) => compare::run(&args),
        Verb::Agree(args) => agree::run(&args),
        Verb::Verify(args) => verify::run(&args),
        Verb::Scenarios(args) => scenarios::run(&args),
        Verb::Restore(args) => restore::run(&args),
        Verb::Whatif(args) => whatif::run(&args),
        Verb::Vm(args) => vm::run(&args),
        Verb::Precursor(args) => precursor::run(&args),
        Verb::Completions(args) => completions::run(&args),
        Verb::Actor => flatwater_host::driver::process::serve().map(|()| ExitCode::SUCCESS).map_err(Into::into),
    };
    done.unwrap_or_else(|error| common::tell(&error))
}
