//! The kernel hooks. Each is loaded and attached by itself, so that a refused hook costs only the causes that it
//! serves.

use aya::programs::links::FdLink;
use aya::programs::perf_event::{PerfEventConfig, PerfEventScope, SamplePolicy, SoftwareEvent};
use aya::programs::{FEntry, FExit, PerfEvent, Program, TracePoint};
use aya::{Btf, Ebpf};

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};

use super::error::TraceError;
use super::variant::{Means, Variant};
use flatwater_recording::{Bracket, Cause, Ends, Hook as Shows, HookState, HookStatus, brackets, printable};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// A tracepoint, typed or raw as in the loaded variant.
    Plain,
    /// A tracepoint through tracefs, for its formatted fields. Holds the tracepoint's category.
    Formatted(&'static str),
    Entry,
    Exit,
    CpuClock,
    /// The perf event that counts completed page faults, minor and major.
    FaultCount,
}

/// When a hook is used.
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
    program: String,
    serves: Vec<&'static str>,
    when: When,
}

/// Optional hooks, which `attach` attaches only on request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    pub others: bool,
    /// For other programs: trace system calls. Without this, only forks and exits of targets are followed.
    pub calls: bool,
    /// For other programs: hook the functions of the timed calls instead of every system call.
    pub functions: bool,
    pub faults: bool,
    pub cgroup: bool,
    pub hz: u32,
}

/// The names of the causes that this hook shows, if it serves several.
fn shown_by(hook: Shows) -> impl Iterator<Item = &'static str> {
    Cause::ALL.iter().filter(move |cause| cause.spec().hooks.contains(&hook)).map(|cause| cause.name())
}

fn single(place: Place, at: &'static str, program: &str, serves: Vec<&'static str>, when: When) -> Hook {
    Hook { place, at, program: program.to_owned(), serves, when }
}

/// The hooks that need no partner.
fn singles() -> Vec<Hook> {
    let sleeps = shown_by(Shows::SchedSwitch).collect();
    let samples = std::iter::once("samples").chain(shown_by(Shows::CpuClock)).collect();
    let faults = std::iter::once("calls").chain(shown_by(Shows::PageFaultUser)).collect();
    let numbers = Place::Formatted("writeback");
    vec![
        single(Place::Plain, "sched_switch", "on_sched_switch", sleeps, When::Always),
        single(Place::Plain, "sched_wakeup", "on_sched_wakeup", shown_by(Shows::SchedWakeup).collect(), When::Always),
        single(
            numbers,
            "balance_dirty_pages",
            "on_balance_dirty_pages",
            vec!["dirty-throttle (its numbers)"],
            When::Always,
        ),
        single(Place::Plain, "page_fault_user", "on_page_fault_user", faults, When::Faults),
        single(
            Place::FaultCount,
            "page-faults",
            "on_fault_end",
            vec!["calls (page faults, to their end)"],
            When::Faults,
        ),
        single(Place::Plain, "sched_process_fork", "on_fork", vec!["calls (children)"], When::Others),
        single(Place::Plain, "sched_process_exit", "on_exit", vec!["calls"], When::Others),
        single(Place::Plain, "cgroup_attach_task", "on_cgroup_attach", vec!["calls (of a cgroup)"], When::Cgroup),
        single(Place::CpuClock, "cpu-clock", "on_cpu_clock", samples, When::Samples),
    ]
}

/// The hooks of the causes' brackets, as pairs: a begin without its end would be worse than neither.
fn bracket_pairs() -> Vec<(Hook, Hook)> {
    let mut pairs: Vec<(Hook, Hook)> = Vec::new();
    for (_, cause, bracket) in brackets() {
        let (Ends::Tracepoints { begin, end } | Ends::Written { begin, end }) = bracket.ends else { continue };
        // Brackets of one cause may share their tracepoints.
        if pairs.iter().all(|(known, _)| known.at != begin) {
            let hook =
                |at: &'static str| single(Place::Plain, at, &format!("on_{at}"), vec![cause.name()], When::Always);
            pairs.push((hook(begin), hook(end)));
        }
    }
    pairs
}

/// For each bracket that is a function: one pair of hooks for each name that kernels gave the function.
fn function_pairs() -> Vec<Vec<(Hook, Hook)>> {
    let of_bracket = |(_, cause, bracket): (_, Cause, &Bracket)| {
        let Ends::Function(names) = bracket.ends else { return None };
        let pair = |&at: &&'static str| {
            let hook = |place, way: &str| single(place, at, &format!("{way}_{at}"), vec![cause.name()], When::Always);
            (hook(Place::Entry, "enter"), hook(Place::Exit, "leave"))
        };
        Some(names.iter().map(pair).collect())
    };
    brackets().filter_map(of_bracket).collect()
}

