//! Any bytes as a log: the format is found as for a user. Seeds: the inputs under tests/golden/import.

#![no_main]

use flatwater::import::import_texts;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // Two files, so that joining by time is met too.
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let texts = [("first".to_owned(), first.to_vec()), ("second".to_owned(), second.to_vec())];
    for given in [&texts[..1], &texts[..]] {
        let Ok(imported) = import_texts(given) else { continue };
        let recording = imported.recording;
        assert!(recording.calls.iter().all(flatwater::recording::Call::tiles));
        for series in &recording.series {
            assert!(series.at_ns.is_sorted());
            assert!(series.columns.iter().all(|column| column.values.len() == series.at_ns.len()));
        }
    }
});
