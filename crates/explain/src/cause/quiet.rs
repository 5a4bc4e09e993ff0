//! quiet: nothing is wrong, with the figures that show it.

use std::collections::HashMap;

use super::{CauseEntry, CauseId};
use crate::facts::{Facts, LOST_SHARE_MIN};
use crate::operations::{operations, partly_timed};
use crate::{Evidence, Finding, exclude};
use flatwater_recording::schema::{Column, cpu, disks, meminfo, nodes, vmstat, zones};
use flatwater_recording::units::{Bytes, Nanos};
use flatwater_recording::{Basis, CauseBasis, DurationBasis, Series, Source, Table};

pub const ENTRY: CauseEntry = CauseEntry {
    name: "quiet",
    span: None,
    headline: "nothing is wrong here",
    mechanism: "No cause reached the size of a finding: less than 0.1 % of the recorded time was lost in slow \
        calls, no single call lost ten thresholds, and no counter shows the signature of a known stall.",
    kernels: "All.",
    in_spans: "Few or no slow calls.",
    in_counters: "Hardly any direct scans, no swapping, no queue; or a busy but healthy machine: kswapd scanning with \
        a good yield, CPUs in use, a device that keeps up.",
    against: "A recording that is too short to contain the stall, or that lacks the table that would show it: read \
        the gaps.",
    fix: "None needed. If the stall is rare, record longer.",
    prove: "Record over the time at which the stall is reported.",
    sources: &[],
    find,
};

/// The highest confidence if no rule judges a part of the log.
const UNJUDGED_CONFIDENCE_MAX: f64 = 0.5;
/// Operations with a line of their own.
const OPERATIONS_SHOWN: usize = 3;
/// A log without timed calls that is shorter than this shows only a moment.
const MOMENT_NS: u64 = 10_000_000_000;

/// Always returns a finding: it is called last, and for a log only if that log times operations.
fn find(facts: &Facts<'_>) -> Option<Finding> {
    let seen = facts.timed();
    let sampled = facts.recording.series.iter().any(|series| series.at_ns().first() != series.at_ns().last());
    let headline = if seen { ENTRY.headline } else { "nothing in these figures points to a known cause of stalls" };
    let mut finding = Finding::inferred(CauseId::Quiet, if seen { 0.95 } else { 0.7 }, headline);
    if seen {
        finding.basis = Basis::Exact;
        finding.duration_basis = DurationBasis::Measured;
        finding.cause_basis = CauseBasis::Elimination;
        finding.settle = String::new();
    }
    if facts.calls > 0 {
        let text = format!(
            "{} calls were over {}: {} in {}, under the {:.1} % that count as a problem",
            facts.calls,
            Nanos(facts.threshold_ns),
            Nanos(facts.lost_ns),
            Nanos(facts.duration_ns),
            LOST_SHARE_MIN * 100.0
        );
        finding.evidence.push(Evidence::new(text, facts.lost_ns as f64, "ns"));
    }
    for line in operations(facts.recording).iter().filter(|line| line.thread.is_empty()).take(OPERATIONS_SHOWN) {
        let text = format!(
            "{}(): {} calls, p99.9 {}, worst {}",
            line.name,
            line.count,
            Nanos(line.from_start.p999_ns),
            Nanos(line.from_start.max_ns)
        );
        finding.evidence.push(Evidence::new(text, line.from_start.max_ns as f64, "ns"));
    }
    let others: Vec<u64> = operations(facts.recording)
        .iter()
        .filter(|line| line.thread.is_empty())
        .skip(OPERATIONS_SHOWN)
        .map(|line| line.count)
        .collect();
    if !others.is_empty() {
        let count = others.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
        let text = format!("{count} calls of {} other operations", others.len());
        finding.evidence.push(Evidence::new(text, count as f64, "calls"));
    }
    finding.evidence.extend(shortest(facts, seen));
    if !seen {
        finding.evidence.extend(levels(facts));
    }
    if facts.recording.header.source == Source::Import {
        let view = exclude::view(facts);
        finding.evidence.extend(exclude::basis(facts));
        finding.evidence.extend(view.excluded.iter().map(|shown| shown.evidence.clone()));
        finding.headline =
            "nothing in these figures points to a known cause of stalls as long as they could show".to_owned();
        finding.weight = 0.8;
        if let Some(part) = exclude::unjudged(facts, &view) {
            finding.against.push(part.evidence());
            finding.weight = finding.weight.min(UNJUDGED_CONFIDENCE_MAX);
        }
    } else if !seen && !sampled {
        finding.weight = 0.3;
        finding.headline = "nothing points to a known cause, but little was seen: no calls were timed and nothing was \
            sampled over time"
            .to_owned();
    } else if !seen && facts.duration_ns < MOMENT_NS {
        // Stalls are intermittent: a few rows say little about them.
        finding.weight = 0.5;
    }
    Some(finding)
}