fn call_pair() -> (Hook, Hook) {
    let hook = |at, program| single(Place::Plain, at, program, vec!["calls"], When::Others);
    (hook("sys_enter", "on_sys_enter"), hook("sys_exit", "on_sys_exit"))
}

/// Loads and attaches the wanted hooks, and returns the status of each.
pub fn attach(ebpf: &mut Ebpf, btf: &Btf, variant: &Variant, wanted: Wanted) -> Vec<HookStatus> {
    let tracepoints = if variant.has(Means::TypedTracepoints) { "tp_btf" } else { "raw_tp" };
    let status = |hook: &Hook, outcome: &Result<(), TraceError>| status(hook, tracepoints, outcome);
    let sleeps_only = wanted.others && !wanted.calls;
    let is_wanted = |hook: &Hook| match hook.when {
        When::Always | When::Faults | When::Samples if sleeps_only => false,
        When::Always => true,
        When::Others => wanted.others,
        When::Faults => wanted.others && wanted.faults,
        When::Cgroup => wanted.cgroup,
        When::Samples => wanted.hz > 0,
    };
    let mut states = Vec::new();
    for hook in singles().iter().filter(|hook| is_wanted(hook)) {
        let outcome = attach_one(ebpf, btf, hook, wanted);
        states.push(status(hook, &outcome));
    }
    if wanted.others && !wanted.calls {
        return states;
    }
    for (begin, end) in bracket_pairs() {
        states.extend(attach_pair(ebpf, btf, [&begin, &end], wanted, &status));
    }
    for names in function_pairs() {
        let tried = names.iter().map(|(begin, end)| attach_pair(ebpf, btf, [begin, end], wanted, &status));
        states.extend(most_telling(tried.collect()).into_iter().flatten());
    }
    // Last, because this slows down every system call of the machine.
    if wanted.others && !wanted.functions {
        let (enter, exit) = call_pair();
        states.extend(attach_pair(ebpf, btf, [&enter, &exit], wanted, &status));
    }
    states
}

/// Of the names of one function, returns the pair that is attached, or else a pair that was refused for another reason
/// than an unknown name.
fn most_telling(tried: Vec<[HookStatus; 2]>) -> Option<[HookStatus; 2]> {
    let rank = |pair: &[HookStatus; 2]| match pair {
        pair if pair.iter().all(|status| status.state == HookState::Exact) => 0,
        pair if pair.iter().all(|status| status.reason != NO_SUCH) => 1,
        _ => 2,
    };
    tried.into_iter().min_by_key(rank)
}

/// The hook that most causes need; a variant without it is of little use.
#[must_use]
pub fn of_sleeps(states: &[HookStatus]) -> Option<&HookStatus> {
    states.iter().find(|status| status.hook.ends_with("/sched_switch"))
}

#[must_use]
pub fn sees_sleeps(states: &[HookStatus]) -> bool {
    of_sleeps(states).is_some_and(|status| status.state == HookState::Exact)
}

/// The reason of the first status.
#[must_use]
pub fn first_reason(states: &[HookStatus]) -> String {
    states.first().map_or("no hook is known", |status| &status.reason).to_owned()
}

/// Loads only the two system call hooks, to measure their cost.
pub fn load_calls(ebpf: &mut Ebpf, btf: &Btf) -> Result<(), TraceError> {
    let (enter, exit) = call_pair();
    for hook in [&enter, &exit] {
        match ebpf.program_mut(&hook.program) {
            Some(Program::RawTracePoint(program)) => program.load(),
            Some(Program::BtfTracePoint(program)) => program.load(hook.at, btf),
            _ => return Err(TraceError::NoProgram),
        }
        .map_err(|error| refused(&error))?;
    }
    Ok(())
}

