//! cache-dropped: a process made the kernel drop the page cache, and calls read the cached pages again.

use std::collections::BTreeMap;

use super::{CauseEntry, CauseId};
use crate::aggressor::{Aggressor, Answerable, Means};
use crate::facts::Facts;
use crate::sums::{add_to, total};
use crate::{Evidence, Finding, Fix};
use flatwater_recording::schema::vmstat;
use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::units::{Bytes, Nanos};
use flatwater_recording::{Cause, Event, EventKind, Source, Table};

pub const ENTRY: CauseEntry = CauseEntry {
    name: "cache-dropped",
    span: None,
    headline: "the page cache was dropped by hand (vm.drop_caches): what calls had cached they must read again",
    mechanism: "A write to /proc/sys/vm/drop_caches walks every file system and frees all clean pages (1), all unused \
        dentries and inodes with the pages of their files (2), or both (3); fs/drop_caches.c: \
        drop_caches_sysctl_handler. It is often found in cron jobs and in scripts that were meant to free memory, \
        which cache does not occupy in any way that matters. The programs that used those pages read them from the \
        device again, all at once. Dropped pages leave no shadow entries, so that workingset_refault does not count \
        them.",
    kernels: "Since 2.6.16; counted (drop_pagecache, drop_slab) and reported in the kernel's log since 3.15.",
    in_spans: "synchronous-read in calls that end after the drop.",
    in_counters: "drop_pagecache or drop_slab of /proc/vmstat rises; nr_file_pages falls at once. The kernel's log \
        names who: 'sh (812): drop_caches: 3', unless 4 was added to the value since boot.",
    against: "The calls waited for reads as long before the drop.",
    fix: "Take it out of the cron job or script. Where it is there for a benchmark, that is what the benchmark \
        measures. Memory that must be free ahead of need: vm.min_free_kbytes, or memory.reclaim of one cgroup (5.19).",
    prove: "Leave it out for one period: the reads, and the calls that waited for them, do not come.",
    sources: &["fs/drop_caches.c: drop_caches_sysctl_handler", "Documentation/admin-guide/sysctl/vm.rst: drop_caches"],
    find,
};

/// Drops in the kernel's log and in its counters.
struct Drops<'a> {
    /// Number of drops by (pid, name) of the process that wrote to drop_caches.
    by: BTreeMap<(u32, &'a str), u64>,
    count: u64,
    first_ns: Option<u64>,
}

impl Drops<'_> {
    /// The number of drops whose process the log names.
    fn attributed(&self) -> u64 {
        total(self.by.values().copied())
    }
}

fn drops<'a>(facts: &Facts<'a>) -> Option<Drops<'a>> {
    let reported: Vec<(&Event, (u32, &str))> =
        facts.recording.events.iter().filter_map(|event| Some((event, event.kind.dropped_cache()?))).collect();
    let table = facts.recording.table(Table::Vmstat);
    let rows = table.and_then(|table| table.by_entity().map(|(_, rows)| rows).next());
    // A value of 3 counts in both columns.
    let columns = [vmstat::DROP_PAGECACHE, vmstat::DROP_SLAB];
    let rises = columns.into_iter().filter_map(|column| rows.as_ref()?.rise(column));
    let counted = rises.max().and_then(|rise| u64::try_from(rise).ok()).unwrap_or(0);
    let count = counted.max(reported.len() as u64);
    // An event has the time at which the log was read, which may be seconds late; the counters are more precise.
    let rates = columns.into_iter().filter_map(|column| Some(rows.as_ref()?.rates_per_s(column))).flatten();
    let counted_ns = rates.filter(|(.., per_s)| *per_s > 0.0).map(|(from_ns, ..)| from_ns);
    let first_ns = counted_ns.chain(reported.iter().map(|(event, _)| event.at_ns)).min();
    let mut by = BTreeMap::new();
    for (_, who) in &reported {
        add_to(by.entry(*who).or_default(), 1);
    }
    (count > 0).then_some(Drops { by, count, first_ns })
}

