//! Writes a trace for ui.perfetto.dev: a track per thread with its slow calls and their segments, arrows along wait
//! chains, and counters of free pages and watermarks, dirty pages, and each device's queue by owner.
//!
//! Viewers hold a trace in memory, so it is bounded: `--around` limits it to a few seconds around one call, and beyond
//! `BOUNDS` the shortest calls and waits, values of counters and notes are left out. An event at the start of the trace
//! says how many.

mod proto;
mod tracks;

use std::collections::BTreeMap;

use prost::Message;

use super::{BinaryFormat, Options, ReportError};
use flatwater_explain::Explanation;
use flatwater_recording::schema::{Column, writeback, zones};
use flatwater_recording::units::Nanos;
use flatwater_recording::{Call, Entity, Recording, Table, Task, Wait};
use proto::{COUNTER, DebugAnnotation, INSTANT, Trace, TrackEvent};
use tracks::{Tracks, short};

pub const FORMAT: BinaryFormat = BinaryFormat {
    name: "perfetto",
    sentence: "A trace for ui.perfetto.dev: calls, segments, wait chains, watermarks, dirty pages, queues by owner.",
    render,
};

/// Limits of a trace. The viewer takes about 100 bytes per event and becomes slow at some millions.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// Begin and end events of calls and segments.
    events: usize,
    /// Sleeps with their arrows, five events each.
    waits: usize,
    /// Values of counters.
    values: usize,
    /// Notes about what was not seen.
    notes: usize,
    /// Overlapping intervals of a thread.
    lanes: usize,
}

const BOUNDS: Bounds = Bounds { events: 1_000_000, waits: 100_000, values: 1_000_000, notes: 1_000, lanes: 256 };
/// Time before and after the call that `--around` shows.
const AROUND_NS: u64 = 1_000_000_000;
const FRAMES_SHOWN: usize = 24;

/// What the limits leave out.
#[derive(Debug, Default)]
struct LeftOut {
    calls: usize,
    waits: usize,
    values: usize,
    notes: usize,
}

impl LeftOut {
    fn note(&self) -> Option<String> {
        let parts = [
            (self.calls, "calls"),
            (self.waits, "waits"),
            (self.values, "values of counters"),
            (self.notes, "notes about what was not seen"),
        ];
        let parts = parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
        let parts: Vec<String> = parts.collect();
        let what = parts.join(", ");
        (!parts.is_empty())
            .then(|| format!("left out, the shortest first: {what}; use --around N to see the time around one call"))
    }
}

fn render(recording: &Recording, _explanation: &Explanation, options: &Options) -> Result<Vec<u8>, ReportError> {
    let window = Window::of(recording, options)?;
    Ok(trace(recording, &window, BOUNDS).encode_to_vec())
}

fn trace(recording: &Recording, window: &Window, bounds: Bounds) -> Trace {
    let mut tracks = Tracks::new(bounds.lanes);
    let mut left_out = LeftOut::default();
    let calls = window.calls(recording, bounds.events, &mut left_out);
    for call in calls {
        if call_slices(&mut tracks, recording, call).is_none() {
            left_out.calls += 1;
        }
    }
    for (wait, flow) in window.waits(recording, bounds.waits, &mut left_out).into_iter().zip(1..) {
        if wait_arrow(&mut tracks, recording, wait, flow).is_none() {
            left_out.waits += 1;
        }
    }
    let mut values = Values { tracks: &mut tracks, left: bounds.values, left_out: 0 };
    counters(&mut values, recording, window);
    queues(&mut values, recording, window);
    left_out.values = values.left_out;
    let gaps = recording.gaps_found();
    left_out.notes = gaps.len().saturating_sub(bounds.notes);
    for gap in gaps.iter().take(bounds.notes) {
        let at_ns = gap.at_ns.unwrap_or(window.from_ns).max(window.from_ns);
        tracks.note(at_ns, &format!("not seen: {}: {}", short(&gap.what), short(&gap.why)));
    }
    if let Some(note) = left_out.note() {
        tracks.note(window.from_ns, &note);
    }
    Trace { packet: tracks.packets() }
}

