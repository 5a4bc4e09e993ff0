//! remote-spill: pages come from another node, because the local node has none free.

use std::collections::BTreeMap;

use super::{CauseEntry, CauseId};
use crate::facts::Facts;
use crate::{Evidence, Finding, Fix};
use flatwater_recording::schema::nodes;
use flatwater_recording::{Rows, Table};

/// Minimum pages per second from the wrong node, and minimum share of all allocations.
const MISS_PER_S_MIN: f64 = 200.0;
const MISS_SHARE_MIN: f64 = 0.05;
/// In distorted time rates mean nothing: the total number of pages and the share decide.
const MISS_PAGES_MIN: f64 = 2000.0;
/// Pages of the largest page-cache folio; one miss may stand for this many pages.
const FOLIO_PAGES_MAX: f64 = 512.0;
/// Minimum ratio of free memory between the node that took the pages and the full one.
const FREE_RATIO_MIN: f64 = 4.0;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "remote-spill",
    span: None,
    headline: "the local node is full and pages come from another node, which is slower to access and to allocate from",
    mechanism: "With zone_reclaim_mode 0 an allocation that finds its node below the low watermark takes a page of \
        the next node in the zonelist (mm/page_alloc.c: get_page_from_freelist). Old page cache, mostly useless, \
        keeps the node full, because kswapd stops at the high watermark. In 2.6.32 with SLAB the spill has a second \
        cost: cache_grow asks with GFP_THISNODE, which neither wakes kswapd nor reclaims; fallback_alloc then returns \
        one remote object at a time, and remote objects never fill the per-CPU array, so every later buffer head \
        takes the slow path and the node's list lock again (mm/slab.c).",
    kernels: "All NUMA kernels; the slab effect with SLAB (until 6.7).",
    in_spans: "slab-refill or page-allocation, spread over many calls.",
    in_counters: "numastat: numa_miss (and numa_foreign on the full node) rises by hundreds of pages a second or \
        more, while other nodes have plenty of free memory; pgscan_direct stays near 0.",
    against: "numa_miss does not rise. Streams of dirty pages spill by design: dirty limits are per node, so \
        numa_miss rises although the node has free pages (mm/page_alloc.c: node_dirty_ok).",
    fix: "Free the node ahead of the writer (a higher vm.min_free_kbytes or vm.watermark_scale_factor, so that kswapd \
        keeps more free), bound the page cache of the bulk work (a memory cgroup, O_DIRECT), bind the bulk work to \
        the other node. zone_reclaim_mode = 1 replaces the spill by stalls: see zone-reclaim-thrash.",
    prove: "Drop the full node's cache once (echo 1 > /proc/sys/vm/drop_caches): numa_miss stops rising and the slow \
        period ends.",
    sources: &[
        "mm/page_alloc.c: get_page_from_freelist, node_dirty_ok",
        "mm/slab.c: cache_grow, fallback_alloc (2.6.32)",
        "man 8 numastat",
    ],
    find,
};

struct Spill {
    node: u32,
    pages: f64,
    per_s: f64,
    share: f64,
    /// Set if `pages` comes from the growth of the node's page cache: misses count allocations, each of several
    /// pages.
    misses: Option<Misses>,
}

#[derive(Clone, Copy)]
struct Misses {
    count: f64,
    per_s: f64,
}

/// Whether this many pages matter: by their rate, or in distorted time, where every rate is too low, by their
/// number.
fn is_many(facts: &Facts<'_>, pages: f64, per_s: f64) -> bool {
    if facts.recording.header.time_distorted { pages >= MISS_PAGES_MIN } else { per_s >= MISS_PER_S_MIN }
}

