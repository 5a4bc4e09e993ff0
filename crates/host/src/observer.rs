//! Reads the tracers, the sampler and the kernel's log in one order, for `run` and for `record`.
//!
//! A look reads first the calls that were timed and have settled (`settle`), then why they waited, since the records of
//! a call's waits precede the record of the call's end. Once a second it also reads latencies, the users of devices and
//! of memory, samples and the kernel's log; accounts of threads have their own times. Stacks come last, because calls
//! and waits refer to them.

use std::sync::Arc;

use super::clock::monotonic_ns;
use super::error::HostError;
use super::kernel_log::KernelLog;
use super::own_cost::give_back_memory;
use super::polled::{self, PolledCalls};
use super::sampler::{Sampler, SamplerOptions};
use super::tasks::{Tasks, Watched};
use super::tracer::{Level, TraceError, TraceOptions, Traced, Tracer};
use super::waits::{Settled, SlowRecords, Span, WaitOptions, WaitTracer};
use flatwater_recording::{
    AsyncCall, Call, Event, Gap, HookStatus, LatencyBucket, Losses, Series, ServiceTime, Stack, Users, Waited,
};

const SECOND_NS: u64 = 1_000_000_000;

/// Everything read in one look.
#[derive(Debug, Default)]
pub struct Interval {
    /// Whether a second ended with this look. Otherwise operations and users are empty.
    pub second_ended: bool,
    /// Slow calls that were timed, and those found by their waits.
    pub calls: Vec<Call>,
    pub async_calls: Vec<AsyncCall>,
    pub waited: Waited,
    /// Latencies of the calls that were timed.
    pub latencies: Vec<LatencyBucket>,
    /// Latencies of operations of io_uring and libaio.
    pub operations: Vec<LatencyBucket>,
    pub users: Users,
    pub series: Vec<Series>,
    pub events: Vec<Event>,
    /// Stacks that calls and waits refer to and that no earlier look returned.
    pub stacks: Vec<Stack>,
    pub gaps: Vec<Gap>,
}

impl Interval {
    fn add_polled(&mut self, found: polled::Found) {
        self.calls.extend(found.calls);
        self.stacks.extend(found.stacks);
        self.gaps.extend(found.gaps);
    }

    fn add(&mut self, found: SlowRecords) {
        self.calls.extend(found.calls);
        self.async_calls.extend(found.async_calls);
        self.waited = found.waited;
    }
}

/// The time of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    At(u64),
    /// The last look: nothing more will be observed, so nothing is held back.
    Last(u64),
}

impl Look {
    #[must_use]
    pub fn ns(self) -> u64 {
        match self {
            Look::At(ns) | Look::Last(ns) => ns,
        }
    }

    #[must_use]
    pub fn is_last(self) -> bool {
        matches!(self, Look::Last(_))
    }
}

/// Times calls: the driver times its threads' calls, hooks time the calls of other programs.
pub trait TimedCalls {
    /// Slow calls that have settled, with their segments, each once.
    fn settled(&mut self, tracer: &Tracer, look: Look) -> Vec<Call>;
    /// Latencies of all calls since those returned last. `second_ns`: the start of the second that ends with this look;
    /// `None` if no second ends. A source whose latencies are cheap to read returns them sooner, because a kill loses
    /// those that were not read.
    fn latencies(&mut self, tracer: &Tracer, second_ns: Option<u64>, look: Look) -> Vec<LatencyBucket>;
}

/// The tracers, the sampler, the accounts of threads, and the kernel's log.
#[derive(Debug)]
pub struct Observer {
    /// The level of hooks in use.
    pub level: Level,
    /// Shared with the workload's threads until they end.
    pub tracer: Arc<Tracer>,
    /// Finds the processes that made slow calls wait.
    waits: Option<WaitTracer>,
    sampler: Option<Sampler>,
    /// Only if no hook could be attached.
    tasks: Option<Tasks>,
    /// Likewise, for other programs.
    polled: Option<PolledCalls>,
    /// `None` if the log cannot be read.
    kernel_log: Option<KernelLog>,
    stacks_read: usize,
    /// When the second under way began.
    second_ns: u64,
}

