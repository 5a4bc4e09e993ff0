//! Collects rows, calls, latencies and events of all importers. Each item is on a track, which has its own zero of
//! time; `finish` merges the tracks into one recording.

mod context;
mod finish;
mod limits;
mod outcome;
mod place;
mod rows;
mod understood;

use std::collections::{BTreeMap, HashMap};

pub use context::Context;
use limits::{Limits, Remarks};
pub use understood::Ignored;

use super::error::ImportError;
use super::when::{SECOND_NS, When, Zero};
use flatwater_recording::outcome::{BulkDelay, CheckpointRow};
use flatwater_recording::schema::{self, Column, ColumnKey};
use flatwater_recording::{
    Call, ColumnKind, Entity, EventKind, Gap, ImportSummary, LatencyBucket, Machine, NodeShape, SampledTask, Setup,
    Stack, StackId, Table,
};

/// Maximum cells (values of sampled tables) of one import; about 200 MB.
pub const CELLS_MAX: usize = 8_000_000;
/// Maximum calls, events and histograms of one import, each.
pub const ITEMS_MAX: usize = 500_000;
/// Problems that are reported one by one for each file; the others are counted.
pub const PROBLEMS_MAX: usize = 20;
/// Number of values of the widest row.
const FULL_ROW: usize = 64;
const NODES_MAX: u32 = 1024;
/// Maximum lines of one section that are counted as not understood although an importer consumed them.
const STUMBLED_MAX: usize = 100_000;
const TRACKS_MAX: usize = 10_000;

/// One value of a sampled table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell {
    /// A level.
    Gauge(i64),
    /// A total that the log itself prints.
    Counter(i64),
    /// The increase of a counter since the row before, from a log that prints rates or differences. `finish` sums the
    /// increases from 0 in order of time, over all tracks with that column.
    Rise(f64),
}

impl Cell {
    /// A value as the log prints it, in a column of this kind.
    #[must_use]
    pub fn of(kind: ColumnKind, value: i64) -> Cell {
        match kind {
            ColumnKind::Counter => Cell::Counter(value),
            ColumnKind::Gauge => Cell::Gauge(value),
        }
    }

    /// Takes the kind from the schema: files of plain numbers do not say which values are counters.
    fn in_column(self, column: Option<Column>) -> Cell {
        match (column, self) {
            (Some(column), Cell::Gauge(value) | Cell::Counter(value)) => Cell::of(column.kind, value),
            (_, cell) => cell,
        }
    }
}

/// Totals since the beginning, for which `finish` adds zeros if the log has no earlier totals.
#[derive(Clone, Debug)]
struct LoneTotal {
    row: Row,
    /// The command that prints rates.
    remedy: &'static str,
}

/// A group of rows with the same zero of time, from one section or file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Track(u32);

/// The track of everything beyond `TRACKS_MAX`: it is dropped.
const NOWHERE: Track = Track(u32::MAX);

#[derive(Clone, Debug)]
struct TrackInfo {
    zero: Zero,
    /// Format and file, for messages.
    what: String,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    track: Track,
    at: i64,
    table: Table,
    entity: u32,
    /// Index into `cells`.
    first: u32,
    count: u32,
}

/// An item that is not a row, with its track and time.
#[derive(Clone, Debug)]
struct Placed<T> {
    track: Track,
    at: i64,
    item: T,
}

