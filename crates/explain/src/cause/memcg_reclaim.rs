//! memcg-reclaim: the caller frees pages of the memory cgroup that it belongs to, which is at the limit.

use super::{CauseEntry, CauseId};
use crate::facts::Facts;
use crate::{Evidence, Finding, Fix, finding};
use flatwater_recording::schema::cgroup;
use flatwater_recording::units::Bytes;
use flatwater_recording::{Cause, Table};

pub const ENTRY: CauseEntry = CauseEntry {
    name: "memcg-reclaim",
    span: Some(Cause::MemcgReclaim),
    headline: "the caller reclaims its own memory cgroup inside the call: the cgroup is at its limit",
    mechanism: "Each page-cache page is charged to the caller's memory cgroup (mm/memcontrol.c: try_charge, \
        try_charge_memcg). At the limit the charge runs try_to_free_mem_cgroup_pages (mm/vmscan.c) in the caller \
        until it fits. A cgroup's limit has no kswapd. Page cache alone can fill it, so sooner or later \
        every writer in a full cgroup reclaims synchronously. Dirty pages make it worse: they must be written before \
        they can be evicted, and cgroup v1 has no separate dirty limit, so reclaim waits for the disk.",
    kernels: "All with memory cgroups; the tracepoints since 2.6.36.",
    in_spans: "Measured: between mm_vmscan_memcg_reclaim_begin and _end (soft limit: \
        mm_vmscan_memcg_softlimit_reclaim_begin/_end).",
    in_counters: "The cgroup's usage sits within a few pages of the limit; v1 memory.failcnt or v2 \
        memory.events:max rises; memory.stat shows it is file cache; on v2 pgscan_direct rises inside memory.stat \
        while the machine has plenty of free memory.",
    against: "Usage well below the limit, or failcnt and events:max do not rise.",
    fix: "Raise the limit (memory.max, v1 memory.limit_in_bytes). Move the neighbour that fills the cache into a \
        separate cgroup. Reclaim ahead of the writer (v2: memory.reclaim since 5.19, or a lower memory.high on the \
        neighbour). Take allocation out of the call: `--set precursor=window` or `ring`. Prefetching without locking \
        makes it worse: clean pages are evicted before use.",
    prove: "`flatwater verify full-cgroup --fix limit`: failcnt stops rising and the share falls to zero.",
    sources: &[
        "mm/memcontrol.c: try_charge_memcg",
        "mm/vmscan.c: try_to_free_mem_cgroup_pages",
        "Documentation/admin-guide/cgroup-v2.rst: memory.max, memory.events",
    ],
    find,
};

/// The first fix.
pub fn raise_limit() -> Fix {
    Fix::advice("raise the cgroup's limit, or give the neighbour that fills the page cache a separate cgroup")
}

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let fixes = [
        raise_limit(),
        Fix::advice("append through the precursor's locked window or its ring (`--set precursor=window`)"),
    ];
    let spans = finding::from_spans(facts, Cause::MemcgReclaim, ENTRY.headline, fixes.clone());
    spans.or_else(|| from_pressure(facts).map(|finding| fixes.iter().cloned().fold(finding, Finding::fix))).or_else(
        || {
            let matched = facts.limit_hits_most(cgroup::EVENTS_MAX).filter(|_| facts.may_infer_place());
            let Some(matched) = matched else { return from_peak(facts) };
            let headline = "a memory cgroup reached its limit: tasks that charged a page then reclaimed";
            let mut finding = matched.finding(CauseId::MemcgReclaim, headline, "reached its limit");
            finding.fixes.extend(fixes);
            Some(finding)
        },
    )
}