impl Observer {
    /// Attaches the hooks that this kernel allows, and starts sampling. Returns the status of each hook, and gaps.
    #[must_use]
    pub fn start(trace: TraceOptions, sampler: &SamplerOptions) -> (Observer, Vec<HookStatus>, Vec<Gap>) {
        let (traced, level) = (trace.traced.clone(), trace.level);
        let of_others = matches!(traced, Traced::Others(_));
        let wanted = WaitOptions {
            threshold_ns: trace.threshold_ns,
            detect_calls: level == Level::Sleeps,
            whole_machine: false,
            requests: true,
            operations: of_others,
            libaio: level == Level::Calls && of_others,
        };
        let (tracer, mut hooks) = Tracer::start(trace);
        let mut gaps = tracer.gaps().to_vec();
        if let Some(gap) = gaps.first_mut().filter(|_| !tracer.sees() && of_others) {
            // Calls and the functions in which they sleep are still found.
            gap.what = "exact times of calls, and who made them wait".to_owned();
        }
        let (mut waits, mut tasks, mut polled) = (None, None, None);
        if tracer.sees() {
            waits = start_waits(&wanted, &tracer, &traced, &mut hooks, &mut gaps);
        } else {
            let (reader, missing) = Tasks::watch(watched(&traced));
            tasks = reader;
            gaps.extend(missing);
            polled =
                of_others.then(|| PolledCalls::new(watched(&traced), wanted.threshold_ns.max(polled::SHORTEST_NS)));
        }
        give_back_memory();
        let kernel_log = KernelLog::open().map_err(|gap| gaps.push(gap)).ok();
        let observer = Observer {
            level,
            tracer: Arc::new(tracer),
            waits,
            sampler: Some(Sampler::start(sampler)),
            tasks,
            polled,
            kernel_log,
            stacks_read: 0,
            second_ns: monotonic_ns(),
        };
        (observer, hooks, gaps)
    }

    /// Drops the observations so far. The first second begins at `start_ns`.
    pub fn begin(&mut self, start_ns: u64) {
        drop(self.tracer.drain());
        drop(self.tracer.latencies(start_ns, start_ns));
        if let Some(waits) = &mut self.waits {
            drop(self.tracer.with_stacks(|stacks| waits.slow_records(&[], stacks, Settled::now())));
            drop(waits.interval(start_ns, start_ns));
            drop(waits.service_times());
        }
        if let Some(polled) = &mut self.polled {
            polled.begin();
        }
        self.second_ns = start_ns;
    }

    /// Reads everything since the last look; call it often, so that the kernel's buffers do not fill up.
    pub fn look(&mut self, timed: &mut dyn TimedCalls, look: Look) -> Interval {
        let mut interval = Interval { calls: timed.settled(&self.tracer, look), ..Interval::default() };
        if let Some(waits) = &mut self.waits {
            let settled = if look.is_last() { Settled::ALL } else { Settled::now() };
            let found = self.tracer.with_stacks(|stacks| waits.slow_records(&interval.calls, stacks, settled));
            interval.add(found);
        }
        if let Some(polled) = &mut self.polled {
            interval.add_polled(if look.is_last() { polled.finish() } else { polled.take() });
        }
        let ends = look.is_last() || look.ns() >= self.second_ns.saturating_add(SECOND_NS);
        let second_ns = ends.then(|| std::mem::replace(&mut self.second_ns, look.ns()));
        interval.latencies = timed.latencies(&self.tracer, second_ns, look);
        if let Some(start_ns) = second_ns {
            self.end_second(start_ns, look, &mut interval);
        }
        // At its own times, which begin with the first look: a short run needs two readings before its threads end.
        if let Some(tasks) = &mut self.tasks {
            tasks.follow_threads(|| self.tracer.own_threads());
            interval.series.extend(tasks.sample(monotonic_ns(), monotonic_ns));
            interval.gaps.extend(tasks.missing());
        }
        interval.events.extend(self.tracer.drain_events());
        self.take_stacks(&mut interval);
        interval
    }

