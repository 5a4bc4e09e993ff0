//! Who of the threads that want a CPU has it next, and whether a thread that is woken preempts who has it.
//!
//! Models: kernel/sched/fair.c of 6.1 (CFS) and of 6.12 (EEVDF), for threads of one weight: virtual runtime by CPU, the credit or the
//! lag of a sleeper, wakeup_gran, slices that end with a tick. On machines whose CPUs an emulator executes in turn; elsewhere threads
//! have CPUs in the order in which they ask (`cpu`). Leaves out: load balancing but that an idle CPU takes who waits for another one, when it
//! becomes idle and at a tick; threads that are dequeued later than they sleep (their negative lag is forgotten); buddies.

use super::clock::TaskId;
use super::constant::constants;
use super::cpu::{Cpus, Waiter};
use super::kernel::Scheduler;

constants! {
    const LATENCY_NS: u64 = kernel(6_000_000, "kernel/sched/fair.c", "sysctl_sched_latency", "6.1");
    const MIN_GRANULARITY_NS: u64 = kernel(750_000, "kernel/sched/fair.c", "sysctl_sched_min_granularity", "6.1");
    /// Beyond so many threads on a CPU each has the least time, and the period is longer.
    const NR_LATENCY: u64 = kernel(8, "kernel/sched/fair.c", "sched_nr_latency", "6.1");
    const WAKEUP_GRANULARITY_NS: u64 = kernel(1_000_000, "kernel/sched/fair.c", "sysctl_sched_wakeup_granularity", "6.1");
    const BASE_SLICE_NS: u64 = kernel(700_000, "kernel/sched/fair.c", "sysctl_sched_base_slice", "6.12");
    /// CPUs that make slices longer, by the logarithm of their number.
    const SCALING_CPUS_MAX: u32 = kernel(8, "kernel/sched/core.c", "get_update_sysctl_factor", "6.1");
}

/// How CPUs are shared, and how often that is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Sharing {
    pub rule: Scheduler,
    pub tick_ns: u64,
}

/// A thread's part of struct sched_entity.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fair {
    /// On its CPU's clock, of which it is so far behind the mean when it sleeps.
    vruntime_ns: u64,
    lag_ns: u64,
    /// Until which virtual runtime its slice lasts (EEVDF).
    deadline_ns: u64,
    cpu: u16,
    /// CPU time since it slept last.
    ran_ns: u64,
    /// When it had a CPU last; it has slept if it asks for one later.
    left_ns: u64,
    /// It was woken, and nobody has looked yet whether it preempts.
    woken: bool,
}

/// A burst that ends now. A guest's clock goes on while another CPU of its is executed.
#[derive(Clone, Copy, Debug)]
pub struct Burst {
    pub cpu: u16,
    pub now_ns: u64,
    pub ran_ns: u64,
}

impl Fair {
    /// A burst is over.
    pub fn ran(&mut self, ns: u64, now_ns: u64) {
        (self.vruntime_ns, self.ran_ns, self.left_ns) = (self.vruntime_ns + ns, self.ran_ns + ns, now_ns);
    }

    pub fn vruntime_ns(&self) -> u64 {
        self.vruntime_ns
    }

    /// It waits for this CPU.
    pub fn is_on(&self, cpu: u16) -> bool {
        self.cpu == cpu
    }

    pub fn is_woken(&self) -> bool {
        self.woken
    }

    /// Whether it preempts by having been woken has been decided.
    pub fn waits(&mut self) {
        self.woken = false;
    }

    /// migrate_task_rq_fair: where it stands on this CPU's clock.
    fn on(&self, cpu: u16, cpus: &Cpus) -> u64 {
        if cpu == self.cpu {
            return self.vruntime_ns;
        }
        (self.vruntime_ns + cpus.min_vruntime_ns(cpu)).saturating_sub(cpus.min_vruntime_ns(self.cpu))
    }

    pub fn migrate(&mut self, cpu: u16, cpus: &Cpus) {
        let moved_ns = self.on(cpu, cpus);
        self.deadline_ns = (self.deadline_ns + moved_ns).saturating_sub(self.vruntime_ns);
        (self.vruntime_ns, self.cpu) = (moved_ns, cpu);
    }

