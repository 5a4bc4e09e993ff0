//! The results of a run: latency by bucket, slow calls with their segments, the workloads' tables, and separately the
//! truth about each slow call.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use crate::run::actor::Who;
use crate::sched::site::{Generation, Site, call_root};
use crate::sched::task::{Culprit, Mechanism, Spent, Task};
use flatwater_recording::{
    Call, Event, EventKind, LatencyBucket, OpKind, PackedHistogram, Segment, Stack, StackId, histogram,
};
use flatwater_workload::observe::{Observation, Observe};
use flatwater_workload::{FileId, Op, Workload};

/// A completed operation.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    pub op: Op,
    pub start_ns: u64,
    pub end_ns: u64,
    pub due_ns: Option<u64>,
    pub bytes: u64,
    pub measured: bool,
}

/// The true cause of a slow call: for tests, not for explain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrueStall {
    pub start_ns: u64,
    pub duration_ns: u64,
    /// The mechanism that took most of the call, and the cause of that wait.
    pub site: Site,
    pub culprit: Culprit,
    /// The call's time by mechanism, ns.
    pub lost: Vec<(Site, u64)>,
    /// The mechanisms that it was in, with the instants of entry and exit, independent of the ledger.
    pub inside: Vec<(Mechanism, u64, u64)>,
}

/// Slow calls beyond this number are only counted.
const CALLS_MAX: usize = 200_000;

struct Counting {
    bytes: u64,
    from_start: Histogram<u64>,
    from_due: Option<Histogram<u64>>,
    worst_ns: u64,
    worst_due_ns: Option<u64>,
}

#[derive(Default)]
pub struct Recorder {
    generation: Generation,
    threshold_ns: u64,
    width_ns: u64,
    bucket_ns: u64,
    /// Operations that began earlier are not recorded.
    from_ns: u64,
    /// By thread and kind of operation: `thread * kinds + kind`.
    counting: Vec<Option<Counting>>,
    /// Names of neighbours by number; 0 is all foreground threads together.
    threads: Vec<String>,
    /// By workload and actor; `None` before its first operation.
    thread_of: Vec<Vec<Option<u32>>>,
    pub observers: Vec<Option<Box<dyn Observe>>>,
    pub workloads: Vec<Box<dyn Workload>>,
    pub latency: Vec<LatencyBucket>,
    pub calls: Vec<Call>,
    pub truth: Vec<TrueStall>,
    pub dropped_calls: u64,
    pub stacks: Vec<Stack>,
    stack_ids: BTreeMap<(Site, OpKind), StackId>,
    pub events: Vec<Event>,
    pub operations: u64,
    spare: Vec<Histogram<u64>>,
}

impl Recorder {
    pub fn new(generation: Generation, threshold_ns: u64, duration_ns: u64) -> Recorder {
        // A bucket a second, and at most 600 buckets in longer runs.
        let width_ns = (duration_ns / 600).max(1_000_000_000).next_multiple_of(1_000_000_000);
        Recorder { generation, threshold_ns, width_ns, threads: vec![String::new()], ..Recorder::default() }
    }

    pub fn event(&mut self, at_ns: u64, text: String) {
        self.events.push(Event::new(at_ns, EventKind::Mark(text)));
    }

    /// Width of a bucket of the latencies.
    pub fn width_ns(&self) -> u64 {
        self.width_ns
    }

    /// Operations that begin before this instant are not recorded.
    pub fn begin_at(&mut self, from_ns: u64) {
        self.from_ns = from_ns;
    }

    /// Discards the results so far: the recording begins at this instant, at the start of a bucket.
    pub fn begin_anew(&mut self, from_ns: u64) {
        let mut fresh = Recorder::new(self.generation, self.threshold_ns, 0);
        (fresh.width_ns, fresh.bucket_ns, fresh.from_ns) = (self.width_ns, from_ns, from_ns);
        fresh.observers = self.workloads.iter().map(|workload| workload.observer()).collect();
        fresh.workloads = std::mem::take(&mut self.workloads);
        *self = fresh;
    }