    fn end_second(&mut self, start_ns: u64, look: Look, interval: &mut Interval) {
        interval.second_ended = true;
        if let Some(waits) = &mut self.waits {
            let rows = waits.interval(start_ns, look.ns());
            (interval.operations, interval.users) = (rows.latencies, rows.users);
        }
        let drained = self.sampler.as_mut().map(Sampler::drain).unwrap_or_default();
        interval.gaps.extend(drained.gaps);
        interval.series.extend(drained.series);
        interval.events.extend(self.kernel_log.as_mut().map(KernelLog::take).unwrap_or_default());
    }

    fn take_stacks(&mut self, interval: &mut Interval) {
        let stacks = self.tracer.stacks_from(self.stacks_read);
        self.stacks_read += stacks.len();
        interval.stacks.extend(stacks);
    }

    /// Stops sampling while the target still exists. Returns the last samples, and how many were taken late.
    pub fn stop_sampling(&mut self) -> (Interval, u64) {
        let Some(sampler) = self.sampler.take() else { return (Interval::default(), 0) };
        let end = sampler.stop();
        let mut interval = Interval { series: end.drained.series, gaps: end.drained.gaps, ..Interval::default() };
        if let Some(mut log) = self.kernel_log.take() {
            interval.events = log.take();
            interval.gaps.extend(log.missing());
        }
        (interval, end.samples_late)
    }

    /// Detaches the hooks on calls. Returns the calls that were under way at the end of the recording, with their
    /// waits; the longest call may be among them. Calls that have returned by now are complete; the others are cut at the end
    /// and marked as still under way.
    pub fn take_under_way(&mut self, span: &Span) -> Interval {
        // Stop tracing calls before waits: a call that ended in between would have no waits.
        if let Some(tracer) = Arc::get_mut(&mut self.tracer) {
            tracer.stop();
        }
        let mut interval = Interval { calls: begun_within(span, self.tracer.drain_all()), ..Interval::default() };
        let (under_way, unread) = self.tracer.under_way();
        interval.calls.extend(cut_off(span, under_way));
        interval.gaps.extend(unread);
        if let Some(waits) = &mut self.waits {
            let (gaps, mut found) = self.tracer.with_stacks(|stacks| {
                let gaps = waits.take_unended(&interval.calls, span, stacks);
                (gaps, waits.slow_records(&interval.calls, stacks, Settled::ALL))
            });
            interval.gaps.extend(gaps);
            let (unended, ended): (Vec<_>, Vec<_>) = found.calls.into_iter().partition(|call| call.still_under_way);
            found.calls = begun_within(span, ended);
            found.calls.extend(cut_off(span, unended));
            found.async_calls.retain(|call| call.start_ns < span.end_ns);
            found.waited.waits.retain(|wait| wait.call_start_ns < span.end_ns);
            interval.add(found);
        }
        self.take_stacks(&mut interval);
        interval
    }

    /// Detaches all hooks. Returns the remaining calls of other programs with their stacks, and the losses.
    pub fn finish(self, span: &Span) -> (Interval, Losses) {
        let Observer { tracer, waits, stacks_read, .. } = self;
        let wait_losses = waits.as_ref().map(WaitTracer::losses).unwrap_or_default();
        drop(waits);
        // Normally the last user of the tracer has ended. If not, only the calls that its slots still hold are lost.
        let (calls, mut stacks, losses) = match Arc::try_unwrap(tracer) {
            Ok(tracer) => tracer.finish(),
            Err(shared) => (shared.drain(), shared.stacks_from(0), shared.losses()),
        };
        let stacks = stacks.split_off(stacks_read.min(stacks.len()));
        (Interval { calls: begun_within(span, calls), stacks, ..Interval::default() }, losses.and(wait_losses))
    }

