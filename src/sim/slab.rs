//! Slab caches: objects, the slabs that hold them, per-CPU arrays and the list lock of each node.
//!
//! Models: per cache and zone the number of slabs and of free objects in them, per CPU the array in front
//! (limit and batchcount by object size, `mm/slab.c: enable_cpucache`, 2.6.32), and until when the node's list
//! lock is taken and by whom. Leaves out: which object lies in which slab. Slabs are given back as soon as the
//! free objects would fill them and exceed the node's limit, so fragmentation by mixed lifetimes is not shown.

use super::task::Culprit;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheKind {
    BufferHead,
    Inode,
    Dentry,
    RadixNode,
}

pub const CACHES: [CacheKind; 4] = [CacheKind::BufferHead, CacheKind::Inode, CacheKind::Dentry, CacheKind::RadixNode];

/// Size and packing of one cache's objects, from the profile.
#[derive(Clone, Copy, Debug)]
pub struct ObjectShape {
    pub name: &'static str,
    pub bytes: u64,
    /// Objects in a slab of one page.
    pub per_slab: u64,
}

#[derive(Clone, Debug, Default)]
pub struct SlabList {
    pub slabs: u64,
    /// Objects of these slabs that nobody holds.
    pub free: u64,
}

#[derive(Clone, Debug, Default)]
pub struct ListLock {
    pub free_at_ns: u64,
    pub holder: Culprit,
}

#[derive(Clone, Debug)]
pub struct SlabCache {
    pub shape: ObjectShape,
    pub batch: u64,
    /// Objects ready on each CPU, and the zone they came from.
    ready: Vec<(u16, u8)>,
    pub lists: Vec<SlabList>,
    /// One lock a node.
    pub locks: Vec<ListLock>,
    /// Free objects a node keeps before it gives slabs back (`free_limit`).
    keep: u64,
}

impl SlabCache {
    #[must_use]
    pub fn new(shape: ObjectShape, cpus: usize, zones: usize, nodes: usize) -> SlabCache {
        let limit: u64 = match shape.bytes {
            0..=256 => 120,
            257..=1024 => 54,
            1025..=4096 => 24,
            _ => 8,
        };
        let batch = limit.div_ceil(2);
        SlabCache {
            shape,
            batch,
            ready: vec![(0, 0); cpus],
            lists: vec![SlabList::default(); zones],
            locks: vec![ListLock::default(); nodes],
            keep: (1 + (cpus / nodes.max(1)) as u64) * batch + shape.per_slab,
        }
    }

    /// An object from this CPU's array.
    #[inline]
    pub fn take_ready(&mut self, cpu: usize) -> Option<u8> {
        let (count, zone) = self.ready.get_mut(cpu)?;
        *count = count.checked_sub(1)?;
        Some(*zone)
    }

    /// Moves up to a batch from the zone's slabs to the CPU's array.
    pub fn refill(&mut self, cpu: usize, zone: u8) -> u64 {
        let list = &mut self.lists[usize::from(zone)];
        let moved = list.free.min(self.batch);
        list.free -= moved;
        if moved > 0 {
            self.ready[cpu] = (moved as u16, zone);
        }
        moved
    }

    /// One object straight from the zone's slabs, past the array (`____cache_alloc_node`).
    pub fn take_one(&mut self, zone: u8) -> bool {
        let list = &mut self.lists[usize::from(zone)];
        let took = list.free > 0;
        list.free -= u64::from(took);
        took
    }

    pub fn grow(&mut self, zone: u8) {
        let list = &mut self.lists[usize::from(zone)];
        list.slabs += 1;
        list.free += self.shape.per_slab;
    }

    /// Gives objects back; returns the pages of slabs that this emptied.
    pub fn give(&mut self, zone: u8, objects: u64) -> u64 {
        let list = &mut self.lists[usize::from(zone)];
        list.free += objects;
        let spare = list.free.saturating_sub(self.keep) / self.shape.per_slab;
        list.slabs -= spare;
        list.free -= spare * self.shape.per_slab;
        spare
    }

    pub fn used(&self) -> u64 {
        let ready: u64 = self.ready.iter().map(|&(count, _)| u64::from(count)).sum();
        let all: u64 = self.lists.iter().map(|list| list.slabs * self.shape.per_slab - list.free).sum();
        all - ready
    }

    pub fn slabs(&self) -> u64 {
        self.lists.iter().map(|list| list.slabs).sum()
    }

    /// Fills slabs as a machine that has been up for long would have: no array, all objects in use.
    pub fn prefill(&mut self, zone: u8, objects: u64) -> u64 {
        let list = &mut self.lists[usize::from(zone)];
        let more = objects.saturating_sub(list.free).div_ceil(self.shape.per_slab);
        list.slabs += more;
        list.free += more * self.shape.per_slab;
        list.free -= objects;
        more
    }
}
