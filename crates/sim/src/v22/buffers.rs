//! The buffer cache of 2.2 (fs/buffer.c): hash, LRU lists, free list, getblk, brelse, refile_buffer, and bforget in its
//! three forms.
//!
//! Granularity: one buffer of 1 KiB, four to a page. Leaves out: other block sizes (one free list is enough), BH_Req,
//! BH_Protected (ramdisks), the order of the hash chains, and NODEV buffers' place in the hash.

use crate::fs::inode::KeyMap;
use crate::kernel::Bforget;
use crate::linked::{Link, Linked, List, NONE};

pub const PER_PAGE: u32 = 4;
/// The block number of a buffer that is in no hash chain.
pub const NAMELESS: u32 = u32::MAX;

/// The lists: three LRU lists, and the free list of the only block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum On {
    Clean = 0,
    Locked = 1,
    Dirty = 2,
    /// Not used since `grow_buffers` created it, or returned by `put_last_free`.
    Free = 3,
    /// Its page was freed.
    Nowhere = 4,
}

#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    pub block: u32,
    pub on: On,
    pub uptodate: bool,
    pub dirty: bool,
    pub locked: bool,
    pub count: u16,
    link: Link,
    pub flush_at_ns: u64,
}

impl Linked for Buffer {
    fn link(&mut self, _: usize) -> &mut Link {
        &mut self.link
    }
}

const FRESH: Buffer = Buffer {
    block: NAMELESS,
    on: On::Nowhere,
    uptodate: false,
    dirty: false,
    locked: false,
    count: 0,
    link: Link { prev: NONE, next: NONE },
    flush_at_ns: 0,
};

#[derive(Debug, Default)]
pub struct Buffers {
    pub all: Vec<Buffer>,
    lists: [List; 4],
    hash: KeyMap<u32, u32>,
    free_slots: Vec<u32>,
    /// Pages that hold buffers: `buffermem`.
    pub pages: u64,
    /// Buffers that bforget has removed from the hash, since boot.
    pub orphaned: u64,
}

impl Buffers {
    pub fn count(&self, on: On) -> u64 {
        self.lists.get(on as usize).map_or(0, |list| list.len)
    }

    fn take_off(&mut self, id: u32) {
        let on = std::mem::replace(&mut self.all[id as usize].on, On::Nowhere);
        if let Some(list) = self.lists.get_mut(on as usize) {
            list.remove(&mut self.all, 0, id);
        }
    }

    /// Moves a buffer to the end of a list.
    fn put(&mut self, id: u32, on: On) {
        self.take_off(id);
        self.all[id as usize].on = on;
        self.lists[on as usize].push_tail(&mut self.all, 0, id);
    }

    /// get_hash_table(): the buffer of the block with a reference, if it exists.
    pub fn find(&mut self, block: u32) -> Option<u32> {
        let id = *self.hash.get(&block)?;
        self.all[id as usize].count += 1;
        Some(id)
    }

    /// getblk() without growing: `None` if the free list is empty.
    pub fn getblk(&mut self, block: u32) -> Option<u32> {
        if let Some(id) = self.find(block) {
            let buffer = &self.all[id as usize];
            if buffer.uptodate && !buffer.dirty && buffer.on == On::Clean {
                self.put(id, On::Clean);
            }
            return Some(id);
        }
        let id = Some(self.lists[On::Free as usize].head).filter(|&id| id != NONE)?;
        self.take_off(id);
        self.all[id as usize] = Buffer { block, count: 1, ..FRESH };
        self.put(id, On::Clean);
        self.hash.insert(block, id);
        Some(id)
    }

