//! Finds relevant lines of a kernel log in one pass: most lines are irrelevant, and a log may have millions.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use flatwater_recording::{device_words, holds_device_trouble};

/// Every line that `report`, `task`, `frame` or `memory` reads contains one of these, except messages about devices.
pub const OF_REPORTS: &[&str] = &[
    // Reports, and events of one line.
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
    // The third line of a hung-task report.
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
    "drop_caches",
];

/// A DFA, since every line of a kernel log is searched.
static KNOWN: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    AhoCorasick::builder().kind(Some(AhoCorasickKind::DFA)).build(OF_REPORTS.iter().copied().chain(device_words())).ok()
});

/// Whether a message can be relevant.
#[must_use]
pub fn can_tell(message: &str) -> bool {
    KNOWN.as_ref().is_none_or(|known| {
        known.find_overlapping_iter(message).any(|found| {
            // The patterns after those of reports are words of devices. Each is only part of what identifies trouble:
            // the kernel announces every new USB device with one.
            let device = found.pattern().as_usize().checked_sub(OF_REPORTS.len());
            device.is_none_or(|number| holds_device_trouble(number, message))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::can_tell;

    #[test]
    fn reports_are_relevant_and_most_other_lines_are_not() {
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
