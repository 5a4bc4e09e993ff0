//! The charts of the page, all on one time axis. A chart whose table is missing has the reason instead.

mod activity;
mod latency;
mod lost;
mod memory;
mod queue;
mod tools;

use super::payload::{Chart, Figure, Line, Look, Mark, Palette, Scale, Unit};
use super::thin::{Raw, thin};
use crate::facts;
use flatwater_explain::Explanation;
use flatwater_recording::series::Rows;
use flatwater_recording::{ColumnKey, EventKind, Recording, Series, Source};

/// All charts, in the order of the page.
pub fn all(recording: &Recording, explanation: &Explanation, palette: &Palette) -> Vec<Chart> {
    let mut charts = latency::charts(recording, explanation);
    charts.push(lost::chart(recording, palette));
    charts.extend(queue::charts(recording));
    charts.push(memory::headroom(recording));
    charts.extend(memory::cgroup(recording));
    charts.push(memory::dirty(recording));
    charts.push(activity::reclaim(recording));
    charts.push(activity::pressure(recording));
    charts.extend(activity::workload(recording));
    if recording.header.source == Source::Import {
        // A log contains only the counters of the tools. "Machine and gaps" says so, instead of empty charts.
        charts.extend(tools::charts(recording));
        charts.retain(|chart| chart.missing.is_none());
    }
    charts
}

/// Most vertical lines in a chart; more would hide the curves.
const MARKS_MAX: usize = 200;

pub fn marks(recording: &Recording) -> Vec<Mark> {
    let start_ns = recording.header.clock.start_ns;
    let marked = recording.events.iter().filter(|event| !matches!(event.kind, EventKind::Start(_) | EventKind::End(_)));
    marked
        .take(MARKS_MAX)
        .map(|event| Mark {
            t: Figure((event.at_ns as f64 - start_ns as f64) / 1e9),
            kind: event.kind.name().to_owned(),
            text: event.kind.to_string(),
        })
        .collect()
}

/// A chart without its data.
struct Frame {
    id: &'static str,
    title: &'static str,
    about: &'static str,
    unit: Unit,
    scale: Scale,
}

impl Frame {
    fn chart(self) -> Chart {
        Chart {
            id: self.id,
            title: self.title,
            about: self.about.to_owned(),
            choice: String::new(),
            unit: self.unit,
            right_unit: None,
            scale: self.scale,
            missing: None,
            t: Vec::new(),
            lines: Vec::new(),
            levels: Vec::new(),
        }
    }

    /// The chart with the reason why it is missing, from the gap that matches `words`.
    fn missing(self, recording: &Recording, words: &[&str]) -> Chart {
        Chart { missing: Some(facts::why_missing(&recording.gaps, words)), ..self.chart() }
    }
}

/// Lines over the instants of one sampled table.
struct Plot {
    start_ns: u64,
    instants: Vec<u64>,
    drawn: Vec<(String, Look, bool)>,
    values: Vec<Vec<Option<f64>>>,
}

impl Plot {
    fn over(recording: &Recording, series: &Series) -> Plot {
        let mut instants = series.at_ns().to_vec();
        // Sorted in every valid recording; a hostile one must not break the look-ups of the page.
        instants.sort_unstable();
        instants.dedup();
        Plot { start_ns: recording.header.clock.start_ns, instants, drawn: Vec::new(), values: Vec::new() }
    }

    /// Adds a line unless it has no values: a column that was never read must not look like zero.
    fn add(&mut self, name: impl Into<String>, look: Look, values: Vec<Option<f64>>) -> bool {
        let any = values.iter().any(Option::is_some);
        if any {
            self.drawn.push((name.into(), look, false));
            self.values.push(values);
        }
        any
    }

    fn add_right(&mut self, name: &str, look: Look, values: Vec<Option<f64>>) {
        if self.add(name, look, values)
            && let Some(last) = self.drawn.last_mut()
        {
            last.2 = true;
        }
    }

    fn level(&self, rows: &Rows<'_>, column: impl ColumnKey, factor: f64) -> Vec<Option<f64>> {
        self.placed(rows.values(column).map(|(at_ns, value)| (at_ns, value as f64 * factor)))
    }

    /// A counter's rate between its readings, at the later one.
    fn rate(&self, rows: &Rows<'_>, column: impl ColumnKey, factor: f64) -> Vec<Option<f64>> {
        self.placed(rows.rates_per_s(column).map(|(_, to_ns, rate)| (to_ns, rate * factor)))
    }

    /// Puts values at their instants; the others stay empty.
    fn placed(&self, values: impl Iterator<Item = (u64, f64)>) -> Vec<Option<f64>> {
        let mut placed = vec![None; self.instants.len()];
        for (at_ns, value) in values {
            if let Ok(place) = self.instants.binary_search(&at_ns)
                && let Some(slot) = placed.get_mut(place)
            {
                *slot = Some(value);
            }
        }
        placed
    }

    fn into_chart(self, frame: Frame) -> Option<Chart> {
        if self.drawn.is_empty() || self.instants.len() < 2 {
            return None;
        }
        let t_ns = self.instants.iter().map(|at_ns| at_ns.saturating_sub(self.start_ns)).collect();
        let thinned = thin(&Raw { t_ns, lines: self.values });
        let lines = self.drawn.into_iter().zip(thinned.lines);
        let lines = lines.map(|((name, look, right), y)| Line { name, look, cause: None, right, y });
        Some(Chart { t: thinned.t, lines: lines.collect(), ..frame.chart() })
    }
}

/// Sum of several lines. Missing parts are left out; the sum is missing only if all parts are.
fn summed(parts: &[Vec<Option<f64>>]) -> Vec<Option<f64>> {
    let length = parts.iter().map(Vec::len).max().unwrap_or_default();
    let at = |place: usize| {
        let known = parts.iter().filter_map(|part| part.get(place).copied().flatten());
        known.fold(None, |sum: Option<f64>, value| Some(sum.unwrap_or_default() + value))
    };
    (0..length).map(at).collect()
}
