//! A recording in progress: writes what the [`Observer`] reads.

use super::error::HostError;
use super::imitation::{self, Limits, not_counted};
use super::machine;
use super::observer::{Interval, Observer};
use super::own_cost::{OwnCostMeter, give_back_memory};
use super::proc::mounts;
use super::sampler::SamplerOptions;
use super::tracer::{TraceOptions, Traced, Tracer};
use super::waits::Span;
use flatwater_recording::outcome::WorkloadOutcome;
use flatwater_recording::units::Nanos;
use flatwater_recording::{Event, EventKind, Finished, Gap, Header, Imitation, Note, OwnCost, RecordingWriter, Series};
use flatwater_safefs::Dir;
use flatwater_workload::outcome::levels;

/// Keep at most this many rows of a table for a workload's outcome (levels of memory); in longer runs every second row
/// is dropped as often as needed.
const KEPT_ROWS_MAX: usize = 1 << 14;

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
    pub observer: Observer,
    writer: RecordingWriter,
    /// The output directory. The handle stays valid if the path is renamed.
    out: Dir,
    cost: OwnCostMeter,
    kept: Vec<Series>,
    slow_calls: u64,
    lost_ns: u64,
    trouble_reported: bool,
    /// The recording ended before the requested time.
    interrupted: bool,
}

impl Session {
    /// Creates the recording, attaches the hooks, starts sampling.
    pub fn start(options: SessionOptions) -> Result<Session, HostError> {
        let SessionOptions { out, mut header, trace, sampler } = options;
        let traced = trace.traced.clone();
        let (observer, hooks, gaps) = Observer::start(trace, &sampler);
        header.hooks = hooks;
        header.machine = machine::describe();
        header.time_distorted |= machine::is_emulated(&header.machine);
        header.target.file_system = header.target.directory.as_deref().and_then(file_system_of);
        if let Some(shortest_ns) = observer.polled_ns_min() {
            header.threshold_ns = header.threshold_ns.max(shortest_ns);
        }
        header.notes.extend(what_is_missing(&observer.tracer, &traced, header.threshold_ns).map(Note::Text));
        if matches!(header.target.file_system.as_deref(), Some("tmpfs" | "ramfs")) {
            header.notes.push(
                "the files are on tmpfs: no block device, journal or writeback is involved in these calls".into(),
            );
        }
        let mut writer = RecordingWriter::create(&out.proc_path(), &header)?;
        writer.append_gaps(&gaps)?;
        Ok(Session {
            header,
            observer,
            writer,
            out,
            cost: OwnCostMeter::start(),
            kept: Vec::new(),
            slow_calls: 0,
            lost_ns: 0,
            trouble_reported: false,
            interrupted: false,
        })
    }

    pub fn event(&mut self, at_ns: u64, kind: EventKind) -> Result<(), HostError> {
        Ok(self.writer.append_events(&[Event::new(at_ns, kind)])?)
    }

    pub fn gaps(&mut self, gaps: &[Gap]) -> Result<(), HostError> {
        Ok(self.writer.append_gaps(gaps)?)
    }

    /// Writes the observations. Returns a write error the first time that one occurs.
    pub fn write(&mut self, interval: Interval) -> Result<Option<Gap>, HostError> {
        let flush = interval.second_ended || !(interval.calls.is_empty() && interval.latencies.is_empty());
        self.append(interval)?;
        if !flush {
            return Ok(None);
        }
        self.writer.flush_now();
        let trouble = self.writer.trouble().filter(|_| !self.trouble_reported);
        self.trouble_reported |= trouble.is_some();
        Ok(trouble)
    }

    fn append(&mut self, interval: Interval) -> Result<(), HostError> {
        self.slow_calls += interval.calls.len() as u64;
        self.lost_ns += interval.calls.iter().map(|call| call.duration_ns).sum::<u64>();
        self.writer.append_calls(&interval.calls)?;
        self.writer.append_async_calls(&interval.async_calls)?;
        self.writer.append_waited(&interval.waited)?;
        self.writer.append_latency(&interval.latencies)?;
        self.writer.append_latency(&interval.operations)?;
        self.writer.append_users(&interval.users)?;
        self.writer.append_events(&interval.events)?;
        self.writer.append_stacks(&interval.stacks)?;
        self.writer.append_gaps(&interval.gaps)?;
        self.series(interval.series)
    }

