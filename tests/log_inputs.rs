//! Small logs, one of each kind that was answered badly, and the answer that an expert would give. The figures are made
//! for these tests.

use flatwater_explain::{Conclusion, Explanation, explain};
use flatwater_import::import_texts;
use flatwater_recording::ImportSummary;

fn explained(name: &str) -> (Explanation, ImportSummary) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/log-inputs").join(name);
    let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let recording = import_texts(&[(name.to_owned(), text)]).expect(name).recording;
    let summary = recording.header.import.clone().expect("a summary");
    (explain(&recording), summary)
}

#[test]
fn each_log_names_the_cause_that_its_figures_show() {
    for (name, cause, says) in [
        ("ssd-slow-alone.txt", "device-slow", "ms per write and"),
        ("hourly-drop-caches.txt", "cache-dropped", "sh dropped the cache 6 times"),
        ("spinlock-profile.txt", "lock", "__filemap_add_folio 6.9 %"),
        ("io-max-in-the-paste.txt", "io-throttle", "the limit of /jobs on 8:0 is 10 MiB/s"),
        ("one-cpu-in-softirq.txt", "interrupt", "CPU 3 spent 98 % of the time in interrupts"),
        ("functions-by-name.txt", "journal-commit", ""),
    ] {
        let (explanation, _) = explained(name);
        let first = &explanation.findings[0];
        assert_eq!(first.cause.name(), cause, "{name}: {explanation:#?}");
        let text: Vec<&str> = first.evidence.iter().map(|evidence| evidence.text.as_str()).collect();
        assert!(text.iter().any(|line| line.contains(says)), "{name}: {text:?}");
    }
}

#[test]
fn every_row_of_the_functions_histograms_counts() {
    let (explanation, summary) = explained("functions-by-name.txt");
    assert_eq!((summary.understood, summary.not_understood.len()), (summary.lines, 0), "{summary:?}");
    let worst = explanation.operations.iter().map(|operation| operation.from_start.max_ns).max();
    assert!(worst.is_some_and(|ns| ns >= 30_000_000), "the largest bucket ends at 33.5 ms: {worst:?}");
}

#[test]
fn a_usb_line_beside_vmstat_changes_nothing() {
    let (with, _) = explained("vmstat-and-usb-line.txt");
    let first = &with.findings[0];
    assert!(first.headline.contains("averages") && first.against.is_empty(), "{with:#?}");
}

#[test]
fn one_free_excludes_a_memory_shortage_and_nothing_else() {
    let (explanation, _) = explained("idle-free.txt");
    assert_eq!(explanation.conclusion, Conclusion::NotEnough);
    let first = &explanation.findings[0];
    assert!(
        first.headline.contains("memory was not short") && first.headline.contains("devices"),
        "{}",
        first.headline
    );
    assert!(first.confidence.is_nan(), "no claim, so no confidence");
}
