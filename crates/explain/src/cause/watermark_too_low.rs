//! watermark-too-low: so little memory is kept free that a burst reaches min before kswapd starts.

use super::{CauseEntry, CauseId, direct_reclaim};
use crate::facts::Facts;
use crate::sums::total_signed;
use crate::{Evidence, Finding, Fix};
use flatwater_recording::schema::{Column, zones};
use flatwater_recording::{Event, EventKind, Table};

/// Below this share of a zone, a burst crosses the gap from min to low at once. The kernel's default since 4.6 is
/// 0.1 % (watermark_scale_factor 10).
const GAP_SHARE_MAX: f64 = 0.005;
/// Smaller zones (DMA) do not matter: 256 MiB of 4 KiB pages.
const ZONE_PAGES_MIN: i64 = 65_536;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "watermark-too-low",
    span: None,
    headline: "the watermarks are so close that a burst reaches min before kswapd has freed anything",
    mechanism: "kswapd is woken below the low watermark and callers reclaim below min. Between them lies a quarter \
        of min, or since 4.6 managed x watermark_scale_factor / 10000 if that is more (mm/page_alloc.c: \
        __setup_per_zone_wmarks): with the default 10 that is 0.1 % of memory. min itself grows only with the \
        square root of memory (min_free_kbytes = 4 x sqrt(lowmem KiB), at most 64 MiB until 5.9, 256 MiB since). A \
        writer or a fork that takes pages faster than kswapd wakes and scans crosses the gap and reclaims itself; \
        atomic allocations (network receive) fail instead.",
    kernels: "All; the knob watermark_scale_factor since 4.6.",
    in_spans: "direct-reclaim in slow calls.",
    in_counters: "zoneinfo: free falls to min or below while low - min is a fraction of a percent of the zone; \
        allocstall rises in bursts although kswapd steals well (kswapd_low_wmark_hit_quickly rises); the kernel \
        log has page allocation failures of order 0 with GFP_ATOMIC.",
    against: "free never comes near min; or kswapd scans without yield: then a higher watermark does not help.",
    fix: "vm.watermark_scale_factor = 100 to 200 (1 to 2 % of memory); before 4.6 vm.min_free_kbytes at about 1 % \
        of memory.",
    prove: "Raise it and compare allocstall and the share of direct-reclaim: `flatwater verify`.",
    sources: &[
        "mm/page_alloc.c: __setup_per_zone_wmarks, calculate_min_free_kbytes",
        "Documentation/admin-guide/sysctl/vm.rst: watermark_scale_factor",
    ],
    find,
};

/// (node, zone, lowest free, min, low, managed) of the large zone that came closest to min, in pages.
fn tightest(facts: &Facts<'_>) -> Option<(u32, String, i64, i64, i64, i64)> {
    let zones = facts.recording.table(Table::Zones)?;
    let each = zones.by_entity().filter_map(|(entity, rows)| {
        let managed = rows.last(zones::MANAGED).or_else(|| rows.last(zones::PRESENT))?;
        let (min, low) = (rows.last(zones::MIN)?, rows.last(zones::LOW)?);
        let (_, free) = rows.min(zones::FREE)?;
        (managed >= ZONE_PAGES_MIN).then(|| (entity.node.unwrap_or(0), entity.name.clone(), free, min, low, managed))
    });
    each.min_by_key(|(_, _, free, min, ..)| free.saturating_sub(*min))
}

