//! The kernel's hooks, each loaded and attached by itself: what a kernel refuses costs us that one cause.

use std::collections::BTreeSet;

use aya::programs::perf_event::{PerfEventConfig, PerfEventScope, SamplePolicy, SoftwareEvent};
use aya::programs::{BtfTracePoint, FEntry, FExit, PerfEvent, Program, TracePoint};
use aya::{Btf, Ebpf};

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};

use flatwater_recording::{HookState, HookStatus};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// A tracepoint through its BTF type.
    Btf,
    /// A tracepoint through tracefs, for its formatted fields.
    Formatted(&'static str),
    Entry,
    Exit,
    CpuClock,
}

/// When a hook is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Always,
    Others,
    Faults,
    Cgroup,
    Samples,
}

struct Hook {
    place: Place,
    /// The tracepoint or function.
    at: &'static str,
    /// The program's name in the object.
    program: &'static str,
    serves: &'static [&'static str],
    when: When,
}

/// What the caller of `attach` wants beyond the hooks that are always wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    pub others: bool,
    pub faults: bool,
    pub cgroup: bool,
    pub hz: u32,
}

const SLEEPS: &[&str] = &[
    "run-queue",
    "cpu-quota",
    "dirty-throttle",
    "journal-commit",
    "journal-buffer",
    "journal-full",
    "page-writeback",
    "stable-page",
    "block-allocation",
    "synchronous-read",
    "request-queue",
    "device-slow",
    "reclaim-throttle",
    "lock",
    "swap-in",
    "page-fault",
    "memcg-over-high",
    "fs-freeze",
];
const SAMPLES: &[&str] = &["samples", "compute", "slab-refill", "page-allocation", "page-fault", "block-allocation"];

const fn tp(at: &'static str, program: &'static str, serves: &'static [&'static str], when: When) -> Hook {
    Hook { place: Place::Btf, at, program, serves, when }
}

macro_rules! pairs {
    ($place_in:expr, $place_out:expr; $($begin:literal $begins:literal, $end:literal $ends:literal => $serves:literal;)*) => {
        [$((
            Hook { place: $place_in, at: $begin, program: $begins, serves: &[$serves], when: When::Always },
            Hook { place: $place_out, at: $end, program: $ends, serves: &[$serves], when: When::Always },
        )),*]
    };
}

/// Hooks that stand by themselves.
static SINGLE: &[Hook] = &[
    tp("sched_switch", "on_sched_switch", SLEEPS, When::Always),
    tp("sched_wakeup", "on_sched_wakeup", &["run-queue"], When::Always),
    Hook {
        place: Place::Formatted("writeback"),
        at: "balance_dirty_pages",
        program: "on_balance_dirty_pages",
        serves: &["dirty-throttle (its numbers)"],
        when: When::Always,
    },
    tp("page_fault_user", "on_page_fault_user", &["calls", "page-fault"], When::Faults),
    tp("sched_process_fork", "on_fork", &["calls (children)"], When::Others),
    tp("sched_process_exit", "on_exit", &["calls"], When::Others),
    tp("cgroup_attach_task", "on_cgroup_attach", &["calls (of a cgroup)"], When::Cgroup),
    Hook { place: Place::CpuClock, at: "cpu-clock", program: "on_cpu_clock", serves: SAMPLES, when: When::Samples },
];

/// A begin and its end: one without the other is worse than neither.
static BRACKETS: &[(Hook, Hook)] = &pairs! { Place::Btf, Place::Btf;
    "mm_vmscan_direct_reclaim_begin" "on_mm_vmscan_direct_reclaim_begin",
        "mm_vmscan_direct_reclaim_end" "on_mm_vmscan_direct_reclaim_end" => "direct-reclaim";
    "mm_vmscan_memcg_reclaim_begin" "on_mm_vmscan_memcg_reclaim_begin",
        "mm_vmscan_memcg_reclaim_end" "on_mm_vmscan_memcg_reclaim_end" => "memcg-reclaim";
    "mm_vmscan_memcg_softlimit_reclaim_begin" "on_mm_vmscan_memcg_softlimit_reclaim_begin",
        "mm_vmscan_memcg_softlimit_reclaim_end" "on_mm_vmscan_memcg_softlimit_reclaim_end" => "memcg-reclaim";
    "mm_vmscan_node_reclaim_begin" "on_mm_vmscan_node_reclaim_begin",
        "mm_vmscan_node_reclaim_end" "on_mm_vmscan_node_reclaim_end" => "node-reclaim";
    "mm_compaction_begin" "on_mm_compaction_begin", "mm_compaction_end" "on_mm_compaction_end" => "compaction";
    "mm_shrink_slab_start" "on_mm_shrink_slab_start", "mm_shrink_slab_end" "on_mm_shrink_slab_end" => "shrinker";
    "contention_begin" "on_contention_begin", "contention_end" "on_contention_end" => "lock";
    "irq_handler_entry" "on_irq_handler_entry", "irq_handler_exit" "on_irq_handler_exit" => "interrupt";
    "softirq_entry" "on_softirq_entry", "softirq_exit" "on_softirq_exit" => "interrupt";
};