/// Collects what the importers read. Items beyond the limits are dropped, and a gap reports it.
#[derive(Debug, Default)]
pub struct Builder {
    /// Name of the current file.
    file: String,
    tracks: Vec<TrackInfo>,
    rows: Vec<Row>,
    cells: Vec<(u32, Cell)>,
    columns: HashMap<(Table, String), (u32, Option<Column>)>,
    column_names: Vec<String>,
    entities: HashMap<Entity, u32>,
    entity_list: Vec<Entity>,
    calls: Vec<Placed<Call>>,
    events: Vec<Placed<EventKind>>,
    latency: Vec<Placed<LatencyBucket>>,
    checkpoints: Vec<Placed<CheckpointRow>>,
    delays: Vec<Placed<BulkDelay>>,
    delay_ns_max: Option<u64>,
    lone_totals: BTreeMap<(Table, u32), Option<LoneTotal>>,
    stack_ids: HashMap<Vec<String>, StackId>,
    stacks: Vec<Stack>,
    remarks: Remarks,
    problems: Vec<(String, ImportError)>,
    problems_in_file: usize,
    /// Lines of the current section that did not parse; `end_section` counts and clears them.
    stumbled: BTreeMap<u32, String>,
    /// Lines beyond `STUMBLED_MAX` that did not parse.
    stumbled_more: u64,
    /// Lines that were passed over since the last section.
    passed: u64,
    /// How much of the text was understood.
    summary: ImportSummary,
    /// Bytes of text that the summary keeps.
    kept_bytes: usize,
    sampled: Vec<Placed<SampledTask>>,
    limits: Limits,
    /// Number of the last snapshot without a time, by format and name.
    untimed: HashMap<(&'static str, String), i64>,
    pub machine: Machine,
    pub setup: Setup,
    context: Context,
    /// Zero of the rows' own clock and its distance from the track's time, for formats of which rows were read.
    clocks: HashMap<&'static str, (Zero, i64)>,
    /// Track and last time of each format's last table in this file, so that a table can continue after a break.
    resume: HashMap<&'static str, (Track, i64)>,
}

impl Builder {
    /// Begins a file. Forgets the times, prompts and tables of the file before.
    pub fn begin_file(&mut self, name: &str) {
        name.clone_into(&mut self.file);
        self.context = Context::default();
        self.problems_in_file = 0;
        self.resume.clear();
        self.clocks.clear();
    }

    #[must_use]
    pub fn file_name(&self) -> &str {
        &self.file
    }

    pub fn track(&mut self, format: &str, zero: Zero) -> Track {
        if self.tracks.len() >= TRACKS_MAX {
            self.overflow("tables and logs");
            return NOWHERE;
        }
        let what = format!("{format} in {}", self.file);
        self.tracks.push(TrackInfo { zero, what });
        Track(u32::try_from(self.tracks.len() - 1).unwrap_or(u32::MAX))
    }

    /// What the lines above the current section say about it.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// For the reading loop. It restores the context after each importer.
    pub fn context_mut(&mut self) -> &mut Context {
        &mut self.context
    }

    /// Zero of the own clock of a format's rows, and its distance from the track's time.
    #[must_use]
    pub fn clock_of(&self, format: &'static str) -> Option<(Zero, i64)> {
        self.clocks.get(format).copied()
    }

    pub fn set_clock(&mut self, format: &'static str, clock: Option<(Zero, i64)>) {
        match clock {
            Some(clock) => self.clocks.insert(format, clock),
            None => self.clocks.remove(format),
        };
    }

    /// The zero of a track's times.
    #[must_use]
    pub fn zero_of(&self, track: Track) -> Zero {
        self.tracks.get(track.0 as usize).map_or(Zero::Start, |info| info.zero)
    }

    /// The track on which a table of this format continues after a break, and its last time.
    #[must_use]
    pub fn resumed(&self, format: &'static str) -> Option<(Track, i64)> {
        self.resume.get(format).copied()
    }

    pub fn leave(&mut self, format: &'static str, track: Track, last: i64) {
        self.resume.insert(format, (track, last));
    }

    /// The one track for everything that a format reads from this file with this zero of time.
    pub fn shared_track(&mut self, format: &'static str, zero: Zero) -> Track {
        match self.resume.get(format) {
            Some(&(track, _)) if self.tracks.get(track.0 as usize).is_some_and(|info| info.zero == zero) => track,
            _ => {
                let track = self.track(format, zero);
                self.leave(format, track, 0);
                track
            }
        }
    }

    /// Track and time of a snapshot: the last time that the file gave, else one second after the snapshot before it.
    pub fn snapshot(&mut self, format: &'static str) -> (Track, i64) {
        self.snapshot_of(format, "")
    }

    /// As `snapshot`, for formats with several named tables at one moment.
    pub fn snapshot_of(&mut self, format: &'static str, name: &str) -> (Track, i64) {
        if let Some(moment) = self.context.moment {
            return (self.shared_track(format, moment.zero), moment.ns);
        }
        let ordinal = self.untimed.entry((format, name.to_owned())).or_insert(-1);
        *ordinal += 1;
        let at = *ordinal * SECOND_NS;
        if at > 0 {
            let why =
                "the snapshots carry no time: one second between them is assumed, so rates per second are not known";
            self.gap(format!("time of the {format} snapshots"), why, "put the output of `date` before each");
        }
        (self.shared_track(format, Zero::Start), at)
    }

