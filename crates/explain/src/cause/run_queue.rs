//! run-queue: the thread was runnable, but another thread had the CPU.

use super::{CauseEntry, CauseId};
use crate::facts::Facts;
use crate::settings;
use crate::{Evidence, Finding, Fix, finding, waits};
use flatwater_recording::schema::{pressure, workload};
use flatwater_recording::units::Nanos;
use flatwater_recording::{Cause, PackedHistogram};

pub const ENTRY: CauseEntry = CauseEntry {
    name: "run-queue",
    span: Some(Cause::RunQueue),
    headline: "the thread was ready to run and waited for a CPU that others had",
    mechanism: "A woken or preempted thread waits in its CPU's run queue until the scheduler picks it \
        (kernel/sched/fair.c: pick_next_task_fair; EEVDF since 6.6). With more runnable threads than CPUs the wait is \
        a few slices (about 3 ms each) times their number; a thread that has just slept is favoured, one that has \
        used its share is not. Nothing in the memory or file-system path is at fault, and no method of writing fixes \
        it.",
    kernels: "All.",
    in_spans: "Measured: from sched_wakeup, or from being switched out while runnable, to being switched in.",
    in_counters: "procs_running (r in vmstat) above the number of CPUs, idle near 0; CPU pressure (PSI) rises; \
        schedstat's run_delay of the thread.",
    against: "There is much idle CPU time: then look for pinning (a busy CPU in an idle machine) or cpu-quota.",
    fix: "SCHED_FIFO (placement.fifo_priority) for the few threads that matter, or a CPU of their own (isolcpus, \
        cpuset); a lower weight for the neighbours; fewer threads.",
    prove: "`--set placement.fifo_priority=10`: run-queue disappears, everything else stays.",
    sources: &["kernel/sched/fair.c", "man 7 sched", "Documentation/accounting/psi.rst"],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let fixes = if has_priority(facts) {
        vec![Fix::advice(
            "it has a real-time priority: what keeps its CPU is kernel code that is not preempted, or interrupts; boot \
             with preempt=full (5.12, CONFIG_PREEMPT_DYNAMIC), or give it a dedicated CPU (isolcpus, cpuset) and keep \
             interrupts from it (/proc/irq/N/smp_affinity)",
        )]
    } else {
        vec![
            Fix::knob("a real-time priority for the writer's thread", knob!("placement.fifo_priority"), "10"),
            Fix::advice("keep a CPU free for it (cpuset, isolcpus), or lower the neighbours' weight"),
        ]
    };
    let own = finding::from_spans(facts, Cause::RunQueue, ENTRY.headline, fixes.clone());
    served_late(facts, own, &fixes).or_else(|| {
        let counted = || {
            waits::finding(facts, CauseId::RunQueue, ENTRY.headline, workload::RUN_DELAY_NS, "for a CPU (schedstat)")
        };
        let waited = woke_late(facts).or_else(counted).or_else(|| always_pressed(facts))?;
        Some(Finding { fixes, ..waited })
    })
}

/// Some thread waits for a CPU nearly all the time, over minutes. For logs without timed calls only.
const ALWAYS_SHARE_MIN: f64 = 0.9;

fn always_pressed(facts: &Facts<'_>) -> Option<Finding> {
    facts.recording.header.import.as_ref().filter(|_| facts.may_infer())?;
    let of_minutes = [pressure::SOME_AVG60_CENTIPERCENT, pressure::SOME_AVG300_CENTIPERCENT];
    let shown = |column| facts.level(column, "cpu").peak().map(|point| point.value / 10_000.0);
    let always = of_minutes.into_iter().all(|column| shown(column).is_some_and(|share| share >= ALWAYS_SHARE_MIN));
    let pressed = facts.pressed("cpu").filter(|_| always)?;
    let finding = Finding::inferred(CauseId::RunQueue, 0.5, ALWAYS_PRESSED).with([pressed.evidence("a CPU")]);
    let finding = finding.but([Evidence::statement(
        "PSI does not show whether other threads have the CPUs or a quota keeps threads off them",
    )]);
    Some(finding.settle("cpu.stat of the cgroups (nr_throttled, throttled_usec) twice, a minute apart, and `vmstat 1`"))
}

const ALWAYS_PRESSED: &str = "some thread is ready to run and has no CPU, nearly all the time";

