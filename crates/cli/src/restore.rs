//! `flatwater restore`: puts back what killed runs had changed.

use std::process::ExitCode;
use std::sync::Arc;

use super::common;
use flatwater_host::setup::recover;

#[derive(Debug, clap::Args)]
pub struct Args {}

pub fn run(_args: &Args) -> anyhow::Result<ExitCode> {
    let restored = recover(&(Arc::new(|line: &str| common::say(format_args!("flatwater: {line}"))) as _));
    if restored == flatwater_host::setup::Restored::default() {
        common::print("nothing to restore")?;
    }
    Ok(if restored.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