/// The shortest stall that the recording could show.
pub(super) fn shortest(facts: &Facts<'_>, seen: bool) -> Option<Evidence> {
    if seen {
        let timed = facts.recording.header.source != Source::Import && facts.threshold_ns > 0;
        let lost = if facts.recording.header.losses.any() { ", unless its events were lost" } else { "" };
        let text = || match partly_timed(facts.recording) {
            None => format!(
                "each of these calls was timed during {}: a call of {} or longer would be listed{lost}",
                Nanos(facts.duration_ns),
                Nanos(facts.threshold_ns)
            ),
            Some(partly) => format!(
                "every call was timed for {} of {}; in the other time a call that waited for {} or longer would be \
                 listed{lost}",
                Nanos(partly.every_call_ns),
                Nanos(partly.duration_ns),
                Nanos(facts.threshold_ns)
            ),
        };
        return timed.then(|| Evidence::new(text(), facts.threshold_ns as f64, "ns"));
    }
    let step_ns = facts.recording.series.iter().filter_map(step_ns).min()?;
    let text = format!("two readings of a figure are {} and more apart: a shorter stall need not show", Nanos(step_ns));
    Some(Evidence::new(text, step_ns as f64, "ns"))
}

/// The shortest time between two readings of one entity.
fn step_ns(series: &Series) -> Option<u64> {
    let mut before: HashMap<u16, u64> = HashMap::new();
    let readings = series.at_ns().iter().zip(series.owners());
    let steps = readings.filter_map(|(at_ns, owner)| at_ns.checked_sub(before.insert(*owner, *at_ns)?));
    steps.filter(|step_ns| *step_ns > 0).min()
}

/// Figures of a recording without timed calls: memory, watermarks, CPUs, swap.
pub(super) fn levels(facts: &Facts<'_>) -> Vec<Evidence> {
    let mut evidence = Vec::new();
    let get = |column: Column| facts.meminfo(column).map(|bytes| bytes as f64);
    if let (Some(total), Some(free)) = (get(meminfo::MEM_TOTAL_BYTES), get(meminfo::MEM_FREE_BYTES)) {
        let cache = get(meminfo::BUFFERS_BYTES).unwrap_or(0.0)
            + get(meminfo::CACHED_BYTES).unwrap_or(0.0)
            + get(meminfo::BUFFERS_CACHED_BYTES).unwrap_or(0.0);
        let text = format!(
            "{} is free and {} cache, {:.0} % of {} together",
            Bytes(free as u64),
            Bytes(cache as u64),
            100.0 * (free + cache) / total.max(1.0),
            Bytes(total as u64)
        );
        evidence.push(Evidence::new(text, free + cache, "bytes"));
    }
    for (entity, rows) in facts.recording.table(Table::Zones).into_iter().flat_map(|zones| zones.by_entity()) {
        if let (Some((at_ns, free)), Some(low), Some(min)) =
            (rows.min(zones::FREE), rows.last(zones::LOW), rows.last(zones::MIN))
        {
            let node = entity.node.unwrap_or(0);
            let side = if free > low { "above" } else { "below" };
            let text =
                format!("node {node} zone {}: free {free} pages at least, {side} low ({low}); min {min}", entity.name);
            evidence.push(Evidence::new(text, free as f64, "pages").at(at_ns));
        }
    }
    let (idle, blocked, runnable) =
        (facts.cpu_share(cpu::IDLE_NS).mean(), facts.blocked().mean(), facts.runnable().mean());
    if let (Some(idle), Some(blocked), Some(runnable)) = (idle, blocked, runnable) {
        let text = format!(
            "CPUs {:.0} % idle; on average {runnable:.0} threads were runnable and {blocked:.1} were blocked",
            idle * 100.0
        );
        evidence.push(Evidence::new(text, idle * 100.0, "%"));
        if idle < 0.1 && runnable >= 4.0 {
            let text = "the CPUs are saturated: throughput is fine, but a thread with a deadline would wait";
            evidence.push(Evidence::statement(text));
        }
    } else if let Some(idle) = idle {
        evidence.push(Evidence::new(format!("CPUs {:.0} % idle", idle * 100.0), idle * 100.0, "%"));
    }
    if let Some(system) = facts.cpu_share(cpu::SYSTEM_NS).mean().filter(|share| *share >= 0.3) {
        let text = format!(
            "{:.0} % of CPU time was spent in the kernel, which these figures do not explain: `sar -B 1` shows \
                whether it scans for memory, `perf top` what else it does",
            system * 100.0
        );
        evidence.push(Evidence::new(text, system * 100.0, "%"));
    }
    if let (Some(total), Some(free)) = (get(meminfo::SWAP_TOTAL_BYTES), get(meminfo::SWAP_FREE_BYTES))
        && total > 0.0
        && free < 0.1 * total
    {
        let text = format!("swap is nearly full: {} of {} are used", Bytes((total - free) as u64), Bytes(total as u64));
        evidence.push(Evidence::new(text, total - free, "bytes"));
    }
    evidence.extend(nodes(facts));
    evidence.extend(paging(facts));
    evidence.extend(swapping(facts));
    evidence.extend(disk(facts));
    evidence.extend(facts.pressed("unnamed").map(|pressed| pressed.evidence("a resource that the log does not name")));
    evidence
}

