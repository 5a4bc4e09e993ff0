//! Reports of several lines: who, for how long, and the stack.

use crate::builder::{Builder, Track};
use crate::call_trace::op_of;
use crate::number::leading;
use crate::single_call::{set_stack, single_call};
use flatwater_recording::symbol::meaning;
use flatwater_recording::{Basis, Cause, OpKind};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Hung,
    SoftLockup,
    AllocationFailure,
    AllocationStall,
    OutOfMemory,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Report {
    kind: Kind,
    first: String,
    task: String,
    pid: u32,
    seconds: u64,
    frames: Vec<String>,
    /// Frames marked `?`, which the unwinder found on the stack and does not trust.
    doubted: Vec<String>,
    /// `Call Trace:` was seen: frames follow.
    tracing: bool,
}

/// More frames than any kernel prints.
const FRAMES_MAX: usize = 128;

/// The first line of a report.
#[must_use]
pub fn begins(message: &str) -> Option<Report> {
    let report = |kind, task: &str, pid, seconds| {
        let (first, task) = (message.trim().to_owned(), task.to_owned());
        Some(Report { kind, first, task, pid, seconds, frames: Vec::new(), doubted: Vec::new(), tracing: false })
    };
    // kernel/hung_task.c: `INFO: task kworker/u8:1:123 blocked for more than 120 seconds.`
    if let Some((who, rest)) =
        message.strip_prefix("INFO: task ").and_then(|rest| rest.split_once(" blocked for more than "))
    {
        let (task, pid) = who.rsplit_once(':')?;
        let (seconds, _) = leading(rest)?;
        return report(Kind::Hung, task, pid.parse().ok()?, seconds);
    }
    // kernel/watchdog.c: `BUG: soft lockup - CPU#0 stuck for 23s! [java:1234]`
    if let Some((_, rest)) = message.split_once("BUG: soft lockup - CPU#") {
        let (_, rest) = rest.split_once("stuck for ")?;
        let (seconds, rest) = leading(rest)?;
        let (task, pid) = rest.split_once('[')?.1.split_once(']')?.0.rsplit_once(':')?;
        return report(Kind::SoftLockup, task, pid.parse().ok()?, seconds);
    }
    // mm/page_alloc.c: `java: page allocation failure: order:4, mode:0x...`; until 3.x a full stop before `order`.
    // 4.10 to 4.14: `java: page allocation stalls for 10080ms, order:0, mode:0x...`
    if let Some((task, rest)) = message.split_once(": page allocation stalls for ") {
        let (ms, _) = leading(rest)?;
        return report(Kind::AllocationStall, task.trim(), 0, ms / 1000);
    }
    if let Some((task, _)) = message.split_once(": page allocation failure") {
        return report(Kind::AllocationFailure, task.trim(), 0, 0);
    }
    // mm/oom_kill.c: `java invoked oom-killer: gfp_mask=..., order=0, oom_score_adj=0`
    if let Some((task, _)) = message.split_once(" invoked oom-killer:") {
        return report(Kind::OutOfMemory, task.trim(), 0, 0);
    }
    None
}

/// Lines that are told by themselves.
#[must_use]
pub fn single(message: &str) -> Option<String> {
    let killed = message.contains("Killed process ") || message.contains("Kill process ");
    let told = killed
        || message.contains("oom-kill:constraint=")
        || message.contains("detected stalls on CPUs")
        || message.contains("self-detected stall on CPU")
        || message.starts_with("Task in ") && message.contains("killed as a result of limit of")
        || message.contains("possible memory allocation deadlock");
    told.then(|| message.trim().to_owned())
}

/// A line inside a report, where lines carry no prefix.
#[must_use]
pub fn belongs(message: &str) -> bool {
    let text = message.trim();
    let begun = [
        "Not tainted",
        "Tainted:",
        "\"echo 0",
        "task:",
        "Call Trace",
        "<TASK>",
        "</TASK>",
        "<IRQ>",
        "</IRQ>",
        "CPU:",
        "CPU ",
        "Stack:",
        "Pid:",
        "PID:",
        "RIP:",
        "RSP:",
        "Code:",
        "Hardware name:",
        "Modules linked in",
        "Workqueue:",
        "RAX:",
        "RDX:",
        "RBP:",
        "R10:",
        "R13:",
        "FS:",
        "CS:",
        "CR2:",
        "PKRU:",
        "---[",
        "Tasks state",
        "Memory cgroup",
        "Task in",
        "[",
        "Out of memory",
        "oom-kill:",
        "oom_reaper:",
        "Disabled by",
        "Showing all locks",
    ];
    begun.iter().any(|start| text.starts_with(start)) || frame(text).is_some() || single(text).is_some()
}

