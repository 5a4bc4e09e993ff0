//! What the system call hooks cost every program of the machine while they are attached, measured on it.

use std::hint::black_box;

use crate::host::clock::monotonic_ns;

use super::calls::CallSets;
use super::hooks;
use super::object::{self, Constants};

/// Rounds with and without, interleaved, so that a slow moment of the machine hits both.
const ROUNDS: usize = 7;
const CALLS_PER_ROUND: u32 = 20_000;

/// Nanoseconds per system call of a thread that is not traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HookCost {
    pub without_ns: u64,
    pub with_ns: u64,
    /// Median of the rounds' differences; 0 if the noise was larger.
    pub added_ns: u64,
    /// Between the smallest and the largest difference.
    pub spread_ns: u64,
}

/// Times a cheap system call with the two hooks attached and not. Takes about a second.
pub fn measure_hook_cost() -> Result<HookCost, String> {
    let mut without = Vec::new();
    let mut with = Vec::new();
    let mut added: Vec<i64> = Vec::new();
    for _ in 0..ROUNDS {
        let plain = call_ns();
        let hooked = hooked_call_ns()?;
        without.push(plain);
        with.push(hooked);
        added.push(hooked as i64 - plain as i64);
    }
    added.sort_unstable();
    let spread = added.last().copied().unwrap_or(0) - added.first().copied().unwrap_or(0);
    Ok(HookCost {
        without_ns: median(&mut without),
        with_ns: median(&mut with),
        added_ns: added.get(added.len() / 2).copied().unwrap_or(0).max(0) as u64,
        spread_ns: spread as u64,
    })
}

/// With both hooks attached and no target: what a bystander pays.
fn hooked_call_ns() -> Result<u64, String> {
    let constants = Constants { own_tgid: 0, threshold_ns: u64::MAX, target_cgroup: 0 };
    let (mut ebpf, btf) = object::load(constants, &CallSets::of_all())?;
    hooks::attach_calls(&mut ebpf, &btf)?;
    let ns = call_ns();
    drop(ebpf);
    Ok(ns)
}

fn call_ns() -> u64 {
    let start = monotonic_ns();
    for _ in 0..CALLS_PER_ROUND {
        black_box(rustix::process::getppid());
    }
    monotonic_ns().saturating_sub(start) / u64::from(CALLS_PER_ROUND)
}

fn median(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}