    fn thread(&mut self, who: &Who) -> u32 {
        let (workload, actor) = (who.workload as usize, who.actor as usize);
        if let Some(known) = self.thread_of.get(workload).and_then(|all| all.get(actor).copied().flatten()) {
            return known;
        }
        // As on a host: one row for the foreground and one for each neighbour, so that the rows add up to the work
        // done.
        let number = if who.foreground {
            0
        } else {
            let place = self.threads.iter().position(|name| **name == *who.name).unwrap_or_else(|| {
                self.threads.push(who.name.to_string());
                self.threads.len() - 1
            });
            place as u32
        };
        if self.thread_of.len() <= workload {
            self.thread_of.resize_with(workload + 1, Vec::new);
        }
        if self.thread_of[workload].len() <= actor {
            self.thread_of[workload].resize(actor + 1, None);
        }
        self.thread_of[workload][actor] = Some(number);
        number
    }

    /// Records a call that has not returned at the end of the run and may be the longest of all.
    pub fn still_under_way(&mut self, who: &Who, until_now: &Ended, task: &Task) {
        let Some(kind) = until_now.op.kind().filter(|_| until_now.measured && who.foreground) else { return };
        if until_now.start_ns < self.from_ns || until_now.end_ns - until_now.start_ns < self.threshold_ns {
            return;
        }
        let kept = self.calls.len();
        self.keep_slow(who, until_now, kind, task);
        if let Some(call) = self.calls.get_mut(kept) {
            call.still_under_way = true;
        }
    }

    pub fn ended(&mut self, who: &Who, ended: &Ended, task: &Task) {
        if ended.start_ns < self.from_ns {
            return;
        }
        self.operations += 1;
        self.observe(who, ended);
        let Some(kind) = ended.op.kind().filter(|_| ended.measured) else { return };
        if ended.end_ns >= self.bucket_ns + self.width_ns {
            self.close_buckets(ended.end_ns);
        }
        let thread = self.thread(who);
        self.count(kind, thread, ended);
        let duration_ns = ended.end_ns - ended.start_ns;
        if duration_ns >= self.threshold_ns && who.foreground {
            self.keep_slow(who, ended, kind, task);
        }
    }

    fn observe(&mut self, who: &Who, ended: &Ended) {
        if let Some(Some(observer)) = self.observers.get_mut(who.workload as usize) {
            observer.observe(&observation(who, ended));
        }
    }

    /// Records a mark or the like, which takes no time, in the workload's table.
    pub fn observe_only(&mut self, who: &Who, op: Op, at_ns: u64, measured: bool) {
        self.observe(who, &Ended { op, start_ns: at_ns, end_ns: at_ns, due_ns: None, bytes: 0, measured });
    }

    fn count(&mut self, kind: OpKind, thread: u32, ended: &Ended) {
        let place = thread as usize * OpKind::ALL.len() + kind as usize;
        if place >= self.counting.len() {
            self.counting.resize_with(place + 1, || None);
        }
        let spare = &mut self.spare;
        let counting = self.counting[place].get_or_insert_with(|| Counting {
            bytes: 0,
            from_start: spare.pop().unwrap_or_else(histogram),
            from_due: None,
            worst_ns: 0,
            worst_due_ns: None,
        });
        let ns = (ended.end_ns - ended.start_ns).max(1);
        counting.bytes += ended.bytes;
        counting.from_start.saturating_record(ns);
        counting.worst_ns = counting.worst_ns.max(ns);
        if let Some(due_ns) = ended.due_ns {
            let late = (ended.end_ns - due_ns).max(1);
            counting.from_due.get_or_insert_with(|| spare.pop().unwrap_or_else(histogram)).saturating_record(late);
            counting.worst_due_ns = Some(counting.worst_due_ns.unwrap_or(0).max(late));
        }
    }