/// Time of calls waiting for reads: (before the first drop, after it), ns.
fn reads(facts: &Facts<'_>, first_ns: Option<u64>) -> (u64, u64) {
    let (mut before_ns, mut after_ns) = (0_u64, 0_u64);
    for call in &facts.recording.calls {
        let of_reads = call.segments.iter().filter(|segment| segment.cause == Cause::SynchronousRead);
        let ns = of_reads.map(|segment| segment.ns).fold(0, u64::saturating_add);
        let is_after = first_ns.is_none_or(|first_ns| call.end_ns() > first_ns);
        let sum = if is_after { &mut after_ns } else { &mut before_ns };
        *sum = sum.saturating_add(ns);
    }
    (before_ns, after_ns)
}

/// The steepest fall of the page cache between two samples, bytes: (from, to).
fn fall(facts: &Facts<'_>) -> Option<(u64, u64)> {
    let table = facts.recording.table(Table::Vmstat)?;
    let (_, rows) = table.by_entity().next()?;
    let pages: Vec<i64> = rows.values(vmstat::NR_FILE_PAGES).map(|(_, pages)| pages).collect();
    let steepest = pages.windows(2).max_by_key(|pair| pair[0].saturating_sub(pair[1]))?;
    let page_bytes = facts.recording.header.machine.page_size_bytes();
    let bytes = |pages: i64| u64::try_from(pages).unwrap_or(0).saturating_mul(page_bytes);
    (steepest[0] > steepest[1]).then(|| (bytes(steepest[0]), bytes(steepest[1])))
}

fn find(facts: &Facts<'_>) -> Option<Finding> {
    from_calls(facts).or_else(|| from_log(facts))
}

/// Without timed calls, this many drops at equal intervals show that a job drops the cache again and again; a single
/// drop may be the preparation of a benchmark.
const PERIODIC_MIN: usize = 3;
/// The longest interval between drops of one job may be longer than the shortest by this share.
const JITTER_MAX: f64 = 0.1;

/// From the kernel's log, or cron's or a crontab, without timed calls.
fn from_log(facts: &Facts<'_>) -> Option<Finding> {
    if !facts.may_infer() || facts.recording.header.source != Source::Import {
        return None;
    }
    let mut evidence = Vec::new();
    let mut periods: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for event in &facts.recording.events {
        match &event.kind {
            EventKind::Report(line) if line.contains("drop_caches") => {
                evidence.push(Evidence::statement(format!("a job drops the cache: {}", line.trim())).at(event.at_ns));
            }
            kind => {
                let Some((_, name)) = kind.dropped_cache() else { continue };
                periods.entry(name).or_default().push(event.at_ns);
            }
        }
    }
    evidence.truncate(1);
    for (name, mut times) in periods {
        times.sort_unstable();
        let steps: Vec<u64> = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
        let (Some(least), Some(most)) = (steps.iter().min(), steps.iter().max()) else { continue };
        if times.len() < PERIODIC_MIN || *least == 0 || *most as f64 > *least as f64 * (1.0 + JITTER_MAX) {
            continue;
        }
        let text = format!("{name} dropped the cache {} times, each {} after the last", times.len(), Nanos(*most));
        evidence.push(Evidence::new(text, times.len() as f64, "times").at(times[0]));
    }
    if evidence.is_empty() {
        return None;
    }
    let finding = Finding::inferred(CauseId::CacheDropped, 0.7, ENTRY.headline).with(evidence);
    let finding = finding
        .fix(Fix::advice("find the script or cron job that writes to /proc/sys/vm/drop_caches, and take that out"));
    Some(finding.settle("leave it out for one period: the reads do not come"))
}

