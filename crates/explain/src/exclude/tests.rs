//! Logs of which no rule judges a part, and figures that look calm on average.

use crate::exclude::{self, Resolution};
use crate::facts::Facts;
use crate::testing::{RecordingBuilder, evidence_text, rising};
use crate::{Conclusion, Explanation};
use flatwater_recording::{Entity, FormatKind, ImportSummary, OpKind, Source, Table};

/// Whether the figures of this log are calm.
fn is_calm(builder: RecordingBuilder) -> bool {
    let recording = builder.edit(|recording| recording.header.source = Source::Import).done();
    exclude::view(&Facts::of(&recording)).is_quiet()
}

/// One-second averages do not show a write of 40 ms, however calm they are. Operations that are timed do.
#[test]
fn calm_averages_are_never_quiet() {
    use FormatKind::{Averages, Judged, TimedCalls};
    for formats in [&[("iostat", Averages, 6)][..], &[("sar", Averages, 6), ("settings", Averages, 2)]] {
        let explanation = idle_beside(formats, &[]);
        assert_eq!(explanation.conclusion, Conclusion::NotEnough);
        let finding = &explanation.findings[0];
        assert!(finding.headline.contains("averages") && finding.settle.contains("flatwater record"), "{finding:?}");
        assert!(evidence_text(finding).contains("a shorter stall need not show"), "{finding:?}");
    }
    assert_eq!(idle_beside(&[("vmstat", Judged, 6)], &[]).conclusion, Conclusion::NotEnough, "an older build's log");
    let means = idle_beside(&[("pg-test-fsync", Averages, 6)], &[300_000; 900]);
    assert_eq!(means.conclusion, Conclusion::NotEnough, "each of these times is a mean");
    let timed = idle_beside(&[("vmstat", Averages, 6), ("redis-latency", TimedCalls, 9)], &[300_000; 900]);
    assert_eq!(timed.conclusion, Conclusion::Quiet);
}

#[test]
fn the_resolution_is_that_of_the_finest_format() {
    use FormatKind::{Averages, KernelLog, TimedRequests};
    let of = |formats: &[(&str, FormatKind, u64)], ns: &[u64]| {
        let recording = imported(formats, ns).done();
        exclude::resolution(&Facts::of(&recording))
    };
    assert_eq!(of(&[("iostat", Averages, 3), ("kernel-log", KernelLog, 2)], &[]), Resolution::Averages);
    assert_eq!(of(&[("bcc-table", TimedRequests, 3)], &[]), Resolution::Averages, "biotop times no request");
    assert_eq!(of(&[("iostat", Averages, 3), ("bcc-table", TimedRequests, 2)], &[7]), Resolution::Operations);
}

/// The CPU counters of an idle machine, lines of these formats (format, kind, lines), and writes of these durations.
fn imported(formats: &[(&str, FormatKind, u64)], writes_ns: &[u64]) -> RecordingBuilder {
    let (idle, wait) = (rising(990_000_000, 10), rising(1_000_000, 10));
    let builder = RecordingBuilder::new().counters(
        Table::Cpu,
        &Entity::named("all"),
        &[("idle_ns", &idle), ("iowait_ns", &wait)],
    );
    let builder = if writes_ns.is_empty() { builder } else { builder.bucket("", OpKind::Write, writes_ns) };
    builder.edit(|recording| {
        recording.header.source = Source::Import;
        let mut import = ImportSummary::default();
        for (format, kind, lines) in formats {
            import.understand("paste.txt", Some((format, *kind)), *lines);
        }
        recording.header.import = Some(import);
    })
}

fn idle_beside(formats: &[(&str, FormatKind, u64)], writes_ns: &[u64]) -> Explanation {
    imported(formats, writes_ns).explained()
}