/// Free memory by node if it is uneven: threads on the full node get pages of the other, or reclaim.
fn nodes(facts: &Facts<'_>) -> Option<Evidence> {
    let table = facts.recording.table(Table::Nodes)?;
    let each = table.by_entity().filter_map(|(entity, rows)| Some((entity.node?, rows.last(nodes::MEM_FREE_BYTES)?)));
    let each: Vec<(u32, i64)> = each.collect();
    let (full, free) = each.iter().copied().min_by_key(|(_, free)| *free)?;
    let (empty, most) = each.iter().copied().max_by_key(|(_, free)| *free)?;
    let text = format!(
        "node {full} has {} free and node {empty} {}: threads on node {full} get pages of the other, or, with \
            vm.zone_reclaim_mode set, reclaim their own first",
        Bytes(free.max(0) as u64),
        Bytes(most.max(0) as u64)
    );
    (most > free.saturating_mul(8)).then(|| Evidence::new(text, free as f64, "bytes"))
}

/// Page scanning by callers and kswapd, and its yield.
fn paging(facts: &Facts<'_>) -> Option<Evidence> {
    let scans = facts.scans()?;
    let (_, per_s) = scans.peak_direct()?;
    let kswapd =
        scans.kswapd().map(|pages| format!(", kswapd {:.0} pages/s on average", pages / scans.seconds().max(1e-9)));
    let yields = scans.efficiency_percent().map(|percent| format!(", {percent:.0} % of what was scanned was freed"));
    let text = format!(
        "callers scanned {per_s:.0} pages/s at most{}{}",
        kswapd.unwrap_or_default(),
        yields.unwrap_or_default()
    );
    Some(Evidence::new(text, per_s, "pages/s"))
}

fn swapping(facts: &Facts<'_>) -> Option<Evidence> {
    let peak = |column: Column| facts.vmstat_rate(column).peak().map(|point| point.value);
    let (into, out) = (peak(vmstat::PSWPIN)?, peak(vmstat::PSWPOUT)?);
    let text = format!("swap: {into:.0} pages/s in and {out:.0} pages/s out at most");
    Some(Evidence::new(text, into.max(out), "pages/s"))
}

/// The busiest device and its time per request.
fn disk(facts: &Facts<'_>) -> Option<Evidence> {
    let table = facts.recording.table(Table::Disks)?;
    let busiest = table.entities().iter().filter_map(|entity| {
        let busy = facts.rate(disks::IO_NS, &entity.name).mean()? / 1e9;
        Some((busy, entity.name.as_str()))
    });
    let (busy, name) = busiest.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let rate = |column: Column| facts.rate(column, name).mean();
    let both = |reads: Column, writes: Column| Some(rate(reads)? + rate(writes)?);
    let requests = rate(disks::REQUESTS).or_else(|| both(disks::READS, disks::WRITES)).filter(|rate| *rate > 0.0);
    let spent = rate(disks::REQUEST_NS).or_else(|| both(disks::READ_NS, disks::WRITE_NS));
    let each = requests.zip(spent).map(|(requests, ns)| format!(", {:.1} ms per request", ns / requests / 1e6));
    let text =
        format!("the busiest disk, {name}, was busy {:.0} % of the time{}", busy * 100.0, each.unwrap_or_default());
    Some(Evidence::new(text, busy * 100.0, "%"))
}

