//! House rules that cargo does not check: dependencies between crates, the length of files and functions, and files
//! that no module lists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The guide is 400 lines. Up to this limit a file may contain one idea that should not be split.
const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;
const LINE_CHARS_MAX: usize = 160;

/// Crates that may use the crate `precursor`; `cli` may use everything. The precursor must stay independent, and cargo
/// would not report such a dependency.
const MAY_USE_PRECURSOR: &[&str] = &["host", "sim", "cli"];

/// Crate -> our crates that its Cargo.toml may name. ARCHITECTURE.md has the same table.
const MAY_DEPEND_ON: &[(&str, &[&str])] = &[
    ("safefs", &[]),
    ("recording", &[]),
    ("workload", &["recording"]),
    ("import", &["recording"]),
    ("explain", &["recording"]),
    ("experiment", &["explain", "recording", "workload"]),
    ("report", &["experiment", "explain", "recording"]),
    ("guard", &["recording"]),
    ("host", &["guard", "recording", "safefs", "workload"]),
    ("vm", &["recording", "safefs", "workload"]),
    ("sim", &["recording", "workload"]),
    ("probe", &["experiment", "explain", "host", "recording", "report", "safefs", "workload"]),
    ("watch", &["explain", "guard", "host", "recording", "safefs"]),
    ("top", &["recording", "watch"]),
    ("fleet", &["experiment", "explain", "recording", "safefs"]),
];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn rust_files(folder: &str) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![root().join(folder)]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != "target" && name != "node_modules") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The `src` folder of each crate.
fn source_folders() -> Vec<String> {
    let crates = fs::read_dir(root().join("crates")).expect("crates/").flatten();
    let mut folders: Vec<String> =
        crates.map(|entry| format!("crates/{}/src", entry.file_name().to_string_lossy())).collect();
    folders.push("precursor/src".to_owned());
    folders.sort();
    folders
}