    /// Service times of devices since the last call.
    pub fn service_times(&mut self) -> Vec<ServiceTime> {
        self.waits.as_mut().map(WaitTracer::service_times).unwrap_or_default()
    }

    /// Whether the kernel's per-thread delay accounts are read, because no hook could be attached.
    #[must_use]
    pub fn counts_tasks(&self) -> bool {
        self.tasks.is_some()
    }

    /// If slow calls are found by looking at the threads in /proc: the shortest that is certainly seen, ns.
    #[must_use]
    pub fn polled_ns_min(&self) -> Option<u64> {
        self.polled.as_ref().map(|_| polled::SHORTEST_NS)
    }

    /// Whether the calls of any thread could be seen in /proc.
    #[must_use]
    pub fn polled_threads(&self) -> bool {
        self.polled.as_ref().is_some_and(PolledCalls::saw_threads)
    }

    /// Whether operations of io_uring and libaio are timed.
    #[must_use]
    pub fn sees_waits(&self) -> bool {
        self.waits.is_some()
    }

    /// Follows a process that began after the recording: its calls, or without hooks its delay accounts.
    pub fn add_process(&mut self, pid: u32) -> Result<(), HostError> {
        if let Some(polled) = &mut self.polled {
            polled.add_process(pid);
        }
        match &mut self.tasks {
            Some(tasks) => tasks.add_process(pid),
            None => self.tracer.add_target(pid).map_err(|why| HostError::NoTracing { why })?,
        }
        if let Some(waits) = &mut self.waits {
            waits.add_target(pid).map_err(|why| HostError::NoTracing { why })?;
        }
        Ok(())
    }

    /// Makes the sampler read slabinfo once, at its next tick.
    pub fn request_slabs(&self) {
        if let Some(sampler) = &self.sampler {
            sampler.request_slabs();
        }
    }
}

/// Drops calls that began after the end of the recording.
fn begun_within(span: &Span, mut calls: Vec<Call>) -> Vec<Call> {
    calls.retain(|call| call.start_ns < span.end_ns);
    calls
}

/// Cuts calls that have not returned to the span of the recording, and drops those that are then below the threshold.
fn cut_off(span: &Span, mut calls: Vec<Call>) -> Vec<Call> {
    for call in &mut calls {
        call.begin_at(span.start_ns);
        call.end_at(span.end_ns);
    }
    calls.retain(|call| call.duration_ns > 0 && call.duration_ns >= span.threshold_ns);
    calls
}

/// Starts the tracer of waits after the tracer of calls. A failure becomes a gap.
fn start_waits(
    wanted: &WaitOptions,
    tracer: &Tracer,
    traced: &Traced,
    hooks: &mut Vec<HookStatus>,
    gaps: &mut Vec<Gap>,
) -> Option<WaitTracer> {
    let mut missing = |why: TraceError| {
        gaps.push(Gap::new("who made slow calls wait", why.to_string(), "`flatwater check` lists each hook"));
    };
    let (mut waits, statuses) =
        tracer.with_stacks(|stacks| WaitTracer::start(wanted, stacks)).map_err(&mut missing).ok()?;
    hooks.extend(statuses);
    let followed = match traced {
        Traced::Own => vec![std::process::id()],
        Traced::Others(_) => tracer.targets(),
    };
    if let Some(why) = followed.into_iter().find_map(|pid| waits.add_target(pid).err()) {
        missing(why);
    }
    Some(waits)
}

