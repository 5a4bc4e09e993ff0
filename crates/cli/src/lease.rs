//! `flatwater __lease`: the process that removes the guard's limit if the daemon dies or hangs.

use anyhow::Context;

use crate::status::Status;
use flatwater_host::setup::lease;

pub fn run() -> anyhow::Result<Status> {
    let stop = lease::stop_on_signals().context("cannot watch signals")?;
    lease::serve(&stop).context("the lease of the guard's limit")?;
    Ok(Status::Done)
}
