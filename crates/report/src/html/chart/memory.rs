//! Memory over time: free memory above the watermarks, the cgroup's usage and limit, dirty pages and their thresholds.

use super::super::payload::{Chart, Figure, Level, Look, Scale, Unit};
use super::{Frame, Plot};
use flatwater_recording::schema::{Column, cgroup, meminfo, vmstat, zones};
use flatwater_recording::{Recording, Rows, Table};

/// Factor from pages to bytes, and the resulting unit; pages if the page size is unknown.
fn page_unit(recording: &Recording) -> (f64, Unit) {
    recording.header.machine.page_bytes.map_or((1.0, Unit::Pages), |bytes| (bytes as f64, Unit::Bytes))
}

pub fn headroom(recording: &Recording) -> Chart {
    let (factor, unit) = page_unit(recording);
    let frame = || Frame {
        id: "headroom",
        title: "Free memory above the low watermark",
        about: "Each node's zones. At 0 kswapd wakes; well below it, allocating threads reclaim pages themselves.",
        unit,
        scale: Scale::SignedLog,
    };
    let Some(series) = recording.table(Table::Zones) else {
        return frame().missing(recording, &["zoneinfo", "zones", "zone"]);
    };
    let mut plot = Plot::over(recording, series);
    let nodes = series.entities().iter().filter_map(|entity| entity.node).max().unwrap_or_default();
    for (entity, rows) in series.by_entity() {
        // Zones without pages (Movable, Device) have watermarks of 0.
        if rows.max(zones::MANAGED).is_some_and(|(_, managed)| managed == 0) {
            continue;
        }
        let name = match entity.node {
            Some(node) if nodes > 0 => format!("node {node} {}", entity.name),
            _ => entity.name.clone(),
        };
        let (free, low) = (plot.level(&rows, zones::FREE, factor), plot.level(&rows, zones::LOW, factor));
        let room = free.into_iter().zip(low).map(|(free, low)| Some(free? - low?)).collect();
        plot.add(name, Look::Plain, room);
    }
    let level = Level { name: "low watermark".to_owned(), value: Figure(0.0), shade_below: true };
    let chart = plot.into_chart_or_reason(frame(), recording, &["zoneinfo", "zones", "zone"]);
    Chart { levels: vec![level], ..chart }
}

/// How many cgroups are drawn. The target's own is the first in the table.
const CGROUPS_MAX: usize = 3;

/// The memory cgroup of the target; `None` for a run outside of any cgroup, which needs neither chart nor gap.
pub fn cgroup(recording: &Recording) -> Option<Chart> {
    let frame = || Frame {
        id: "cgroup",
        title: "Memory cgroup against its limit",
        about: "At the limit, a thread that needs a page first reclaims one from the cgroup.",
        unit: Unit::Bytes,
        scale: Scale::Linear,
    };
    let Some(series) = recording.table(Table::Cgroup) else {
        let wanted = recording.header.target.cgroup.is_some();
        return wanted.then(|| frame().missing(recording, &["cgroup"]));
    };
    let mut plot = Plot::over(recording, series);
    let several = series.entities().len() > 1;
    for (entity, rows) in series.by_entity().take(CGROUPS_MAX) {
        let named = |what: &str| if several { format!("{} {what}", entity.name) } else { what.to_owned() };
        let usage = plot.level(&rows, cgroup::USAGE_BYTES, 1.0);
        let most = usage.iter().flatten().copied().fold(0.0, f64::max);
        plot.add(named("usage"), Look::Strong, usage);
        for (column, what) in
            [(cgroup::FILE, "page cache"), (cgroup::TOTAL_CACHE, "page cache"), (cgroup::ANON, "anonymous")]
        {
            let values = plot.level(&rows, column, 1.0);
            plot.add(named(what), Look::Plain, values);
        }
        let limit = plot.level(&rows, cgroup::LIMIT_BYTES, 1.0);
        // "No limit" is stored as a number near 2^63, which would flatten everything else.
        if limit.iter().flatten().all(|bytes| *bytes < 64.0 * most.max(1.0)) {
            plot.add(named("limit"), Look::Limit, limit);
        }
    }
    Some(plot.into_chart_or_reason(frame(), recording, &["cgroup"]))
}

pub fn dirty(recording: &Recording) -> Chart {
    let (factor, unit) = page_unit(recording);
    let frame = |unit| Frame {
        id: "dirty",
        title: "Dirty and writeback",
        about: "Over the background threshold the flusher writes; near the limit writers are paused.",
        unit,
        scale: Scale::Linear,
    };
    let words = ["vmstat", "meminfo", "writeback"];
    let from_vmstat = recording.table(Table::Vmstat).and_then(|series| {
        let mut plot = Plot::over(recording, series);
        let (_, rows) = series.by_entity().next()?;
        let columns = [
            (vmstat::NR_DIRTY, "dirty", Look::Strong),
            (vmstat::NR_WRITEBACK, "under writeback", Look::Plain),
            (vmstat::NR_DIRTY_BACKGROUND_THRESHOLD, "background threshold", Look::Dashed),
            (vmstat::NR_DIRTY_THRESHOLD, "limit", Look::Limit),
        ];
        lines(&mut plot, &rows, &columns, factor);
        plot.into_chart(frame(unit))
    });
    let from_meminfo = || {
        let series = recording.table(Table::Meminfo)?;
        let mut plot = Plot::over(recording, series);
        let (_, rows) = series.by_entity().next()?;
        let columns =
            [(meminfo::DIRTY_BYTES, "dirty", Look::Strong), (meminfo::WRITEBACK_BYTES, "under writeback", Look::Plain)];
        lines(&mut plot, &rows, &columns, 1.0);
        plot.into_chart(frame(Unit::Bytes))
    };
    from_vmstat.or_else(from_meminfo).unwrap_or_else(|| frame(unit).missing(recording, &words))
}

fn lines(plot: &mut Plot, rows: &Rows<'_>, columns: &[(Column, &str, Look)], factor: f64) {
    for &(column, name, look) in columns {
        let values = plot.level(rows, column, factor);
        plot.add(name, look, values);
    }
}
