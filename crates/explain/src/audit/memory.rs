//! Rules about memory: zone reclaim, watermarks, caches, huge pages, swap, cgroups.

use super::{Advice, Snapshot, Weight};
use crate::{CauseId, Evidence, Fix};
use flatwater_recording::Table;
use flatwater_recording::schema::{cgroup, vmstat, zones};
use flatwater_recording::units::Bytes;

/// If the gap between min and low is below this share of a zone, a burst of allocations reaches min before kswapd
/// helps. Only zones of at least 65536 pages (256 MiB) are judged.
const GAP_SHARE_MAX: f64 = 0.005;
const ZONE_PAGES_MIN: i64 = 65_536;

pub fn zone_reclaim(snapshot: &Snapshot<'_>) -> Vec<Advice> {
    let nodes = &snapshot.recording.header.machine.nodes;
    if nodes.len() < 2 || snapshot.knob("vm.zone_reclaim_mode").unwrap_or(0) == 0 {
        return Vec::new();
    }
    let far = nodes.iter().flat_map(|node| node.distances.iter().copied()).max().unwrap_or(0);
    let failed = snapshot.vmstat(vmstat::ZONE_RECLAIM_FAILED).unwrap_or(0);
    let why = "a full node is reclaimed by the caller although another has free pages";
    let mut evidence =
        vec![Evidence::new(format!("{} nodes, largest distance {far}", nodes.len()), f64::from(far), "")];
    if failed > 0 {
        evidence.push(Evidence::new(
            format!("{failed} times since boot it freed too little (zone_reclaim_failed)"),
            failed as f64,
            "",
        ));
    }
    let advice =
        Advice::knob(snapshot, knob!("vm.zone_reclaim_mode"), "0", CauseId::ZoneReclaimThrash, why).with(evidence);
    vec![advice.weight(if failed > 0 { Weight::Hurts } else { Weight::Invites })]
}

/// Narrow watermarks hurt if callers had to reclaim since boot; otherwise they are a hint.
pub fn watermarks(snapshot: &Snapshot<'_>) -> Vec<Advice> {
    let Some(zones) = snapshot.recording.table(Table::Zones) else { return Vec::new() };
    let narrow = zones.by_entity().filter_map(|(entity, rows)| {
        let managed = rows.last(zones::MANAGED).or_else(|| rows.last(zones::PRESENT))?;
        let gap = rows.last(zones::LOW)?.checked_sub(rows.last(zones::MIN)?)?;
        let share = gap as f64 / managed as f64;
        (managed >= ZONE_PAGES_MIN && share < GAP_SHARE_MAX).then_some((share, gap, entity))
    });
    let Some((share, gap, entity)) = narrow.min_by(|a, b| a.0.total_cmp(&b.0)) else { return Vec::new() };
    let stalls = snapshot.allocstall().unwrap_or(0);
    let (key, proposed) = match snapshot.knob("vm.watermark_scale_factor") {
        Some(factor) if factor >= 100 => return Vec::new(),
        Some(_) => (knob!("vm.watermark_scale_factor"), "200".to_owned()),
        // Before 4.6: min_free_kbytes of one percent of memory, at most 1 GiB.
        None => match snapshot.memory_bytes() {
            Some(bytes) => {
                (knob!("vm.min_free_kbytes"), ((bytes / 100.0).min(1_073_741_824.0) as u64 / 1024).to_string())
            }
            None => return Vec::new(),
        },
    };
    let why = "kswapd starts so late that a burst reaches min, and callers reclaim";
    let text = format!(
        "node {} zone {}: low is {gap} pages above min, {:.2} % of the zone",
        entity.node.unwrap_or(0),
        entity.name,
        share * 100.0
    );
    let mut evidence = vec![Evidence::new(text, gap as f64, "pages")];
    if stalls > 0 {
        evidence.push(Evidence::new(
            format!("{stalls} allocations since boot had to reclaim themselves (allocstall)"),
            stalls as f64,
            "",
        ));
    }
    let advice = Advice::knob(snapshot, key, &proposed, CauseId::WatermarkTooLow, why).with(evidence);
    vec![advice.weight(if stalls > 0 { Weight::Hurts } else { Weight::Hint })]
}

pub fn vfs_cache_pressure(snapshot: &Snapshot<'_>) -> Vec<Advice> {
    match snapshot.knob("vm.vfs_cache_pressure") {
        Some(0) => {
            let why = "dentries and inodes are never reclaimed: they can fill memory until the OOM killer runs";
            vec![Advice::knob(snapshot, knob!("vm.vfs_cache_pressure"), "50", CauseId::OutOfMemory, why)]
        }
        Some(pressure) if pressure > 200 => {
            let stolen = snapshot
                .vmstat(vmstat::KSWAPD_INODESTEAL)
                .unwrap_or(0)
                .saturating_add(snapshot.vmstat(vmstat::PGINODESTEAL).unwrap_or(0));
            let why = "inodes are evicted before pages, and take their files' page cache with them";
            let text = format!("{stolen} cached pages went with their inodes since boot");
            let advice =
                Advice::knob(snapshot, knob!("vm.vfs_cache_pressure"), "100", CauseId::InodeCachePressure, why);
            vec![advice.with((stolen > 0).then(|| Evidence::new(text, stolen as f64, "pages")))]
        }
        _ => Vec::new(),
    }
}