fn from_calls(facts: &Facts<'_>) -> Option<Finding> {
    let sum = facts.significant(Cause::SynchronousRead)?;
    let drops = drops(facts)?;
    let (before_ns, after_ns) = reads(facts, drops.first_ns);
    // The share of the judged calls' time that is attributed to the drop: that of all calls after the first drop.
    let share = after_ns as f64 / before_ns.saturating_add(after_ns).max(1) as f64;
    let lost_ns = (sum.lost_ns as f64 * share) as u64;
    if !facts.enough(lost_ns, lost_ns.min(sum.worst_ns)) {
        return None;
    }
    let mut finding = Finding::inferred(CauseId::CacheDropped, 0.9, ENTRY.headline);
    finding.lost_ns = Some(lost_ns);
    let times = if drops.count == 1 { "once".to_owned() } else { format!("{} times", drops.count) };
    let text = format!("{times} (drop_pagecache, drop_slab, and the kernel's log)");
    finding.evidence.push(Evidence::new(text, drops.count as f64, ""));
    if let Some((from, to)) = fall(facts) {
        let text = format!("the page cache fell from {} to {} between two samples", Bytes(from), Bytes(to));
        finding.evidence.push(Evidence::new(text, from.saturating_sub(to) as f64, "bytes"));
    }
    let text = format!("calls that ended after the first of them waited {} for reads", Nanos(lost_ns));
    finding.evidence.push(Evidence::new(text, lost_ns as f64, "ns"));
    if before_ns > 0 {
        let text = format!("calls before it waited for reads, too: {}", Nanos(before_ns));
        finding.against.push(Evidence::new(text, before_ns as f64, "ns"));
    }
    if drops.by.is_empty() {
        finding.evidence.push(Evidence::statement(
            "the process is unknown: the kernel's log names it (unless 4 was written since boot), but was not read",
        ));
    } else if drops.attributed() < drops.count {
        let text = "the kernel's log has fewer drops than its counters: the other processes are unknown";
        finding.evidence.push(Evidence::new(text, drops.count.saturating_sub(drops.attributed()) as f64, ""));
    }
    (finding.aggressors, finding.answerable) = charged(&drops, lost_ns);
    finding.settle = "leave it out for one period: the reads do not come".to_owned();
    // If a process is known, `blame` adds the fix that names it.
    if finding.aggressors.is_empty() {
        let text = "find the script or cron job that writes to /proc/sys/vm/drop_caches, and take that out";
        finding = finding.fix(Fix::advice(text));
    }
    Some(finding)
}

