//! CPUs and run queues.
//!
//! Models: CPUs by node, one first-come-first-served run queue for all of them with pinning, time slices (a
//! burst longer than a slice goes to the back), busy time by CPU, and softirq work that holds a CPU up. On emulated machines a queue for
//! each, in the order that `fair` says.
//! Leaves out: priorities, migration costs, cache effects, user/system split finer than
//! "in a call" and "computing", frequency scaling.

use std::collections::VecDeque;

use super::Machine;
use super::clock::TaskId;
use super::fair::{Burst, Fair, Sharing};
use super::rotation::Rotation;
use super::task::Task;

#[derive(Debug)]
struct Cpu {
    node: usize,
    busy: bool,
    busy_ns: u64,
    user_ns: u64,
    irq_until_ns: u64,
    /// Who has had it last, and for how long without anybody else in between.
    last: Option<TaskId>,
    stint_ns: u64,
    /// Behind which no thread of it falls (cfs_rq->min_vruntime).
    min_vruntime_ns: u64,
    /// Who has it, and his virtual runtime when he got it.
    runs: Option<(TaskId, u64)>,
}

/// A thread that waits for a CPU.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    pub task: TaskId,
    pub pinned: Option<u16>,
    pub node: Option<usize>,
    pub preempts: bool,
    pub fair: Fair,
}

#[derive(Debug)]
pub struct Cpus {
    cpus: Vec<Cpu>,
    pub(super) waiting: VecDeque<Waiter>,
    slice_ns: u64,
    running: u32,
    /// CPUs handed to threads that have not run yet, and such that threads may look at, which wait for another one.
    granted: Vec<(TaskId, u16)>,
    offered: Vec<(TaskId, u16)>,
    pub switches: u64,
    /// Where one thread of an emulator executes them all.
    pub rotation: Option<Rotation>,
    /// Where threads do not have CPUs in the order in which they ask.
    pub sharing: Option<Sharing>,
}

impl Cpus {
    /// `nodes[i]` is the node of CPU i.
    #[must_use]
    pub fn new(nodes: &[usize], slice_ns: u64) -> Cpus {
        let cpus = nodes
            .iter()
            .map(|&node| Cpu {
                node,
                busy: false,
                busy_ns: 0,
                user_ns: 0,
                irq_until_ns: 0,
                last: None,
                stint_ns: 0,
                min_vruntime_ns: 0,
                runs: None,
            })
            .collect();
        let (waiting, granted, offered) = (VecDeque::new(), Vec::new(), Vec::new());
        Cpus { cpus, waiting, slice_ns, running: 0, granted, offered, switches: 0, rotation: None, sharing: None }
    }

    /// One is executed at a time, for so long.
    pub fn rotate(&mut self, turn_ns: u64) {
        self.rotation = Some(Rotation::new(turn_ns));
        self.slice_ns = self.slice_ns.min(turn_ns);
    }

    #[inline]
    pub fn is_busy(&self, cpu: u16) -> bool {
        self.cpus.get(usize::from(cpu)).is_some_and(|cpu| cpu.busy)
    }

    pub fn len(&self) -> usize {
        self.cpus.len()
    }

    pub fn node_of(&self, cpu: u16) -> usize {
        self.cpus.get(usize::from(cpu)).map_or(0, |cpu| cpu.node)
    }

    /// First CPU of a node, counted from `skip` so that threads spread out.
    pub fn pick(&self, node: Option<usize>, skip: usize) -> u16 {
        let fits: Vec<u16> = (0..self.cpus.len() as u16)
            .filter(|cpu| node.is_none_or(|node| self.cpus[usize::from(*cpu)].node == node))
            .collect();
        fits.get(skip % fits.len().max(1)).copied().unwrap_or(0)
    }

    pub fn busy_ns(&self, cpu: usize) -> (u64, u64) {
        self.cpus.get(cpu).map_or((0, 0), |cpu| (cpu.busy_ns, cpu.user_ns))
    }

    pub fn running(&self) -> u64 {
        u64::from(self.running) + self.waiting.len() as u64
    }

