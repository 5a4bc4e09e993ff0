//! Events: changes, reports and marks at one instant of a recording.
//!
//! On disk an event is its kind's name and a text. Only this module writes (`Display`) and parses (`EventKind::read`)
//! the text. To learn whether a process was killed, other stages match `EventKind::OutOfMemory` and search no text.
//! `EventKind::report` classifies lines of the kernel when a log is imported or a recording is read.

use std::fmt;

/// An event at one instant: a setting was changed, a workload began, the kernel reported something.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// When it happened, ns of CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// What happened.
    pub kind: EventKind,
}

/// What an event reports.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// The scenario's name or the command line of the run that began.
    Start(String),
    /// A setting was changed; `old` is absent if it could not be read.
    SetupChange {
        /// The setting.
        key: String,
        /// Its value before, if it was known.
        old: Option<String>,
        /// Its value from now on.
        new: String,
    },
    /// An instant to mark in charts.
    Mark(String),
    /// From here on every system call is timed, or only slow ones are found. A recording without such an event is of one
    /// kind from its start to its end.
    Timing {
        /// Whether each call is timed from now on.
        every_call: bool,
    },
    /// The kernel killed a process because memory ran out.
    OutOfMemory {
        /// Whether the limit of a memory cgroup was reached, not the machine's.
        in_cgroup: bool,
        /// The kernel's line.
        line: String,
    },
    /// A process made the kernel drop its caches (vm.drop_caches).
    CachesDropped {
        /// The kernel's line.
        line: String,
    },
    /// The kernel failed an allocation and logged it.
    AllocationFailure {
        /// The request was for 2^order pages; absent if the line does not say.
        order: Option<u32>,
        /// Whether the request was not allowed to wait for reclaim (GFP_ATOMIC, GFP_NOWAIT).
        may_not_wait: bool,
        /// The line of the kernel log.
        line: String,
    },
    /// The kernel reports a problem of a device, an array or a server.
    Device {
        /// What the kernel reported.
        trouble: DeviceTrouble,
        /// The line of the kernel log.
        line: String,
    },
    /// A line of evidence without a specific kind.
    Report(String),
    /// The run ended, with the reason.
    End(String),
    /// A kind that this flatwater does not know: written by a newer version, or damaged.
    Other {
        /// Its name in the file.
        kind: String,
        /// Its text in the file.
        text: String,
    },
}

/// Kinds of device problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum DeviceTrouble {
    /// A command timed out or was aborted.
    Timeout,
    /// The device, its link or its controller was reset.
    Reset,
    /// A request failed.
    Error,
    /// A server (NFS, SMB, Ceph) does not respond.
    NotResponding,
    /// A server responds again.
    Answers,
    /// An array rebuilds, resynchronises or checks itself, or lost a disk.
    Array,
}

impl DeviceTrouble {
    const ALL: [DeviceTrouble; 6] = [
        DeviceTrouble::Timeout,
        DeviceTrouble::Reset,
        DeviceTrouble::Error,
        DeviceTrouble::NotResponding,
        DeviceTrouble::Answers,
        DeviceTrouble::Array,
    ];

    /// The name of an event's kind in tables, for lines that do not show the trouble.
    fn name(self) -> &'static str {
        match self {
            DeviceTrouble::Timeout => "device-timeout",
            DeviceTrouble::Reset => "device-reset",
            DeviceTrouble::Error => "device-error",
            DeviceTrouble::NotResponding => "device-not-responding",
            DeviceTrouble::Answers => "device-answers",
            DeviceTrouble::Array => "device-array",
        }
    }
}

