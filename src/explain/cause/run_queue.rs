//! run-queue: the thread could run, but another had the CPU.

use super::CauseEntry;
use crate::explain::facts::Facts;
use crate::explain::{Finding, Fix, finding, waits};
use crate::recording::Cause;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "run-queue",
    span: Some(Cause::RunQueue),
    headline: "the thread was ready to run and waited for a CPU that others had",
    mechanism: "A woken or preempted thread waits in its CPU's run queue until the scheduler picks it \
        (kernel/sched/fair.c: pick_next_task_fair; EEVDF since 6.6). With more runnable threads than CPUs the wait \
        is a few slices (about 3 ms each) times their number; a thread that has just slept is favoured, one that \
        has used its share is not. Nothing in the memory or file-system path is at fault, and no way of writing \
        mends it.",
    kernels: "All.",
    in_spans: "Exact: from sched_wakeup, or from being switched out while runnable, to being switched in.",
    in_counters: "procs_running (r in vmstat) above the number of CPUs, idle near 0; CPU pressure (PSI) rises; \
        schedstat's run_delay of the thread.",
    against: "Idle CPU time is plenty: then look for pinning (a busy CPU in an idle machine) or cpu-quota.",
    fix: "SCHED_FIFO (placement.fifo_priority) for the few threads that matter, or a CPU of their own (isolcpus, \
        cpuset); a lower weight for the neighbours; fewer threads.",
    prove: "`--set placement.fifo_priority=10`: run-queue goes, everything else stays.",
    sources: &["kernel/sched/fair.c", "man 7 sched", "Documentation/accounting/psi.rst"],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let fixes = [
        Fix::knob("a real-time priority for the writer's thread", "placement.fifo_priority", "10"),
        Fix::advice("keep a CPU free for it (cpuset, isolcpus), or lower the neighbours' weight"),
    ];
    finding::from_spans(facts, Cause::RunQueue, ENTRY.headline, fixes.clone()).or_else(|| {
        let waited = waits::finding(facts, ENTRY.name, ENTRY.headline, "run_delay_ns", "for a CPU (schedstat)")?;
        Some(Finding { fixes: fixes.into(), ..waited })
    })
}
