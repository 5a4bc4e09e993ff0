//! Puts everything on one time axis and builds the recording.

use super::place::{Places, places};
use super::{Builder, outcome, rows, understood};
use flatwater_recording::{
    Call, Clock, Event, FORMAT_VERSION, Gap, Header, LatencyBucket, Note, Recording, Source, Target,
};

impl Builder {
    /// Builds one recording from all files.
    #[must_use]
    pub fn finish(mut self, files: &[String]) -> Recording {
        self.begin_lone_totals();
        let places = places(&mut self);
        let series = rows::series(&mut self, &places);
        let outcomes = outcome::outcomes(&self, &places);
        let (calls, latency, events) =
            (calls(&mut self, &places), latency(&mut self, &places), events(&mut self, &places));
        let sampled_tasks = understood::sampled_tasks(&mut self, &places);
        let (mut gaps, notes) = self.remarks.into_parts();
        gaps.extend(self.limits.gaps());
        gaps.extend(self.problems.iter().map(|(file, error)| {
            let what = format!("{file} line {}", error.line);
            let why = format!("column {}: expected {}, found {}", error.column, error.expected, error.found);
            Gap::new(what, why, "fix or remove the line; everything else was read and kept")
        }));
        let header = Header {
            format_version: FORMAT_VERSION,
            written_by: env!("CARGO_PKG_VERSION").to_owned(),
            source: Source::Import,
            clock: Clock { start_ns: 0, wall_offset_ns: places.wall.then(|| places.base()) },
            duration_ns: places.duration_ns(),
            machine: self.machine,
            setup: self.setup,
            threshold_ns: calls.iter().map(|call| call.duration_ns).min().unwrap_or(0),
            target: Target { what: format!("import of {}", files.join(", ")), ..Target::default() },
            complete: true,
            import: Some(self.summary),
            sampled_tasks,
            notes: notes.into_iter().map(Note::Text).collect(),
            ..Header::default()
        };
        Recording {
            header,
            latency,
            calls,
            stacks: self.stacks,
            series,
            events,
            gaps,
            outcomes,
            ..Recording::default()
        }
    }
}

fn calls(builder: &mut Builder, places: &Places) -> Vec<Call> {
    let placed = std::mem::take(&mut builder.calls);
    let at = |placed: super::Placed<Call>| {
        let mut call = placed.item;
        call.start_ns = places.at_ns(placed.track, placed.at);
        call
    };
    let mut calls: Vec<Call> = placed.into_iter().map(at).collect();
    calls.sort_by_key(|call| call.start_ns);
    calls
}

fn latency(builder: &mut Builder, places: &Places) -> Vec<LatencyBucket> {
    let placed = std::mem::take(&mut builder.latency);
    let at = |placed: super::Placed<LatencyBucket>| LatencyBucket {
        start_ns: places.at_ns(placed.track, placed.at),
        ..placed.item
    };
    let mut latency: Vec<LatencyBucket> = placed.into_iter().map(at).collect();
    latency.sort_by_key(|bucket| bucket.start_ns);
    latency
}

fn events(builder: &mut Builder, places: &Places) -> Vec<Event> {
    let placed = std::mem::take(&mut builder.events);
    let mut events: Vec<Event> =
        (placed.into_iter()).map(|placed| Event::new(places.at_ns(placed.track, placed.at), placed.item)).collect();
    events.sort_by_key(|event| event.at_ns);
    events
}