/// The part of the recording that the trace shows.
struct Window {
    from_ns: u64,
    to_ns: u64,
}

impl Window {
    fn of(recording: &Recording, options: &Options) -> Result<Window, ReportError> {
        let Some(rank) = options.around else {
            return Ok(Window { from_ns: recording.header.clock.start_ns, to_ns: u64::MAX });
        };
        let mut by_length: Vec<&Call> = recording.calls.iter().collect();
        by_length.sort_by(|one, other| (other.duration_ns, one.start_ns).cmp(&(one.duration_ns, other.start_ns)));
        let call =
            rank.checked_sub(1).and_then(|index| by_length.get(index)).ok_or_else(|| ReportError::NotEnough {
                format: "--around",
                needs: "a slow call of that rank (1 is the slowest)",
                why: format!("the recording has {} slow calls", by_length.len()),
            })?;
        Ok(Window { from_ns: call.start_ns.saturating_sub(AROUND_NS), to_ns: call.end_ns().saturating_add(AROUND_NS) })
    }

    fn holds(&self, start_ns: u64, duration_ns: u64) -> bool {
        start_ns <= self.to_ns && start_ns.saturating_add(duration_ns) >= self.from_ns
    }

    /// The calls in the window in the order of their start, without the shortest if there are too many.
    fn calls<'a>(&self, recording: &'a Recording, events_max: usize, left_out: &mut LeftOut) -> Vec<&'a Call> {
        let all = recording.calls.iter().filter(|call| self.holds(call.start_ns, call.duration_ns));
        let mut calls: Vec<&Call> = all.collect();
        calls.sort_by_key(|call| std::cmp::Reverse(call.duration_ns));
        let mut events = 0_usize;
        let fit = calls.iter().take_while(|call| {
            events += 2 * (call.segments.len() + 1);
            events <= events_max
        });
        let kept = fit.count();
        left_out.calls += calls.len() - kept;
        calls.truncate(kept);
        calls.sort_by_key(|call| (call.start_ns, call.tid));
        calls
    }

    /// The waits in the window, without the shortest if there are too many.
    fn waits<'a>(&self, recording: &'a Recording, waits_max: usize, left_out: &mut LeftOut) -> Vec<&'a Wait> {
        let all = recording.waits.iter().filter(|wait| self.holds(wait.start_ns, wait.duration_ns));
        let mut waits: Vec<&Wait> = all.collect();
        if waits.len() > waits_max {
            left_out.waits += waits.len() - waits_max;
            waits.sort_by_key(|wait| std::cmp::Reverse(wait.duration_ns));
            waits.truncate(waits_max);
            waits.sort_by_key(|wait| wait.start_ns);
        }
        waits
    }
}

fn note(name: &str, value: impl Into<String>) -> DebugAnnotation {
    DebugAnnotation { name: Some(name.to_owned()), string_value: Some(short(&value.into())) }
}

/// `None` if the thread has no track left.
fn call_slices(tracks: &mut Tracks, recording: &Recording, call: &Call) -> Option<()> {
    let task = Task::new(call.pid, call.tid, call.thread.as_str());
    let track = tracks.lane(&task, "", (call.start_ns, call.end_ns()))?;
    let file = call.file.as_deref().unwrap_or_default();
    let mut notes = vec![note("took", Nanos(call.duration_ns).to_string())];
    notes.extend(call.bytes.map(|bytes| note("bytes", bytes.to_string())));
    notes.extend(call.file.as_ref().map(|file| note("file", file.as_str())));
    if call.damaged {
        notes.push(note("damaged", "an event of this call was lost: a segment may have the wrong cause"));
    }
    if call.still_under_way {
        notes.push(note("still under way", "it had not returned when the recording ended"));
    }
    let name = format!("{}() {file}", call.op.name());
    tracks.begin(track, call.start_ns, slice(name.trim(), "call", notes));
    for segment in &call.segments {
        let start_ns = call.start_ns.saturating_add(segment.offset_ns);
        let mut notes =
            vec![note("duration", segment.duration_basis.name()), note("cause", segment.cause_basis.name())];
        let stack = segment.stack.and_then(|id| recording.stack(id));
        notes.extend(stack.map(|stack| note("stack", frames(&stack.frames))));
        tracks.begin(track, start_ns, slice(segment.cause.name(), "cause", notes));
        tracks.end(track, start_ns.saturating_add(segment.ns));
    }
    tracks.end(track, call.end_ns());
    Some(())
}

