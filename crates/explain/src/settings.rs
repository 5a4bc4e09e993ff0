//! Which settings were in force when, and whether a proposed fix makes sense beside them.
//!
//! The header has the settings at the start; events have later changes (a scenario's timeline).

use super::{Evidence, Finding, Fix};
use flatwater_recording::knob::{self, Key, KnobKind, KnobPlace};
use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::units::Bytes;
use flatwater_recording::{EventKind, Recording, Setup, Source};

/// The settings at the start and after each change, as (since when, settings) by time.
fn course(recording: &Recording) -> Vec<(u64, Setup)> {
    let mut changes: Vec<_> =
        recording.events.iter().filter_map(|event| Some((event.at_ns, change(&event.kind)?))).collect();
    changes.sort_short_by_key(|(at_ns, _)| *at_ns);
    let mut course = vec![(0, recording.header.setup.clone())];
    for (at_ns, change) in changes {
        let before = course.last().map(|(_, setup)| setup.clone()).unwrap_or_default();
        course.push((at_ns, before.with(&change)));
    }
    course
}

fn change(kind: &EventKind) -> Option<Setup> {
    let EventKind::SetupChange { key, new, .. } = kind else { return None };
    let mut change = Setup::default();
    change.observe(key, new);
    Some(change)
}

/// The settings in force at this time.
#[must_use]
pub fn at(recording: &Recording, at_ns: u64) -> Setup {
    let mut course = course(recording);
    let since = course.iter().rposition(|(since_ns, _)| *since_ns <= at_ns).unwrap_or(0);
    course.swap_remove(since).1
}

/// Whether the settings satisfied `so` from start to end.
#[must_use]
pub fn throughout(recording: &Recording, so: impl Fn(&Setup) -> bool) -> bool {
    course(recording).iter().all(|(_, setup)| so(setup))
}

/// The largest value that a numeric setting had.
#[must_use]
pub fn largest(recording: &Recording, key: &str) -> Option<i64> {
    course(recording).iter().filter_map(|(_, setup)| setup.number(key)).max()
}

/// The settings at the stall that a finding shows; the last ones if it shows none.
fn at_stall(recording: &Recording, finding: &Finding) -> Setup {
    let moment = finding.evidence.iter().find_map(|evidence: &Evidence| evidence.at_ns);
    at(recording, moment.unwrap_or(u64::MAX))
}

/// The direction in which a setting becomes a stronger fix, and the limit.
enum Stronger {
    Up { to: u64 },
    Down { to: u64 },
}

/// Fixes by degree. The limits are the kernel's (vm.watermark_scale_factor, mm/page_alloc.c: at most 1000 before
/// 6.x), or the point beyond which other programs lose more than is gained.
const DEGREES: &[(Key, Stronger)] = &[
    (knob!("vm.watermark_scale_factor"), Stronger::Up { to: 1000 }),
    (knob!("vm.compaction_proactiveness"), Stronger::Up { to: 100 }),
    (knob!("queue.nr_requests"), Stronger::Up { to: 1024 }),
    (knob!("placement.fifo_priority"), Stronger::Up { to: 10 }),
    (knob!("vm.dirty_bytes"), Stronger::Down { to: 4 << 20 }),
    (knob!("vm.dirty_background_bytes"), Stronger::Down { to: 1 << 20 }),
    (knob!("vm.dirty_expire_centisecs"), Stronger::Down { to: 100 }),
    (knob!("vm.vfs_cache_pressure"), Stronger::Down { to: 10 }),
];

/// The fix adapted to the settings in force; a stronger one if the proposed value is already in force. `None` if
/// nothing more can be proposed, or if no file sets the knob and the recording is not of the simulator.
#[must_use]
pub fn fit(fix: Fix, finding: &Finding, recording: &Recording) -> Option<Fix> {
    let Some((key, value)) = fix.setting() else { return Some(fix) };
    let has_no_file = knob::find(key.name()).is_ok_and(|knob| knob.place == KnobPlace::NoFile);
    if recording.header.source != Source::Sim && has_no_file {
        return None;
    }
    let setup = at_stall(recording, finding);
    let degree = DEGREES.iter().find(|(known, _)| *known == key);
    let Some((degree, proposed)) = degree.and_then(|(_, degree)| Some((degree, value.parse::<u64>().ok()?))) else {
        return (setup.get(key.name()) != Some(value)).then_some(fix);
    };
    // A limit of 0 bytes is not set: the one in percent applies.
    let Some(now) = setup.number(key.name()).and_then(|now| u64::try_from(now).ok()) else { return Some(fix) };
    let further = match *degree {
        Stronger::Up { .. } if now < proposed => return Some(fix),
        Stronger::Down { .. } if now > proposed || now == 0 => return Some(fix),
        Stronger::Up { to } => now.saturating_mul(2).min(to).max(now),
        Stronger::Down { to } => (now / 2).max(to).min(now),
    };
    (further != now).then(|| {
        let text = format!("{} ({} is in force)", fix.text, shown(key, now));
        Fix::knob(text, key, &further.to_string())
    })
}

