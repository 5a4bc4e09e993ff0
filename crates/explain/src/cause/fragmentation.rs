//! fragmentation: memory is free, but only as single pages.

use super::{CauseEntry, CauseId};
use crate::facts::Facts;
use crate::{Evidence, Finding, Fix};
use flatwater_recording::schema::{vmstat, zones};
use flatwater_recording::{Cause, Event, EventKind, Table};

/// Fragmented below this share of a zone's free pages in blocks of eight pages and more.
const LARGE_SHARE_MIN: f64 = 0.02;
/// With less free memory than this (32 MiB), all memory is short, not only blocks.
const FREE_PAGES_MIN: i64 = 8_192;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "fragmentation",
    span: None,
    headline: "free memory is fragmented into single pages: requests for contiguous pages must compact, or fail",
    mechanism: "The buddy allocator joins free neighbours into blocks of 2^order pages. Unmovable pages (slab, page \
        tables, kernel buffers) spread over all blocks prevent that, increasingly so the longer the machine runs with \
        little free memory. Kernel stacks, jumbo frames, slabs (order 1 to 3), huge pages (order 9) need blocks: the \
        allocator compacts or reclaims for them, and atomic requests fail (page allocation failure, order:N).",
    kernels: "All; grouping by mobility since 2.6.24, compaction since 2.6.35.",
    in_spans: "compaction, and direct-reclaim of higher order.",
    in_counters: "buddyinfo: tens of thousands of blocks of order 0 and 1, hardly any from order 3 on; \
        compact_fail rises; the kernel log shows page allocation failures with order of 1 and more although memory \
        is free.",
    against: "compact_stall and allocation failures do not rise: fragmentation does no harm where no large blocks are \
        needed.",
    fix: "A higher vm.min_free_kbytes keeps blocks whole; vm.compaction_proactiveness (5.9); smaller MTU or order-0 \
        receive buffers in the driver; thp.defrag = defer. echo 1 > /proc/sys/vm/compact_memory fixes it once.",
    prove: "echo 1 > /proc/sys/vm/compact_memory: buddyinfo shows large blocks again, and the failures stop for a \
        while.",
    sources: &[
        "mm/page_alloc.c: __alloc_pages_slowpath, warn_alloc",
        "mm/compaction.c",
        "Documentation/admin-guide/mm/concepts.rst: compaction",
    ],
    find,
};

/// (node, zone, free pages, share of them in blocks of order 3 and more) of the most fragmented zone.
fn worst_zone(facts: &Facts<'_>) -> Option<(u32, String, i64, f64)> {
    let buddy = facts.recording.table(Table::Buddy)?;
    let each = buddy.by_entity().filter_map(|(entity, rows)| {
        let pages = |orders: std::ops::Range<u32>| -> i64 {
            orders
                .filter_map(|order| {
                    Some(rows.last(format!("order_{order}"))?.max(0).saturating_mul(2_i64.saturating_pow(order)))
                })
                .fold(0, i64::saturating_add)
        };
        let free = pages(0..20);
        (free >= FREE_PAGES_MIN)
            .then(|| (entity.node.unwrap_or(0), entity.name.clone(), free, pages(3..20) as f64 / free as f64))
    });
    each.min_by(|a, b| a.3.total_cmp(&b.3))
}

/// Failures of multi-page requests in the kernel log: (number, first time, highest order). `None` if as many
/// single-page requests failed, because then memory itself was short.
fn failures(facts: &Facts<'_>) -> Option<(usize, u64, u32)> {
    let single = |event: &&Event| matches!(event.kind, EventKind::AllocationFailure { order: Some(0), .. });
    let single = facts.recording.events.iter().filter(single).count();
    let large = |event: &Event| match event.kind {
        EventKind::AllocationFailure { order: Some(order), .. } if order > 0 => Some((event.at_ns, order)),
        _ => None,
    };
    let large: Vec<(u64, u32)> = facts.recording.events.iter().filter_map(large).collect();
    let large = Some(large).filter(|large| large.len() > single)?;
    Some((large.len(), large.first()?.0, large.iter().map(|(_, order)| *order).max()?))
}

