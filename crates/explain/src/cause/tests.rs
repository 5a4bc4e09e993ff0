//! Rules for every entry of the catalogue.

use std::collections::BTreeSet;

use super::{CAUSES, CauseId, find};
use crate::Fix;
use crate::testing::RecordingBuilder;
use flatwater_recording::{Basis, Cause, CauseBasis, DurationBasis, OpKind, Setup};

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
fn an_id_is_its_name_in_json_and_its_place_in_the_catalogue() {
    for (place, id) in CauseId::ALL.iter().enumerate() {
        assert_eq!(id.name(), CAUSES[place].name);
        // With a width, as in the columns of the text report.
        assert_eq!(format!("{id:<30}|").trim_end_matches('|').trim_end(), id.name());
    }
    let share = crate::CauseShare::new(Cause::DeviceWait, DurationBasis::Measured, CauseBasis::Stack);
    assert_eq!(share.cause, CauseId::DeviceWait);
}

#[test]
fn every_entry_is_complete() {
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
        assert!(entry.headline.len() <= 140, "{}: the headline is too long", entry.name);
        assert!(entry.span.is_none() || !entry.in_spans.is_empty(), "{}: in_spans is empty", entry.name);
    }
}

#[test]
fn each_time_cause_alone_is_the_only_finding_and_silent_when_small() {
    for &cause in Cause::ALL {
        let builder = (0..3).fold(RecordingBuilder::new(), |builder, _| builder.slow(OpKind::Write, &[(cause, 40.0)]));
        let findings = builder.explained().findings;
        assert_eq!(findings.first().map(|finding| finding.cause), Some(CauseId::from(cause)));
        assert_eq!(findings[0].lost_ns, Some(120_000_000), "{}", cause.name());
        assert_eq!(Basis::from(findings[0].duration_basis), findings[0].basis, "{}", cause.name());
        let small = RecordingBuilder::new().slow(OpKind::Write, &[(cause, 1.2)]).explained().findings;
        assert_eq!(small.first().map(|finding| finding.cause), Some(CauseId::Quiet), "{}", cause.name());
        assert_eq!(Basis::from(small[0].duration_basis), small[0].basis, "two words for one thing");
    }
}

/// All fixes proposed for calls of this kind that lost their time to this cause alone, one call for each function
/// that names the cause.
fn fixes_for(cause: Cause, op: OpKind) -> Vec<Fix> {
    let symbols = cause.spec().symbols.iter().flat_map(|symbols| symbols.names);
    let stacks = symbols.map(|name| vec![name.trim_end_matches('*')]).chain([Vec::new()]);
    let builder =
        stacks.fold(RecordingBuilder::new(), |builder, frames| builder.slow(op, &[(cause, 40.0)]).stack(&frames));
    builder.explained().findings.into_iter().flat_map(|finding| finding.fixes).collect()
}

/// `Fix::knob` panics under test if the knob rejects the value, so every finder that runs here, or in the unit tests
/// beside it, proposes valid values.
#[test]
fn every_fix_sets_valid_values() {
    let mut turned = BTreeSet::new();
    for &cause in Cause::ALL {
        for op in [OpKind::Read, OpKind::Write, OpKind::Fsync, OpKind::PageFault] {
            for fix in fixes_for(cause, op) {
                for (key, value) in fix.set().iter() {
                    let taken = Setup::default().set(key, value);
                    assert!(taken.is_ok(), "{}: {key}={value}: {taken:?}", cause.name());
                    turned.insert(key.to_owned());
                }
            }
        }
    }
    assert!(turned.len() >= 10, "{turned:?}");
}

#[test]
#[should_panic(expected = "vm.zone_reclaim_mode")]
fn a_value_that_a_knob_rejects_fails_the_test() {
    let _ = Fix::knob("off", knob!("vm.zone_reclaim_mode"), "off please");
}