    /// Forgets the time used so far: the scenario's time begins.
    pub fn forget_usage(&mut self) {
        self.cpus.iter_mut().for_each(|cpu| (cpu.busy_ns, cpu.user_ns, cpu.irq_until_ns) = (0, 0, 0));
        self.switches = 0;
    }

    pub fn charge_user(&mut self, cpu: u16, ns: u64) {
        if let Some(cpu) = self.cpus.get_mut(usize::from(cpu)) {
            cpu.user_ns += ns;
        }
    }

    /// A completion interrupt runs softirq work on this CPU for so long.
    pub fn interrupt(&mut self, cpu: u16, now_ns: u64, ns: u64) {
        self.kick(now_ns);
        if let Some(cpu) = self.cpus.get_mut(usize::from(cpu)) {
            cpu.irq_until_ns = cpu.irq_until_ns.max(now_ns) + ns;
            cpu.busy_ns += ns;
        }
    }

    pub fn interrupt_left(&mut self, cpu: u16, now_ns: u64) -> u64 {
        self.cpus.get(usize::from(cpu)).map_or(0, |cpu| cpu.irq_until_ns.saturating_sub(now_ns))
    }

    pub(super) fn fits(&self, cpu: u16, pinned: Option<u16>, node: Option<usize>) -> bool {
        let slot = &self.cpus[usize::from(cpu)];
        pinned.is_none_or(|pinned| pinned == cpu) && node.is_none_or(|node| node == slot.node)
    }

    /// This CPU is idle, fits, owes no softirq time, nobody waits for it, and the burst is no longer than a slice.
    #[inline]
    pub fn free_for(&mut self, cpu: u16, pinned: Option<u16>, node: Option<usize>, now_ns: u64, ns: u64) -> bool {
        let Some(slot) = self.cpus.get(usize::from(cpu)) else { return false };
        !slot.busy
            && slot.irq_until_ns <= now_ns
            && ns <= self.slice_ns
            && self.waiting.is_empty()
            && self.fits(cpu, pinned, node)
            && self.is_unshared()
            && self.begins_turn(cpu, now_ns)
    }

    /// A burst that had the CPU to itself from beginning to end.
    #[inline]
    pub fn ran(&mut self, cpu: u16, ns: u64) {
        self.cpus[usize::from(cpu)].busy_ns += ns;
        self.switches += 1;
    }

    /// So many bursts of the same length, each with the CPU to itself.
    pub fn ran_alike(&mut self, cpu: u16, ns: u64, times: u64) {
        self.cpus[usize::from(cpu)].busy_ns += ns * times;
        self.switches += times;
    }

    /// kernel/sched/fair.c: select_task_rq_fair, 6.1: whether a thread of a node that ran on `last` and is woken from this CPU is to run on it,
    /// since it may, and no other one is idle: of all that share a cache; else the last one alone counts (wake_affine_idle, no `sd_llc`),
    /// as on an emulated machine, where each CPU is a socket.
    pub fn wakes_here(&self, cpu: u16, last: u16, node: usize) -> bool {
        let others =
            self.cpus.iter().enumerate().filter(|(place, slot)| *place != usize::from(cpu) && slot.node == node);
        let mut seen = others.filter(|(place, _)| self.rotation.is_none() || *place == usize::from(last));
        self.node_of(cpu) == node && seen.all(|(_, slot)| slot.busy)
    }

    /// A thread has this CPU.
    #[cfg(test)]
    pub fn occupy(&mut self, cpu: u16) {
        self.cpus[usize::from(cpu)].busy = true;
    }

    /// Takes an idle CPU: the one it ran on before, else any that fits and shares a cache with it (select_idle_sibling); of emulated
    /// CPUs, each a socket, none does.
    fn try_take(&mut self, last: u16, pinned: Option<u16>, node: Option<usize>) -> Option<u16> {
        let idle = |cpus: &Cpus, cpu: u16| !cpus.cpus[usize::from(cpu)].busy && cpus.fits(cpu, pinned, node);
        let cpu = if usize::from(last) < self.cpus.len() && idle(self, last) {
            last
        } else {
            let stays = self.rotation.is_some() && self.fits(last, pinned, node);
            (0..self.cpus.len() as u16).find(|&cpu| !stays && idle(self, cpu))?
        };
        self.cpus[usize::from(cpu)].busy = true;
        self.running += 1;
        Some(cpu)
    }

