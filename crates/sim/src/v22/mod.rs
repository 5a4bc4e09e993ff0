//! Linux 2.2: a buffer cache beside the page cache, one clock over both, one disk.
//!
//! Uses the clock, the CPUs, the actors and the recorder of the newer machine, but not its memory. The path of one
//! buffer: `ops` asks `io::bread` or `io::getblk`; `Buffers::getblk` takes one from the free list or `io::grow` makes
//! four of a new page; `bdflush` writes it through `disk`; `Memory::shrink_mmap` takes its page, or `Buffers::bforget`
//! decides where the buffer goes when its block is freed.

mod bdflush;
mod buffers;
pub mod disk;
pub mod ext2;
mod grant;
mod io;
mod memory;
mod ops;
pub mod sample;
#[cfg(test)]
mod tests;

use std::rc::Rc;

use crate::Machine;
use crate::block::disk::DiskModel;
use crate::fs::inode::KeyMap;
use crate::kernel::{Bforget, BufferCache};
use crate::run::invariant::Broken;
use crate::sched::clock::{TaskId, WaitQueue};
use crate::sched::task::Task;
use buffers::Buffers;
use disk::Disk;
use ext2::Ext2;
use memory::Memory;

pub use ops::perform;

pub struct Old {
    pub(crate) memory: Memory,
    pub(crate) buffers: Buffers,
    fs: Ext2,
    disk: Disk,
    bforget: Bforget,
    waiters: KeyMap<u32, Vec<TaskId>>,
    super_locked: bool,
    super_waiters: WaitQueue,
    bdflush: Option<TaskId>,
    bdflush_woken: bool,
}

impl Old {
    #[must_use]
    pub fn new(memory_bytes: u64, rules: BufferCache, disk: DiskModel, orphaning: bool) -> Old {
        let bforget = match rules.bforget {
            Bforget::PutsLastFree => Bforget::PutsLastFree,
            _ if !orphaning => Bforget::PutsLastFree,
            other => other,
        };
        Old {
            memory: Memory::new(memory_bytes / 4096, rules),
            buffers: Buffers::default(),
            fs: Ext2::new(disk.pages * 4096),
            disk: Disk::new(disk),
            bforget,
            waiters: KeyMap::default(),
            super_locked: false,
            super_waiters: WaitQueue::default(),
            bdflush: None,
            bdflush_woken: false,
        }
    }

    pub fn check(&self) -> Result<(), Broken> {
        self.memory.check(&self.buffers)
    }

    pub fn frames(&self) -> u64 {
        self.memory.map.len() as u64
    }

    fn buffer_done(&mut self, m: &Machine, id: u32) {
        self.buffers.io_done(id);
        for task in self.waiters.remove(&id).unwrap_or_default() {
            m.clock.wake(task);
        }
    }
}

/// Starts the kernel's threads.
pub fn start(m: &Rc<Machine>) {
    m.clock.spawn(disk::serve(m.clone()));
    m.clock.spawn(bdflush::bdflush(m.clone()));
    m.clock.spawn(bdflush::update(m.clone()));
    m.clock.spawn(bdflush::kswapd(m.clone()));
}

/// Starts a process: allocates its private pages.
pub async fn enter(m: &Machine, task: &mut Task) -> Vec<u32> {
    let Some(old) = &m.old else { return Vec::new() };
    let wanted = old.borrow().memory.rules.process_pages.get();
    let mut pages = Vec::with_capacity(wanted as usize);
    for _ in 0..wanted {
        pages.push(io::page(m, task).await);
    }
    task.run(m).await;
    pages
}

/// Ends a process: frees its private pages.
pub fn leave(m: &Machine, pages: &[u32]) {
    if let Some(old) = &m.old {
        pages.iter().for_each(|&frame| old.borrow_mut().memory.give(frame));
    }
}
