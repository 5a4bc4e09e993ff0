//! cgroup-limit-cache: a memory cgroup is at its limit, and page cache fills it.

use super::CauseEntry;
use crate::aggressor::Evicted;
use crate::facts::Facts;
use crate::{Evidence, Finding, Fix};
use flatwater_recording::schema::cgroup;
use flatwater_recording::series::Rows;
use flatwater_recording::units::{Bytes, Nanos};
use flatwater_recording::{Cause, Column, Table};

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
    file: f64,
    dirty: f64,
    hits: i64,
}

/// The peak of a statistic: by its name in version 2, and in version 1 for the subtree and for the cgroup alone.
fn stat(rows: &Rows<'_>, columns: [Column; 3]) -> f64 {
    columns.into_iter().find_map(|column| rows.max(column)).map_or(0.0, |(_, bytes)| bytes as f64)
}

fn full(path: &str, rows: &Rows<'_>) -> Option<Full> {
    let limit = rows.last(cgroup::LIMIT_BYTES).filter(|limit| *limit > 0)? as f64;
    let usage = rows.max(cgroup::USAGE_BYTES)?.1 as f64;
    (usage >= FULL_SHARE_MIN * limit).then(|| Full {
        path: path.to_owned(),
        limit,
        file: stat(rows, [cgroup::FILE, cgroup::TOTAL_CACHE, cgroup::CACHE]),
        // The two peaks may be at different times, so their sum could exceed any real level.
        dirty: stat(rows, [cgroup::FILE_DIRTY, cgroup::TOTAL_DIRTY, cgroup::DIRTY])
            .max(stat(rows, [cgroup::FILE_WRITEBACK, cgroup::TOTAL_WRITEBACK, cgroup::WRITEBACK])),
        hits: rows.rise(cgroup::EVENTS_MAX).or_else(|| rows.last(cgroup::EVENTS_MAX)).unwrap_or(0),
    })
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
    let full = table.by_entity().filter_map(|(entity, rows)| full(&entity.name, &rows)).max_by_key(|full| full.hits)?;
    // Refaults show that cache was evicted, even if page cache is a small part of the limit: a JVM's heap may fill
    // the rest.
    let little_cache = full.file < CACHE_SHARE_MIN * full.limit && again_ns.is_none();
    if little_cache || (full.hits == 0 && !blamed) {
        return None;
    }
    let text = format!(
        "{} is at its limit of {}, {:.0} % of which is page cache",
        full.path,
        Bytes(full.limit as u64),
        100.0 * full.file / full.limit
    );
    let mut finding = Finding::inferred(ENTRY.name, if blamed { 0.95 } else { 0.7 }, ENTRY.headline);
    finding.evidence.push(Evidence::new(text, full.limit, "bytes"));
    finding.evidence.push(Evidence::new(format!("the limit was hit {} times", full.hits), full.hits as f64, ""));
    if full.dirty >= 0.1 * full.limit {
        let text =
            format!("up to {} were dirty or under writeback: reclaim waits for the device", Bytes(full.dirty as u64));
        finding.evidence.push(Evidence::new(text, full.dirty, "bytes"));
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
    use crate::testing::{Made, rising, said};
    use flatwater_recording::{Cause, Entity, OpKind, Table};

    fn cgroup(usage_mb: i64, file_mb: i64) -> Made {
        let levels: [(&str, &[i64]); 3] =
            [("limit_bytes", &[512 << 20; 4]), ("usage_bytes", &[usage_mb << 20; 4]), ("file", &[file_mb << 20; 4])];
        let mut recording = Made::new().gauges(Table::Cgroup, &Entity::named("/jobs/feed"), &levels).done();
        let hits = rising(40, 4).into_iter().map(Some);
        let kind = flatwater_recording::ColumnKind::Counter;
        recording.series[0].columns.push(flatwater_recording::SeriesColumn::new("events_max", kind, hits));
        Made::new().edit(|made| made.series = recording.series).slow(OpKind::Write, &[(Cause::MemcgReclaim, 40.0)])
    }

    #[test]
    fn a_cgroup_full_of_cache_is_named_with_its_limit() {
        let finding = cgroup(511, 496).found(&ENTRY).expect("full");
        assert!(
            said(&finding).contains("/jobs/feed is at its limit of 512 MiB, 97 % of which is page cache"),
            "{}",
            said(&finding)
        );
        assert_eq!(finding.fixes[0].set.get("cgroup.memory_limit"), Some("805306368"));
    }

    #[test]
    fn room_left_or_anonymous_memory_is_not_this() {
        assert!(cgroup(300, 290).found(&ENTRY).is_none());
        assert!(cgroup(511, 60).found(&ENTRY).is_none());
    }
}
