//! CPUs that an emulator executes in turn.
//!
//! Models: one thread of the host for all CPUs of a guest (QEMU's tcg, thread=single): a CPU is executed until its turn is over or it
//! is idle, then the next one that has something to do; meanwhile the others stand still, which the guest does not see. All turns end at
//! once: at the tick, which all CPUs of a Linux guest have at the same instant, and at an interrupt of a disk or of the timer of
//! a thread that sleeps.

use std::collections::VecDeque;

use super::Machine;
use super::clock::TaskId;
use super::cpu::Cpus;

/// Which CPU is executed.
#[derive(Debug)]
pub struct Rotation {
    /// From tick to tick.
    turn_ns: u64,
    executed: u16,
    /// When its turn began, or who waits for the next one came, whichever is later.
    since_ns: u64,
    /// The last interrupt that no turn has ended by.
    kicked_ns: Option<u64>,
    /// Threads on CPUs that stand still, the longest waiting first.
    waiting: VecDeque<(TaskId, u16)>,
}

impl Rotation {
    pub fn new(turn_ns: u64) -> Rotation {
        Rotation { turn_ns, executed: 0, since_ns: 0, kicked_ns: None, waiting: VecDeque::new() }
    }

    /// accel/tcg/tcg-accel-ops-rr.c: rr_kick_vcpu_thread, 7.2. A CPU that is woken by another one's IPI kicks nobody
    /// (accel/tcg/tcg-accel-ops.c: tcg_handle_interrupt, qemu_cpu_is_self).
    fn is_over(&self, now_ns: u64) -> bool {
        self.kicked_ns.is_some_and(|at| at >= self.since_ns) || now_ns / self.turn_ns > self.since_ns / self.turn_ns
    }

    fn turn_to(&mut self, cpu: u16, now_ns: u64) {
        if self.executed != cpu {
            (self.executed, self.since_ns, self.kicked_ns) = (cpu, now_ns, None);
        }
    }
}

impl Cpus {
    /// Whether a burst on this CPU can begin: it is executed, or the one that was is idle.
    #[inline]
    pub fn begins_turn(&mut self, cpu: u16, now_ns: u64) -> bool {
        let Some(executed) = self.rotation.as_ref().map(|rotation| rotation.executed) else { return true };
        if executed != cpu && self.is_busy(executed) {
            return false;
        }
        if let Some(rotation) = &mut self.rotation {
            rotation.turn_to(cpu, now_ns);
        }
        true
    }

    /// Nobody waits for a turn, so that a burst need not be told of.
    #[inline]
    pub fn is_unshared(&self) -> bool {
        self.rotation.as_ref().is_none_or(|rotation| rotation.waiting.is_empty())
    }

    pub fn wait_for_turn(&mut self, task: TaskId, cpu: u16, now_ns: u64) {
        if let Some(rotation) = &mut self.rotation {
            if rotation.waiting.is_empty() {
                rotation.since_ns = rotation.since_ns.max(now_ns);
            }
            rotation.waiting.push_back((task, cpu));
        }
    }

    /// An interrupt of a device ends the turn.
    pub fn kick(&mut self, now_ns: u64) {
        self.rotation.iter_mut().for_each(|rotation| rotation.kicked_ns = Some(now_ns));
    }

    /// A turn that an interrupt has ended is over at once.
    fn cut_turn(&self, m: &Machine) {
        let over = self.rotation.as_ref().filter(|rotation| rotation.is_over(m.clock.now()));
        over.into_iter().for_each(|rotation| self.cut(m, rotation.executed));
    }

    fn waits_no_more(&mut self, task: TaskId) {
        self.rotation.iter_mut().for_each(|rotation| rotation.waiting.retain(|&(waits, _)| waits != task));
    }

    /// A burst on this CPU is over: who waits has the turn, or sees whether there is more to do here.
    pub fn ends_burst(&mut self, cpu: u16, now_ns: u64) -> Option<TaskId> {
        let rotation = self.rotation.as_mut().filter(|rotation| rotation.executed == cpu)?;
        let &(task, next) = rotation.waiting.front()?;
        if rotation.is_over(now_ns) {
            rotation.turn_to(next, now_ns);
        }
        Some(task)
    }
}

/// Waits until this CPU is executed.
pub async fn turn(m: &Machine, cpu: u16) {
    let task = m.clock.current();
    let mut queued = false;
    while !m.cpus.borrow_mut().begins_turn(cpu, m.clock.now()) {
        if !std::mem::replace(&mut queued, true) {
            m.cpus.borrow_mut().wait_for_turn(task, cpu, m.clock.now());
            m.cpus.borrow().cut_turn(m);
        }
        m.clock.park(None).await;
    }
    if queued {
        m.cpus.borrow_mut().waits_no_more(task);
    }
}

#[cfg(test)]
mod tests {
    use crate::cpu::Cpus;

    /// Two CPUs in turns of 125 us: the second stands still while the first has something to do, until the next tick.
    #[test]
    fn one_cpu_is_executed_at_a_time() {
        let mut cpus = Cpus::new(&[0, 0], 10_000_000);
        cpus.rotate(125_000);
        cpus.occupy(0);
        assert!(cpus.begins_turn(0, 0));
        cpus.occupy(1);
        assert!(!cpus.begins_turn(1, 130_000));
        cpus.wait_for_turn(7, 1, 130_000);
        // A burst of the first one ends before the tick at 250 us: the thread that waits looks again, and finds it busy.
        assert_eq!((cpus.ends_burst(0, 249_000), cpus.begins_turn(1, 249_000)), (Some(7), false));
        assert_eq!((cpus.ends_burst(0, 251_000), cpus.begins_turn(1, 251_000)), (Some(7), true));
        assert!(!cpus.begins_turn(0, 251_000), "now the other one's turn has begun");
    }

    #[test]
    fn an_interrupt_ends_a_turn_before_the_tick() {
        let mut cpus = Cpus::new(&[0, 0], 10_000_000);
        cpus.rotate(4_000_000);
        cpus.occupy(0);
        cpus.occupy(1);
        // One that came before anybody waited has ended an earlier turn.
        cpus.kick(9_000);
        cpus.wait_for_turn(7, 1, 10_000);
        assert_eq!((cpus.ends_burst(0, 20_000), cpus.begins_turn(1, 20_000)), (Some(7), false));
        cpus.kick(25_000);
        assert_eq!((cpus.ends_burst(0, 30_000), cpus.begins_turn(1, 30_000)), (Some(7), true));
    }

    #[test]
    fn an_idle_cpu_leaves_its_turn_to_the_next() {
        let mut cpus = Cpus::new(&[0, 0], 10_000_000);
        cpus.rotate(125_000);
        cpus.occupy(1);
        assert!(cpus.begins_turn(1, 10_000), "the first has nothing to do");
    }
}