    /// place_entity: a thread that was woken is to run on this CPU, whose threads have so much virtual runtime each.
    fn place(&mut self, rule: Scheduler, cpus: &Cpus, runnable: &[u64]) {
        let (min_ns, factor) = (cpus.min_vruntime_ns(self.cpu), factor(cpus));
        match rule {
            Scheduler::Cfs => {
                let credit_ns = LATENCY_NS.get() * factor / 2;
                self.vruntime_ns = self.vruntime_ns.max(min_ns.saturating_sub(credit_ns));
            }
            // Its own coming moves the mean, so that it is placed further behind.
            Scheduler::Eevdf => {
                let others = runnable.len() as u64;
                let lag_ns = self.lag_ns * (others + 1) / others.max(1);
                self.vruntime_ns = mean(runnable).unwrap_or(min_ns).saturating_sub(lag_ns);
                self.deadline_ns = self.vruntime_ns + BASE_SLICE_NS.get() * factor;
            }
        }
    }

    /// check_preempt_wakeup: whether it runs at once when it is woken on this CPU by somebody who has run there so far.
    pub fn preempts(&self, (waker, pending_ns): (&Fair, u64), cpu: u16, cpus: &Cpus) -> bool {
        let Some(sharing) = cpus.sharing else { return true };
        let waker_ns = waker.vruntime_ns + pending_ns;
        let mut own = *self;
        own.migrate(cpu, cpus);
        let mut runnable = cpus.waiting_on(cpu);
        runnable.push(waker_ns);
        own.place(sharing.rule, cpus, &runnable);
        match sharing.rule {
            Scheduler::Cfs => waker_ns > own.vruntime_ns + WAKEUP_GRANULARITY_NS.get() * factor(cpus),
            Scheduler::Eevdf => {
                runnable.push(own.vruntime_ns);
                let mean_ns = mean(&runnable).unwrap_or(0);
                let mut runs = Fair { vruntime_ns: waker_ns, ..*waker };
                runs.gives_way(mean_ns, BASE_SLICE_NS.get() * factor(cpus), &own)
            }
        }
    }

    /// pick_eevdf with RUN_TO_PARITY: who has a CPU keeps it until his slice is over or he is ahead of the mean; then the one that is
    /// not, with the earliest deadline, has it.
    fn gives_way(&mut self, mean_ns: u64, slice_ns: u64, best: &Fair) -> bool {
        let (is_over, is_ahead) = (self.vruntime_ns >= self.deadline_ns, self.vruntime_ns > mean_ns);
        if is_over {
            self.deadline_ns = self.vruntime_ns + slice_ns;
        }
        let is_eligible = best.vruntime_ns <= mean_ns;
        is_eligible && (is_ahead || (is_over && best.deadline_ns < self.deadline_ns))
    }
}

impl Cpus {
    /// A thread asks for a CPU: where it stands, if it has slept.
    pub fn enqueue(&self, fair: &mut Fair, cpu: u16, now_ns: u64) {
        let Some(sharing) = self.sharing else { return };
        fair.migrate(cpu, self);
        if fair.left_ns != now_ns {
            (fair.ran_ns, fair.woken) = (0, true);
            let mut runnable = self.waiting_on(cpu);
            runnable.extend(self.running_vruntime_ns(cpu));
            fair.place(sharing.rule, self, &runnable);
        }
    }

    /// Virtual runtimes of those that wait for this CPU.
    fn waiting_on(&self, cpu: u16) -> Vec<u64> {
        self.waiting.iter().filter(|waiter| waiter.fair.is_on(cpu)).map(|waiter| waiter.fair.vruntime_ns).collect()
    }

