//! Chronicle Queue with its pretoucher, from Maven: a small Java program, built at the first use. Nothing else depends
//! on it; without Maven or a JDK, the cell prints `SKIPPED` and has no figures.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Options that Chronicle requires from Java 17: it uses JDK internals for unmapping, direct memory and file channels.
const REACHES: [&str; 9] = [
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.reflect=ALL-UNNAMED",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
];

/// A small heap, since the JVM is in the cell's cgroup with its neighbours.
const MEMORY: [&str; 3] = ["-Xms24m", "-Xmx24m", "-XX:+UseSerialGC"];

/// Disables Chronicle's usage reports over the network.
const SILENCE: &str = "-Dchronicle.analytics.disable=true";

fn home() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("chronicle")
}

/// The command that runs Chronicle Queue in `dir`.
pub fn command(dir: &str, seconds: u64) -> Result<Command> {
    let classpath = home().join("target/classpath");
    if !classpath.exists() {
        build()?;
    }
    let jars = std::fs::read_to_string(&classpath).with_context(|| format!("read {}", classpath.display()))?;
    let mut command = Command::new("java");
    command.args(REACHES).args(MEMORY).args([SILENCE, "-cp"]);
    command.arg(format!("{}:{}", home().join("target/classes").display(), jars.trim()));
    command.args(["Rival", dir, &seconds.to_string()]);
    Ok(command)
}

fn build() -> Result<()> {
    let mut mvn = Command::new("mvn");
    mvn.args(["-q", "-B", "compile", "dependency:build-classpath", "-Dmdep.outputFile=target/classpath"]);
    let done = mvn.current_dir(home()).output().context("SKIPPED: Chronicle Queue needs Maven: run mvn")?;
    if !done.status.success() {
        let message = String::from_utf8_lossy(&done.stdout);
        bail!("SKIPPED: Chronicle Queue could not be built: {}", message.lines().next().unwrap_or_default());
    }
    Ok(())
}
