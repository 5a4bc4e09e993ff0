//! Collects reports of several lines: the task, the duration, and the stack.

use super::frame::{Frame, flattened, frame, in_pairs, is_register, plain, side_by_side, traced};
use super::task::{Task, held_lock, holder};
use crate::builder::{Builder, Track};
use crate::call_trace::op_of;
use crate::number::leading;
use crate::single_call::{set_stack, single_call};
use flatwater_recording::symbol::{base_name, cause_of, meaning};
use flatwater_recording::{Basis, Cause, OpKind, ReportedBy, SampledTask};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A task and its stack; `Task::reported_by` has the kind of report.
    Sampled,
    AllocationFailure,
    AllocationStall,
    OutOfMemory,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Report {
    kind: Kind,
    /// The first line, if it is also an event.
    first: Option<String>,
    task: Task,
    seconds: u64,
    /// Total sleep of all tasks with this stack, if the log prints it.
    slept_ns: Option<u64>,
    frames: Vec<String>,
    /// Frames marked `?`, which the unwinder found on the stack but is not sure of.
    doubted: Vec<String>,
    holds: Vec<String>,
    waits_for: Option<String>,
    owner: Option<String>,
    line: u32,
    /// Number of frames and locks beyond the limits.
    dropped: u64,
}

/// First words of kernel warnings that print a stack.
const WARNINGS: &[&str] = &[
    "WARNING: CPU:",
    "WARNING: at ",
    "WARNING: possible ",
    "WARNING: lock held",
    "WARNING: bad unlock",
    "INFO: possible ",
    "INFO: inconsistent lock state",
    "BUG: unable to handle",
    "BUG: scheduling while atomic",
    "BUG: sleeping function called",
    "BUG: spinlock",
    "BUG: Bad page",
];

/// Maximum frames; no kernel prints more.
const FRAMES_MAX: usize = 128;
/// Maximum locks of a task (kernel/locking/lockdep.c: MAX_LOCK_DEPTH is 48).
const HELD_MAX: usize = 64;

fn new(kind: Kind, task: Task, first: Option<String>, seconds: u64) -> Report {
    let (frames, doubted, holds) = (Vec::new(), Vec::new(), Vec::new());
    Report {
        kind,
        first,
        task,
        seconds,
        slept_ns: None,
        frames,
        doubted,
        holds,
        waits_for: None,
        owner: None,
        line: 0,
        dropped: 0,
    }
}

/// The report that this line begins.
#[must_use]
pub fn begins(message: &str) -> Option<Report> {
    let report = |kind, by, name: &str, pid: u32, seconds| {
        let task = Task {
            name: name.to_owned(),
            pid: Some(pid).filter(|pid| *pid > 0),
            state: None,
            reported_by: by,
            count: 1,
        };
        Some(new(kind, task, Some(message.trim().to_owned()), seconds))
    };
    // kernel/hung_task.c: `INFO: task kworker/u8:1:123 blocked for more than 120 seconds.`; since 6.17:
    // `blocked in I/O wait for more than`.
    if let Some((who, rest)) = message.strip_prefix("INFO: task ").and_then(|rest| rest.split_once(" blocked "))
        && let Some((_, rest)) = rest.split_once("for more than ")
    {
        let (name, pid) = who.rsplit_once(':')?;
        let (seconds, _) = leading(rest)?;
        let mut found = report(Kind::Sampled, ReportedBy::HungTask, name, pid.parse().ok()?, seconds)?;
        found.task.state = Some('D');
        return Some(found);
    }
    // kernel/watchdog.c: `BUG: soft lockup - CPU#0 stuck for 23s! [java:1234]`
    if let Some((_, rest)) = message.split_once("BUG: soft lockup - CPU#") {
        let (_, rest) = rest.split_once("stuck for ")?;
        let (seconds, rest) = leading(rest)?;
        let (name, pid) = rest.split_once('[')?.1.split_once(']')?.0.rsplit_once(':')?;
        return report(Kind::Sampled, ReportedBy::Lockup, name, pid.parse().ok()?, seconds);
    }
    // kernel/rcu/tree_stall.h, kernel/watchdog_perf.c, kernel/workqueue.c
    let lockups = [
        "self-detected stall on CPU",
        "detected stalls on CPUs",
        "hard LOCKUP on cpu",
        "BUG: workqueue lockup",
        "NMI backtrace for cpu",
    ];
    if lockups.iter().any(|lockup| message.contains(lockup)) {
        return report(Kind::Sampled, ReportedBy::Lockup, "", 0, 0);
    }
    // kernel/panic.c, kernel/locking/lockdep.c
    if WARNINGS.iter().any(|warning| message.starts_with(warning)) {
        return report(Kind::Sampled, ReportedBy::Warning, "", 0, 0);
    }
    // Lustre's watchdog: `LNet: Service thread pid 4711 was inactive for 200.00s. The thread might be hung, ...`
    if let Some((_, rest)) = message.split_once("ervice thread pid ")
        && let Some((pid, rest)) = rest.split_once(" was inactive for ")
    {
        let (seconds, _) = leading(rest)?;
        let mut found = report(Kind::Sampled, ReportedBy::HungTask, "", pid.parse().ok()?, seconds)?;
        found.task.state = Some('D');
        return Some(found);
    }
    of_memory(message)
}

