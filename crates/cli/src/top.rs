//! `flatwater top`: who waits and who makes them wait, now.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, bail};
use signal_hook::consts::SIGTERM;

use super::common::{Usage, say};
use super::watch::configuration;
use crate::status::Status;
use flatwater_host::own_cost::keep_memory_small;
use flatwater_top::source::{Alone, Attached, Source};
use flatwater_watch::config::Config;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The daemon's configuration, which names its socket; by default /etc/flatwater/watch.toml if it exists.
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    config: Option<PathBuf>,
    /// The socket of the daemon.
    #[arg(long, value_name = "PATH", conflicts_with = "alone")]
    socket: Option<PathBuf>,
    /// Trace directly, even if the daemon is running.
    #[arg(long)]
    alone: bool,
}

pub fn run(args: &Args) -> anyhow::Result<Status> {
    keep_memory_small();
    let (config, _) = configuration(args.config.as_deref())?;
    let source = source(args, &config)?;
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGTERM, stop.clone()).context("cannot watch signals")?;
    flatwater_top::run(source, &stop)?;
    Ok(Status::Done)
}

/// The daemon at the given socket; else the running daemon of the configuration; else the tracer in this process.
fn source(args: &Args, config: &Config) -> anyhow::Result<Box<dyn Source>> {
    let socket = args.socket.as_ref().or(config.metrics.socket.as_ref()).filter(|_| !args.alone);
    if let Some(socket) = socket {
        match Attached::to(socket) {
            Ok(attached) => return Ok(Box::new(attached)),
            Err(why) if args.socket.is_some() => bail!(Usage::new(why)),
            Err(why) => say(format_args!("flatwater: {why}; tracing directly")),
        }
    }
    flatwater_top::require_terminal()?;
    Ok(Box::new(Alone::start(config)))
}