#[test]
fn an_idle_vmstat_does_not_cover_unjudged_figures() {
    use FormatKind::{Judged, Unjudged};
    let quick = [300_000; 900];
    let alone = idle_beside(&[("fio-log", Judged, 6)], &quick);
    assert_eq!(alone.conclusion, Conclusion::Quiet);
    let beside = idle_beside(&[("fio-log", Judged, 20), ("slabtop", Unjudged, 8)], &quick);
    assert_eq!(beside.conclusion, Conclusion::Quiet);
    assert!(beside.findings[0].confidence < alone.findings[0].confidence, "{:?}", beside.findings[0]);
    let against: Vec<&str> = beside.findings[0].against.iter().map(|one| one.text.as_str()).collect();
    assert!(against.iter().any(|text| text.contains("8 of 28 lines (slabtop)")), "{against:?}");
    let mostly = idle_beside(&[("vmstat", FormatKind::Averages, 6), ("slabtop", Unjudged, 30)], &[]);
    assert_eq!(mostly.conclusion, Conclusion::NotEnough);
    assert!(mostly.findings[0].settle.contains("a second time"), "{}", mostly.findings[0].settle);
}

#[test]
fn memory_that_shrinks_to_the_end_of_the_log_is_not_calm() {
    let shown = |free_mb: &[i64]| {
        let free: Vec<i64> = free_mb.iter().map(|mb| mb << 20).collect();
        let cached = vec![290 << 20; free.len()];
        let builder = RecordingBuilder::new().gauges(
            Table::Meminfo,
            &Entity::default(),
            &[("MemFree_bytes", &free), ("Cached_bytes", &cached)],
        );
        let idle = rising(990_000_000, free.len());
        is_calm(builder.counters(Table::Cpu, &Entity::named("all"), &[("idle_ns", &idle)]))
    };
    assert!(!shown(&[40, 34, 22, 15, 9, 7]));
    assert!(shown(&[40, 39, 40, 38, 40, 39]));
    assert!(shown(&[40, 7, 30, 12, 25, 38]), "it comes back");
}

#[test]
fn one_second_of_swapping_is_not_lost_in_the_mean() {
    let shown = |into: &[i64]| {
        let out = vec![0; into.len()];
        RecordingBuilder::new().counters(Table::Vmstat, &Entity::default(), &[("pswpin", into), ("pswpout", &out)])
    };
    assert!(is_calm(shown(&[0, 1, 1, 2, 2, 2, 3, 3])));
    assert!(!is_calm(shown(&[0, 1, 1, 900, 900, 900, 901, 901])));
}

/// Whether these levels of /proc/meminfo, in MiB, are calm on a machine with much available memory.
fn levels(columns: &[(&str, &[i64])]) -> bool {
    let bytes: Vec<(&str, Vec<i64>)> =
        columns.iter().map(|(name, mb)| (*name, mb.iter().map(|mb| mb << 20).collect())).collect();
    let readings = bytes.first().map_or(0, |(_, values)| values.len());
    let (total, room) = (vec![16 << 30; readings], vec![9 << 30; readings]);
    let mut all: Vec<(&str, &[i64])> = vec![("MemTotal_bytes", &total), ("MemAvailable_bytes", &room)];
    all.extend(bytes.iter().map(|(name, values)| (*name, values.as_slice())));
    is_calm(RecordingBuilder::new().gauges(Table::Meminfo, &Entity::default(), &all))
}

#[test]
fn a_cache_that_vanishes_into_free_memory_is_not_calm() {
    assert!(!levels(&[("MemFree_bytes", &[370, 3400]), ("Cached_bytes", &[5500, 2700])]));
    let used = [("MemFree_bytes", &[370_i64, 380] as &[i64]), ("Cached_bytes", &[5500, 2700])];
    assert!(levels(&used), "a program took it");
    assert!(levels(&[("MemFree_bytes", &[370, 600]), ("Cached_bytes", &[5500, 5300])]));
}