/// How the kernel reports device problems: (words that a line must all contain, problem). The first match counts.
const TROUBLES: &[(&[&str], DeviceTrouble)] = &[
    (&["not responding, still trying"], DeviceTrouble::NotResponding),
    (&["not responding, timed out"], DeviceTrouble::NotResponding),
    (&["has not responded in "], DeviceTrouble::NotResponding),
    (&["server ", " not responding"], DeviceTrouble::NotResponding),
    (&["ceph", " hung"], DeviceTrouble::NotResponding),
    (&["nfs: server ", " OK"], DeviceTrouble::Answers),
    (&["nvme", "timeout"], DeviceTrouble::Timeout),
    (&["timing out command"], DeviceTrouble::Timeout),
    (&["qc timeout"], DeviceTrouble::Timeout),
    (&["task abort"], DeviceTrouble::Timeout),
    (&["scsi", "timed out"], DeviceTrouble::Timeout),
    (&["mmc", "Timeout waiting for hardware"], DeviceTrouble::Timeout),
    (&["mmcblk", "error -110"], DeviceTrouble::Timeout),
    (&["mmc", "Card stuck"], DeviceTrouble::Timeout),
    (&["Abort command issued"], DeviceTrouble::Timeout),
    (&["uas_eh_abort_handler"], DeviceTrouble::Timeout),
    (&["hostbyte=DID_TIME_OUT"], DeviceTrouble::Timeout),
    (&["Host adapter abort request"], DeviceTrouble::Timeout),
    (&["waiting for ", " commands to complete"], DeviceTrouble::Timeout),
    (&["Heartbeat write timeout to device"], DeviceTrouble::Timeout),
    (&["o2hb: ", " hb write hung for "], DeviceTrouble::Timeout),
    (&["aacraid", "IOP reset"], DeviceTrouble::Reset),
    (&["Controller encountered a fatal error"], DeviceTrouble::Error),
    (&["Remote failed to finish a request within"], DeviceTrouble::Timeout),
    (&["storvsc", "timed out"], DeviceTrouble::Timeout),
    (&["virtio", "Command failed status"], DeviceTrouble::Error),
    (&["Connection timed out", "nbd"], DeviceTrouble::Timeout),
    (&["hard resetting link"], DeviceTrouble::Reset),
    (&["soft resetting link"], DeviceTrouble::Reset),
    (&["nvme", "reset"], DeviceTrouble::Reset),
    (&["mpt", "fault_state("], DeviceTrouble::Error),
    (&["sending diag reset"], DeviceTrouble::Reset),
    (&["attempting", "reset"], DeviceTrouble::Reset),
    (&["adapter reset"], DeviceTrouble::Reset),
    (&["usb ", "reset ", "USB device"], DeviceTrouble::Reset),
    (&["link is slow to respond"], DeviceTrouble::Reset),
    (&["limiting SATA link speed"], DeviceTrouble::Reset),
    (&["uas_eh_device_reset_handler"], DeviceTrouble::Reset),
    (&["target reset"], DeviceTrouble::Reset),
    (&["megaraid_sas", "reset"], DeviceTrouble::Reset),
    (&["qla2xxx", "RESET ISSUED"], DeviceTrouble::Reset),
    (&["ping timeout of ", "expired"], DeviceTrouble::NotResponding),
    (&["detected conn error"], DeviceTrouble::NotResponding),
    (&["session recovery timed out"], DeviceTrouble::NotResponding),
    (&["blocked FC remote port time out"], DeviceTrouble::NotResponding),
    (&["PingAck did not arrive in time"], DeviceTrouble::NotResponding),
    (&["sock_sendmsg time expired, ko = "], DeviceTrouble::NotResponding),
    (&["libceph: ", "session lost, hunting"], DeviceTrouble::NotResponding),
    (&["I/O error"], DeviceTrouble::Error),
    (&["critical medium error"], DeviceTrouble::Error),
    (&["critical target error"], DeviceTrouble::Error),
    (&["exception Emask"], DeviceTrouble::Error),
    (&["failed command: "], DeviceTrouble::Error),
    (&["lost async page write"], DeviceTrouble::Error),
    (&["multipath", "Failing path"], DeviceTrouble::Error),
    (&["multipath", "checker failed path"], DeviceTrouble::Error),
    (&["remaining active paths: 0"], DeviceTrouble::Error),
    (&["hostbyte=DID_BAD_TARGET"], DeviceTrouble::Error),
    (&["hostbyte=DID_NO_CONNECT"], DeviceTrouble::Error),
    (&["hostbyte=DID_TRANSPORT"], DeviceTrouble::Error),
    (&["hostbyte=DID_ERROR"], DeviceTrouble::Error),
    (&["hostbyte=DID_SOFT_ERROR"], DeviceTrouble::Error),
    (&["hostbyte=DID_ABORT"], DeviceTrouble::Error),
    (&["Sense Key : Medium Error"], DeviceTrouble::Error),
    (&["Sense Key : Hardware Error"], DeviceTrouble::Error),
    (&["Unrecovered read error"], DeviceTrouble::Error),
    (&["detected capacity change from ", " to 0"], DeviceTrouble::Error),
    (&["Device offlined"], DeviceTrouble::Error),
    (&["COMRESET failed"], DeviceTrouble::Error),
    (&["nvme", "Device not ready"], DeviceTrouble::Error),
    (&["device-mapper: thin", "out-of-data-space"], DeviceTrouble::Error),
    (&["uncorrectable I/O failure and has been suspended"], DeviceTrouble::Error),
    (&["BTRFS", "bdev ", " errs: "], DeviceTrouble::Error),
    (&["rejecting I/O to offline device"], DeviceTrouble::Error),
    (&["EXT4-fs error"], DeviceTrouble::Error),
    (&["Remounting filesystem read-only"], DeviceTrouble::Error),
    (&["md: resync of RAID array"], DeviceTrouble::Array),
    (&["md: recovery of RAID array"], DeviceTrouble::Array),
    (&["md: data-check of RAID array"], DeviceTrouble::Array),
    (&["md: requested-resync of RAID array"], DeviceTrouble::Array),
    (&["md: reshape of RAID array"], DeviceTrouble::Array),
    (&["md/raid", "Disk failure on"], DeviceTrouble::Array),
    (&["md/raid", "Operation continuing on"], DeviceTrouble::Array),
];

