//! The processes of a probe: `flatwater __probe` with an order on the first line of the standard input.
//!
//! Each further line is a command, each line of the standard output an answer. When the input ends, the probe is dead:
//! the process ends at once. The files of victim and neighbour lose their names when they are created, except the small
//! files of a neighbour, which the undo journal covers.

pub mod dirty;
mod files;
mod neighbour;
mod recorder;
mod victim;

/// The recorder's directory below its working directory.
pub use recorder::DIRECTORY as RECORDING;

use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use flatwater_host::privileges::{self, Needs};
use flatwater_host::setup;
use serde::{Deserialize, Serialize};

use super::plan::{Limits, Load};

/// Prefixes of answers.
pub const READY: &str = "ready";
pub const FAILED: &str = "failed ";
/// A neighbour has begun its load; a victim has made the calls that `Command::Calls` asked for.
pub const DONE: &str = "done";
/// A sample: index of the operation, start and duration in ns.
pub const SAMPLE: &str = "s ";

/// The order to a new child.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// Files to which the child writes its process id, to join cgroups.
    pub procs: Vec<PathBuf>,
    pub role: Role,
}

/// The size of a cgroup's dirty pages from which the kernel pauses its writers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirtyLimit {
    /// The cgroup's memory.stat.
    pub stat: PathBuf,
    pub bytes: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Role {
    /// Makes the calls that are judged. Its working directory is the probe's own directory.
    Victim { seed: u64 },
    /// Loads its working directory.
    Neighbour { limits: Limits, own: Option<DirtyLimit> },
    /// Records the calls of this process into the directory `recording` of the working directory.
    Recorder { pid: u32, threshold_ns: u64 },
    /// Removes what a killed probe leaves.
    Sweeper,
}

/// A command to a child, one a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Neighbour: begin this load.
    Begin(Load),
    /// Neighbour: end the load, discard its files' data, and answer with its `Work`.
    Stop,
    /// Victim: answer when each thread has made `count` calls from now on, between these two times.
    Calls { count: u64, at_least_ns: u64, at_most_ns: u64 },
    /// Finish in order: the victim prints its samples, the recorder seals the recording.
    End,
}

/// How long the sweeper tries to remove what other processes still use.
const SWEEP_ROUNDS: u32 = 100;
const SWEEP_PAUSE: Duration = Duration::from_millis(200);
/// After this many rounds without anything to remove, nothing is left.
const QUIET_ROUNDS: u32 = 3;

/// Serves one probe; ends with its standard input.
pub fn serve() -> io::Result<()> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    // Any user can execute this verb; without an order it does nothing.
    let order: Order = serde_json::from_str(&line).map_err(std::io::Error::other)?;
    begin(&order).and_then(|()| perform(order.role)).inspect_err(|error| answer(&format!("{FAILED}{error}")))
}

/// Joins the cgroups and drops privileges.
fn begin(order: &Order) -> io::Result<()> {
    for file in &order.procs {
        join(file).map_err(|error| io::Error::new(error.kind(), format!("cannot join {}: {error}", file.display())))?;
    }
    if !matches!(order.role, Role::Recorder { .. } | Role::Sweeper) {
        privileges::drop_on_all_threads(Needs::default()).map_err(io::Error::other)?;
    }
    Ok(())
}

/// Without the right to join a cgroup this process may already be in it: that of the probe.
fn join(file: &Path) -> io::Result<()> {
    let pid = std::process::id().to_string();
    match std::fs::write(file, &pid) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let members = std::fs::read_to_string(file)?;
            if members.lines().any(|member| member == pid) { Ok(()) } else { Err(error) }
        }
        joined => joined,
    }
}

fn perform(role: Role) -> io::Result<()> {
    match role {
        Role::Victim { seed } => victim::serve(seed),
        Role::Neighbour { limits, own } => neighbour::serve(limits, own),
        Role::Recorder { pid, threshold_ns } => recorder::serve(pid, threshold_ns),
        Role::Sweeper => {
            sweep();
            Ok(())
        }
    }
}

/// Waits for the end of the probe; if it did not end in order, undoes what it left.
fn sweep() {
    if matches!(next(), Some(Command::End)) {
        return;
    }
    let log: setup::Log = Arc::new(|_: &str| {});
    let mut quiet = 0;
    for _ in 0..SWEEP_ROUNDS {
        std::thread::sleep(SWEEP_PAUSE);
        let nothing = setup::recover(&log) == setup::Restored::default();
        quiet = if nothing { quiet + 1 } else { 0 };
        if quiet == QUIET_ROUNDS {
            return;
        }
    }
}

/// The next command; `None` if the probe is gone.
fn next() -> Option<Command> {
    let mut line = String::new();
    match std::io::stdin().lock().read_line(&mut line) {
        Ok(length) if length > 0 => serde_json::from_str(&line).ok(),
        _ => None,
    }
}

fn answer(line: &str) {
    let mut out = std::io::stdout().lock();
    // A probe that is gone reads nothing; the next command ends this process.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
