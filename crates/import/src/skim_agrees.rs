//! Compares skimming with reading every line: both must give the same recording.

use std::path::{Path, PathBuf};

use flatwater_recording::Recording;

use crate::source::Source;
use crate::{Reading, import_with};

/// A line that no format knows, put before and after each log.
const PROSE: &str = "the quick brown fox jumps over the lazy dog and then it rests\n";
const LINES: usize = 70;

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        match entry.path() {
            path if path.is_dir() => files(&path, found),
            path => found.push(path),
        }
    }
}

/// All example logs and published logs.
pub fn logs() -> Vec<PathBuf> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests"));
    let mut found = Vec::new();
    files(&root.join("golden/import"), &mut found);
    files(&root.join("corpus/logs"), &mut found);
    found.retain(|path| path.extension().is_none_or(|extension| extension != "expected" && extension != "json"));
    found.sort();
    found
}

fn import(text: &[u8], skim_from_bytes: usize) -> Option<Recording> {
    let reading = Reading { skim_from_bytes: Some(skim_from_bytes), ..Reading::default() };
    let sources = vec![("log".to_owned(), PathBuf::from("log"), Source::new(text))];
    import_with(reading, sources).ok().map(|imported| imported.recording)
}

/// All data that a rule can read. The number of lines that were passed over differs on purpose and is left out.
fn evidence(recording: &Recording) -> Vec<String> {
    let header = &recording.header;
    let mut evidence = vec![
        format!("{:?}", header.machine),
        format!("{:?}", header.setup),
        format!("{:?}", header.sampled_tasks),
        format!("{:?}", recording.stacks),
        format!("{:?}", recording.calls),
        format!("{:?}", recording.latency),
        format!("{:?}", recording.events),
    ];
    evidence.extend(recording.series.iter().map(|series| format!("{series:?}")));
    evidence
}

#[test]
fn a_skimmed_log_gives_the_same_recording_as_the_whole_log() {
    let (mut compared, mut differ) = (0, Vec::new());
    for path in logs().into_iter().filter(|path| path.to_string_lossy().contains("golden/import")) {
        let log = std::fs::read(&path).expect("a golden input");
        let prose = PROSE.repeat(LINES);
        let text = [prose.as_bytes(), &log, b"\n", prose.as_bytes()].concat();
        let (fast, slow) = (import(&text, 0), import(&text, usize::MAX));
        let (fast, slow) = (fast.as_ref().map(evidence), slow.as_ref().map(evidence));
        compared += usize::from(slow.is_some());
        // Prose above a log may hide the width at which the log was wrapped.
        if fast != slow && fast != import(&log, usize::MAX).as_ref().map(evidence) {
            differ.push(path.display().to_string());
        }
    }
    assert!(differ.is_empty(), "these logs give another recording when skimmed:\n{}", differ.join("\n"));
    assert!(compared >= 80, "{compared} logs compared");
}