fn shown(key: Key, value: u64) -> String {
    match knob::find(key.name()).map(|knob| knob.kind) {
        Ok(KnobKind::Size { .. }) => Bytes(value).to_string(),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::{at, largest, throughout};
    use crate::testing::{RecordingBuilder, START_NS};
    use flatwater_recording::{Cause, Event, EventKind, OpKind, Recording};

    fn changed(recording: &mut Recording, at_ns: u64, key: &str, new: &str) {
        let (key, new) = (key.to_owned(), new.to_owned());
        recording.events.push(Event::new(at_ns, EventKind::SetupChange { key, old: None, new }));
    }

    fn proposes(builder: RecordingBuilder, key: &str) -> Option<String> {
        let findings = builder.explained().findings;
        findings.iter().flat_map(|finding| &finding.fixes).find_map(|fix| fix.set().get(key).map(str::to_owned))
    }

    #[test]
    fn a_timeline_changes_and_clears_settings() {
        let builder = RecordingBuilder::new().knob("vm.dirty_ratio", "20").knob("vm.swappiness", "60");
        let recording = builder.edit(|recording| changed(recording, 500, "vm.dirty_bytes", "8388608")).done();
        assert_eq!(at(&recording, 499).get("vm.dirty_ratio"), Some("20"));
        assert_eq!(at(&recording, 500).get("vm.dirty_bytes"), Some("8388608"));
        assert_eq!(at(&recording, u64::MAX).get("vm.dirty_ratio"), None);
        assert!(throughout(&recording, |setup| setup.number("vm.swappiness") == Some(60)));
        assert!(!throughout(&recording, |setup| setup.get("vm.dirty_ratio").is_some()));
        assert_eq!(largest(&recording, "vm.dirty_bytes"), Some(8 << 20));
    }

    /// The scenario graphdb-zone-reclaim: zone_reclaim_mode is 0 at the start and is switched on while the database
    /// runs.
    #[test]
    fn a_mode_switched_on_during_the_run_is_proposed_off() {
        let stalled = || {
            RecordingBuilder::new().knob("vm.zone_reclaim_mode", "0").slow(OpKind::Write, &[(Cause::NodeReclaim, 40.0)])
        };
        let key = "vm.zone_reclaim_mode";
        assert_eq!(proposes(stalled(), key), None, "it was off all the time");
        let before = stalled().edit(|recording| changed(recording, START_NS - 1, "vm.zone_reclaim_mode", "1"));
        assert_eq!(proposes(before, key).as_deref(), Some("0"));
        let after =
            stalled().edit(|recording| changed(recording, START_NS + 1_000_000_000, "vm.zone_reclaim_mode", "1"));
        assert_eq!(proposes(after, key), None, "at the stall it was still off");
    }

    #[test]
    fn a_value_in_force_is_exceeded_or_not_proposed() {
        let key = "vm.watermark_scale_factor";
        let stalled =
            |now: &str| RecordingBuilder::new().knob(key, now).slow(OpKind::Write, &[(Cause::DirectReclaim, 40.0)]);
        for (now, proposed) in [("10", Some("200")), ("200", Some("400")), ("600", Some("1000")), ("1000", None)] {
            assert_eq!(proposes(stalled(now), key).as_deref(), proposed, "{now}");
        }
        let key = "vm.dirty_background_bytes";
        let throttled =
            |now: &str| RecordingBuilder::new().knob(key, now).slow(OpKind::Write, &[(Cause::DirtyThrottle, 40.0)]);
        for (now, proposed) in [("0", Some("16777216")), ("67108864", Some("16777216")), ("8388608", Some("4194304"))] {
            assert_eq!(proposes(throttled(now), key).as_deref(), proposed, "{now}");
        }
        assert_eq!(proposes(throttled("1048576"), key), None);
    }

    #[test]
    fn a_knob_of_the_model_is_proposed_for_the_model_only() {
        let read =
            || RecordingBuilder::new().slow(OpKind::Write, &[(Cause::SlabRefill, 40.0)]).stack(&["s_show", "seq_read"]);
        let key = "monitor.slabinfo_interval";
        assert_eq!(proposes(read(), key), None);
        let model = read().edit(|recording| recording.header.source = flatwater_recording::Source::Sim);
        assert_eq!(proposes(model, key).as_deref(), Some("0"));
    }
}
