//! The commands in README.md and docs/: each `flatwater` command has a verb and options that exist, each `make` target
//! exists, and commands that need only a recording or nothing at all run as written.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Commands that run as written, by their first words. The others need a program to watch, a daemon, a guest, a disk for a
/// scenario, or minutes: other tests run them.
const RUN: &[&str] = &["report REC", "explain REC", "explain rec", "import --list", "scenarios", "check", "causes"];
const RECORDING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/recordings-3c238a6/host");

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn pages() -> Vec<PathBuf> {
    let (mut found, mut folders) = (vec![root().join("README.md")], vec![root().join("docs")]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("readable").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// A command line of a page, without the prompt and `sudo`.
#[derive(Debug)]
struct Line {
    place: String,
    words: Vec<String>,
}

/// The words of a shell command up to its comment or to what connects it with the next command.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for (at, character) in line.char_indices() {
        match (quote, character) {
            // The output of another command: one word.
            (None, '(') if line[..at].ends_with('$') => quote = Some(')'),
            (Some(open), _) if open == character => quote = None,
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            (None, '|' | ';' | '>' | '&' | '<') => break,
            (None, '#') if line[..at].ends_with(' ') => break,
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    words
}

/// The lines of fenced blocks that begin with this program.
fn commands(program: &str) -> Vec<Line> {
    let mut found = Vec::new();
    for page in pages() {
        let (text, mut fenced) = (fs::read_to_string(&page).expect("readable"), false);
        for (number, line) in text.lines().enumerate() {
            if line.starts_with("```") {
                fenced = !fenced;
            }
            let command = line.trim_start_matches(['$', '#', ' ']);
            let command = command.strip_prefix("sudo ").unwrap_or(command);
            // A sentence that begins with the name is not a command: commands have no upper-case letter or full stop
            // behind it.
            let Some(rest) = command.strip_prefix(program).and_then(|rest| rest.strip_prefix(' ')) else { continue };
            if fenced {
                let place = format!("{}:{}", page.strip_prefix(root()).unwrap_or(&page).display(), number + 1);
                found.push(Line { place, words: words(rest) });
            }
        }
    }
    found
}

fn flatwater(words: &[String], directory: &Path) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flatwater"));
    let output = command.args(words).current_dir(directory).stdin(Stdio::null()).output().expect("the command runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code(), text)
}

#[test]
fn every_command_in_the_docs_has_a_verb_and_options_that_exist() {
    let directory = tempfile::tempdir().expect("a directory");
    let all = commands("flatwater");
    assert!(all.len() >= 50, "only {} commands were found", all.len());
    let mut wrong = Vec::new();
    for line in &all {
        let is_pid = |word: &str| word == "PID" || word.starts_with('$');
        let replaced = |word: &String| if is_pid(word) { "1".to_owned() } else { word.clone() };
        let mut words: Vec<String> = line.words.iter().take_while(|word| *word != "--").map(replaced).collect();
        words.push("--help".to_owned());
        let (code, text) = flatwater(&words, directory.path());
        if code != Some(0) {
            wrong.push(format!("{}: {}\n{text}", line.place, line.words.join(" ")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn commands_that_need_only_a_recording_run_as_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut ran, mut wrong) = (0, Vec::new());
    for line in commands("flatwater") {
        let text = line.words.join(" ");
        if !RUN.iter().any(|begin| text.starts_with(begin)) {
            continue;
        }
        let replaced = |word: &String| if word == "REC" || word == "rec" { RECORDING.to_owned() } else { word.clone() };
        let words: Vec<String> = line.words.iter().map(replaced).collect();
        let (code, answer) = flatwater(&words, directory.path());
        ran += 1;
        // 4: the recording holds too little to judge.
        if !matches!(code, Some(0 | 4)) {
            wrong.push(format!("{}: {text}\n{answer}", line.place));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(ran >= 10, "only {ran} commands ran");
}

#[test]
fn every_make_target_in_the_docs_exists() {
    let makefile = fs::read_to_string(root().join("Makefile")).expect("readable");
    let exists = |target: &str| {
        let part = target.strip_prefix("test-").is_some_and(|_| makefile.contains("\ntest-%:"));
        part || makefile.lines().any(|line| {
            line.starts_with(&format!("{target}:"))
                || line.split(':').next().is_some_and(|names| names.split(' ').any(|name| name == target))
        })
    };
    let all = commands("make");
    assert!(all.len() >= 5, "only {} commands were found", all.len());
    let wrong: Vec<String> = all
        .iter()
        .filter(|line| !line.words.first().is_some_and(|target| exists(target)))
        .map(|line| format!("{}: make {}", line.place, line.words.join(" ")))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// `flatwater completions markdown` prints the reference part of docs/command-line.md.
#[test]
fn the_reference_in_the_docs_is_current() {
    let page = fs::read_to_string(root().join("docs/command-line.md")).expect("readable");
    let (begin, end) = ("<!-- reference: begin -->\n", "<!-- reference: end -->");
    let part = page.split_once(begin).and_then(|(_, rest)| rest.split_once(end)).expect("the marks").0;
    assert_eq!(
        part.trim(),
        flatwater::reference().trim(),
        "run tools/reference.sh, which writes the output of `flatwater completions markdown` into docs/command-line.md"
    );
}
