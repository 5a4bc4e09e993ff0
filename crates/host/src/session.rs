//! A recording in progress: the writer, the tracers and the sampler.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::clock::monotonic_ns;
use super::error::HostError;
use super::kernel_log::KernelLog;
use super::machine;
use super::own_cost::{OwnCostMeter, give_back_memory};
use super::proc::mounts;
use super::sampler::{Drained, Sampler, SamplerOptions};
use super::tasks::{Tasks, Watched};
use super::tracer::{Level, TraceError, TraceOptions, Traced, Tracer};
use super::waits::{Settled, SlowRecords, Span, WaitOptions, WaitTracer};
use flatwater_recording::store::{Finished, RecordingWriter};
use flatwater_recording::units::Nanos;
use flatwater_recording::{
    Call, Event, EventKind, Gap, Header, HookStatus, LatencyBucket, Note, OwnCost, Series, WorkloadOutcome,
};
use flatwater_safefs::Dir;
use flatwater_workload::outcome::levels;

/// Keep at most this many rows of a table for a workload's outcome (levels of memory); in longer runs every second row
/// is dropped as often as needed.
const KEPT_ROWS_MAX: usize = 1 << 14;
const SAMPLES_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct SessionOptions {
    pub out: Dir,
    pub header: Header,
    pub trace: TraceOptions,
    pub sampler: SamplerOptions,
}

#[derive(Debug)]
pub struct Session {
    pub header: Header,
    level: Level,
    /// Shared with the workload's threads until they end.
    pub tracer: Arc<Tracer>,
    /// Finds the processes that made slow calls wait.
    waits: Option<WaitTracer>,
    writer: RecordingWriter,
    /// The output directory. The handle stays valid if the path is renamed.
    out: Dir,
    sampler: Option<Sampler>,
    cost: OwnCostMeter,
    stacks_written: usize,
    kept: Vec<Series>,
    /// Only if no hook could be attached.
    tasks: Option<Tasks>,
    /// `None` if the log cannot be read.
    kernel_log: Option<KernelLog>,
    slow_calls: u64,
    lost_ns: u64,
    trouble_told: bool,
    /// When samples were last written.
    sampled: Instant,
    /// There are latencies or calls that have not been flushed.
    unwritten: bool,
    /// The recording ended before the requested time.
    interrupted: bool,
}

impl Session {
    /// Creates the recording, attaches the hooks, starts sampling.
    pub fn start(options: SessionOptions) -> Result<Session, HostError> {
        let SessionOptions { out, mut header, trace, sampler } = options;
        let (whom, level) = (trace.whom.clone(), trace.level);
        let wanted = WaitOptions {
            threshold_ns: trace.threshold_ns,
            detect_calls: trace.level == Level::Sleeps,
            whole_machine: false,
            requests: true,
            operations: matches!(whom, Traced::Others(_)),
            libaio: trace.level == Level::Calls && matches!(whom, Traced::Others(_)),
        };
        let (tracer, mut hooks) = Tracer::start(trace);
        let (waits, wait_gaps) = match tracer.sees() {
            true => start_waits(&wanted, &tracer, &whom, &mut hooks),
            false => (None, Vec::new()),
        };
        give_back_memory();
        let (tasks, task_gaps) = match tracer.sees() {
            true => (None, Vec::new()),
            false => Tasks::watch(watched(&whom)),
        };
        let (kernel_log, log_gap) = match KernelLog::open() {
            Ok(log) => (Some(log), None),
            Err(gap) => (None, Some(gap)),
        };
        header.hooks = hooks;
        header.machine = machine::describe();
        header.time_distorted |= machine::is_emulated(&header.machine) && header.icount.is_none();
        header.target.file_system = header.target.directory.as_deref().and_then(file_system_of);
        header.notes.extend(what_is_missing(&tracer, &whom).map(Note::Text));
        if matches!(header.target.file_system.as_deref(), Some("tmpfs" | "ramfs")) {
            header.notes.push(
                "the files are on tmpfs: no block device, journal or writeback is involved in these calls".into(),
            );
        }
        let mut writer = RecordingWriter::create(&out.proc_path(), &header)?;
        writer.append_gaps(tracer.gaps())?;
        writer.append_gaps(&task_gaps)?;
        writer.append_gaps(&wait_gaps)?;
        writer.append_gaps(log_gap.as_slice())?;
        Ok(Session {
            header,
            level,
            tracer: Arc::new(tracer),
            waits,
            writer,
            out,
            sampler: Some(Sampler::start(&sampler)),
            cost: OwnCostMeter::start(),
            stacks_written: 0,
            kept: Vec::new(),
            tasks,
            kernel_log,
            slow_calls: 0,
            lost_ns: 0,
            trouble_told: false,
            sampled: Instant::now(),
            unwritten: false,
            interrupted: false,
        })
    }

