//! out-of-memory: the kernel killed a process because reclaim had nothing left to give.

use super::CauseEntry;
use crate::explain::facts::Facts;
use crate::explain::{Evidence, Finding, Fix};
use crate::recording::{Event, Table};

pub const ENTRY: CauseEntry = CauseEntry {
    name: "out-of-memory",
    span: None,
    headline: "memory ran out and the kernel killed a process",
    mechanism: "When reclaim and compaction have failed repeatedly, __alloc_pages_may_oom (mm/page_alloc.c) picks \
        a victim (mm/oom_kill.c: out_of_memory); a memory cgroup at its limit does so for itself \
        (mem_cgroup_out_of_memory). Before the kill every allocating thread spends long in reclaim, so that an OOM \
        kill is the end of a stall, not its beginning. On 32-bit kernels it can happen with gigabytes of high \
        memory free (lowmem-exhausted).",
    kernels: "All.",
    in_spans: "direct-reclaim or memcg-reclaim of seconds before it.",
    in_counters: "Kernel log: 'Out of memory: Killed process', 'invoked oom-killer', 'Memory cgroup out of \
        memory'; oom_kill in /proc/vmstat (4.13) and memory.events.",
    against: "A process that ended by itself, or was killed by a user or a supervisor.",
    fix: "Find what grew: the table in the report (rss, swapents) names the largest. A limit for it (memory \
        cgroup), more memory, or swap. For a cgroup: raise its limit.",
    prove: "With the limit raised or the culprit bounded the kills stop.",
    sources: &[
        "mm/oom_kill.c: out_of_memory",
        "mm/memcontrol.c: mem_cgroup_out_of_memory",
        "Documentation/admin-guide/cgroup-v2.rst: memory.oom.group",
    ],
    find,
};

fn is_kill(event: &&Event) -> bool {
    let text = event.text.to_ascii_lowercase();
    ["out of memory", "oom-killer", "oom-kill:", "oom_reaper", "oom kill"].iter().any(|mark| text.contains(mark))
}

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let kills: Vec<&Event> = facts.recording.events.iter().filter(is_kill).collect();
    let counted = facts.vmstat_rate("oom_kill").mean().unwrap_or(0.0) > 0.0;
    let of_cgroup = facts.recording.table(Table::Cgroup).and_then(|table| {
        table
            .by_entity()
            .find(|(_, rows)| rows.rise("events_oom_kill").is_some_and(|rise| rise > 0))
            .map(|(entity, _)| entity.name.clone())
    });
    if kills.is_empty() && !counted && of_cgroup.is_none() {
        return None;
    }
    let in_group =
        of_cgroup.is_some() || kills.iter().any(|event| event.text.to_ascii_lowercase().contains("memory cgroup"));
    let headline = if in_group {
        "a memory cgroup ran out of memory and the kernel killed a process in it"
    } else {
        ENTRY.headline
    };
    let mut finding = Finding::inferred(ENTRY.name, 0.95, headline);
    for event in kills.iter().take(3) {
        finding.evidence.push(Evidence::said(event.text.chars().take(200).collect::<String>()).at(event.at_ns));
    }
    if kills.len() > 3 {
        finding.evidence.push(Evidence::new(format!("{} such lines in all", kills.len()), kills.len() as f64, ""));
    }
    finding.evidence.extend(of_cgroup.map(|path| Evidence::said(format!("oom_kill of {path} rose"))));
    let fix = if in_group {
        "raise the cgroup's limit, or bound what grows in it"
    } else {
        "bound what grew (a memory cgroup with a limit), or give the machine more memory or swap"
    };
    Some(finding.fix(Fix::advice(fix)).settle(
        "the report's table of processes names the largest; record its memory (pidstat -r) until the next time",
    ))
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::explain::testing::Made;

    #[test]
    fn a_kill_in_the_log_is_named_and_whose_limit_it_was() {
        let global = Made::new()
            .report("Out of memory: Killed process 4711 (java) total-vm:9000000kB")
            .found(&ENTRY)
            .expect("kill");
        let group =
            Made::new().report("Memory cgroup out of memory: Killed process 12 (fio)").found(&ENTRY).expect("kill");
        assert!(!global.headline.contains("cgroup") && group.headline.contains("cgroup"));
        assert!(Made::new().report("Killed by signal 15").found(&ENTRY).is_none());
    }
}