fn find(facts: &Facts<'_>) -> Option<Finding> {
    if !facts.may_infer() {
        return None;
    }
    let failure = atomic_failure(facts);
    if let Some(depleted) = depleted(facts) {
        return Some(depleted.with(failure));
    }
    let reclaims = direct_reclaim::at_work(facts);
    let (node, zone, free, min, low, managed) = match tightest(facts) {
        Some(zone) => zone,
        None => return failure.map(from_log),
    };
    let gap = low.saturating_sub(min);
    let narrow = (gap as f64) < GAP_SHARE_MAX * managed as f64;
    let reached = free <= min.saturating_add(gap / 2);
    if !narrow || !reached || !(reclaims || failure.is_some()) {
        return None;
    }
    let evidence = [
        Evidence::new(
            format!("node {node} zone {zone}: {free} pages free at the least, min {min}, low {low}"),
            free as f64,
            "pages",
        ),
        Evidence::new(
            format!("low is {gap} pages above min, {:.2} % of the zone", 100.0 * gap as f64 / managed as f64),
            gap as f64,
            "pages",
        ),
    ];
    let finding = Finding::inferred(CauseId::WatermarkTooLow, 0.65, ENTRY.headline).with(evidence).with(failure);
    Some(
        finding
            .fix(fix(facts))
            .settle("raise the watermark and run again: direct-reclaim must fall with it (`flatwater verify`)"),
    )
}

/// mm/page_alloc.c, __zone_watermark_ok: allocations that may wait stop at min; only atomic ones may go down to
/// half of min and below.
const RESERVE_SHARE: f64 = 0.5;

/// Minimum share of a zone on the LRU lists for reclaim to help.
const LISTS_SHARE_MIN: f64 = 0.25;
const LISTS: &[Column] = &[
    zones::NR_ACTIVE,
    zones::NR_INACTIVE,
    zones::NR_ACTIVE_ANON,
    zones::NR_INACTIVE_ANON,
    zones::NR_ACTIVE_FILE,
    zones::NR_INACTIVE_FILE,
];

/// From zones below half of min: atomic allocations take pages faster than they are freed, and all others reclaim.
/// Needs every large zone to be that low, and no OOM kill, which has its own reason.
fn depleted(facts: &Facts<'_>) -> Option<Finding> {
    let killed = facts.recording.events.iter().any(|event| matches!(event.kind, EventKind::OutOfMemory { .. }));
    let zones = facts.recording.table(Table::Zones).filter(|_| !killed)?;
    let each: Vec<(String, i64, i64)> = zones
        .by_entity()
        .filter(|(entity, _)| entity.name != zones::DMA)
        .filter_map(|(entity, rows)| {
            let size = rows.last(zones::MANAGED).or_else(|| rows.last(zones::PRESENT))?;
            let (_, free) = rows.min(zones::FREE)?;
            let name = format!("node {} zone {}", entity.node.unwrap_or(0), entity.name);
            // A zone with nothing to reclaim is full; watermarks do not help.
            let lists = total_signed(LISTS.iter().filter_map(|column| rows.last(*column)));
            let reclaimable = lists as f64 >= LISTS_SHARE_MIN * size as f64;
            (size >= ZONE_PAGES_MIN).then_some((name, free, if reclaimable { rows.last(zones::MIN)? } else { 0 }))
        })
        .collect();
    let below = |(_, free, min): &(String, i64, i64)| (*free as f64) < RESERVE_SHARE * *min as f64;
    if each.is_empty() || !each.iter().all(below) {
        return None;
    }
    let evidence = each.iter().take(4).map(|(name, free, min)| {
        let text =
            format!("{name}: {free} pages free, min is {min}: below half of min only atomic allocations succeed");
        Evidence::new(text, *free as f64, "pages")
    });
    let finding = Finding::inferred(CauseId::WatermarkTooLow, 0.65, ENTRY.headline).with(evidence);
    Some(finding.fix(fix(facts)).settle("compare min, low and free in /proc/zoneinfo while the burst runs"))
}

fn fix(facts: &Facts<'_>) -> Fix {
    if facts.kernel_from([4, 6, 0]) == Some(false) {
        return Fix::advice("vm.min_free_kbytes at about 1 % of memory (this kernel has no watermark_scale_factor)");
    }
    Fix::knob("watermarks further apart", knob!("vm.watermark_scale_factor"), "200")
}

