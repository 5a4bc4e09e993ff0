//! Compares a recording with a run that reproduces it.

use flatwater_explain::aggressor::Means;
use flatwater_explain::{CauseId, Explanation, Finding, Percentiles};
use flatwater_recording::{OpKind, Recording};
use serde::Serialize;

/// What made the calls wait, in the classes that a reproduction has to meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AggressorKind {
    /// No process outside the target, and no limit.
    None,
    /// Requests, data or journal changes of another process.
    Storage,
    DirtyPages,
    Memory,
    Cpu,
    Lock,
    /// A limit of a cgroup.
    Limit,
}

impl AggressorKind {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            AggressorKind::None => "none",
            AggressorKind::Storage => "storage",
            AggressorKind::DirtyPages => "dirty pages",
            AggressorKind::Memory => "memory",
            AggressorKind::Cpu => "cpu",
            AggressorKind::Lock => "lock",
            AggressorKind::Limit => "limit",
        }
    }

    /// The kind of the finding's first aggressor.
    #[must_use]
    pub fn of(finding: &Finding) -> AggressorKind {
        if let Some(first) = finding.aggressors.first() {
            return match first.means {
                Means::DirtyPages => AggressorKind::DirtyPages,
                Means::Memory | Means::DroppedCache => AggressorKind::Memory,
                Means::Cpu | Means::Running => AggressorKind::Cpu,
                Means::Lock => AggressorKind::Lock,
                _ => AggressorKind::Storage,
            };
        }
        let limited = finding.answerable.as_ref().is_some_and(|parties| parties.limit >= 0.5);
        if limited { AggressorKind::Limit } else { AggressorKind::None }
    }
}

/// One side of the comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    /// `None` without a finding.
    pub cause: Option<CauseId>,
    pub aggressor: AggressorKind,
    /// The first aggressor's name; empty if there is none.
    pub program: String,
    pub p50_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    pub p999_ns: Option<u64>,
    pub operations: u64,
    pub stall_ns_per_s: f64,
    /// Mean time of the device for a write request.
    pub device_write_ns: Option<u64>,
}

/// Recorded and reproduced, side by side.
#[derive(Clone, Debug, Serialize)]
pub struct Reproduction {
    /// The operation whose latencies are compared: the one with the most stall time in the recording.
    pub operation: String,
    pub recorded: Side,
    pub reproduced: Side,
    pub same_cause: bool,
    pub same_kind: bool,
    /// Whether p99 is within a factor of 2; absent if one side has none.
    pub p99_within_2: Option<bool>,
}

impl Reproduction {
    #[must_use]
    pub fn is_reproduced(&self) -> bool {
        self.same_cause && self.same_kind && self.p99_within_2 == Some(true)
    }
}

const WITHIN: f64 = 2.0;

#[must_use]
pub fn compare(recorded: (&Recording, &Explanation), reproduced: (&Recording, &Explanation)) -> Reproduction {
    let operation = judged(recorded.0, recorded.1);
    let (a, b) = (side(recorded, &operation), side(reproduced, &operation));
    let ratio = a.p99_ns.zip(b.p99_ns).map(|(a, b)| b.max(1) as f64 / a.max(1) as f64);
    Reproduction {
        operation,
        same_cause: a.cause == b.cause,
        same_kind: a.aggressor == b.aggressor,
        p99_within_2: ratio.map(|ratio| (1.0 / WITHIN..=WITHIN).contains(&ratio)),
        recorded: a,
        reproduced: b,
    }
}

/// The operation with the most stall time that a reproduction performs; without slow calls the most frequent one.
fn judged(recording: &Recording, explanation: &Explanation) -> String {
    let kinds = [OpKind::Write, OpKind::Read, OpKind::Fsync, OpKind::Fdatasync, OpKind::Syncfs];
    let stall = |kind: &OpKind| {
        let own = recording.foreground_calls().filter(|call| call.op == *kind);
        own.map(|call| call.duration_ns).fold(0, u64::saturating_add)
    };
    let count = |kind: &OpKind| percentiles(explanation, kind.name()).map_or(0, |(_, count)| count);
    let best = kinds.iter().max_by_key(|kind| (stall(kind), count(kind)));
    best.map_or("write", |kind| kind.name()).to_owned()
}

fn percentiles<'a>(explanation: &'a Explanation, operation: &str) -> Option<(&'a Percentiles, u64)> {
    let own = explanation.operations.iter().find(|row| row.thread.is_empty() && row.name == operation)?;
    (own.count > 0).then_some((&own.from_start, own.count))
}

fn side((recording, explanation): (&Recording, &Explanation), operation: &str) -> Side {
    let first = explanation.findings.first();
    let known = percentiles(explanation, operation);
    let seconds = recording.header.duration_ns as f64 / 1e9;
    let device = recording.header.target.device.clone().unwrap_or_default();
    let writes = recording
        .service_times
        .iter()
        .filter(|row| row.op == flatwater_recording::RequestOp::Write && (device.is_empty() || row.device == device));
    let (ns, requests) = writes.fold((0_u64, 0_u64), |(ns, count), row| {
        (ns.saturating_add(row.device_ns), count.saturating_add(row.requests))
    });
    Side {
        cause: first.map(|finding| finding.cause),
        aggressor: first.map_or(AggressorKind::None, AggressorKind::of),
        program: first
            .and_then(|finding| finding.aggressors.first())
            .map(|aggressor| aggressor.program.clone())
            .unwrap_or_default(),
        p50_ns: known.map(|(operation, _)| operation.p50_ns),
        p99_ns: known.map(|(operation, _)| operation.p99_ns),
        p999_ns: known.map(|(operation, _)| operation.p999_ns),
        operations: known.map_or(0, |(_, count)| count),
        stall_ns_per_s: if seconds > 0.0 { explanation.slow.lost_ns as f64 / seconds } else { 0.0 },
        device_write_ns: ns.checked_div(requests),
    }
}