/// The node on which the most pages landed that were meant for another node.
fn spill(facts: &Facts<'_>) -> Option<Spill> {
    let nodes = facts.recording.table(Table::Nodes)?;
    let each = nodes.by_entity().filter_map(|(entity, rows)| {
        let span_ns = rows.values(nodes::NUMA_MISS).last()?.0.checked_sub(rows.values(nodes::NUMA_MISS).next()?.0)?;
        let (miss, hit) = (rows.rise(nodes::NUMA_MISS)? as f64, rows.rise(nodes::NUMA_HIT).unwrap_or(0) as f64);
        let seconds = span_ns as f64 / 1e9;
        // Kernels with large folios count one miss per folio (mm/page_alloc.c: zone_statistics).
        let grown = grown_bytes(&rows).unwrap_or(0.0) / facts.recording.header.machine.page_size_bytes() as f64;
        let pages = grown.min(miss * FOLIO_PAGES_MAX).max(miss);
        (seconds > 0.0 && miss > 0.0).then(|| Spill {
            node: entity.node.unwrap_or(0),
            pages,
            per_s: pages / seconds,
            share: pages / (pages + hit),
            misses: (pages > miss).then_some(Misses { count: miss, per_s: miss / seconds }),
        })
    });
    each.max_by(|a, b| a.per_s.total_cmp(&b.per_s))
}

/// The growth of a node's page cache, bytes.
fn grown_bytes(rows: &Rows<'_>) -> Option<f64> {
    let first = rows.values(nodes::FILE_PAGES_BYTES).next()?.1;
    Some(rows.last(nodes::FILE_PAGES_BYTES)?.checked_sub(first)? as f64)
}

/// The nodes with the lowest and the highest minimum of free memory, in bytes.
fn free_extremes(facts: &Facts<'_>) -> Option<((u32, f64), (u32, f64))> {
    let nodes = facts.recording.table(Table::Nodes)?;
    let free: Vec<(u32, f64)> = nodes
        .by_entity()
        .filter_map(|(entity, rows)| Some((entity.node?, rows.min(nodes::MEM_FREE_BYTES)?.1 as f64)))
        .collect();
    let least = free.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let most = free.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))?;
    (free.len() > 1).then_some((least, most))
}

