//! Waits of the target's threads that the kernel only counted (`run_delay_ns` and the delay accounting in the table
//! `workload`), so that no call says when they happened.

use super::Finding;
use super::cause::CauseId;
use super::facts::Facts;
use crate::Evidence;
use flatwater_recording::schema::Column;
use flatwater_recording::units::Nanos;
use flatwater_recording::{Entity, Table};

/// Every thread on any machine waits for less than this share of the recorded time.
const SHARE_MIN: f64 = 0.01;

/// The thread or process that waited most, if it waited at least 1 % of the time; `what` ends the sentence `NAME
/// waited 3 s of 30 s ...`.
#[must_use]
pub fn longest(facts: &Facts<'_>, column: Column, what: &str) -> Option<Evidence> {
    let counted = facts.recording.table(Table::Workload).filter(|_| facts.may_infer_place())?;
    let neighbours = &facts.recording.header.target.neighbours;
    // The kernel keeps 15 characters of a thread's name.
    let is_ours = |entity: &Entity| {
        let name = entity.name.rsplit_once('(').map_or(entity.name.as_str(), |(name, _)| name);
        !neighbours.iter().any(|neighbour| neighbour.chars().take(15).eq(name.chars()))
    };
    let waits = counted.by_entity().filter(|(entity, _)| is_ours(entity));
    let waits = waits.filter_map(|(entity, rows)| Some((&entity.name, u64::try_from(rows.rise(column)?).ok()?)));
    let (name, ns) = waits.max_by_key(|&(_, ns)| ns)?;
    let enough = ns as f64 >= facts.duration_ns as f64 * SHARE_MIN;
    let text = || format!("{name} waited {} of {} {what}", Nanos(ns), Nanos(facts.duration_ns));
    enough.then(|| Evidence::new(text(), ns as f64, "ns"))
}

/// A finding from this count alone.
#[must_use]
pub fn finding(facts: &Facts<'_>, cause: CauseId, headline: &str, column: Column, what: &str) -> Option<Finding> {
    let evidence = longest(facts, column, what)?;
    Some(Finding::inferred(cause, 0.7, headline).with([evidence]))
}

#[cfg(test)]
mod tests {
    use crate::cause::{run_queue, swap_in};
    use crate::testing::{RecordingBuilder, evidence_text};
    use flatwater_recording::{Entity, Table};

    fn waited(name: &str, column: &str, ns: i64) -> RecordingBuilder {
        RecordingBuilder::new().counters(Table::Workload, &Entity::named(name), &[(column, &[0, ns / 2, ns])])
    }

    #[test]
    fn a_thread_that_waited_long_is_found_without_any_hook() {
        let finding = waited("db(77)", "run_delay_ns", 9_000_000_000).found(&run_queue::ENTRY).expect("found");
        assert!(evidence_text(&finding).contains("db(77) waited 9 s of"), "{}", evidence_text(&finding));
        assert_eq!(finding.lost_ns, None, "the calls that waited are unknown");
        assert!(waited("db(77)", "swap_in_delay_ns", 9_000_000_000).found(&swap_in::ENTRY).is_some());
        assert!(waited("db(77)", "run_delay_ns", 1_000_000).found(&run_queue::ENTRY).is_none(), "as anywhere");
    }

    #[test]
    fn waits_of_neighbours_are_ignored() {
        let builder = waited("stream(78)", "run_delay_ns", 9_000_000_000).neighbour("stream");
        assert!(builder.found(&run_queue::ENTRY).is_none());
    }
}
