//! The charts of the page, all on one time axis. A chart whose table is missing has the reason instead.

mod activity;
mod latency;
mod lost;
mod memory;
mod queue;
mod tools;

use super::payload::{Chart, Figure, Line, Look, Mark, Palette, Scale, Unit};
use super::thin::{Raw, Thin, thin};
use crate::facts;
use crate::numbers::{counted, time};
use flatwater_explain::Explanation;
use flatwater_recording::schema::ColumnKey;
use flatwater_recording::{EventKind, Recording, Rows, Series, Source};

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
    fn chart(&self) -> Chart {
        Chart {
            id: self.id,
            title: self.title,
            about: self.about.to_owned(),
            choice: String::new(),
            unit: self.unit,
            right_unit: None,
            scale: self.scale,
            missing: None,
            zero: None,
            t: Vec::new(),
            holes: Vec::new(),
            lines: Vec::new(),
            levels: Vec::new(),
        }
    }

    /// The chart with the reason why it is missing, from the gap that matches `words`.
    fn missing(&self, recording: &Recording, words: &[&str]) -> Chart {
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
        let t_ns: Vec<u64> = self.instants.iter().map(|at_ns| at_ns.saturating_sub(self.start_ns)).collect();
        let holes = holes(&t_ns);
        if let Some(zero) = self.constantly_zero(&t_ns, &holes) {
            return Some(Chart { zero: Some(zero), ..frame.chart() });
        }
        let thinned = broken(thin(&Raw { t_ns, lines: self.values }), &holes);
        let lines = self.drawn.into_iter().zip(thinned.lines);
        let lines = lines.map(|((name, look, right), y)| Line { name, look, cause: None, right, y });
        let holes = holes.iter().map(|(from_ns, to_ns)| (Figure::seconds(*from_ns), Figure::seconds(*to_ns)));
        Some(Chart { t: thinned.t, lines: lines.collect(), holes: holes.collect(), ..frame.chart() })
    }

    /// The chart, or the reason why it is missing: a single reading, or the gap that matches `words`.
    fn into_chart_or_reason(self, frame: Frame, recording: &Recording, words: &[&str]) -> Chart {
        if !self.drawn.is_empty() && self.instants.len() == 1 {
            let why = "it was read once, and a chart needs two readings".to_owned();
            return Chart { missing: Some(why), ..frame.chart() };
        }
        let missing = frame.missing(recording, words);
        self.into_chart(frame).unwrap_or(missing)
    }

    /// What was read, if every reading is 0. Missing readings are counted separately.
    fn constantly_zero(&self, t_ns: &[u64], holes: &[(u64, u64)]) -> Option<String> {
        let known = || self.values.iter().flatten().flatten();
        if known().next().is_none() || known().any(|value| *value != 0.0) {
            return None;
        }
        let names: Vec<&str> = self.drawn.iter().map(|(name, _, _)| name.as_str()).collect();
        let (from, to) = (t_ns.first()?, t_ns.last()?);
        // A rate has no value at the first instant.
        let missing =
            self.values.iter().map(|line| line.iter().skip(1).filter(|value| value.is_none()).count()).max()?;
        let failed = match missing {
            0 => String::new(),
            n => format!("; at most {} of a line missing", counted(n as u64, "reading", "readings")),
        };
        let unread = holes.iter().map(|(from, to)| format!("; not read from {} to {}", time(*from), time(*to)));
        let unread: String = unread.take(UNREAD_LISTED).collect();
        let (from, to) = (time(*from), time(*to));
        Some(format!("0 in every reading from {from} to {to}: {}{failed}{unread}", names.join(", ")))
    }
}

/// Intervals without readings that a sentence lists, and that a chart shows.
const UNREAD_LISTED: usize = 3;
const HOLES_MAX: usize = 100;
/// Steps on each side of a step that it is compared with, and how many times longer it is if readings are missing.
const STEPS_BESIDE: usize = 5;
const LONGER: u64 = 5;