/// One word of each rule for device problems, for fast scans of long logs. The index of a word is the `number` that
/// `holds_device_trouble` takes.
pub fn device_words() -> impl Iterator<Item = &'static str> {
    TROUBLES.iter().filter_map(|(words, _)| words.iter().max_by_key(|word| word.len()).copied())
}

/// Whether a line that contains word `number` of `device_words` contains all words of that rule.
#[must_use]
pub fn holds_device_trouble(number: usize, line: &str) -> bool {
    TROUBLES.get(number).is_some_and(|(words, _)| words.iter().all(|word| line.contains(word)))
}

/// Whether a line reports a device problem.
#[must_use]
pub fn is_device_trouble(line: &str) -> bool {
    device_trouble(line).is_some()
}

fn device_trouble(line: &str) -> Option<DeviceTrouble> {
    let found = TROUBLES.iter().find(|(words, _)| words.iter().all(|word| line.contains(word)));
    found.map(|(_, trouble)| *trouble)
}

impl Event {
    /// An event at this instant.
    #[must_use]
    pub fn new(at_ns: u64, kind: EventKind) -> Event {
        Event { at_ns, kind }
    }
}

/// Names of the two kinds of `EventKind::Timing` in a table.
const EVERY_CALL: &str = "every-call-timed";
const SLOW_CALLS: &str = "slow-calls-found";