/// Adds the time in which calls waited for kernel threads without a CPU: the worker of a loop or encrypted device,
/// or the journal's thread.
fn served_late(facts: &Facts<'_>, own: Option<Finding>, fixes: &[Fix]) -> Option<Finding> {
    let ns = facts.charges.total_served_late_ns();
    if !facts.enough(ns, ns) || facts.recording.header.time_distorted {
        return own;
    }
    let own_ns = own.as_ref().map_or(0, |finding| finding.lost_ns.unwrap_or(0));
    let mut finding = match own {
        Some(finding) => finding,
        None => {
            let mut finding = Finding::from_requests(facts, CauseId::RunQueue, ns, SERVED_LATE)?;
            finding.fixes.extend_from_slice(fixes);
            finding
        }
    };
    finding.lost_ns = Some(own_ns.saturating_add(ns));
    if ns > own_ns {
        finding.headline = SERVED_LATE.to_owned();
    }
    let text = format!("{} more: kernel threads that the calls waited for had no CPU", Nanos(ns));
    finding.evidence.push(Evidence::new(text, ns as f64, "ns"));
    Some(finding)
}

const SERVED_LATE: &str =
    "the kernel's threads that serve the device or the journal were ready to run and waited for a CPU that others had";

/// Whether the thread has a real-time priority. With preempt=none or voluntary even such a thread waits until the
/// kernel code on its CPU returns to user space or reaches a rescheduling point (kernel/sched/core.c:
/// __cond_resched).
fn has_priority(facts: &Facts<'_>) -> bool {
    settings::largest(facts.recording, "placement.fifo_priority").is_some_and(|priority| priority > 0)
}

/// From this share of time in which some thread waited for a CPU (PSI), lateness is due to contention.
const PRESSURE_SHARE_MIN: f64 = 0.2;
/// The same for runnable threads per CPU.
const PER_CPU_MIN: f64 = 1.5;
/// Minimum ratio of the latest call to the slowest; below, calls were late because the call before was slow.
const LATE_TIMES_MIN: u64 = 3;

/// An open loop whose calls are fast but begin late: the thread slept until a call was due and then had no CPU.
/// Without signs of contention the reason may be the timer or the hypervisor, and nothing is claimed.
fn woke_late(facts: &Facts<'_>) -> Option<Finding> {
    let own = facts.recording.latency.iter().filter(|bucket| bucket.thread.is_empty() && bucket.from_due.is_some());
    let (mut late, mut late_ns, mut slow, mut latest_ns, mut slowest_ns) = (0_u64, 0_u64, 0_u64, 0, 0);
    for bucket in own {
        let over = |steps: &PackedHistogram| {
            let slow = steps.steps().filter(|(_, ns, _)| *ns >= facts.threshold_ns);
            slow.fold((0_u64, 0_u64), |(n, sum), (_, ns, count)| {
                (n.saturating_add(count), sum.saturating_add(ns.saturating_mul(count)))
            })
        };
        let from_due = bucket.from_due.as_ref().map_or((0, 0), over);
        late = late.saturating_add(from_due.0);
        late_ns = late_ns.saturating_add(from_due.1);
        slow = slow.saturating_add(over(&bucket.from_start).0);
        latest_ns = latest_ns.max(bucket.worst_from_due_ns.unwrap_or(0));
        slowest_ns = slowest_ns.max(bucket.worst_from_start_ns);
    }
    let pressed = facts.pressed("cpu");
    let cpus = facts.recording.header.machine.cpus.map(f64::from);
    let queued = facts.runnable().mean().zip(cpus).map(|(runnable, cpus)| runnable / cpus.max(1.0));
    let contended = pressed.is_some_and(|pressed| pressed.some >= PRESSURE_SHARE_MIN)
        || queued.is_some_and(|per_cpu| per_cpu >= PER_CPU_MIN);
    let beyond = latest_ns > facts.noise_ns && latest_ns >= slowest_ns.saturating_mul(LATE_TIMES_MIN);
    if !(contended && beyond && late > slow.saturating_mul(2) && facts.enough(late_ns, latest_ns)) {
        return None;
    }
    let headline = "calls began late: the thread was due and waited for a CPU that others had, while the calls \
     themselves were fast";
    let mut finding = Finding::inferred(CauseId::RunQueue, 0.75, headline);
    let text = format!(
        "{late} calls ended {} and more after they were due, the worst {}; the slowest call itself took {}",
        Nanos(facts.threshold_ns),
        Nanos(latest_ns),
        Nanos(slowest_ns)
    );
    finding.evidence.push(Evidence::new(text, latest_ns as f64, "ns"));
    finding.evidence.extend(pressed.map(|pressed| pressed.evidence("a CPU")));
    finding.evidence.extend(
        queued.map(|per_cpu| {
            Evidence::new(format!("{per_cpu:.1} runnable threads per CPU on average"), per_cpu, "threads")
        }),
    );
    Some(finding.settle(if has_priority(facts) {
        "run again with `--cpu N`, the CPU that nothing else uses: the lateness must go"
    } else {
        "run again with a real-time priority (`--set placement.fifo_priority=10`): the lateness must go"
    }))
}

