//! Bundles the page of the report (`web/`) into three files in `OUT_DIR`: `report.js`, `report.css` and `report.csp`.
//!
//! npm and esbuild make the bundle. If npm is absent or cannot reach its registry, the build continues with an empty
//! script: the report then has all findings and tables, and says that its charts are missing and why. So a fresh clone
//! builds with only a Rust toolchain.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const SOURCES: &[&str] = &["package.json", "package-lock.json", "build.mjs", "tsconfig.json", "src"];
const OUTPUTS: &[&str] = &["report.js", "report.css", "report.csp"];

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let web = root.join("web");
    for source in SOURCES {
        println!("cargo::rerun-if-changed=web/{source}");
    }
    println!("cargo::rerun-if-env-changed=FLATWATER_WEB_DIST");
    if let Err(why) = place_bundle(&web, &out) {
        println!("cargo::warning=report.html will have no charts: {why}");
        // This path never exists, so cargo runs this script again at the next build, when npm may be available.
        println!("cargo::rerun-if-changed=web/.no-bundle");
        place_fallback(&web, &out);
    }
}

/// Writes the bundle to `out`. Packagers without a network at build time set FLATWATER_WEB_DIST to the directory of a
/// bundle that they made with `node build.mjs DIR`.
fn place_bundle(web: &Path, out: &Path) -> Result<(), Box<dyn Error>> {
    if let Some(dist) = env::var_os("FLATWATER_WEB_DIST") {
        for name in OUTPUTS {
            fs::copy(Path::new(&dist).join(name), out.join(name))
                .map_err(|why| format!("FLATWATER_WEB_DIST: {}: {why}", Path::new(&dist).join(name).display()))?;
        }
        return Ok(());
    }
    // The build works in OUT_DIR, so that it never writes to the source tree.
    let work = out.join("web");
    let lock_before = fs::read(work.join("node_modules/.flatwater-lock")).ok();
    for source in SOURCES {
        copy_tree(&web.join(source), &work.join(source))?;
    }
    let lock = fs::read(web.join("package-lock.json"))?;
    if lock_before.as_ref() != Some(&lock) {
        let options = ["ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"];
        run(Command::new("npm").args(options).args(["--fetch-retries=1", "--fetch-timeout=30000"]).current_dir(&work))?;
        fs::write(work.join("node_modules/.flatwater-lock"), &lock)?;
    }
    run(Command::new("node").arg("build.mjs").arg(out).current_dir(&work))
}

fn run(command: &mut Command) -> Result<(), Box<dyn Error>> {
    let shown = format!("{command:?}");
    let done = command.output().map_err(|why| format!("{shown}: {why}; install nodejs and npm"))?;
    if done.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&done.stderr);
    let last = errors.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no message");
    Err(format!("{shown}: {}: {last}", done.status).into())
}

fn copy_tree(from: &Path, to: &Path) -> Result<(), Box<dyn Error>> {
    let fail = |why: std::io::Error| format!("{}: {why}", from.display());
    if !from.is_dir() {
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent).map_err(fail)?;
        }
        fs::copy(from, to).map_err(fail)?;
        return Ok(());
    }
    for entry in fs::read_dir(from).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        copy_tree(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

fn place_fallback(web: &Path, out: &Path) {
    let css = fs::read_to_string(web.join("src/report.css")).expect("web/src/report.css is part of the source");
    let csp = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";
    for (name, text) in OUTPUTS.iter().zip(["", css.as_str(), csp]) {
        fs::write(out.join(name), text).expect("OUT_DIR is writable");
    }
}
