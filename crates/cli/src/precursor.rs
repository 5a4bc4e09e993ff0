//! `flatwater precursor --pid P --file F` prepares the file of another process ahead of the writes. `--leftovers` lists
//! the shared memory that dead writers left behind.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Context;
use precursor::follow::{Event, FollowOptions, Follower, Help, Uncut};
use precursor::{Mode, Owner};

use super::message::number;
use super::{common, precursor_read};
use crate::status::Status;
use flatwater_recording::units::{Bytes, Nanos};

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    read: Option<precursor_read::Verb>,
    /// The process that writes.
    #[arg(short = 'p', long, value_name = "PID", value_parser = number(1_u32, i32::MAX.cast_unsigned()), required_unless_present = "leftovers")]
    pid: Option<u32>,
    /// The file that the process writes, or a pattern with {} for an eight-digit number.
    #[arg(short = 'f', long, value_name = "FILE", required_unless_present = "leftovers")]
    file: Option<PathBuf>,
    /// Maximum memory to keep locked ahead of the writer.
    #[arg(long, value_name = "SIZE", default_value = "16MiB")]
    memory: Bytes,
    /// Let the file be longer than its data while it is written; it is truncated once its writer has closed it.
    #[arg(long)]
    extend: bool,
    /// Stop after this long; by default when the process ends or on ^C.
    #[arg(short = 't', long = "time", value_name = "TIME")]
    duration: Option<Nanos>,
    /// Instead list the shared memory of the library's writers, and whether they are alive.
    #[arg(long, conflicts_with_all = ["pid", "file"])]
    leftovers: bool,
    /// With --leftovers: recover the files of dead writers, and remove stale memory.
    #[arg(long, requires = "leftovers")]
    clear: bool,
    /// With --leftovers: the directory to search.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm", requires = "leftovers")]
    shm: PathBuf,
}

pub fn run(args: &Args) -> anyhow::Result<Status> {
    if let Some(verb) = &args.read {
        return precursor_read::run(verb);
    }
    match (args.pid, &args.file) {
        (Some(pid), Some(file)) => follow(args, pid, file),
        _ => list(&args.shm, args.clear),
    }
}

/// Lists the shared memory of appenders. With `clear` it recovers the files of dead ones and removes their memory.
fn list(shm: &Path, clear: bool) -> anyhow::Result<Status> {
    let found = precursor::leftovers(shm).with_context(|| {
        format!("cannot list {}: give the directory of the writers' memory with --shm", shm.display())
    })?;
    let mut failed = false;
    for leftover in &found {
        let (bytes, name) =
            (Bytes(leftover.bytes), leftover.files.first().map(|f| f.display().to_string()).unwrap_or_default());
        let reported = match &leftover.owner {
            Owner::Living => "its writer is alive".to_owned(),
            Owner::Dead(path) => format!("its writer died; recover {}", path.display()),
            Owner::Stale(Some(path)) => format!("stale: {} was closed, recovered or removed since", path.display()),
            Owner::Stale(None) => "stale; its file is unknown".to_owned(),
            Owner::Foreign(why) => format!("skipped, because it belongs to another user: {why}"),
            _ => "skipped: unknown state".to_owned(),
        };
        common::print(&format!("{name} ({bytes}): {reported}"))?;
        if !clear {
            continue;
        }
        match leftover.clear() {
            Ok(Some(done)) => {
                let (replayed, cut) = (Bytes(done.replayed_bytes), Bytes(done.cut_bytes));
                common::print(&format!(
                    "  recovered: {replayed} written from the ring, {cut} truncated behind the end"
                ))?;
            }
            Ok(None) if matches!(leftover.owner, Owner::Stale(_)) => common::print("  removed")?,
            Ok(None) => {}
            Err(e) => {
                failed = true;
                common::print(&format!("  not cleared: {e}"))?;
            }
        }
    }
    let dead = found.iter().filter(|leftover| matches!(leftover.owner, Owner::Dead(_) | Owner::Stale(_))).count();
    if found.is_empty() {
        common::print(&format!("no shared memory of writers in {}", shm.display()))?;
    } else if dead > 0 && !clear {
        common::print("--clear recovers the files of dead writers and removes stale memory")?;
    }
    Ok(if failed { Status::Failed } else { Status::Done })
}

fn follow(args: &Args, pid: u32, file: &Path) -> anyhow::Result<Status> {
    let stop = super::stop::on_signal(super::stop::AtOnce::Leave)?.flag;
    let limits = precursor::limits();
    let shares = precursor::budget::Shares::default();
    let budget = precursor::budget::budget(&limits, &shares, args.memory.0, true);
    if budget.bytes < args.memory.0 {
        common::print(&format!("at most {} ahead of the writer: {}", Bytes(budget.bytes), budget.bound.name()))?;
    }
    let options = FollowOptions { memory_bytes_max: budget.bytes, extend: args.extend };
    let mut follower = Follower::attach(pid, file, options)?;
    let begun = Instant::now();
    let mut reported_at = Instant::now();
    let out_of_time = || args.duration.is_some_and(|limit| begun.elapsed() >= Duration::from_nanos(limit.0));
    while !stop.load(Ordering::Relaxed) && !out_of_time() {
        let (nap_ns, event) = follower.step()?;
        match event {
            Some(Event::Ended) => {
                common::print("the process has ended")?;
                return Ok(Status::Done);
            }
            Some(event) => common::print(&tell(&event))?,
            None => {}
        }
        if reported_at.elapsed() >= Duration::from_secs(5) {
            reported_at = Instant::now();
            let s = follower.stats();
            let ahead = Bytes(s.warm.saturating_sub(s.position));
            let (position, rate) = (Bytes(s.position), Bytes(s.rate_bytes_per_s));
            if s.helping {
                common::print(&format!("at {position}, {rate}/s, {ahead} prepared ahead, late {} times", s.late))?;
            }
        }
        std::thread::sleep(Duration::from_nanos(nap_ns));
    }
    if let Some(uncut) = follower.detach()? {
        common::print(&left_longer(&uncut))?;
    }
    Ok(Status::Done)
}

fn tell(event: &Event) -> String {
    match event {
        Event::Following { path, fd, position, help } => {
            let help = match help {
                Help::Full => format!("blocks and pages ({})", Mode::Window.name()),
                Help::BlocksOnly(why) => format!("blocks only: {why}"),
                Help::None(why) => format!("nothing can be prepared: {why}"),
            };
            format!("following {} (descriptor {fd}) from {}\n  {help}", path.display(), Bytes(*position))
        }
        Event::Truncated => "the file was truncated below the prepared part; starting again".to_owned(),
        Event::Still(bytes) => format!(
            "the descriptor's position does not move although the process has written {}: pwrite and mappings do not \
                move it",
            Bytes(*bytes)
        ),
        Event::Closed => "the file was closed; waiting for the next one".to_owned(),
        Event::ClosedUncut(uncut) => format!("the file was closed; {}", left_longer(uncut)),
        Event::Ended => "the process has ended".to_owned(),
    }
}

fn left_longer(uncut: &Uncut) -> String {
    match uncut {
        Uncut::Open(path) => format!("{} is still open for writing and stays longer than its data", path.display()),
        Uncut::Elsewhere(path) => format!(
            "{} stays longer than its data: it has bytes beyond its writer's position, so where the data ends is unknown",
            path.display()
        ),
    }
}
