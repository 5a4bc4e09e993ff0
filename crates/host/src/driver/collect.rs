//! Collects the actors' timings: histograms per second, individual slow calls, and the workloads' own tables.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use super::actor::{Batch, Failure, Performed};
use super::append::PrecursorReport;
use flatwater_recording::outcome::{JournalOutcome, WorkloadOutcome};
use flatwater_recording::{Call, HIGHEST_NS, LatencyBucket, OpKind, PackedHistogram, Segment, Series, histogram};
use flatwater_workload::Op;
use flatwater_workload::observe::{Observation, Observe};

/// Width of a latency bucket.
pub const BUCKET_NS: u64 = 1_000_000_000;
/// Latencies are passed on this often, if necessary a bucket in several rows, because a kill loses what has not been
/// passed on.
const READY_EVERY_NS: u64 = 500_000_000;

/// The name and role of an actor.
#[derive(Clone, Debug)]
pub struct ActorName {
    pub thread: String,
    pub foreground: bool,
}

/// A slow call before its segments are known.
#[derive(Clone, Debug)]
pub struct SlowCall {
    pub pid: u32,
    pub tid: u32,
    pub thread: String,
    pub file: Option<String>,
    pub foreground: bool,
    pub seen: Performed,
}

impl SlowCall {
    /// Makes the call with these segments; if they are empty or do not tile it, the whole call is unexplained.
    #[must_use]
    pub fn into_call(self, segments: Vec<Segment>, after_exit_ns: u64, damaged: bool) -> Call {
        let whole = Segment::unexplained(self.seen.duration_ns);
        let offset_bytes = match self.seen.op {
            Op::Write { offset_bytes, .. } | Op::Read { offset_bytes, .. } => Some(offset_bytes),
            _ => None,
        };
        let bytes = (self.seen.bytes > 0).then_some(self.seen.bytes);
        let op = self.seen.op.kind().unwrap_or(OpKind::Other);
        let mut call = Call::new(op, self.seen.start_ns, self.seen.duration_ns, segments)
            .by(self.pid, self.tid, self.thread)
            .on(self.file, bytes, offset_bytes);
        (call.due_ns, call.after_exit_ns, call.damaged) = (self.seen.due_ns, after_exit_ns, damaged);
        if call.segments.is_empty() || !call.tiles() {
            call.damaged |= !call.segments.is_empty();
            call.segments = vec![whole];
        }
        call
    }
}

/// A bucket that is still counting.
struct Counting {
    bytes: u64,
    from_start: Histogram<u64>,
    from_due: Option<Histogram<u64>>,
    worst_from_start_ns: u64,
    worst_from_due_ns: Option<u64>,
}

impl Counting {
    fn new(from_start: Histogram<u64>) -> Counting {
        Counting { bytes: 0, from_start, from_due: None, worst_from_start_ns: 0, worst_from_due_ns: None }
    }
}

/// Empty histograms for reuse. A histogram takes 264 KiB, which the C library gets from the kernel on each allocation.
/// Allocating one twice a second per kind of operation took most of what a run charged to its own memory cgroup (750
/// pages a second, each of which may hit the limit).
#[derive(Default)]
struct Spare(Vec<Histogram<u64>>);

impl Spare {
    /// Enough for the kinds of operations in a run's foreground; the memory of many simultaneous neighbours is not
    /// kept.
    const KEPT: usize = 8;

    fn take(&mut self) -> Histogram<u64> {
        self.0.pop().unwrap_or_else(histogram)
    }

    fn pack(&mut self, mut counting: Histogram<u64>) -> PackedHistogram {
        let packed = PackedHistogram::pack(&counting);
        if self.0.len() < Self::KEPT {
            counting.reset();
            self.0.push(counting);
        }
        packed
    }

    fn bucket(&mut self, (start_ns, op, thread): BucketKey, counting: Counting) -> LatencyBucket {
        LatencyBucket {
            start_ns,
            width_ns: BUCKET_NS,
            op,
            thread,
            bytes: counting.bytes,
            from_start: self.pack(counting.from_start),
            from_due: counting.from_due.map(|counted| self.pack(counted)),
            worst_from_start_ns: counting.worst_from_start_ns,
            worst_from_due_ns: counting.worst_from_due_ns,
        }
    }
}

/// Start, kind of operation, thread.
type BucketKey = (u64, OpKind, String);

