//! Measures what one append costs the writer, for several ways of appending and several kinds of load.
//!
//! Every cell (way x condition x round) runs in its own process and memory cgroup, with its loads in the same cgroup.
//! Rounds interleave all ways, so that changes of the machine affect all of them. Run as root:
//!
//!     cargo run --release -p precursor-bench -- matrix --dir /srv/scratch --seconds 5 --rounds 5
//!     cargo run --release -p precursor-bench -- speed --dir /srv/scratch
//!     cargo run --release -p precursor-bench -- seek --dir /srv/scratch

mod cell;
mod chronicle;
mod java;
mod loads;
mod place;
mod rivals;
mod seek;
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
#[command(about = "Compares ways of appending to a file under load")]
struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run all ways under all conditions, interleaved.
    Matrix {
        /// Directory on the file system to measure.
        #[arg(long)]
        dir: PathBuf,
        /// Duration of a cell, s.
        #[arg(long, default_value_t = 5)]
        seconds: u64,
        #[arg(long, default_value_t = 5)]
        rounds: u32,
        /// Memory limit of the cell's cgroup, MiB.
        #[arg(long, default_value_t = 128)]
        memory_mib: u64,
        #[arg(long, value_delimiter = ',')]
        ways: Vec<Method>,
        #[arg(long, value_delimiter = ',')]
        conditions: Vec<Condition>,
        #[command(flatten)]
        scheduling: Scheduling,
        /// Also write the figures of every cell to this file, tab-separated.
        #[arg(long)]
        tsv: Option<PathBuf>,
    },
    /// Measure an uncontended append, and the sustained rate of one producer.
    Speed {
        #[arg(long)]
        dir: PathBuf,
    },
    /// Compare seeks with the index of a file to seeks that scan it.
    Seek {
        #[arg(long)]
        dir: PathBuf,
        #[arg(long, default_value_t = 1_000_000)]
        records: u64,
    },
    /// One cell, started by `matrix`. Waits for a line on standard input until it is in its cgroup.
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
    /// One load, started by `matrix` in the same way. Runs until killed.
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

/// Scheduling of a cell, for every way of writing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::Args)]
pub struct Scheduling {
    /// Keep the writing thread on CPU 0 and the neighbours on CPU 1; helper threads may use any CPU.
    #[arg(long)]
    pub pin: bool,
    /// Run only the writing thread under SCHED_FIFO.
    #[arg(long)]
    pub fifo: bool,
}

impl Scheduling {
    /// The options as arguments of a cell's process.
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
                    // Written after each condition, so that an interrupted run keeps its figures.
                    if let Some(path) = &tsv {
                        std::fs::write(path, table.tsv()).with_context(|| format!("write {}", path.display()))?;
                    }
                }
            }
            print!("{}", table.text());
        }
        Verb::Speed { dir } => speed::run(&dir)?,
        Verb::Seek { dir, records } => seek::run(&dir, records)?,
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

/// Runs one cell of each way. Each round starts at another way, so that a way does not always follow the same one.
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
    // SAFETY: geteuid takes no argument and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Waits for the line that the parent writes once this process is in its cgroup.
fn await_start() -> Result<()> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    // A load must not outlive its parent.
    // SAFETY: prctl takes plain numbers here.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    Ok(())
}