/// Attaches the two loaded system call hooks while `during` runs.
pub fn with_calls<T>(ebpf: &mut Ebpf, during: impl FnOnce() -> T) -> Result<T, TraceError> {
    let (enter, exit) = call_pair();
    let tell = |error: aya::programs::ProgramError| refused(&error);
    let mut links: Vec<FdLink> = Vec::new();
    for hook in [&enter, &exit] {
        links.push(match ebpf.program_mut(&hook.program) {
            Some(Program::RawTracePoint(program)) => {
                let link = program.attach(hook.at).map_err(tell)?;
                program.take_link(link).map_err(tell)?.into()
            }
            Some(Program::BtfTracePoint(program)) => {
                let link = program.attach().map_err(tell)?;
                program.take_link(link).map_err(tell)?.into()
            }
            _ => return Err(TraceError::NoProgram),
        });
    }
    let done = during();
    drop(links);
    Ok(done)
}

/// Attaches a typed tracepoint, given as its name, program and what it serves; returns its status.
pub fn attach_tracepoint(
    ebpf: &mut Ebpf,
    btf: &Btf,
    (at, program, serves): (&'static str, &str, &'static str),
) -> HookStatus {
    let hook = single(Place::Plain, at, program, vec![serves], When::Always);
    let outcome = attach_one(ebpf, btf, &hook, Wanted::default());
    status(&hook, "tp_btf", &outcome)
}

fn attach_pair(
    ebpf: &mut Ebpf,
    btf: &Btf,
    [begin, end]: [&Hook; 2],
    wanted: Wanted,
    status: &dyn Fn(&Hook, &Result<(), TraceError>) -> HookStatus,
) -> [HookStatus; 2] {
    // The end first: an end without a begin is ignored, but a begin without an end is not.
    let end_outcome = attach_one(ebpf, btf, end, wanted);
    let begin_outcome = match &end_outcome {
        Ok(()) => attach_one(ebpf, btf, begin, wanted),
        Err(why) => Err(why.clone()),
    };
    let end_outcome = end_outcome.and_then(|()| begin_outcome.clone());
    [status(begin, &begin_outcome), status(end, &end_outcome)]
}

fn attach_one(ebpf: &mut Ebpf, btf: &Btf, hook: &Hook, wanted: Wanted) -> Result<(), TraceError> {
    let program = ebpf.program_mut(&hook.program).ok_or(match hook.place {
        Place::Entry | Place::Exit => TraceError::NoFunctionHooks,
        _ => TraceError::NoProgram,
    })?;
    let tell = |error: aya::programs::ProgramError| refused(&error);
    match hook.place {
        Place::Plain => match program {
            Program::RawTracePoint(program) => {
                program.load().map_err(tell)?;
                program.attach(hook.at).map_err(tell)?;
            }
            Program::BtfTracePoint(program) => {
                program.load(hook.at, btf).map_err(tell)?;
                program.attach().map_err(tell)?;
            }
            other => return Err(TraceError::OtherProgram { found: format!("{:?}", other.prog_type()) }),
        },
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
        Place::CpuClock => {
            attach_software(program, SoftwareEvent::CpuClock, SamplePolicy::Frequency(u64::from(wanted.hz)))?;
        }
        Place::FaultCount => {
            attach_software(program, SoftwareEvent::PageFaultsMaj, SamplePolicy::Period(1))?;
            attach_software(program, SoftwareEvent::PageFaultsMin, SamplePolicy::Period(1))?;
        }
    }
    Ok(())
}

/// Attaches per CPU rather than per thread: a per-thread clock would have to be armed at each context switch.
fn attach_software(program: &mut Program, event: SoftwareEvent, policy: SamplePolicy) -> Result<(), TraceError> {
    let program: &mut PerfEvent = program.try_into().map_err(|error: aya::programs::ProgramError| refused(&error))?;
    // A program that serves two events is loaded for the first one.
    if program.fd().is_err() {
        program.load().map_err(|error| refused(&error))?;
    }
    for cpu in online_cpus()? {
        let config = PerfEventConfig::Software(event);
        let scope = PerfEventScope::AllProcessesOneCpu { cpu };
        program.attach(config, scope, policy, false).map_err(|error| refused(&error))?;
    }
    Ok(())
}

/// Formatted tracepoints are looked up in tracefs. If tracefs is not mounted, mounts it in a private mount namespace of
/// the attaching thread, since a tool that only observes must not change the machine.
fn with_tracefs<T: Send>(attach: impl FnOnce() -> Result<T, TraceError> + Send) -> Result<T, TraceError> {
    const TRACEFS: &str = "/sys/kernel/tracing";
    if std::path::Path::new(TRACEFS).join("events").exists() {
        return attach();
    }
    std::thread::scope(|scope| {
        let outcome = scope.spawn(|| {
            // SAFETY: only this thread, which ends with this closure, leaves the mount namespace.
            if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
                return Err(TraceError::NoTracefs { why: std::io::Error::last_os_error().to_string() });
            }
            let no_tracefs = |error: rustix::io::Errno| TraceError::NoTracefs { why: error.to_string() };
            let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
            mount_change("/", private).map_err(no_tracefs)?;
            mount("nodev", TRACEFS, "tracefs", MountFlags::empty(), None).map_err(no_tracefs)?;
            attach()
        });
        outcome.join().unwrap_or(Err(TraceError::Panicked))
    })
}

