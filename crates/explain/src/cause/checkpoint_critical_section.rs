//! checkpoint-critical-section: a database checkpoint waits for threads, not for the disk.

use super::{CauseEntry, CauseId};
use crate::facts::Facts;
use crate::sums::total;
use crate::{Evidence, Finding, Fix};
use flatwater_recording::outcome::{CheckpointRow, WorkloadOutcome};
use flatwater_recording::units::Nanos;

/// Users notice this long without any transaction.
const CRITICAL_NS_MIN: u64 = 500_000_000;
/// Minimum ratio to the median critical section of the same log, for a higher confidence.
const TIMES_MEDIAN_MIN: u64 = 10;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "checkpoint-critical-section",
    span: None,
    headline: "checkpoints block all work for a long time: they wait for a thread to leave its critical section, not \
        for the flush",
    mechanism: "To establish a consistent point a database admits no new critical section and waits until every \
        thread has left its own. One thread that sleeps inside (a synchronous write to a raw or cooked chunk, an \
        fsync of the logical log, a page fault, a CPU that it does not get) stops all others. The flush that follows \
        runs beside the work, so its length matters far less. A log that prints both times distinguishes the two.",
    kernels: "All; what the last thread waited for is another cause of this catalogue.",
    in_spans: "A checkpoint call made of lock (waiting for the last thread), and that thread's own slow call at \
        the same time.",
    in_counters: "onstat -g ckp: Critical Sections or Block Time of seconds while Flush Time is short or ordinary; \
        PostgreSQL log_checkpoints: sync of seconds against write.",
    against: "Critical time is short and flush time long: then it is writeback or the device.",
    fix: "Find the thread that left last and its call; keep slow calls out of critical sections (preallocated chunks \
        and logs, direct I/O, locked memory).",
    prove: "Record the database (`flatwater record -p`): the culprit is the slow call that ends with the critical \
        section.",
    sources: &["onstat -g ckp in the Informix administrator's reference", "PostgreSQL documentation: log_checkpoints"],
    find,
};

fn rows<'a>(facts: &Facts<'a>) -> Vec<&'a CheckpointRow> {
    let tables = facts.recording.outcomes.iter().filter_map(|outcome| match outcome {
        WorkloadOutcome::Checkpoint(table) => Some(&table.checkpoints),
        _ => None,
    });
    tables.flatten().collect()
}

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let rows = rows(facts);
    let mut critical: Vec<u64> = rows.iter().map(|row| row.critical_ns).collect();
    critical.sort_unstable();
    let median_ns = *critical.get(critical.len() / 2)?;
    let long: Vec<&&CheckpointRow> = rows.iter().filter(|row| row.critical_ns >= CRITICAL_NS_MIN).collect();
    let worst = long.iter().max_by_key(|row| row.critical_ns)?;
    let lost_ns = total(long.iter().map(|row| row.critical_ns));
    let text = format!(
        "{} of {} checkpoints blocked work for {} and more; the worst for {}, its flush took {}",
        long.len(),
        rows.len(),
        Nanos(CRITICAL_NS_MIN),
        Nanos(worst.critical_ns),
        Nanos(worst.flush_ns)
    );
    let mut finding = Finding::inferred(CauseId::CheckpointCriticalSection, 0.8, ENTRY.headline);
    finding.lost_ns = Some(lost_ns);
    finding.evidence.push(Evidence::new(text, worst.critical_ns as f64, "ns").at(worst.at_ns));
    if rows.len() >= 3 && worst.critical_ns >= TIMES_MEDIAN_MIN.saturating_mul(median_ns.max(1)) {
        finding.weight = 0.9;
        finding.evidence.push(Evidence::new(
            format!("the usual critical section takes {}", Nanos(median_ns)),
            median_ns as f64,
            "ns",
        ));
    }
    if let Some(thread) = &worst.waited_for_thread {
        let call = worst.waited_for_call.as_deref().map(|call| format!(" in {call}")).unwrap_or_default();
        finding.evidence.push(Evidence::statement(format!("it waited for {thread}{call}")));
    } else {
        finding.against.push(Evidence::statement("the log does not name the thread that it waited for"));
    }
    let finding = finding
        .fix(Fix::advice("find the thread that leaves last, and keep its slow call out of the critical section"));
    Some(finding.settle(
        "run `flatwater record -p PID -t 300s` as root over a checkpoint: the slow call that ends \
         with the critical section is the one",
    ))
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::{RecordingBuilder, evidence_text};
    use flatwater_recording::outcome::{CheckpointOutcome, CheckpointRow, WorkloadOutcome};

    fn checkpoints(critical_ms: &[u64]) -> RecordingBuilder {
        let row =
            |ms: &u64| CheckpointRow { critical_ns: ms * 1_000_000, flush_ns: 300_000_000, ..CheckpointRow::default() };
        let table = CheckpointOutcome { checkpoints: critical_ms.iter().map(row).collect() };
        RecordingBuilder::new().edit(|recording| recording.outcomes.push(WorkloadOutcome::Checkpoint(table)))
    }

    #[test]
    fn a_long_critical_section_is_named_with_its_flush() {
        let finding = checkpoints(&[2, 3, 6_200, 2]).found(&ENTRY).expect("6.2 s");
        assert!(
            evidence_text(&finding).contains("the worst for 6.20 s, its flush took 300 ms"),
            "{}",
            evidence_text(&finding)
        );
    }

    #[test]
    fn short_ones_are_ordinary() {
        assert!(checkpoints(&[2, 3, 40, 2]).found(&ENTRY).is_none());
    }
}