pub fn huge_pages(snapshot: &Snapshot<'_>) -> Vec<Advice> {
    let enabled = snapshot.text("thp.enabled").unwrap_or("never");
    let defrag = snapshot.text("thp.defrag").unwrap_or("never");
    if enabled == "never" || defrag != "always" {
        return Vec::new();
    }
    let stalls = snapshot.vmstat(vmstat::COMPACT_STALL).unwrap_or(0);
    let why = "every fault that could use a huge page may compact memory first";
    let text =
        format!("{stalls} callers compacted memory since boot, for huge pages or other large blocks (compact_stall)");
    let advice = Advice::knob(snapshot, knob!("thp.defrag"), "defer+madvise", CauseId::ThpStall, why);
    let hurts = stalls > 0;
    let advice = advice.with(hurts.then(|| Evidence::new(text, stalls as f64, "")));
    vec![advice.weight(if hurts { Weight::Hurts } else { Weight::Invites })]
}

/// Less memory than this read back from swap since boot is ordinary start-up.
const SWAPPED_IN_BYTES_MIN: u64 = 64 << 20;

pub fn swap(snapshot: &Snapshot<'_>) -> Vec<Advice> {
    let swapped = snapshot.vmstat(vmstat::PSWPIN).unwrap_or(0);
    let swappiness = snapshot.knob("vm.swappiness").unwrap_or(0);
    let bytes = u64::try_from(swapped).unwrap_or(0).saturating_mul(snapshot.recording.header.machine.page_size_bytes());
    if bytes < SWAPPED_IN_BYTES_MIN || swappiness <= 10 {
        return Vec::new();
    }
    let why = "programs wait for their own memory: reclaim swaps it out to keep page cache";
    let text = format!("{} read back from swap since boot", Bytes(bytes));
    let advice = Advice::knob(snapshot, knob!("vm.swappiness"), "10", CauseId::SwapIn, why);
    vec![advice.with([Evidence::new(text, swapped as f64, "pages")]).weight(Weight::Hurts)]
}

/// Memory cgroups that are at their limit and at least half page cache.
pub fn cgroups(snapshot: &Snapshot<'_>) -> Vec<Advice> {
    let Some(table) = snapshot.recording.table(Table::Cgroup) else { return Vec::new() };
    let full = table.by_entity().filter_map(|(entity, rows)| {
        let limit = rows.last(cgroup::LIMIT_BYTES).filter(|limit| *limit > 0)?;
        let usage = rows.last(cgroup::USAGE_BYTES)?;
        let file =
            [cgroup::FILE, cgroup::TOTAL_CACHE, cgroup::CACHE].into_iter().find_map(|column| rows.last(column))?;
        let dirty = [cgroup::FILE_DIRTY, cgroup::TOTAL_DIRTY, cgroup::DIRTY];
        let dirty = dirty.into_iter().find_map(|column| rows.last(column)).unwrap_or(0);
        let hits = rows.last(cgroup::EVENTS_MAX).unwrap_or(0);
        (usage as f64 >= 0.95 * limit as f64 && file >= limit / 2)
            .then(|| cgroup(&entity.name, limit, file, dirty, hits))
    });
    full.collect()
}

fn cgroup(path: &str, limit: i64, file: i64, dirty: i64, hits: i64) -> Advice {
    let size = |bytes: i64| Bytes(u64::try_from(bytes).unwrap_or(0)).to_string();
    let why = "the cgroup is full of page cache: processes that write in it must reclaim";
    let mut evidence = vec![Evidence::new(
        format!("{} of the limit of {} is page cache", size(file), size(limit)),
        file as f64,
        "bytes",
    )];
    if dirty > limit / 20 {
        evidence.push(Evidence::new(
            format!("{} are dirty: reclaim waits for the device", size(dirty)),
            dirty as f64,
            "bytes",
        ));
    }
    if hits > 0 {
        evidence.push(Evidence::new(format!("its limit was hit {hits} times"), hits as f64, ""));
    }
    Advice {
        setting: format!("memory limit of {path}"),
        old: size(limit),
        proposed: size(limit.saturating_add(limit / 2)),
        weight: if hits > 0 { Weight::Hurts } else { Weight::Invites },
        cause: CauseId::CgroupLimitCache,
        why: why.to_owned(),
        evidence,
        fix: Fix::advice("raise the limit, or move the processes that stream files to a cgroup of their own"),
    }
}
