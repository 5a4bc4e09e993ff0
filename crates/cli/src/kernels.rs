//! `run --on vm --kernel A --kernel B`: performs the scenario on each kernel, then compares them with the first.

use std::path::{Path, PathBuf};

use anyhow::Context;

use super::common::{self, Output, Usage};
use crate::status::Status;
use flatwater_experiment::agree::with_first;
use flatwater_recording::Recording;
use flatwater_report as report;
use flatwater_safefs::Dir;
use flatwater_vm::kernel;

/// Boots each kernel in turn. Each recording goes into a directory below `out` named after the kernel's release.
pub fn run(
    kernels: &[PathBuf],
    output: &Output,
    out: &Dir,
    mut boot: impl FnMut(&Path, &Dir) -> anyhow::Result<()>,
) -> anyhow::Result<Status> {
    if !matches!(output.format.as_str(), "text" | "json") {
        anyhow::bail!(Usage::new(
            "several kernels are compared as text or json; give each recording to `report` for more"
        ));
    }
    // Find all images before the first boot, so that a mistyped path does not cost a run.
    let names = kernel::names(kernels)?;
    let text = output.format == "text";
    let mut recordings: Vec<Recording> = Vec::new();
    for (image, name) in kernels.iter().zip(&names) {
        let to = out.make_dir(name)?;
        boot(image, &to).with_context(|| format!("on {name}"))?;
        if text {
            common::print(&format!("== {name}"))?;
            common::conclude(&to, output, None)?;
        }
        recordings.push(common::read(&to.proc_path())?);
    }
    let found = with_first(&recordings);
    let comparisons = if text {
        let each = names.iter().skip(1).zip(&found);
        let each = each.map(|(name, found)| format!("== {} and {name}\n{}", names[0], report::agree::text(found)));
        each.collect::<Vec<String>>().join("\n")
    } else {
        serde_json::to_string_pretty(&found)?
    };
    common::print(&comparisons)?;
    Ok(Status::Done)
}

#[cfg(test)]
mod tests {
    use super::run;
    use crate::common::Output;

    #[test]
    fn a_missing_kernel_is_reported_before_any_boots() {
        let scratch = tempfile::tempdir().expect("a directory");
        let present = scratch.path().join("vmlinuz-6.1.0");
        std::fs::write(&present, b"x").expect("written");
        let output =
            Output { format: "text".to_owned(), table: None, width: None, max_decoded: None, focus: None, every: None };
        let mut booted = 0;
        let out = flatwater_safefs::Dir::open_own(scratch.path()).expect("ours");
        let ended = run(&[present, scratch.path().join("absent")], &output, &out, |_, _| {
            booted += 1;
            Ok(())
        });
        let error = ended.expect_err("one is absent").to_string();
        assert!(error.contains("absent") && booted == 0, "{error}");
    }
}
