//! `flatwater completions SHELL|man`: files that packages install.

use std::process::ExitCode;

use clap_complete::Shell;

use super::common;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A shell, or `man` for the manual page.
    #[arg(value_parser = ["bash", "zsh", "fish", "elvish", "powershell", "man"])]
    kind: String,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut command = super::command();
    let mut text = Vec::new();
    match args.kind.parse::<Shell>() {
        Ok(shell) => clap_complete::generate(shell, &mut command, "flatwater", &mut text),
        Err(_) => clap_mangen::Man::new(command).render(&mut text)?,
    }
    common::print(&String::from_utf8_lossy(&text))?;
    Ok(ExitCode::SUCCESS)
}
