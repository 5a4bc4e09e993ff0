//! Recognizes lines inside and between the reports of a kernel log without prefixes.

use super::frame::frame;
use super::report::single;

/// Beginnings of lines inside a report, for logs without prefixes.
const INSIDE: &[&str] = &[
    "Not tainted",
    "Tainted:",
    "\"echo 0",
    "task:",
    "Call Trace",
    "Call trace",
    "Backtrace",
    "<TASK>",
    "</TASK>",
    "<IRQ>",
    "</IRQ>",
    "<NMI>",
    "</NMI>",
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
    "EIP",
    "EAX",
    "ESI",
    "DS:",
    "Process ",
    "pstate:",
    "pc :",
    "lr :",
    "sp :",
    "x2",
    "x1",
    "x0",
    "x8",
    "x5",
    "NIP",
    "LR ",
    "GPR",
    "MSR",
    "CFAR",
    "--- ",
    "Instruction dump",
    "rcu:",
    "Sending NMI",
    "NMI ",
    "irq event",
    "hardirqs",
    "softirqs",
    "#",
    "Last Breaking",
    "Krnl",
    "Exception stack",
    "r10:",
    "r7 :",
    "r3 :",
    "Blocked by",
    "Trace:",
    "(detected by",
    "(t=",
    "Preemption disabled",
    "stack backtrace:",
    "Kernel panic",
    "handlers:",
    // lockdep prints prose between its stacks.
    "-> #",
    "----",
    "=====",
    "the existing dependency chain",
    "which lock already depends",
    "but task is already holding",
    "other info that might help",
    "Possible unsafe locking",
    "Chain exists of",
    "*** DEADLOCK",
    "lock(",
    "CPU0 ",
];

/// Whether lockdep prints such a line about tasks and locks.
fn of_lockdep(text: &str) -> bool {
    text.contains(" Tainted: ")
        || text.contains(" Not tainted")
        || text.contains(" is trying to acquire lock")
        || text.contains("locks held by ")
        || text.contains("lock held by ")
        || text.starts_with("ffff") && text.contains("){")
        || text.starts_with('&') && text.contains(" --> ")
}

/// Whether the line is inside a report, for logs without prefixes.
#[must_use]
pub fn belongs(message: &str) -> bool {
    let text = message.trim();
    INSIDE.iter().any(|start| text.starts_with(start))
        || frame(text).is_some()
        || single(text).is_some()
        || of_lockdep(text)
        || is_registers(text)
}

/// Whether the line has only values of registers, part of a broken line: `ORIG_RAX: 0000000000000001`,
/// `00007f994fe7c483`.
fn is_registers(text: &str) -> bool {
    let name = |word: &str| {
        word.ends_with(':')
            && word.bytes().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == b'_' || c == b':')
    };
    let value = |word: &str| word.len() >= 8 && word.bytes().all(|c| c.is_ascii_hexdigit());
    !text.is_empty()
        && text.split_whitespace().all(|word| name(word) || value(word))
        && text.split_whitespace().any(value)
}

/// Whether the line is above or between the tasks of a list.
#[must_use]
pub fn is_heading(message: &str) -> bool {
    let text = message.trim();
    let words: Vec<&str> = text.split_whitespace().collect();
    matches!(words.as_slice(), ["task", "PC", "stack", "pid", "father", ..] | ["free", "sibling"])
        || text.contains("Show Blocked State")
        || text.contains("Show State")
        || text.starts_with("Showing all locks held")
        || text.starts_with("Showing busy workqueues")
        || (!text.is_empty() && text.bytes().all(|c| c == b'=') && text.len() > 20)
}