fn frames(frames: &[String]) -> String {
    let shown: Vec<&str> = frames.iter().take(FRAMES_SHOWN).map(String::as_str).collect();
    shown.join(" < ")
}

fn slice(name: &str, category: &str, debug_annotations: Vec<DebugAnnotation>) -> TrackEvent {
    TrackEvent {
        name: Some(short(name)),
        categories: vec![category.to_owned()],
        debug_annotations,
        ..TrackEvent::default()
    }
}

/// Adds the sleep, the waker's work during the sleep on a separate track of the waker, and an arrow from the waker to
/// the sleeper. `None` if one of them has no track left.
fn wait_arrow(tracks: &mut Tracks, recording: &Recording, wait: &Wait, flow: u64) -> Option<()> {
    let end_ns = wait.start_ns.saturating_add(wait.duration_ns);
    let span = (wait.start_ns, end_ns);
    let by = match (&wait.waker, wait.request) {
        (Some(task), _) => task.clone(),
        // Interrupts and timers have no thread; their track is below the kernel.
        (None, _) => Task::new(0, 0, wait.waker_kind.name()),
    };
    let sleeper = tracks.lane(&wait.sleeper, "sleeps", span)?;
    let waker = tracks.lane(&by, "makes others wait", span)?;
    let mut notes = vec![
        note("ended by", wait.waker_kind.name()),
        note("known", wait.basis.name()),
        note("depth", wait.depth.to_string()),
    ];
    notes.extend(wait.lock.as_ref().map(|lock| note("lock", lock.as_str())));
    notes.extend(wait.lock_holder.as_ref().map(|task| note("lock holder", format!("{} ({})", task.name, task.tid))));
    let stack = wait.stack.and_then(|id| recording.stack(id));
    notes.extend(stack.map(|stack| note("stack", frames(&stack.frames))));
    let doing = wait.sleeper_doing.as_deref().unwrap_or("sleeps");
    tracks.begin(sleeper, wait.start_ns, slice(doing, "wait", notes));
    let arrives =
        TrackEvent { terminating_flow_ids: vec![flow], kind: Some(INSTANT), ..slice("woken", "wait", Vec::new()) };
    tracks.event(sleeper, end_ns, arrives);
    tracks.end(sleeper, end_ns);
    let doing = wait.waker_doing.as_deref().unwrap_or(wait.waker_kind.name());
    let file = wait.waker_file.as_deref().unwrap_or_default();
    let notes = vec![note("waited", Nanos(wait.duration_ns).to_string()), note("for", wait.sleeper.name.as_str())];
    let starts = TrackEvent { flow_ids: vec![flow], ..slice(format!("{doing} {file}").trim(), "waker", notes) };
    tracks.begin(waker, wait.start_ns, starts);
    tracks.end(waker, end_ns);
    Some(())
}

/// Adds counters, up to a number of values.
struct Values<'a> {
    tracks: &'a mut Tracks,
    left: usize,
    left_out: usize,
}

fn counters(out: &mut Values<'_>, recording: &Recording, window: &Window) {
    let marks = [("free", zones::FREE), ("min", zones::MIN), ("low", zones::LOW), ("high", zones::HIGH)];
    let zone = |entity: &Entity| {
        let node = entity.node.map_or_else(String::new, |node| format!("node {node} "));
        format!("{node}{}", entity.name)
    };
    table(out, recording, window, Table::Zones, &marks, "pages", &zone);
    let dirty = [
        ("dirty", writeback::DIRTY_BYTES),
        ("under writeback", writeback::WRITEBACK_BYTES),
        ("dirty limit", writeback::DIRTY_THRESHOLD_BYTES),
    ];
    table(out, recording, window, Table::Writeback, &dirty, "bytes", &|entity| entity.name.clone());
}