impl EventKind {
    /// The name in tables and CSV.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            EventKind::Start(_) => "start",
            EventKind::SetupChange { .. } => "setup-change",
            EventKind::Mark(_) => "mark",
            EventKind::Timing { every_call: true } => EVERY_CALL,
            EventKind::Timing { every_call: false } => SLOW_CALLS,
            // A line that does not show the trouble by itself, such as an attribute of a SMART table.
            EventKind::Device { trouble, line } if device_trouble(line) != Some(*trouble) => trouble.name(),
            EventKind::OutOfMemory { .. }
            | EventKind::CachesDropped { .. }
            | EventKind::AllocationFailure { .. }
            | EventKind::Device { .. }
            | EventKind::Report(_) => "report",
            EventKind::End(_) => "end",
            EventKind::Other { kind, .. } => kind,
        }
    }

    /// Parses the name of a kind and its text, as tables store them.
    #[must_use]
    pub fn read(name: &str, text: &str) -> EventKind {
        let owned = text.to_owned();
        match name {
            "start" => EventKind::Start(owned),
            "mark" => EventKind::Mark(owned),
            "end" => EventKind::End(owned),
            EVERY_CALL => EventKind::Timing { every_call: true },
            SLOW_CALLS => EventKind::Timing { every_call: false },
            "report" => EventKind::report(owned),
            "setup-change" => match text.split_once(": ").and_then(|(key, rest)| Some((key, rest.split_once(" -> ")?)))
            {
                Some((key, (old, new))) => EventKind::SetupChange {
                    key: key.to_owned(),
                    old: (old != "?").then(|| old.to_owned()),
                    new: new.to_owned(),
                },
                None => EventKind::Other { kind: name.to_owned(), text: owned },
            },
            _ => match DeviceTrouble::ALL.into_iter().find(|trouble| trouble.name() == name) {
                Some(trouble) => EventKind::Device { trouble, line: owned },
                None => EventKind::Other { kind: name.to_owned(), text: owned },
            },
        }
    }

    /// Number and name of the process that the kernel killed because memory ran out, if the line gives them.
    #[must_use]
    pub fn killed(&self) -> Option<(u32, &str)> {
        match self {
            EventKind::OutOfMemory { line, .. } => killed(line),
            _ => None,
        }
    }

    /// Number and name of the process that made the kernel drop its caches.
    #[must_use]
    pub fn dropped_cache(&self) -> Option<(u32, &str)> {
        match self {
            EventKind::CachesDropped { line } => dropped_cache(line),
            _ => None,
        }
    }

    /// Classifies a line of the kernel's log or of another program's.
    #[must_use]
    pub fn report(line: impl Into<String>) -> EventKind {
        // The last one is printed by 2.4 (arch/i386/mm/fault.c).
        const KILLS: [&str; 6] =
            ["out of memory", "oom-killer", "oom-kill:", "oom_reaper", "oom kill", "vm: killing process"];
        let line = line.into();
        // Device lines come first: such a line may mention a failed allocation.
        if let Some(trouble) = device_trouble(&line) {
            return EventKind::Device { trouble, line };
        }
        let small = line.to_ascii_lowercase();
        if KILLS.iter().any(|mark| small.contains(mark)) {
            return EventKind::OutOfMemory { in_cgroup: small.contains("memory cgroup"), line };
        }
        if line.contains("page allocation failure") || line.contains("-order allocation failed") {
            return EventKind::AllocationFailure { order: order(&line), may_not_wait: may_not_wait(&line), line };
        }
        if let Some(order) = deadlock_order(&line) {
            return EventKind::AllocationFailure { order: Some(order), may_not_wait: false, line };
        }
        if dropped_cache(&line).is_some() {
            return EventKind::CachesDropped { line };
        }
        EventKind::Report(line)
    }
}

/// Parses `sh (812): drop_caches: 3` (fs/drop_caches.c: drop_caches_sysctl_handler, since 3.15) into number and name.
/// A name may contain blanks and parentheses.
fn dropped_cache(line: &str) -> Option<(u32, &str)> {
    let (who, value) = line.split_once("): drop_caches: ")?;
    let (name, pid) = who.rsplit_once(" (")?;
    value.trim_end().parse::<u32>().ok()?;
    // After a timestamp and a host, the name follows `kernel: ` or `] `; otherwise the line begins with it.
    let name = name.rsplit_once("kernel: ").map_or(name, |(_, name)| name);
    let name = name.rsplit_once("] ").map_or(name, |(_, name)| name);
    Some((pid.parse().ok()?, name.trim_start()))
}

/// Parses `Killed process 12 (fio) total-vm:...` (mm/oom_kill.c: __oom_kill_process, since 2.6.36 in this order) into
/// number and name.
fn killed(line: &str) -> Option<(u32, &str)> {
    let (pid, rest) = line.split_once("Killed process ")?.1.split_once(' ')?;
    // RHEL 6 and 7 print `12, UID 0, (fio) total-vm:...`.
    let rest = rest.strip_prefix("UID ").and_then(|rest| Some(rest.split_once(", ")?.1)).unwrap_or(rest);
    let rest = rest.strip_prefix('(')?;
    // A name may contain parentheses: it ends before the text that each version prints next.
    let end = [") total-vm", "), UID", ") vsz"].iter().find_map(|next| rest.find(next)).or_else(|| rest.rfind(')'))?;
    Some((pid.trim_end_matches(',').parse().ok()?, rest.get(..end)?))
}

/// Allocation order in the message of XFS and SPL when an allocation has failed many times and is retried: `possible
/// memory allocation deadlock size 65552 in kmem_alloc` (fs/xfs/kmem.c), `Possible memory allocation deadlock:
/// size=1048576`.
fn deadlock_order(line: &str) -> Option<u32> {
    let rest = line.split_once("ossible memory allocation deadlock")?.1;
    let rest = rest.split_once("size")?.1.trim_start_matches(['=', ' ']);
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let pages = digits.parse::<u64>().ok()?.div_ceil(4096).max(1);
    Some(pages.next_power_of_two().trailing_zeros())
}

