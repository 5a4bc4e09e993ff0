//! cpu-contention: there are more runnable threads than CPUs.

use super::{CauseEntry, CauseId};
use crate::facts::Facts;
use crate::{Evidence, Finding, Fix};
use flatwater_recording::Cause;
use flatwater_recording::schema::cpu;

/// From this mean number of runnable threads per CPU, some thread always waits.
const PER_CPU_MIN: f64 = 1.5;
const IDLE_SHARE_MAX: f64 = 0.05;
/// Minimum share of time in which some thread waited for a CPU (PSI); needs no count of CPUs.
const PRESSURE_SHARE_MIN: f64 = 0.4;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "cpu-contention",
    span: None,
    headline: "more threads want to run than there are CPUs, so each waits",
    mechanism: "The scheduler shares each CPU among its runnable threads in slices of a few milliseconds. A thread \
        that wakes for a short write is scheduled early as long as it has used little time; with several busy threads \
        on each CPU it still sometimes waits for a slice or more, and so does everybody who waits for it. Full CPUs \
        are no fault in themselves: only a thread with a deadline suffers.",
    kernels: "All.",
    in_spans: "run-queue.",
    in_counters: "procs_running (r) above the number of CPUs for most of the time, idle below 5 %; CPU pressure \
        (PSI some) of tens of percent.",
    against: "There is idle time: then threads are badly pinned, or there is a quota. Without the number of CPUs, and \
        without a thread whose delay was measured, a long run queue may just be a busy machine.",
    fix: "Fewer threads, a lower weight for the batch work (cpu.weight, nice), SCHED_FIFO or a separate CPU set for \
        the thread with the deadline.",
    prove: "Stop the batch work, or set placement.fifo_priority: run-queue goes to zero.",
    sources: &["kernel/sched/fair.c", "Documentation/accounting/psi.rst"],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let blamed = facts.significant(Cause::RunQueue).is_some();
    if !facts.may_infer() || (facts.spans_tell_all() && !blamed) || facts.recording.header.time_distorted {
        return None;
    }
    let runnable = facts.runnable().mean();
    let idle = facts.cpu_share(cpu::IDLE_NS).mean();
    let cpus = facts.recording.header.machine.cpus.map(f64::from).filter(|cpus| *cpus > 0.0);
    let queued = match (runnable, idle, cpus) {
        (Some(runnable), Some(idle), Some(cpus)) if runnable >= PER_CPU_MIN * cpus && idle <= IDLE_SHARE_MAX => {
            Some(Evidence::new(
                format!(
                    "{runnable:.1} threads were runnable on {cpus:.0} CPUs on average; {:.1} % of CPU time was idle",
                    idle * 100.0
                ),
                runnable,
                "threads",
            ))
        }
        _ => None,
    };
    let pressed = facts.pressed("cpu").filter(|pressed| pressed.some >= PRESSURE_SHARE_MIN);
    let pressed = pressed.map(|pressed| pressed.evidence("a CPU"));
    // Pressure alone shows that threads waited, not that it mattered. It needs a slow call or a full machine.
    if queued.is_none() && (pressed.is_none() || !blamed) {
        return None;
    }
    let confidence = if blamed { 0.85 } else { 0.6 };
    let finding = Finding::inferred(CauseId::CpuContention, confidence, ENTRY.headline).with(queued).with(pressed);
    let finding = finding.fix(Fix::knob(
        "a real-time priority for the thread with the deadline",
        knob!("placement.fifo_priority"),
        "10",
    ));
    let finding = finding.fix(Fix::advice("a lower weight (cpu.weight, nice) or fewer threads for the batch work"));
    Some(if blamed {
        finding.settle("")
    } else {
        finding.but([Evidence::statement(
            "full CPUs are only a problem for a thread with a deadline; none was timed here",
        )])
    })
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::{RecordingBuilder, rising};
    use flatwater_recording::{Cause, Entity, OpKind, Table};

    fn machine(cpus: Option<u32>, runnable: i64, idle_percent: i64) -> RecordingBuilder {
        let all = Entity::named("all");
        let (idle, user) = (rising(idle_percent * 10_000_000, 10), rising((100 - idle_percent) * 10_000_000, 10));
        let builder = RecordingBuilder::new().counters(Table::Cpu, &all, &[("idle_ns", &idle), ("user_ns", &user)]);
        builder
            .gauges(Table::Cpu, &all, &[("procs_running", &[runnable; 10])])
            .edit(|recording| recording.header.machine.cpus = cpus)
    }

    #[test]
    fn four_threads_for_each_cpu_contend() {
        assert!(machine(Some(2), 8, 1).found(&ENTRY).is_some());
        let measured = machine(Some(2), 8, 1).slow(OpKind::Write, &[(Cause::RunQueue, 30.0)]).found(&ENTRY);
        assert!(measured.is_some_and(|finding| finding.weight > 0.8));
    }

    #[test]
    fn throughput_work_is_not_accused() {
        assert!(machine(None, 138, 0).found(&ENTRY).is_none(), "a long queue on an unknown number of CPUs");
        assert!(machine(Some(16), 16, 2).found(&ENTRY).is_none(), "one thread for each CPU");
        assert!(machine(Some(2), 8, 30).found(&ENTRY).is_none(), "idle time is left");
    }
}