/// The report that a first line of the page allocator or the OOM killer begins.
fn of_memory(message: &str) -> Option<Report> {
    let report = |kind, name: &str, seconds| {
        let task = Task { name: name.to_owned(), pid: None, state: None, reported_by: ReportedBy::Warning, count: 1 };
        Some(new(kind, task, Some(message.trim().to_owned()), seconds))
    };
    // mm/page_alloc.c: `java: page allocation failure: order:4, mode:0x...`; until 3.x with a full stop before `order`.
    // 4.10 to 4.14: `java: page allocation stalls for 10080ms, order:0, mode:0x...`
    if let Some((task, rest)) = message.split_once("page allocation stalls for ") {
        let (ms, _) = leading(rest)?;
        let task = task.trim().trim_end_matches(':');
        return report(Kind::AllocationStall, task, ms / 1000);
    }
    if let Some((task, _)) = message.split_once(": page allocation failure") {
        return report(Kind::AllocationFailure, task.trim(), 0);
    }
    // mm/oom_kill.c: `java invoked oom-killer: gfp_mask=..., order=0, oom_score_adj=0`, until 2.6.16 without the name.
    // 2.4: `__alloc_pages: 0-order allocation failed (gfp=0x1d2/0)`.
    if message.starts_with("oom-killer: gfp_mask=") {
        return report(Kind::OutOfMemory, "", 0);
    }
    if message.starts_with("__alloc_pages: ") && message.contains("-order allocation failed") {
        return report(Kind::AllocationFailure, "", 0);
    }
    if let Some((task, _)) = message.split_once(" invoked oom-killer") {
        return report(Kind::OutOfMemory, task.trim(), 0);
    }
    None
}

/// Whether cron ran a command that drops the page cache (`CRON[12]: (root) CMD (echo 3 > /proc/sys/vm/drop_caches)`),
/// or the line is such a line of a crontab.
fn is_scheduled_drop(message: &str) -> bool {
    let command = message.contains("drop_caches") && ["echo ", "sysctl ", "tee "].iter().any(|c| message.contains(c));
    let time = |word: &str| word.bytes().all(|c| c.is_ascii_digit() || b"*/,-".contains(&c));
    let fields = message.split_whitespace().take_while(|word| time(word)).count();
    let nicknames = ["@hourly", "@daily", "@weekly", "@midnight"];
    let scheduled = fields == 5 || nicknames.iter().any(|name| message.trim_start().starts_with(name));
    command && (message.contains(" CMD (") || scheduled)
}

/// The event of a line that is an event by itself.
#[must_use]
pub fn single(message: &str) -> Option<String> {
    if !super::words::can_tell(message) {
        return None;
    }
    let killed = ["Killed process ", "Kill process ", "Out of memory: kill process ", "VM: killing process "]
        .iter()
        .any(|kill| message.contains(kill));
    let is_event = killed
        || message.contains("oom-kill:constraint=")
        || message.starts_with("Task in ") && message.contains("killed as a result of limit of")
        || message.contains("ossible memory allocation deadlock")
        || message.contains("): drop_caches: ")
        || is_scheduled_drop(message)
        || super::device::is_trouble(message);
    is_event.then(|| message.trim().to_owned()).or_else(|| slab_failure(message))
}

