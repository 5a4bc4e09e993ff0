//! The recording of a stall: all that later stages read. Host, vm, sim and import write it; explain and report read it,
//! and nothing else passes between them. To print its slow calls, each with where its time went:
//!
//! ```
//! use flatwater_recording::{ReadError, Recording};
//!
//! fn print_slow_calls(path: &str) -> Result<(), ReadError> {
//!     let recording = Recording::open(path)?;
//!     for call in &recording.calls {
//!         println!("{} by {} took {} ns", call.op.name(), call.thread, call.duration_ns);
//!         for segment in &call.segments {
//!             println!("  {} ns {}", segment.ns, segment.cause.name());
//!         }
//!     }
//!     Ok(())
//! }
//! # print_slow_calls(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/recordings-3c238a6/host")).unwrap();
//! ```
//!
//! Sampled counters are tables (`Recording::table`) of which each column is an Arrow array (`Series::array`), unpacked
//! when it is asked for. `examples/slow_calls.rs` is a whole program.
//!
//! Invariants
//! - Instants are CLOCK_MONOTONIC nanoseconds of the recorded machine (virtual ns in the simulator);
//!   `Header::clock` gives the offset to wall time.
//! - The segments of a call tile it: their lengths sum to its duration, and time without a known cause is a segment
//!   with the cause `unexplained`.
//! - A value that could not be read is absent (`None`, an Arrow null), and a `Gap` says why. It is never 0.
//! - Nothing in here knows which workload, simulator truth or file format it came from.

pub mod async_call;
pub mod call;
pub mod cause;
mod cause_serde;
pub mod event;
pub mod hdr;
pub mod header;
pub mod imported;
pub mod knob;
pub mod latency;
pub mod memory_use;
pub mod note;
pub mod observed;
pub mod outcome;
pub mod printable;
pub mod processor;
pub mod redact;
pub mod request;
pub mod sampled;
pub mod schema;
pub mod series;
pub mod setup;
pub mod speed;
pub mod store;
pub mod summary;
pub mod symbol;
pub mod task;
pub mod units;
pub mod wait;
pub mod who;

pub use async_call::{AsyncCall, AsyncInterface};
pub use call::{Basis, Call, CauseBasis, DurationBasis, OpKind, Segment, Stack, StackId};
pub use cause::{Cause, CauseSpec};
pub use event::{DeviceTrouble, Event, EventKind};
pub use hdr::{ClassSums, HistogramError, PackedHistogram};
pub use header::{
    Clock, Endianness, Header, HookState, HookStatus, ICOUNT_TICK, Losses, Machine, NodeShape, Noise, OwnCost,
    PartialBlock, Source, Target, ZoneBlocks,
};
pub use imported::{
    FormatKind, FormatRead, IgnoredLines, ImportSummary, LineRange, SectionRead, SourceLine, TEXT_BYTES_MAX,
};
pub use knob::{KNOBS, Knob, KnobError, KnobKind, KnobPlace, lru_gen_runs};
pub use latency::LatencyBucket;
pub use memory_use::{Dirtier, MemoryScope, MemoryUser};
pub use note::Note;
pub use observed::{AccessKind, Observed, WatchedProcess};
pub use outcome::WorkloadOutcome;
pub use processor::CpuOwner;
pub use request::{OwnerBasis, QueueAhead, QueueOwner, Request, RequestOp};
pub use sampled::{ReportedBy, SampledTask};
pub use schema::{Column, ColumnKey};
pub use series::{ColumnKind, Entity, Rows, Series, SeriesColumn, Table, Values};
pub use setup::Setup;
pub use speed::{Speed, SpeedError};
pub use store::{Finished, LateGaps, Limits, ReadError, RecordingWriter, TableError, WriteError, read, write_whole};
pub use summary::{Blame, HourStart, Summarizer, SummaryError, SummaryOrigin, SummaryRow, Whose};
pub use task::Task;
pub use wait::{Wait, WakerBasis, WakerKind};
pub use who::{Users, Waited};

/// The crate that `Series::array` and `SeriesColumn::array` speak in.
pub use arrow_array;

use serde::{Deserialize, Serialize};