fn table(
    out: &mut Values<'_>,
    recording: &Recording,
    window: &Window,
    wanted: Table,
    columns: &[(&str, Column)],
    unit: &str,
    named: &dyn Fn(&Entity) -> String,
) {
    let Some(series) = recording.table(wanted) else { return };
    for (entity, rows) in series.by_entity() {
        for (label, column) in columns {
            let name = format!("{} {label}", named(entity));
            let values = rows.values(*column).filter(|(at_ns, _)| window.holds(*at_ns, 0));
            out.count(name.trim(), unit, values);
        }
    }
}

impl Values<'_> {
    fn count(&mut self, name: &str, unit: &str, values: impl Iterator<Item = (u64, i64)>) {
        let mut values = values.peekable();
        if values.peek().is_none() {
            return;
        }
        if self.left == 0 {
            self.left_out += values.count();
            return;
        }
        let track = self.tracks.counter(&short(name), unit);
        for (at_ns, value) in values {
            if self.left == 0 {
                self.left_out += 1;
                continue;
            }
            self.left -= 1;
            let event = TrackEvent { kind: Some(COUNTER), counter_value: Some(value), ..TrackEvent::default() };
            self.tracks.event(track, at_ns, event);
        }
    }
}

/// Adds counters of the bytes that a device completed per interval, by owner; 0 in an interval without a row of this
/// owner.
fn queues(out: &mut Values<'_>, recording: &Recording, window: &Window) {
    let mut by_owner: BTreeMap<(String, String), BTreeMap<u64, i64>> = BTreeMap::new();
    let rows = recording.queue_owners.iter().filter(|row| window.holds(row.start_ns, row.width_ns));
    for row in rows {
        let owner = row.owner.as_ref().map_or_else(|| "owner not known".to_owned(), |task| task.name.clone());
        let values = by_owner.entry((row.device.clone(), owner)).or_default();
        let sum = values.entry(row.start_ns).or_default();
        *sum = sum.saturating_add(i64::try_from(row.bytes).unwrap_or(i64::MAX));
        values.entry(row.start_ns.saturating_add(row.width_ns)).or_default();
    }
    for ((device, owner), values) in by_owner {
        out.count(&format!("queue of {device}: {owner}"), "bytes", values.into_iter());
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::proto::{SLICE_BEGIN, SLICE_END, Trace};
    use crate::Options;
    use flatwater_recording::{Call, OpKind, QueueOwner, Recording, Segment, Task, Wait, WakerKind};

    fn trace(recording: &Recording, options: &Options) -> Trace {
        let bytes =
            (super::FORMAT.render)(recording, &flatwater_explain::explain(recording), options).expect("rendered");
        Trace::decode(&bytes[..]).expect("protobuf")
    }

    fn call(start_ns: u64, duration_ns: u64, tid: u32) -> Call {
        let call = Call::new(OpKind::Fsync, start_ns, duration_ns, vec![Segment::unexplained(duration_ns)]);
        call.by(tid, tid, "pg\u{1b}[31m")
    }

    #[test]
    fn slices_end_and_nest() {
        let mut recording = Recording {
            calls: (0..40).map(|at| call(at * 7, 30, 1 + at as u32 % 3)).collect(),
            ..Recording::default()
        };
        let mut wait = Wait { start_ns: 20, duration_ns: 9, waker_kind: WakerKind::Task, ..Wait::default() };
        (wait.sleeper, wait.waker) = (Task::new(1, 1, "pg"), Some(Task::new(9, 9, "dd")));
        recording.waits.push(wait);
        let trace = trace(&recording, &Options::default());
        let mut open: std::collections::BTreeMap<u64, i64> = Default::default();
        let mut last = 0;
        for packet in trace.packet.iter().filter(|packet| packet.track_event.is_some()) {
            let at = packet.timestamp.expect("a time");
            assert!(at >= last, "in the order of time");
            last = at;
            let event = packet.track_event.as_ref().expect("an event");
            let depth = open.entry(event.track_uuid.expect("a track")).or_default();
            match event.kind {
                Some(SLICE_BEGIN) => *depth += 1,
                Some(SLICE_END) => *depth -= 1,
                _ => {}
            }
            assert!((0..=2).contains(depth), "overlapping calls are on separate lanes");
            assert!(!event.name.as_deref().unwrap_or_default().contains('\u{1b}'));
        }
        assert!(open.values().all(|depth| *depth == 0), "{open:?}");
        let flows = |pick: fn(&super::proto::TrackEvent) -> &Vec<u64>| {
            trace
                .packet
                .iter()
                .filter_map(|packet| packet.track_event.as_ref())
                .flat_map(|event| pick(event).clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(flows(|event| &event.flow_ids), flows(|event| &event.terminating_flow_ids));
    }

    /// Only calls were bounded: waits, values, notes, overlapping intervals and the length of names were not.
    #[test]
    fn everything_in_a_trace_is_bounded_and_what_is_left_out_is_counted() {
        let small = super::Bounds { events: 40, waits: 5, values: 30, notes: 2, lanes: 3 };
        let wait = |at: u64| {
            let mut wait = Wait { start_ns: at, duration_ns: 1_000 + at, ..Wait::default() };
            (wait.sleeper, wait.waker) = (Task::new(1, 1, "pg"), Some(Task::new(9, 9, "dd")));
            wait
        };
        let mut recording = Recording {
            // All at once on one thread: three have a lane.
            calls: (0..100).map(|at| call(at, 10_000, 1)).collect(),
            waits: (0..50).map(wait).collect(),
            gaps: (0..40).map(|at| flatwater_recording::Gap::new(format!("gap {at}"), "why", "remedy")).collect(),
            ..Recording::default()
        };
        recording.calls[0].file = Some("x".repeat(1 << 20));
        for at in 0..500 {
            let owner = Some(Task::new(1, 1, format!("owner-{}", at % 7)));
            let row =
                QueueOwner { start_ns: at, width_ns: 1, device: "vda".to_owned(), owner, ..QueueOwner::default() };
            recording.queue_owners.push(row);
        }
        let window = super::Window { from_ns: 0, to_ns: u64::MAX };
        let trace = super::trace(&recording, &window, small);
        let events: Vec<_> = trace.packet.iter().filter_map(|packet| packet.track_event.as_ref()).collect();
        let tracks = trace.packet.len() - events.len();
        let of_waits = 5 * small.waits;
        assert!(events.len() <= small.events + of_waits + small.values + small.notes + 1, "{} events", events.len());
        assert!(tracks <= 3 * small.lanes + 20, "{tracks} tracks");
        let names: Vec<&str> = events.iter().filter_map(|event| event.name.as_deref()).collect();
        let note = names.iter().find(|name| name.starts_with("left out")).expect("a note");
        let gaps = recording.gaps_found().len() - 2;
        assert!(note.contains("97 calls, 47 waits, "), "{note}");
        assert!(note.contains(" values of counters") && note.contains(&format!("{gaps} notes about")), "{note}");
        assert!(trace.encode_to_vec().len() < 40_000, "{} bytes", trace.encode_to_vec().len());
    }

    #[test]
    fn around_shows_only_calls_within_a_second() {
        const S: u64 = 1_000_000_000;
        let calls = vec![call(S, 5, 1), call(10 * S, 50, 2), call(11 * S, 5, 3), call(60 * S, 500, 4)];
        let recording = Recording { calls, ..Recording::default() };
        let begins = |around| {
            let options = Options { around, ..Options::default() };
            let trace = trace(&recording, &options);
            trace.packet.iter().filter(|p| p.track_event.as_ref().is_some_and(|e| e.kind == Some(SLICE_BEGIN))).count()
                / 2
        };
        assert_eq!((begins(None), begins(Some(1)), begins(Some(2))), (4, 1, 2));
        let options = Options { around: Some(5), ..Options::default() };
        let refused = (super::FORMAT.render)(&recording, &flatwater_explain::explain(&recording), &options);
        assert!(refused.is_err());
    }
}