    pub fn event(&mut self, at_ns: u64, kind: EventKind) -> Result<(), HostError> {
        Ok(self.writer.append_events(&[Event::new(at_ns, kind)])?)
    }

    pub fn gaps(&mut self, gaps: &[Gap]) -> Result<(), HostError> {
        Ok(self.writer.append_gaps(gaps)?)
    }

    pub fn latency(&mut self, buckets: &[LatencyBucket]) -> Result<(), HostError> {
        self.unwritten |= !buckets.is_empty();
        Ok(self.writer.append_latency(buckets)?)
    }

    pub fn calls(&mut self, calls: &[Call]) -> Result<(), HostError> {
        self.slow_calls += calls.len() as u64;
        self.unwritten |= !calls.is_empty();
        self.lost_ns += calls.iter().map(|call| call.duration_ns).sum::<u64>();
        Ok(self.writer.append_calls(calls)?)
    }

    /// Whether the kernel's per-thread delay accounts are read, because no hook could be attached.
    #[must_use]
    pub fn counts_tasks(&self) -> bool {
        self.tasks.is_some()
    }

    /// Adds to slow calls who made them wait. Records and returns the calls that were found by their waits.
    pub fn waits(&mut self, calls: &[Call], all: bool) -> Result<Vec<Call>, HostError> {
        let Some(waits) = &mut self.waits else { return Ok(Vec::new()) };
        let settled = if all { Settled::ALL } else { Settled::now() };
        let told = self.tracer.with_stacks(|stacks| waits.slow_records(calls, stacks, settled));
        self.told(told)
    }

    fn told(&mut self, told: SlowRecords) -> Result<Vec<Call>, HostError> {
        self.writer.append_waited(&told.waited)?;
        self.writer.append_async_calls(&told.async_calls)?;
        self.calls(&told.calls)?;
        Ok(told.calls)
    }

    /// Records the calls under way at the end of the recording, with their waits; the longest call may be among them.
    /// Calls that have returned by now are complete; the others are cut at the end and marked as still under way.
    fn last_calls(&mut self) -> Result<(), HostError> {
        let span = span_of(&self.header);
        let mut calls = begun_within(&self.header, self.tracer.drain_all());
        let (under_way, unread) = self.tracer.under_way();
        calls.extend(cut_off(&span, under_way));
        self.gaps(unread.as_slice())?;
        self.calls(&calls)?;
        let Some(waits) = &mut self.waits else { return Ok(()) };
        let (gaps, mut told) = self.tracer.with_stacks(|stacks| {
            let gaps = waits.take_unended(&calls, &span, stacks);
            (gaps, waits.slow_records(&calls, stacks, Settled::ALL))
        });
        self.writer.append_gaps(&gaps)?;
        let (unended, ended): (Vec<_>, Vec<_>) = told.calls.into_iter().partition(|call| call.still_under_way);
        told.calls = begun_within(&self.header, ended);
        told.calls.extend(cut_off(&span, unended));
        told.async_calls.retain(|call| call.start_ns < span.end_ns);
        told.waited.waits.retain(|wait| wait.call_start_ns < span.end_ns);
        self.told(told)?;
        Ok(())
    }