fn all_rust() -> Vec<PathBuf> {
    ["crates", "precursor", "tests", "bench", "fuzz/fuzz_targets"].into_iter().flat_map(rust_files).collect()
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Fails with the rule and all its breaches, each with its place.
fn none(rule: &str, breaches: &[String]) {
    assert!(breaches.is_empty(), "{rule}\n  {}", breaches.join("\n  "));
}

/// Cargo forbids imports that are not in the manifest; this test forbids the entries in the manifest.
#[test]
fn crates_depend_only_on_what_the_table_allows() {
    let mut breaches = Vec::new();
    for (name, allowed) in MAY_DEPEND_ON {
        let manifest = root().join("crates").join(name).join("Cargo.toml");
        let text = text(&manifest);
        let dependencies = text.split("[dev-dependencies]").next().unwrap_or_default();
        for line in dependencies.lines() {
            let Some(used) = line.strip_prefix("flatwater-").and_then(|rest| rest.split(['.', ' ', '=']).next()) else {
                let precursor = line.starts_with("precursor");
                if precursor && !MAY_USE_PRECURSOR.contains(name) {
                    breaches.push(format!("{}: the precursor", shown(&manifest)));
                }
                continue;
            };
            if !allowed.contains(&used) {
                breaches.push(format!("{}: flatwater-{used}", shown(&manifest)));
            }
        }
    }
    none("a crate depends on what ARCHITECTURE.md forbids it:", &breaches);
}

/// The error type E of each `Result<T, E>` in the text, with its line.
fn error_types(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("Result<") {
        let inside = &text[at + "Result<".len()..];
        let (mut depth, mut comma, mut before) = (0_i32, None, ' ');
        for (place, c) in inside.char_indices() {
            match c {
                '<' | '(' | '[' => depth += 1,
                '>' if before == '-' => {}
                '>' if depth == 0 => {
                    let error = comma.map(|comma: usize| inside[comma + 1..place].trim());
                    found.extend(error.map(|error| (text[..at].matches('\n').count() + 1, error)));
                    break;
                }
                '>' | ')' | ']' => depth -= 1,
                ',' if depth == 0 => comma = Some(place),
                _ => {}
            }
            before = c;
        }
    }
    found
}

/// Callers cannot match on an error that is a string.
#[test]
fn errors_are_types() {
    let reported: Vec<&str> =
        error_types("fn a() -> Result<Vec<(u8, String)>, fn() -> X> {} fn b() -> Result<u8, String>")
            .into_iter()
            .map(|(_, error)| error)
            .collect();
    assert_eq!(reported, ["fn() -> X", "String"], "error_types() itself");
    let mut breaches = Vec::new();
    for path in source_folders().iter().flat_map(|folder| rust_files(folder)) {
        let text = text(&path);
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let strings =
            error_types(code).into_iter().filter(|(_, error)| ["String", "&'static str", "&str"].contains(error));
        breaches.extend(strings.map(|(line, _)| format!("{}:{line}: a Result with a text as its error", shown(&path))));
        let from_str = code.lines().enumerate().filter(|(_, line)| line.trim() == "type Err = String;");
        breaches.extend(from_str.map(|(line, _)| format!("{}:{}: a text as its error", shown(&path), line + 1)));
    }
    none("an error must be a type (thiserror) that says what happened, to what, and what to do next:", &breaches);
}

#[test]
fn files_are_short() {
    let lengths = all_rust().into_iter().map(|path| (text(&path).lines().count(), path));
    let long = lengths.filter(|(lines, _)| *lines > FILE_LINES_MAX);
    let breaches: Vec<String> = long.map(|(lines, path)| format!("{}: {lines} lines", shown(&path))).collect();
    none("a file is over 600 lines: split it by idea", &breaches);
}

/// (first line, length, name) of each function: from `fn` to the line that closes its indentation. Relies on rustfmt's
/// layout.
fn function_lengths(text: &str) -> Vec<(usize, usize, String)> {
    let heads = ["fn ", "pub fn ", "pub(crate) fn ", "pub(super) fn ", "const fn ", "pub const fn ", "unsafe fn "];
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        if !heads.iter().any(|head| code.starts_with(head)) || line.ends_with(';') || line.ends_with('}') {
            continue;
        }
        let close = format!("{}}}", &line[..line.len() - code.len()]);
        if let Some(end) = lines[start..].iter().position(|later| *later == close) {
            found.push((start + 1, end + 1, code.split('(').next().unwrap_or(code).to_owned()));
        }
    }
    found
}

#[test]
fn functions_are_short() {
    let mut breaches = Vec::new();
    for path in all_rust() {
        for (line, length, name) in function_lengths(&text(&path)) {
            if length > FUNCTION_LINES_MAX {
                breaches.push(format!("{}:{line}: {name} has {length} lines", shown(&path)));
            }
        }
    }
    none("a function is over 70 lines: one idea each", &breaches);
}

#[test]
fn no_glob_imports_no_long_lines_no_leftovers() {
    let marks = ["TODO", "FIXME", "XXX", "HACK"];
    let mut breaches = Vec::new();
    for path in all_rust().into_iter().filter(|path| !path.ends_with("tests/tidy.rs")) {
        for (number, line) in text(&path).lines().enumerate() {
            let mut breach = |what: &str| breaches.push(format!("{}:{}: {what}", shown(&path), number + 1));
            if line.trim_start().starts_with("use ") && line.contains("::*") {
                breach("glob import");
            }
            if line.chars().count() > LINE_CHARS_MAX && !line.contains('"') {
                breach("a line over 160 characters");
            }
            if marks.iter().any(|mark| line.contains(mark)) {
                breach("a leftover mark");
            }
            if line.contains("static mut ") || line.contains("dbg!(") {
                breach("a mutable global, or a debugging leftover");
            }
        }
    }
    none("house style:", &breaches);
}

