//! Observers compute a workload's results from its performed operations.
//!
//! The host and the simulator both feed an `Observe`, so the same code computes the results and a fairness table has
//! the same meaning everywhere.

use super::Op;
use flatwater_recording::Series;
use flatwater_recording::outcome::WorkloadOutcome;

/// One operation that an actor performed. Marks are operations that take no time.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    /// Index into `Workload::actors()`.
    pub actor: usize,
    /// The actor's name.
    pub thread: &'a str,
    /// Thread id; in the simulator any number that distinguishes actors.
    pub tid: u32,
    pub op: Op,
    /// On the recording's clock.
    pub start_ns: u64,
    /// When the operation was due, if an open loop scheduled it (`Op::SleepUntil`).
    pub due_ns: Option<u64>,
    pub duration_ns: u64,
    /// Bytes transferred; 0 for calls that transfer none or failed.
    pub bytes: u64,
    /// Whether the actor was measured (`Op::Measure`).
    pub measured: bool,
}

impl Observation<'_> {
    #[must_use]
    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.duration_ns)
    }
}

/// Collects observations for the workload's results.
///
/// Observations of one actor arrive in order of time; those of different actors may arrive in any order. A driver can
/// therefore pass them in batches, without a lock around each call.
pub trait Observe: Send {
    fn observe(&mut self, seen: &Observation<'_>);

    /// The results, after all actors have ended. `sampled` are the tables sampled during the run (meminfo, slabs ...),
    /// for levels of the machine that operations cannot show. Fields of tables that are absent stay absent. `None` if
    /// there is nothing to report.
    fn outcome(self: Box<Self>, sampled: &[Series]) -> Option<WorkloadOutcome>;
}
