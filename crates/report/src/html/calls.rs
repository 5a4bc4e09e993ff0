//! The slow calls of the page: the longest ones, each with its segments and stacks.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::super::facts;
use super::super::numbers::time;
use super::chain;
use super::payload::{CallRow, Calls, Figure, LinkRow, Palette, PartRow};
use flatwater_explain::aggressor::Links;
use flatwater_recording::{Basis, Call, Recording, Segment, StackId};

/// Rows of the table: more than anyone reads, and a browser builds them in a few milliseconds.
const CALLS_MAX: usize = 600;
/// Rows for neighbours, whose calls are often the longest and would displace those of the foreground.
const NEIGHBOURS_MAX: usize = 150;
/// Segments of a call: more than a timeline has pixels for.
const SEGMENTS_MAX: usize = 300;

pub fn calls(recording: &Recording, palette: &Palette) -> Calls {
    let kept = longest(recording);
    let kept_set: HashSet<usize> = kept.iter().copied().collect();
    let left = recording.calls.iter().enumerate().filter(|(place, _)| !kept_set.contains(place));
    let left_out_ns_max = left.map(|(_, call)| call.duration_ns).max();
    let mut names = Names::default();
    let mut stacks = Stacks::default();
    let links = Links::of(recording);
    let start_ns = recording.header.clock.start_ns;
    let rows: Vec<CallRow> = kept
        .iter()
        .filter_map(|place| recording.calls.get(*place))
        .map(|call| CallRow {
            chain: links_of(&links, call, &mut names),
            ..row(recording, call, start_ns, palette, &mut names, &mut stacks)
        })
        .collect();
    let own = rows.iter().filter(|row| !row.neighbour).count();
    Calls {
        own_left_out: (recording.foreground_calls().count().saturating_sub(own)) as u64,
        missing: missing(recording),
        total: recording.calls.len() as u64,
        left_out: (recording.calls.len() - rows.len()) as u64,
        left_out_ns_max,
        threads: names.threads.list,
        ops: names.ops.list,
        files: names.files.list,
        texts: names.texts.list,
        symbols: stacks.symbols.list,
        stacks: stacks.list,
        rows,
    }
}

/// Why the table is missing. A recording without slow calls is a result, not a gap.
fn missing(recording: &Recording) -> Option<String> {
    if !recording.calls.is_empty() {
        return None;
    }
    let threshold = time(recording.header.threshold_ns);
    Some(if !facts::calls_were_seen(recording) {
        let why = facts::why_missing(&recording.gaps, &["call", "tracer", "latency"]);
        format!("Calls were not observed one by one: {why}.")
    } else if recording.latency.is_empty() {
        "No call was timed.".to_owned()
    } else {
        format!("No call took {threshold} or longer.")
    })
}

/// Indices of the calls to show, in order of time.
fn longest(recording: &Recording) -> Vec<usize> {
    let neighbours = recording.neighbours();
    let of = |neighbour: bool, most: usize| {
        let mut places: Vec<(u64, usize)> = recording
            .calls
            .iter()
            .enumerate()
            .filter(|(_, call)| neighbours.contains(call.thread.as_str()) == neighbour)
            .map(|(place, call)| (call.duration_ns.saturating_add(call.after_exit_ns), place))
            .collect();
        places.sort_unstable_by(|a, b| b.cmp(a));
        places.into_iter().take(most).map(|(_, place)| place)
    };
    let kept: BTreeSet<usize> = of(false, CALLS_MAX).chain(of(true, NEIGHBOURS_MAX)).collect();
    kept.into_iter().collect()
}

fn row(
    recording: &Recording,
    call: &Call,
    start_ns: u64,
    palette: &Palette,
    names: &mut Names,
    stacks: &mut Stacks,
) -> CallRow {
    let top = super::super::facts::top_cause(call);
    let (cause, cause_ns) = top.map_or(("unexplained", 0), |(cause, ns)| (cause.name(), ns));
    let shown = shown_segments(&call.segments);
    let segments = shown.iter().map(|segment| {
        let basis = match Basis::from(segment.duration_basis) {
            Basis::Exact => 0,
            Basis::Sampled => 1,
            Basis::Inferred => 2,
        };
        let stack = segment.stack.and_then(|id| stacks.index(recording, id));
        let stack = stack.and_then(|place| i64::try_from(place).ok()).unwrap_or(-1);
        PartRow(segment.offset_ns, segment.ns, palette.index(segment.cause.name()), basis, stack, segment.count)
    });
    CallRow {
        parts: segments.collect(),
        parts_left_out: (call.segments.len() - shown.len()) as u64,
        chain: Vec::new(),
        t: Figure((call.start_ns as f64 - start_ns as f64) / 1e9),
        ns: call.duration_ns,
        late_ns: call.due_ns.map(|due_ns| call.start_ns.saturating_sub(due_ns)),
        op: names.ops.index(call.op.name()),
        thread: names.threads.index(&call.thread),
        tid: call.tid,
        file: call.file.as_deref().map(|file| names.files.index(file)),
        bytes: call.bytes,
        offset_bytes: call.offset_bytes,
        cause: palette.index(cause),
        cause_ns,
        after_exit_ns: call.after_exit_ns,
        damaged: call.damaged,
        still_under_way: call.still_under_way,
        failed: call.errno.map(|errno| std::io::Error::from_raw_os_error(errno.cast_signed()).to_string()),
        neighbour: recording.header.target.neighbours.contains(&call.thread),
    }
}

fn links_of(links: &Links<'_>, call: &Call, names: &mut Names) -> Vec<LinkRow> {
    let row =
        |link: chain::Link| LinkRow(link.depth, link.offset_ns, link.ns, link.kind, names.texts.index(&link.text));
    chain::of(links, call).into_iter().map(row).collect()
}

/// The longest segments, in order of time.
fn shown_segments(segments: &[Segment]) -> Vec<Segment> {
    if segments.len() <= SEGMENTS_MAX {
        return segments.to_vec();
    }
    let mut longest = segments.to_vec();
    longest.sort_unstable_by_key(|segment| std::cmp::Reverse(segment.ns));
    longest.truncate(SEGMENTS_MAX);
    longest.sort_unstable_by_key(|segment| segment.offset_ns);
    longest
}

/// Strings that occur many times, each stored once.
#[derive(Default)]
struct Interned {
    list: Vec<String>,
    places: HashMap<String, usize>,
}

impl Interned {
    fn index(&mut self, name: &str) -> usize {
        if let Some(place) = self.places.get(name) {
            return *place;
        }
        self.list.push(name.to_owned());
        self.places.insert(name.to_owned(), self.list.len() - 1);
        self.list.len() - 1
    }
}

#[derive(Default)]
struct Names {
    threads: Interned,
    ops: Interned,
    files: Interned,
    texts: Interned,
}

/// The stacks of the segments that are shown.
#[derive(Default)]
struct Stacks {
    list: Vec<Vec<usize>>,
    places: HashMap<StackId, usize>,
    symbols: Interned,
}

impl Stacks {
    fn index(&mut self, recording: &Recording, id: StackId) -> Option<usize> {
        if let Some(place) = self.places.get(&id) {
            return Some(*place);
        }
        let frames = recording.stack(id)?.frames.iter().map(|frame| self.symbols.index(frame)).collect();
        self.list.push(frames);
        self.places.insert(id, self.list.len() - 1);
        Some(self.list.len() - 1)
    }
}
