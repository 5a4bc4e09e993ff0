//! getblk and bread for a thread that may have to wait, and reads of pages without the buffer cache.

use std::cell::Cell;
use std::rc::Rc;

use super::Old;
use super::disk::{Request, Whose};
use crate::Machine;
use crate::sched::site::Site;
use crate::sched::task::{Culprit, Task};

pub fn cell(m: &Machine) -> &std::cell::RefCell<Old> {
    m.old.as_ref().unwrap_or_else(|| unreachable!("only the 2.2 machine gets here"))
}

/// Allocates one page; waits for bdflush if no page can be freed now.
pub async fn page(m: &Machine, task: &mut Task) -> u32 {
    loop {
        let got = {
            let mut old = cell(m).borrow_mut();
            let Old { memory, buffers, .. } = &mut *old;
            let got = memory.take(buffers);
            let scanned = std::mem::take(&mut memory.scanned);
            task.work(Site::FreePages, scanned * m.costs.scan_page_ns);
            task.work(Site::Work, m.costs.alloc_page_ns);
            if std::mem::take(&mut memory.wants_bdflush) || got.is_none() {
                old.wake_bdflush(m);
            }
            got
        };
        match got {
            Some(frame) => return frame,
            None => task.sleep(m, 10_000_000, Site::FreePages).await,
        }
    }
}

/// getblk(): the block's buffer with a reference; its content is undefined.
pub async fn getblk(m: &Machine, task: &mut Task, block: u32) -> u32 {
    loop {
        task.work(Site::Work, m.costs.slab_object_ns * 4);
        if let Some(id) = cell(m).borrow_mut().buffers.getblk(block) {
            return id;
        }
        // grow_buffers()
        let frame = page(m, task).await;
        let mut old = cell(m).borrow_mut();
        let slot = old.buffers.grow();
        old.memory.map[frame as usize] = super::memory::Page::Buffers(slot);
    }
}

/// bread(): the block's buffer with a reference and the disk's content.
pub async fn bread(m: &Machine, task: &mut Task, block: u32) -> u32 {
    let id = getblk(m, task, block).await;
    loop {
        let buffer = cell(m).borrow().buffers.all[id as usize];
        if buffer.uptodate {
            return id;
        }
        task.work(Site::Work, m.costs.submit_io_ns);
        task.run(m).await;
        if !ask_for(m, id, block) {
            return id;
        }
        task.park(m, None, Site::MetadataRead, Culprit::Device).await;
    }
}

/// Submits the read unless another task has, and queues the current task behind it; false if the buffer became
/// uptodate.
fn ask_for(m: &Machine, id: u32, block: u32) -> bool {
    let mut old = cell(m).borrow_mut();
    let buffer = &mut old.buffers.all[id as usize];
    if buffer.uptodate {
        return false;
    }
    if !std::mem::replace(&mut buffer.locked, true) {
        old.disk.submit(m, block, Request { blocks: 1, write: false, whose: Whose::Buffer(id) });
    }
    old.waiters.entry(id).or_default().push(m.clock.current());
    true
}

/// Gets the block's buffer, changes and releases it.
pub async fn change(m: &Machine, task: &mut Task, block: u32) {
    let id = bread(m, task, block).await;
    dirty_and_release(m, id);
}

/// A new block, which is not read.
pub async fn make(m: &Machine, task: &mut Task, block: u32) {
    let id = getblk(m, task, block).await;
    dirty_and_release(m, id);
}

fn dirty_and_release(m: &Machine, id: u32) {
    let mut old = cell(m).borrow_mut();
    let due = m.clock.now() + old.memory.rules.age_buffer_ns.get();
    old.buffers.mark_dirty(id, due);
    old.buffers.brelse(id);
    if old.too_dirty() {
        old.wake_bdflush(m);
    }
}

pub async fn touch(m: &Machine, task: &mut Task, block: u32) {
    let id = bread(m, task, block).await;
    cell(m).borrow_mut().buffers.brelse(id);
}

/// A freed block: forgets the buffer that get_hash_table finds. Does not wait.
pub fn forget(m: &Machine, block: u32) {
    let mut old = cell(m).borrow_mut();
    let form = old.bforget;
    if let Some(id) = old.buffers.find(block) {
        old.buffers.bforget(id, form);
    }
    old.fs.free_block(block);
}

/// brw_page() for blocks that no buffer holds: one request for each run of neighbours, and the wait for all.
pub async fn read_blocks(m: &Machine, task: &mut Task, blocks: &[u32]) {
    let Some(&first) = blocks.first() else { return };
    task.work(Site::Work, m.costs.submit_io_ns * blocks.len() as u64);
    task.run(m).await;
    let left = Rc::new(Cell::new(blocks.len() as u32));
    let submit = |from: u32, count: u32| {
        let whose = Whose::Reader(left.clone(), m.clock.current());
        cell(m).borrow_mut().disk.submit(m, from, Request { blocks: count, write: false, whose });
    };
    let (mut from, mut count) = (first, 0);
    for &block in blocks {
        if block != from + count {
            submit(from, count);
            (from, count) = (block, 0);
        }
        count += 1;
    }
    submit(from, count);
    task.park(m, None, Site::ReadWait, Culprit::Device).await;
}
