//! cgroup-limit-cache: a memory cgroup is at its limit, and page cache fills it.

use super::{CauseEntry, CauseId};
use crate::aggressor::Evicted;
use crate::facts::Facts;
use crate::{Evidence, Finding, Fix};
use flatwater_recording::schema::{Column, cgroup};
use flatwater_recording::units::{Bytes, Nanos};
use flatwater_recording::{Cause, Rows, Table};

/// A cgroup is at its limit from this usage on: charges come in batches of 32 or 64 pages per CPU.
const FULL_SHARE_MIN: f64 = 0.97;
const CACHE_SHARE_MIN: f64 = 0.5;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "cgroup-limit-cache",
    span: None,
    headline: "a memory cgroup is at its limit and full of page cache: each new page must evict an old one",
    mechanism: "Page cache is charged to the cgroup that read or wrote it first. Nothing frees it before the limit is \
        reached, because a limit has no kswapd. A cgroup that streams files is therefore soon full and stays full, \
        and then every task that charges a page reclaims. With clean cache that costs microseconds each time; dirty \
        or mapped pages, locks and shrinkers make it milliseconds. Containers have the same problem: their limit is \
        meant for anonymous memory, and their logs fill it.",
    kernels: "All with memory cgroups.",
    in_spans: "memcg-reclaim (and reclaim-throttle where the cache is dirty).",
    in_counters: "usage at 97 % of the limit or more; memory.stat: file (v1 cache) is most of the usage; memory.events \
        max (v1 failcnt) rises.",
    against: "anon (v1 rss) is most of the usage: then the cgroup needs memory, not another method of writing.",
    fix: "Raise the limit, give the streamer its own cgroup, drop what it wrote (fadvise DONTNEED, O_DIRECT), or \
        reclaim ahead: memory.high below memory.max for the streamer, memory.reclaim (5.19) from a timer.",
    prove: "Raise the limit by a quarter for a minute: events max stops rising and the slow calls end.",
    sources: &["mm/memcontrol.c: try_charge_memcg", "Documentation/admin-guide/cgroup-v2.rst: memory.events"],
    find,
};

struct Full {
    path: String,
    limit: f64,
    usage: f64,
    /// Bytes of page cache, and of dirty pages; `None` if the log does not show them.
    file: Option<f64>,
    dirty: Option<f64>,
    hits: Option<Hits>,
}

/// How often the limit was reached.
#[derive(Clone, Copy)]
struct Hits {
    times: i64,
    /// Whether this is the rise while it was recorded; otherwise the count since the cgroup was created.
    while_recorded: bool,
}

/// The peak of a statistic: by its name in version 2, and in version 1 for the subtree and for the cgroup alone.
fn stat(rows: &Rows<'_>, columns: [Column; 3]) -> Option<f64> {
    columns.into_iter().find_map(|column| rows.max(column)).map(|(_, bytes)| bytes as f64)
}

fn full(path: &str, rows: &Rows<'_>) -> Option<Full> {
    let limit = rows.last(cgroup::LIMIT_BYTES).filter(|limit| *limit > 0)? as f64;
    let usage = rows.max(cgroup::USAGE_BYTES)?.1 as f64;
    (usage >= FULL_SHARE_MIN * limit).then(|| Full {
        path: path.to_owned(),
        limit,
        usage,
        file: stat(rows, [cgroup::FILE, cgroup::TOTAL_CACHE, cgroup::CACHE]),
        // The two peaks may be at different times, so their sum could exceed any real level.
        dirty: [
            stat(rows, [cgroup::FILE_DIRTY, cgroup::TOTAL_DIRTY, cgroup::DIRTY]),
            stat(rows, [cgroup::FILE_WRITEBACK, cgroup::TOTAL_WRITEBACK, cgroup::WRITEBACK]),
        ]
        .into_iter()
        .flatten()
        .reduce(f64::max),
        hits: hits(rows),
    })
}

fn hits(rows: &Rows<'_>) -> Option<Hits> {
    match rows.rise(cgroup::EVENTS_MAX) {
        Some(times) => Some(Hits { times, while_recorded: true }),
        None => rows.last(cgroup::EVENTS_MAX).map(|times| Hits { times, while_recorded: false }),
    }
}

