//! The doubly linked lists of buffers in 2.2: three LRU lists and the free list of the only block size.

use super::buffers::Buffer;

pub const NONE: u32 = u32::MAX;

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
pub struct List {
    pub head: u32,
    pub tail: u32,
    pub len: u64,
}

#[derive(Debug)]
pub struct Lists(pub [List; 4]);

impl Default for Lists {
    fn default() -> Lists {
        Lists([List { head: NONE, tail: NONE, len: 0 }; 4])
    }
}

impl Lists {
    pub fn len(&self, on: On) -> u64 {
        self.0.get(on as usize).map_or(0, |list| list.len)
    }

    pub fn head(&self, on: On) -> u32 {
        self.0.get(on as usize).map_or(NONE, |list| list.head)
    }

    pub fn remove(&mut self, all: &mut [Buffer], id: u32) {
        let Buffer { on, prev, next, .. } = all[id as usize];
        let Some(list) = self.0.get_mut(on as usize) else { return };
        match prev {
            NONE => list.head = next,
            prev => all[prev as usize].next = next,
        }
        match next {
            NONE => list.tail = prev,
            next => all[next as usize].prev = prev,
        }
        list.len -= 1;
        all[id as usize].on = On::Nowhere;
    }

    pub fn push_back(&mut self, all: &mut [Buffer], id: u32, on: On) {
        let Some(list) = self.0.get_mut(on as usize) else { return };
        let last = std::mem::replace(&mut list.tail, id);
        list.len += 1;
        match last {
            NONE => list.head = id,
            last => all[last as usize].next = id,
        }
        let buffer = &mut all[id as usize];
        (buffer.on, buffer.prev, buffer.next) = (on, last, NONE);
    }
}