#[cfg(test)]
mod tests {
    use super::CauseId;
    use crate::testing::{RecordingBuilder, evidence_text, rising};
    use flatwater_recording::{Cause, ColumnKind, Entity, OpKind, Series, Source, Table};

    #[test]
    fn a_snapshot_of_watermarks_gives_its_figures() {
        let zone: [(&str, &[i64]); 3] = [("free", &[174_188]), ("min", &[131_132]), ("low", &[163_915])];
        let builder = RecordingBuilder::new().gauges(Table::Zones, &Entity::on_node(1, "Normal"), &zone);
        assert!(
            evidence_text(&builder.explained().findings[0])
                .contains("node 1 zone Normal: free 174188 pages at least, above low (163915); min 131132")
        );
    }

    #[test]
    fn a_quiet_run_gives_its_figures() {
        let builder = RecordingBuilder::new().bucket("", OpKind::Write, &[1_900; 50_000]);
        let explanation = builder.slow(OpKind::Write, &[(Cause::RunQueue, 1.4)]).explained();
        assert_eq!(explanation.findings.len(), 1);
        let text = evidence_text(&explanation.findings[0]);
        assert!(text.contains("1 calls were over 1 ms: 1.40 ms in 10 s") && text.contains("50000 calls"), "{text}");
    }

    /// T4: `quiet` says what was watched: all operations, not only the first three.
    #[test]
    fn all_operations_that_were_watched_are_counted() {
        let mut builder = RecordingBuilder::new();
        for (place, op) in
            [OpKind::Write, OpKind::Read, OpKind::Open, OpKind::Close, OpKind::Stat].into_iter().enumerate()
        {
            builder = builder.bucket("", op, &vec![1_900; 100 * (place + 1)]);
        }
        let text = evidence_text(&builder.explained().findings[0]);
        assert!(text.contains("calls of 2 other operations") && text.contains("would be listed"), "{text}");
    }

    /// The first finding of an imported log.
    fn pasted(builder: RecordingBuilder) -> CauseId {
        builder.edit(|recording| recording.header.source = Source::Import).explained().findings[0].cause
    }

    #[test]
    fn the_shortest_stall_follows_from_readings_of_one_figure() {
        let mut table = Series::new(Table::Meminfo);
        for second in 1..4_u64 {
            let free = [("MemFree_bytes", ColumnKind::Gauge, Some(9 << 30))];
            table.push(second * 1_000_000_000, &Entity::default(), &free);
            table.push(second * 1_000_000_000 + 7, &Entity::named("other"), &free);
        }
        let text = evidence_text(
            &RecordingBuilder::new().edit(|recording| recording.series.push(table)).explained().findings[0],
        );
        assert!(text.contains("are 1 s and more apart: a shorter stall need not show"), "{text}");
    }

    #[test]
    fn lost_events_may_be_those_of_a_slow_call() {
        let build = || RecordingBuilder::new().bucket("", OpKind::Write, &[1_900; 50_000]);
        let whole = evidence_text(&build().explained().findings[0]);
        assert!(whole.contains("would be listed") && !whole.contains("unless its events were lost"), "{whole}");
        let lost = evidence_text(&build().edit(|recording| recording.header.losses.lost = 3).explained().findings[0]);
        assert!(lost.contains("unless its events were lost"), "{lost}");
    }

    #[test]
    fn requests_that_were_timed_say_more_than_iowait() {
        let half = rising(500_000_000, 11);
        let waits = || {
            let columns: [(&str, &[i64]); 2] = [("iowait_ns", &half), ("idle_ns", &half)];
            RecordingBuilder::new().counters(Table::Cpu, &Entity::named("all"), &columns)
        };
        assert_eq!(pasted(waits()), CauseId::NotEnough);
        assert_eq!(pasted(waits().bucket("vdb", OpKind::Read, &[700_000; 200])), CauseId::Quiet);
        assert_eq!(pasted(RecordingBuilder::new().bucket("202,32", OpKind::Read, &[900_000; 12])), CauseId::Quiet);
        assert_ne!(pasted(RecordingBuilder::new().bucket("202,32", OpKind::Read, &[90_000_000; 12])), CauseId::Quiet);
    }

    #[test]
    fn short_waits_for_processors_are_calm() {
        assert_eq!(pasted(RecordingBuilder::new().slow(OpKind::Other, &[(Cause::RunQueue, 0.03)])), CauseId::Quiet);
    }

    #[test]
    fn an_empty_recording_claims_little() {
        let finding = &RecordingBuilder::new().explained().findings[0];
        assert!(finding.weight < 0.5 && finding.headline.contains("little was seen"));
    }
}
