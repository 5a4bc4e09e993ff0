//! bdflush, update and kswapd of 2.2.
//!
//! Leaves out: sync_supers, nref_dirt.

use std::rc::Rc;

use super::Old;
use super::buffers::On;
use super::disk::{Request, Whose};
use super::ops::write_inode;
use crate::Machine;
use crate::sched::task::Task;

const SECOND: u64 = 1_000_000_000;

impl Old {
    /// wakeup_bdflush(0)
    pub fn wake_bdflush(&mut self, m: &Machine) {
        self.bdflush_woken = true;
        if let Some(task) = self.bdflush.take() {
            m.clock.wake(task);
        }
    }

    /// The check of refile_buffer when a buffer becomes dirty.
    pub fn too_dirty(&self) -> bool {
        let all: u64 = [On::Clean, On::Locked, On::Dirty].iter().map(|&on| self.buffers.count(on)).sum();
        self.buffers.count(On::Dirty) > all * self.memory.rules.nfract_percent.get() / 100
    }

    fn write_out(&mut self, m: &Machine, at_most: usize, due_by_ns: Option<u64>) -> usize {
        let locked = self.buffers.lock_dirty(at_most, due_by_ns);
        for &(id, block) in &locked {
            self.disk.submit(m, block, Request { blocks: 1, write: true, whose: Whose::Buffer(id) });
        }
        locked.len()
    }
}

/// Writes up to `ndirty` buffers when woken, and continues while more than `nfract` of all are dirty.
pub async fn bdflush(m: Rc<Machine>) {
    let Some(cell) = &m.old else { return };
    loop {
        {
            let mut old = cell.borrow_mut();
            if std::mem::take(&mut old.bdflush_woken) {
                let ndirty = old.memory.rules.ndirty.get() as usize;
                old.write_out(&m, ndirty, None);
            } else {
                old.bdflush = Some(m.clock.current());
            }
        }
        if cell.borrow().bdflush.is_some() {
            m.clock.park(None).await;
            continue;
        }
        // ll_rw_block() waits for a free request; in the model the thread waits until the queue is short enough.
        while cell.borrow().disk.waiting() > 128 {
            m.clock.sleep_until(m.clock.now() + 10_000_000).await;
        }
        let mut old = cell.borrow_mut();
        old.bdflush_woken |= old.too_dirty();
    }
}

/// The user process `update`: every five seconds sync_inodes(), then writes buffers older than age_buffer
/// (sync_old_buffers).
pub async fn update(m: Rc<Machine>) {
    let Some(cell) = &m.old else { return };
    let mut task = Task::new(0, 0);
    loop {
        task.begin();
        m.clock.sleep_until(m.clock.now() + 5 * SECOND).await;
        // Buffers that become dirty during the round wait for the next one.
        let dirty: Vec<u32> = cell.borrow().fs.dirty.iter().copied().collect();
        for id in dirty {
            if cell.borrow().fs.dirty.contains(&id) {
                write_inode(&m, &mut task, id).await;
            }
        }
        task.run(&m).await;
        let now = m.clock.now();
        cell.borrow_mut().write_out(&m, usize::MAX, Some(now));
    }
}

/// kswapd: each second, until free is at high again or nothing can be freed.
pub async fn kswapd(m: Rc<Machine>) {
    let Some(cell) = &m.old else { return };
    loop {
        m.clock.sleep_until(m.clock.now() + SECOND).await;
        let mut old = cell.borrow_mut();
        let Old { memory, buffers, .. } = &mut *old;
        while memory.free_pages() < memory.limits[2] && memory.try_to_free_pages(buffers) > 0 {}
        memory.scanned = 0;
        if std::mem::take(&mut memory.wants_bdflush) {
            old.wake_bdflush(&m);
        }
    }
}