fn status(hook: &Hook, tracepoints: &str, outcome: &Result<(), TraceError>) -> HookStatus {
    let prefix = match hook.place {
        Place::Plain => tracepoints,
        Place::Formatted(category) => category,
        Place::Entry => "fentry",
        Place::Exit => "fexit",
        Place::CpuClock | Place::FaultCount => "perf_event",
    };
    let working = if hook.place == Place::CpuClock { HookState::Sampled } else { HookState::Exact };
    let serves = hook.serves.iter().map(|&name| name.to_owned()).collect();
    let (state, reason) = match outcome {
        Ok(()) if working == HookState::Sampled => (working, "sampled by design".to_owned()),
        Ok(()) => (working, String::new()),
        Err(why) => (HookState::Unavailable, why.to_string()),
    };
    HookStatus::new(format!("{prefix}/{}", hook.at), serves, state, reason)
}

const NO_SUCH: &str = "this kernel has no such tracepoint or function";

/// The CPUs on which perf events can be opened.
pub(super) fn online_cpus() -> Result<Vec<u32>, TraceError> {
    aya::util::online_cpus().map_err(|(what, error)| TraceError::NoCpus { why: format!("{what}: {error}") })
}

/// The error for a refusal by the kernel.
pub fn refused(error: &dyn std::error::Error) -> TraceError {
    if not_privileged(&chain(error)) { TraceError::NotPrivileged } else { TraceError::Refused(reason(error)) }
}

fn not_permitted(text: &str) -> bool {
    text.contains("os error 1)")
}

fn not_privileged(text: &str) -> bool {
    not_permitted(text) && !rustix::process::geteuid().is_root()
}

/// The messages of an error and its sources.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = cause.source();
    }
    text
}

/// The whole chain of an error in one line of at most 200 characters, without the verifier's log.
pub fn reason(error: &dyn std::error::Error) -> String {
    let text = chain(error);
    // An unknown typed tracepoint fails by its type's name; a raw one fails when it is attached.
    let no_tracepoint = text.contains("raw_tracepoint_open") && text.contains("os error 2)");
    if text.contains("unknown BTF type") || no_tracepoint {
        return NO_SUCH.to_owned();
    }
    // The rest is the verifier's log, which is empty if the kernel refused outright.
    let line = text.lines().next().unwrap_or_default();
    let line = line.split("Verifier output").next().unwrap_or_default().trim_end_matches(['.', ' ', ':']);
    let line: String = printable::without_error_numbers(line).chars().take(200).collect();
    if not_privileged(&text) {
        return TraceError::NotPrivileged.to_string();
    }
    if not_permitted(&text) {
        return format!("{line}: the kernel's policy forbids it (lockdown, or a container without CAP_BPF)");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::{NO_SUCH, most_telling};
    use flatwater_recording::{HookState, HookStatus};

    fn pair(name: &str, state: HookState, reason: &str) -> [HookStatus; 2] {
        let status = HookStatus::new(format!("fentry/{name}"), vec!["page-allocation".to_owned()], state, reason);
        [status.clone(), status]
    }

    #[test]
    fn the_status_is_of_the_function_name_that_this_kernel_has() {
        let named = |tried: Vec<[HookStatus; 2]>| most_telling(tried).expect("a name")[0].hook.clone();
        let old = || pair("__alloc_pages_nodemask", HookState::Unavailable, NO_SUCH);
        let refused = || pair("__alloc_frozen_pages_noprof", HookState::Unavailable, "not permitted");
        assert_eq!(named(vec![old(), refused()]), "fentry/__alloc_frozen_pages_noprof");
        assert_eq!(named(vec![refused(), pair("__alloc_pages", HookState::Exact, ""), old()]), "fentry/__alloc_pages");
        assert_eq!(named(vec![old()]), "fentry/__alloc_pages_nodemask");
        assert!(most_telling(Vec::new()).is_none());
    }
}
