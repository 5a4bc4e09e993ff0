//! `flatwater guard list | show ID | release ID | release --all`.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::Subcommand;
use flatwater_host::setup::{Log, lease};
use flatwater_watch::guard::list::Listed;

use super::common::{Usage, print, say};
use super::message::number;
use super::watch::{answer, configuration};
use crate::status::Status;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
    /// The daemon's configuration, which names its socket; by default /etc/flatwater/watch.toml if it exists.
    #[arg(short = 'c', long = "config", value_name = "FILE", global = true)]
    config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List advices, the limit in force, and groups that are left alone.
    List {
        /// Format of the output.
        #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
        format: String,
    },
    /// Print all facts of one advice and its episode.
    Show {
        /// The number in the list.
        #[arg(value_parser = number(0_u64, u64::MAX))]
        id: u64,
    },
    /// End a limit; the guard leaves its cgroup alone until the daemon starts again.
    Release {
        /// The number in the list.
        #[arg(value_parser = number(0_u64, u64::MAX), required_unless_present = "all", conflicts_with = "all")]
        id: Option<u64>,
        /// End each limit, also limits of a daemon that has ended.
        #[arg(long)]
        all: bool,
    },
}

pub fn run(args: &Args) -> anyhow::Result<Status> {
    let (config, _) = configuration(args.config.as_deref())?;
    match &args.what {
        What::List { format } => {
            let body = answer(&config, "GET", "/guard")?;
            let listed = Listed::parse(&body).context("the daemon's answer has another version")?;
            let text = if format == "json" { body } else { listed.table() };
            print(text.trim_end())?;
        }
        What::Show { id } => {
            let listed = Listed::parse(&answer(&config, "GET", "/guard")?).context("the daemon's answer")?;
            let Some(text) = listed.show(*id) else {
                bail!(Usage::new(format!("no advice has the number {id}; see `flatwater guard list`")));
            };
            print(text.trim_end())?;
        }
        What::Release { id: Some(id), .. } => print(answer(&config, "POST", &format!("/guard/release/{id}"))?.trim())?,
        What::Release { id: None, .. } => {
            match answer(&config, "POST", "/guard/release/all") {
                Ok(body) => print(body.trim())?,
                Err(why) => say(format_args!("flatwater: {why:#}")),
            }
            // Limits that no running daemon knows.
            let log: Log = Arc::new(|line: &str| say(format_args!("flatwater: {line}")));
            if lease::end_all(&log) > 0 {
                bail!("a process with a lease does not end: run the command as root, or again in a few seconds");
            }
        }
    }
    Ok(Status::Done)
}
