//! Which lines of a kernel's log are relevant, found in one pass: most are not, and a log may have millions.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use flatwater_recording::event::{device_words, holds_device_trouble};

/// Every line that `report`, `task`, `frame` or `memory` reads holds one of these (the troubles of devices apart).
const WORDS: &[&str] = &[
    // Reports, and lines that are events by themselves.
    "INFO: ",
    "BUG: ",
    "WARNING: ",
    "stall",
    "LOCKUP",
    "NMI backtrace",
    "page allocation",
    "ervice thread pid ",
    "object size: ",
    "oom",
    "Kill",
    "killed",
    "deadlock",
    "Linux version",
    "ainted",
    // The third line of a hung task's report.
    "hung_task_timeout_secs",
    "locks held",
    "lock held",
    "Show ",
    "Showing ",
    "====",
    "likely ",
    // Tasks and frames.
    "state:",
    " D ",
    " S ",
    " R ",
    " T ",
    " I ",
    " Z ",
    " X ",
    "+0x",
    "PID: ",
    "Pid: ",
    "TLB)",
    " at ffff",
    ".c:",
    ".h:",
    " [kernel]",
    "){",
    " hits",
    "PC stack",
    ">{",
    "<TASK>",
    "Call Trace",
    "Call trace",
    "end trace",
    ">]",
    // Memory.
    "Mem-Info",
    "Mem-info",
    "order allocation failed",
    "killing process",
    "inactive:",
    "pages_scanned",
    "per-cpu",
    "*4kB",
    "_file:",
    "dirty:",
    "shmem:",
    "bounce:",
    "pagetables:",
    "kernel_misc_reclaimable",
    "Node ",
    "free:",
    "anon",
    "slab_",
    "mapped:",
    "unevictable",
    "Free swap",
    "Total swap",
    "lowmem_reserve",
    "memory: usage",
    "swap: usage",
    "kmem: usage",
    "pagecache pages",
    "pages RAM",
    "Memory cgroup",
];

/// A table of states, as every line of a kernel's log is asked.
static KNOWN: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    AhoCorasick::builder().kind(Some(AhoCorasickKind::DFA)).build(of_reports().chain(device_words())).ok()
});

/// The words of reports, tasks and memory, of which every line of them holds one.
pub fn of_reports() -> impl Iterator<Item = &'static str> {
    WORDS.iter().copied()
}

/// Whether a message can say anything.
#[must_use]
pub fn can_tell(message: &str) -> bool {
    KNOWN.as_ref().is_none_or(|known| {
        known.find_overlapping_iter(message).any(|found| {
            // Behind the words of reports stand those of devices, of which each is only a part of what a trouble is known by:
            // every new USB device is announced with one.
            let device = found.pattern().as_usize().checked_sub(WORDS.len());
            device.is_none_or(|number| holds_device_trouble(number, message))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::can_tell;

    #[test]
    fn most_lines_say_nothing_and_reports_do() {
        for line in [
            "input: Power Button as /devices/LNXSYSTM:00/input0",
            "audit: type=1400 audit(1.2:3): apparmor=x",
            "eth0: link up",
            "usb 1-1: new high-speed USB device number 7 using xhci_hcd",
        ] {
            assert!(!can_tell(line), "{line}");
        }
        for line in [
            "INFO: task db:4711 blocked for more than 120 seconds.",
            " io_schedule+0x46/0x70",
            "[<c0107a42>] __down [kernel] 0x72",
            "#1  schedule (kernel/sched/core.c:6456:3)",
            "nvme nvme0: I/O 21 QID 3 timeout, aborting",
            "usb 1-1: reset high-speed USB device number 7 using xhci_hcd",
            "Node 0 Normal free:1234kB min:12kB",
            "active_anon:12 inactive_anon:3",
            "java          D 0000000000000001     0  1234      1 0x00000080",
            "db invoked oom-killer: gfp_mask=0xd0",
        ] {
            assert!(can_tell(line), "{line}");
        }
    }
}
