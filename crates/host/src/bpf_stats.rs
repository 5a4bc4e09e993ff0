//! Measures the cost of flatwater's hooks: the CPU time of each BPF program, as the kernel counts it on request.
//!
//! Counting adds two clock readings to each run of every BPF program on the machine (kernel/bpf/trampoline.c and
//! include/linux/filter.h: `bpf_stats_enabled_key`), so it is enabled only for short intervals. The time that the
//! kernel counts for an empty program is subtracted, because it is spent only while counting is enabled.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use aya::EbpfLoader;
use aya::programs::{RawTracePoint, RawTracePointRunOptions, TestRun, loaded_programs};
use aya::sys::{Stats, enable_stats};

use super::bpf_object::{BpfObject, bpf_object};
use super::clock::monotonic_ns;

/// The empty program; no bytes if this build had no clang.
const EMPTY: BpfObject = bpf_object!("empty.any");
/// The empty program runs in this many batches of `RUNS`. The median batch counts, since an interrupt can spoil one.
const BATCHES: usize = 9;
const RUNS: u64 = 200;

/// The BPF programs that one of flatwater's tracers has loaded.
#[derive(Debug, Default)]
pub struct OwnPrograms {
    ids: BTreeSet<u32>,
    /// What counting adds to each run, ns. 0 if that could not be measured, which makes flatwater's cost look larger.
    counting_ns: f64,
    counting: Option<Counting>,
}

#[derive(Debug)]
struct Counting {
    since_ns: u64,
    runs: Runs,
    /// The kernel counts while this descriptor is open.
    _asked: OwnedFd,
}

/// The ids of all BPF programs loaded now; empty if this process may not list them.
#[must_use]
pub fn loaded_ids() -> BTreeSet<u32> {
    loaded_programs().filter_map(Result::ok).map(|info| info.id()).collect()
}

/// Number and total time of program runs, as the kernel counts them.
#[derive(Clone, Copy, Debug, Default)]
struct Runs {
    count: u64,
    ns: u64,
}

impl Runs {
    fn of(program: &aya::programs::ProgramInfo) -> Runs {
        Runs { count: program.run_count(), ns: u64::try_from(program.run_time().as_nanos()).unwrap_or(u64::MAX) }
    }

    fn since(self, before: Runs) -> Runs {
        Runs { count: self.count.saturating_sub(before.count), ns: self.ns.saturating_sub(before.ns) }
    }
}

/// The time that the kernel counts for one run of an empty program, ns. `None` without an object, without
/// CAP_SYS_ADMIN, and before Linux 5.10, which cannot run a tracepoint program on request (net/bpf/test_run.c:
/// bpf_prog_test_run_raw_tp).
#[must_use]
pub fn counting_ns() -> Option<f64> {
    let mut object = EbpfLoader::new().load(&EMPTY.elf()).ok()?;
    let program: &mut RawTracePoint = object.program_mut("empty")?.try_into().ok()?;
    program.load().ok()?;
    let _asked = enable_stats(Stats::RunTime).ok()?;
    let mut batches = Vec::with_capacity(BATCHES);
    let mut before = Runs::of(&program.info().ok()?);
    for _ in 0..BATCHES {
        for _ in 0..RUNS {
            program.test_run(RawTracePointRunOptions::default()).ok()?;
        }
        let now = Runs::of(&program.info().ok()?);
        let batch = now.since(before);
        batches.push(batch.ns as f64 / batch.count.max(RUNS) as f64);
        before = now;
    }
    batches.sort_by(f64::total_cmp);
    batches.get(BATCHES / 2).copied()
}

impl OwnPrograms {
    /// The programs loaded since `before` was listed.
    #[must_use]
    pub fn since(before: &BTreeSet<u32>) -> OwnPrograms {
        let ids = loaded_ids().difference(before).copied().collect();
        OwnPrograms { ids, counting_ns: counting_ns().unwrap_or(0.0), counting: None }
    }

    /// Adds the programs loaded since `before` was listed.
    pub fn add_since(&mut self, before: &BTreeSet<u32>) {
        self.ids.extend(loaded_ids().difference(before));
    }

    /// Starts counting. Needs Linux 5.8 and CAP_SYS_ADMIN; without them `end` returns `None`.
    pub fn begin(&mut self) {
        let Ok(asked) = enable_stats(Stats::RunTime) else { return };
        self.counting = Some(Counting { since_ns: monotonic_ns(), runs: self.runs(), _asked: asked });
    }

    /// Stops counting. Returns the programs' CPU time since `begin` as a share of one core, less the cost of counting.
    pub fn end(&mut self) -> Option<f64> {
        let counting = self.counting.take()?;
        let wall_ns = monotonic_ns().saturating_sub(counting.since_ns).max(1);
        let runs = self.runs().since(counting.runs);
        let own_ns = runs.ns as f64 - runs.count as f64 * self.counting_ns;
        Some(own_ns.max(0.0) / wall_ns as f64)
    }

    fn runs(&self) -> Runs {
        let ours = loaded_programs().filter_map(Result::ok).filter(|info| self.ids.contains(&info.id()));
        ours.map(|info| Runs::of(&info)).fold(Runs::default(), |all, one| Runs {
            count: all.count.saturating_add(one.count),
            ns: all.ns.saturating_add(one.ns),
        })
    }
}

#[cfg(test)]
mod tests {
    use needs::{Need, skip};

    use super::counting_ns;

    #[test]
    fn counting_a_program_that_does_nothing_is_not_free() {
        if !rustix::process::geteuid().is_root() || crate::tracer::measure_hook_cost().is_err() {
            return skip(Need::Bpf, "counting_a_program_that_does_nothing_is_not_free", "no hook can be attached");
        }
        let counting_ns = counting_ns().expect("Linux 5.10 and later run a program on request");
        println!("counting adds {counting_ns:.0} ns to a run");
        // Two clock readings: some 50 ns on our machine, more if the clock source is slow, never 0.
        assert!((1.0..20_000.0).contains(&counting_ns), "{counting_ns}");
    }
}
