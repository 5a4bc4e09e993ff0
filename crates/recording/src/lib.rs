//! The format of a recording, with its reader and writer. `host`, `vm`, `sim` and `import` write recordings; `explain`
//! and `report` read them. The stages share no other data. This program prints the slow calls of a recording and the
//! segments of each call:
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
//! - [`Recording`] holds a whole recording in memory. [`Recording::open`] reads one, [`RecordingWriter`] writes one
//!   while it is being made, and [`write_whole`] writes one that is already in memory.
//! - [`Header`] describes the run: machine, source, threshold, clock, and the state of the tracer's hooks.
//! - [`Call`] is one slow call, and [`Segment`] an interval of the call with one [`Cause`]. [`Wait`], [`Request`] and
//!   [`QueueAhead`] say why the call's sleeps took so long.
//! - [`Series`] is a table of sampled counters ([`Recording::table`]). Each column is decoded on
//!   first use; the feature `arrow-59` gives it as an Arrow array.
//! - [`Gap`] records that something could not be observed, and why.
//! - [`Knob`] is a setting that a scenario can change; [`Setup`] holds all settings of a run.
//!
//! `examples/slow_calls.rs` is a complete program.
//!
//! Invariants
//! - Instants are nanoseconds of CLOCK_MONOTONIC of the recorded machine (virtual nanoseconds in the simulator).
//!   `Header::clock` gives the offset to wall time.
//! - The segments of a call tile it: their lengths sum to its duration. Time without a known cause is a segment with
//!   the cause `unexplained`.
//! - A value that could not be read is absent (`None`, an Arrow null), never 0, and a `Gap` gives the reason.
//! - This crate does not depend on workloads, on the simulator's truth, or on the formats of imported logs.

#![warn(missing_docs)]

#[cfg(any(test, feature = "arrow-59"))]
mod arrow_59;
mod async_call;
mod call;
mod cause;
mod cause_serde;
mod event;
mod hdr;
mod header;
mod imported;
pub mod knob;
mod latency;
mod memory_use;
mod note;
mod observed;
mod operation;
#[allow(missing_docs, reason = "the names are those of the case studies, with units")]
pub mod outcome;
pub mod printable;
mod processor;
pub mod redact;
mod request;
mod sampled;
pub mod schema;
mod series;
mod setup;
pub mod short_sort;
mod storage;
mod store;
pub mod summary;
pub mod symbol;
mod task;
pub mod units;
mod wait;
mod who;

pub use async_call::{AsyncCall, AsyncInterface};
pub use call::{Basis, Call, CauseBasis, DurationBasis, OpKind, Segment, Stack, StackId};
pub use cause::{Bracket, Cause, CauseSpec, Ends, Hook, NoiseClass, Rank, Symbols, brackets};
pub use event::{DeviceTrouble, Event, EventKind, device_words, holds_device_trouble, is_device_trouble};
pub use hdr::{ClassSums, HistogramError, PackedHistogram};
pub use header::{
    Clock, Endianness, FORMAT_VERSION, Header, HookState, HookStatus, Losses, Machine, NodeShape, Noise, OwnCost,
    Source, Target,
};
pub use imported::{
    About, FormatKind, FormatRead, IgnoredLines, ImportSummary, LineRange, SectionRead, SourceLine, TEXT_BYTES_MAX,
};
pub use latency::{HIGHEST_NS, LatencyBucket, histogram};
pub use memory_use::{Dirtier, MemoryScope, MemoryUser};
pub use note::Note;
pub use observed::{AccessKind, Observed, WatchedProcess};
pub use operation::{
    GroupRole, Imitation, Limit, OperationFiles, OperationKind, Operations, ServiceTime, classes_of, classes_text,
};
pub use processor::CpuOwner;
pub use request::{OwnerBasis, QueueAhead, QueueOwner, Request, RequestOp};
pub use sampled::{ReportedBy, SAMPLED_TASKS_MAX, SampledTask};
pub use series::{ColumnKind, Entity, Rows, Series, SeriesColumn, Table, Values};
pub use setup::Setup;
pub use storage::{CgroupFile, Controller, ControllerName, Storage};
pub use store::{Finished, LateGaps, Limits, ReadError, RecordingWriter, TableError, WriteError, read, write_whole};
pub use task::Task;
pub use wait::{Wait, WakerBasis, WakerKind};
pub use who::{Users, Waited};

/// The crate of the types that the functions of the feature `arrow-59` take and return.
#[cfg(feature = "arrow-59")]
pub use arrow_array;

use std::collections::HashSet;

use outcome::WorkloadOutcome;
use serde::{Deserialize, Serialize};