static FUNCTIONS: &[(Hook, Hook)] = &pairs! { Place::Entry, Place::Exit;
    "alloc_buffer_head" "enter_alloc_buffer_head", "alloc_buffer_head" "leave_alloc_buffer_head" => "slab-refill";
    "allocate_slab" "enter_allocate_slab", "allocate_slab" "leave_allocate_slab" => "slab-refill";
    "__alloc_pages" "enter___alloc_pages", "__alloc_pages" "leave___alloc_pages" => "page-allocation";
    "__alloc_pages_noprof" "enter___alloc_pages_noprof", "__alloc_pages_noprof" "leave___alloc_pages_noprof"
        => "page-allocation";
    "__alloc_frozen_pages_noprof" "enter___alloc_frozen_pages_noprof",
        "__alloc_frozen_pages_noprof" "leave___alloc_frozen_pages_noprof" => "page-allocation";
};

static CALLS: (Hook, Hook) = (
    tp("sys_enter", "on_sys_enter", &["calls"], When::Others),
    tp("sys_exit", "on_sys_exit", &["calls"], When::Others),
);

/// Loads and attaches what is wanted, and says of each hook what became of it.
pub fn attach(ebpf: &mut Ebpf, btf: &Btf, wanted: Wanted) -> Vec<HookStatus> {
    let is_wanted = |hook: &Hook| match hook.when {
        When::Always => true,
        When::Others => wanted.others,
        When::Faults => wanted.others && wanted.faults,
        When::Cgroup => wanted.cgroup,
        When::Samples => wanted.hz > 0,
    };
    let mut states = Vec::new();
    for hook in SINGLE.iter().filter(|hook| is_wanted(hook)) {
        let outcome = attach_one(ebpf, btf, hook, wanted);
        states.push(status(hook, &outcome));
    }
    // One sample-free name is enough: newer kernels have dropped the older allocator entry points.
    let mut bonus_reasons = BTreeSet::new();
    for (begin, end) in BRACKETS {
        states.extend(attach_pair(ebpf, btf, begin, end, wanted));
    }
    for (begin, end) in FUNCTIONS {
        let pair = attach_pair(ebpf, btf, begin, end, wanted);
        if pair.iter().all(|status| status.state == HookState::Exact) || bonus_reasons.insert(pair[0].reason.clone()) {
            states.extend(pair);
        }
    }
    // Last: from here on each system call of the machine pays.
    if wanted.others {
        states.extend(attach_pair(ebpf, btf, &CALLS.0, &CALLS.1, wanted));
    }
    states
}

/// Only the two system call hooks: what their cost is measured with.
pub fn attach_calls(ebpf: &mut Ebpf, btf: &Btf) -> Result<(), String> {
    for hook in [&CALLS.0, &CALLS.1] {
        attach_one(ebpf, btf, hook, Wanted::default())?;
    }
    Ok(())
}

fn attach_pair(ebpf: &mut Ebpf, btf: &Btf, begin: &Hook, end: &Hook, wanted: Wanted) -> [HookStatus; 2] {
    // The end first: an end without a begin is ignored, a begin without an end is not.
    let end_outcome = attach_one(ebpf, btf, end, wanted);
    let begin_outcome = match &end_outcome {
        Ok(()) => attach_one(ebpf, btf, begin, wanted),
        Err(why) => Err(why.clone()),
    };
    let end_outcome = end_outcome.and_then(|()| begin_outcome.clone());
    [status(begin, &begin_outcome), status(end, &end_outcome)]
}