/// An order-0 allocation that could not wait failed: less was free than it may leave.
fn atomic_failure(facts: &Facts<'_>) -> Option<Evidence> {
    let of_one_page =
        |event: &&Event| matches!(event.kind, EventKind::AllocationFailure { order: Some(0), may_not_wait: true, .. });
    let mut failures = facts.recording.events.iter().filter(of_one_page);
    let first = failures.next()?;
    let count = failures.count().saturating_add(1);
    let text = format!("{count} single-page allocations that may not wait failed: memory was not freed ahead of them");
    Some(Evidence::new(text, count as f64, "").at(first.at_ns))
}

fn from_log(failure: Evidence) -> Finding {
    let finding = Finding::inferred(CauseId::WatermarkTooLow, 0.6, ENTRY.headline).with([failure]);
    finding
        .fix(Fix::knob("watermarks further apart", knob!("vm.watermark_scale_factor"), "200"))
        .settle("compare min, low and free in /proc/zoneinfo while the burst runs")
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::{RecordingBuilder, evidence_text};
    use flatwater_recording::{Cause, Entity, OpKind, Table};

    fn zone(low: i64, free: [i64; 3]) -> RecordingBuilder {
        let levels: [(&str, &[i64]); 4] =
            [("managed", &[4_000_000; 3]), ("min", &[11_000; 3]), ("low", &[low; 3]), ("free", &free)];
        let builder = RecordingBuilder::new().gauges(Table::Zones, &Entity::on_node(0, "Normal"), &levels);
        builder.slow(OpKind::Write, &[(Cause::DirectReclaim, 30.0)])
    }

    #[test]
    fn a_narrow_gap_that_was_crossed_is_named() {
        let finding = zone(15_000, [80_000, 10_900, 30_000]).found(&ENTRY).expect("narrow");
        assert!(
            evidence_text(&finding).contains("10900 pages free at the least, min 11000, low 15000"),
            "{}",
            evidence_text(&finding)
        );
    }

    #[test]
    fn a_wide_gap_or_no_shortage_is_not() {
        assert!(zone(91_000, [80_000, 10_900, 30_000]).found(&ENTRY).is_none());
        assert!(zone(15_000, [80_000, 70_000, 60_000]).found(&ENTRY).is_none());
    }

    #[test]
    fn zones_below_half_of_min_are_taken_by_atomic_allocations() {
        let shown = |free: i64, lists: i64| {
            let levels: [(&str, &[i64]); 5] = [
                ("managed", &[48_000_000]),
                ("min", &[55_496]),
                ("low", &[104_254]),
                ("free", &[free]),
                ("nr_inactive_anon", &[lists]),
            ];
            RecordingBuilder::new().gauges(Table::Zones, &Entity::on_node(0, "Normal"), &levels)
        };
        let finding = shown(21_839, 30_000_000).found(&ENTRY).expect("two fifths of min");
        assert!(evidence_text(&finding).contains("21839 pages free, min is 55496"), "{}", evidence_text(&finding));
        assert!(shown(50_000, 30_000_000).found(&ENTRY).is_none(), "reclaim holds it at min");
        assert!(shown(21_839, 1_000).found(&ENTRY).is_none(), "full of unreclaimable memory");
    }

    #[test]
    fn failed_atomic_allocations_are_enough() {
        let builder =
            RecordingBuilder::new().report("ksoftirqd/0: page allocation failure: order:0, mode:0x20(GFP_ATOMIC)");
        let finding = builder.found(&ENTRY).expect("an atomic allocation failed");
        // GFP_NOWAIT may not use the reserve below min, so that its failure does not show that the reserve is used up.
        assert!(!evidence_text(&finding).contains("reserve"), "{}", evidence_text(&finding));
    }

    #[test]
    fn one_reading_does_not_show_a_fall() {
        let levels: [(&str, &[i64]); 4] =
            [("managed", &[4_000_000]), ("min", &[11_000]), ("low", &[15_000]), ("free", &[10_900])];
        let builder = RecordingBuilder::new().gauges(Table::Zones, &Entity::on_node(0, "Normal"), &levels);
        let finding = builder.slow(OpKind::Write, &[(Cause::DirectReclaim, 30.0)]).found(&ENTRY).expect("narrow");
        assert!(!evidence_text(&finding).contains("fell"), "{}", evidence_text(&finding));
    }
}
