//! Stall time by cause over time: in which causes the slow calls of each interval spent their time.

use std::collections::BTreeMap;

use super::super::payload::{COLOURS, Chart, Figure, Line, Look, Palette, Scale, Unit};
use super::Frame;
use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::{Call, Cause, Recording};

const STRETCHES: u64 = 180;

fn frame() -> Frame {
    Frame {
        id: "lost",
        title: "Stall time by cause",
        about: "Milliseconds that slow calls spent in each cause, per second of the run; several threads together can \
                lose more than 1000.",
        unit: Unit::MsPerS,
        scale: Scale::Linear,
    }
}

pub fn chart(recording: &Recording, palette: &Palette) -> Chart {
    let calls: Vec<&Call> = recording.foreground_calls().collect();
    if calls.is_empty() {
        return none(recording);
    }
    let start_ns = recording.header.clock.start_ns;
    let ended = calls.iter().map(|call| call.end_ns().saturating_sub(start_ns)).max().unwrap_or_default();
    let span_ns = recording.header.duration_ns.max(ended).max(1);
    let width_ns = span_ns.div_ceil(STRETCHES).max(1);
    let mut sums: BTreeMap<Cause, Vec<u64>> = BTreeMap::new();
    for call in calls {
        if call.after_exit_ns > 0 {
            let sums = sums.entry(Cause::MemcgOverHigh).or_insert_with(|| vec![0; STRETCHES as usize]);
            spread(sums, width_ns, call.end_ns().saturating_sub(start_ns), call.after_exit_ns);
        }
        for segment in &call.segments {
            let from_ns = call.start_ns.saturating_add(segment.offset_ns).saturating_sub(start_ns);
            let sums = sums.entry(segment.cause).or_insert_with(|| vec![0; STRETCHES as usize]);
            spread(sums, width_ns, from_ns, segment.ns);
        }
    }
    let lines = lines(sums, width_ns, palette);
    let t = (0..STRETCHES).map(|n| Figure::seconds(n.saturating_mul(width_ns))).collect();
    Chart { t, lines, ..frame().chart() }
}

fn none(recording: &Recording) -> Chart {
    if recording.latency.is_empty() {
        return frame().missing(recording, &["call", "tracer", "latency"]);
    }
    let threshold = crate::numbers::time(recording.header.threshold_ns);
    Chart { zero: Some(format!("0: no call took {threshold} or longer")), ..frame().chart() }
}

/// Divides a segment among the intervals that it touches.
fn spread(sums: &mut [u64], width_ns: u64, from_ns: u64, ns: u64) {
    let (mut at_ns, end_ns) = (from_ns, from_ns.saturating_add(ns));
    while at_ns < end_ns {
        let place = at_ns / width_ns;
        let Some(sum) = usize::try_from(place).ok().and_then(|place| sums.get_mut(place)) else { return };
        let until_ns = end_ns.min(place.saturating_add(1).saturating_mul(width_ns));
        *sum = sum.saturating_add(until_ns - at_ns);
        at_ns = until_ns;
    }
}

/// The lines from the bottom up: causes with most time first, then one line for all causes without a colour, then
/// unexplained.
fn lines(sums: BTreeMap<Cause, Vec<u64>>, width_ns: u64, palette: &Palette) -> Vec<Line> {
    let mut own: Vec<(usize, Cause, Vec<u64>)> = Vec::new();
    let mut rest: Option<Vec<u64>> = None;
    let mut unexplained: Option<Vec<u64>> = None;
    for (cause, stretches) in sums {
        let place = palette.index(cause.name());
        if cause == Cause::Unexplained {
            unexplained = Some(stretches);
        } else if place < COLOURS {
            own.push((place, cause, stretches));
        } else {
            let sum = rest.get_or_insert_with(|| vec![0; stretches.len()]);
            for (sum, ns) in sum.iter_mut().zip(stretches) {
                *sum = sum.saturating_add(ns);
            }
        }
    }
    own.sort_short_by_key(|(place, _, _)| *place);
    // ns lost in an interval of width_ns -> ms per s.
    let figures = |stretches: Vec<u64>| -> Vec<Option<Figure>> {
        stretches.into_iter().map(|ns| Some(Figure(ns as f64 * 1e3 / width_ns as f64))).collect()
    };
    let line = |name: &str, cause, y| Line { name: name.to_owned(), look: Look::Stack, cause, right: false, y };
    let mut lines: Vec<Line> =
        own.into_iter().map(|(place, cause, y)| line(cause.name(), Some(place), figures(y))).collect();
    lines.extend(rest.map(|y| line("other causes", None, figures(y))));
    let name = Cause::Unexplained.name();
    lines.extend(unexplained.map(|y| line(name, Some(palette.index(name)), figures(y))));
    lines
}

#[cfg(test)]
mod tests {
    use super::spread;

    #[test]
    fn a_segment_over_an_edge_is_divided() {
        let mut sums = [0; 3];
        spread(&mut sums, 100, 50, 120);
        assert_eq!(sums, [50, 70, 0]);
        spread(&mut sums, 100, 290, u64::MAX);
        assert_eq!(sums, [50, 70, 10]);
    }
}
