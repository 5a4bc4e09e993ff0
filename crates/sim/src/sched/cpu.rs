//! CPUs and their run queue.
//!
//! Models: CPUs by node, one first-come-first-served run queue for all of them with pinning, time slices (a thread that
//! needs more goes to the end of the queue), busy time by CPU, and softirq work that delays a CPU's thread. Leaves out:
//! priorities, migration costs, cache effects, frequency scaling, and user time beyond "in a call" and "computing".

use std::collections::VecDeque;

use crate::Machine;
use crate::sched::clock::TaskId;
use crate::sched::task::Task;

#[derive(Debug)]
struct Cpu {
    node: usize,
    busy: bool,
    busy_ns: u64,
    user_ns: u64,
    irq_until_ns: u64,
}

/// A thread that waits for a CPU.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    task: TaskId,
    pinned: Option<u16>,
    node: Option<usize>,
}

#[derive(Debug)]
pub struct Cpus {
    cpus: Vec<Cpu>,
    waiting: VecDeque<Waiter>,
    slice_ns: u64,
    running: u32,
    /// CPUs assigned to threads that have not run yet.
    granted: Vec<(TaskId, u16)>,
    pub switches: u64,
}

impl Cpus {
    /// `nodes[i]` is the node of CPU i.
    #[must_use]
    pub fn new(nodes: &[usize], slice_ns: u64) -> Cpus {
        let cpu = |&node: &usize| Cpu { node, busy: false, busy_ns: 0, user_ns: 0, irq_until_ns: 0 };
        let (waiting, granted) = (VecDeque::new(), Vec::new());
        Cpus { cpus: nodes.iter().map(cpu).collect(), waiting, slice_ns, running: 0, granted, switches: 0 }
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

    /// Busy time of a CPU, and its part in user mode.
    pub fn busy_ns(&self, cpu: usize) -> (u64, u64) {
        self.cpus.get(cpu).map_or((0, 0), |cpu| (cpu.busy_ns, cpu.user_ns))
    }

    /// Threads that have or want a CPU.
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

    /// A completion interrupt runs softirq work on this CPU.
    pub fn interrupt(&mut self, cpu: u16, now_ns: u64, ns: u64) {
        if let Some(cpu) = self.cpus.get_mut(usize::from(cpu)) {
            cpu.irq_until_ns = cpu.irq_until_ns.max(now_ns) + ns;
            cpu.busy_ns += ns;
        }
    }

    pub fn interrupt_left(&self, cpu: u16, now_ns: u64) -> u64 {
        self.cpus.get(usize::from(cpu)).map_or(0, |cpu| cpu.irq_until_ns.saturating_sub(now_ns))
    }

    fn fits(&self, cpu: u16, pinned: Option<u16>, node: Option<usize>) -> bool {
        let slot = &self.cpus[usize::from(cpu)];
        pinned.is_none_or(|pinned| pinned == cpu) && node.is_none_or(|node| node == slot.node)
    }

    /// Whether this CPU can perform a burst at once and alone: it is idle and allowed, no softirq is due, no thread
    /// waits, and the burst is not longer than a slice.
    #[inline]
    pub fn free_for(&self, cpu: u16, pinned: Option<u16>, node: Option<usize>, now_ns: u64, ns: u64) -> bool {
        let Some(slot) = self.cpus.get(usize::from(cpu)) else { return false };
        !slot.busy
            && slot.irq_until_ns <= now_ns
            && ns <= self.slice_ns
            && self.waiting.is_empty()
            && self.fits(cpu, pinned, node)
    }

    /// Accounts for bursts of the same length, each of which had the CPU to itself.
    #[inline]
    pub fn ran(&mut self, cpu: u16, ns: u64, bursts: u64) {
        self.cpus[usize::from(cpu)].busy_ns += ns * bursts;
        self.switches += bursts;
    }

    /// Takes an idle CPU: the one that the thread ran on before, else any that is allowed (select_idle_sibling).
    fn try_take(&mut self, last: u16, pinned: Option<u16>, node: Option<usize>) -> Option<u16> {
        let idle = |cpu: &u16| !self.cpus[usize::from(*cpu)].busy && self.fits(*cpu, pinned, node);
        let last = Some(last).filter(|last| usize::from(*last) < self.cpus.len() && idle(last));
        let cpu = last.or_else(|| (0..self.cpus.len() as u16).find(idle))?;
        self.cpus[usize::from(cpu)].busy = true;
        self.running += 1;
        Some(cpu)
    }

    fn granted_to(&mut self, task: TaskId) -> Option<u16> {
        let place = self.granted.iter().position(|&(to, _)| to == task)?;
        Some(self.granted.swap_remove(place).1)
    }
}

/// Waits for a CPU; returns it, and for how long the thread may use it.
pub async fn acquire(m: &Machine, task: &mut Task, wanted_ns: u64) -> (u16, u64) {
    let me = m.clock.current();
    let (pinned, node) = (task.pinned, task.bound_node);
    let taken = m.cpus.borrow_mut().try_take(pinned.unwrap_or(task.cpu), pinned, node);
    let cpu = match taken {
        Some(cpu) => cpu,
        None => {
            m.cpus.borrow_mut().waiting.push_back(Waiter { task: me, pinned, node });
            loop {
                m.clock.park(None).await;
                if let Some(cpu) = m.cpus.borrow_mut().granted_to(me) {
                    break cpu;
                }
            }
        }
    };
    let cpus = m.cpus.borrow();
    (task.cpu, task.node) = (cpu, cpus.node_of(cpu));
    (cpu, wanted_ns.min(cpus.slice_ns))
}

/// Gives the CPU back, or to the first waiting thread that may run on it.
pub fn release(m: &Machine, cpu: u16, used_ns: u64) {
    let mut cpus = m.cpus.borrow_mut();
    cpus.ran(cpu, used_ns, 1);
    let place = cpus.waiting.iter().position(|waiter| cpus.fits(cpu, waiter.pinned, waiter.node));
    match place.and_then(|place| cpus.waiting.remove(place)) {
        Some(waiter) => {
            cpus.granted.push((waiter.task, cpu));
            drop(cpus);
            m.clock.wake(waiter.task);
        }
        None => {
            cpus.cpus[usize::from(cpu)].busy = false;
            cpus.running -= 1;
        }
    }
}
