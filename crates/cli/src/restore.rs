//! `flatwater restore`: restores settings that killed runs changed.

use std::sync::Arc;

use super::common;
use super::message::number;
use crate::status::Status;
use anyhow::Context;
use flatwater_host::setup::{recover, recover_as_successor};
use flatwater_host::signals::block_endings;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Internal: a run that received two signals executes this to restore what it changed.
    #[arg(long, hide = true, value_name = "SIGNAL", value_parser = number(1_i32, 64))]
    after_signal: Option<i32>,
}

pub fn run(args: &Args) -> anyhow::Result<Status> {
    let log: flatwater_host::setup::Log = Arc::new(|line: &str| common::say(format_args!("flatwater: {line}")));
    if let Some(signal) = args.after_signal {
        block_endings().context("cannot block signals")?;
        recover_as_successor(&log);
        return Ok(Status::Signal(signal));
    }
    let restored = recover(&log);
    if restored == flatwater_host::setup::Restored::default() {
        common::print("nothing to restore")?;
    }
    Ok(if restored.failed.is_empty() { Status::Done } else { Status::Failed })
}