/// A whole recording in memory.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    pub header: Header,
    /// Latencies by time bucket and operation.
    pub latency: Vec<LatencyBucket>,
    /// Calls slower than `header.threshold_ns`, in order of their start.
    pub calls: Vec<Call>,
    /// Kernel stacks that the segments of calls refer to.
    pub stacks: Vec<Stack>,
    /// Why the sleeps of slow calls ended: the links of their wait chains.
    pub waits: Vec<Wait>,
    /// Device requests that slow calls waited for.
    pub requests: Vec<Request>,
    /// What was ahead of those requests, by owner.
    pub queue_ahead: Vec<QueueAhead>,
    /// What the devices did in each interval, by owner.
    pub queue_owners: Vec<QueueOwner>,
    /// Who made pages dirty in each interval.
    pub dirtiers: Vec<Dirtier>,
    /// Who took memory in each interval.
    pub memory_users: Vec<MemoryUser>,
    /// Who ran while threads of slow calls waited for a CPU.
    pub cpu_owners: Vec<CpuOwner>,
    /// More about slow operations of io_uring and libaio.
    pub async_calls: Vec<AsyncCall>,
    /// Sampled tables (zones, vmstat, ...), one `Series` for each kind that was sampled at all.
    pub series: Vec<Series>,
    pub events: Vec<Event>,
    pub gaps: Vec<Gap>,
    /// What the workloads report of themselves (fairness, checkpoints, scripts per hour, ...).
    pub outcomes: Vec<WorkloadOutcome>,
    /// What of the sampled tables turned out to be unreadable since they were opened; see `gaps_found`.
    pub late_gaps: LateGaps,
}

impl Recording {
    /// The sampled table of this kind, if any of it was sampled.
    #[must_use]
    pub fn table(&self, table: Table) -> Option<&Series> {
        self.series.iter().find(|series| series.table == table)
    }

    /// Names of the tables that `plain_table` knows.
    pub fn plain_tables() -> impl Iterator<Item = &'static str> {
        store::flat::FlatTable::ALL.iter().map(|table| table.name())
    }

    /// The rows of one of the tables of plain rows (`waits`, `requests`, `queue_owners` ...) as Arrow; `None` where there is
    /// no table of that name.
    #[must_use]
    pub fn plain_table(&self, name: &str) -> Option<arrow_array::RecordBatch> {
        let table = store::flat::FlatTable::ALL.iter().find(|table| table.name() == name)?;
        let rows = table.rows(self);
        rows.encode(0, rows.len()).ok()
    }

    #[must_use]
    pub fn stack(&self, id: StackId) -> Option<&Stack> {
        // Writers number stacks densely from 0, importers may not: try the place first.
        match self.stacks.get(id.0 as usize) {
            Some(stack) if stack.id == id => Some(stack),
            _ => self.stacks.iter().find(|stack| stack.id == id),
        }
    }

    /// Slow calls of what was measured, without those of neighbours.
    pub fn foreground_calls(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(|call| !self.header.target.neighbours.contains(&call.thread))
    }

    /// The wait chains of a slow call: its sleeps in order of time, each followed by the sleeps of those who ended it.
    pub fn waits_of<'a>(&'a self, call: &'a Call) -> impl Iterator<Item = &'a Wait> {
        let first = self.waits.partition_point(|wait| (wait.call_start_ns, wait.call_tid) < (call.start_ns, call.tid));
        let rest = self.waits.get(first..).unwrap_or_default().iter();
        rest.take_while(move |wait| (wait.call_start_ns, wait.call_tid) == (call.start_ns, call.tid))
    }

    /// The device request of this id.
    #[must_use]
    pub fn request(&self, id: u64) -> Option<&Request> {
        self.requests.binary_search_by_key(&id, |request| request.id).ok().and_then(|at| self.requests.get(at))
    }

    /// Time spent in slow calls, ns.
    #[must_use]
    pub fn lost_ns(&self) -> u64 {
        self.calls.iter().fold(0, |sum, call| sum.saturating_add(call.duration_ns))
    }
}

/// Something that should have been seen and was not. Shown to the user, never turned into a zero.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Gap {
    /// What is missing, as a noun: `/proc/zoneinfo`, `kernel stacks`.
    pub what: String,
    /// Why: the error, or the condition.
    pub why: String,
    /// What the user can do about it; empty where nothing can be done.
    pub remedy: String,
    /// When it began, if it did not last the whole recording.
    pub at_ns: Option<u64>,
}

impl Gap {
    #[must_use]
    pub fn new(what: impl Into<String>, why: impl Into<String>, remedy: impl Into<String>) -> Gap {
        Gap { what: what.into(), why: why.into(), remedy: remedy.into(), at_ns: None }
    }

    /// The same, begun at this instant.
    #[must_use]
    pub fn since(mut self, at_ns: u64) -> Gap {
        self.at_ns = Some(at_ns);
        self
    }
}
