//! Measures on this machine what the system call hooks cost every program while they are attached.

use std::hint::black_box;

use super::calls::CallTables;
use super::error::TraceError;
use super::hooks;
use super::object::{self, Constants};
use super::variant;

/// Rounds with and without hooks alternate, so that a disturbance affects both.
const ROUNDS: usize = 7;
const CALLS_PER_ROUND: u32 = 20_000;

/// CPU time per system call of a thread that is not traced, ns, each from the quietest round: other programs can only
/// add time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HookCost {
    pub without_ns: u64,
    pub with_ns: u64,
    pub added_ns: u64,
    /// Largest minus smallest difference of a round: how noisy the machine was during the measurement.
    pub spread_ns: u64,
}

/// Times a cheap system call with and without the two hooks. Takes about a second.
pub fn measure_hook_cost() -> Result<HookCost, TraceError> {
    let btf = object::kernel_types()?;
    // Loaded once, because loading takes longer than all rounds together.
    let constants =
        Constants { own_tgid: 0, threshold_ns: u64::MAX, target_cgroup: 0, target_hierarchy: 0, profile: false };
    let (mut ebpf, ..) = variant::first_accepted(&object::without(), |variant| {
        let mut ebpf = object::load(variant, &btf, constants, &CallTables::of_all())?;
        hooks::load_calls(&mut ebpf, &btf)?;
        hooks::with_calls(&mut ebpf, || ())?;
        Ok(ebpf)
    })?;
    drop(btf);
    let mut without = Vec::new();
    let mut with = Vec::new();
    let mut added: Vec<i64> = Vec::new();
    for _ in 0..ROUNDS {
        let plain = call_ns();
        // Without a target: the cost for programs that are not traced.
        let hooked = hooks::with_calls(&mut ebpf, call_ns)?;
        without.push(plain);
        with.push(hooked);
        added.push(hooked as i64 - plain as i64);
    }
    let least = |values: &[u64]| values.iter().copied().min().unwrap_or(0);
    let (without_ns, with_ns) = (least(&without), least(&with));
    let spread = added.iter().max().copied().unwrap_or(0) - added.iter().min().copied().unwrap_or(0);
    Ok(HookCost { without_ns, with_ns, added_ns: with_ns.saturating_sub(without_ns), spread_ns: spread as u64 })
}

fn call_ns() -> u64 {
    let start = cpu_ns();
    for _ in 0..CALLS_PER_ROUND {
        black_box(rustix::process::getppid());
    }
    cpu_ns().saturating_sub(start) / u64::from(CALLS_PER_ROUND)
}

/// CPU time of this thread.
fn cpu_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    (now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64)
}
