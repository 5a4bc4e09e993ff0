//! The tracks of a trace: one per thread, further lanes where its intervals overlap, and counters.

use std::collections::BTreeMap;

use super::proto::{
    CounterDescriptor, INSTANT, ProcessDescriptor, SLICE_BEGIN, SLICE_END, ThreadDescriptor, TracePacket,
    TrackDescriptor, TrackEvent,
};
use crate::numbers::clean;
use flatwater_recording::Task;

/// Id of the only writer; Perfetto keeps state per writer.
const SEQUENCE: u32 = 1;

/// Descriptors and events in the order in which they were added.
#[derive(Debug, Default)]
pub struct Tracks {
    descriptors: Vec<TrackDescriptor>,
    /// (instant, event). They are sorted by instant with a stable sort, so that an end added before a begin of the same
    /// instant stays before it.
    events: Vec<(u64, TrackEvent)>,
    processes: BTreeMap<u32, u64>,
    threads: BTreeMap<(u32, u32, &'static str), Vec<Lane>>,
    counters: BTreeMap<String, u64>,
    notes: Option<u64>,
    last_uuid: u64,
    lanes_max: usize,
}

/// Longer texts are cut: a name of a recording may have a megabyte.
const TEXT_BYTES_MAX: usize = 1024;

/// A text of a recording for a name or an annotation.
pub fn short(text: &str) -> String {
    if text.len() <= TEXT_BYTES_MAX {
        return clean(text);
    }
    let end = (0..=TEXT_BYTES_MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    clean(text.get(..end).unwrap_or_default()) + " ..."
}

#[derive(Debug)]
struct Lane {
    uuid: u64,
    until_ns: u64,
}

impl Tracks {
    /// `lanes_max`: maximum number of tracks of a thread.
    pub fn new(lanes_max: usize) -> Tracks {
        Tracks { lanes_max, ..Tracks::default() }
    }

    fn fresh(&mut self, descriptor: TrackDescriptor) -> u64 {
        self.last_uuid += 1;
        self.descriptors.push(TrackDescriptor { uuid: Some(self.last_uuid), ..descriptor });
        self.last_uuid
    }

    /// Reserves a track for the interval and returns its id: the thread's own track, or one below its process named
    /// after `what`. `None` if `lanes_max` intervals of this thread overlap.
    pub fn lane(&mut self, task: &Task, what: &'static str, (start_ns, end_ns): (u64, u64)) -> Option<u64> {
        let process = self.process(task);
        let lanes_max = self.lanes_max;
        let lanes = self.threads.entry((task.pid, task.tid, what)).or_default();
        if let Some(lane) = lanes.iter_mut().find(|lane| lane.until_ns <= start_ns) {
            lane.until_ns = end_ns;
            return Some(lane.uuid);
        }
        if lanes.len() >= lanes_max {
            return None;
        }
        // A thread has one thread descriptor. Tracks for overlapping intervals have only a name.
        let first = what.is_empty() && lanes.is_empty();
        let name = short(&task.name);
        let thread = ThreadDescriptor {
            pid: Some(task.pid.cast_signed()),
            tid: Some(task.tid.cast_signed()),
            thread_name: Some(name.clone()),
        };
        let descriptor = if first && task.tid != 0 {
            TrackDescriptor { thread: Some(thread), parent_uuid: Some(process), ..TrackDescriptor::default() }
        } else {
            let shown = if what.is_empty() { "at the same time" } else { what };
            let named = Some(format!("{name} {}: {shown}", task.tid));
            TrackDescriptor { name: named, parent_uuid: Some(process), ..TrackDescriptor::default() }
        };
        let uuid = self.fresh(descriptor);
        self.threads.entry((task.pid, task.tid, what)).or_default().push(Lane { uuid, until_ns: end_ns });
        Some(uuid)
    }

    fn process(&mut self, task: &Task) -> u64 {
        if let Some(uuid) = self.processes.get(&task.pid) {
            return *uuid;
        }
        let name = if task.pid == 0 { "kernel".to_owned() } else { short(&task.name) };
        let process = ProcessDescriptor { pid: Some(task.pid.cast_signed()), process_name: Some(name) };
        let uuid = self.fresh(TrackDescriptor { process: Some(process), ..TrackDescriptor::default() });
        self.processes.insert(task.pid, uuid);
        uuid
    }

    pub fn counter(&mut self, name: &str, unit: &str) -> u64 {
        if let Some(uuid) = self.counters.get(name) {
            return *uuid;
        }
        let counter = CounterDescriptor { unit_name: Some(unit.to_owned()) };
        let named = Some(name.to_owned());
        let uuid = self.fresh(TrackDescriptor { name: named, counter: Some(counter), ..TrackDescriptor::default() });
        self.counters.insert(name.to_owned(), uuid);
        uuid
    }

    pub fn begin(&mut self, track: u64, at_ns: u64, event: TrackEvent) {
        self.event(track, at_ns, TrackEvent { kind: Some(SLICE_BEGIN), ..event });
    }

    pub fn end(&mut self, track: u64, at_ns: u64) {
        self.event(track, at_ns, TrackEvent { kind: Some(SLICE_END), ..TrackEvent::default() });
    }

    pub fn event(&mut self, track: u64, at_ns: u64, event: TrackEvent) {
        self.events.push((at_ns, TrackEvent { track_uuid: Some(track), ..event }));
    }

    /// Adds a note for the reader, as an instant on a separate track.
    pub fn note(&mut self, at_ns: u64, text: &str) {
        let track = match self.notes {
            Some(track) => track,
            None => {
                let track =
                    self.fresh(TrackDescriptor { name: Some("flatwater".to_owned()), ..TrackDescriptor::default() });
                self.notes = Some(track);
                track
            }
        };
        self.event(
            track,
            at_ns,
            TrackEvent { kind: Some(INSTANT), name: Some(text.to_owned()), ..TrackEvent::default() },
        );
    }

    /// The packets of the trace: descriptors first, then events in the order of time.
    #[must_use]
    pub fn packets(mut self) -> Vec<TracePacket> {
        self.events.sort_by_key(|(at_ns, _)| *at_ns);
        let head = self.descriptors.into_iter().map(|track| TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE),
            track_descriptor: Some(track),
            ..TracePacket::default()
        });
        let events = self.events.into_iter().map(|(at_ns, event)| TracePacket {
            timestamp: Some(at_ns),
            trusted_packet_sequence_id: Some(SEQUENCE),
            track_event: Some(event),
            ..TracePacket::default()
        });
        head.chain(events).collect()
    }
}
