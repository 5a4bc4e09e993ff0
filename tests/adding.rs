//! Compares docs/adding.md with the tree: the files that it names and the lines that it shows as present exist, and its
//! shortest examples work.

use std::path::{Path, PathBuf};
use std::process::Command;

use flatwater_explain::explain;
use flatwater_import::text::{Cursor, Text};
use flatwater_import::{Anchor, Builder, Importer, read_section};
use flatwater_recording::Recording;
use flatwater_report::{Format, Options};
use flatwater_workload::{Params, WorkloadEntry, stream};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page() -> String {
    read("docs/adding.md")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Lines to add to a file, and the existing line that they go before.
struct Addition {
    file: String,
    added: Vec<String>,
    before: String,
}

fn additions() -> Vec<Addition> {
    let page = page();
    let blocks = page.split("```adds ").skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
    blocks
        .map(|block| {
            let (file, lines) = block.split_once('\n').expect("a file and its lines");
            let lines: Vec<&str> = lines.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
            let (added, present): (Vec<&str>, Vec<&str>) = lines.iter().partition(|line| line.starts_with('+'));
            assert_eq!(present.len(), 1, "{file}: one line shows where the new ones belong");
            Addition {
                file: file.to_owned(),
                added: added.iter().map(|line| line[1..].to_owned()).collect(),
                before: present[0].to_owned(),
            }
        })
        .collect()
}

#[test]
fn every_file_that_the_page_names_exists() {
    let page = page();
    let quoted = page.split('`').skip(1).step_by(2);
    let of_tree = |text: &&str| ["crates/", "tests/", "docs/", "scenarios/"].iter().any(|top| text.starts_with(top));
    let mut named = 0;
    for path in quoted.filter(of_tree) {
        // NAME is the reader's choice; the folder before it must exist.
        let known = path.split("NAME").next().unwrap_or_default();
        assert!(root().join(known).exists(), "{path}");
        named += 1;
    }
    assert!(named >= 20, "{named} files are named");
}

#[test]
fn every_line_that_the_page_shows_as_present_is_present() {
    let additions = additions();
    assert!(additions.len() >= 8, "{}", additions.len());
    for Addition { file, added, before } in additions {
        let lines = read(&file);
        assert!(lines.lines().any(|line| line.trim() == before), "{file} has no line `{before}`");
        assert!(!added.is_empty(), "{file}");
    }
}

/// The folder of cause specs has no dependencies, so its copy compiles alone.
#[test]
fn the_pages_cause_compiles_and_has_its_bracket() {
    let folder = tempfile::tempdir().expect("a folder");
    let cause = folder.path().join("cause");
    std::fs::create_dir(&cause).expect("a folder");
    for file in ["mod.rs", "by_system.rs"] {
        std::fs::copy(root().join("crates/recording/src/cause").join(file), cause.join(file)).expect("a copy");
    }
    let table = "crates/recording/src/cause/table.rs";
    let addition = additions().into_iter().find(|addition| addition.file == table).expect("the page's cause");
    let before = read(table);
    let after = before.replace(&addition.before, &format!("{}\n{}", addition.added.join("\n"), addition.before));
    assert_ne!(before, after);
    std::fs::write(cause.join("table.rs"), after).expect("a file");
    let program = folder.path().join("main.rs");
    let main = r#"mod cause;
        use cause::{Cause, Ends, brackets};
        fn main() {
            let (number, cause, bracket) = brackets().last().expect("a bracket");
            let Ends::Tracepoints { begin, end } = bracket.ends else { panic!("{bracket:?}") };
            assert_eq!(Cause::of_bracket(number), Cause::from_name("huge-zero"));
            assert!(cause.spec().noise.has_floor() && cause.spec().can_run);
            println!("{} B_{} {begin} {end}", cause.name(), bracket.name);
        }"#;
    std::fs::write(&program, main).expect("a file");
    let built = folder.path().join("main");
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let mut compile = Command::new(rustc);
    compile.args(["--edition", "2024", "-A", "warnings", "-o"]).arg(&built).arg(&program);
    let output = compile.output().expect("rustc runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let message = Command::new(&built).output().expect("the program runs");
    assert!(message.status.success(), "{}", String::from_utf8_lossy(&message.stderr));
    assert_eq!(String::from_utf8_lossy(&message.stdout), "huge-zero B_HUGE_ZERO huge_zero_begin huge_zero_end\n");
}

#[test]
fn an_exporter_is_a_format_and_nothing_else() {
    const FORMAT: Format = Format {
        name: "huge",
        sentence: "The number of slow calls.",
        render: |recording, explanation, _| Ok(format!("{} {}", recording.calls.len(), explanation.findings.len())),
    };
    let recording = Recording::default();
    let text = (FORMAT.render)(&recording, &explain(&recording), &Options::default()).expect("a text");
    assert_eq!(text, "0 1");
}

#[test]
fn a_workload_is_an_entry_and_nothing_else() {
    const ENTRY: WorkloadEntry =
        WorkloadEntry { name: "huge", sentence: "Streams, under another name.", ..stream::ENTRY };
    let workload =
        (ENTRY.build)(&Params::check(ENTRY.name, ENTRY.params, []).expect("defaults"), 1).expect("a workload");
    assert!(!workload.actors().is_empty());
}

/// The names of the importers that the sources of the import crate define.
fn defined_importers() -> Vec<String> {
    let mut folders = vec![root().join("crates/import/src")];
    let mut names = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("a source file");
            let defined = text.split(": Importer = Importer {").skip(1);
            let name = |rest: &str| rest.split("name: \"").nth(1)?.split('"').next().map(str::to_owned);
            names.extend(defined.filter_map(name));
        }
    }
    names.sort();
    names
}

#[test]
fn every_importer_is_in_the_list_and_has_an_example() {
    let mut listed: Vec<&str> = flatwater_import::IMPORTERS.iter().map(|importer| importer.name).collect();
    listed.sort_unstable();
    assert_eq!(listed, defined_importers());
    for name in listed {
        let example = root().join("tests/golden/import").join(name);
        assert!(example.is_dir(), "{} is missing", example.display());
    }
}

#[test]
fn an_importer_reads_lines_and_nothing_else() {
    const IMPORTER: Importer = Importer {
        name: "huge-zero-log",
        sentence: "One line for each huge page.",
        kind: flatwater_import::FormatKind::Judged,
        anchors: &[Anchor::Line(&["huge zero "])],
        detect: |cursor| if cursor.next_text().starts_with("huge zero ") { 90 } else { 0 },
        read: |cursor, builder| {
            while cursor.next_text().starts_with("huge zero ") {
                cursor.take();
                builder.note("a huge page was zeroed");
            }
            Ok(())
        },
    };
    let text = Text::new(b"huge zero 2 MiB\nhuge zero 2 MiB\nsomething else\n");
    let (mut cursor, mut builder) = (Cursor::new(&text), Builder::default());
    assert_eq!((IMPORTER.detect)(&cursor), 90);
    read_section(&IMPORTER, &mut cursor, &mut builder);
    assert_eq!(builder.notes(), ["a huge page was zeroed"]);
    assert_eq!(cursor.next_text(), "something else", "what follows is left to the next importer");
}