    /// Another CPU that is idle, and on which it may run.
    pub(super) fn idle_but(&self, cpu: u16, waiter: &Waiter) -> Option<u16> {
        let idle = |&other: &u16| other != cpu && !self.is_busy(other) && self.fits(other, waiter.pinned, waiter.node);
        (0..self.cpus.len() as u16).find(idle)
    }
}

/// Gets a CPU and says for how long it may be used.
pub async fn acquire(m: &Machine, task: &mut Task, wanted_ns: u64) -> (u16, u64) {
    let me = m.clock.current();
    m.cpus.borrow().enqueue(&mut task.fair, task.pinned.unwrap_or(task.cpu), m.clock.now());
    let mut waiter =
        Waiter { task: me, pinned: task.pinned, node: task.bound_node, preempts: task.preempts, fair: task.fair };
    let home = task.pinned.unwrap_or(task.cpu);
    let mut offered = None;
    let cpu = loop {
        let taken = m.cpus.borrow_mut().take_or_queue(waiter, home, offered);
        if let Some(cpu) = taken {
            break cpu;
        }
        if waiter.fair.is_woken() {
            m.cpus.borrow().cut(m, home);
        }
        m.clock.park(None).await;
        let granted = m.cpus.borrow_mut().granted_to(me);
        if let Some(cpu) = granted {
            break cpu;
        }
        offered = m.cpus.borrow_mut().offered_to(me);
        // It was looked at when it was woken.
        waiter.fair.waits();
    };
    task.cpu = cpu;
    let mut cpus = m.cpus.borrow_mut();
    cpus.begin(cpu, me, &mut task.fair);
    task.node = cpus.node_of(cpu);
    let to_tick_ns = cpus.sharing.map_or(u64::MAX, |sharing| sharing.tick_ns - m.clock.now() % sharing.tick_ns);
    (cpu, wanted_ns.min(cpus.slice_ns).min(to_tick_ns))
}

/// A burst until this instant, or until it is cut (`Cpus::cut`).
pub async fn burn(m: &Machine, until_ns: u64) {
    if m.cpus.borrow().sharing.is_some() {
        m.clock.park(Some(until_ns)).await;
    } else {
        m.clock.sleep_until(until_ns).await;
    }
}

impl Cpus {
    fn take_or_queue(&mut self, waiter: Waiter, home: u16, offered: Option<u16>) -> Option<u16> {
        let take = |cpus: &mut Cpus, cpu: u16| cpus.try_take(cpu, waiter.pinned, waiter.node);
        let cpu = offered.and_then(|cpu| take(self, cpu)).or_else(|| take(self, home));
        match cpu {
            Some(_) => {}
            None if waiter.preempts => self.waiting.push_front(waiter),
            None => self.waiting.push_back(waiter),
        }
        cpu
    }

    fn granted_to(&mut self, task: TaskId) -> Option<u16> {
        let place = self.granted.iter().position(|&(to, _)| to == task)?;
        Some(self.granted.swap_remove(place).1)
    }

    fn offered_to(&mut self, task: TaskId) -> Option<u16> {
        let place = self.offered.iter().position(|&(to, _)| to == task)?;
        Some(self.offered.swap_remove(place).1)
    }

    /// A thread has this CPU from now on.
    fn begin(&mut self, cpu: u16, task: TaskId, fair: &mut Fair) {
        if self.sharing.is_some() {
            fair.migrate(cpu, self);
            fair.waits();
            self.cpus[usize::from(cpu)].runs = Some((task, fair.vruntime_ns()));
        }
    }

    pub fn running_vruntime_ns(&self, cpu: u16) -> Option<u64> {
        self.cpus.get(usize::from(cpu))?.runs.map(|(_, vruntime_ns)| vruntime_ns)
    }