/// Parses `  cache: TCP, object size: 1728, order: 1` below `SLAB: Unable to allocate memory on node 0`. SLUB prints
/// the default and the minimum order; its last attempt uses the minimum (mm/slab.c, mm/slub.c: slab_out_of_memory).
fn slab_failure(message: &str) -> Option<String> {
    let rest = message.trim().strip_prefix("cache: ")?;
    let (cache, rest) = rest.split_once(", object size: ")?;
    let order = rest.rsplit_once("min order: ").or_else(|| rest.rsplit_once(", order: "))?.1.trim();
    let order: u32 = order.parse().ok().filter(|order| *order <= 20)?;
    Some(format!("slab cache {cache}: page allocation failure: order:{order}"))
}

impl Report {
    /// A report about a task that a line names.
    #[must_use]
    pub fn of_task(task: Task) -> Report {
        new(Kind::Sampled, task, None, 0)
    }

    /// A report of a stack without its task's name.
    #[must_use]
    pub fn of_stack(reported_by: ReportedBy, pid: Option<u32>) -> Report {
        Report::of_task(Task { name: String::new(), pid, state: None, reported_by, count: 1 })
    }

    /// A report of the locks that a task holds.
    #[must_use]
    pub fn of_locks(message: &str) -> Option<Report> {
        let (name, pid) = holder(message)?;
        let mut report = Report::of_stack(ReportedBy::HeldLocks, Some(pid));
        name.clone_into(&mut report.task.name);
        Some(report)
    }

    #[must_use]
    pub fn at_line(mut self, line: u32) -> Report {
        self.line = line;
        self
    }

    /// The first line, if it is also an event.
    #[must_use]
    pub fn summary(&self) -> Option<String> {
        self.first.clone()
    }

    /// Whether a line with this task belongs to this report: the line of a hung task follows the report's first line.
    #[must_use]
    pub fn awaits(&self, task: &Task) -> bool {
        let unnamed = self.task.name.is_empty() && self.task.reported_by != ReportedBy::ProcStack;
        let same = self.task.pid.is_some() && self.task.pid == task.pid || self.task.name == task.name;
        self.frames.is_empty() && self.doubted.is_empty() && (unnamed || same) && self.first.is_some()
    }

    pub fn identify(&mut self, task: Task) {
        self.task.state = task.state.or(self.task.state);
        self.task.pid = self.task.pid.or(task.pid);
        if self.task.name.is_empty() {
            self.task.name = task.name;
        }
    }

    /// Whether a task was named and its stack has not begun.
    #[must_use]
    pub fn wants_frames(&self) -> bool {
        self.kind == Kind::Sampled && self.frames.is_empty() && self.doubted.is_empty()
    }

    /// Whether a blank line ends this report.
    #[must_use]
    pub fn ends_with_blank(&self) -> bool {
        let own = [
            ReportedBy::ProcStack,
            ReportedBy::BareFrames,
            ReportedBy::Crash,
            ReportedBy::HeldLocks,
            ReportedBy::Traced,
        ];
        own.contains(&self.task.reported_by) && (!self.frames.is_empty() || !self.holds.is_empty())
    }

    pub fn owned_by(&mut self, lock: &str, owner: &str) {
        (self.waits_for, self.owner) = (Some(lock.to_owned()), Some(owner.to_owned()));
    }

    /// Sets the task that slept with this stack, and the total time in us.
    pub fn slept(&mut self, name: &str, pid: u32, us: u64) {
        name.clone_into(&mut self.task.name);
        (self.task.pid, self.task.reported_by) = (Some(pid), ReportedBy::OffCpu);
        self.slept_ns = Some(us.saturating_mul(1000));
    }