    /// Who has it next after this burst of a thread, and whether that is now: else once the thread sleeps.
    pub fn next(&mut self, burst: Burst, task: TaskId, fair: &mut Fair) -> Option<(usize, bool)> {
        let Burst { cpu, ran_ns, .. } = burst;
        let Some(sharing) = self.sharing else {
            let first = self.waiting.iter().position(|waiter| self.fits(cpu, waiter.pinned, waiter.node));
            return first.map(|place| (place, true));
        };
        self.note_vruntime(cpu, fair.vruntime_ns);
        let stint_ns = self.note_stint(cpu, task, ran_ns).min(fair.ran_ns);
        let ticked_ns = sharing.since_tick_ns(burst).map(|since_ns| stint_ns.saturating_sub(since_ns));
        let mut all = self.waiting_on(cpu);
        let count = all.len().max(1) as u64 + 1;
        all.push(fair.vruntime_ns);
        let mean_ns = mean(&all).unwrap_or(0);
        fair.lag_ns = mean_ns.saturating_sub(fair.vruntime_ns).min(sharing.lag_ns_max(self));
        let own = self.waiting.iter().enumerate().filter(|(_, waiter)| waiter.fair.is_on(cpu));
        let key = |waiter: &Waiter| match sharing.rule {
            Scheduler::Cfs => (!waiter.preempts, false, waiter.fair.vruntime_ns),
            Scheduler::Eevdf => (!waiter.preempts, waiter.fair.vruntime_ns > mean_ns, waiter.fair.deadline_ns),
        };
        let woken = own.clone().any(|(_, waiter)| waiter.fair.woken);
        let Some((place, best)) = own.min_by_key(|(_, waiter)| key(waiter)) else {
            // newidle_balance: one of another CPU, if this one's thread sleeps now.
            let other = self.waiting.iter().position(|waiter| self.fits(cpu, waiter.pinned, waiter.node));
            return other.map(|place| (place, false));
        };
        let (preempts, best) = (best.preempts, best.fair);
        let takes = preempts
            || match sharing.rule {
                Scheduler::Cfs => self.is_due(ticked_ns, count, (cpu, fair), &best),
                // A tick and a wakeup see whether a slice is over or its thread ahead of the mean.
                Scheduler::Eevdf => {
                    (ticked_ns.is_some() || woken) && fair.gives_way(mean_ns, BASE_SLICE_NS.get() * factor(self), &best)
                }
            };
        self.waiting.iter_mut().filter(|waiter| waiter.fair.is_on(cpu)).for_each(|waiter| waiter.fair.woken = false);
        Some((place, takes))
    }

    /// On which CPU a thread may run next, if it is idle: this one, once its thread sleeps, or one that a tick has balance (nohz_balancer_kick).
    pub fn offer(&self, burst: Burst, waiter: &Waiter) -> u16 {
        let ticked = self.sharing.is_some_and(|sharing| sharing.since_tick_ns(burst).is_some());
        let other = if ticked && waiter.fair.is_on(burst.cpu) { self.idle_but(burst.cpu, waiter) } else { None };
        other.unwrap_or(burst.cpu)
    }

    /// check_preempt_wakeup and check_preempt_tick of CFS, the latter where a tick came when the thread had run for so long.
    fn is_due(&mut self, ticked_ns: Option<u64>, threads: u64, (cpu, fair): (u16, &Fair), best: &Fair) -> bool {
        let (factor, ideal_ns) = (factor(self), ideal_ns(self, threads));
        let behind_ns = fair.vruntime_ns.saturating_sub(best.vruntime_ns);
        if best.woken && behind_ns > WAKEUP_GRANULARITY_NS.get() * factor {
            return true;
        }
        let Some(ran_ns) = ticked_ns else { return false };
        if ran_ns > ideal_ns && behind_ns == 0 {
            // It is picked again, and its slice begins anew.
            self.begin_stint(cpu);
        }
        (ran_ns > ideal_ns && behind_ns > 0) || (ran_ns >= MIN_GRANULARITY_NS.get() * factor && behind_ns > ideal_ns)
    }
}

impl Sharing {
    /// How long before the end of a burst a tick came, if one came in it.
    fn since_tick_ns(self, burst: Burst) -> Option<u64> {
        Some(burst.now_ns % self.tick_ns).filter(|since_ns| *since_ns < burst.ran_ns)
    }

    /// update_entity_lag: limit.
    fn lag_ns_max(self, cpus: &Cpus) -> u64 {
        (2 * BASE_SLICE_NS.get() * factor(cpus)).max(self.tick_ns)
    }
}

/// avg_vruntime, for threads of one weight.
fn mean(all: &[u64]) -> Option<u64> {
    all.iter().sum::<u64>().checked_div(all.len() as u64)
}

/// get_update_sysctl_factor: SCHED_TUNABLESCALING_LOG.
fn factor(cpus: &Cpus) -> u64 {
    u64::from(1 + (cpus.len() as u32).clamp(1, SCALING_CPUS_MAX.get()).ilog2())
}

/// sched_slice, 6.1: for how long each of so many threads has a CPU.
fn ideal_ns(cpus: &Cpus, threads: u64) -> u64 {
    let least_ns = MIN_GRANULARITY_NS.get() * factor(cpus);
    let period_ns = if threads > NR_LATENCY.get() { threads * least_ns } else { LATENCY_NS.get() * factor(cpus) };
    (period_ns / threads).max(least_ns)
}

#[cfg(test)]
mod tests {
    use super::{Burst, Fair, Sharing};
    use crate::cpu::{Cpus, Waiter};
    use crate::kernel::Scheduler::{Cfs, Eevdf};

    const MS: u64 = 1_000_000;

