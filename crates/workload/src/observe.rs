//! How a workload learns what became of its operations, so that it can tell its own story.
//!
//! The host and the simulator both feed an `Observe`; what is computed from it is the same code, so that a
//! fairness table means the same thing wherever it was made.

use super::Op;
use flatwater_recording::{Series, WorkloadOutcome};

/// One operation that an actor performed (marks too: they are operations that take no time).
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    /// Index into `Workload::actors()`.
    pub actor: usize,
    /// The actor's name.
    pub thread: &'a str,
    /// Thread id; in the simulator any number that tells actors apart.
    pub tid: u32,
    pub op: Op,
    /// On the recording's clock.
    pub start_ns: u64,
    /// When it was to happen, of operations that an open loop gives an instant to (`Op::SleepUntil`).
    pub due_ns: Option<u64>,
    pub duration_ns: u64,
    /// Bytes really moved; 0 for calls that move none or failed.
    pub bytes: u64,
    /// The actor had its measuring on (`Op::Measure`).
    pub measured: bool,
}

impl Observation<'_> {
    #[must_use]
    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.duration_ns)
    }
}

/// Gathers observations into the workload's own table.
///
/// Observations of one actor come in the order of time. Those of different actors may come in any order, so
/// that a driver can hand them over in batches and no lock is taken around each call.
pub trait Observe: Send {
    fn observe(&mut self, seen: &Observation<'_>);

    /// So many of them in a row, an interval apart and alike but for their instants; the first is given.
    fn observe_alike(&mut self, first: &Observation<'_>, interval_ns: u64, count: u64) {
        for number in 0..count {
            let later_ns = number * interval_ns;
            let due_ns = first.due_ns.map(|due_ns| due_ns + later_ns);
            self.observe(&Observation { start_ns: first.start_ns + later_ns, due_ns, ..*first });
        }
    }

    /// The table, once every actor has ended. `sampled` is what the recording sampled meanwhile (meminfo, slabs ...):
    /// levels of the machine that no operation can tell. Absent tables leave their fields absent. `None` if nothing
    /// happened that could be reported.
    fn outcome(self: Box<Self>, sampled: &[Series]) -> Option<WorkloadOutcome>;
}
