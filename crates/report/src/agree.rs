//! Prints the comparison of two recordings of one scenario as text: a row for each metric with its errors and both curves.

use super::numbers::time;
use super::text::hanging;
use flatwater_experiment::agree::{Agreement, Alignment, MEAN_PERCENT_AIM, Metric, Side, WORST_PERCENT_AIM};

const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The curve as a row of block characters. Both curves of a metric share a scale, so that their sizes can be compared.
fn curve(values: &[f64], top: f64) -> String {
    let level = |value: &f64| {
        let place = if top > 0.0 { (value / top * 7.0).round().clamp(0.0, 7.0) as usize } else { 0 };
        LEVELS.get(place).copied().unwrap_or('?')
    };
    values.iter().map(level).collect()
}

fn percent(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1} %"))
}

fn verdict(metric: &Metric) -> &'static str {
    let within = |value: Option<f64>, aim: f64| value.is_some_and(|value| value <= aim);
    match metric {
        Metric { moves: false, .. } => "still",
        _ if metric.is_unsteady() => "unsteady",
        Metric { counted: false, .. } => "not counted",
        Metric { same_sign: false, .. } => "WRONG SIGN",
        _ if within(metric.mean_percent, MEAN_PERCENT_AIM) && within(metric.worst_percent, WORST_PERCENT_AIM) => {
            "agrees"
        }
        _ => "off",
    }
}

fn row(text: &mut String, metric: &Metric) {
    let last = |values: &[f64]| values.last().map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"));
    let top = metric.reference.iter().chain(&metric.other).fold(0.0_f64, |top, value| top.max(*value));
    text.push_str(&format!(
        "{:<21} {:>9} {:>9} {:>9} {:>9} {:>9}  {}\n",
        metric.name,
        last(&metric.reference),
        last(&metric.other),
        percent(metric.mean_percent),
        percent(metric.worst_percent),
        percent(metric.spread_percent),
        verdict(metric),
    ));
    if metric.moves {
        text.push_str(&format!("    {}  {}\n", curve(&metric.reference, top), curve(&metric.other, top)));
    }
}

/// The grid of an alignment and its length, in words.
fn grid(alignment: &Alignment) -> String {
    match alignment.by {
        "work" => format!("by work done, over {:.1} MiB of calls", alignment.length / 1_048_576.0),
        _ => format!("by time, over {}", time(alignment.length as u64)),
    }
}

fn table(text: &mut String, alignment: &Alignment) {
    text.push_str(&format!("\n{}\n", grid(alignment)));
    let heads = ["A, last", "B, last", "mean", "worst", "A again"].map(|head| format!(" {head:>9}")).concat();
    text.push_str(&format!("{:<21}{heads}\n", "metric"));
    alignment.metrics.iter().for_each(|metric| row(text, metric));
    if let Some(mean) = alignment.mean_percent {
        text.push_str(&format!("mean error of counted metrics: {mean:.1} %\n"));
    }
    for ordering in &alignment.orderings {
        let kept = if ordering.same { "also in B" } else { "NOT in B" };
        text.push_str(&format!("{} > {}: {kept}\n", ordering.larger_in_reference, ordering.smaller_in_reference));
    }
}

/// Such as `vm (6.1.0-56-cloud-amd64)`.
#[must_use]
pub fn name(side: &Side) -> String {
    format!("{} ({})", side.source, side.kernel.as_deref().unwrap_or("kernel unknown"))
}

#[must_use]
pub fn text(found: &Agreement) -> String {
    let mut text = format!("A, the reference: {}\nB: {}\n", name(&found.reference), name(&found.other));
    found.alignments.iter().for_each(|alignment| table(&mut text, alignment));
    for latency in &found.latencies {
        let (a, b) = (time(latency.reference_ns), time(latency.other_ns));
        text.push_str(&format!(
            "{} {}: {a} and {b}, {}\n",
            latency.operation,
            latency.figure,
            percent(latency.percent)
        ));
    }
    found.notes.iter().for_each(|note| text.push_str(&hanging("note: ", note, 80)));
    text
}