fn attach_one(ebpf: &mut Ebpf, btf: &Btf, hook: &Hook, wanted: Wanted) -> Result<(), String> {
    let program = ebpf.program_mut(hook.program).ok_or("the object has no such program")?;
    let tell = |error: aya::programs::ProgramError| reason(&error);
    match hook.place {
        Place::Btf => {
            let program: &mut BtfTracePoint = program.try_into().map_err(tell)?;
            program.load(hook.at, btf).map_err(tell)?;
            program.attach().map_err(tell)?;
        }
        Place::Formatted(category) => {
            let program: &mut TracePoint = program.try_into().map_err(tell)?;
            program.load().map_err(tell)?;
            with_tracefs(|| program.attach(category, hook.at).map(|_| ()).map_err(tell))?;
        }
        Place::Entry => {
            let program: &mut FEntry = program.try_into().map_err(tell)?;
            program.load(hook.at, btf).map_err(tell)?;
            program.attach().map_err(tell)?;
        }
        Place::Exit => {
            let program: &mut FExit = program.try_into().map_err(tell)?;
            program.load(hook.at, btf).map_err(tell)?;
            program.attach().map_err(tell)?;
        }
        Place::CpuClock => attach_clock(program, wanted.hz)?,
    }
    Ok(())
}

/// By CPU, not by thread: a thread's own clock would have to be armed at each of its context switches.
fn attach_clock(program: &mut Program, hz: u32) -> Result<(), String> {
    let program: &mut PerfEvent = program.try_into().map_err(|error: aya::programs::ProgramError| reason(&error))?;
    program.load().map_err(|error| reason(&error))?;
    for cpu in aya::util::online_cpus().map_err(|(what, error)| format!("{what}: {error}"))? {
        let config = PerfEventConfig::Software(SoftwareEvent::CpuClock);
        let (scope, policy) = (PerfEventScope::AllProcessesOneCpu { cpu }, SamplePolicy::Frequency(u64::from(hz)));
        program.attach(config, scope, policy, false).map_err(|error| reason(&error))?;
    }
    Ok(())
}

/// Formatted tracepoints are found through tracefs. Where that is not mounted, the thread that attaches gets a mount
/// that nobody else sees: a tool that only looks must not change the machine.
fn with_tracefs<T: Send>(attach: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    const TRACEFS: &str = "/sys/kernel/tracing";
    if std::path::Path::new(TRACEFS).join("events").exists() {
        return attach();
    }
    std::thread::scope(|scope| {
        let outcome = scope.spawn(|| {
            // SAFETY: only this thread, which ends with this closure, leaves the mount namespace.
            if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
                return Err(format!("tracefs is not mounted: {}", std::io::Error::last_os_error()));
            }
            let told = |error: rustix::io::Errno| format!("tracefs is not mounted and cannot be: {error}");
            let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
            mount_change("/", private).map_err(told)?;
            mount("nodev", TRACEFS, "tracefs", MountFlags::empty(), None).map_err(told)?;
            attach()
        });
        outcome.join().unwrap_or_else(|_| Err("the thread that attaches panicked".to_owned()))
    })
}

fn status(hook: &Hook, outcome: &Result<(), String>) -> HookStatus {
    let prefix = match hook.place {
        Place::Btf => "tp_btf",
        Place::Formatted(category) => category,
        Place::Entry => "fentry",
        Place::Exit => "fexit",
        Place::CpuClock => "perf_event",
    };
    let working = if hook.place == Place::CpuClock { HookState::Sampled } else { HookState::Exact };
    HookStatus {
        hook: format!("{prefix}/{}", hook.at),
        serves: hook.serves.iter().map(|&name| name.to_owned()).collect(),
        state: if outcome.is_ok() { working } else { HookState::Unavailable },
        reason: match outcome {
            Ok(()) if working == HookState::Sampled => "sampled by design".to_owned(),
            Ok(()) => String::new(),
            Err(why) => why.clone(),
        },
    }
}

/// The whole chain of an error in one line, without a verifier log of several pages.
pub fn reason(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = cause.source();
    }
    if text.contains("unknown BTF type") {
        return "this kernel has no such tracepoint or function".to_owned();
    }
    // What follows is the verifier's log, which is empty where the kernel refused outright.
    let line = text.lines().next().unwrap_or_default();
    let line = line.split("Verifier output").next().unwrap_or_default().trim_end_matches(['.', ' ', ':']);
    let line: String = line.chars().take(200).collect();
    if text.contains("os error 1)") {
        return format!("{line}: needs root or CAP_BPF and CAP_PERFMON, or the kernel's policy forbids it");
    }
    line
}
