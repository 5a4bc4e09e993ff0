//! Replays the fuzz corpus, unchanged and randomly mutated. No input may panic.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::{any, prop, proptest};

use flatwater_import::IMPORTERS;

/// Enough for a heading and a few rows.
const SEED_BYTES_MAX: usize = 4096;

#[path = "../fuzz/fuzz_targets/feed.rs"]
mod feed;

fn corpus(target: &str) -> Vec<PathBuf> {
    let place = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("fuzz/corpus").join(target);
    let mut files: Vec<PathBuf> =
        fs::read_dir(place).expect("a corpus").map(|entry| entry.expect("entry").path()).collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

#[test]
fn the_corpus_of_recordings() {
    for path in corpus("reader") {
        feed::read_as_recording(&fs::read(&path).expect("read"));
    }
}

#[test]
fn the_corpus_of_kernel_files() {
    for path in corpus("kernel_files") {
        feed::parse_as_kernel_file(&fs::read(&path).expect("read"));
    }
}

#[test]
fn the_corpus_of_logs() {
    for path in corpus("import_each") {
        feed::import_as_chosen(&fs::read(&path).expect("read"));
    }
    for path in corpus("import") {
        feed::import_as_a_user(&fs::read(&path).expect("read"));
    }
}

/// Writes a seed for each importer: its number, then the smallest golden input. Run `cargo test -p flatwater
/// recording_corpus:: -- --ignored` after adding an importer.
#[test]
#[ignore = "writes fuzz/corpus"]
fn writes_the_seeds_of_the_importers() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let mut two = Vec::new();
    for (number, importer) in (0_u8..).zip(IMPORTERS) {
        let inputs = fs::read_dir(root.join("tests/golden/import").join(importer.name)).expect("inputs");
        let inputs = inputs.map(|entry| entry.expect("entry").path());
        let inputs = inputs.filter(|path| path.extension().is_none_or(|extension| extension != "expected"));
        let texts = inputs.map(|path| fs::read(path).expect("read"));
        let mut smallest = texts.filter(|text| text.len() > 100).min_by_key(Vec::len).expect("an input");
        smallest.truncate(SEED_BYTES_MAX);
        if number < 2 {
            two.extend(&smallest);
        }
        let seed = [vec![number], smallest].concat();
        fs::write(root.join("fuzz/corpus/import_each").join(importer.name), seed).expect("write");
    }
    fs::write(root.join("fuzz/corpus/import/two-formats"), two).expect("write");
}

fn mutated(target: &str, which: prop::sample::Index, changes: &[(prop::sample::Index, u8)]) -> Vec<u8> {
    let files = corpus(target);
    let mut bytes = fs::read(which.get(&files)).expect("read");
    for (place, byte) in changes {
        let at = 1 + place.index(bytes.len() - 1);
        bytes[at] = *byte;
    }
    bytes
}

proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 400, failure_persistence: None, ..Default::default() })]

    #[test]
    fn recordings_near_the_corpus(which: prop::sample::Index, changes: Vec<(prop::sample::Index, u8)>) {
        feed::read_as_recording(&mutated("reader", which, &changes));
    }

    #[test]
    fn kernel_files_near_the_corpus(which: prop::sample::Index, changes: Vec<(prop::sample::Index, u8)>) {
        feed::parse_as_kernel_file(&mutated("kernel_files", which, &changes));
    }

    #[test]
    fn logs_near_the_corpus(which: prop::sample::Index, changes: Vec<(prop::sample::Index, u8)>) {
        feed::import_as_chosen(&mutated("import_each", which, &changes));
    }

    #[test]
    fn kernel_files_of_words_and_numbers(choice in any::<u8>(), text in "([a-zA-Z_:=.]{0,12}[ \n]{1,2}-?[0-9]{0,20}[\n ]){0,30}") {
        feed::parse_as_kernel_file(&[&[choice], text.as_bytes()].concat());
    }
}
