//! Rules that every entry of the catalogue keeps.

use std::collections::BTreeSet;

use super::{CAUSES, find};
use crate::explain::testing::Made;
use crate::recording::{Cause, OpKind};

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