/// An OOM kill for a multi-page request: (time, order, the zone that had pages well above its watermarks, and its
/// free pages).
fn kill_for_block(facts: &Facts<'_>) -> Option<(u64, u32, Option<(String, i64)>)> {
    let order = |line: &str| {
        let digits = line.split_once("order=").or_else(|| line.split_once("order:"))?.1;
        digits.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok()
    };
    let kill = facts.recording.events.iter().find_map(|event| match &event.kind {
        EventKind::OutOfMemory { in_cgroup: false, line } => {
            Some((event.at_ns, order(line).filter(|order| *order > 0)?))
        }
        _ => None,
    });
    let (at_ns, order) = kill?;
    let Some(table) = facts.recording.table(Table::Zones) else {
        // The kernel retries up to order 3 forever: a kill for two pages is as often due to a memory shortage.
        return (order >= 2).then_some((at_ns, order, None));
    };
    // The kernel's own allocations come from low memory, highest zone first.
    let normal = table.by_entity().any(|(entity, _)| entity.name == "Normal");
    let wanted = if normal { "Normal" } else { "DMA32" };
    let each = table.by_entity().filter(|(entity, _)| entity.name == wanted);
    let each: Vec<(i64, i64)> =
        each.filter_map(|(_, rows)| Some((rows.last(zones::FREE)?, rows.last(zones::HIGH)?))).collect();
    let roomy = !each.is_empty() && each.iter().all(|(free, high)| *free >= high.saturating_mul(ROOM_FACTOR));
    let free = each.iter().fold(0_i64, |sum, (free, _)| sum.saturating_add(*free));
    (order >= 2 && roomy).then(|| (at_ns, order, Some((wanted.to_owned(), free))))
}

/// From this multiple of the high watermark in free pages, a request fails for lack of blocks, not of memory.
const ROOM_FACTOR: i64 = 2;

