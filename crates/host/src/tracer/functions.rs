//! Level 1: hooks on the functions of the timed system calls, so that other system calls are not slowed.
//!
//! One program for all entries and one for all exits are loaded once per function, because the kernel verifies a
//! program for one function.

use aya::programs::links::FdLink;
use aya::programs::{FEntry, FExit, ProgramError};
use aya::{Btf, Ebpf};

use super::calls;
use super::error::TraceError;
use super::hooks::refused;
use super::object::{self, Constants};
use super::variant;
use flatwater_recording::{HookState, HookStatus};

/// Prefix of the kernel's system call functions (arch/*/include/asm/syscall_wrapper.h).
#[cfg(target_arch = "x86_64")]
const PREFIX: &str = "__x64_sys_";
#[cfg(target_arch = "aarch64")]
const PREFIX: &str = "__arm64_sys_";
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const PREFIX: &str = "sys_";

/// A kernel without one of these functions is refused, because users record mainly these calls.
const NEEDED: &[&str] = &["read", "write", "pwrite64", "fsync", "fdatasync"];

/// The function of a system call. Some are named differently from their call, because an older version of the call has
/// the name.
fn function_of(call: &str) -> String {
    let name = match call {
        "stat" => "newstat",
        "lstat" => "newlstat",
        "fstat" => "newfstat",
        "umount2" => "umount",
        "sendfile" => "sendfile64",
        other => other,
    };
    format!("{PREFIX}{name}")
}

fn both(ebpf: &mut Ebpf, btf: &Btf, function: &str) -> Result<[FdLink; 2], ProgramError> {
    // The end first: an end without a begin is ignored, but a begin without an end is not.
    let exit: &mut FExit = ebpf.program_mut("on_call_end").ok_or(ProgramError::NotLoaded)?.try_into()?;
    exit.load(function, btf)?;
    let at_exit = exit.attach().and_then(|link| exit.take_link(link));
    exit.unload()?;
    let at_exit = at_exit?;
    let entry: &mut FEntry = ebpf.program_mut("on_call_begin").ok_or(ProgramError::NotLoaded)?.try_into()?;
    entry.load(function, btf)?;
    let at_entry = entry.attach().and_then(|link| entry.take_link(link));
    entry.unload()?;
    Ok([at_entry?.into(), at_exit.into()])
}

/// Attaches to the functions of all timed calls. Dropping the links detaches and unloads the programs.
pub fn attach(ebpf: &mut Ebpf, btf: &Btf) -> Result<(Vec<FdLink>, HookStatus), TraceError> {
    let (mut links, mut missing) = (Vec::new(), Vec::new());
    let mut attached = 0;
    for call in calls::all() {
        match both(ebpf, btf, &function_of(call.name)) {
            Ok(pair) => {
                attached += 1;
                links.extend(pair);
            }
            Err(why) if NEEDED.contains(&call.name) => return Err(refused(&why)),
            Err(_) => missing.push(call.name),
        }
    }
    let reason = if missing.is_empty() {
        format!("{attached} system calls")
    } else {
        format!("{attached} system calls; this kernel has no function for {}", missing.join(", "))
    };
    let hook = format!("fentry/{PREFIX}*");
    Ok((links, HookStatus::new(hook, vec!["calls".to_owned()], HookState::Exact, reason)))
}

/// Checks whether this kernel allows these hooks, by attaching both programs briefly to one function.
pub fn allowed() -> Result<(), TraceError> {
    let btf = object::kernel_types()?;
    let constants =
        Constants { own_tgid: 0, threshold_ns: u64::MAX, target_cgroup: 0, target_hierarchy: 0, profile: false };
    variant::first_accepted(&object::without(), |variant| {
        let mut ebpf = object::load(variant, &btf, constants, &calls::CallTables::of_all())?;
        both(&mut ebpf, &btf, &function_of("fdatasync")).map(drop).map_err(|why| refused(&why))
    })
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::{NEEDED, function_of};
    use crate::tracer::calls;

    /// Compares with the function names of the running kernel.
    #[test]
    fn every_timed_call_has_a_function_in_this_kernel() {
        let Ok(symbols) = std::fs::read_to_string("/proc/kallsyms") else { panic!("/proc/kallsyms cannot be read") };
        let known: std::collections::HashSet<&str> =
            symbols.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
        let missing: Vec<&str> =
            calls::all().map(|call| call.name).filter(|name| !known.contains(function_of(name).as_str())).collect();
        assert_eq!(missing, [""; 0], "a call with a wrong name would not be traced");
        assert!(NEEDED.iter().all(|name| calls::all().any(|call| call.name == *name)));
    }
}