/// The threads whose delay accounts are read if no hook can be attached.
fn watched(traced: &Traced) -> Watched {
    match traced {
        Traced::Own => Watched::Threads(Vec::new()),
        Traced::Others(targets) => match &targets.cgroup {
            Some(directory) => Watched::Cgroup(directory.clone()),
            None => Watched::processes(&targets.pids),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Look, Observer, SECOND_NS, TimedCalls, begun_within, cut_off};
    use crate::tracer::{Level, Tracer};
    use crate::waits::Span;
    use flatwater_recording::{Call, LatencyBucket, OpKind, Segment};

    fn call(start_ns: u64, ns: u64) -> Call {
        Call::new(OpKind::Write, start_ns, ns, vec![Segment::unexplained(ns)])
    }

    /// Calls that settle 100 ns after their end.
    #[derive(Default)]
    struct Fixed {
        calls: Vec<Call>,
        seconds: Vec<(u64, u64)>,
    }

    impl TimedCalls for Fixed {
        fn settled(&mut self, _tracer: &Tracer, look: Look) -> Vec<Call> {
            self.calls.extract_if(.., |call| look.is_last() || call.end_ns() + 100 <= look.ns()).collect()
        }

        fn latencies(&mut self, _tracer: &Tracer, second_ns: Option<u64>, look: Look) -> Vec<LatencyBucket> {
            self.seconds.extend(second_ns.map(|start_ns| (start_ns, look.ns())));
            Vec::new()
        }
    }

    #[test]
    fn each_call_is_read_once_and_the_seconds_cover_the_recording() {
        let mut observer = Observer {
            level: Level::Files,
            tracer: Arc::new(Tracer::without_hooks()),
            waits: None,
            sampler: None,
            tasks: None,
            polled: None,
            kernel_log: None,
            stacks_read: 0,
            second_ns: 0,
        };
        let start_ns = 5_000;
        observer.begin(start_ns);
        let mut timed = Fixed { calls: vec![call(5_000, 1_000), call(5_000, SECOND_NS)], seconds: Vec::new() };
        let after = |ns| start_ns + ns;
        let looks = [
            Look::At(after(1_050)),
            Look::At(after(1_100)),
            Look::At(after(SECOND_NS - 1)),
            Look::At(after(SECOND_NS + 7)),
            Look::At(after(2 * SECOND_NS)),
            Look::Last(after(2 * SECOND_NS + 50)),
        ];
        let read: Vec<(usize, bool)> = looks
            .into_iter()
            .map(|look| {
                let interval = observer.look(&mut timed, look);
                (interval.calls.len(), interval.second_ended)
            })
            .collect();
        assert_eq!(read, [(0, false), (1, false), (0, false), (0, true), (1, false), (0, true)]);
        let (first, end) = (after(SECOND_NS + 7), after(2 * SECOND_NS + 50));
        assert_eq!(timed.seconds, [(start_ns, first), (first, end)]);
    }

    #[test]
    fn calls_under_way_are_cut_to_the_recording() {
        let span = Span { start_ns: 1_000, end_ns: 1_100, threshold_ns: 20 };
        let calls = vec![call(900, 500), call(1_050, 500), call(1_090, 500), call(1_200, 500)];
        let cut: Vec<_> =
            cut_off(&span, calls).iter().map(|call| (call.start_ns, call.duration_ns, call.tiles())).collect();
        assert_eq!(
            cut,
            [(1_000, 100, true), (1_050, 50, true)],
            "10 ns are not slow, and the last call began after the end"
        );
    }

    #[test]
    fn calls_that_began_after_the_end_are_left_out() {
        let span = Span { start_ns: 1_000, end_ns: 1_100, threshold_ns: 0 };
        let calls = [1_000, 1_090, 1_100].map(|start_ns| call(start_ns, 50)).to_vec();
        let kept: Vec<u64> = begun_within(&span, calls).iter().map(|call| call.start_ns).collect();
        assert_eq!(kept, [1_000, 1_090]);
    }
}
