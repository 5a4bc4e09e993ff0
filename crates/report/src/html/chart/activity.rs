//! Charts of activity: reclaim, pressure, and the workload's own counters.

use super::super::payload::{Chart, Look, Scale, Unit};
use super::{Frame, Plot, summed};
use crate::counters::{efficiency_percent, steals};
use flatwater_recording::schema::{Column, pressure, vmstat};
use flatwater_recording::{ColumnKind, Entity, Recording, Rows, Series, Table};

pub fn reclaim(recording: &Recording) -> Chart {
    let frame = || Frame {
        id: "reclaim",
        title: "Reclaim: scans, steals and %vmeff",
        about: "Pages scanned and stolen each second. Many direct scans with few steals (%vmeff under 10) are futile \
                work inside system calls.",
        unit: Unit::PerSecond,
        scale: Scale::Linear,
    };
    let chart = recording.table(Table::Vmstat).and_then(|series| {
        let mut plot = Plot::over(recording, series);
        let (_, rows) = series.by_entity().next()?;
        let sum = |plot: &Plot, stems: &[Column]| rates(plot, series, &rows, stems);
        let kswapd = sum(&plot, &[vmstat::PGSCAN_KSWAPD]);
        let direct = sum(&plot, &[vmstat::PGSCAN_DIRECT]);
        let steals = sum(&plot, steals(series));
        let at = |line: &[Option<f64>], place: usize| line.get(place).copied().flatten();
        let vmeff = |place: usize| {
            let (kswapd, direct) = (at(&kswapd, place), at(&direct, place));
            // Without scans the efficiency is undefined (sar prints 0).
            let scanned = kswapd.unwrap_or_default() + direct.unwrap_or_default();
            efficiency_percent(kswapd, direct, at(&steals, place)).filter(|_| scanned > 0.0).map(|p| p / 100.0)
        };
        let efficiency = (0..plot.instants.len()).map(vmeff).collect();
        plot.add("scanned by kswapd", Look::Plain, kswapd.clone());
        plot.add("scanned by callers", Look::Strong, direct.clone());
        plot.add("stolen", Look::Plain, steals.clone());
        plot.add_right("%vmeff", Look::Points, efficiency);
        Some(plot.into_chart_or_reason(frame(), recording, &["vmstat"]))
    });
    match chart {
        Some(chart) => Chart { right_unit: chart.lines.iter().any(|l| l.right).then_some(Unit::Share), ..chart },
        None => frame().missing(recording, &["vmstat"]),
    }
}

fn rates(plot: &Plot, series: &Series, rows: &Rows<'_>, stems: &[Column]) -> Vec<Option<f64>> {
    let counted = series.columns.iter().filter(|column| stems.iter().any(|stem| stem.covers(&column.name)));
    let parts: Vec<Vec<Option<f64>>> = counted.map(|column| plot.rate(rows, &column.name, 1.0)).collect();
    summed(&parts)
}

pub fn pressure(recording: &Recording) -> Chart {
    let frame = || Frame {
        id: "pressure",
        title: "Pressure",
        about: "Share of time in which at least one task (some), or all that could run (full), waited for the resource.",
        unit: Unit::Share,
        scale: Scale::Linear,
    };
    let chart = recording.table(Table::Pressure).map(|series| {
        let mut plot = Plot::over(recording, series);
        for name in ["memory", "io", "cpu"] {
            let Some(rows) = series.rows_of(&Entity::named(name)) else { continue };
            // us stalled per second -> share.
            let some = whole_at_most(plot.rate(&rows, pressure::SOME_TOTAL_US, 1e-6));
            plot.add(format!("{name} some"), if name == "memory" { Look::Strong } else { Look::Plain }, some);
            if name == "memory" {
                let full = whole_at_most(plot.rate(&rows, pressure::FULL_TOTAL_US, 1e-6));
                plot.add("memory full", Look::Dashed, full);
            }
        }
        plot.into_chart_or_reason(frame(), recording, &["pressure"])
    });
    chart.unwrap_or_else(|| frame().missing(recording, &["pressure"]))
}

/// Limits shares to 1: the kernel updates the totals at other times than the samples, so a share between two samples
/// can exceed 1.
fn whole_at_most(shares: Vec<Option<f64>>) -> Vec<Option<f64>> {
    shares.into_iter().map(|share| share.map(|share| share.min(1.0))).collect()
}

/// One chart for each column of the workload's own counters; the column's name is the choice.
pub fn workload(recording: &Recording) -> Vec<Chart> {
    let Some(series) = recording.table(Table::Workload) else { return Vec::new() };
    let mut charts = Vec::new();
    for column in &series.columns {
        let counter = column.kind == ColumnKind::Counter;
        let mut plot = Plot::over(recording, series);
        for (entity, rows) in series.by_entity() {
            let values =
                if counter { plot.rate(&rows, &column.name, 1.0) } else { plot.level(&rows, &column.name, 1.0) };
            let name = if entity.name.is_empty() { column.name.clone() } else { entity.name.clone() };
            plot.add(name, Look::Plain, values);
        }
        let unit = match (column.name.ends_with("_bytes") || column.name == "bytes", counter) {
            (true, true) => Unit::BytesPerSecond,
            (true, false) => Unit::Bytes,
            (false, true) => Unit::PerSecond,
            (false, false) => Unit::Count,
        };
        let about = "Counters of the workload itself.";
        let frame = Frame { id: "workload", title: "The workload's own counts", about, unit, scale: Scale::Linear };
        if let Some(chart) = plot.into_chart(frame) {
            charts.push(Chart { choice: column.name.replace('_', " "), ..chart });
        }
    }
    charts
}