/// Charges each process with its share of the drops; the drops that the log does not mention are charged to
/// unknown.
fn charged(drops: &Drops<'_>, lost_ns: u64) -> (Vec<Aggressor>, Option<Answerable>) {
    let attributed = drops.attributed();
    let part = |times: u64| times as f64 / drops.count.max(1) as f64;
    let mut by_name: BTreeMap<&str, (u64, Vec<u32>)> = BTreeMap::new();
    for ((pid, name), times) in &drops.by {
        let of_name = by_name.entry(name).or_default();
        add_to(&mut of_name.0, *times);
        of_name.1.push(*pid);
    }
    let mut aggressors: Vec<Aggressor> = by_name
        .into_iter()
        .map(|(name, (times, pids))| {
            let share = part(times);
            let stall_ns = (lost_ns as f64 * share) as u64;
            let often = if times == 1 { "once".to_owned() } else { format!("{times} times") };
            let text = format!("it dropped the page cache {often}");
            Aggressor::by(name, pids, (share, stall_ns), Means::DroppedCache, Evidence::new(text, times as f64, ""))
        })
        .collect();
    aggressors.sort_short_by_key(|one| std::cmp::Reverse(one.stall_ns));
    let answerable = (attributed > 0).then(|| Answerable {
        others: part(attributed),
        unknown: 1.0 - part(attributed),
        ..Answerable::default()
    });
    (aggressors, answerable)
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::aggressor::Means;
    use crate::testing::{RecordingBuilder, START_NS, evidence_text, rising};
    use flatwater_recording::{Cause, Entity, Event, EventKind, OpKind, Table};

    fn reads_beside(drops: &[i64]) -> RecordingBuilder {
        let levels = [200_000, 200_100, 3_000, 9_000];
        RecordingBuilder::new()
            .counters(Table::Vmstat, &Entity::default(), &[("drop_pagecache", drops)])
            .gauges(Table::Vmstat, &Entity::default(), &[("nr_file_pages", &levels)])
            .slow(OpKind::Read, &[(Cause::SynchronousRead, 40.0)])
            .slow(OpKind::Read, &[(Cause::SynchronousRead, 60.0)])
    }

    fn reported(at_ns: u64, line: &str) -> Event {
        Event::new(at_ns, EventKind::report(line))
    }

    #[test]
    fn the_kernels_log_line_names_the_process() {
        let builder = reads_beside(&rising(1, 4)).edit(|recording| {
            recording.events.push(reported(START_NS - 1, "cron.sh (812): drop_caches: 3"));
            recording.events.push(reported(START_NS + 1_000_000_000, "cron.sh (815): drop_caches: 3"));
        });
        let finding = builder.found(&ENTRY).expect("dropped");
        let named: Vec<_> = finding.aggressors.iter().map(|one| (one.program.as_str(), one.means, one.share)).collect();
        // Three drops by the counters, two in the log.
        assert_eq!(named, [("cron.sh", Means::DroppedCache, 0.667)]);
        let answerable = finding.answerable.as_ref().expect("a process is named");
        assert!((answerable.unknown - 1.0 / 3.0).abs() < 1e-9, "{answerable:?}");
        assert_eq!(finding.aggressors[0].pids, [812, 815]);
        assert_eq!(finding.lost_ns, Some(100_000_000));
        let evidence_text = evidence_text(&finding);
        assert!(
            evidence_text.contains("3 times") && evidence_text.contains("the other processes are unknown"),
            "{evidence_text}"
        );
        assert!(evidence_text.contains("fell from 782 MiB to 11.7 MiB"), "{evidence_text}");
    }

    #[test]
    fn reads_before_the_drop_do_not_count() {
        // The counter rises in the second after the first sample; the log line is read a second later.
        let builder = reads_beside(&[0, 0, 1, 1]).edit(|recording| {
            recording.calls[1].start_ns = START_NS + 1_500_000_000;
            recording.events.push(reported(START_NS + 3_000_000_000, "sh (812): drop_caches: 1"));
        });
        let finding = builder.found(&ENTRY).expect("dropped");
        assert_eq!(finding.lost_ns, Some(60_000_000));
        assert!(finding.against[0].text.contains("40"), "{:?}", finding.against);
    }

    #[test]
    fn without_the_log_line_no_process_is_named() {
        let finding = reads_beside(&[0, 1, 1, 1]).found(&ENTRY).expect("dropped");
        assert!(finding.aggressors.is_empty() && finding.answerable.is_none());
        assert!(evidence_text(&finding).contains("the process is unknown"));
        assert_eq!(finding.fixes.len(), 1);
    }

    #[test]
    fn a_log_of_drops_at_equal_intervals_is_a_job_and_one_drop_is_not() {
        let log = |seconds: &[u64]| {
            RecordingBuilder::new().edit(|recording| {
                recording.header.source = flatwater_recording::Source::Import;
                for (at, second) in seconds.iter().enumerate() {
                    let line = format!("sh ({}): drop_caches: 3", 900 + at);
                    recording.events.push(reported(START_NS + second * 1_000_000_000, &line));
                }
            })
        };
        let finding = log(&[0, 3600, 7201, 10_802]).found(&ENTRY).expect("hourly");
        assert!(evidence_text(&finding).contains("sh dropped the cache 4 times"), "{}", evidence_text(&finding));
        for none in [&[0][..], &[0, 3600], &[0, 30, 3600, 9000]] {
            assert!(log(none).found(&ENTRY).is_none(), "{none:?}");
        }
        let cron = RecordingBuilder::new().edit(|recording| {
            recording.header.source = flatwater_recording::Source::Import;
            recording.events.push(reported(START_NS, "(root) CMD (echo 3 > /proc/sys/vm/drop_caches)"));
        });
        assert!(cron.found(&ENTRY).is_some());
    }

    #[test]
    fn no_drop_or_no_read_is_not_this() {
        assert!(reads_beside(&[7, 7, 7, 7]).found(&ENTRY).is_none());
        let quick = RecordingBuilder::new().counters(Table::Vmstat, &Entity::default(), &[("drop_pagecache", &[0, 1])]);
        assert!(quick.slow(OpKind::Write, &[(Cause::Lock, 40.0)]).found(&ENTRY).is_none());
    }
}
