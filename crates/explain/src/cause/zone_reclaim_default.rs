//! zone-reclaim-default: on older kernels, the machine's node distances enable zone reclaim automatically.

use super::{CauseEntry, CauseId};
use crate::facts::Facts;
use crate::settings;
use crate::{Evidence, Finding, Fix};
use flatwater_recording::schema::nodes;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "zone-reclaim-default",
    span: None,
    headline: "node distances above the reclaim distance: kernels before 3.16 enable zone reclaim themselves",
    mechanism: "At boot build_zonelists (mm/page_alloc.c) compared each pair of nodes with RECLAIM_DISTANCE \
        (include/linux/topology.h) and set zone_reclaim_mode = 1 if any was larger. The limit was 20 up to 2.6.39 \
        and is 30 since 3.0 (some architectures have their own); 3.16 removed the automatic setting. Firmware that \
        reports 21 instead of 20 for the same hardware therefore changes how a kernel before 3.0 reclaims memory.",
    kernels: "Up to 2.6.39 above a distance of 20, 3.0 to 3.15 above 30; 3.16 and later never.",
    in_spans: "",
    in_counters: "numactl -H or /sys/devices/system/node/node*/distance shows a distance above the limit.",
    against: "/proc/sys/vm/zone_reclaim_mode is 0, a kernel of 3.16 or later, or distances at or below the limit.",
    fix: "vm.zone_reclaim_mode = 0 in sysctl.conf, whatever the firmware reports; or a newer kernel.",
    prove: "cat /proc/sys/vm/zone_reclaim_mode after boot, without any sysctl.conf entry.",
    sources: &[
        "mm/page_alloc.c: build_zonelists (until 3.15)",
        "include/linux/topology.h: RECLAIM_DISTANCE",
        "Linux 3.16: mm: disable zone_reclaim_mode by default",
    ],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let header = &facts.recording.header;
    let nodes = &header.machine.nodes;
    let far = nodes.iter().flat_map(|node| node.distances.iter().copied()).max()?;
    // Without a release, assume the oldest kernels; the evidence says which.
    let limit = if facts.kernel_from([3, 0, 0]).unwrap_or(false) { 30 } else { 20 };
    let off = settings::throughout(facts.recording, |setup| setup.number("vm.zone_reclaim_mode") == Some(0));
    if !facts.may_infer() || nodes.len() < 2 || far <= limit || off || facts.kernel_from([3, 16, 0]) == Some(true) {
        return None;
    }
    let known = header.machine.kernel.is_some();
    // Nearly every machine today reports a distance of 21: without a release it says nothing by itself.
    let low = low_nodes(facts);
    if !known && far <= 30 && low.is_none() {
        return None;
    }
    let which = if far > 30 { "kernels before 3.16" } else { "kernels up to 2.6.39 (from 3.0 the limit is 30)" };
    let mut evidence = vec![Evidence::new(
        format!(
            "{} nodes, largest distance {far}, above {limit}: {which} set vm.zone_reclaim_mode = 1 at boot",
            nodes.len()
        ),
        f64::from(far),
        "",
    )];
    evidence.extend(low);
    let finding = Finding::inferred(CauseId::ZoneReclaimDefault, if known { 0.9 } else { 0.35 }, ENTRY.headline)
        .with(evidence)
        .fix(Fix::knob("set it off explicitly, whatever the firmware reports", knob!("vm.zone_reclaim_mode"), "0"))
        .settle(
            "cat /proc/sys/vm/zone_reclaim_mode: anything but 0 confirms it; then `sar -B 1` shows whether it hurts",
        );
    let against = Evidence::statement("the log does not name the kernel; since 3.16 the mode stays 0 unless it is set");
    Some(if known { finding } else { finding.but([against]) })
}

/// A node that is nearly full, where the mode would act.
fn low_nodes(facts: &Facts<'_>) -> Option<Evidence> {
    let nodes = facts.recording.table(flatwater_recording::Table::Nodes)?;
    let mut lowest: Option<(f64, u32, i64)> = None;
    for (entity, rows) in nodes.by_entity() {
        let (Some(node), Some(free)) = (entity.node, rows.last(nodes::MEM_FREE_BYTES)) else { continue };
        let size = facts.recording.header.machine.nodes.iter().find(|shape| shape.node == node);
        let size =
            size.and_then(|shape| shape.memory_bytes).or_else(|| rows.last(nodes::MEM_TOTAL_BYTES).map(|b| b as u64));
        let Some(size) = size.filter(|size| *size > 0) else { continue };
        let share = free as f64 / size as f64;
        if lowest.is_none_or(|(least, ..)| share < least) {
            lowest = Some((share, node, free));
        }
    }
    let (share, node, free) = lowest.filter(|(share, ..)| *share < 0.02)?;
    let text = format!("node {node} has {} MiB free ({:.2} %): it would reclaim now", free >> 20, share * 100.0);
    Some(Evidence::new(text, free as f64, "bytes"))
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::{RecordingBuilder, evidence_text};
    use flatwater_recording::{Entity, Table};

    fn two_nodes(distance: u32) -> RecordingBuilder {
        RecordingBuilder::new().node(0, 1 << 36, &[10, distance]).node(1, 1 << 36, &[distance, 10])
    }

    fn unknown_kernel(builder: RecordingBuilder) -> RecordingBuilder {
        builder.edit(|recording| recording.header.machine.kernel = None)
    }

    #[test]
    fn twenty_one_is_enough_for_old_kernels() {
        assert!(unknown_kernel(two_nodes(21)).found(&ENTRY).is_none(), "what most machines of today report");
        let free: [(&str, &[i64]); 1] = [("MemFree_bytes", &[40 << 20])];
        let full = unknown_kernel(two_nodes(21)).gauges(Table::Nodes, &Entity::on_node(0, ""), &free);
        let finding = full.found(&ENTRY).expect("21 > 20, and a node is full");
        assert!(
            evidence_text(&finding).contains("up to 2.6.39") && !finding.against.is_empty() && finding.weight < 0.5
        );
        assert!(two_nodes(21).kernel("2.6.32-431.el6").found(&ENTRY).is_some_and(|finding| finding.weight > 0.8));
        assert!(two_nodes(40).kernel("3.10.0").found(&ENTRY).is_some());
    }

    #[test]
    fn what_leaves_it_off_is_silent() {
        assert!(unknown_kernel(two_nodes(20)).found(&ENTRY).is_none(), "20 is not above 20");
        assert!(two_nodes(21).kernel("3.10.0").found(&ENTRY).is_none(), "30 since 3.0");
        assert!(two_nodes(40).kernel("5.15.0").found(&ENTRY).is_none(), "never since 3.16");
        assert!(two_nodes(21).kernel("2.6.32").knob("vm.zone_reclaim_mode", "0").found(&ENTRY).is_none());
    }
}
