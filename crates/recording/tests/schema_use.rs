//! Lists the writers and readers of each column of the schema, by the constants in the crates' sources.
//!
//! `cargo test -p flatwater-recording schema_use:: -- --nocapture` prints the table.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use flatwater_recording::schema::{self, Column, GROUPS, page};

/// Stages that write tables, and stages that read them. One file of the host also reads its own vmstat table.
const WRITERS: [&str; 4] = ["host", "vm", "sim", "import"];
const READERS: [&str; 6] = ["explain", "report", "experiment", "workload", "cli", "host/src/proc/vmstat.rs"];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Source files below a folder, without their tests.
fn sources(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            sources(&path, found);
        } else if name.ends_with(".rs") && name != "tests.rs" && name != "testing.rs" {
            let text = std::fs::read_to_string(&path).expect("a source file");
            found.push((path, text.split("#[cfg(test)]").next().unwrap_or_default().to_owned()));
        }
    }
}

/// All `module::CONSTANT` names in the text.
fn constants(text: &str) -> BTreeSet<(String, String)> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let places = text.match_indices("::").filter_map(|(at, _)| {
        let module = text[..at].rsplit(|c| !word(c)).next().unwrap_or_default();
        let constant = text[at + 2..].split(|c| !word(c)).next().unwrap_or_default();
        constant.starts_with(|c: char| c.is_ascii_uppercase()).then(|| (module.to_owned(), constant.to_owned()))
    });
    places.collect()
}

#[derive(Default)]
struct Use {
    writers: BTreeSet<String>,
    readers: BTreeSet<String>,
}

type Name = (&'static str, &'static str);

fn name(column: Column) -> Name {
    (column.table.name(), column.constant)
}

fn uses() -> BTreeMap<Name, Use> {
    let mut uses: BTreeMap<Name, Use> = schema::all().map(|column| (name(column), Use::default())).collect();
    for stage in WRITERS.iter().chain(&READERS) {
        let mut found = Vec::new();
        let at = crates().join(stage);
        match at.is_file() {
            true => found.push((at.clone(), std::fs::read_to_string(&at).expect("a source file"))),
            false => sources(&at, &mut found),
        }
        assert!(!found.is_empty(), "no sources of {stage}");
        for (_, text) in found {
            let reads = READERS.contains(stage);
            let named = constants(&text);
            let has = |module: &str, constant: &str| named.contains(&(module.to_owned(), constant.to_owned()));
            for group in GROUPS {
                let all = has(group.table.name(), group.constant);
                for &column in group.columns.iter().filter(|column| all || has(group.table.name(), column.constant)) {
                    let Some(known) = uses.get_mut(&name(column)) else { continue };
                    let stages = if reads { &mut known.readers } else { &mut known.writers };
                    stages.insert((*stage).to_owned());
                }
            }
        }
    }
    // The host stores these files line by line; crates/host/src/proc/lines.rs tests that no line is lost.
    for group in GROUPS.iter().filter(|group| group.are_lines) {
        for &column in group.columns {
            uses.entry(name(column)).or_default().writers.insert("host".to_owned());
        }
    }
    uses
}

fn list(stages: &BTreeSet<String>) -> String {
    stages.iter().cloned().collect::<Vec<_>>().join(" ")
}

/// Columns with readers but no writer, and columns with neither.
fn faults(uses: &BTreeMap<Name, Use>) -> (Vec<String>, Vec<String>) {
    let unwritten = uses.iter().filter(|(_, of)| of.writers.is_empty());
    let (read, unused): (Vec<_>, Vec<_>) = unwritten.partition(|(_, of)| !of.readers.is_empty());
    let name = |(table, constant): &Name| format!("{table}::{constant}");
    let read = read.into_iter().map(|(column, of)| format!("{}, read by {}", name(column), list(&of.readers)));
    (read.collect(), unused.into_iter().map(|(column, _)| name(column)).collect())
}