    /// Packs the present bucket and begins the bucket of this instant.
    pub fn close_buckets(&mut self, now_ns: u64) {
        let kinds = OpKind::ALL.len();
        let threads = self.counting.len().div_ceil(kinds);
        for (kind, thread) in (0..kinds).flat_map(|kind| (0..threads).map(move |thread| (kind, thread))) {
            let slot = self.counting.get_mut(thread * kinds + kind);
            let Some(counting) = slot.and_then(Option::take) else { continue };
            self.latency.push(LatencyBucket {
                start_ns: self.bucket_ns,
                width_ns: self.width_ns,
                op: OpKind::ALL[kind],
                thread: self.threads[thread].clone(),
                bytes: counting.bytes,
                from_start: PackedHistogram::pack(&counting.from_start),
                from_due: counting.from_due.as_ref().map(PackedHistogram::pack),
                worst_from_start_ns: counting.worst_ns,
                worst_from_due_ns: counting.worst_due_ns,
            });
            for mut histogram in std::iter::once(counting.from_start).chain(counting.from_due) {
                histogram.reset();
                self.spare.push(histogram);
            }
        }
        self.bucket_ns = now_ns / self.width_ns * self.width_ns;
    }

    fn keep_slow(&mut self, who: &Who, ended: &Ended, kind: OpKind, task: &Task) {
        if self.calls.len() >= CALLS_MAX {
            self.dropped_calls += 1;
            return;
        }
        let duration_ns = ended.end_ns - ended.start_ns;
        let sums = by_site(&task.spent);
        let worst = sums.iter().max_by_key(|(_, (ns, _))| *ns);
        let (site, culprit) = worst.map_or((Site::Work, Culprit::Unattributed), |(site, (_, by))| (*site, *by));
        let lost = sums.iter().map(|(site, (ns, _))| (*site, *ns)).collect();
        let inside = task.inside.clone();
        self.truth.push(TrueStall { start_ns: ended.start_ns, duration_ns, site, culprit, lost, inside });
        let mut segments: Vec<Segment> = Vec::with_capacity(task.spent.len());
        let mut offset_ns = 0;
        for spent in &task.spent {
            let cause = spent.site.cause();
            let stack = self.stack(spent.site, kind);
            match segments.last_mut() {
                Some(last) if last.cause == cause && last.stack == stack => {
                    last.ns += spent.ns;
                    last.count += 1;
                }
                _ => segments.push(Segment::bracketed(offset_ns, spent.ns, cause).with_stack(stack)),
            }
            offset_ns += spent.ns;
        }
        debug_assert_eq!(offset_ns, duration_ns, "the segments of a {kind:?} tile it: {:?}", task.spent);
        let file = ended.op.file().map(|file: FileId| self.workloads[who.workload as usize].path(file));
        let pid = 1000 * (who.workload + 1);
        let offset_bytes = match ended.op {
            Op::Write { offset_bytes, .. } | Op::Read { offset_bytes, .. } => Some(offset_bytes),
            _ => None,
        };
        let mut call = Call::new(kind, ended.start_ns, duration_ns, segments)
            .by(pid, pid + who.actor, who.name.to_string())
            .on(file, (ended.bytes > 0).then_some(ended.bytes), offset_bytes);
        (call.due_ns, call.damaged) = (ended.due_ns, offset_ns != duration_ns);
        self.calls.push(call);
    }

    fn stack(&mut self, site: Site, kind: OpKind) -> Option<StackId> {
        let frames = site.frames(self.generation);
        if frames.is_empty() {
            return None;
        }
        let next = StackId(self.stacks.len() as u32);
        let id = *self.stack_ids.entry((site, kind)).or_insert(next);
        if id == next {
            let root = call_root(kind);
            let frames = frames.into_iter().chain([root]).map(str::to_owned).collect();
            self.stacks.push(Stack { id, frames });
        }
        Some(id)
    }
}

fn observation<'a>(who: &'a Who, ended: &Ended) -> Observation<'a> {
    Observation {
        actor: who.actor as usize,
        thread: &who.name,
        tid: 1000 * (who.workload + 1) + who.actor,
        op: ended.op,
        start_ns: ended.start_ns,
        due_ns: ended.due_ns,
        duration_ns: ended.end_ns - ended.start_ns,
        bytes: ended.bytes,
        measured: ended.measured,
    }
}

/// A call's time by mechanism, with the cause of each wait.
fn by_site(spent: &[Spent]) -> BTreeMap<Site, (u64, Culprit)> {
    let mut sums: BTreeMap<Site, (u64, Culprit)> = BTreeMap::new();
    for segment in spent {
        let sum = sums.entry(segment.site).or_default();
        sum.0 += segment.ns;
        if segment.by != Culprit::Unattributed {
            sum.1 = segment.by;
        }
    }
    sums
}
