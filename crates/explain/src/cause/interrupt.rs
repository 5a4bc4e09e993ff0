//! interrupt: interrupts and soft interrupts ran during the call.

use super::CauseEntry;
use crate::facts::Facts;
use crate::{Evidence, Finding, Fix, finding};
use flatwater_recording::schema::cpu;
use flatwater_recording::{Cause, Entity, Table};

pub const ENTRY: CauseEntry = CauseEntry {
    name: "interrupt",
    span: Some(Cause::Interrupt),
    headline: "interrupt work ran on the writer's CPU during the call",
    mechanism: "A hard interrupt and the soft interrupts raised by it (network receive, block completion, timers, RCU \
        callbacks) run in the context of whatever thread is on the CPU. Up to 10 rounds or 2 ms of soft interrupts \
        (kernel/softirq.c: __do_softirq, MAX_SOFTIRQ_TIME) run before ksoftirqd takes over.",
    kernels: "All.",
    in_spans: "Measured between irq_handler_entry and _exit, softirq_entry and _exit, where those hooks are attached; \
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
    finding::from_spans(facts, Cause::Interrupt, ENTRY.headline, fixes.clone()).or_else(|| from_counters(facts, fixes))
}

/// A CPU is full of interrupt work from this share of the time on, if it has less than this idle time and the other
/// CPUs have at most half as much interrupt work: threads and requests that are bound to it wait.
const FULL_MIN: f64 = 0.5;
const IDLE_MAX: f64 = 0.1;
const OTHERS_MAX: f64 = 0.5;

/// A finding if one CPU of several is full of interrupt work.
fn from_counters(facts: &Facts<'_>, fixes: [Fix; 1]) -> Option<Finding> {
    if !facts.may_infer() {
        return None;
    }
    let each = facts.recording.table(Table::Cpu)?.entities();
    let share = |of: &Entity| {
        let mean = |column| facts.cpu_share_of(column, of).mean();
        Some((mean(cpu::SOFTIRQ_NS)? + mean(cpu::IRQ_NS).unwrap_or(0.0), mean(cpu::IDLE_NS)?))
    };
    let shares = each.iter().filter(|one| one.name != "all").filter_map(|one| Some((one, share(one)?)));
    let shares: Vec<(&Entity, (f64, f64))> = shares.collect();
    let (busiest, (busy, idle)) = shares.iter().max_by(|a, b| a.1.0.total_cmp(&b.1.0)).copied()?;
    let others = shares.iter().filter(|(one, _)| *one != busiest).map(|(_, (busy, _))| *busy);
    let count = shares.len().saturating_sub(1);
    let mean = others.sum::<f64>() / count as f64;
    if count == 0 || busy < FULL_MIN || idle > IDLE_MAX || mean > OTHERS_MAX * busy {
        return None;
    }
    let text = format!(
        "CPU {} spent {:.0} % of the time in interrupts and was idle {:.0} %; the other {count} CPUs spent {:.0} %",
        busiest.name,
        busy * 100.0,
        idle * 100.0,
        mean * 100.0
    );
    let headline = "one CPU is full of interrupt work: what only this CPU can do waits (its threads, the completions \
        that it handles)";
    let finding = Finding::inferred(Cause::Interrupt, 0.6, headline).with([Evidence::new(text, busy * 100.0, "%")]);
    let finding = fixes.into_iter().fold(finding, Finding::fix);
    Some(finding.settle("/proc/softirqs and /proc/interrupts twice, a second apart: which of them this CPU serves"))
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::RecordingBuilder;
    use flatwater_recording::{Entity, Table};

    /// CPUs with these shares of soft interrupts, percent; the remaining time is idle.
    fn machine(softirq: &[i64]) -> RecordingBuilder {
        softirq.iter().enumerate().fold(RecordingBuilder::new(), |builder, (number, percent)| {
            let (busy, idle) = ([0, *percent], [0, 100 - percent]);
            let columns: [(&str, &[i64]); 2] = [("softirq_ns", &busy), ("idle_ns", &idle)];
            builder.counters(Table::Cpu, &Entity::named(&number.to_string()), &columns)
        })
    }

    #[test]
    fn one_cpu_full_of_soft_interrupts_is_named_and_even_work_is_not() {
        let finding = machine(&[4, 6, 97, 5]).found(&ENTRY).expect("CPU 2");
        assert!(finding.evidence[0].text.starts_with("CPU 2 spent 97 %"), "{}", finding.evidence[0].text);
        for none in [&[97, 96, 97, 95][..], &[4, 6, 40, 5], &[97]] {
            assert!(machine(none).found(&ENTRY).is_none(), "{none:?}");
        }
    }
}