#[test]
fn every_file_is_listed_by_a_module() {
    let mut breaches = Vec::new();
    for folder in source_folders() {
        let files = rust_files(&folder);
        let texts: Vec<String> = files.iter().map(|path| text(path)).collect();
        let manifest = text(&root().join(&folder).with_file_name("Cargo.toml"));
        for path in &files {
            // A binary with its own root file.
            let below = path.strip_prefix(root().join(&folder)).unwrap_or(path).display().to_string();
            if manifest.contains(&format!("path = \"src/{below}\"")) {
                continue;
            }
            let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            let is_root = ["main", "lib"].contains(&stem) && path.parent().is_some_and(|dir| dir.ends_with("src"));
            let folder_name = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
            let name = if stem == "mod" { folder_name.unwrap_or_default() } else { stem };
            let line = format!("mod {name};");
            let by_path = format!("#[path = \"{stem}.rs\"]");
            // A row of a registry whose macro declares the module: `steal => Steal,`.
            let by_row = format!("{name} => ");
            let lists = |l: &str| l.trim().ends_with(&line) || l.trim() == by_path || l.trim().starts_with(&by_row);
            if !is_root && !texts.iter().any(|text| text.lines().any(lists)) {
                breaches.push(shown(path));
            }
        }
    }
    none("files that no module lists (unused, or missing in a registry):", &breaches);
}

/// `make demo` builds the command without the model, the daemon and `top`, and `make test` does not: an attribute that moves
/// to the next line would break that build unseen.
#[test]
fn only_these_verbs_need_a_feature() {
    let text = text(&root().join("crates/cli/src/lib.rs"));
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let of_feature = |feature: &str| -> BTreeSet<String> {
        let attribute = format!("#[cfg(feature = \"{feature}\")]");
        let below = lines.windows(3).filter(|three| three[0] == attribute);
        let item = below.map(|three| if three[1].starts_with("#[command") { three[2] } else { three[1] });
        let word = |line: &str| -> String {
            let name = line.trim_start_matches("mod ").trim_start_matches("Verb::");
            name.chars().take_while(|c| c.is_alphanumeric()).collect::<String>().to_lowercase()
        };
        item.map(word).collect()
    };
    let set = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(of_feature("sim"), set(&["whatif"]));
    assert_eq!(of_feature("watch"), set(&["guard", "lease", "watch"]));
    assert_eq!(of_feature("top"), set(&["top"]));
}

/// The command line only connects stages. Computations belong to a stage, where tests need no process. Statistics and
/// models use floating point; connecting stages does not.
#[test]
fn the_command_line_computes_nothing() {
    const VERB_LINES_MAX: usize = 250;
    let mut breaches = Vec::new();
    for path in rust_files("crates/cli/src") {
        let text = text(&path);
        let computes = |line: &str| line.replace("as_secs_f64()", "").contains("f64") || line.contains("f32");
        for (number, _) in text.lines().enumerate().filter(|(_, line)| computes(line)) {
            breaches.push(format!("{}:{}: computes with fractions", shown(&path), number + 1));
        }
        if text.lines().count() > VERB_LINES_MAX {
            breaches.push(format!("{}: over {VERB_LINES_MAX} lines", shown(&path)));
        }
    }
    none("computations in the command line: move them to a stage", &breaches);
}

#[test]
fn every_scenario_file_is_built_in() {
    let builtin: Vec<&str> = flatwater_workload::scenario::builtin::BUILTIN.iter().map(|(name, _)| *name).collect();
    let entries = fs::read_dir(root().join("scenarios")).expect("scenarios/").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let scenarios = names.filter_map(|name| name.strip_suffix(".toml").map(str::to_owned));
    let breaches: Vec<String> = scenarios.filter(|stem| !builtin.contains(&stem.as_str())).collect();
    none("a scenario that crates/workload/src/scenario/builtin.rs does not list:", &breaches);
}

#[test]
fn every_file_begins_with_a_doc_comment() {
    let files = ["crates", "precursor/src", "tests", "bench"].into_iter().flat_map(rust_files);
    let silent = files.filter(|path| !text(path).starts_with("//!"));
    let breaches: Vec<String> = silent.map(|path| shown(&path)).collect();
    none("files that do not begin with a doc comment (`//! ...`):", &breaches);
}