fn order(line: &str) -> Option<u32> {
    if let Some((before, _)) = line.split_once("-order allocation failed") {
        return before.rsplit(' ').next()?.parse().ok();
    }
    let digits: String = line.split_once("order:")?.1.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Uses the names of the GFP mode (printed since 4.6), or its bits: __GFP_WAIT is 0x10 until 4.3, __GFP_DIRECT_RECLAIM
/// 0x400000 later; 0x40 (__GFP_IO) accompanies either.
fn may_not_wait(line: &str) -> bool {
    let Some((_, mode)) = line.split_once("mode:").or_else(|| line.split_once("(gfp=")) else { return false };
    if mode.contains("GFP_") {
        return mode.contains("GFP_ATOMIC") || mode.contains("GFP_NOWAIT");
    }
    let digits: String =
        mode.trim_start().trim_start_matches("0x").chars().take_while(char::is_ascii_hexdigit).collect();
    u32::from_str_radix(&digits, 16).is_ok_and(|mode| mode & 0x40_0050 == 0)
}

/// The text without the kind.
impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EventKind::Start(text)
            | EventKind::End(text)
            | EventKind::Mark(text)
            | EventKind::Report(text)
            | EventKind::OutOfMemory { line: text, .. }
            | EventKind::CachesDropped { line: text }
            | EventKind::AllocationFailure { line: text, .. }
            | EventKind::Device { line: text, .. }
            | EventKind::Other { text, .. } => f.write_str(text),
            EventKind::Timing { every_call: true } => f.write_str("every system call is timed from here on"),
            EventKind::Timing { every_call: false } => f.write_str("only slow calls are found from here on"),
            EventKind::SetupChange { key, old, new } => write!(f, "{key}: {} -> {new}", old.as_deref().unwrap_or("?")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{DeviceTrouble, EventKind};

    #[test]
    fn the_order_of_a_repeatedly_failing_allocation_follows_from_its_size() {
        let order = |line: &str| match EventKind::report(line) {
            EventKind::AllocationFailure { order, .. } => order,
            _ => None,
        };
        let xfs = "XFS: mysqld(812) possible memory allocation deadlock size 65552 in kmem_alloc (mode:0x250)";
        assert_eq!(order(xfs), Some(5));
        assert_eq!(order("Possible memory allocation deadlock: size=1048576 lflags=0x42d0"), Some(8));
        assert_eq!(order("Possible memory allocation deadlock: size=48 lflags=0x4210"), Some(0));
        assert_eq!(order("XFS: rm(1) possible memory allocation deadlock in kmem_zone_alloc"), None);
    }

    #[test]
    fn a_drop_caches_line_names_the_process() {
        let who = |line: &str| EventKind::report(line).dropped_cache().map(|(pid, name)| (pid, name.to_owned()));
        assert_eq!(who("sh (812): drop_caches: 3"), Some((812, "sh".to_owned())));
        assert_eq!(who("my job (x) (9): drop_caches: 1"), Some((9, "my job (x)".to_owned())));
        assert_eq!(who("[ 12.5] tuned (77): drop_caches: 3"), Some((77, "tuned".to_owned())));
        assert_eq!(who("Oct 1 host kernel: cron.sh (4): drop_caches: 3"), Some((4, "cron.sh".to_owned())));
        for other in
            ["sh (x): drop_caches: 3", "sh (8): drop_caches: soon", "vm.drop_caches = 3", "(8): drop_caches: 3"]
        {
            assert_eq!(who(other), None, "{other}");
        }
        let line = "SMART: 197 Current_Pending_Sector 0x0012 100 100 000 Old_age Always - 16";
        let smart = EventKind::Device { trouble: super::DeviceTrouble::Error, line: line.to_owned() };
        assert_eq!(EventKind::read(smart.name(), line), smart, "the attribute does not contain the kernel's words");
        let line = "sh (812): drop_caches: 3";
        assert_eq!(EventKind::read("report", line), EventKind::CachesDropped { line: line.to_owned() });
    }

    #[test]
    fn oom_kill_lines_of_all_versions_name_the_victim() {
        let victim = |line: &str| EventKind::report(line).killed().map(|(pid, name)| (pid, name.to_owned()));
        let newer = "Memory cgroup out of memory: Killed process 12 (fio) total-vm:4kB, anon-rss:1kB";
        assert_eq!(victim(newer), Some((12, "fio".to_owned())));
        let older = "Out of memory: Killed process 4711 ((sd-pam)), UID 0, total-vm:4kB, anon-rss:1kB";
        assert_eq!(victim(older), Some((4711, "(sd-pam)".to_owned())));
        assert_eq!(victim("Out of memory: Killed process 9 (a (b)) total-vm:1kB"), Some((9, "a (b)".to_owned())));
        let of_rhel = "Out of memory: Killed process 12, UID 26, (postmaster) total-vm:4kB, anon-rss:1kB";
        assert_eq!(victim(of_rhel), Some((12, "postmaster".to_owned())));
        assert_eq!(victim("fio invoked oom-killer: gfp_mask=0xcc0"), None);
        assert_eq!(victim("Out of memory: Killed process x (fio)"), None);
    }

    fn back(kind: &EventKind) -> EventKind {
        EventKind::read(kind.name(), &kind.to_string())
    }

    #[test]
    fn every_kind_round_trips_through_its_name_and_text() {
        let change = |old: Option<&str>| EventKind::SetupChange {
            key: "vm.dirty_ratio".to_owned(),
            old: old.map(str::to_owned),
            new: "20".to_owned(),
        };
        for kind in [
            EventKind::Start("journal".to_owned()),
            change(Some("40")),
            change(None),
            EventKind::Mark("cgroup full".to_owned()),
            EventKind::Timing { every_call: true },
            EventKind::Timing { every_call: false },
            EventKind::report("Memory cgroup out of memory: Killed process 12 (fio)"),
            EventKind::report("swapper/0: page allocation failure: order:0, mode:0x20"),
            EventKind::report("the machine was restarted"),
            EventKind::End(String::new()),
            EventKind::Other { kind: "migration".to_owned(), text: "of a newer flatwater".to_owned() },
        ] {
            assert_eq!(back(&kind), kind);
        }
    }

    #[test]
    fn kernel_lines_are_classified() {
        let kill = EventKind::report("Out of memory: Killed process 4711 (java) total-vm:9000000kB");
        assert!(matches!(kill, EventKind::OutOfMemory { in_cgroup: false, .. }));
        let group = EventKind::report("Memory cgroup out of memory: Killed process 12 (fio)");
        assert!(matches!(group, EventKind::OutOfMemory { in_cgroup: true, .. }));
        assert!(matches!(EventKind::report("Killed by signal 15"), EventKind::Report(_)));
        let failure = |line: &str| match EventKind::report(line) {
            EventKind::AllocationFailure { order, may_not_wait, .. } => (order, may_not_wait),
            other => panic!("{other:?}"),
        };
        assert_eq!(failure("java: page allocation failure: order:4, mode:0xcc0(GFP_KERNEL)"), (Some(4), false));
        assert_eq!(failure("swapper: page allocation failure. order:0, mode:0x20"), (Some(0), true));
        assert_eq!(failure("page allocation failure"), (None, false));
        assert_eq!(failure("__alloc_pages: 3-order allocation failed (gfp=0x20/0)"), (Some(3), true));
        assert!(matches!(EventKind::report("VM: killing process mysqld"), EventKind::OutOfMemory { .. }));
    }

    #[test]
    fn device_lines_get_the_right_kind_of_trouble() {
        for (line, expected) in [
            ("nfs: server filer1 not responding, still trying", Some(DeviceTrouble::NotResponding)),
            ("nfs: server filer1 OK", Some(DeviceTrouble::Answers)),
            ("nvme nvme0: I/O 21 QID 3 timeout, aborting", Some(DeviceTrouble::Timeout)),
            ("nvme nvme0: controller is down; will reset: CSTS=0x3", Some(DeviceTrouble::Reset)),
            ("ata3: hard resetting link", Some(DeviceTrouble::Reset)),
            ("blk_update_request: I/O error, dev sda, sector 12", Some(DeviceTrouble::Error)),
            ("md: resync of RAID array md0", Some(DeviceTrouble::Array)),
            ("sd 0:0:0:0: [sda] Attached SCSI disk", None),
            ("nvme nvme0: 8/0/0 default/read/poll queues", None),
        ] {
            let found = match EventKind::report(line) {
                EventKind::Device { trouble, .. } => Some(trouble),
                _ => None,
            };
            assert_eq!(found, expected, "{line}");
        }
    }

    #[test]
    fn a_setup_change_that_does_not_parse_is_kept_as_text() {
        let odd = EventKind::read("setup-change", "vm.swappiness was set");
        assert_eq!((odd.name(), odd.to_string().as_str()), ("setup-change", "vm.swappiness was set"));
    }
}