    /// Ends the burst on this CPU, so that it is seen who goes on.
    pub fn cut(&self, m: &Machine, cpu: u16) {
        let runs = self.cpus.get(usize::from(cpu)).and_then(|slot| slot.runs);
        runs.into_iter().for_each(|(task, _)| m.clock.wake(task));
    }

    /// update_min_vruntime: of the one that has run and those that wait for this CPU.
    pub fn note_vruntime(&mut self, cpu: u16, ran_ns: u64) {
        let waiting = self.waiting.iter().filter(|waiter| waiter.fair.is_on(cpu));
        let least_ns = waiting.map(|waiter| waiter.fair.vruntime_ns()).fold(ran_ns, u64::min);
        let slot = &mut self.cpus[usize::from(cpu)];
        slot.min_vruntime_ns = slot.min_vruntime_ns.max(least_ns);
    }

    pub fn min_vruntime_ns(&self, cpu: u16) -> u64 {
        self.cpus.get(usize::from(cpu)).map_or(0, |slot| slot.min_vruntime_ns)
    }

    /// How long the thread that gives this CPU back has had it by now.
    pub(super) fn note_stint(&mut self, cpu: u16, task: TaskId, used_ns: u64) -> u64 {
        let slot = &mut self.cpus[usize::from(cpu)];
        slot.stint_ns = if slot.last == Some(task) { slot.stint_ns + used_ns } else { used_ns };
        slot.last = Some(task);
        slot.stint_ns
    }

    pub(super) fn begin_stint(&mut self, cpu: u16) {
        self.cpus[usize::from(cpu)].stint_ns = 0;
    }
}

/// Gives the CPU back, or straight on to who has it next: an idle CPU and a waiting thread that fits it never coexist, but for one that
/// looks again at once whether who had the CPU goes on.
pub fn release(m: &Machine, used_ns: u64, burst: Burst, fair: &mut Fair) {
    let cpu = burst.cpu;
    let mut cpus = m.cpus.borrow_mut();
    cpus.switches += 1;
    cpus.cpus[usize::from(cpu)].busy_ns += used_ns;
    let next = cpus.next(burst, m.clock.current(), fair);
    let next = next.and_then(|(place, takes)| Some((cpus.waiting.remove(place)?, takes)));
    match next {
        Some((waiter, true)) => cpus.granted.push((waiter.task, cpu)),
        _ => {
            let slot = &mut cpus.cpus[usize::from(cpu)];
            (slot.busy, slot.runs) = (false, None);
            cpus.running -= 1;
        }
    }
    if let Some((waiter, false)) = next {
        let offered = cpus.offer(burst, &waiter);
        cpus.offered.push((waiter.task, offered));
    }
    let turns = cpus.ends_burst(cpu, m.clock.now());
    drop(cpus);
    next.into_iter().for_each(|(waiter, _)| m.clock.wake(waiter.task));
    turns.into_iter().for_each(|task| m.clock.wake(task));
}

#[cfg(test)]
mod tests {
    use super::Cpus;

    /// Of three CPUs of node 0 and one of node 1 the second one is idle.
    #[test]
    fn a_thread_is_woken_on_the_cpu_of_its_waker_unless_another_one_is_idle() {
        let mut cpus = Cpus::new(&[0, 0, 0, 1], 10_000_000);
        [0, 2, 3].into_iter().for_each(|cpu| cpus.occupy(cpu));
        assert!(!cpus.wakes_here(0, 0, 0), "select_idle_sibling: one that shares the cache is idle");
        assert!(!cpus.wakes_here(3, 0, 0), "not a CPU of its node");
        // Sockets of an emulated machine: wake_affine_idle asks whether the last one is idle, and nobody looks for another one.
        cpus.rotate(4_000_000);
        assert!(cpus.wakes_here(0, 0, 0) && cpus.wakes_here(0, 2, 0) && !cpus.wakes_here(0, 1, 0));
        cpus.occupy(1);
        assert!(cpus.wakes_here(0, 1, 0));
    }
}
