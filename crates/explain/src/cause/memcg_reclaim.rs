//! memcg-reclaim: the caller frees pages of its own memory cgroup, which is at its limit.

use super::CauseEntry;
use crate::facts::Facts;
use crate::{Finding, Fix, finding};
use flatwater_recording::Cause;
use flatwater_recording::schema::cgroup;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "memcg-reclaim",
    span: Some(Cause::MemcgReclaim),
    headline: "the caller reclaims its own memory cgroup inside the call: the cgroup is at its limit",
    mechanism: "Each page-cache page is charged to the caller's memory cgroup (mm/memcontrol.c: try_charge, \
        try_charge_memcg). At the limit the charge runs try_to_free_mem_cgroup_pages (mm/vmscan.c) in the caller \
        until it fits. There is no kswapd for a cgroup's limit: page cache alone is enough to fill it, so every \
        writer in a full cgroup reclaims synchronously, sooner or later. Dirty pages make it worse: they must be \
        written before they can go, and cgroup v1 has no dirty limit of its own, so reclaim waits for the disk.",
    kernels: "All with memory cgroups; the tracepoints since 2.6.36.",
    in_spans: "Exact: between mm_vmscan_memcg_reclaim_begin and _end (soft limit: \
        mm_vmscan_memcg_softlimit_reclaim_begin/_end).",
    in_counters: "The cgroup's usage sits within a few pages of its limit; v1 memory.failcnt or v2 \
        memory.events:max rises; memory.stat shows it is file cache; on v2 pgscan_direct rises inside memory.stat \
        while the machine has plenty of free memory.",
    against: "Usage well below the limit, or failcnt and events:max standing still.",
    fix: "Raise the limit (memory.max, v1 memory.limit_in_bytes). Move the neighbour that fills the cache into a \
        cgroup of its own. Reclaim ahead of the writer (v2: memory.reclaim since 5.19, or a lower memory.high on \
        the neighbour). Take allocation out of the call: `--set precursor=window` or `ring`. Prefetching without \
        locking makes it worse: clean pages are evicted before use.",
    prove: "`flatwater verify full-cgroup --fix limit`: failcnt stops rising and the share goes to zero.",
    sources: &[
        "mm/memcontrol.c: try_charge_memcg",
        "mm/vmscan.c: try_to_free_mem_cgroup_pages",
        "Documentation/admin-guide/cgroup-v2.rst: memory.max, memory.events",
    ],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let fixes = [
        Fix::advice("raise the cgroup's limit, or give the neighbour that fills the page cache a cgroup of its own"),
        Fix::advice("append through the precursor's locked window or its ring (`--set precursor=window`)"),
    ];
    finding::from_spans(facts, Cause::MemcgReclaim, ENTRY.headline, fixes.clone()).or_else(|| {
        let met = facts.met_most(cgroup::EVENTS_MAX).filter(|_| facts.may_infer_place())?;
        let headline = "a memory cgroup met its limit: whoever charged a page then reclaimed";
        let mut finding = met.finding(ENTRY.name, headline, "reached its limit");
        finding.fixes.extend(fixes);
        Some(finding)
    })
}
