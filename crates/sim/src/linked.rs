//! Doubly linked lists over entries with numbers (`struct list_head`).

/// No entry.
pub const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub prev: u32,
    pub next: u32,
}

/// An entry that can be on lists; `which` tells its links apart.
pub trait Linked {
    fn link(&mut self, which: usize) -> &mut Link;
}

#[derive(Clone, Copy, Debug)]
pub struct List {
    pub head: u32,
    pub tail: u32,
    pub len: u64,
}

impl Default for Link {
    fn default() -> Link {
        Link { prev: NONE, next: NONE }
    }
}

impl Default for List {
    fn default() -> List {
        List { head: NONE, tail: NONE, len: 0 }
    }
}

impl List {
    pub fn push_head(&mut self, all: &mut [impl Linked], which: usize, id: u32) {
        let next = std::mem::replace(&mut self.head, id);
        self.join(all, which, id, Link { prev: NONE, next });
    }

    pub fn push_tail(&mut self, all: &mut [impl Linked], which: usize, id: u32) {
        let prev = std::mem::replace(&mut self.tail, id);
        self.join(all, which, id, Link { prev, next: NONE });
    }

    fn join(&mut self, all: &mut [impl Linked], which: usize, id: u32, link: Link) {
        *all[id as usize].link(which) = link;
        self.len += 1;
        match link.prev {
            NONE => self.head = id,
            prev => all[prev as usize].link(which).next = id,
        }
        match link.next {
            NONE => self.tail = id,
            next => all[next as usize].link(which).prev = id,
        }
    }

    pub fn remove(&mut self, all: &mut [impl Linked], which: usize, id: u32) {
        let Link { prev, next } = *all[id as usize].link(which);
        self.len -= 1;
        match prev {
            NONE => self.head = next,
            prev => all[prev as usize].link(which).next = next,
        }
        match next {
            NONE => self.tail = prev,
            next => all[next as usize].link(which).prev = prev,
        }
    }
}
