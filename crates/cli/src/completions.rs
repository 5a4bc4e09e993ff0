//! `flatwater completions SHELL|man|markdown`: files that packages install.

use std::path::PathBuf;

use clap_complete::Shell;

use super::common::{self, Usage};
use super::manual;
use crate::status::Status;
use flatwater_safefs::write_output;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A shell, `man` for the manual page, or `markdown` for the reference in docs/command-line.md.
    #[arg(value_parser = ["bash", "zsh", "fish", "elvish", "powershell", "man", "markdown"])]
    kind: String,
    /// With man: write the pages of all verbs into this directory, instead of printing flatwater(1).
    #[arg(short = 'o', long = "out", value_name = "DIR")]
    out: Option<PathBuf>,
}

pub fn run(args: &Args) -> anyhow::Result<Status> {
    let mut command = super::command();
    if args.out.is_some() && args.kind != "man" {
        anyhow::bail!(Usage::new(format!("-o writes manual pages: for {} redirect the output to a file", args.kind)));
    }
    let text = match args.kind.as_str() {
        "markdown" => super::reference(),
        "man" => {
            let pages = manual::manuals(command)?;
            if let Some(out) = &args.out {
                for page in &pages {
                    write_output(&out.join(&page.name), &page.text)?;
                }
                return Ok(Status::Done);
            }
            pages.first().map(|page| String::from_utf8_lossy(&page.text).into_owned()).unwrap_or_default()
        }
        kind => {
            let shell: Shell = kind.parse().map_err(Usage::new)?;
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut command, "flatwater", &mut text);
            String::from_utf8_lossy(&text).into_owned()
        }
    };
    common::print(&text)?;
    Ok(Status::Done)
}
