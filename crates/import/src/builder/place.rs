//! Places each track on the time axis of the recording.

use std::collections::{HashMap, HashSet};

use super::{Builder, Track};
use crate::when::{DAY_NS, Zero, days, year_of};
use flatwater_recording::Table;

/// The offset of each track, and the zero of the axis.
#[derive(Debug, Default)]
pub struct Places {
    shift: Vec<i64>,
    /// The earliest instant on the axis; the recording's instants count from it.
    base: i64,
    end: i64,
    /// Whether the axis counts from 1970.
    pub wall: bool,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    first: i64,
    last: i64,
}

impl Span {
    fn with(span: Option<Span>, at: i64) -> Span {
        span.map_or(Span { first: at, last: at }, |span| Span { first: span.first.min(at), last: span.last.max(at) })
    }
}

impl Places {
    /// Converts a track's time to the recording's clock, ns from its start.
    #[must_use]
    pub fn at_ns(&self, track: Track, at: i64) -> u64 {
        let shift = self.shift.get(track.0 as usize).copied().unwrap_or(0);
        u64::try_from(at.saturating_add(shift).saturating_sub(self.base)).unwrap_or(0)
    }

    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        u64::try_from(self.end.saturating_sub(self.base)).unwrap_or(0)
    }

    #[must_use]
    pub fn base(&self) -> i64 {
        self.base
    }
}

/// The track, first and last instant of every item.
fn instants(builder: &Builder) -> impl Iterator<Item = (Track, i64, i64)> {
    let rows = builder.rows.iter().map(|row| (row.track, row.at, row.at));
    let calls = builder.calls.iter().map(|call| (call.track, call.at, ends(call.at, call.item.duration_ns)));
    let events = builder.events.iter().map(|event| (event.track, event.at, event.at));
    let latency = builder.latency.iter().map(|place| (place.track, place.at, ends(place.at, place.item.width_ns)));
    let checkpoints = builder.checkpoints.iter().map(|place| (place.track, place.at, place.at));
    let delays = builder.delays.iter().map(|place| (place.track, place.at, place.at));
    let sampled = builder.sampled.iter().map(|place| (place.track, place.at, place.at));
    rows.chain(calls).chain(events).chain(latency).chain(checkpoints).chain(delays).chain(sampled)
}

fn ends(at: i64, ns: u64) -> i64 {
    at.saturating_add(i64::try_from(ns).unwrap_or(i64::MAX))
}

/// Moves a date without a year from 1972 to this year.
fn into_year(ns: i64, year: i64) -> i64 {
    let (Some(from), Some(to)) = (days(1972, 1, 1), days(year, 1, 1)) else { return ns };
    let day = ns.div_euclid(DAY_NS) - from;
    let leap = days(year, 2, 29).is_some();
    let skip = i64::from(!leap && day >= 60);
    ns.saturating_add((to - from - skip).saturating_mul(DAY_NS))
}

pub fn places(builder: &mut Builder) -> Places {
    let mut spans: Vec<Option<Span>> = vec![None; builder.tracks.len()];
    for (track, first, last) in instants(builder) {
        if let Some(span) = spans.get_mut(track.0 as usize) {
            *span = Some(Span::with(Some(Span::with(*span, first)), last));
        }
    }
    let earliest = |zero: Zero| {
        let known = builder.tracks.iter().zip(&spans).filter(|(info, _)| info.zero == zero);
        known.filter_map(|(_, span)| span.map(|span| span.first)).min()
    };
    let (epoch, year, boot) = (earliest(Zero::Epoch), earliest(Zero::Year), earliest(Zero::Boot));
    let year_shift = match (epoch, year) {
        (Some(epoch), Some(year)) => into_year(year, year_of(epoch)).saturating_sub(year),
        _ => 0,
    };
    let dated = epoch.or(year.map(|year| year.saturating_add(year_shift)));
    let day_shift = dated.map_or(0, |dated| dated.div_euclid(DAY_NS).saturating_mul(DAY_NS));
    let clocked = [dated, earliest(Zero::Day).map(|day| day.saturating_add(day_shift))];
    let start = clocked.into_iter().flatten().min();

    let mut places = Places { wall: epoch.is_some(), shift: vec![0; spans.len()], ..Places::default() };
    for ((info, span), shift) in builder.tracks.iter().zip(&spans).zip(&mut places.shift) {
        *shift = match (info.zero, span) {
            (Zero::Year, Some(_)) => year_shift,
            (Zero::Day, Some(_)) => day_shift,
            (Zero::Boot, Some(_)) => start.unwrap_or(0).saturating_sub(boot.unwrap_or(0)),
            _ => 0,
        };
    }
    line_up(builder, &mut places, &spans, start.unwrap_or(0));
    say_what_was_assumed(builder, &spans, start.is_some());
    let shifted = spans.iter().zip(&places.shift).filter_map(|(span, shift)| Some((span.as_ref()?, *shift)));
    let ends = shifted.map(|(span, shift)| (span.first.saturating_add(shift), span.last.saturating_add(shift)));
    let all = ends.fold(None, |all, (first, last)| Some(Span::with(Some(Span::with(all, first)), last)));
    (places.base, places.end) = all.map_or((0, 0), |all| (all.first, all.last));
    places
}

/// Places tracks without a clock: all at the start, but tracks that fill the same rows one after the other.
fn line_up(builder: &Builder, places: &mut Places, spans: &[Option<Span>], start: i64) {
    let mut fills: HashMap<Track, HashSet<(Table, u32)>> = HashMap::new();
    for row in &builder.rows {
        fills.entry(row.track).or_default().insert((row.table, row.entity));
    }
    let mut free_from: HashMap<(Table, u32), i64> = HashMap::new();
    for (index, (info, span)) in builder.tracks.iter().zip(spans).enumerate() {
        let (Zero::Start, Some(span)) = (info.zero, span) else { continue };
        let filled = u32::try_from(index).ok().and_then(|index| fills.get(&Track(index)));
        let keys = || filled.into_iter().flatten();
        let from = keys().filter_map(|key| free_from.get(key).copied()).max().unwrap_or(start);
        // The times of such a track count from the start of the log.
        let shift = from.saturating_sub(span.first.min(0));
        if let Some(place) = places.shift.get_mut(index) {
            *place = shift;
        }
        let after = span.last.saturating_add(shift).saturating_add(1_000_000_000);
        for key in keys() {
            free_from.insert(*key, after);
        }
    }
}

fn say_what_was_assumed(builder: &mut Builder, spans: &[Option<Span>], clocked: bool) {
    let loose: Vec<String> = (builder.tracks.iter().zip(spans))
        .filter(|(info, span)| span.is_some() && matches!(info.zero, Zero::Start | Zero::Boot))
        .map(|(info, _)| info.what.clone())
        .collect();
    let used = spans.iter().flatten().count();
    if loose.is_empty() || used < 2 || (!clocked && loose.len() < 2) {
        return;
    }
    let some = loose.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
    let why = "no wall clock: placed at the start of the recording, so what happened at the same time is not known";
    builder.gap(format!("time of {some}"), why, "record with times (vmstat -t, sar, `date` before each snapshot)");
}