    /// Writes the service times of devices; once, before the hooks are detached.
    pub fn service_times(&mut self) -> Result<(), HostError> {
        let service_times = self.observer.service_times();
        Ok(self.writer.append_imitation(&Imitation { service_times, ..Imitation::default() })?)
    }

    /// Writes the data to imitate the recorded programs; once, before the hooks are detached. `None`: the user did not
    /// want it.
    pub fn imitation(&mut self, limits: Option<Limits>) -> Result<(), HostError> {
        let Some(limits) = limits else {
            return self.gaps(&[not_counted("--no-operations was given", "record without --no-operations")]);
        };
        let service_times = self.observer.service_times();
        let (imitation, gaps) = imitation::collect(&self.observer.tracer, service_times, limits);
        self.writer.append_imitation(&imitation)?;
        self.gaps(&gaps)
    }

    #[must_use]
    pub fn slow_calls(&self) -> u64 {
        self.slow_calls
    }

    #[must_use]
    pub fn lost_ns(&self) -> u64 {
        self.lost_ns
    }

    /// Follows a process that began after the recording.
    pub fn add_process(&mut self, pid: u32) -> Result<(), HostError> {
        self.header.target.pids.push(pid);
        self.observer.add_process(pid)
    }

    /// Writes the current header, which a reader finds if this process is killed.
    pub fn publish_header(&mut self) -> Result<(), HostError> {
        Ok(self.writer.header(&self.header)?)
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
        let (interval, samples_late) = self.observer.stop_sampling();
        self.header.losses.samples_late += samples_late;
        self.append(interval)
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
        let span = span_of(&self.header);
        let under_way = self.observer.take_under_way(&span);
        self.append(under_way)?;
        let Session { mut header, observer, mut writer, out, interrupted, .. } = self;
        let (rest, losses) = observer.finish(&span);
        writer.append_calls(&rest.calls)?;
        writer.append_stacks(&rest.stacks)?;
        for outcome in outcomes {
            // If the disk is full, keep the rest of the recording.
            if let Err(error) = writer.outcome(outcome) {
                writer.append_gaps(&[Gap::new("outcomes of workloads", error.to_string(), "")])?;
            }
        }
        header.losses = losses.and(header.losses);
        header.complete = !interrupted;
        let finished = writer.finish(&header)?;
        out.share_files().map_err(|refusal| HostError::Share { why: refusal.to_string() })?;
        give_back_memory();
        Ok(finished)
    }
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

/// The note at the top of the report if no hook could be attached.
fn what_is_missing(tracer: &Tracer, traced: &Traced, threshold_ns: u64) -> Option<String> {
    let gap = tracer.gaps().first().filter(|_| !tracer.sees())?;
    let how = if gap.remedy.is_empty() { String::new() } else { format!("; to allow it, {}", gap.remedy) };
    Some(match traced {
        Traced::Own => {
            format!("ran without kernel tracing, so slow calls are timed, but without segments ({}){how}", gap.why)
        }
        Traced::Others(_) => format!(
            "ran without kernel tracing ({}): calls of {} and longer were found by reading each millisecond in which \
             kernel function each thread sleeps, so times are known to about 1 ms, and who made a call wait is not \
             seen{how}",
            gap.why,
            Nanos(threshold_ns)
        ),
    })
}

/// The type of the file system that contains `path`: that of the deepest mount point above it.
fn file_system_of(path: &str) -> Option<String> {
    let path = std::fs::canonicalize(path).ok()?;
    mounts::above(&mounts::read().ok()?, &path).map(|mount| mount.kind.clone())
}

#[cfg(test)]
mod tests {
    use super::span_of;
    use flatwater_recording::{Clock, Header};

    #[test]
    fn a_recording_without_a_length_has_no_end() {
        let header = Header { clock: Clock { start_ns: 1_000, ..Clock::default() }, ..Header::default() };
        assert_eq!(span_of(&header).end_ns, u64::MAX);
        assert_eq!(span_of(&Header { duration_ns: 100, ..header }).end_ns, 1_100);
    }
}
