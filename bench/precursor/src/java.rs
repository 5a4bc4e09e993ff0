//! Cells in Java: the precursor's ring, and a mapping by hand. Compiled at the first use; without a JDK the cells print
//! `SKIPPED` and have no figures.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::rivals::Method;

/// A small heap, touched at the start, since the JVM is in the cell's cgroup with its neighbours.
const MEMORY: [&str; 4] = ["-Xms24m", "-Xmx24m", "-XX:+UseSerialGC", "-XX:+AlwaysPreTouch"];

/// The command that runs this way in `dir`.
pub fn command(way: Method, dir: &str, seconds: u64) -> Result<Command> {
    let classes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench-java");
    compile(&classes)?;
    let mut command = Command::new("java");
    command.args(MEMORY).arg("-cp").arg(classes).args(["Cell", way.name(), dir, &seconds.to_string()]);
    Ok(command)
}

fn compile(classes: &Path) -> Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = here.join("../../precursor/java/src/main/java/example/flatwater/precursor");
    let mut files: Vec<PathBuf> = std::fs::read_dir(library)?.flatten().map(|entry| entry.path()).collect();
    files.extend(["Cell.java", "Loop.java"].map(|name| here.join("java").join(name)));
    let changed = |file: &PathBuf| file.metadata().and_then(|m| m.modified()).ok();
    let newest = files.iter().filter_map(changed).max();
    if changed(&classes.join("Cell.class")) > newest {
        return Ok(());
    }
    let done = Command::new("javac").arg("-d").arg(classes).args(&files).output();
    let done = done.context("SKIPPED: the cells in Java need a JDK: run javac")?;
    if !done.status.success() {
        bail!("SKIPPED: the cells in Java could not be built: {}", String::from_utf8_lossy(&done.stderr));
    }
    Ok(())
}