/// The longest intervals without readings, in the order of time: steps that are much longer than those before and those
/// after them. The rate of the readings may change during a recording.
fn holes(t_ns: &[u64]) -> Vec<(u64, u64)> {
    let steps: Vec<u64> = t_ns.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
    let middle = |beside: &[u64]| {
        let mut sorted = beside.to_vec();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    };
    let mut found: Vec<(u64, usize)> = Vec::new();
    for (place, &step_ns) in steps.iter().enumerate() {
        let before = middle(&steps[place.saturating_sub(STEPS_BESIDE)..place]);
        let after = middle(&steps[place + 1..(place + 1 + STEPS_BESIDE).min(steps.len())]);
        // The first and the last step have one side only: its nearest step counts as well.
        let nearest = match (place, place + 1 == steps.len()) {
            (0, _) => steps.get(1),
            (_, true) => steps.get(place - 1),
            _ => None,
        };
        let usual_ns = before.max(after).max(nearest.copied().unwrap_or_default());
        if usual_ns > 0 && step_ns > usual_ns.saturating_mul(LONGER) {
            found.push((step_ns, place));
        }
    }
    found.sort_unstable_by_key(|(step_ns, _)| std::cmp::Reverse(*step_ns));
    found.truncate(HOLES_MAX);
    let mut holes: Vec<(u64, u64)> = found.into_iter().map(|(_, place)| (t_ns[place], t_ns[place + 1])).collect();
    holes.sort_unstable();
    holes
}

/// Breaks every line in the middle of each hole.
fn broken(mut thinned: Thin, holes: &[(u64, u64)]) -> Thin {
    for (from_ns, to_ns) in holes {
        let middle = Figure::seconds(from_ns + (to_ns - from_ns) / 2);
        let place = thinned.t.partition_point(|t| t.0 < middle.0);
        if thinned.t.get(place).is_some_and(|t| t.0 == middle.0) {
            continue;
        }
        thinned.t.insert(place, middle);
        thinned.lines.iter_mut().for_each(|line| line.insert(place.min(line.len()), None));
    }
    thinned
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

#[cfg(test)]
mod tests {
    use super::{Figure, Frame, Look, Plot, Scale, Unit, broken, holes};
    use crate::html::thin::Thin;
    use flatwater_recording::Recording;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_long_step_between_short_ones_is_a_hole_and_a_change_of_rate_is_not() {
        let at = |ms: &[u64]| ms.iter().map(|ms| ms * MS).collect::<Vec<u64>>();
        assert_eq!(holes(&at(&[0, 100, 200, 300, 12_300, 12_400])), [(300 * MS, 12_300 * MS)]);
        assert_eq!(holes(&at(&[0, 100, 200, 12_200])), [(200 * MS, 12_200 * MS)], "at the end");
        assert_eq!(holes(&at(&[0, 1000, 2000, 3000, 3100, 3200, 3300])), [], "the rate rises after the look-back");
        assert_eq!(holes(&at(&[0, 9000])), [], "two readings alone");
        assert_eq!(holes(&[u64::MAX, 0, u64::MAX]), [], "instants out of order do not panic");
    }

    #[test]
    fn a_hole_breaks_every_line() {
        let line = vec![Some(Figure(1.0)), Some(Figure(2.0))];
        let thin = Thin { t: vec![Figure(0.0), Figure(10.0)], lines: vec![line] };
        let thin = broken(thin, &[(0, 10_000 * MS)]);
        assert_eq!(thin.t, [Figure(0.0), Figure(5.0), Figure(10.0)]);
        assert_eq!(thin.lines[0], [Some(Figure(1.0)), None, Some(Figure(2.0))]);
    }

    fn plot(instants: &[u64], values: &[Option<f64>]) -> Plot {
        let instants = instants.iter().map(|ms| ms * MS).collect();
        let mut plot = Plot { start_ns: 0, instants, drawn: Vec::new(), values: Vec::new() };
        plot.add("scanned", Look::Plain, values.to_vec());
        plot
    }

    fn frame() -> Frame {
        Frame { id: "reclaim", title: "", about: "", unit: Unit::Count, scale: Scale::Linear }
    }

    /// A line of zeros takes no room on the page, and a reading that failed is not counted as a zero.
    #[test]
    fn zeros_become_a_sentence_and_missing_readings_do_not() {
        let zero =
            |values: &[Option<f64>]| plot(&[0, 100, 200], values).into_chart(frame()).and_then(|chart| chart.zero);
        assert_eq!(
            zero(&[None, Some(0.0), Some(0.0)]).as_deref(),
            Some("0 in every reading from 0 ns to 200 ms: scanned")
        );
        let failed = zero(&[Some(0.0), None, Some(0.0)]).unwrap_or_default();
        assert!(failed.ends_with("; at most 1 reading of a line missing"), "{failed}");
        assert_eq!(zero(&[Some(0.0), Some(0.0), Some(1.0)]), None);
        assert!(plot(&[0, 100], &[None, None]).into_chart(frame()).is_none(), "nothing was read");
    }

    #[test]
    fn one_reading_is_the_reason_for_a_missing_chart() {
        let chart = plot(&[100], &[Some(3.0)]).into_chart_or_reason(frame(), &Recording::default(), &["vmstat"]);
        assert_eq!(chart.missing.as_deref(), Some("it was read once, and a chart needs two readings"));
    }
}