    /// The part of grow_buffers() after the page was allocated: puts four buffers on the free list. Returns the number
    /// of the page's slot.
    pub fn grow(&mut self) -> u32 {
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            let slot = self.all.len() as u32 / PER_PAGE;
            self.all.extend([FRESH; PER_PAGE as usize]);
            slot
        });
        for id in slot * PER_PAGE..(slot + 1) * PER_PAGE {
            self.all[id as usize] = FRESH;
            self.put(id, On::Free);
        }
        self.pages += 1;
        slot
    }

    /// refile_buffer()
    pub fn refile(&mut self, id: u32) {
        let buffer = &self.all[id as usize];
        let to = if buffer.dirty {
            On::Dirty
        } else if buffer.locked {
            On::Locked
        } else {
            On::Clean
        };
        if buffer.on != to && buffer.on != On::Free {
            self.put(id, to);
        }
    }

    pub fn mark_dirty(&mut self, id: u32, flush_at_ns: u64) {
        let buffer = &mut self.all[id as usize];
        buffer.uptodate = true;
        if !std::mem::replace(&mut buffer.dirty, true) {
            buffer.flush_at_ns = flush_at_ns;
        }
    }

    /// __brelse()
    pub fn brelse(&mut self, id: u32) {
        self.refile(id);
        let buffer = &mut self.all[id as usize];
        buffer.count = buffer.count.saturating_sub(1);
    }

    /// __bforget() of a referenced buffer. The three kernels differ only in the list that gets the buffer.
    pub fn bforget(&mut self, id: u32, form: Bforget) {
        let Buffer { count, locked, .. } = self.all[id as usize];
        match form {
            Bforget::Orphans => {
                self.make_nameless(id);
                self.orphaned += 1;
                self.brelse(id);
            }
            Bforget::FreesWhenUnheld => {
                self.make_nameless(id);
                let buffer = &mut self.all[id as usize];
                buffer.count = buffer.count.saturating_sub(1);
                if buffer.count == 0 && !locked {
                    self.put_last_free(id);
                } else {
                    self.orphaned += 1;
                    self.refile(id);
                }
            }
            Bforget::PutsLastFree if count != 1 || locked => self.brelse(id),
            Bforget::PutsLastFree => {
                self.make_nameless(id);
                self.put_last_free(id);
            }
        }
    }

    fn make_nameless(&mut self, id: u32) {
        let buffer = &mut self.all[id as usize];
        buffer.dirty = false;
        let block = std::mem::replace(&mut buffer.block, NAMELESS);
        if block != NAMELESS {
            self.hash.remove(&block);
        }
    }

    fn put_last_free(&mut self, id: u32) {
        self.take_off(id);
        self.all[id as usize] = FRESH;
        self.put(id, On::Free);
    }

    /// try_to_free_buffers(): false if any buffer of the page is in use; bdflush is then woken by the caller.
    pub fn try_to_free(&mut self, slot: u32) -> bool {
        let ids = slot * PER_PAGE..(slot + 1) * PER_PAGE;
        let busy = |buffer: &Buffer| buffer.count > 0 || buffer.dirty || buffer.locked;
        if ids.clone().any(|id| busy(&self.all[id as usize])) {
            return false;
        }
        for id in ids {
            self.make_nameless(id);
            self.take_off(id);
        }
        self.free_slots.push(slot);
        self.pages -= 1;
        true
    }

    /// Dirty buffers in LRU order, those due by `now_ns` only if asked for, locked for writing: (buffer, block).
    pub fn lock_dirty(&mut self, at_most: usize, due_by_ns: Option<u64>) -> Vec<(u32, u32)> {
        let mut locked = Vec::new();
        let mut id = self.lists[On::Dirty as usize].head;
        while id != NONE && locked.len() < at_most {
            let buffer = &mut self.all[id as usize];
            let (this, next) = (id, buffer.link.next);
            id = next;
            if buffer.locked || due_by_ns.is_some_and(|by| buffer.flush_at_ns > by) {
                continue;
            }
            (buffer.dirty, buffer.locked) = (false, true);
            locked.push((this, buffer.block));
            self.refile(this);
        }
        locked
    }

    /// The I/O has ended. The kernel refiles such buffers on later walks of the LOCKED list, the model at once.
    pub fn io_done(&mut self, id: u32) {
        let buffer = &mut self.all[id as usize];
        (buffer.locked, buffer.uptodate) = (false, true);
        self.refile(id);
    }
}
