//! Recordings that flatwater made at 3c238a6 stay readable: each one opens, has the same findings with the same stall
//! time in the same order, and can be printed in every format.
//!
//! Findings that changed on purpose are in `CHANGED`, with the reason. The files `*.findings.json` are from 3c238a6 and
//! do not change.

use std::path::{Path, PathBuf};

use flatwater_explain::explain;
use flatwater_recording::Recording;
use flatwater_report::{FORMATS, Options, render};
use serde::Deserialize;

/// Fixture, cause at 3c238a6 (empty: none), cause now (empty: none), and the reason.
const CHANGED: &[(&str, &str, &str, &str)] = &[];

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Then {
    cause: String,
    lost_ns: Option<u64>,
}

fn place(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/recordings-3c238a6")).join(name)
}

/// The findings of 3c238a6 with the changes of `CHANGED`. A new finding takes its current place.
fn expected(kind: &str, now: &[Then]) -> Vec<Then> {
    let text = std::fs::read(place(&format!("{kind}.findings.json"))).expect("the earlier findings");
    let mut then: Vec<Then> = serde_json::from_slice(&text).expect("a list of findings");
    for (_, was, is, why) in CHANGED.iter().filter(|(of, ..)| *of == kind) {
        assert!(!why.is_empty(), "{kind}: {was} is {is} without a reason");
        let current = now.iter().position(|finding| finding.cause == *is);
        let replaced = current.and_then(|at| now.get(at)).cloned();
        match then.iter().position(|finding| finding.cause == *was) {
            Some(at) => drop(then.splice(at..=at, replaced)),
            None => then.insert(current.unwrap_or(0).min(then.len()), replaced.expect("a current finding")),
        }
    }
    then
}

fn check(kind: &str) -> Recording {
    let recording = Recording::open(place(kind)).unwrap_or_else(|error| panic!("{kind}: {error}"));
    assert!(recording.series.iter().any(|series| !series.is_empty()), "{kind} has samples");
    let explanation = explain(&recording);
    let now = explanation.findings.iter();
    let now: Vec<Then> =
        now.map(|finding| Then { cause: finding.cause.to_string(), lost_ns: finding.lost_ns }).collect();
    assert_eq!(now, expected(kind, &now), "{kind}: the same causes in the same order, with the same stall time");
    for format in FORMATS {
        // Only csv needs a table; all fixtures have this one.
        let table = (format.name == "csv").then(|| "events".to_owned());
        let page = render(format.name, &recording, &explanation, &Options { table, ..Options::default() });
        let refused = page.as_ref().err().map(ToString::to_string);
        // A log has no slow calls, and so no stacks.
        let may_be_empty = format.name == "folded" && recording.calls.is_empty();
        assert!(page.is_ok_and(|page| may_be_empty || !page.is_empty()), "{kind} as {}: {refused:?}", format.name);
    }
    for series in &recording.series {
        for column in &series.columns {
            let array = column.array().unwrap_or_else(|error| panic!("{kind}: {}: {error}", column.name));
            assert_eq!(arrow_len(&array), series.len(), "{kind}: {}", column.name);
        }
    }
    let late: Vec<_> = recording.gaps_found().into_iter().filter(|gap| !recording.gaps.contains(gap)).collect();
    assert!(late.is_empty(), "{kind}: {late:?}");
    recording
}

fn arrow_len(array: &impl flatwater_recording::arrow_array::Array) -> usize {
    array.len()
}

#[test]
fn of_a_host() {
    let recording = check("host");
    assert!(recording.header.complete && !recording.calls.is_empty() && !recording.stacks.is_empty());
    assert_eq!(recording.header.machine.endianness, None, "not recorded then, and not made up now");
}

#[test]
fn of_a_guest() {
    check("vm");
}

#[test]
fn of_the_model() {
    assert!(!check("sim").outcomes.is_empty(), "the workload's own table");
}

#[test]
fn of_an_import() {
    check("import");
}

#[test]
fn of_a_killed_run() {
    let recording = check("torn");
    assert!(recording.gaps.iter().any(|gap| gap.what == "the end of this recording"), "{:?}", recording.gaps);
    assert!(!recording.calls.is_empty(), "it had slow calls");
}