/// From the peak usage, if it reached the limit: tasks that charged a page then had to reclaim, or were killed.
fn from_peak(facts: &Facts<'_>) -> Option<Finding> {
    let table = facts.recording.table(Table::Cgroup).filter(|_| facts.may_infer_place())?;
    let (peak, limit, name) = table.by_entity().find_map(|(entity, rows)| {
        let limit = rows.last(cgroup::LIMIT_BYTES).filter(|limit| *limit > 0)?;
        let peak = rows.last(cgroup::PEAK_BYTES).filter(|peak| *peak >= limit)?;
        Some((peak, limit, entity.name.clone()))
    })?;
    let headline = "a memory cgroup has been at its limit: tasks that charged a page then reclaimed, or were killed";
    let bytes = |bytes: i64| Bytes(bytes.max(0) as u64);
    let text = format!("the peak usage of {name}, {}, reached its limit of {}", bytes(peak), bytes(limit));
    let finding =
        Finding::inferred(CauseId::MemcgReclaim, 0.5, headline).with([Evidence::new(text, peak as f64, "bytes")]);
    let against = "the peak counts since the cgroup was created; the log does not say when it was reached";
    Some(
        finding
            .but([Evidence::statement(against)])
            .fix(Fix::advice("raise the cgroup's limit, or bound what grows in it"))
            .settle("memory.events (v1: memory.failcnt and memory.oom_control) of the cgroup twice, a minute apart"),
    )
}

/// Minimum share of time in which some thread of the cgroup waited for memory, and minimum usage as a share of the
/// limit.
const PRESSURE_MIN: f64 = 0.1;
const FULL_SHARE_MIN: f64 = 0.9;

/// From memory.pressure of a cgroup: its threads wait for memory, and its usage is near the limit.
fn from_pressure(facts: &Facts<'_>) -> Option<Finding> {
    let table = facts.recording.table(Table::Cgroup).filter(|_| facts.may_infer_place())?;
    let each = table.by_entity().filter_map(|(entity, rows)| {
        let share = rows.last(cgroup::SOME_AVG10_CENTIPERCENT)? as f64 / 10_000.0;
        let bound = rows.last(cgroup::LIMIT_BYTES).filter(|limit| *limit > 0)?;
        let usage = rows.last(cgroup::USAGE_BYTES)?;
        let full = usage as f64 >= FULL_SHARE_MIN * bound as f64;
        (share >= PRESSURE_MIN && full).then(|| (share, usage, bound, entity.name.clone()))
    });
    let (share, usage, bound, name) = each.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let name = if name.is_empty() { "the cgroup" } else { &name };
    let headline = "threads of a memory cgroup near its limit wait for memory: most likely they reclaim it themselves";
    let waited = format!("some thread of {name} waited for memory {:.0} % of the last 10 s (PSI)", share * 100.0);
    let level = format!("it uses {} of {}", Bytes(usage.max(0) as u64), Bytes(bound.max(0) as u64));
    let finding = Finding::inferred(CauseId::MemcgReclaim, 0.65, headline)
        .with([Evidence::new(waited, share * 100.0, "%"), Evidence::new(level, usage as f64, "bytes")]);
    Some(finding.settle("memory.events twice, a minute apart: `high` or `max` must rise while it is slow"))
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::{RecordingBuilder, evidence_text};
    use flatwater_recording::{Entity, Table};

    fn pressed(centipercent: i64, used_mib: i64) -> RecordingBuilder {
        let columns: [(&str, &[i64]); 3] = [
            ("some_avg10_centipercent", &[centipercent]),
            ("usage_bytes", &[used_mib << 20]),
            ("limit_bytes", &[512 << 20]),
        ];
        RecordingBuilder::new().gauges(Table::Cgroup, &Entity::named("/db"), &columns)
    }

    #[test]
    fn pressure_in_a_full_cgroup_is_due_to_its_limit() {
        let finding = pressed(4_200, 505).found(&ENTRY).expect("42 % of the time");
        assert!(evidence_text(&finding).contains("/db waited for memory 42 %"), "{}", evidence_text(&finding));
        let near = pressed(4_200, 470).found(&ENTRY).expect("92 % of the limit");
        assert!(!near.headline.contains("at its limit"), "{}", near.headline);
        assert!(pressed(200, 505).found(&ENTRY).is_none(), "2 % is nothing");
        assert!(pressed(4_200, 100).found(&ENTRY).is_none(), "room is left: it is the machine's memory");
    }
}