    /// Two CPUs, a tick of 4 ms, and a factor of two.
    fn cpus(rule: crate::kernel::Scheduler) -> Cpus {
        let mut cpus = Cpus::new(&[0, 0], 10 * MS);
        cpus.sharing = Some(Sharing { rule, tick_ns: 4 * MS });
        cpus
    }

    fn fair(vruntime_ms: u64, ran_ms: u64) -> Fair {
        Fair {
            vruntime_ns: vruntime_ms * MS,
            ran_ns: ran_ms * MS,
            deadline_ns: (vruntime_ms + 1) * MS,
            ..Fair::default()
        }
    }

    fn waiter(fair: Fair) -> Waiter {
        Waiter { task: 7, pinned: None, node: None, preempts: false, fair }
    }

    /// wakeup_preempt_entity: more than 2 ms behind, with a sleeper's credit of no more than 6 ms.
    #[test]
    fn who_has_had_less_of_the_cpu_by_two_milliseconds_preempts_his_waker() {
        let mut cpus = cpus(Cfs);
        cpus.note_vruntime(0, 100 * MS);
        let waker = fair(101, 1);
        let preempts = |own_ms: u64, pending_ns: u64| fair(own_ms, 0).preempts((&waker, pending_ns), 0, &cpus);
        assert_eq!([98, 99, 100, 120].map(|own| preempts(own, 0)), [true, false, false, false]);
        assert!(preempts(99, MS / 2), "with what it has worked in this burst");
        assert!(preempts(0, 0), "asleep for long: 94, not 0");
    }

    /// Two threads have 6 ms each (sched_slice), which only a tick looks at.
    #[test]
    fn a_thread_that_has_had_its_slice_gives_way_at_a_tick() {
        let goes_next = |ran_ms: u64, now_ms: u64, waits_at_ms: u64| {
            let mut cpus = cpus(Cfs);
            cpus.waiting.push_back(waiter(fair(waits_at_ms, 0)));
            let burst = Burst { cpu: 0, now_ns: now_ms * MS, ran_ns: ran_ms * MS };
            cpus.next(burst, 1, &mut fair(100, ran_ms))
        };
        assert_eq!(goes_next(7, 40, 95), Some((0, true)), "7 ms at the tick at 40");
        assert_eq!(goes_next(7, 42, 95), Some((0, false)), "5 ms at that tick");
        assert_eq!(goes_next(7, 40, 101), Some((0, false)), "who waits has had more");
        assert_eq!(goes_next(2, 40, 93), Some((0, true)), "7 ms behind, after the least of 1.5 ms");
    }

    #[test]
    fn a_slice_of_6_12_is_kept_until_it_is_over_or_its_thread_ahead_of_the_mean() {
        let mut runs = fair(100, 1);
        assert!(!runs.gives_way(100 * MS, 14 * MS / 10, &fair(100, 0)), "not over, not ahead");
        assert!(runs.gives_way(99 * MS, 14 * MS / 10, &fair(98, 0)), "ahead");
        assert!(!runs.gives_way(99 * MS, 14 * MS / 10, &fair(102, 0)), "who waits is ahead too");
        let mut over = Fair { deadline_ns: 99 * MS, ..fair(100, 2) };
        assert!(over.gives_way(100 * MS, 14 * MS / 10, &fair(100, 0)));
        assert_eq!(over.deadline_ns, 101_400_000, "a new slice");
    }

    /// Its waker, at 110 ms, is ahead of the mean of both, 109.5 ms: pick_eevdf does not look at his deadline, which is the earlier one.
    #[test]
    fn who_is_ahead_of_the_mean_is_preempted_by_whom_he_wakes() {
        let cpus = cpus(Eevdf);
        let waker = Fair { deadline_ns: 110_200_000, ..fair(110, 1) };
        let woken = |lag_ns: u64| Fair { lag_ns, ..fair(50, 0) }.preempts((&waker, 0), 0, &cpus);
        assert_eq!((woken(500_000), woken(0)), (true, false));
    }

    /// A sleeper that was 2 ms behind the mean of one other thread is 4 ms behind it when it comes back: then it is 2 ms behind the mean again.
    #[test]
    fn lag_is_kept_over_a_sleep() {
        let cpus = cpus(Eevdf);
        let mut slept = Fair { lag_ns: 2 * MS, woken: true, ..fair(50, 0) };
        slept.place(Eevdf, &cpus, &[100 * MS]);
        assert_eq!(slept.vruntime_ns, 96 * MS);
    }
}