    /// Drops what was seen before the recording began.
    pub fn forget_before(&mut self, start_ns: u64) -> Result<(), HostError> {
        drop(self.tracer.drain());
        drop(self.tracer.latencies(start_ns, start_ns));
        if let Some(waits) = &mut self.waits {
            drop(self.tracer.with_stacks(|stacks| waits.slow_records(&[], stacks, Settled::now())));
            drop(waits.interval(start_ns, start_ns));
        }
        Ok(())
    }

    /// Records the users of devices and dirty pages in an interval that ends now. Returns the latencies of asynchronous
    /// operations in the interval.
    pub fn interval(&mut self, start_ns: u64, end_ns: u64) -> Result<Vec<LatencyBucket>, HostError> {
        let Some(waits) = &mut self.waits else { return Ok(Vec::new()) };
        let interval = waits.interval(start_ns, end_ns);
        self.writer.append_users(&interval.users)?;
        Ok(interval.latencies)
    }

    /// The level of hooks in use.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    /// Whether operations of io_uring and libaio are timed.
    #[must_use]
    pub fn sees_waits(&self) -> bool {
        self.waits.is_some()
    }

    #[must_use]
    pub fn slow_calls(&self) -> u64 {
        self.slow_calls
    }

    #[must_use]
    pub fn lost_ns(&self) -> u64 {
        self.lost_ns
    }