/// `[<ffffffff8110>] io_schedule+0x73/0xc0`, ` io_schedule+0x46/0x70 [ext4]`, `RIP: 0010:_raw_spin_lock+0x14/0x20` and
/// its older form with the address in brackets twice: the name, and whether the unwinder trusts it (no `?`).
fn frame(text: &str) -> Option<(&str, bool)> {
    let text = text.trim();
    let mut text = text.strip_prefix("RIP: 0010:").unwrap_or(text);
    while let Some((_, rest)) = text.strip_prefix("[<").and_then(|rest| rest.split_once(">]")) {
        text = rest.trim();
    }
    let trusted = !text.starts_with('?');
    let text = text.trim_start_matches(['?', ' ']);
    let symbol = text.split_whitespace().next()?;
    let (name, offset) = symbol.split_once("+0x")?;
    let (offset, size) = offset.split_once("/0x")?;
    let hex = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_hexdigit());
    let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_.".contains(c));
    (plain && hex(offset) && hex(size)).then_some((name, trusted))
}

impl Report {
    #[must_use]
    pub fn told(&self) -> String {
        self.first.clone()
    }

    pub fn line(&mut self, message: &str) {
        let text = message.trim();
        if text.starts_with("Call Trace") {
            self.tracing = true;
            return;
        }
        // `Pid: 1234, comm: java ...` and `CPU: 0 PID: 1234 Comm: java` name the thread that the first line does not.
        let pid = ["PID: ", "Pid: "].iter().find_map(|key| text.split_once(key)).and_then(|(_, rest)| leading(rest));
        if let Some((pid, _)) = pid.filter(|_| self.pid == 0) {
            self.pid = u32::try_from(pid).unwrap_or(0);
        }
        let instruction = text.starts_with("RIP:") && self.kind == Kind::SoftLockup;
        if (self.tracing || instruction)
            && let Some((name, trusted)) = frame(text)
        {
            let frames = if trusted { &mut self.frames } else { &mut self.doubted };
            if frames.len() < FRAMES_MAX && frames.last().is_none_or(|last| last != name) {
                frames.push(name.to_owned());
            }
        }
    }

    /// A hung task or a lockup is a call that had lasted so long when it was reported; what it waited for is told by
    /// the one stack that was taken, so it counts as sampled. (A hung task has not run once in all that time, says
    /// kernel/hung_task.c: check_hung_task, so it slept in one place.)
    pub fn push(mut self, (track, at): (Track, i64), b: &mut Builder) {
        if !matches!(self.kind, Kind::Hung | Kind::SoftLockup | Kind::AllocationStall) {
            return;
        }
        // Kernels without frame pointers or ORC (until 4.14, and many 2.6 ones) doubt every frame of some stacks.
        if meaning(&self.frames).is_none() && meaning(&self.doubted).is_some() {
            self.frames = std::mem::take(&mut self.doubted);
        }
        let ns = self.seconds.min(31_536_000).saturating_mul(1_000_000_000);
        let found = meaning(&self.frames).map(|meaning| meaning.cause);
        let cause = found.unwrap_or(if self.kind == Kind::AllocationStall {
            Cause::PageAllocation
        } else if self.kind == Kind::SoftLockup && !self.frames.is_empty() {
            Cause::Compute
        } else {
            Cause::Unexplained
        });
        let mut call = single_call(self.pid, &self.task, self.op(), ns, cause, Basis::Sampled);
        if !self.frames.is_empty() {
            set_stack(&mut call, b.stack(self.frames));
        }
        b.call((track, at.saturating_sub(i64::try_from(ns).unwrap_or(0))), call);
    }

    /// The outermost function that names a call.
    fn op(&self) -> OpKind {
        let known = self.frames.iter().rev().map(|frame| op_of(frame));
        known.into_iter().find(|op| *op != OpKind::Other).unwrap_or(OpKind::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::{begins, frame};

    #[test]
    fn first_lines_and_frames() {
        for line in [
            "INFO: task kworker/u8:1:123 blocked for more than 120 seconds.",
            "watchdog: BUG: soft lockup - CPU#0 stuck for 23s! [java:1234]",
            "java: page allocation failure. order:5, mode:0x4020",
            "java: page allocation failure: order:0, mode:0x40a20(GFP_ATOMIC), nodemask=0",
            "java invoked oom-killer: gfp_mask=0xd0, order=0, oom_adj=0",
        ] {
            assert!(begins(line).is_some(), "{line}");
        }
        assert_eq!(frame("[<ffffffff81>] io_schedule+0x73/0xc0"), Some(("io_schedule", true)));
        assert_eq!(frame(" jbd2_log_wait_commit+0xe5/0x140 [jbd2]"), Some(("jbd2_log_wait_commit", true)));
        assert_eq!(frame(" ? prepare_to_wait+0x1/0x2"), Some(("prepare_to_wait", false)));
        let older = "RIP: 0010:[<ffffffff8113a1b2>]  [<ffffffff8113a1b2>] shrink_slab+0x92/0x1a0";
        assert_eq!(frame(older), Some(("shrink_slab", true)));
        assert_eq!(frame("a+b"), None);
    }
}
