//! interrupt: interrupts and soft interrupts ran during the call.

use super::CauseEntry;
use crate::facts::Facts;
use crate::{Finding, Fix, finding};
use flatwater_recording::Cause;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "interrupt",
    span: Some(Cause::Interrupt),
    headline: "interrupt work ran on the writer's CPU, on top of its call",
    mechanism: "A hard interrupt and the soft interrupts raised by it (network receive, block completion, timers, RCU \
        callbacks) run in the context of whatever thread is on the CPU. Up to 10 rounds or 2 ms of soft interrupts \
        (kernel/softirq.c: __do_softirq, MAX_SOFTIRQ_TIME) run before ksoftirqd takes over.",
    kernels: "All.",
    in_spans: "Exact between irq_handler_entry and _exit, softirq_entry and _exit, where those hooks are attached; \
        otherwise it is part of compute.",
    in_counters: "irq and softirq time in /proc/stat (%irq, %soft in mpstat) on that CPU.",
    against: "irq and softirq time of the CPU is small.",
    fix: "Move the interrupts to other CPUs (/proc/irq/N/smp_affinity, irqbalance, rps_cpus), or the thread away \
        from them.",
    prove: "Pin the thread to a CPU without device interrupts and compare.",
    sources: &["kernel/softirq.c: __do_softirq", "Documentation/core-api/irq/irq-affinity.rst"],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let fixes = [Fix::advice(
        "move device interrupts off the writer's CPU (/proc/irq/N/smp_affinity), or the writer off theirs",
    )];
    finding::from_spans(facts, Cause::Interrupt, ENTRY.headline, fixes)
}