fn find(facts: &Facts<'_>) -> Option<Finding> {
    // Time of reading pages again that the cgroup had evicted.
    let again_ns = Some(facts.charges.total_again_ns()).filter(|&ns| facts.enough(ns, ns));
    let blamed = again_ns.is_some()
        || [Cause::MemcgReclaim, Cause::ReclaimThrottle].into_iter().any(|cause| facts.significant(cause).is_some());
    if !facts.may_infer() || (facts.spans_tell_all() && !blamed) {
        return None;
    }
    let table = facts.recording.table(Table::Cgroup)?;
    let times = |full: &Full| full.hits.map(|hits| hits.times);
    let full = table.by_entity().filter_map(|(entity, rows)| full(&entity.name, &rows)).max_by_key(times)?;
    // Refaults show that cache was evicted, even if page cache is a small part of the limit: a JVM's heap may fill
    // the rest.
    let much_cache = full.file.is_some_and(|file| file >= CACHE_SHARE_MIN * full.limit) || again_ns.is_some();
    let was_hit = full.hits.is_some_and(|hits| hits.times > 0);
    if !much_cache || !(was_hit || blamed) {
        return None;
    }
    let cache =
        full.file.map(|file| format!("; at most {:.0} % of the limit were page cache", 100.0 * file / full.limit));
    let text = format!(
        "{} used {} with a limit of {}{}",
        full.path,
        Bytes(full.usage as u64),
        Bytes(full.limit as u64),
        cache.unwrap_or_default()
    );
    let mut finding = Finding::inferred(CauseId::CgroupLimitCache, if blamed { 0.95 } else { 0.7 }, ENTRY.headline);
    finding.evidence.push(Evidence::new(text, full.limit, "bytes"));
    if let Some(hits) = full.hits {
        let when = if hits.while_recorded { "while it was recorded" } else { "since it was created" };
        let text = format!("the limit was reached {} times {when}", hits.times);
        finding.evidence.push(Evidence::new(text, hits.times as f64, ""));
    }
    if let Some(dirty) = full.dirty.filter(|dirty| *dirty >= 0.1 * full.limit) {
        let text =
            format!("up to {} were dirty or under writeback: reclaim may wait for the device", Bytes(dirty as u64));
        finding.evidence.push(Evidence::new(text, dirty, "bytes"));
    }
    if let Some(ns) = again_ns {
        finding.lost_ns = again_ns;
        let pages = Evicted::of(facts.recording).pages;
        let text = format!(
            "{} of the calls' time was spent reading pages that the cgroup had evicted; {pages} evicted pages came \
             back (workingset_refault_file)",
            Nanos(ns)
        );
        finding.evidence.push(Evidence::new(text, ns as f64, "ns"));
    }
    let raised = Bytes((full.limit * 1.5) as u64);
    let finding = finding.fix(Fix::knob(
        format!("raise the limit, for instance to {raised}"),
        knob!("cgroup.memory_limit"),
        &raised.0.to_string(),
    ));
    let finding = finding
        .fix(Fix::advice("a separate cgroup for the program that streams files, or fadvise DONTNEED after its writes"));
    Some(if blamed { finding.settle("") } else { finding })
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::{RecordingBuilder, evidence_text, rising};
    use flatwater_recording::{Cause, Entity, OpKind, Table};

    fn cgroup(usage_mb: i64, file_mb: i64) -> RecordingBuilder {
        let levels: [(&str, &[i64]); 3] =
            [("limit_bytes", &[512 << 20; 4]), ("usage_bytes", &[usage_mb << 20; 4]), ("file", &[file_mb << 20; 4])];
        let mut recording = RecordingBuilder::new().gauges(Table::Cgroup, &Entity::named("/jobs/feed"), &levels).done();
        let hits = rising(40, 4).into_iter().map(Some);
        let kind = flatwater_recording::ColumnKind::Counter;
        recording.series[0].columns.push(flatwater_recording::SeriesColumn::new("events_max", kind, hits));
        RecordingBuilder::new()
            .edit(|edited| edited.series = recording.series)
            .slow(OpKind::Write, &[(Cause::MemcgReclaim, 40.0)])
    }

    #[test]
    fn a_cgroup_full_of_cache_is_named_with_its_limit() {
        let finding = cgroup(511, 496).found(&ENTRY).expect("full");
        assert!(
            evidence_text(&finding)
                .contains("/jobs/feed used 511 MiB with a limit of 512 MiB; at most 97 % of the limit were"),
            "{}",
            evidence_text(&finding)
        );
        assert_eq!(finding.fixes[0].set().get("cgroup.memory_limit"), Some("805306368"));
    }

    #[test]
    fn counters_that_the_log_lacks_are_not_zero() {
        let levels: [(&str, &[i64]); 3] =
            [("limit_bytes", &[512 << 20; 4]), ("usage_bytes", &[511 << 20; 4]), ("file", &[496 << 20; 4])];
        let build = |columns: &[(&str, &[i64])]| {
            let builder = RecordingBuilder::new().gauges(Table::Cgroup, &Entity::named("/jobs/feed"), columns);
            builder.slow(OpKind::Write, &[(Cause::MemcgReclaim, 40.0)]).found(&ENTRY)
        };
        let finding = build(&levels).expect("full of cache");
        assert!(!evidence_text(&finding).contains(" times"), "events are not in the log: {}", evidence_text(&finding));
        assert!(build(&levels[..2]).is_none(), "what fills it is not in the log");
    }

    #[test]
    fn room_left_or_anonymous_memory_is_not_this() {
        assert!(cgroup(300, 290).found(&ENTRY).is_none());
        assert!(cgroup(511, 60).found(&ENTRY).is_none());
    }
}
