//! Compares ways of appending to a file: what one append costs the writer, under several kinds of load.
//!
//! Every cell (way x condition x round) is a process of its own in a memory cgroup of its own, with its loads beside it in the
//! same cgroup; rounds interleave all ways, so that what the machine does meanwhile falls on all of them. Run as root:
//!
//!     cargo run --release -p precursor-bench -- matrix --dir /srv/scratch --seconds 5 --rounds 5
//!     cargo run --release -p precursor-bench -- speed --dir /srv/scratch

mod cell;
mod chronicle;
mod loads;
mod place;
mod rivals;
mod speed;
mod table;
mod uring;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};

use cell::Cell;
use loads::Condition;
use rivals::Method;
use table::Table;

#[derive(Debug, Parser)]
#[command(about = "Ways of appending to a file, side by side under load")]
struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// All ways under all conditions, interleaved.
    Matrix {
        /// Folder on the file system to measure.
        #[arg(long)]
        dir: PathBuf,
        /// Length of one cell, s.
        #[arg(long, default_value_t = 5)]
        seconds: u64,
        #[arg(long, default_value_t = 5)]
        rounds: u32,
        /// Limit of the cell's memory cgroup, MiB.
        #[arg(long, default_value_t = 128)]
        memory_mib: u64,
        #[arg(long, value_delimiter = ',')]
        ways: Vec<Method>,
        #[arg(long, value_delimiter = ',')]
        conditions: Vec<Condition>,
        #[command(flatten)]
        scheduling: Scheduling,
        /// Also write every cell's figures here, tab-separated.
        #[arg(long)]
        tsv: Option<PathBuf>,
    },
    /// Cost of an uncontended append, and sustained rate of one producer.
    Speed {
        #[arg(long)]
        dir: PathBuf,
    },
    /// One cell; started by `matrix`, waits for a line on stdin once it is in its cgroup.
    #[command(hide = true)]
    Cell {
        #[arg(long)]
        dir: PathBuf,
        #[arg(long)]
        seconds: u64,
        #[arg(long)]
        way: Method,
        #[arg(long)]
        condition: Condition,
        #[command(flatten)]
        scheduling: Scheduling,
    },
    /// One load; started by `matrix` likewise, runs until killed.
    #[command(hide = true)]
    Load {
        #[arg(long)]
        dir: PathBuf,
        #[arg(long)]
        kind: loads::Kind,
        #[arg(long)]
        number: u32,
        #[command(flatten)]
        scheduling: Scheduling,
    },
}

/// How the scheduler is to treat a cell, whatever its way of writing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::Args)]
pub struct Scheduling {
    /// Keep the writing thread on CPU 0 and the neighbours on CPU 1; helper threads go where they like.
    #[arg(long)]
    pub pin: bool,
    /// Run the writing thread, and it alone, under SCHED_FIFO.
    #[arg(long)]
    pub fifo: bool,
}

impl Scheduling {
    /// As arguments for a cell's own process.
    pub fn arguments(self) -> impl Iterator<Item = &'static str> {
        [(self.pin, "--pin"), (self.fifo, "--fifo")].into_iter().filter_map(|(on, name)| on.then_some(name))
    }
}

fn main() -> Result<()> {
    match Args::parse().verb {
        Verb::Matrix { dir, seconds, rounds, memory_mib, ways, conditions, scheduling, tsv } => {
            let ways = if ways.is_empty() { Method::all() } else { ways };
            if !is_root() {
                bail!("memory cgroups and loop devices need root");
            }
            let conditions = if conditions.is_empty() { Condition::all() } else { conditions };
            let mut table = Table::new(seconds, memory_mib, scheduling);
            for round in 0..rounds {
                for &condition in &conditions {
                    add_round(&mut table, &dir, round, condition, &ways);
                    eprintln!("round {} of {rounds}: {} done", round + 1, condition.name());
                    // As it goes: a run that is cut short keeps what it has.
                    if let Some(path) = &tsv {
                        std::fs::write(path, table.tsv()).with_context(|| format!("write {}", path.display()))?;
                    }
                }
            }
            print!("{}", table.text());
        }
        Verb::Speed { dir } => speed::run(&dir)?,
        Verb::Cell { dir, seconds, way, condition, scheduling } => {
            await_start()?;
            println!("{}", cell::run(&dir, seconds, way, condition, scheduling)?.line());
        }
        Verb::Load { dir, kind, number, scheduling } => {
            await_start()?;
            if scheduling.pin {
                place::pin_here(1)?;
            }
            loads::run(&dir, kind, number)?;
        }
    }
    Ok(())
}

/// One cell of each way. Each round begins elsewhere in the list, so that no way always follows the same neighbour.
fn add_round(table: &mut Table, dir: &Path, round: u32, condition: Condition, ways: &[Method]) {
    for offset in 0..ways.len() {
        let way = ways[(offset + round as usize) % ways.len()];
        let (seconds, memory_mib, scheduling) = (table.seconds, table.memory_mib, table.scheduling);
        let cell = Cell { way, condition, seconds, memory_mib, scheduling };
        match cell.perform(dir) {
            Ok(result) => table.add(condition, way, result),
            Err(e) => eprintln!("{} under {}: no figure: {e:#}", way.name(), condition.name()),
        }
    }
}

fn is_root() -> bool {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// The parent says so once this process is in its cgroup.
fn await_start() -> Result<()> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    // A load must not outlive a parent that died.
    // SAFETY: plain numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    Ok(())
}
