//! Third-party code in our binaries: the bill of materials, the licence texts, and the files that `make install`
//! installs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn third_party(what: &str) -> String {
    let made = Command::new("tools/third_party.py").arg(what).current_dir(root()).output().expect("python3 runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).expect("UTF-8")
}

/// The crates that cargo links into the command and the library, as `name version`.
fn linked() -> BTreeSet<String> {
    let tree =
        ["tree", "--locked", "--offline", "-e", "normal", "--prefix", "none", "--target", "x86_64-unknown-linux-gnu"];
    let out = Command::new(env!("CARGO"))
        .args(tree)
        .args(["-p", "flatwater", "-p", "precursor"])
        .current_dir(root())
        .output();
    let out = out.expect("cargo runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).expect("UTF-8");
    let named = text.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
        // Procedural macros are listed too, although they run in the compiler and are in no binary.
        Some(format!("{name} {version}"))
    });
    named.collect()
}

/// A reader of recordings has few dependencies, none of them a kernel tracer or a command line parser.
#[test]
fn the_recording_crate_needs_few_crates_and_no_bpf_compiler() {
    const CRATES_MAX: usize = 60;
    let tree = ["tree", "--locked", "--offline", "-e", "normal,build", "--prefix", "none", "-p", "flatwater-recording"];
    let out = Command::new(env!("CARGO")).args(tree).current_dir(root()).output().expect("cargo runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).expect("UTF-8");
    let crates: BTreeSet<&str> = text.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    assert!(crates.len() <= CRATES_MAX, "{} crates: {crates:?}", crates.len());
    let ours = crates.iter().filter(|name| name.starts_with("flatwater") || name.starts_with("precursor"));
    assert_eq!(ours.count(), 1, "{crates:?}");
    for kept_out in ["aya", "clap", "clang", "bindgen", "object", "tokio"] {
        assert!(!crates.iter().any(|name| name.starts_with(kept_out)), "{kept_out} in {crates:?}");
    }
    assert!(!root().join("crates/recording/build.rs").exists(), "it has a build script");
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("{key} in {value}"))
}

#[test]
fn the_bill_of_materials_names_what_cargo_links_and_is_the_same_each_time() {
    let made = third_party("sbom");
    assert_eq!(made, third_party("sbom"));
    let bill: Value = serde_json::from_str(&made).expect("JSON");
    assert_eq!((text(&bill, "bomFormat"), text(&bill, "specVersion")), ("CycloneDX", "1.5"));
    let components = bill["components"].as_array().expect("components");
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).expect("a lock file");
    let mut named = BTreeSet::new();
    for component in components {
        let (name, version, purl) = (text(component, "name"), text(component, "version"), text(component, "purl"));
        assert!(!text(&component["licenses"][0], "expression").contains('/'), "{name}: an SPDX expression");
        if purl.starts_with("pkg:npm/") {
            assert_eq!(name, "uplot");
            continue;
        }
        assert_eq!(purl, format!("pkg:cargo/{name}@{version}"));
        match component["hashes"][0]["content"].as_str() {
            Some(hash) => assert!(lock.contains(&format!("checksum = \"{hash}\"")), "{name}"),
            None => assert!(
                root().join("crates").exists() && (name.starts_with("flatwater") || name == "precursor"),
                "{name}"
            ),
        }
        named.insert(format!("{name} {version}"));
    }
    assert_eq!(named, linked());
    let known: BTreeSet<&str> = components.iter().map(|component| text(component, "bom-ref")).collect();
    for edge in bill["dependencies"].as_array().expect("dependencies") {
        for to in edge["dependsOn"].as_array().expect("a list") {
            assert!(known.contains(to.as_str().expect("a reference")), "{to} is not a component");
        }
    }
}

#[test]
fn every_linked_crate_has_its_licence_text() {
    let texts = third_party("licences");
    for name in linked() {
        let own = name.starts_with("flatwater") || name.starts_with("precursor ");
        assert_eq!(texts.contains(&format!("\n{name} (")), !own, "{name}");
    }
    assert!(
        texts.contains("uplot 1.")
            && texts.contains("Permission is hereby granted")
            && texts.contains("Apache License")
    );
}

/// Takes minutes, because it builds for release.
#[test]
#[ignore = "builds for release"]
fn what_is_installed_is_small_names_no_builder_and_finds_its_debug_information() {
    let place = tempfile::tempdir().expect("a directory");
    let mut made = Command::new("make");
    made.args(["install", "PREFIX=/usr"]).arg(format!("DESTDIR={}", place.path().display()));
    let made = made.current_dir(root()).output().expect("make runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let usr = place.path().join("usr");
    let home = std::env::var("HOME").expect("a home");
    for shipped in ["bin/flatwater", "lib/libprecursor.so.1", "lib/libprecursor.a"] {
        let bytes = std::fs::read(usr.join(shipped)).expect(shipped);
        assert!(bytes.len() < 20_000_000, "{shipped}: {} bytes", bytes.len());
        let checkout = root().canonicalize().expect("a path");
        for path in [format!("{home}/"), "/registry/src/".to_owned(), format!("{}/", checkout.display())] {
            let trimmed = path == "/registry/src/";
            let found = bytes.windows(path.len()).position(|window| window == path.as_bytes());
            let before = found.map(|at| String::from_utf8_lossy(&bytes[at.saturating_sub(20)..at]).into_owned());
            assert!(
                before.as_ref().is_none_or(|before| trimmed && before.ends_with("/cargo")),
                "{shipped}: {before:?}{path}"
            );
        }
    }
    let debug = usr.join("lib/debug/bin/flatwater.debug");
    let sections = Command::new("readelf").args(["-S", "--wide"]).arg(&debug).output().expect("readelf");
    assert!(String::from_utf8_lossy(&sections.stdout).contains(".debug_line"), "{}", debug.display());
    let link = Command::new("readelf")
        .args(["-p", ".gnu_debuglink"])
        .arg(usr.join("bin/flatwater"))
        .output()
        .expect("readelf");
    assert!(String::from_utf8_lossy(&link.stdout).contains("flatwater.debug"));
    for text in ["THIRD-PARTY-LICENCES.txt", "flatwater.cdx.json", "LICENSE-MIT", "LICENSE-APACHE"] {
        assert!(usr.join("share/doc/flatwater").join(text).is_file(), "{text}");
    }
}
