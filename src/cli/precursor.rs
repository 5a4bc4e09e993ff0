//! `flatwater precursor --pid P --file F`: prepares a foreign writer's file before it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use precursor::Mode;
use precursor::follow::{Event, FollowOptions, Follower, Help};

use super::common;
use crate::units::{Bytes, Nanos};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The process that writes.
    #[arg(short = 'p', long, value_name = "PID")]
    pid: u32,
    /// The file it writes, or a pattern with {} for an eight-digit number.
    #[arg(short = 'f', long, value_name = "FILE")]
    file: PathBuf,
    /// Most memory to keep locked before the writer.
    #[arg(long, value_name = "SIZE", default_value = "16MiB")]
    memory: Bytes,
    /// Let the file be longer than its data while it is written; it is cut when its writer has closed it.
    #[arg(long)]
    extend: bool,
    /// Stop after this long; by default with the process or on ^C.
    #[arg(short = 't', long = "time", value_name = "TIME")]
    duration: Option<Nanos>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let stop = common::stop_on_signal(|| {})?;
    let limits = precursor::limits();
    let shares = precursor::budget::Shares::default();
    let budget = precursor::budget::budget(&limits, &shares, args.memory.0, true);
    if budget.bytes < args.memory.0 {
        common::print(&format!("at most {} ahead of the writer: {}", Bytes(budget.bytes), budget.bound.name()))?;
    }
    let options = FollowOptions { memory_bytes_max: budget.bytes, extend: args.extend };
    let mut follower = Follower::attach(args.pid, &args.file, options)?;
    let begun = Instant::now();
    let mut said = Instant::now();
    let out_of_time = || args.duration.is_some_and(|limit| begun.elapsed() >= Duration::from_nanos(limit.0));
    while !stop.load(Ordering::Relaxed) && !out_of_time() {
        let (nap_ns, event) = follower.step()?;
        match event {
            Some(Event::Ended) => {
                common::print("the process has ended")?;
                return Ok(ExitCode::SUCCESS);
            }
            Some(event) => common::print(&tell(&event))?,
            None => {}
        }
        if said.elapsed() >= Duration::from_secs(5) {
            said = Instant::now();
            let s = follower.stats();
            let ahead = Bytes(s.warm.saturating_sub(s.position));
            let (position, rate) = (Bytes(s.position), Bytes(s.rate_bytes_per_s));
            common::print(&format!("at {position}, {rate}/s, {ahead} ready before it, late {} times", s.late))?;
        }
        std::thread::sleep(Duration::from_nanos(nap_ns));
    }
    if let Some(path) = follower.detach()? {
        common::print(&format!("{} is still being written and stays longer than its data", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
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
        Event::Truncated => "the file was cut below what was prepared; beginning anew".to_owned(),
        Event::Still(bytes) => format!(
            "its position stands still though the process has written {}: pwrite and mappings have no position to follow",
            Bytes(*bytes)
        ),
        Event::Closed => "the file was closed; waiting for the next".to_owned(),
        Event::Ended => "the process has ended".to_owned(),
    }
}