    /// Follows a process that began after the recording: its calls, or without hooks its delay accounts.
    pub fn add_process(&mut self, pid: u32) -> Result<(), HostError> {
        self.header.target.pids.push(pid);
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

    /// Writes the current header, which a reader finds if this process is killed.
    pub fn publish_header(&mut self) -> Result<(), HostError> {
        Ok(self.writer.header(&self.header)?)
    }

    /// Flushes latencies and calls, and once a second also the samples; call this often. Returns a write error the
    /// first time that one occurs.
    pub fn tick(&mut self) -> Result<Option<Gap>, HostError> {
        // Not more often: a batch of a few hundred columns costs the same with one row as with ten.
        if self.sampled.elapsed() >= SAMPLES_EVERY {
            self.sampled = Instant::now();
            self.unwritten = true;
            let drained = self.sampler.as_mut().map(Sampler::drain).unwrap_or_default();
            self.drained(drained)?;
            self.kernel_log()?;
            if let Some(tasks) = &mut self.tasks {
                tasks.follow_threads(|| self.tracer.own_threads());
                if let Some(series) = tasks.sample(monotonic_ns(), monotonic_ns) {
                    self.writer.append_series(&series)?;
                }
                self.writer.append_gaps(tasks.missing().as_slice())?;
            }
        }
        if !std::mem::take(&mut self.unwritten) {
            return Ok(None);
        }
        self.stacks()?;
        self.writer.append_events(&self.tracer.drain_events())?;
        self.writer.flush_now();
        let trouble = self.writer.trouble().filter(|_| !self.trouble_told);
        self.trouble_told |= trouble.is_some();
        Ok(trouble)
    }

    fn kernel_log(&mut self) -> Result<(), HostError> {
        let said = self.kernel_log.as_mut().map(KernelLog::take).unwrap_or_default();
        Ok(self.writer.append_events(&said)?)
    }

    fn stacks(&mut self) -> Result<(), HostError> {
        let stacks = self.tracer.stacks_from(self.stacks_written);
        self.stacks_written += stacks.len();
        Ok(self.writer.append_stacks(&stacks)?)
    }

    fn drained(&mut self, drained: Drained) -> Result<(), HostError> {
        self.gaps(&drained.gaps)?;
        self.series(drained.series)
    }

    fn series(&mut self, sampled: Vec<Series>) -> Result<(), HostError> {
        for series in sampled {
            self.writer.append_series(&series)?;
            let Some((_, columns)) = levels::READ.iter().find(|(table, _)| *table == series.table) else { continue };
            match self.kept.iter_mut().find(|kept| kept.table == series.table) {
                Some(kept) => {
                    kept.append(&series.only(columns));
                    if kept.len() > KEPT_ROWS_MAX {
                        *kept = kept.thinned();
                    }
                }
                None => self.kept.push(series.only(columns)),
            }
        }
        Ok(())
    }

    /// The sampled rows kept for outcomes.
    #[must_use]
    pub fn sampled(&self) -> &[Series] {
        &self.kept
    }

    /// Stops sampling while the target still exists, and computes flatwater's own cost.
    pub fn stop_sampling(&mut self, workload_cpu_ns: u64) -> Result<(), HostError> {
        let syscall_ns = self.header.own_cost.syscall_ns;
        self.header.own_cost = OwnCost { syscall_ns, ..self.cost.finish(workload_cpu_ns) };
        let Some(sampler) = self.sampler.take() else { return Ok(()) };
        let end = sampler.stop();
        self.kernel_log()?;
        let missing = self.kernel_log.take().and_then(|mut log| log.missing());
        self.gaps(missing.as_slice())?;
        self.header.losses.samples_late += end.samples_late;
        self.drained(end.drained)
    }

    /// Notes that the user ended the recording early, and that it is incomplete.
    pub fn interrupted(&mut self, at_ns: u64, total_ns: u64) -> Result<(), HostError> {
        self.interrupted = true;
        let seen = Nanos(self.header.duration_ns);
        let note = format!("interrupted after {seen} of {}: the recording is incomplete", Nanos(total_ns));
        self.event(at_ns, EventKind::Mark(note.clone()))?;
        self.header.notes.push(Note::Text(note));
        Ok(())
    }

    /// Detaches the hooks, writes the remaining calls, and seals the recording.
    pub fn finish(mut self, outcomes: Vec<WorkloadOutcome>) -> Result<Finished, HostError> {
        // Stop tracing calls before waits: a call that ended in between would have no waits.
        if let Some(tracer) = Arc::get_mut(&mut self.tracer) {
            tracer.stop();
        }
        self.last_calls()?;
        self.stacks()?;
        let Session { mut header, tracer, mut writer, out, stacks_written, interrupted, waits, .. } = self;
        let wait_losses = waits.as_ref().map(WaitTracer::losses).unwrap_or_default();
        drop(waits);
        // Normally the last user of the tracer has ended. If not, only the calls that its slots still hold are lost.
        let (calls, stacks, losses) = match Arc::try_unwrap(tracer) {
            Ok(tracer) => tracer.finish(),
            Err(shared) => (shared.drain(), shared.stacks_from(0), shared.losses()),
        };
        writer.append_calls(&begun_within(&header, calls))?;
        writer.append_stacks(stacks.get(stacks_written..).unwrap_or_default())?;
        for outcome in outcomes {
            // If the disk is full, keep the rest of the recording.
            if let Err(error) = writer.outcome(outcome) {
                writer.append_gaps(&[Gap::new("outcomes of workloads", error.to_string(), "")])?;
            }
        }
        header.losses = losses.and(wait_losses).and(header.losses);
        header.complete = !interrupted;
        let finished = writer.finish(&header)?;
        out.share_files().map_err(|refusal| HostError::Share { why: refusal.to_string() })?;
        give_back_memory();
        Ok(finished)
    }
}

/// Drops calls that began after the end of the recording.
fn begun_within(header: &Header, mut calls: Vec<Call>) -> Vec<Call> {
    let end_ns = end_of(header);
    calls.retain(|call| call.start_ns < end_ns);
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

fn span_of(header: &Header) -> Span {
    Span { start_ns: header.clock.start_ns, end_ns: end_of(header), threshold_ns: header.threshold_ns }
}

/// The end of the recording; `u64::MAX` if the length is unknown (the recording was killed).
fn end_of(header: &Header) -> u64 {
    match header.duration_ns {
        0 => u64::MAX,
        length_ns => header.clock.start_ns.saturating_add(length_ns),
    }
}

/// Starts the tracer of waits after the tracer of calls. A failure becomes a gap.
fn start_waits(
    wanted: &WaitOptions,
    tracer: &Tracer,
    whom: &Traced,
    hooks: &mut Vec<HookStatus>,
) -> (Option<WaitTracer>, Vec<Gap>) {
    let started = tracer.with_stacks(|stacks| WaitTracer::start(wanted, stacks));
    let gap = |why: TraceError| {
        vec![Gap::new("who made slow calls wait", why.to_string(), "`flatwater check` lists each hook")]
    };
    match started {
        Ok((mut waits, statuses)) => {
            hooks.extend(statuses);
            let followed = match whom {
                Traced::Own => vec![std::process::id()],
                Traced::Others(_) => tracer.targets(),
            };
            let refused = followed.into_iter().find_map(|pid| waits.add_target(pid).err());
            (Some(waits), refused.map(gap).unwrap_or_default())
        }
        Err(why) => (None, gap(why)),
    }
}

/// The threads whose delay accounts are read if no hook can be attached.
fn watched(whom: &Traced) -> Watched {
    match whom {
        Traced::Own => Watched::Threads(Vec::new()),
        Traced::Others(targets) => match &targets.cgroup {
            Some(directory) => Watched::Cgroup(directory.clone()),
            None => Watched::Processes(targets.pids.clone()),
        },
    }
}

/// The note at the top of the report if no hook could be attached.
fn what_is_missing(tracer: &Tracer, whom: &Traced) -> Option<String> {
    let gap = tracer.gaps().first().filter(|_| !tracer.sees())?;
    let how = if gap.remedy.is_empty() { String::new() } else { format!("; to allow it, {}", gap.remedy) };
    let so = match whom {
        Traced::Own => "slow calls are timed, but without segments",
        Traced::Others(_) => "no call of the target is timed; this report uses only the kernel's counters",
    };
    Some(format!("ran without kernel tracing, so {so} ({}){how}", gap.why))
}

/// The type of the file system that contains `path`: that of the deepest mount point above it.
fn file_system_of(path: &str) -> Option<String> {
    let path = std::fs::canonicalize(path).ok()?;
    mounts::above(&mounts::read().ok()?, &path).map(|mount| mount.kind.clone())
}

#[cfg(test)]
mod tests {
    use super::{begun_within, cut_off, span_of};
    use flatwater_recording::{Call, Clock, Header, OpKind, Segment};

    #[test]
    fn calls_under_way_are_cut_to_the_recording() {
        let call = |start_ns, ns| Call::new(OpKind::Write, start_ns, ns, vec![Segment::unexplained(ns)]);
        let clock = Clock { start_ns: 1_000, ..Clock::default() };
        let header = Header { clock, duration_ns: 100, threshold_ns: 20, ..Header::default() };
        let calls = vec![call(900, 500), call(1_050, 500), call(1_090, 500), call(1_200, 500)];
        let kept = cut_off(&span_of(&header), calls);
        let told: Vec<_> = kept.iter().map(|call| (call.start_ns, call.duration_ns, call.tiles())).collect();
        assert_eq!(
            told,
            [(1_000, 100, true), (1_050, 50, true)],
            "10 ns are not slow, and the last call began after the end"
        );
    }

    #[test]
    fn calls_that_began_after_the_end_are_left_out() {
        let call = |start_ns| Call::new(OpKind::Write, start_ns, 50, Vec::new());
        let clock = Clock { start_ns: 1_000, ..Clock::default() };
        let header = Header { clock, duration_ns: 100, ..Header::default() };
        let kept: Vec<u64> = begun_within(&header, vec![call(1_000), call(1_090), call(1_100)])
            .iter()
            .map(|call| call.start_ns)
            .collect();
        assert_eq!(kept, [1_000, 1_090]);
        // A recording that was killed has no length.
        assert_eq!(begun_within(&Header { duration_ns: 0, ..header }, vec![call(9_000)]).len(), 1);
    }
}