#[test]
fn every_column_has_a_writer() {
    let uses = uses();
    let mut listing = String::new();
    for ((table, constant), Use { writers, readers }) in &uses {
        let _ = writeln!(listing, "{table:<10} {constant:<34} {:<22} -> {}", list(writers), list(readers));
    }
    println!("{listing}");
    let (unwritten, unused) = faults(&uses);
    assert_eq!(unwritten, [] as [String; 0], "read, but never written");
    assert_eq!(unused, [] as [String; 0], "neither read nor written");
}

/// Tests the search itself: it finds a use in a source, and reports a column without a writer.
#[test]
fn a_column_without_a_writer_is_found() {
    let named = constants("probe.set(disks::QUEUE_NS, 1); let [a] = [vmstat::PGFAULT]; use vmstat::tables;");
    let name = |module: &str, constant: &str| (module.to_owned(), constant.to_owned());
    assert_eq!(named, BTreeSet::from([name("disks", "QUEUE_NS"), name("vmstat", "PGFAULT")]));
    let by = |stages: &[&str]| stages.iter().map(|&stage| stage.to_owned()).collect::<BTreeSet<_>>();
    let uses = BTreeMap::from([
        (("disks", "QUEUE_NS"), Use { writers: by(&["host"]), readers: by(&["explain"]) }),
        (("disks", "QUEUE_MS"), Use { writers: by(&[]), readers: by(&["explain", "report"]) }),
        (("disks", "QUEUE_S"), Use::default()),
    ]);
    let (unwritten, unused) = faults(&uses);
    assert_eq!(unwritten, ["disks::QUEUE_MS, read by explain report"]);
    assert_eq!(unused, ["disks::QUEUE_S"]);
    // Every column that the sources of explain name has a writer. The large number shows that the search works.
    assert!(self::uses().values().filter(|of| of.readers.contains("explain")).count() > 100);
}

/// Writers and readers name counters by constants, because strings would diverge again. Importers may use strings:
/// they convert the names of other tools into columns.
#[test]
fn no_stage_names_a_column_by_a_string() {
    let mut found = Vec::new();
    for stage in ["explain", "report", "workload", "experiment", "cli", "host", "vm", "sim"] {
        sources(&crates().join(stage).join("src"), &mut found);
    }
    let columns: Vec<Column> = schema::all().filter(|column| column.name.contains('_')).collect();
    let mut strings = Vec::new();
    for (path, text) in &found {
        for (number, line) in text.lines().enumerate() {
            for quoted in line.split('"').skip(1).step_by(2) {
                let mut namesakes = columns.iter().filter(|column| column.name == quoted).peekable();
                // The word of a kernel's file on the same line as the column's constant.
                let is_mapped = |column: &Column| line.contains(&format!("::{}", column.constant));
                if namesakes.peek().is_some() && !namesakes.any(is_mapped) {
                    strings.push(format!("{}:{}: {quoted}", path.display(), number + 1));
                }
            }
        }
    }
    assert_eq!(strings, [] as [String; 0]);
}

/// Regenerate with `FLATWATER_BLESS=1 cargo test -p flatwater-recording schema_use::`.
#[test]
fn recording_md_is_up_to_date() {
    in_step("columns", &page::markdown());
    in_step("rows", &page::flat_markdown());
    in_step("summary", &page::summary_markdown());
}

fn in_step(what: &str, generated: &str) {
    let path = crates().join("../docs/recording.md");
    let text = std::fs::read_to_string(&path).expect("docs/recording.md");
    let begin = format!("<!-- {what}: generated from crates/recording/src; FLATWATER_BLESS=1 writes them anew -->");
    let end = format!("<!-- end of {what} -->");
    let (before, rest) = text.split_once(&begin).expect("the tables' beginning");
    let (kept, after) = rest.split_once(&end).expect("the tables' end");
    let now = format!("\n{generated}\n");
    if std::env::var_os("FLATWATER_BLESS").is_some() {
        std::fs::write(&path, format!("{before}{begin}{now}{end}{after}")).expect("docs/recording.md");
    } else {
        assert!(kept == now, "docs/recording.md is out of date: run this test with FLATWATER_BLESS=1");
    }
}