    /// Track and time of the start of a log that counts from its own start.
    pub fn origin(&mut self, format: &'static str) -> (Track, i64) {
        self.origin_at(format, self.context.moment)
    }

    /// As `origin`, if the log states its own start time.
    pub fn origin_at(&mut self, format: &'static str, moment: Option<When>) -> (Track, i64) {
        let moment = moment.unwrap_or(When::new(Zero::Start, 0));
        (self.track(format, moment.zero), moment.ns)
    }

    /// The column for this name. Names of other tools and older kernels map to the same column.
    fn column(&mut self, table: Table, name: &str) -> (u32, Option<Column>) {
        // The owned key costs an allocation per lookup; a borrowed key would complicate the map.
        if let Some(&found) = self.columns.get(&(table, name.to_owned())) {
            return found;
        }
        let stored = schema::stored(table, name).0;
        let same = self.columns.get(&(table, stored.clone())).copied();
        let found = same.unwrap_or_else(|| {
            let id = u32::try_from(self.column_names.len()).unwrap_or(u32::MAX);
            self.column_names.push(stored.clone());
            (id, schema::find(table, &stored))
        });
        self.columns.insert((table, stored), found);
        self.columns.insert((table, name.to_owned()), found);
        found
    }

    fn entity(&mut self, entity: &Entity) -> u32 {
        if let Some(&id) = self.entities.get(entity) {
            return id;
        }
        let id = u32::try_from(self.entity_list.len()).unwrap_or(u32::MAX);
        self.entities.insert(entity.clone(), id);
        self.entity_list.push(entity.clone());
        id
    }

    /// Adds a row. `finish` merges rows of the same table, entity and moment, also across tracks.
    pub fn row<N: ColumnKey>(&mut self, (track, at): (Track, i64), table: Table, entity: &Entity, cells: &[(N, Cell)]) {
        if cells.is_empty() {
            return;
        }
        if track == NOWHERE
            || self.cells.len() + cells.len() > CELLS_MAX
            || self.column_names.len() + cells.len() > 1 << 16
        {
            self.overflow("rows of tables");
            return;
        }
        let entity = self.entity(entity);
        let first = u32::try_from(self.cells.len()).unwrap_or(u32::MAX);
        for (name, cell) in cells {
            debug_assert!(name.table().is_none_or(|known| known == table), "{} is not of {table:?}", name.name());
            let (column, known) = self.column(table, name.name());
            self.cells.push((column, cell.in_column(known)));
        }
        self.rows.push(Row { track, at, table, entity, first, count: cells.len() as u32 });
    }

    /// Adds a row of totals since a beginning that the log does not state (mount, boot). A table with one such row for
    /// an entity shows its mean: zeros precede it, and a gap says so. Two rows are differenced.
    pub fn totals<N: ColumnKey + Copy>(
        &mut self,
        place: (Track, i64),
        table: Table,
        entity: &Entity,
        cells: &[(N, Cell)],
        remedy: &'static str,
    ) {
        let before = self.rows.len();
        self.row(place, table, entity, cells);
        if let Some(row) = self.rows.get(before).copied() {
            self.lone_totals
                .entry((table, row.entity))
                .and_modify(|lone| *lone = None)
                .or_insert(Some(LoneTotal { row, remedy }));
        }
    }

    /// Adds zeros before totals without earlier totals.
    fn begin_lone_totals(&mut self) {
        let lone: Vec<LoneTotal> = std::mem::take(&mut self.lone_totals).into_values().flatten().collect();
        for LoneTotal { row, remedy } in lone {
            let from = row.first as usize;
            let zeros: Vec<(u32, Cell)> = (self.cells.get(from..from + row.count as usize).unwrap_or_default().iter())
                .map(|(column, _)| (*column, Cell::Counter(0)))
                .collect();
            let first = u32::try_from(self.cells.len()).unwrap_or(u32::MAX);
            self.cells.extend(zeros);
            self.rows.push(Row { at: row.at.saturating_sub(SECOND_NS), first, ..row });
            self.gap(format!("interval of the totals of {}", row.table.name()), "the log has them once", remedy);
        }
    }

    pub fn call(&mut self, (track, at): (Track, i64), call: Call) {
        self.limits.push(&mut self.calls, Placed { track, at, item: call }, "calls");
    }

    pub fn event(&mut self, (track, at): (Track, i64), kind: EventKind) {
        self.limits.push(&mut self.events, Placed { track, at, item: kind }, "events");
    }