    /// Reads a line of the report. Returns whether it had any meaning.
    pub fn line(&mut self, message: &str) -> bool {
        let text = message.trim();
        if let Some(name) = plain(text) {
            // A mail program may put the place where a lock was taken on a separate line; the task does not sleep
            // there.
            if self.task.reported_by != ReportedBy::HeldLocks {
                self.push_frame(name, true);
            }
            return true;
        }
        // The last line of a warning or an oops: a stack without a beginning belongs to a running task.
        if text.starts_with("---[ end trace") && self.task.reported_by == ReportedBy::BareFrames {
            self.task.reported_by = ReportedBy::Warning;
        }
        if let Some(lock) = held_lock(text) {
            if self.holds.iter().all(|known| known != lock) {
                if self.holds.len() < HELD_MAX {
                    self.holds.push(lock.to_owned());
                } else {
                    self.dropped += 1;
                }
            }
            // A list of locks has no stack. Of the places where locks are taken, only that of a freeze shows what the
            // task does.
            let place = text.rsplit_once("at: ").map(|(_, place)| base_name(place));
            if let Some(place) = place.filter(|place| cause_of(place) == Some(Cause::FsFreeze)) {
                self.push_frame(place, true);
            }
            return true;
        }
        // `Pid: 1234, comm: java ...` and `CPU: 0 PID: 1234 Comm: java` name the thread if the first line does not.
        let pid = ["PID: ", "Pid: "].iter().find_map(|key| text.split_once(key)).and_then(|(_, rest)| leading(rest));
        if let Some((pid, _)) = pid.filter(|_| self.task.pid.is_none()) {
            self.task.pid = u32::try_from(pid).ok();
            let comm = ["Comm: ", "comm: "].iter().find_map(|key| text.split_once(key)).map(|(_, rest)| rest);
            let comm = comm.and_then(|rest| rest.split([' ', ',']).next());
            if let Some(comm) = comm.filter(|_| self.task.name.is_empty()) {
                comm.clone_into(&mut self.task.name);
            }
        }
        // The registers are the innermost frame of code that was running; for a sleeping task they are in user code.
        if is_register(text) && self.task.reported_by != ReportedBy::Lockup {
            return false;
        }
        if self.task.reported_by == ReportedBy::HeldLocks {
            return frame(text).is_some();
        }
        if flattened(text).next().is_some() {
            flattened(text).for_each(|Frame { name, trusted }| self.push_frame(name, trusted));
            return true;
        }
        let Some(Frame { name, trusted }) = frame(text).or_else(|| traced(text)) else { return false };
        self.push_frame(name, trusted);
        side_by_side(text).skip(1).chain(in_pairs(text).skip(1)).for_each(|name| self.push_frame(name, true));
        true
    }

    pub fn push_frame(&mut self, name: &str, trusted: bool) {
        let frames = if trusted { &mut self.frames } else { &mut self.doubted };
        if frames.last().is_none_or(|last| last != name) {
            if frames.len() < FRAMES_MAX {
                frames.push(name.to_owned());
            } else {
                self.dropped += 1;
            }
        }
    }

    /// Adds the sample, and a call if the report states how long the task had been blocked. The cause of the call comes
    /// from a single stack, so it counts as sampled. (A hung task did not run in all that time, so it slept in one
    /// place: kernel/hung_task.c, check_hung_task.)
    pub fn push(mut self, (track, at): (Track, i64), b: &mut Builder) {
        b.overflow_by("frames and locks of a task", self.dropped);
        // Kernels without frame pointers or ORC (until 4.14, and many 2.6 ones) mark every frame of some stacks with
        // `?`.
        if meaning(&self.frames).is_none() && meaning(&self.doubted).is_some() {
            self.frames = std::mem::take(&mut self.doubted);
        }
        let ns = self.seconds.min(31_536_000).saturating_mul(1_000_000_000);
        if self.kind == Kind::Sampled && !(self.frames.is_empty() && self.holds.is_empty() && self.owner.is_none()) {
            self.sample((track, at), ns, b);
        }
        let lockup = self.task.reported_by == ReportedBy::Lockup;
        if self.kind != Kind::AllocationStall && (self.kind != Kind::Sampled || ns == 0) {
            return;
        }
        let found = meaning(&self.frames).map(|meaning| meaning.cause);
        let stall = self.first.as_deref().filter(|_| self.kind == Kind::AllocationStall).map(stalled_in);
        let cause = found.filter(|cause| stall.is_none() || *cause != Cause::PageAllocation).unwrap_or(
            if let Some(cause) = stall {
                cause
            } else if lockup && !self.frames.is_empty() {
                Cause::Compute
            } else {
                Cause::Unexplained
            },
        );
        let op = self.op();
        let mut call = single_call(self.task.pid.unwrap_or(0), &self.task.name, op, ns, cause, Basis::Sampled);
        if !self.frames.is_empty() {
            set_stack(&mut call, b.stack(self.frames));
        }
        b.call((track, at.saturating_sub(i64::try_from(ns).unwrap_or(0))), call);
    }

