//! Level 1: hooks at the functions of the system calls that are timed, so that no other system call pays.
//!
//! One program for all beginnings and one for all ends is loaded again for each function: the kernel checks a program against
//! the one function that it is for.

use aya::programs::links::FdLink;
use aya::programs::{FEntry, FExit, ProgramError};
use aya::{Btf, Ebpf};

use super::calls;
use super::error::TraceError;
use super::hooks::refused;
use super::object::{self, Constants};
use super::variant;
use flatwater_recording::{HookState, HookStatus};

/// How the kernel's functions of system calls begin (arch/*/include/asm/syscall_wrapper.h).
#[cfg(target_arch = "x86_64")]
const PREFIX: &str = "__x64_sys_";
#[cfg(target_arch = "aarch64")]
const PREFIX: &str = "__arm64_sys_";
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const PREFIX: &str = "sys_";

/// Without these a recording would miss what people record for.
const NEEDED: &[&str] = &["read", "write", "pwrite64", "fsync", "fdatasync"];

/// The function of a system call: some have another name than their call, for the sake of older versions of it.
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
    // The end first: an end without a begin is ignored, a begin without an end is not.
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

/// Attaches to the functions of all calls that are timed. The links hold the programs: they are gone with them.
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

/// Whether this kernel allows it: both programs are attached to one function for an instant.
pub fn allowed() -> Result<(), TraceError> {
    let btf = object::kernel_types()?;
    let constants = Constants { own_tgid: 0, threshold_ns: u64::MAX, target_cgroup: 0, target_hierarchy: 0 };
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

    /// Where the running kernel lists its functions, each call that is timed has one of the name that we ask for.
    #[test]
    fn every_timed_call_has_a_function_in_this_kernel() {
        let Ok(symbols) = std::fs::read_to_string("/proc/kallsyms") else { panic!("/proc/kallsyms cannot be read") };
        let known: std::collections::HashSet<&str> =
            symbols.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
        let missing: Vec<&str> =
            calls::all().map(|call| call.name).filter(|name| !known.contains(function_of(name).as_str())).collect();
        assert_eq!(missing, [""; 0], "a wrong name would leave the call unseen");
        assert!(NEEDED.iter().all(|name| calls::all().any(|call| call.name == *name)));
    }
}