    pub fn latency(&mut self, (track, at): (Track, i64), bucket: LatencyBucket) {
        self.limits.push(&mut self.latency, Placed { track, at, item: bucket }, "histograms");
    }

    pub fn checkpoint(&mut self, (track, at): (Track, i64), row: CheckpointRow) {
        self.limits.push(&mut self.checkpoints, Placed { track, at, item: row }, "checkpoints");
    }

    pub fn delay(&mut self, (track, at): (Track, i64), delay: BulkDelay) {
        self.limits.push(&mut self.delays, Placed { track, at, item: delay }, "delays");
    }

    /// The largest delay that the log itself states.
    pub fn delay_max(&mut self, ns: u64) {
        self.delay_ns_max = self.delay_ns_max.max(Some(ns));
    }

    /// Reports that an importer dropped an item because it holds no more of that kind.
    pub fn overflow(&mut self, what: &'static str) {
        self.limits.drop_items(what, 1);
    }

    /// As `overflow`, for this many items.
    pub fn overflow_by(&mut self, what: &'static str, count: u64) {
        self.limits.drop_items(what, count);
    }

    /// Adds a kernel stack, innermost frame first, and returns its id. Equal stacks share one id.
    pub fn stack(&mut self, frames: Vec<String>) -> StackId {
        if let Some(&id) = self.stack_ids.get(&frames) {
            return id;
        }
        let id = StackId(u32::try_from(self.stacks.len()).unwrap_or(u32::MAX));
        if self.stacks.len() >= ITEMS_MAX {
            self.overflow("stacks");
            return id;
        }
        self.stacks.push(Stack { id, frames: frames.clone() });
        self.stack_ids.insert(frames, id);
        id
    }

    /// The shape of a node, which is added if it is new. `None` for node numbers from `NODES_MAX` on.
    pub fn node(&mut self, node: u32) -> Option<&mut NodeShape> {
        if node >= NODES_MAX {
            return None;
        }
        let nodes = &mut self.machine.nodes;
        let place = nodes.partition_point(|known| known.node < node);
        if nodes.get(place).is_none_or(|known| known.node != node) {
            nodes.insert(place, NodeShape { node, ..NodeShape::default() });
        }
        nodes.get_mut(place)
    }

    /// Reports that something is missing or was assumed. Duplicates are ignored.
    pub fn gap(&mut self, what: impl Into<String>, why: impl Into<String>, remedy: impl Into<String>) {
        self.remarks.gap(Gap::new(what, why, remedy));
    }

    pub fn note(&mut self, note: impl Into<String>) {
        self.remarks.note(note.into());
    }

    #[must_use]
    pub fn notes(&self) -> &[String] {
        self.remarks.notes()
    }

    /// Reports a part of the file that did not parse; reading continues.
    pub fn problem(&mut self, error: ImportError) {
        self.problems_in_file += 1;
        self.stumble(error.line, &error.found);
        if self.problems_in_file <= PROBLEMS_MAX {
            self.problems.push((self.file.clone(), error));
        }
    }

    #[must_use]
    pub fn problems(&self) -> &[(String, ImportError)] {
        &self.problems
    }

    /// Ends a file: problems beyond `PROBLEMS_MAX` become one gap.
    pub fn end_file(&mut self) {
        if let Some(more) = self.problems_in_file.checked_sub(PROBLEMS_MAX + 1) {
            let what = self.file.clone();
            self.gap(what, format!("{} further lines did not fit their format", more + 1), "");
        }
    }

    /// Whether rows or calls have reached their limit, so that later lines of the log cannot add any.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.cells.len() + FULL_ROW >= CELLS_MAX || self.calls.len() >= ITEMS_MAX
    }

    /// Number of items, values and frames read, to compare two ways of reading the same lines.
    #[must_use]
    pub fn weight(&self) -> usize {
        let frames = self.stacks.iter().map(|stack| stack.frames.len()).sum::<usize>();
        let classes = self.latency.iter().map(|placed| placed.item.from_start.steps().count()).sum::<usize>();
        self.items() + self.cells.len() + frames + classes
    }

    /// Number of items read: rows, calls, events and so on.
    #[must_use]
    pub fn items(&self) -> usize {
        let placed = self.calls.len() + self.events.len() + self.latency.len();
        placed
            + self.sampled.len()
            + self.rows.len()
            + self.checkpoints.len()
            + self.delays.len()
            + self.machine.nodes.len()
    }
}