    fn sample(&self, place: (Track, i64), ns: u64, b: &mut Builder) {
        let mut task = SampledTask::new(self.task.reported_by);
        self.task.name.clone_into(&mut task.task);
        (task.pid, task.state, task.count) = (self.task.pid, self.task.state, self.task.count);
        task.blocked_ns = (ns > 0 && self.task.reported_by == ReportedBy::HungTask).then_some(ns);
        task.blocked_ns = task.blocked_ns.or(self.slept_ns);
        (task.holds, task.waits_for, task.owner) = (self.holds.clone(), self.waits_for.clone(), self.owner.clone());
        task.line = self.line;
        b.sampled_task(place, task, self.frames.clone());
    }

    /// The operation of the outermost function that has one.
    fn op(&self) -> OpKind {
        let known = self.frames.iter().rev().map(|frame| op_of(frame));
        known.into_iter().find(|op| *op != OpKind::Other).unwrap_or(OpKind::Other)
    }
}

/// The loop in which an allocation spent its time (mm/page_alloc.c: __alloc_pages_slowpath, 4.9 to 4.14): reclaim up to
/// PAGE_ALLOC_COSTLY_ORDER, compaction above.
fn stalled_in(first: &str) -> Cause {
    let order = first.split_once("order:").and_then(|(_, rest)| leading(rest)).map_or(0, |(order, _)| order);
    if order <= 3 { Cause::DirectReclaim } else { Cause::Compaction }
}

#[cfg(test)]
mod tests {
    use super::{begins, single, stalled_in};
    use crate::import_texts;
    use flatwater_recording::Cause;

    #[test]
    fn a_list_of_locks_shows_the_freezing_task() {
        let text = "2 locks held by fio/647:\n #0: ffff9fd5 (&ctx->uring_lock){+.+.}-{3:3}, at: __do_sys_io_uring_enter+0x5/0x8\n\
            #1: ffff9fd4 (sb_writers#15){++++}-{0:0}, at: io_issue_sqe+0x9c/0x780\n1 lock held by fsfreeze/696:\n \
            #0: ffff9fd4 (sb_writers#15){++++}-{0:0}, at: freeze_super+0x20a/0x600\n";
        let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        let tasks: Vec<_> =
            recording.header.sampled_tasks.iter().map(|task| (task.task.as_str(), task.cause)).collect();
        assert_eq!(tasks, [("fio", None), ("fsfreeze", Some(Cause::FsFreeze))]);
    }

    #[test]
    fn allocation_stalls_and_lustre_watchdogs_begin_reports() {
        let line = "cp: page allocation stalls for 12040ms, order:2, mode:0x14000c0(GFP_KERNEL)";
        assert_eq!((stalled_in(line), begins(line).expect(line).seconds), (Cause::DirectReclaim, 12));
        let broken = "page allocation stalls for 11000ms, order:9, mode:0x47000c0";
        assert_eq!((stalled_in(broken), begins(broken).expect(broken).seconds), (Cause::Compaction, 11));
        let watchdog = begins("LNet: Service thread pid 4711 was inactive for 200.00s. The thread might be hung, or");
        assert_eq!(watchdog.map(|report| (report.task.pid, report.seconds)), Some((Some(4711), 200)));
    }

    #[test]
    fn slab_allocation_failures_are_events() {
        let summary = |line: &str| single(line).expect(line);
        assert_eq!(
            summary("  cache: TCP, object size: 1728, order: 1"),
            "slab cache TCP: page allocation failure: order:1"
        );
        let slub = "  cache: kmalloc-8k, object size: 8192, buffer size: 8192, default order: 3, min order: 1";
        assert!(summary(slub).ends_with("order:1"));
        assert_eq!(single("cache: 12 hits, object size: unknown"), None);
    }

    #[test]
    fn first_lines_begin_reports() {
        for line in [
            "INFO: task kworker/u8:1:123 blocked for more than 120 seconds.",
            "INFO: task kworker/u8:1:123 blocked in I/O wait for more than 120 seconds.",
            "watchdog: BUG: soft lockup - CPU#0 stuck for 23s! [java:1234]",
            "rcu: INFO: rcu_preempt self-detected stall on CPU",
            "java: page allocation failure. order:5, mode:0x4020",
            "java: page allocation failure: order:0, mode:0x40a20(GFP_ATOMIC), nodemask=0",
            "java invoked oom-killer: gfp_mask=0xd0, order=0, oom_adj=0",
            "oom-killer: gfp_mask=0x1d2",
            "__alloc_pages: 0-order allocation failed (gfp=0x1d2/0)",
        ] {
            assert!(begins(line).is_some(), "{line}");
        }
        assert_eq!(begins("INFO: rcu is fine"), None);
    }
}