#[cfg(test)]
mod tests {
    use super::{CauseId, ENTRY};
    use crate::testing::{RecordingBuilder, evidence_text, rising};
    use flatwater_recording::{Entity, OpKind, PackedHistogram, Table, histogram};

    #[test]
    fn constant_pressure_is_a_finding_for_logs_only() {
        let build = |percent: i64| {
            let share = [percent * 100; 1];
            let columns: [(&str, &[i64]); 3] = [
                ("some_avg10_centipercent", &share),
                ("some_avg60_centipercent", &share),
                ("some_avg300_centipercent", &share),
            ];
            RecordingBuilder::new().gauges(Table::Pressure, &Entity::named("cpu"), &columns)
        };
        let pasted = |percent| build(percent).edit(|recording| recording.header.import = Some(Default::default()));
        let finding = pasted(97).found(&ENTRY).expect("97 % of minutes");
        assert!(finding.weight < 0.6 && evidence_text(&finding).contains("97 %"), "{}", evidence_text(&finding));
        assert!(pasted(60).found(&ENTRY).is_none() && build(97).found(&ENTRY).is_none());
    }

    /// Fast calls, of which one in a hundred began `late_ms` late, under this CPU pressure.
    fn late(late_ms: u64, pressure_percent: i64) -> RecordingBuilder {
        let waited = rising(pressure_percent * 10_000, 10);
        let builder =
            RecordingBuilder::new().counters(Table::Pressure, &Entity::named("cpu"), &[("some_total_us", &waited)]);
        builder.bucket("", OpKind::Write, &[3_000; 1_000]).edit(|recording| {
            let mut due = histogram();
            (0..1_000_u64)
                .for_each(|call| due.saturating_record(if call % 100 == 0 { late_ms * 1_000_000 } else { 9_000 }));
            recording.latency[0].from_due = Some(PackedHistogram::pack(&due));
            recording.latency[0].worst_from_due_ns = Some(late_ms * 1_000_000);
        })
    }

    #[test]
    fn fast_calls_that_begin_late_on_a_full_machine_lack_a_cpu() {
        let finding = late(20, 70).found(&ENTRY).expect("late");
        assert!(
            evidence_text(&finding).contains("10 calls ended 1 ms and more after they were due"),
            "{}",
            evidence_text(&finding)
        );
        assert!(finding.weight < 0.9 && !finding.settle.is_empty());
    }

    #[test]
    fn a_priority_in_force_is_not_proposed() {
        let recording = late(20, 70).knob("placement.fifo_priority", "10").done();
        let explanation = crate::explain(&recording);
        let finding =
            explanation.findings.iter().find(|finding| finding.cause == CauseId::RunQueue).expect("late all the same");
        assert!(
            finding.fixes.iter().all(|fix| fix.setting().is_none()) && finding.settle.contains("--cpu"),
            "{finding:?}"
        );
        assert!(finding.fixes.iter().any(|fix| fix.text.contains("preempt=full")), "{finding:?}");
    }

    #[test]
    fn lateness_without_contention_or_after_slow_calls_is_not_claimed() {
        assert!(late(20, 2).found(&ENTRY).is_none(), "the machine idles");
        assert!(late(0, 70).found(&ENTRY).is_none(), "on time");
        let slow = late(20, 70).edit(|recording| recording.latency[0].worst_from_start_ns = 19_000_000);
        assert!(slow.found(&ENTRY).is_none(), "late because the call before was slow");
    }
}