/// Whether at some time another node was full while the one that took its pages had plenty free. The minima over
/// the whole recording cannot tell, because a stream that continues fills both.
fn was_full_first(facts: &Facts<'_>, taker: u32) -> bool {
    let free = |node: Option<u32>| -> Option<BTreeMap<u64, i64>> {
        let table = facts.recording.table(Table::Nodes)?;
        let (_, rows) = table.by_entity().find(|(entity, _)| entity.node == node)?;
        Some(rows.values(nodes::MEM_FREE_BYTES).collect())
    };
    let Some((table, own)) = facts.recording.table(Table::Nodes).zip(free(Some(taker))) else { return false };
    let others: Vec<Option<u32>> =
        table.entities().iter().map(|entity| entity.node).filter(|node| *node != Some(taker)).collect();
    others.into_iter().filter_map(free).any(|other| {
        let both = own.iter().filter_map(|(at_ns, own)| Some((*own, *other.get(at_ns)?)));
        both.into_iter().any(|(own, other)| own as f64 >= FREE_RATIO_MIN * other as f64)
    })
}

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let spill = spill(facts).filter(|_| facts.may_infer())?;
    if !is_many(facts, spill.pages, spill.per_s) || spill.share < MISS_SHARE_MIN {
        return None;
    }
    // Growth of the page cache alone is not a spill: another node must have been full.
    let full_elsewhere = free_extremes(facts)
        .is_some_and(|((full, least), (_, most))| full != spill.node && most >= FREE_RATIO_MIN * least)
        || was_full_first(facts, spill.node);
    if spill.misses.is_some_and(|misses| !is_many(facts, misses.count, misses.per_s)) && !full_elsewhere {
        return None;
    }
    let mut finding = Finding::inferred(CauseId::RemoteSpill, 0.6, ENTRY.headline);
    let (node, pages_per_s) = (spill.node, spill.per_s);
    let text = match spill.misses {
        Some(Misses { per_s, .. }) => format!(
            "{per_s:.0} allocations/s meant for another node were served by node {node}, whose page cache grew by \
             {pages_per_s:.0} pages/s: large folios are counted once"
        ),
        None => format!(
            "{pages_per_s:.0} pages/s meant for another node were taken on node {node} ({:.0} % of allocations there)",
            spill.share * 100.0
        ),
    };
    finding.evidence.push(Evidence::new(text, spill.per_s, "pages/s"));
    match free_extremes(facts) {
        Some(((full, least), (empty, most))) if most >= FREE_RATIO_MIN * least => {
            finding.weight = 0.75;
            let text = format!(
                "node {full} had as little as {:.0} MiB free, node {empty} never less than {:.0} MiB",
                least / 1_048_576.0,
                most / 1_048_576.0
            );
            finding.evidence.push(Evidence::new(text, least, "bytes"));
        }
        known => {
            let free = if known.is_some() {
                "no node always had much more free memory than the others"
            } else {
                "the log does not show the free memory of the nodes"
            };
            finding.against.push(Evidence::statement(format!("{free}: per-node dirty limits also cause misses")));
        }
    }
    let fixes = [
        Fix::knob("let kswapd keep more of each node free", knob!("vm.watermark_scale_factor"), "200"),
        Fix::advice("bind the bulk work to another node, or bound its page cache with a memory cgroup"),
    ];
    finding.fixes.extend(fixes);
    Some(finding.settle(
        "`flatwater record -p PID -t 60s` as root with the writer pinned to the full node: \
     slab-refill and page-allocation would show it",
    ))
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::{RecordingBuilder, evidence_text, rising};
    use flatwater_recording::{Entity, Table};

    fn nodes(miss_per_s: i64) -> RecordingBuilder {
        let (hit, miss) = (rising(3_000, 10), rising(miss_per_s, 10));
        let remote: [(&str, &[i64]); 2] = [("numa_hit", &hit), ("numa_miss", &miss)];
        let local: [(&str, &[i64]); 2] = [("numa_hit", &hit), ("numa_miss", &[0; 10])];
        let builder = RecordingBuilder::new().counters(Table::Nodes, &Entity::on_node(0, ""), &remote);
        builder.counters(Table::Nodes, &Entity::on_node(1, ""), &local)
    }

    #[test]
    fn pages_from_the_wrong_node_are_named_with_the_node() {
        let finding = nodes(2_000).found(&ENTRY).expect("spill");
        assert!(
            evidence_text(&finding).contains("2000 pages/s meant for another node were taken on node 0 (40 %"),
            "{}",
            evidence_text(&finding)
        );
        assert!(finding.against[0].text.starts_with("the log does not show the free memory"), "{:?}", finding.against);
        let even: [(&str, &[i64]); 1] = [("MemFree_bytes", &[80 << 20; 10])];
        let builder = nodes(2_000).gauges(Table::Nodes, &Entity::on_node(0, ""), &even);
        let finding = builder.gauges(Table::Nodes, &Entity::on_node(1, ""), &even).found(&ENTRY).expect("spill");
        assert!(finding.against[0].text.starts_with("no node always had much more"), "{:?}", finding.against);
    }

    /// Fault 3 of the kernels' matrix: with large folios numa_miss rose by 964 in 20 s while node 0 gained 23 136
    /// pages, and the verdict was `quiet`.
    #[test]
    fn misses_of_large_folios_count_by_the_pages_that_the_node_gained() {
        let spilt = |free_of_1: i64| {
            let (hit, miss) = (rising(300, 10), rising(48, 10));
            let files: Vec<i64> = (0..10).map(|second| (100 << 20) + second * 1_157 * 4096).collect();
            let remote: [(&str, &[i64]); 2] = [("numa_hit", &hit), ("numa_miss", &miss)];
            let local: [(&str, &[i64]); 2] = [("numa_hit", &hit), ("numa_miss", &[0; 10])];
            let pages: [(&str, &[i64]); 2] = [("FilePages_bytes", &files), ("MemFree_bytes", &[80 << 20; 10])];
            let full: [(&str, &[i64]); 1] = [("MemFree_bytes", &[free_of_1; 10])];
            let [first, second] = [Entity::on_node(0, ""), Entity::on_node(1, "")];
            let builder =
                RecordingBuilder::new().counters(Table::Nodes, &first, &remote).counters(Table::Nodes, &second, &local);
            builder.gauges(Table::Nodes, &first, &pages).gauges(Table::Nodes, &second, &full).found(&ENTRY)
        };
        let finding = spilt(1 << 20).expect("spill");
        assert!(
            evidence_text(&finding).contains(
                "48 allocations/s meant for another node were served by node 0, whose page cache grew by 1157"
            ),
            "{}",
            evidence_text(&finding)
        );
        assert!(spilt(80 << 20).is_none(), "no node was full: the page cache of node 0 grew for its own readers");
    }

    /// A guest on a busy host needed 21 s for 6927 misses, 43 % of all pages; slower guests fell below 200 a
    /// second.
    #[test]
    fn in_distorted_time_the_share_decides_and_not_the_rate() {
        let slow =
            |builder: RecordingBuilder| builder.edit(|recording| recording.header.time_distorted = true).found(&ENTRY);
        let of = |miss_per_s: i64, hit_per_s: i64| {
            let (hit, miss) = (rising(hit_per_s, 30), rising(miss_per_s, 30));
            let remote: [(&str, &[i64]); 2] = [("numa_hit", &hit), ("numa_miss", &miss)];
            RecordingBuilder::new().counters(Table::Nodes, &Entity::on_node(0, ""), &remote)
        };
        assert!(of(100, 130).found(&ENTRY).is_none(), "100 pages a second of true time");
        let finding = slow(of(100, 130)).expect("43 % of all pages");
        assert!(evidence_text(&finding).contains("43 % of allocations there"), "{}", evidence_text(&finding));
        assert!(slow(of(100, 13_000)).is_none(), "under 1 % of all pages");
        assert!(slow(of(10, 13)).is_none(), "290 pages in all");
    }

    /// Kernel 7.3 in a guest: node 1 was full after 13 s, and node 0 as well at the end; 1932 misses of large
    /// folios.
    #[test]
    fn the_node_that_was_full_first_counts_although_both_were_at_the_end() {
        let with = |of_1: [i64; 10]| {
            let files: Vec<i64> = (0..10).map(|second| second * 2_000 * 4096).collect();
            let of_0: Vec<i64> = (0..10).map(|second| (92 - 10 * second) << 20).collect();
            let (hit, miss, none) = (rising(300, 10), rising(190, 10), [0; 10]);
            let [first, second] = [Entity::on_node(0, ""), Entity::on_node(1, "")];
            let remote: [(&str, &[i64]); 2] = [("numa_hit", &hit), ("numa_miss", &miss)];
            let local: [(&str, &[i64]); 2] = [("numa_hit", &hit), ("numa_miss", &none)];
            let filled: [(&str, &[i64]); 2] = [("FilePages_bytes", &files), ("MemFree_bytes", &of_0)];
            let full: [(&str, &[i64]); 1] = [("MemFree_bytes", &of_1)];
            let builder =
                RecordingBuilder::new().counters(Table::Nodes, &first, &remote).counters(Table::Nodes, &second, &local);
            builder.gauges(Table::Nodes, &first, &filled).gauges(Table::Nodes, &second, &full).found(&ENTRY)
        };
        let mut filling = [1 << 20; 10];
        filling[0] = 30 << 20;
        assert!(with(filling).is_some());
        assert!(with([90 << 20; 10]).is_none(), "node 1 was never full");
    }

    #[test]
    fn a_trickle_or_one_node_is_silent() {
        assert!(nodes(20).found(&ENTRY).is_none());
        assert!(RecordingBuilder::new().found(&ENTRY).is_none());
    }
}