#[test]
fn dirty_pages_that_pile_up_at_one_moment_are_not_calm() {
    assert!(!levels(&[("Dirty_bytes", &[2, 3, 2, 330, 4, 2])]));
    assert!(!levels(&[("Writeback_bytes", &[0, 0, 0, 200, 0, 0])]));
    assert!(levels(&[("Dirty_bytes", &[80, 90, 120, 110, 95, 100])]), "as ever");
    assert!(levels(&[("Dirty_bytes", &[1, 1, 1, 20, 1, 1])]), "20 MiB are nothing");
}

#[test]
fn a_kernel_line_about_another_matter_does_not_change_what_vmstat_says() {
    let idle = |reported: bool| {
        let builder = RecordingBuilder::new()
            .counters(Table::Cpu, &Entity::named("all"), &[("idle_ns", &rising(990_000_000, 10))])
            .counters(Table::Vmstat, &Entity::default(), &[("pswpin", &[0; 10]), ("pswpout", &[0; 10])]);
        let builder = builder.edit(|recording| {
            recording.header.source = Source::Import;
            let mut import = ImportSummary::default();
            import.understand("paste.txt", Some(("vmstat", FormatKind::Averages)), 12);
            import.understand("paste.txt", Some(("kernel-log", FormatKind::KernelLog)), 1);
            import.memory_reported = reported;
            recording.header.import = Some(import);
        });
        builder.explained()
    };
    assert_eq!(idle(false).findings[0].against, []);
    assert!(idle(true).findings[0].against.iter().any(|one| one.text.contains("Mem-Info")));
}

#[test]
fn a_cgroup_is_cleared_of_the_limits_that_its_counters_are_about() {
    let counted = |columns: &[(&str, &[i64])]| {
        let builder = RecordingBuilder::new().counters(Table::Cgroup, &Entity::named("/db"), columns);
        let explanation = builder.edit(|recording| recording.header.source = Source::Import).explained();
        evidence_text(&explanation.findings[0])
    };
    let memory = counted(&[("events_max", &[0, 0])]);
    assert!(memory.contains("/db never reached its memory limit, by its counters"), "{memory}");
    assert!(!memory.contains("CPU quota"), "the log does not count it: {memory}");
    let both = counted(&[("events_max", &[0, 0]), ("cpu_throttled", &[0, 0])]);
    assert!(both.contains("its memory limit, its CPU quota"), "{both}");
}

#[test]
fn scans_of_callers_that_the_log_lacks_clear_nothing() {
    let shown = |column: &str| {
        let builder = RecordingBuilder::new().counters(Table::Vmstat, &Entity::default(), &[(column, &rising(3, 10))]);
        evidence_text(&builder.edit(|recording| recording.header.source = Source::Import).explained().findings[0])
    };
    assert!(shown("pgscan_direct").contains("callers scanned 3 pages/s on average"));
    assert!(!shown("pgscan_kswapd").contains("callers scanned"), "{}", shown("pgscan_kswapd"));
}

#[test]
fn reads_beside_little_free_memory_suggest_eviction_and_no_more() {
    let (read, wait, idle) = (rising(40_000, 10), rising(200_000_000, 10), rising(800_000_000, 10));
    let (free, cached) = ([100_i64 << 20; 10], [8_i64 << 30; 10]);
    let builder = RecordingBuilder::new()
        .counters(Table::Vmstat, &Entity::default(), &[("pgpgin", &read)])
        .counters(Table::Cpu, &Entity::named("all"), &[("iowait_ns", &wait), ("idle_ns", &idle)])
        .gauges(Table::Meminfo, &Entity::default(), &[("MemFree_bytes", &free), ("Cached_bytes", &cached)]);
    let recording = builder.edit(|recording| recording.header.source = Source::Import).done();
    let view = exclude::view(&Facts::of(&recording));
    let texts: Vec<&str> = view.suspicious.iter().map(|shown| shown.evidence.text.as_str()).collect();
    let reads = texts.iter().find(|text| text.contains("were read while the cache went")).expect("reads");
    assert!(reads.contains("may evict") && !reads.contains("memory is full"), "{reads}");
}
