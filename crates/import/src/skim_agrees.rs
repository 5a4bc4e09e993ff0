//! Compares skimming with reading every line: both must give the same recording.

use std::path::{Path, PathBuf};

use flatwater_recording::Recording;

use crate::source::Source;
use crate::{Reading, import_with};

/// A line that no format knows, put before and after each log.
const PROSE: &str = "the quick brown fox jumps over the lazy dog and then it rests\n";
const LINES: usize = 70;

fn inputs() -> Vec<PathBuf> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/golden/import");
    let folders = std::fs::read_dir(root).expect("the golden folder").flatten();
    let files = folders.flat_map(|folder| std::fs::read_dir(folder.path()).expect("a format's folder").flatten());
    let mut files: Vec<PathBuf> = files.map(|file| file.path()).collect();
    files.retain(|path| path.extension().is_none_or(|extension| extension != "expected" && extension != "json"));
    files.sort();
    files
}

fn import(text: &[u8], skim_from_bytes: usize) -> Option<Recording> {
    let reading = Reading { skim_from_bytes: Some(skim_from_bytes), ..Reading::default() };
    let sources = vec![("log".to_owned(), PathBuf::from("log"), Source::new(text))];
    import_with(reading, sources).ok().map(|imported| imported.recording)
}

/// All data that a rule can read. The number of lines that were passed over differs on purpose and is left out.
fn evidence(recording: &Recording) -> Vec<String> {
    let header = &recording.header;
    let mut said = vec![
        format!("{:?}", header.machine),
        format!("{:?}", header.setup),
        format!("{:?}", header.sampled_tasks),
        format!("{:?}", recording.stacks),
        format!("{:?}", recording.calls),
        format!("{:?}", recording.latency),
        format!("{:?}", recording.events),
    ];
    said.extend(recording.series.iter().map(|series| format!("{series:?}")));
    said
}

#[test]
fn a_skimmed_log_gives_the_same_recording_as_the_whole_log() {
    let (mut compared, mut differ) = (0, Vec::new());
    for path in inputs() {
        let log = std::fs::read(&path).expect("a golden input");
        let prose = PROSE.repeat(LINES);
        let text = [prose.as_bytes(), &log, b"\n", prose.as_bytes()].concat();
        let (fast, slow) = (import(&text, 0), import(&text, usize::MAX));
        let (fast, slow) = (fast.as_ref().map(evidence), slow.as_ref().map(evidence));
        compared += usize::from(slow.is_some());
        if fast != slow {
            differ.push(path.display().to_string());
        }
    }
    assert!(differ.is_empty(), "these logs give another recording when skimmed:\n{}", differ.join("\n"));
    assert!(compared >= 80, "{compared} logs compared");
}
