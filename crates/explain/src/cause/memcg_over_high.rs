//! memcg-over-high: a penalty sleep on the return to user space, because the cgroup is over memory.high.

use super::{CauseEntry, CauseId};
use crate::facts::Facts;
use crate::{Evidence, Finding, Fix, finding};
use flatwater_recording::schema::cgroup;
use flatwater_recording::{Cause, Entity, Table};

pub const ENTRY: CauseEntry = CauseEntry {
    name: "memcg-over-high",
    span: Some(Cause::MemcgOverHigh),
    headline: "the cgroup is over memory.high: the thread reclaims and is put to sleep on its return to user space",
    mechanism: "Charges above memory.high mark the task; on return to user space mem_cgroup_handle_over_high \
        (mm/memcontrol.c) reclaims what it charged and, since 5.4, sleeps for a penalty that grows with the square of \
        the overage, at most 2 s a time. It happens after the system call's own exit, so timing inside the kernel \
        misses it; for the program it is part of the call.",
    kernels: "cgroup v2 (official since 4.5): reclaim on the way to user space since 4.4, the penalty sleep since \
        5.4. v1 has none.",
    in_spans: "Measured: time after sys_exit with mem_cgroup_handle_over_high in the stack (`after_exit_ns`).",
    in_counters: "memory.events:high rises; usage at or above memory.high; memory pressure of the cgroup \
        (memory.pressure) rises.",
    against: "memory.high is max, or memory.events:high does not rise.",
    fix: "Raise memory.high or set it to max with memory.max above; give page-cache streamers a cgroup of their own.",
    prove: "Set memory.high to max: the penalty ends at once.",
    sources: &[
        "mm/memcontrol.c: mem_cgroup_handle_over_high, calculate_high_delay",
        "Documentation/admin-guide/cgroup-v2.rst: memory.high",
    ],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let fixes = [Fix::advice("raise memory.high of the cgroup, or set it to max and rely on memory.max")];
    finding::from_spans(facts, Cause::MemcgOverHigh, ENTRY.headline, fixes.clone()).or_else(|| {
        let matched = facts.limit_hits_most(cgroup::EVENTS_HIGH).filter(|_| facts.may_infer_place())?;
        let headline = "a memory cgroup went over memory.high: its threads reclaim and are put to sleep on return";
        let mut finding = matched.finding(CauseId::MemcgOverHigh, headline, "went over memory.high");
        finding.fixes.extend(fixes);
        // If memory.high was reached more often than memory.max, it is the effective bound.
        if facts.limit_hits_most(cgroup::EVENTS_MAX).is_none_or(|max| max.times < matched.times) {
            finding.weight += 0.05;
        }
        // The cgroup's threads wait for memory now.
        let pressed = facts.recording.table(Table::Cgroup).and_then(|table| {
            let rows = table.rows_of(&Entity::named(&matched.path))?;
            rows.last(cgroup::SOME_AVG10_CENTIPERCENT).filter(|share| *share >= 1_000)
        });
        if let Some(share) = pressed {
            finding.weight = finding.weight.max(0.65);
            let text = format!("its threads waited for memory in {} % of the last 10 s (PSI some)", share / 100);
            finding.evidence.push(Evidence::new(text, share as f64 / 100.0, "%"));
        }
        Some(finding)
    })
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::RecordingBuilder;
    use flatwater_recording::{Cause, OpKind};

    #[test]
    fn the_penalty_after_the_call_counts() {
        let builder = RecordingBuilder::new().slow(OpKind::Write, &[(Cause::Compute, 0.1)]);
        let finding =
            builder.edit(|recording| recording.calls[0].after_exit_ns = 80_000_000).found(&ENTRY).expect("80 ms");
        assert_eq!(finding.lost_ns, Some(80_000_000));
    }

    #[test]
    fn no_penalty_no_finding() {
        assert!(RecordingBuilder::new().slow(OpKind::Write, &[(Cause::Compute, 30.0)]).found(&ENTRY).is_none());
    }
}