pub struct Collector {
    threshold_ns: u64,
    names: Vec<Vec<ActorName>>,
    observers: Vec<Option<Box<dyn Observe>>>,
    buckets: BTreeMap<BucketKey, Counting>,
    /// The bucket of the last operation, taken out of the map, because the next operation is usually in the same
    /// bucket.
    open: Option<(BucketKey, Counting)>,
    spare: Spare,
    ready_ns: u64,
    slow: Vec<SlowCall>,
    pub failures: Vec<Failure>,
    ended: usize,
    cpu_ns: u64,
    /// The precursor's reports, one per actor.
    report: Vec<PrecursorReport>,
    /// Slow calls of processes that actors started; counted only.
    foreign_slow: u64,
}

impl std::fmt::Debug for Collector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Collector").field("buckets", &self.buckets.len()).finish_non_exhaustive()
    }
}

impl Collector {
    #[must_use]
    pub fn new(threshold_ns: u64, names: Vec<Vec<ActorName>>, observers: Vec<Option<Box<dyn Observe>>>) -> Collector {
        Collector {
            threshold_ns,
            names,
            observers,
            buckets: BTreeMap::new(),
            open: None,
            spare: Spare::default(),
            ready_ns: 0,
            slow: Vec::new(),
            failures: Vec::new(),
            ended: 0,
            cpu_ns: 0,
            report: Vec::new(),
            foreign_slow: 0,
        }
    }

    /// Takes in a batch; `file_name` returns the path of a slow call's file.
    pub fn take(&mut self, batch: Batch, file_name: &dyn Fn(usize, &Op) -> Option<String>) {
        let Some(name) = self.names.get(batch.workload).and_then(|names| names.get(batch.actor)).cloned() else {
            return;
        };
        for seen in &batch.seen {
            if let Some(Some(observer)) = self.observers.get_mut(batch.workload) {
                observer.observe(&Observation {
                    actor: batch.actor,
                    thread: &name.thread,
                    tid: batch.tid,
                    op: seen.op,
                    start_ns: seen.start_ns,
                    due_ns: seen.due_ns,
                    duration_ns: seen.duration_ns,
                    bytes: seen.bytes,
                    measured: seen.measured,
                });
            }
            let Some(kind) = seen.op.kind().filter(|_| seen.measured) else { continue };
            self.count(kind, &name, seen);
            if seen.duration_ns < self.threshold_ns || matches!(kind, OpKind::Spawn) {
                continue;
            }
            if batch.pid == std::process::id() {
                self.slow.push(SlowCall {
                    pid: batch.pid,
                    tid: batch.tid,
                    thread: name.thread.clone(),
                    file: file_name(batch.workload, &seen.op),
                    foreground: name.foreground,
                    seen: *seen,
                });
            } else {
                // No hook is marked when another process begins an operation, so such a call could only be listed as
                // unexplained, which would be wrong about the machine.
                self.foreign_slow += 1;
            }
        }
        self.failures.extend(batch.failure);
        self.ended += usize::from(batch.ended);
        self.cpu_ns += batch.cpu_ns;
        self.report.extend(batch.precursor);
    }

    fn count(&mut self, kind: OpKind, name: &ActorName, seen: &Performed) {
        let end_ns = seen.start_ns + seen.duration_ns;
        let start_ns = end_ns - end_ns % BUCKET_NS;
        // Foreground actors share a row; each neighbour has its own, under its name.
        let thread = if name.foreground { "" } else { &name.thread };
        let (bucket, spare) = self.bucket(start_ns, kind, thread);
        bucket.bytes += seen.bytes;
        bucket.from_start.saturating_record(seen.duration_ns.clamp(1, HIGHEST_NS));
        bucket.worst_from_start_ns = bucket.worst_from_start_ns.max(seen.duration_ns);
        if let Some(due_ns) = seen.due_ns {
            let late_ns = end_ns.saturating_sub(due_ns);
            bucket.from_due.get_or_insert_with(|| spare.take()).saturating_record(late_ns.clamp(1, HIGHEST_NS));
            bucket.worst_from_due_ns = Some(bucket.worst_from_due_ns.unwrap_or(0).max(late_ns));
        }
    }

    fn bucket(&mut self, start_ns: u64, kind: OpKind, thread: &str) -> (&mut Counting, &mut Spare) {
        let follows = |(at_ns, of, by): &BucketKey| (*at_ns, *of, by.as_str()) == (start_ns, kind, thread);
        if !self.open.as_ref().is_some_and(|(key, _)| follows(key)) {
            self.put_back();
        }
        let (_, counting) = self.open.get_or_insert_with(|| {
            let key = (start_ns, kind, thread.to_owned());
            let counting = self.buckets.remove(&key).unwrap_or_else(|| Counting::new(self.spare.take()));
            (key, counting)
        });
        (counting, &mut self.spare)
    }

