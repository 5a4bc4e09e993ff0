//! Slab caches: objects, the slabs that hold them, per-CPU arrays and the list lock of each node.
//!
//! Models: per cache and zone the number of slabs and of free objects in them, per CPU the array in front (limit and
//! batchcount by object size, `mm/slab.c: enable_cpucache`, 2.6.32), and until when the node's list lock is taken and
//! by whom. Inodes, dentries and radix tree nodes know their slab (`packed`), buffer_heads too with SLUB (`mm/slub.c`), which gives an
//! empty slab back once a list holds `min_partial` partial ones. Leaves out: which slab a buffer_head of SLAB is in: its slabs are given back as
//! soon as the free ones would fill them and exceed the node's limit; SLUB's partial slabs of each CPU.

use super::chunk::ChunkId;
use super::constant::constants;
use super::inode::InodeId;
use super::memory::Mm;
use super::packed::Packed;
use super::task::Culprit;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CacheKind {
    BufferHead,
    Inode,
    Dentry,
    RadixNode,
}

pub const CACHES: [CacheKind; 4] = [CacheKind::BufferHead, CacheKind::Inode, CacheKind::Dentry, CacheKind::RadixNode];

/// Where an object lies: the zone, and the slab in caches that keep account of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Object {
    pub zone: u8,
    pub slab: u32,
}

/// Size and packing of one cache's objects, from the profile.
#[derive(Clone, Copy, Debug)]
pub struct ObjectShape {
    pub name: &'static str,
    pub bytes: u64,
    /// Objects in a slab of one page.
    pub per_slab: u64,
}

const PAGE: u64 = 4096;

impl ObjectShape {
    /// Objects of mm/slab.c on a machine with words of so many bytes: as many as fit into one page, which is where caches of
    /// reclaimable objects stop (calculate_slab_order: SLAB_RECLAIM_ACCOUNT).
    #[must_use]
    pub const fn slab(name: &'static str, bytes: u64, word_bytes: u64) -> ObjectShape {
        ObjectShape { name, bytes, per_slab: per_slab(bytes, word_bytes) }
    }
}

/// mm/slab.c: cache_estimate and kmem_cache_create, 2.6.20 and 2.6.32: how many objects a slab of one page holds. Its own management (struct
/// slab: two links, two words, three numbers; and a kmem_bufctl_t for each object) is in the page, but for objects of an eighth of a
/// page and more outside it, unless what they leave has room.
const fn per_slab(bytes: u64, word_bytes: u64) -> u64 {
    let management = (4 * word_bytes + 10).next_multiple_of(word_bytes);
    if bytes >= PAGE / 8 {
        return PAGE / bytes;
    }
    let most = (PAGE - management) / (bytes + 4);
    let taken = (management + 4 * most).next_multiple_of(word_bytes) + most * bytes;
    if taken > PAGE { most - 1 } else { most }
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
    /// Objects ready on each CPU, and the zone they came from; `arrays` has them one by one where they know their slab.
    ready: Vec<(u16, u8)>,
    arrays: Vec<Vec<u32>>,
    packed: Option<Packed>,
    pub lists: Vec<SlabList>,
    /// One lock a node.
    pub locks: Vec<ListLock>,
    /// Free objects a node keeps before it gives slabs back (`free_limit`).
    keep: u64,
    /// With SLUB, partial slabs of a node with which an empty one is given back.
    min_partial: Option<u64>,
}

constants! {
    const MIN_PARTIAL: u64 = kernel(5, "mm/slub.c", "MIN_PARTIAL", "6.1");
    const MAX_PARTIAL: u64 = kernel(10, "mm/slub.c", "MAX_PARTIAL", "6.1");
}

/// mm/slub.c: kmem_cache_open, set_min_partial, 6.1.
fn min_partial(bytes: u64) -> u64 {
    (u64::from(bytes.max(1).ilog2()) / 2).clamp(MIN_PARTIAL.get(), MAX_PARTIAL.get())
}