/// A whole recording in memory.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// The run: machine, source, clock, limits.
    pub header: Header,
    /// Latency histograms by time bucket and operation.
    pub latency: Vec<LatencyBucket>,
    /// Calls slower than `header.threshold_ns`, ordered by start.
    pub calls: Vec<Call>,
    /// Kernel stacks that segments refer to.
    pub stacks: Vec<Stack>,
    /// Why the sleeps of slow calls ended: the links of their wait chains.
    pub waits: Vec<Wait>,
    /// Device requests that slow calls waited for.
    pub requests: Vec<Request>,
    /// The requests that were queued ahead of those, by owner.
    pub queue_ahead: Vec<QueueAhead>,
    /// The requests of each device in each interval, by owner.
    pub queue_owners: Vec<QueueOwner>,
    /// Tasks that dirtied pages, by interval.
    pub dirtiers: Vec<Dirtier>,
    /// Tasks and groups that allocated memory, by interval.
    pub memory_users: Vec<MemoryUser>,
    /// Tasks that ran while threads of slow calls waited for a CPU.
    pub cpu_owners: Vec<CpuOwner>,
    /// Further details of slow io_uring and libaio operations.
    pub async_calls: Vec<AsyncCall>,
    /// Operations by group, for imitating the programs.
    pub operations: Vec<Operations>,
    /// Files of those groups, summed by use.
    pub operation_files: Vec<OperationFiles>,
    /// Limits of the machine.
    pub limits: Vec<Limit>,
    /// Service times of devices by size of the request.
    pub service_times: Vec<ServiceTime>,
    /// Sampled tables (zones, vmstat, ...), one `Series` for each table that was sampled.
    pub series: Vec<Series>,
    /// Events in the order of their instants.
    pub events: Vec<Event>,
    /// What could not be observed, with the reasons.
    pub gaps: Vec<Gap>,
    /// Results that the workloads report (fairness, checkpoints, scripts per hour, ...).
    pub outcomes: Vec<WorkloadOutcome>,
    /// Columns of the sampled tables that could not be decoded after the recording was opened; see `gaps_found`.
    pub late_gaps: LateGaps,
}

impl Recording {
    /// The sampled table of this kind; `None` if it was not sampled.
    #[must_use]
    pub fn table(&self, table: Table) -> Option<&Series> {
        self.series.iter().find(|series| series.table == table)
    }

    /// Names of the tables that `plain_table` accepts.
    pub fn plain_tables() -> impl Iterator<Item = &'static str> {
        store::flat::FlatTable::ALL.iter().map(|table| table.name())
    }

    /// The stack with this number.
    #[must_use]
    pub fn stack(&self, id: StackId) -> Option<&Stack> {
        // Writers number stacks densely from 0, importers may not: try the index first.
        match self.stacks.get(id.0 as usize) {
            Some(stack) if stack.id == id => Some(stack),
            _ => self.stacks.iter().find(|stack| stack.id == id),
        }
    }

    /// The slow calls of the foreground, without those of neighbours.
    pub fn foreground_calls(&self) -> impl Iterator<Item = &Call> {
        let neighbours = self.neighbours();
        self.calls.iter().filter(move |call| !neighbours.contains(call.thread.as_str()))
    }

    /// The names of threads and processes that only disturb the measured ones. A hostile header may list many: a loop
    /// over a table looks its names up here, not in the list.
    #[must_use]
    pub fn neighbours(&self) -> HashSet<&str> {
        self.header.target.neighbours.iter().map(String::as_str).collect()
    }

    /// The wait chains of a slow call: its sleeps ordered by time, each followed by the sleeps of the thread that
    /// ended it.
    pub fn waits_of<'a>(&'a self, call: &'a Call) -> impl Iterator<Item = &'a Wait> {
        let first = self.waits.partition_point(|wait| (wait.call_start_ns, wait.call_tid) < (call.start_ns, call.tid));
        let rest = self.waits.get(first..).unwrap_or_default().iter();
        rest.take_while(move |wait| (wait.call_start_ns, wait.call_tid) == (call.start_ns, call.tid))
    }

    /// The device request with this id.
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

/// Something that should have been observed and was not. Reports show gaps; a gap never becomes a zero.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Gap {
    /// The missing thing, as a noun: `/proc/zoneinfo`, `kernel stacks`.
    pub what: String,
    /// The reason: the error or the condition.
    pub why: String,
    /// The remedy; empty if nothing helps.
    pub remedy: String,
    /// When the gap began; `None` if it lasted the whole recording.
    pub at_ns: Option<u64>,
}

impl Gap {
    /// A gap for the whole recording.
    #[must_use]
    pub fn new(what: impl Into<String>, why: impl Into<String>, remedy: impl Into<String>) -> Gap {
        let (what, why): (String, String) = (what.into(), why.into());
        let plain = |text: &str| printable::without_error_numbers(text).into_owned();
        Gap { what: plain(&what), why: plain(&why), remedy: remedy.into(), at_ns: None }
    }

    /// The same gap, beginning at this instant.
    #[must_use]
    pub fn since(mut self, at_ns: u64) -> Gap {
        self.at_ns = Some(at_ns);
        self
    }
}
