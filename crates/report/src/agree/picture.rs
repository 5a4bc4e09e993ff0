//! Draws the result of `agree` as SVG: a small chart for each metric that moves, with both curves on one scale.

use std::fmt::Write as _;

use super::{grid, name, percent, verdict};
use flatwater_experiment::agree::{Agreement, Alignment, Metric};

const COLUMNS: usize = 3;
const WIDTH: usize = 300;
const HEIGHT: usize = 130;
const MARGIN: usize = 14;
const CHART_TOP: usize = 40;
const CHART_HEIGHT: usize = 66;
const COLOURS: [&str; 2] = ["#1f5fa8", "#c8501e"];

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn curve(svg: &mut String, values: &[f64], top: f64, corner: (usize, usize), colour: &str) {
    let step = (WIDTH - 2 * MARGIN) as f64 / (values.len().max(2) - 1) as f64;
    let points: Vec<String> = values
        .iter()
        .enumerate()
        .map(|(place, value)| {
            let share = if top > 0.0 { (value / top).clamp(0.0, 1.0) } else { 0.0 };
            let x = (corner.0 + MARGIN) as f64 + step * place as f64;
            let y = (corner.1 + CHART_TOP + CHART_HEIGHT) as f64 - share * CHART_HEIGHT as f64;
            format!("{x:.1},{y:.1}")
        })
        .collect();
    let _ =
        writeln!(svg, r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="1.6"/>"#, points.join(" "));
}

fn chart(svg: &mut String, metric: &Metric, corner: (usize, usize)) {
    let top = metric.reference.iter().chain(&metric.other).fold(0.0_f64, |top, value| top.max(*value));
    let (x, y) = (corner.0 + MARGIN, corner.1);
    let said =
        format!("mean {}, worst {}: {}", percent(metric.mean_percent), percent(metric.worst_percent), verdict(metric));
    let floor = y + CHART_TOP + CHART_HEIGHT;
    let _ = write!(
        svg,
        r##"<text x="{x}" y="{}" class="head">{}</text>
<text x="{x}" y="{}" class="small">{}</text>
<text x="{x}" y="{}" class="small">top {top:.0} {}</text>
<line x1="{x}" y1="{floor}" x2="{}" y2="{floor}" stroke="#999"/>
"##,
        y + 14,
        escaped(&metric.name),
        y + 28,
        escaped(&said),
        floor + 14,
        escaped(metric.unit),
        corner.0 + WIDTH - MARGIN,
    );
    curve(svg, &metric.reference, top, corner, COLOURS[0]);
    curve(svg, &metric.other, top, corner, COLOURS[1]);
}

fn rows(alignment: &Alignment) -> usize {
    alignment.metrics.iter().filter(|metric| metric.moves).count().div_ceil(COLUMNS)
}

/// The SVG, with the alignments one below the other.
#[must_use]
pub fn svg(found: &Agreement) -> String {
    let height: usize = 60 + found.alignments.iter().map(|alignment| 40 + rows(alignment) * HEIGHT).sum::<usize>();
    let width = COLUMNS * WIDTH;
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">
<style>text {{ font: 12px sans-serif; fill: #222 }} .head {{ font-weight: bold }} .small {{ font-size: 10px; fill: #555 }}</style>
<rect width="100%" height="100%" fill="#fff"/>
<text x="{MARGIN}" y="20" fill="{}"><tspan fill="{}">A, the reference: {}</tspan></text>
<text x="{MARGIN}" y="38"><tspan fill="{}">B: {}</tspan></text>
"##,
        COLOURS[0],
        COLOURS[0],
        escaped(&name(&found.reference)),
        COLOURS[1],
        escaped(&name(&found.other)),
    );
    let mut y = 60;
    for alignment in &found.alignments {
        let _ = writeln!(svg, r#"<text x="{MARGIN}" y="{}" class="head">{}</text>"#, y + 16, escaped(&grid(alignment)));
        y += 30;
        for (place, metric) in alignment.metrics.iter().filter(|metric| metric.moves).enumerate() {
            chart(&mut svg, metric, (place % COLUMNS * WIDTH, y + place / COLUMNS * HEIGHT));
        }
        y += rows(alignment) * HEIGHT + 10;
    }
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::svg;
    use flatwater_experiment::agree::{Agreement, Alignment, Metric, Side};

    #[test]
    fn only_metrics_that_move_are_drawn_with_both_curves() {
        let side = || Side { source: "vm", kernel: Some("6.1 <x>".to_owned()), duration_ns: 1 };
        let metric = |moves| Metric {
            name: "a & b".to_owned(),
            unit: "pages",
            reference: vec![0.0, 1.0, 4.0],
            other: vec![0.0, 2.0, 3.0],
            moves,
            moves_in_reference: true,
            same_sign: true,
            mean_percent: Some(10.0),
            worst_percent: None,
            spread_percent: None,
            counted: moves,
        };
        let alignment = Alignment {
            by: "time",
            length: 1e9,
            metrics: vec![metric(true), metric(false)],
            orderings: Vec::new(),
            mean_percent: None,
        };
        let found = Agreement {
            flatwater: 1,
            kind: "agreement",
            reference: side(),
            other: side(),
            alignments: vec![alignment],
            latencies: Vec::new(),
            notes: Vec::new(),
        };
        let picture = svg(&found);
        assert_eq!(picture.matches("<polyline").count(), 2);
        assert!(picture.contains("a &amp; b") && picture.contains("6.1 &lt;x&gt;"), "{picture}");
    }
}
