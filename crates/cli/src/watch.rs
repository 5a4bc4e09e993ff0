//! `flatwater watch [-c watch.toml]`, and `flatwater watch dump | status | metrics`, which ask the running daemon.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, anyhow, bail};
use clap::Subcommand;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::common::{self, Usage, print, say};
use crate::status::Status;
use flatwater_host::own_cost::keep_memory_small;
use flatwater_watch::config::{Config, ConfigError};
use flatwater_watch::{daemon, http};

/// The configuration that is read by default, if it exists.
const CONFIG: &str = "/etc/flatwater/watch.toml";

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// The configuration; by default /etc/flatwater/watch.toml if it exists.
    #[arg(short = 'c', long = "config", value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Check the configuration and exit.
    #[arg(long)]
    check: bool,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Make the running daemon write a recording of the last minute; prints its path.
    Dump,
    /// Print what the running daemon sees, keeps in memory and costs, as JSON.
    Status,
    /// Print the metrics of the running daemon.
    Metrics,
}

pub fn run(args: &Args) -> anyhow::Result<Status> {
    let (config, path) = configuration(args.config.as_deref())?;
    match args.what {
        Some(What::Dump) => ask(&config, "POST", "/dump"),
        Some(What::Status) => ask(&config, "GET", "/status"),
        Some(What::Metrics) => ask(&config, "GET", "/metrics"),
        None if args.check => {
            print(&format!("{}: valid", path.as_deref().unwrap_or(Path::new("the defaults")).display()))?;
            Ok(Status::Done)
        }
        None => watch(config, path),
    }
}

pub fn configuration(given: Option<&Path>) -> anyhow::Result<(Config, Option<PathBuf>)> {
    let path = given.map(Path::to_owned).or_else(|| Some(PathBuf::from(CONFIG)).filter(|path| path.exists()));
    let Some(path) = path else { return Ok((Config::default(), None)) };
    match Config::read(&path) {
        Ok(config) => Ok((config, Some(path))),
        Err(error @ ConfigError::Wrong { .. }) => bail!(Usage::new(error)),
        Err(error) => Err(error.into()),
    }
}

fn watch(config: Config, config_path: Option<PathBuf>) -> anyhow::Result<Status> {
    keep_memory_small();
    let (stop, reload) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    for (signal, flag) in [(SIGINT, &stop), (SIGTERM, &stop), (SIGHUP, &reload)] {
        signal_hook::flag::register(signal, flag.clone()).context("cannot watch signals")?;
    }
    let options = daemon::Options { config, config_path, stop, reload };
    daemon::run(options, &mut |line| say(format_args!("flatwater: {line}")))?;
    Ok(Status::Done)
}

/// Prints the daemon's answer.
fn ask(config: &Config, method: &str, path: &str) -> anyhow::Result<Status> {
    common::print(&answer(config, method, path)?)?;
    Ok(Status::Done)
}

/// The daemon's answer.
pub fn answer(config: &Config, method: &str, path: &str) -> anyhow::Result<String> {
    let socket = config.metrics.socket.as_deref();
    let socket = socket.context("metrics.socket is empty in the configuration: the daemon cannot be asked")?;
    let answer = http::ask(socket, method, path);
    let (status, body) = answer.map_err(|error| {
        let socket = socket.display();
        anyhow!("no flatwater watch answers at {socket}: {error}; start it, or give its configuration with -c")
    })?;
    if status != 200 {
        bail!("{}", body.trim());
    }
    Ok(body)
}
