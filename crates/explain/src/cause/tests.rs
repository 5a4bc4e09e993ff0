//! Rules that every entry of the catalogue keeps.

use std::collections::BTreeSet;

use super::{CAUSES, find};
use crate::testing::Made;
use flatwater_recording::{Cause, OpKind};

#[test]
fn every_time_cause_has_its_entry_and_names_are_unique() {
    for cause in Cause::ALL {
        let entry = find(cause.name()).unwrap_or_else(|| panic!("{} has no entry", cause.name()));
        assert_eq!(entry.span, Some(*cause));
    }
    let names: BTreeSet<&str> = CAUSES.iter().map(|entry| entry.name).collect();
    assert_eq!(names.len(), CAUSES.len());
}

#[test]
fn every_entry_tells_its_story() {
    for entry in CAUSES {
        for (field, text) in [
            ("headline", entry.headline),
            ("mechanism", entry.mechanism),
            ("kernels", entry.kernels),
            ("in_counters", entry.in_counters),
            ("fix", entry.fix),
            ("prove", entry.prove),
        ] {
            assert!(text.len() >= 4, "{}: {field} is empty", entry.name);
            assert!(!text.contains("  "), "{}: {field} holds a run of spaces (a lost line join?)", entry.name);
        }
        assert!(entry.headline.len() <= 140, "{}: the headline is no line", entry.name);
        assert!(entry.span.is_none() || !entry.in_spans.is_empty(), "{}: in_spans is empty", entry.name);
    }
}

#[test]
fn each_time_cause_alone_is_the_only_finding_and_silent_when_small() {
    for &cause in Cause::ALL {
        let made = (0..3).fold(Made::new(), |made, _| made.slow(OpKind::Write, &[(cause, 40.0)]));
        let findings = made.explained().findings;
        assert_eq!(findings.first().map(|finding| finding.cause), Some(cause.name()));
        assert_eq!(findings[0].lost_ns, Some(120_000_000), "{}", cause.name());
        let small = Made::new().slow(OpKind::Write, &[(cause, 1.2)]).explained().findings;
        assert_eq!(small.first().map(|finding| finding.cause), Some("quiet"), "{}", cause.name());
    }
}

/// String literals of a call's arguments, in order; `None` for an argument that is none.
fn arguments(call: &str) -> Vec<Option<String>> {
    let (mut found, mut depth, mut inside, mut start) = (Vec::new(), 1, false, 0);
    let bytes = call.as_bytes();
    let mut at = 0;
    while at < bytes.len() && depth > 0 {
        match bytes[at] {
            b'\\' if inside => at += 1,
            b'"' => inside = !inside,
            b'(' if !inside => depth += 1,
            b')' if !inside => depth -= 1,
            _ => {}
        }
        if !inside && (depth == 0 || (depth == 1 && bytes[at] == b',')) {
            let argument = call[start..at].trim();
            found.push(argument.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).map(str::to_owned));
            start = at + 1;
        }
        at += 1;
    }
    found
}

#[test]
fn every_knob_that_a_fix_turns_takes_the_value() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut checked = 0;
    for place in ["cause", "audit"] {
        for file in std::fs::read_dir(folder.join(place)).expect("the folder").flatten() {
            let text = std::fs::read_to_string(file.path()).expect("a source file");
            for call in text.split("Fix::knob(").skip(1) {
                let arguments = arguments(call);
                let (Some(Some(key)), Some(Some(value))) = (arguments.get(1), arguments.get(2)) else { continue };
                let taken = flatwater_recording::Setup::default().set(key, value);
                assert!(taken.is_ok(), "{}: {key}={value}: {taken:?}", file.path().display());
                checked += 1;
            }
        }
    }
    assert!(checked >= 20, "{checked} fixes were found");
}
