//! The sources of the model's numbers: the command lists them, and every number is in the list.

use std::path::{Path, PathBuf};
use std::process::Command;

use flatwater_sim::constant;
use flatwater_sim::kernel::PROFILES;
use flatwater_workload::scenario::Scenario;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Case studies whose inputs are listed.
const STUDIES: &[&str] = &[
    "journal-2.6.32",
    "journal-2.6.32-zone-reclaim",
    "graphdb-zone-reclaim",
    "maildir-pae",
    "maildir-pae-leak",
    "maildir-pae-pressure",
    "maildir-x86_64",
    "bulk-2.6.17",
    "bulk-2.6.17-ratelimit16",
    "sdet-2.2.3",
    "sdet-2.2.5",
];

#[test]
fn few_constants_are_fitted_to_published_rows() {
    let profiles: Vec<_> = PROFILES.iter().map(|make| make()).collect();
    let scenarios: Vec<Scenario> = STUDIES.iter().map(|name| Scenario::load(name).expect(name)).collect();
    let calibrated = constant::calibration(&profiles, &scenarios);
    let fitted = calibrated.lines().skip(2).count();
    assert!(fitted <= 5, "{fitted} numbers are fitted to published rows:\n{calibrated}");
}

#[test]
fn the_command_lists_constants_with_their_sources_and_runs_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let list = |scenario: &str, on: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flatwater"));
        command.args(["run", scenario, "--on", on, "--constants"]).current_dir(directory.path());
        command.output().expect("the command runs")
    };
    let listed = list("journal-2.6.32", "sim");
    let text = String::from_utf8(listed.stdout).expect("text");
    let line = |name: &str| text.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{name}:\n{text}"));
    assert!(listed.status.success());
    assert!(line("block::deadline::FIFO_BATCH").ends_with("block/deadline-iosched.c: fifo_batch, 2.6.18"), "{text}");
    assert!(line("model.process_memory").contains("fitted"), "{text}");
    assert!(!text.contains("memcontrol::"), "2.6.32 does not use constants of v6: {text}");
    assert_eq!(std::fs::read_dir(directory.path()).expect("read").count(), 0, "the command runs nothing");
    assert_eq!(list("journal-2.6.32", "host").status.code(), Some(2));
}

/// Numbers that are units or part of the model's representation, not properties of a kernel or machine.
const REPRESENTATION: &[&str] = &[
    "NONE",
    // Owners of inodes that no file of a workload has.
    "MACHINE",
    "NO_FILE",
    "PAGE_BYTES",
    "WINDOW_PAGES",
    "INACTIVE",
    "ACTIVE",
    "PAGE",
    "HELD_BEFORE",
    "OLD_FILE_PAGES",
    "GIB4",
    "CALLS_MAX",
    "ZONES_MAX",
    "DIRECTORIES",
    "STEPS",
    "CLOSE",
    "SECOND",
    "ANONYMOUS",
    "SMALL_BYTES",
    "MS",
    "NAMELESS",
    "PER_PAGE",
    "FIRST_DATA",
    "DIRECT",
    "PER_INDIRECT",
    "ENTRIES_PER_BLOCK",
    "LISTS",
    "UNTOLD",
    "WINDOWS",
];

#[test]
fn every_number_of_the_model_declares_its_source() {
    let mut files = Vec::new();
    let mut folders = vec![root().join("crates/sim/src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    assert!(files.len() > 50, "{files:?}");
    let mut bare = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).expect("source");
        for line in text.lines() {
            let Some((_, declared)) = line.trim_start().trim_start_matches("pub ").split_once("const ") else {
                continue;
            };
            let Some((name, rest)) = declared.split_once(": ") else { continue };
            let Some((kind, value)) = rest.split_once(" = ") else { continue };
            let is_number = ["u8", "u32", "u64", "usize", "f64"].contains(&kind);
            let says =
                ["kernel(", "measured(", "published(", "fitted(", "assumed("].iter().any(|k| value.starts_with(k));
            if is_number && !says && !REPRESENTATION.contains(&name) {
                bare.push(format!("{}: {line}", path.display()));
            }
        }
    }
    assert!(bare.is_empty(), "declare these with `constants!`:\n{}", bare.join("\n"));
}