fn find(facts: &Facts<'_>) -> Option<Finding> {
    if !facts.may_infer() || (facts.spans_tell_all() && facts.significant(Cause::Compaction).is_none()) {
        return None;
    }
    let zone = worst_zone(facts).filter(|(.., share)| *share < LARGE_SHARE_MIN);
    let failed = failures(facts);
    let stalls = facts.vmstat_rate(vmstat::COMPACT_STALL).mean().filter(|rate| *rate >= 1.0);
    let killed = kill_for_block(facts);
    if zone.is_none() && failed.is_none() && killed.is_none() {
        return None;
    }
    // A kill for single pages is due to a memory shortage, however fragmented memory is.
    let any_kill = |event: &Event| matches!(event.kind, EventKind::OutOfMemory { .. });
    if failed.is_none() && killed.is_none() && facts.recording.events.iter().any(any_kill) {
        return None;
    }
    let confidence = match (&zone, failed.is_some() || stalls.is_some() || killed.is_some()) {
        (Some(_), true) => 0.85,
        (None, true) => 0.7,
        (_, false) => 0.5,
    };
    let mut finding = Finding::inferred(CauseId::Fragmentation, confidence, ENTRY.headline);
    if let Some((node, name, free, share)) = zone {
        let text = format!(
            "node {node} zone {name}: {free} pages are free, only {:.1} % of them in blocks of 8 and more",
            share * 100.0
        );
        finding.evidence.push(Evidence::new(text, share * 100.0, "%"));
    }
    if let Some((count, at_ns, order)) = failed {
        let (s, pages) = (if count == 1 { "" } else { "s" }, 2_u64.saturating_pow(order.min(20)));
        let text =
            format!("{count} request{s} for more than one page failed (order up to {order}: {pages} pages in a row)");
        finding.evidence.push(Evidence::new(text, count as f64, "").at(at_ns));
    } else if stalls.is_none() && killed.is_none() {
        finding.against.push(Evidence::statement("nothing shows that larger blocks were requested at that time"));
    }
    if let Some((at_ns, order, zone)) = killed {
        let room = zone.map_or_else(String::new, |(name, free)| format!(", while zone {name} had {free} pages free"));
        let text = format!(
            "a process was killed for a request of {} pages in a row (order {order}){room}",
            2_u64.saturating_pow(order.min(20))
        );
        finding.evidence.push(Evidence::new(text, f64::from(order), "").at(at_ns));
    }
    if let Some(stalls) = stalls {
        finding.evidence.push(Evidence::new(
            format!("{stalls:.1} callers a second had to compact (compact_stall)"),
            stalls,
            "1/s",
        ));
    }
    let finding = finding.fix(Fix::knob("compact in the background", knob!("vm.compaction_proactiveness"), "40"));
    let finding =
        finding.fix(Fix::advice("a higher vm.min_free_kbytes; order-0 buffers in the driver that fails (smaller MTU)"));
    Some(finding.settle("watch compact_stall and compact_fail in /proc/vmstat for a minute while it is slow"))
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::{RecordingBuilder, evidence_text};
    use flatwater_recording::{Entity, Table};

    fn buddy(blocks: [i64; 6]) -> RecordingBuilder {
        let names = ["order_0", "order_1", "order_2", "order_3", "order_4", "order_9"];
        let values = blocks.map(|count| [count]);
        let columns: Vec<(&str, &[i64])> =
            names.iter().zip(&values).map(|(name, value)| (*name, value.as_slice())).collect();
        RecordingBuilder::new().gauges(Table::Buddy, &Entity::on_node(0, "Normal"), &columns)
    }

    #[test]
    fn single_pages_only_is_fragmentation() {
        let finding = buddy([60_000, 9_000, 300, 10, 0, 0]).found(&ENTRY).expect("no blocks");
        assert!(
            evidence_text(&finding).contains("79200") || evidence_text(&finding).contains("79280"),
            "{}",
            evidence_text(&finding)
        );
        assert!(!finding.against.is_empty(), "no blocks were requested");
    }

    #[test]
    fn failures_of_higher_order_are_enough() {
        assert!(
            RecordingBuilder::new()
                .report("swapper/3: page allocation failure: order:4, mode:0x40cc0(GFP_KERNEL|__GFP_COMP)")
                .found(&ENTRY)
                .is_some()
        );
        assert!(
            RecordingBuilder::new()
                .report("swapper/3: page allocation failure: order:0, mode:0x20")
                .found(&ENTRY)
                .is_none()
        );
    }

    #[test]
    fn failing_single_pages_mean_memory_shortage() {
        let failure = |builder: RecordingBuilder, order: u32| {
            builder.report(&format!("cc1: page allocation failure. order:{order}, mode:0x20"))
        };
        assert!(failure(failure(RecordingBuilder::new(), 0), 1).found(&ENTRY).is_none());
        assert!(failure(failure(failure(RecordingBuilder::new(), 0), 3), 3).found(&ENTRY).is_some());
    }

    #[test]
    fn a_kill_for_a_block_while_pages_are_free() {
        let zone = |free: i64| {
            let columns: [(&str, &[i64]); 4] = [("free", &[free]), ("min", &[761]), ("low", &[951]), ("high", &[1141])];
            let builder = RecordingBuilder::new().gauges(Table::Zones, &Entity::on_node(0, "Normal"), &columns);
            builder.report("squid invoked oom-killer: gfp_mask=0x42d0, order=3, oom_score_adj=0")
        };
        let finding = zone(28_622).found(&ENTRY).expect("28622 pages free");
        assert!(
            evidence_text(&finding).contains("order 3") && evidence_text(&finding).contains("28622"),
            "{}",
            evidence_text(&finding)
        );
        assert!(zone(700).found(&ENTRY).is_none(), "memory is short, not blocks");
        let single =
            RecordingBuilder::new().report("java invoked oom-killer: gfp_mask=0x201da, order=0, oom_score_adj=0");
        assert!(single.found(&ENTRY).is_none());
    }

    #[test]
    fn a_healthy_zone_is_silent() {
        assert!(buddy([6_000, 900, 300, 500, 400, 300]).found(&ENTRY).is_none());
    }
}
