//! Locks of the workloads: shared or exclusive, first come first served.

use crate::Machine;
use crate::run::actor::{Shared, Who};
use crate::sched::clock::WaitQueue;
use crate::sched::site::Site;
use crate::sched::task::{Culprit, Task};
use flatwater_workload::LockId;

#[derive(Default)]
pub struct UserLock {
    exclusive: bool,
    shared: u32,
    waiting: WaitQueue,
}

/// Takes the lock, after earlier waiters.
pub async fn lock(m: &Machine, task: &mut Task, who: &Who, lock: LockId, exclusive: bool) {
    task.work(Site::Work, 100);
    loop {
        {
            let mut shared = m.shared[who.workload as usize].borrow_mut();
            let held = shared.lock(lock);
            if !held.exclusive
                && (!exclusive || held.shared == 0)
                && (exclusive || held.waiting.is_empty() || task.queued)
            {
                if exclusive {
                    held.exclusive = true;
                } else {
                    held.shared += 1;
                }
                task.queued = false;
                return;
            }
        }
        // Perform pending work before checking whether to sleep: otherwise an unlock could come while it is performed.
        if task.pending_ns() > 0 {
            task.run(m).await;
            continue;
        }
        m.shared[who.workload as usize].borrow_mut().lock(lock).waiting.join(m.clock.current());
        task.park(m, None, Site::UserLock, Culprit::Peers).await;
        task.queued = true;
    }
}

pub fn unlock(m: &Machine, who: &Who, lock: LockId) {
    let mut shared = m.shared[who.workload as usize].borrow_mut();
    let held = shared.lock(lock);
    if held.exclusive {
        held.exclusive = false;
    } else {
        held.shared = held.shared.saturating_sub(1);
    }
    // All waiters are woken and try again in order: readers enter together, a writer waits for them.
    held.waiting.wake_all(&m.clock);
}

impl Shared {
    fn lock(&mut self, id: LockId) -> &mut UserLock {
        let place = self.locks.iter().position(|(known, _)| *known == id).unwrap_or_else(|| {
            self.locks.push((id, UserLock::default()));
            self.locks.len() - 1
        });
        &mut self.locks[place].1
    }
}
