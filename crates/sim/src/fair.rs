//! Whether a thread that is woken preempts who has its CPU.
//!
//! Models: kernel/sched/fair.c of 6.1 (CFS) and of 6.12 (EEVDF), for threads of one weight: virtual runtime by CPU, the credit of a
//! sleeper, wakeup_gran, the slice that a waker keeps his CPU for. It decides for kswapd alone, whose wakers would outrun it or not:
//! where it has had less of the CPU than they, it runs at once, else when they sleep. Other threads have CPUs in the order in which they
//! ask (`cpu`).

use super::Machine;
use super::constant::constants;
use super::cpu::Cpus;
use super::kernel::Scheduler;

constants! {
    const LATENCY_NS: u64 = kernel(6_000_000, "kernel/sched/fair.c", "sysctl_sched_latency", "6.1");
    const WAKEUP_GRANULARITY_NS: u64 = kernel(1_000_000, "kernel/sched/fair.c", "sysctl_sched_wakeup_granularity", "6.1");
    const BASE_SLICE_NS: u64 = kernel(700_000, "kernel/sched/fair.c", "sysctl_sched_base_slice", "6.12");
    /// CPUs that make slices longer, by the logarithm of their number.
    const SCALING_CPUS_MAX: u32 = kernel(8, "kernel/sched/core.c", "get_update_sysctl_factor", "6.1");
}

/// A thread's part of struct sched_entity.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fair {
    /// On its CPU's clock.
    pub vruntime_ns: u64,
    cpu: u16,
    /// CPU time since it slept last.
    pub ran_ns: u64,
    /// It has CPUs by its virtual runtime (kswapd).
    pub yields: bool,
}

impl Fair {
    pub fn ran(&mut self, ns: u64) {
        (self.vruntime_ns, self.ran_ns) = (self.vruntime_ns + ns, self.ran_ns + ns);
    }

    pub fn slept(&mut self) {
        self.ran_ns = 0;
    }

    /// migrate_task_rq_fair, place_entity: where it stands on this CPU.
    fn placed(&self, cpu: u16, cpus: &Cpus, credit_ns: u64) -> u64 {
        let min_ns = cpus.min_vruntime_ns(cpu);
        let there = if cpu == self.cpu {
            self.vruntime_ns
        } else {
            (self.vruntime_ns + min_ns).saturating_sub(cpus.min_vruntime_ns(self.cpu))
        };
        there.max(min_ns.saturating_sub(credit_ns))
    }

    /// What has had more of this CPU than others lets them go on.
    pub fn lets_go_on_ns(&self, m: &Machine, cpu: u16) -> Option<u64> {
        let cpus = m.cpus.borrow();
        let is_ahead = self.yields && self.placed(cpu, &cpus, 0) > cpus.min_vruntime_ns(cpu);
        is_ahead.then(|| slice_ns(m.profile.scheduler, &cpus, m.profile.jiffy_ns()))
    }

    pub fn enqueue(&mut self, cpu: u16, cpus: &Cpus) {
        (self.vruntime_ns, self.cpu) = (self.placed(cpu, cpus, LATENCY_NS.get() * factor(cpus) / 2), cpu);
    }

    /// check_preempt_wakeup: whether it runs at once when it is woken on this CPU by somebody who has run there so far.
    pub fn preempts(&self, rule: Scheduler, (waker, pending_ns): (&Fair, u64), cpu: u16, cpus: &Cpus) -> bool {
        let waker_ns = waker.vruntime_ns + pending_ns;
        let factor = factor(cpus);
        match rule {
            Scheduler::Cfs => {
                let own_ns = self.placed(cpu, cpus, LATENCY_NS.get() * factor / 2);
                waker_ns > own_ns + WAKEUP_GRANULARITY_NS.get() * factor
            }
            // pick_eevdf with RUN_TO_PARITY: a slice is not interrupted; behind it who has had less is eligible.
            Scheduler::Eevdf => {
                let own_ns = self.placed(cpu, cpus, 0);
                waker.ran_ns + pending_ns > BASE_SLICE_NS.get() * factor && waker_ns > own_ns
            }
        }
    }
}

/// get_update_sysctl_factor: SCHED_TUNABLESCALING_LOG.
fn factor(cpus: &Cpus) -> u64 {
    u64::from(1 + (cpus.len() as u32).clamp(1, SCALING_CPUS_MAX.get()).ilog2())
}

/// check_preempt_tick, update_deadline: for how long who has a CPU keeps it from one that waits, in whole ticks.
#[must_use]
pub fn slice_ns(rule: Scheduler, cpus: &Cpus, jiffy_ns: u64) -> u64 {
    let slice = match rule {
        Scheduler::Cfs => LATENCY_NS.get() * factor(cpus) / 2,
        Scheduler::Eevdf => BASE_SLICE_NS.get() * factor(cpus),
    };
    slice.next_multiple_of(jiffy_ns)
}

#[cfg(test)]
mod tests {
    use super::{Fair, slice_ns};
    use crate::cpu::Cpus;
    use crate::kernel::Scheduler::{Cfs, Eevdf};

    const MS: u64 = 1_000_000;

    fn fair(vruntime_ms: u64, ran_ms: u64) -> Fair {
        Fair { vruntime_ns: vruntime_ms * MS, ran_ns: ran_ms * MS, ..Fair::default() }
    }

    /// Two CPUs: a factor of two. wakeup_preempt_entity: more than 2 ms behind, with a sleeper's credit of no more than 6 ms.
    #[test]
    fn who_has_had_less_of_the_cpu_by_two_milliseconds_preempts_his_waker() {
        let mut cpus = Cpus::new(&[0, 0], 10 * MS);
        cpus.note_vruntime(0, 100 * MS);
        let waker = fair(101, 1);
        let preempts = |own_ms: u64, pending_ns: u64| fair(own_ms, 0).preempts(Cfs, (&waker, pending_ns), 0, &cpus);
        assert_eq!([98, 99, 100, 120].map(|own| preempts(own, 0)), [true, false, false, false]);
        assert!(preempts(99, MS / 2), "with what it has worked in this burst");
        assert!(preempts(0, 0), "asleep for long: 94, not 0");
        assert_eq!(slice_ns(Cfs, &cpus, 4 * MS), 8 * MS, "6 ms, at a tick of 4");
    }

    #[test]
    fn a_slice_of_6_12_is_not_interrupted_and_behind_it_who_has_had_less_goes_first() {
        let mut cpus = Cpus::new(&[0, 0], 10 * MS);
        cpus.note_vruntime(0, 100 * MS);
        let preempts = |own_ms: u64, ran_ms: u64| fair(own_ms, 0).preempts(Eevdf, (&fair(101, ran_ms), 0), 0, &cpus);
        assert_eq!([(100, 1), (100, 2), (102, 2)].map(|(own, ran)| preempts(own, ran)), [false, true, false]);
        assert_eq!(slice_ns(Eevdf, &cpus, 4 * MS), 4 * MS);
    }
}
