//! A thread of the test whose operations are timed and traced, and the causes of slow operations.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use flatwater_host::tracer::{CallTiming, Tracer};
use flatwater_recording::{Call, Cause, DurationBasis, Segment};

/// The operation that the victim repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Appends 64 KiB.
    AppendMuch,
    /// Appends 220 bytes and syncs; the sync is timed.
    Sync,
}

/// Slow calls of a run, with their time by cause.
#[derive(Debug, Default)]
pub struct Blame {
    pub calls: usize,
    pub lost_ns: u64,
    pub by_cause: BTreeMap<Cause, u64>,
    pub exact_ns: u64,
    pub not_tiling: usize,
    pub damaged: usize,
}

impl Blame {
    pub fn add(&mut self, duration_ns: u64, segments: &[Segment], tiles: bool, damaged: bool) {
        self.calls += 1;
        self.lost_ns += duration_ns;
        self.not_tiling += usize::from(!tiles);
        self.damaged += usize::from(damaged);
        for segment in segments {
            *self.by_cause.entry(segment.cause).or_default() += segment.ns;
            if segment.duration_basis == DurationBasis::Measured {
                self.exact_ns += segment.ns;
            }
        }
    }

    pub fn of_calls(calls: &[Call]) -> Blame {
        let mut blame = Blame::default();
        for call in calls {
            blame.add(call.duration_ns, &call.segments, call.tiles(), call.damaged);
        }
        blame
    }

    pub fn top(&self) -> Option<Cause> {
        self.by_cause.iter().max_by_key(|(_, ns)| **ns).map(|(cause, _)| *cause)
    }

    pub fn share(&self, cause: Cause) -> f64 {
        *self.by_cause.get(&cause).unwrap_or(&0) as f64 / self.lost_ns.max(1) as f64
    }

    pub fn named_share(&self) -> f64 {
        1.0 - self.share(Cause::Unexplained)
    }

    pub fn print(&self, title: &str) {
        eprintln!("{title}: {} slow calls, {:.1} ms", self.calls, self.lost_ns as f64 / 1e6);
        let mut causes: Vec<_> = self.by_cause.iter().collect();
        causes.sort_by_key(|(_, ns)| std::cmp::Reverse(**ns));
        for (cause, ns) in causes {
            eprintln!("  {:6.2} %  {}  {:.2} ms", 100.0 * self.share(*cause), cause.name(), *ns as f64 / 1e6);
        }
        eprintln!("  exact {:.1} %", 100.0 * self.exact_ns as f64 / self.lost_ns.max(1) as f64);
    }
}

fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Runs the victim on its own thread for `time` and attributes the operations of at least `threshold_ns`.
pub fn run(tracer: &Tracer, path: &Path, turn: Turn, period: Duration, time: Duration, threshold_ns: u64) -> Blame {
    let slow: Vec<CallTiming> = std::thread::scope(|scope| {
        let victim = scope.spawn(|| act(tracer, path, turn, period, time, threshold_ns));
        victim.join().expect("the victim lives")
    });
    let mut blame = Blame::default();
    for call in slow {
        let reported = tracer.attribute(&call);
        let duration_ns = call.end_ns - call.start_ns;
        if std::env::var_os("FLATWATER_TEST_PARTS").is_some() {
            print_segments(tracer, duration_ns, &reported.segments);
        }
        let mut at = 0;
        let in_order = reported.segments.iter().all(|segment| {
            let follows = segment.offset_ns == at;
            at += segment.ns;
            follows
        });
        blame.add(duration_ns, &reported.segments, in_order && at == duration_ns, reported.damaged);
    }
    blame
}

fn print_segments(tracer: &Tracer, duration_ns: u64, segments: &[Segment]) {
    let stacks = tracer.stacks_from(0);
    eprintln!("call of {duration_ns} ns");
    for segment in segments.iter().filter(|segment| segment.ns > duration_ns / 50) {
        let frames = segment.stack.and_then(|id| stacks.get(id.0 as usize)).map(|stack| stack.frames.join(" "));
        eprintln!(
            "  {:9} ns {} {:?} x{} {}",
            segment.ns,
            segment.cause.name(),
            segment.duration_basis,
            segment.count,
            frames.unwrap_or_default()
        );
    }
}

fn act(
    tracer: &Tracer,
    path: &Path,
    turn: Turn,
    period: Duration,
    time: Duration,
    threshold_ns: u64,
) -> Vec<CallTiming> {
    let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    let mut slot = tracer.op_slot(tid).expect("a slot");
    let mut file = OpenOptions::new().append(true).create(true).open(path).expect("the victim's file");
    let block = vec![b'v'; if turn == Turn::AppendMuch { 64 << 10 } else { 220 }];
    let end = Instant::now() + time;
    let mut due = Instant::now();
    let mut slow = Vec::new();
    while due < end {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        due = (due + period).max(Instant::now());
        if turn == Turn::Sync {
            file.write_all(&block).expect("append");
        }
        let start_ns = now_ns();
        slot.enter(start_ns);
        match turn {
            Turn::Sync => file.sync_all().expect("sync"),
            _ => file.write_all(&block).expect("append"),
        }
        let end_ns = now_ns();
        slot.leave(end_ns);
        if end_ns - start_ns >= threshold_ns {
            let bytes = (turn != Turn::Sync).then_some(block.len() as u64);
            slow.push(CallTiming { tid, start_ns, end_ns, bytes });
        }
    }
    slow
}