impl SlabCache {
    #[must_use]
    pub fn new(
        kind: CacheKind,
        shape: ObjectShape,
        (cpus, zones, nodes): (usize, usize, usize),
        slub: bool,
    ) -> SlabCache {
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
            arrays: vec![Vec::new(); cpus],
            packed: (slub || kind != CacheKind::BufferHead).then(|| Packed::new(shape.per_slab, zones)),
            lists: vec![SlabList::default(); zones],
            locks: vec![ListLock::default(); nodes],
            min_partial: slub.then(|| min_partial(shape.bytes)),
            keep: (1 + (cpus / nodes.max(1)) as u64) * batch + shape.per_slab,
        }
    }

    /// An object from this CPU's array.
    #[inline]
    pub fn take_ready(&mut self, cpu: usize) -> Option<Object> {
        let (count, zone) = self.ready.get_mut(cpu)?;
        *count = count.checked_sub(1)?;
        let slab = if self.packed.is_some() { self.arrays[cpu].pop()? } else { 0 };
        Some(Object { zone: *zone, slab })
    }

    /// Moves up to a batch from the zone's slabs to the CPU's array.
    pub fn refill(&mut self, cpu: usize, zone: u8) -> u64 {
        let moved = self.lists[usize::from(zone)].free.min(self.batch);
        for _ in 0..moved {
            let Some(object) = self.take_one(zone) else { break };
            if self.packed.is_some() {
                self.arrays[cpu].push(object.slab);
            }
        }
        if moved > 0 {
            self.ready[cpu] = (moved as u16, zone);
        }
        moved
    }

    /// One object straight from the zone's slabs, past the array (`____cache_alloc_node`).
    pub fn take_one(&mut self, zone: u8) -> Option<Object> {
        let list = &mut self.lists[usize::from(zone)];
        list.free = list.free.checked_sub(1)?;
        let slab = match &mut self.packed {
            Some(packed) => packed.take(zone)?,
            None => 0,
        };
        Some(Object { zone, slab })
    }

    pub fn grow(&mut self, zone: u8) {
        let list = &mut self.lists[usize::from(zone)];
        list.slabs += 1;
        list.free += self.shape.per_slab;
        if let Some(packed) = &mut self.packed {
            packed.grow(zone);
        }
    }

    /// Gives objects of a cache without account back; returns the pages of slabs that this emptied.
    pub fn give(&mut self, zone: u8, objects: u64) -> u64 {
        let list = &mut self.lists[usize::from(zone)];
        list.free += objects;
        let spare = list.free.saturating_sub(self.keep) / self.shape.per_slab;
        list.slabs -= spare;
        list.free -= spare * self.shape.per_slab;
        spare
    }

    /// Gives one object back; returns 1 if its slab went with it.
    pub fn give_one(&mut self, object: Object) -> u64 {
        let Some(packed) = &mut self.packed else { return self.give(object.zone, 1) };
        let list = &mut self.lists[usize::from(object.zone)];
        list.free += 1;
        // mm/slub.c: __slab_free, 6.1: a slab whose last object this is is given back if its list holds enough partial ones.
        let enough = self.min_partial.map_or(list.free > self.keep, |least| packed.partial(object.zone) >= least);
        let gone = packed.give(object.slab, enough);
        if gone {
            list.slabs -= 1;
            list.free -= self.shape.per_slab;
        }
        u64::from(gone)
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

impl Mm {
    /// Whether this page of the file makes its radix tree higher than the root (lib/radix-tree.c: radix_tree_extend).
    pub fn needs_node(&self, inode: InodeId, page: u64) -> bool {
        self.profile.radix_nodes && page > 0 && !self.is_block_device(inode) && self.inodes.get(inode).node.is_none()
    }

    /// Its node goes with its last page.
    pub fn free_node(&mut self, inode: InodeId, cpu: u16) {
        let inode = self.inodes.get_mut(inode);
        if inode.pages == 0
            && let Some(node) = inode.node.take()
        {
            self.free_object(CacheKind::RadixNode, node, cpu);
        }
    }

    /// Gives slab objects back; slabs that this empties return to their zone.
    pub fn free_objects(&mut self, kind: CacheKind, zone: u8, objects: u64, cpu: u16) {
        let bytes = self.cache(kind).shape.bytes;
        self.cgroup.uncharge_objects(objects * bytes, cpu);
        let pages = self.cache_mut(kind).give(zone, objects);
        self.free_slabs(zone, pages, cpu);
    }

    /// Gives the buffer_heads of these pages of a chunk back.
    pub fn free_buffers(&mut self, id: ChunkId, bits: u32, cpu: u16) {
        let zone = self.chunks.get(id).buffer_zone;
        if !self.profile.slub {
            return self.free_objects(CacheKind::BufferHead, zone, u64::from(bits.count_ones()), cpu);
        }
        for slab in self.chunks.buffer_slabs.of(id, bits) {
            self.free_object(CacheKind::BufferHead, Object { zone, slab }, cpu);
        }
    }

    /// Gives one object back.
    pub fn free_object(&mut self, kind: CacheKind, object: Object, cpu: u16) {
        let bytes = self.cache(kind).shape.bytes;
        self.cgroup.uncharge_objects(bytes, cpu);
        let pages = self.cache_mut(kind).give_one(object);
        self.free_slabs(object.zone, pages, cpu);
    }

    fn free_slabs(&mut self, zone: u8, pages: u64, cpu: u16) {
        if pages > 0 {
            let slot = &mut self.zones[usize::from(zone)];
            slot.slab -= pages;
            slot.slab_reclaimable -= pages;
            self.give_frames(zone, cpu, pages, true);
        }
    }

    /// A slab made of a frame just taken from the zone.
    pub fn add_slab(&mut self, kind: CacheKind, zone: u8) {
        self.cache_mut(kind).grow(zone);
        let slot = &mut self.zones[usize::from(zone)];
        slot.slab += 1;
        slot.slab_reclaimable += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::{CacheKind, Object, ObjectShape, SlabCache, min_partial, per_slab};

    #[test]
    fn slub_gives_an_empty_slab_back_once_five_others_are_partial() {
        assert_eq!([104, 192, 1176, 1 << 22].map(min_partial), [5, 5, 5, 10], "half the logarithm, 5 to 10");
        let shape = ObjectShape { name: "buffer_head", bytes: 104, per_slab: 2 };
        let mut cache = SlabCache::new(CacheKind::BufferHead, shape, (1, 1, 1), true);
        (0..6).for_each(|_| cache.grow(0));
        let taken: Vec<Object> = std::iter::from_fn(|| cache.take_one(0)).collect();
        let slabs: Vec<u32> = taken.iter().map(|object| object.slab).collect();
        assert_eq!((slabs[0], slabs[1]), (slabs[0], slabs[0]), "one is filled after the other");
        // One object of each of four slabs: all are partial, and none is given back.
        assert_eq!([0, 2, 4, 6].map(|at| cache.give_one(taken[at])), [0; 4]);
        // The last object of one of them: with four partial slabs it stays.
        assert_eq!(cache.give_one(taken[1]), 0);
        // A fifth becomes partial, and what empties now goes.
        assert_eq!(cache.give_one(taken[8]), 0);
        assert_eq!((cache.give_one(taken[3]), cache.slabs()), (1, 5));
    }

    /// By hand from mm/slab.c: (4096 - 28 or 48) / (size + 4), and management + objects in the page.
    #[test]
    fn a_slab_holds_what_cache_estimate_says() {
        for (bytes, word_bytes, objects) in [
            (104, 8, 37),
            (56, 4, 67),
            (208, 8, 19),
            (192, 8, 20),
            (132, 4, 29),
            (288, 4, 13),
            // 48 + 4 x 16 + 16 x 248 is 4080; 17 would not fit beside their management, which the first guess leaves unpadded.
            (248, 8, 16),
            // An eighth of a page and more: the management lies elsewhere, or in what is left.
            (680, 8, 6),
            (760, 8, 5),
            (552, 8, 7),
            // 32 bits, 420 B: management in the page.
            (420, 4, 9),
        ] {
            assert_eq!(per_slab(bytes, word_bytes), objects, "{bytes} B, words of {word_bytes} B");
        }
    }
}
