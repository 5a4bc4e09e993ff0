//! hypervisor-noise: the hypervisor takes CPUs away from the guest, as shown by steal time and the gaps of a
//! spinning thread.

use super::{CauseEntry, CauseId};
use crate::counters::{Point, Track};
use crate::facts::Facts;
use crate::{Evidence, Finding, Fix};
use flatwater_recording::schema::{Column, cpu};
use flatwater_recording::units::Nanos;
use flatwater_recording::{Cause, Source};

const MEAN_SHARE_MIN: f64 = 0.05;
const PEAK_SHARE: f64 = 0.1;
const PEAK_WINDOWS_MIN: usize = 3;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "hypervisor-noise",
    span: None,
    headline: "the hypervisor takes CPU time away from this guest",
    mechanism: "The host runs other guests, its own threads or a CPU quota on this guest's virtual CPUs. Everything \
        in the guest stops, holders of locks included: 20 ms stolen from the holder is a 20 ms stall for all waiters. \
        Steal time counts only what the guest wanted to run and could not.",
    kernels: "All guests; steal needs a paravirtual clock.",
    in_spans: "steal; run-queue and lock beside it.",
    in_counters: "steal in /proc/stat (st in vmstat, %steal in sar) of several percent; gaps in a spin without \
        system calls.",
    against: "Steal of a percent or less, and a spin without gaps.",
    fix: "Nothing inside the guest: dedicated or pinned CPUs, another size or host; for burstable instances, check \
        the CPU credits.",
    prove: "The same spin on a dedicated host has no gaps of this size.",
    sources: &["kernel/sched/cputime.c: account_steal_time", "man 5 proc: /proc/stat"],
    find,
};

/// Rows of percentages that sum to less than this lack a column, which is steal (vmstat before 3.2 and old sar have
/// none).
const ROW_SUM_MAX: f64 = 0.97;

/// Steal as a share of CPU time: from its own column, or the remainder of percentages.
fn stolen(facts: &Facts<'_>) -> Track {
    let steal = facts.cpu_share(cpu::STEAL_NS);
    if !steal.is_empty() || facts.recording.header.source != Source::Import {
        return steal;
    }
    let tracks =
        |columns: &[Column]| -> Vec<Track> { columns.iter().map(|column| facts.rate(*column, "all")).collect() };
    // vmstat counts the others as parts of these four, which every complete row has.
    let whole = tracks(&[cpu::USER_NS, cpu::SYSTEM_NS, cpu::IDLE_NS, cpu::IOWAIT_NS]);
    let parts = tracks(&[cpu::NICE_NS, cpu::IRQ_NS, cpu::SOFTIRQ_NS]);
    let left = |point: &Point| {
        let at = |track: &Track| Some(track.points.iter().find(|other| other.at_ns == point.at_ns)?.value);
        let whole: f64 = whole.iter().map(at).sum::<Option<f64>>()?;
        // Percentages of all CPUs are imported as ns per second.
        let sum = (whole + parts.iter().filter_map(at).sum::<f64>()) / 1e9;
        Some(Point { value: (1.0 - sum).max(0.0), ..*point })
    };
    let track = Track { points: facts.rate(cpu::IDLE_NS, "all").points.iter().filter_map(left).collect() };
    let is_percent = track.points.iter().all(|point| (0.0..0.9).contains(&point.value));
    let short = track.mean().is_some_and(|mean| mean > 1.0 - ROW_SUM_MAX);
    if is_percent && short { track } else { Track::default() }
}

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let steal = stolen(facts);
    let mean = steal.mean()?;
    let often = steal.over(PEAK_SHARE) >= PEAK_WINDOWS_MIN && steal.share_over(PEAK_SHARE) >= 0.1;
    let blamed = [Cause::Steal, Cause::RunQueue, Cause::Lock, Cause::Compute]
        .into_iter()
        .any(|cause| facts.significant(cause).is_some());
    let allowed = facts.may_infer() && (!facts.spans_tell_all() || blamed) && !facts.recording.header.time_distorted;
    if !allowed || (mean < MEAN_SHARE_MIN && !often) {
        return None;
    }
    let peak = steal.peak()?;
    let printed = !facts.cpu_share(cpu::STEAL_NS).is_empty();
    let (headline, took) = if printed {
        (ENTRY.headline, "steal took")
    } else {
        (
            "CPU time is missing from the log's columns, which have no steal: the hypervisor may take it",
            "not listed are",
        )
    };
    let text = format!("{took} {:.1} % of CPU time on average, {:.0} % at worst", mean * 100.0, peak.value * 100.0);
    let mut finding = Finding::inferred(CauseId::HypervisorNoise, if printed { 0.9 } else { 0.5 }, headline)
        .with([Evidence::new(text, mean * 100.0, "%").at(peak.at_ns)]);
    if facts.noise_ns > 0 {
        let text = format!("a thread without system calls was away for up to {}", Nanos(facts.noise_ns));
        finding.evidence.push(Evidence::new(text, facts.noise_ns as f64, "ns"));
    }
    let fix = Fix::advice(
        "dedicated or pinned CPUs, a larger instance (burstable ones: check the CPU credits), or another host",
    );
    Some(
        finding
            .fix(fix)
            .settle("run `flatwater run` here: its noise probe shows how long a thread without system calls is away"),
    )
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::{RecordingBuilder, evidence_text, rising};
    use flatwater_recording::{Entity, Source, Table};

    fn cpu(steal_ms_per_s: i64) -> RecordingBuilder {
        let (steal, idle) = (rising(steal_ms_per_s * 1_000_000, 10), rising((1000 - steal_ms_per_s) * 1_000_000, 10));
        RecordingBuilder::new().counters(Table::Cpu, &Entity::named("all"), &[("steal_ns", &steal), ("idle_ns", &idle)])
    }

    #[test]
    fn a_tenth_stolen_is_named_a_percent_is_not() {
        assert!(cpu(120).found(&ENTRY).is_some());
        assert!(cpu(10).found(&ENTRY).is_none());
    }

    #[test]
    fn steal_that_is_not_printed_is_not_stated() {
        let shown = |columns: &[(&str, i64)]| {
            let columns: Vec<(&str, Vec<i64>)> =
                columns.iter().map(|(name, percent)| (*name, rising(percent * 10_000_000, 10))).collect();
            let columns: Vec<(&str, &[i64])> =
                columns.iter().map(|(name, values)| (*name, values.as_slice())).collect();
            let builder = RecordingBuilder::new().counters(Table::Cpu, &Entity::named("all"), &columns);
            builder.edit(|recording| recording.header.source = Source::Import).found(&ENTRY)
        };
        let whole = shown(&[("user_ns", 40), ("system_ns", 20), ("idle_ns", 20), ("iowait_ns", 5)]).expect("15 %");
        assert!(
            evidence_text(&whole).contains("not listed are 15.0 %") && !evidence_text(&whole).contains("steal took")
        );
        let without = shown(&[("system_ns", 20), ("idle_ns", 70), ("iowait_ns", 5)]);
        assert!(without.is_none(), "user time is missing: {without:?}");
    }
}