    fn put_back(&mut self) {
        if let Some((key, counting)) = self.open.take() {
            self.buckets.insert(key, counting);
        }
    }

    /// The counts since the last call, if that was long enough ago; at the end (`None`) in any case.
    pub fn ready(&mut self, now_ns: Option<u64>) -> Vec<LatencyBucket> {
        if now_ns.is_some_and(|now_ns| now_ns.saturating_sub(self.ready_ns) < READY_EVERY_NS) {
            return Vec::new();
        }
        self.ready_ns = now_ns.unwrap_or(self.ready_ns);
        self.put_back();
        let all = std::mem::take(&mut self.buckets);
        all.into_iter().map(|(key, counting)| self.spare.bucket(key, counting)).collect()
    }

    /// Removes and returns the slow calls that ended before `limit_ns`, in order of their start.
    pub fn slow_before(&mut self, limit_ns: u64) -> Vec<SlowCall> {
        let (mut ready, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.slow)
            .into_iter()
            .partition(|call| call.seen.start_ns + call.seen.duration_ns < limit_ns);
        self.slow = later;
        ready.sort_by_key(|call| call.seen.start_ns);
        ready
    }

    #[must_use]
    pub fn actors_ended(&self) -> usize {
        self.ended
    }

    /// Why the precursor chose its mode; empty if it was not used.
    #[must_use]
    pub fn precursor_reasons(&self) -> &[String] {
        self.report.first().map_or(&[], |report| &report.reasons)
    }

    /// The number of slow calls of child processes: these are in the latencies, but not among the slow calls.
    #[must_use]
    pub fn foreign_slow(&self) -> u64 {
        self.foreign_slow
    }

    /// CPU time that the actors' threads have used, which is not flatwater's own cost.
    #[must_use]
    pub fn workload_cpu_ns(&self) -> u64 {
        self.cpu_ns
    }

    /// The workloads' own tables; call it after all actors have ended.
    #[must_use]
    pub fn outcomes(self, sampled: &[Series]) -> Vec<WorkloadOutcome> {
        let observers = self.observers.into_iter().flatten();
        let mut outcomes: Vec<WorkloadOutcome> = observers.filter_map(|observer| observer.outcome(sampled)).collect();
        let Some(precursor) = precursor_outcome(&self.report) else { return outcomes };
        let journal = outcomes.iter_mut().find_map(|outcome| match outcome {
            WorkloadOutcome::Journal(journal) => Some(journal),
            _ => None,
        });
        match journal {
            Some(journal) => {
                let JournalOutcome { precursor_mode, late_windows, waits, .. } = precursor;
                *journal = JournalOutcome { precursor_mode, late_windows, waits, ..std::mem::take(journal) };
            }
            None => outcomes.push(WorkloadOutcome::Journal(precursor)),
        }
        outcomes
    }
}

/// Sums the reports of all appenders of the run.
fn precursor_outcome(report: &[PrecursorReport]) -> Option<JournalOutcome> {
    let first = report.first()?;
    Some(JournalOutcome {
        appends: report.iter().map(|appender| appender.appends).sum(),
        bytes: report.iter().map(|appender| appender.bytes).sum(),
        precursor_mode: first.mode.clone(),
        late_windows: report.iter().map(|appender| appender.late_windows).sum(),
        waits: report.iter().map(|appender| appender.waits).sum(),
        ..JournalOutcome::default()
    })
}

#[cfg(test)]
mod tests {
    use super::{Counting, Spare};
    use flatwater_recording::{OpKind, histogram};

    #[test]
    fn histograms_are_reused_empty_and_few_are_kept() {
        let mut spare = Spare::default();
        let bucket = |spare: &mut Spare, latencies: &[u64]| {
            let mut counting = Counting::new(spare.take());
            latencies.iter().for_each(|ns| counting.from_start.saturating_record(*ns));
            spare.bucket((0, OpKind::Write, String::new()), counting)
        };
        assert_eq!(bucket(&mut spare, &[1_000, 3_600_000_000_000]).from_start.count(), 2);
        assert_eq!(spare.0.len(), 1);
        let next = bucket(&mut spare, &[7]);
        assert_eq!((next.from_start.count(), next.from_start.highest_ns(), spare.0.len()), (1, 7, 1));
        (0..100).for_each(|_| drop(spare.pack(histogram())));
        assert_eq!(spare.0.len(), Spare::KEPT);
    }
}
