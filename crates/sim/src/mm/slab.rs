//! Slab caches: objects, the slabs that hold them, per-CPU arrays and the list lock of each node.
//!
//! Models: the number of slabs and free objects of each cache and zone, the array of each CPU (limit and batchcount by
//! object size, `mm/slab.c: enable_cpucache`, 2.6.32), and the queue of each node's list lock. The slab of each inode,
//! dentry and tree node is known (`slab_partial`), with SLUB (`mm/slub.c`) also that of each buffer_head. SLUB frees an
//! empty slab if the list has `min_partial` partial slabs; the slab size depends on the number of CPUs
//! (`calculate_order`), and is one page if a larger slab cannot be allocated. Leaves out: the slab of a buffer_head of
//! SLAB, whose slabs are freed as soon as the free objects would fill them and exceed the node's limit; SLUB's partial
//! slabs of each CPU.

use crate::constant::constants;
use crate::fs::inode::InodeId;
use crate::kernel::PAGE_BYTES;
use crate::mm::chunk::ChunkId;
use crate::mm::memory::Mm;
use crate::mm::slab_partial::ZoneSlabs;
use crate::sched::task::Culprit;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CacheKind {
    BufferHead,
    Inode,
    Dentry,
    RadixNode,
}

pub const CACHES: [CacheKind; 4] = [CacheKind::BufferHead, CacheKind::Inode, CacheKind::Dentry, CacheKind::RadixNode];

/// The zone of an object, and its slab in caches that count objects by slab.
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
    /// Objects in a slab, and its pages.
    pub per_slab: u64,
    pub pages: u64,
}

impl ObjectShape {
    /// Shape of a cache of mm/slab.c on a machine with words of `word_bytes`: slabs of reclaimable objects have one
    /// page (calculate_slab_order: SLAB_RECLAIM_ACCOUNT).
    #[must_use]
    pub const fn slab(name: &'static str, bytes: u64, word_bytes: u64) -> ObjectShape {
        ObjectShape { name, bytes, per_slab: per_slab(bytes, word_bytes), pages: 1 }
    }

    /// mm/slub.c: calculate_order, calc_slab_order, 6.12: enough objects for the machine's CPUs, and little waste.
    #[must_use]
    pub fn on_cpus(self, cpus: usize) -> ObjectShape {
        let largest = PAGE_BYTES << SLUB_MAX_ORDER.get();
        let fls = u64::from(cpus.max(1).ilog2()) + 1;
        let least = (OBJECTS_PER_FLS.get() * (fls + 1)).min((largest / self.bytes).max(1));
        let first = (least * self.bytes).div_ceil(PAGE_BYTES).next_power_of_two().ilog2();
        let fits = |fraction: u64| {
            let mut sizes = (first..=SLUB_MAX_ORDER.get()).map(|order| PAGE_BYTES << order);
            sizes.find(|size| size % self.bytes <= size / fraction)
        };
        match [16, 8, 4, 2].into_iter().find_map(fits) {
            Some(size) if size > PAGE_BYTES => {
                ObjectShape { per_slab: size / self.bytes, pages: size / PAGE_BYTES, ..self }
            }
            _ => self,
        }
    }

    /// Objects and pages of a slab, or of the smallest slab (`s->min`).
    fn of_slab(self, is_large: bool) -> (u64, u64) {
        if is_large || self.pages == 1 { (self.per_slab, self.pages) } else { (PAGE_BYTES / self.bytes, 1) }
    }
}

/// mm/slab.c: cache_estimate and kmem_cache_create, 2.6.20 and 2.6.32: objects in a slab of one page. Its management
/// (struct slab: two links, two words, three numbers; and a kmem_bufctl_t for each object) is in the page. For objects
/// of an eighth of a page and more it is outside, unless the objects leave room for it.
const fn per_slab(bytes: u64, word_bytes: u64) -> u64 {
    let management = (4 * word_bytes + 10).next_multiple_of(word_bytes);
    if bytes >= PAGE_BYTES / 8 {
        return PAGE_BYTES / bytes;
    }
    let most = (PAGE_BYTES - management) / (bytes + 4);
    let taken = (management + 4 * most).next_multiple_of(word_bytes) + most * bytes;
    if taken > PAGE_BYTES { most - 1 } else { most }
}

#[derive(Clone, Debug, Default)]
pub struct SlabList {
    pub slabs: u64,
    pub pages: u64,
    objects: u64,
    /// Free objects of these slabs.
    pub free: u64,
}

#[derive(Clone, Debug, Default)]
pub struct ListLock {
    free_at_ns: u64,
    /// Until then a monitor holds the lock or waits for it.
    monitor_until_ns: u64,
}

impl ListLock {
    /// Joins the queue of the lock, which is served in order (ticket spinlocks, 2.6.25 and later). Returns when the
    /// lock is free, and the cause of the wait; `None` if it is free now.
    pub fn queue(&mut self, now_ns: u64, hold_ns: u64) -> Option<(u64, Culprit)> {
        // A task behind others that wait for a monitor waits for the monitor.
        let holder = if now_ns < self.monitor_until_ns { Culprit::Monitor } else { Culprit::Peers };
        let waits = (self.free_at_ns > now_ns).then_some((self.free_at_ns, holder));
        self.free_at_ns = self.free_at_ns.max(now_ns) + hold_ns;
        waits
    }

    /// As `queue`, for a monitor, whose own waits are not recorded.
    pub fn queue_monitor(&mut self, now_ns: u64, hold_ns: u64) {
        self.queue(now_ns, hold_ns);
        self.monitor_until_ns = self.free_at_ns;
    }
}

#[derive(Clone, Debug)]
pub struct SlabCache {
    pub shape: ObjectShape,
    pub batch: u64,
    /// Number of objects in each CPU's array, and their zone; `arrays` has their slabs.
    ready: Vec<(u16, u8)>,
    arrays: Vec<Vec<u32>>,
    zone_slabs: Option<ZoneSlabs>,
    pub lists: Vec<SlabList>,
    /// The list lock of each node.
    pub locks: Vec<ListLock>,
    /// Free objects of a node beyond which its slabs are freed (`free_limit`).
    keep: u64,
    /// SLUB: number of partial slabs from which on an empty slab is freed.
    min_partial: Option<u64>,
}

constants! {
    const MIN_PARTIAL: u64 = kernel(5, "mm/slub.c", "MIN_PARTIAL", "6.1");
    const MAX_PARTIAL: u64 = kernel(10, "mm/slub.c", "MAX_PARTIAL", "6.1");
    const SLUB_MAX_ORDER: u32 = kernel(3, "mm/slub.c", "slub_max_order (PAGE_ALLOC_COSTLY_ORDER)", "6.12");
    const OBJECTS_PER_FLS: u64 = kernel(4, "mm/slub.c", "calculate_order (4 * (fls(nr_cpus) + 1))", "6.12");
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
            1025..=PAGE_BYTES => 24,
            _ => 8,
        };
        let batch = limit.div_ceil(2);
        SlabCache {
            shape,
            batch,
            ready: vec![(0, 0); cpus],
            arrays: vec![Vec::new(); cpus],
            zone_slabs: (slub || kind != CacheKind::BufferHead).then(|| ZoneSlabs::new(zones)),
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
        let slab = if self.zone_slabs.is_some() { self.arrays[cpu].pop()? } else { 0 };
        Some(Object { zone: *zone, slab })
    }

    /// Moves up to a batch from the zone's slabs to the CPU's array.
    pub fn refill(&mut self, cpu: usize, zone: u8) -> u64 {
        let moved = self.lists[usize::from(zone)].free.min(self.batch);
        for _ in 0..moved {
            let Some(object) = self.take_one(zone) else { break };
            if self.zone_slabs.is_some() {
                self.arrays[cpu].push(object.slab);
            }
        }
        if moved > 0 {
            self.ready[cpu] = (moved as u16, zone);
        }
        moved
    }

    /// One object from the zone's slabs, without the array (`____cache_alloc_node`).
    pub fn take_one(&mut self, zone: u8) -> Option<Object> {
        let list = &mut self.lists[usize::from(zone)];
        list.free = list.free.checked_sub(1)?;
        let slab = match &mut self.zone_slabs {
            Some(zone_slabs) => zone_slabs.take(zone)?,
            None => 0,
        };
        Some(Object { zone, slab })
    }

    /// Adds a slab of the usual or the smallest size; returns its pages.
    pub fn grow(&mut self, zone: u8, is_large: bool) -> u64 {
        let (objects, pages) = self.shape.of_slab(is_large);
        let list = &mut self.lists[usize::from(zone)];
        (list.slabs, list.pages) = (list.slabs + 1, list.pages + pages);
        (list.objects, list.free) = (list.objects + objects, list.free + objects);
        if let Some(zone_slabs) = &mut self.zone_slabs {
            zone_slabs.grow(zone, objects);
        }
        pages
    }

    /// Removes freed slabs from the counts.
    fn lose(&mut self, zone: u8, slabs: u64, objects: u64, pages: u64) {
        let list = &mut self.lists[usize::from(zone)];
        (list.slabs, list.pages) = (list.slabs - slabs, list.pages - pages);
        (list.objects, list.free) = (list.objects - objects, list.free - objects);
    }

    /// Frees objects of a cache that does not count objects by slab; returns the pages of slabs that this emptied.
    pub fn give(&mut self, zone: u8, objects: u64) -> u64 {
        let list = &mut self.lists[usize::from(zone)];
        list.free += objects;
        let spare = list.free.saturating_sub(self.keep) / self.shape.per_slab;
        self.lose(zone, spare, spare * self.shape.per_slab, spare);
        spare
    }

    /// Frees one object; returns the slab's pages if that was the last object.
    pub fn give_one(&mut self, object: Object) -> u64 {
        let Some(zone_slabs) = &mut self.zone_slabs else { return self.give(object.zone, 1) };
        let list = &mut self.lists[usize::from(object.zone)];
        list.free += 1;
        // mm/slub.c: __slab_free, 6.1: an empty slab is freed if its list has enough partial slabs.
        let enough = self.min_partial.map_or(list.free > self.keep, |least| zone_slabs.partial(object.zone) >= least);
        let Some(objects) = zone_slabs.give(object.slab, enough) else { return 0 };
        let (_, pages) = self.shape.of_slab(objects == self.shape.per_slab);
        self.lose(object.zone, 1, objects, pages);
        pages
    }

    pub fn used(&self) -> u64 {
        let ready: u64 = self.ready.iter().map(|&(count, _)| u64::from(count)).sum();
        let all: u64 = self.lists.iter().map(|list| list.objects - list.free).sum();
        all - ready
    }

    /// Objects that the slabs have room for.
    pub fn objects(&self) -> u64 {
        self.lists.iter().map(|list| list.objects).sum()
    }

    pub fn slabs(&self) -> u64 {
        self.lists.iter().map(|list| list.slabs).sum()
    }

    /// Fills slabs as on a machine that has been up for long: all objects in use. Returns the pages of new slabs.
    pub fn prefill(&mut self, zone: u8, objects: u64) -> u64 {
        let list = &mut self.lists[usize::from(zone)];
        let more = objects.saturating_sub(list.free).div_ceil(self.shape.per_slab);
        let (room, pages) = (more * self.shape.per_slab, more * self.shape.pages);
        (list.slabs, list.pages) = (list.slabs + more, list.pages + pages);
        (list.objects, list.free) = (list.objects + room, list.free + room - objects);
        pages
    }
}

impl Mm {
    /// Whether this page of the file needs the radix tree's first node (lib/radix-tree.c: radix_tree_extend).
    pub fn needs_node(&self, inode: InodeId, page: u64) -> bool {
        self.profile.radix_nodes && page > 0 && !self.is_block_device(inode) && self.inodes.get(inode).node.is_none()
    }

    /// Frees the file's node with its last page.
    pub fn free_node(&mut self, inode: InodeId, cpu: u16) {
        let inode = self.inodes.get_mut(inode);
        if inode.pages == 0
            && let Some(node) = inode.node.take()
        {
            self.free_object(CacheKind::RadixNode, node, cpu);
        }
    }

    /// Frees slab objects; slabs that this empties return to their zone.
    pub fn free_objects(&mut self, kind: CacheKind, zone: u8, objects: u64, cpu: u16) {
        let bytes = self.cache(kind).shape.bytes;
        self.cgroup.uncharge_objects(objects * bytes, cpu);
        let pages = self.cache_mut(kind).give(zone, objects);
        self.free_slabs(zone, pages, cpu);
    }

    /// Frees the buffer_heads of pages of a chunk.
    pub fn free_buffers(&mut self, id: ChunkId, bits: u32, cpu: u16) {
        let zone = self.chunks.get(id).buffer_zone;
        if !self.profile.is_6() {
            return self.free_objects(CacheKind::BufferHead, zone, u64::from(bits.count_ones()), cpu);
        }
        for slab in self.chunks.buffer_slabs.of(id, bits) {
            self.free_object(CacheKind::BufferHead, Object { zone, slab }, cpu);
        }
    }

    /// Frees one object.
    pub fn free_object(&mut self, kind: CacheKind, object: Object, cpu: u16) {
        let bytes = self.cache(kind).shape.bytes;
        self.cgroup.uncharge_objects(bytes, cpu);
        let pages = self.cache_mut(kind).give_one(object);
        if pages > 0 {
            self.uncount_slab(object.zone, pages);
            self.give_frames(object.zone, cpu, pages);
        }
    }

    fn uncount_slab(&mut self, zone: u8, pages: u64) {
        let slot = &mut self.zones[usize::from(zone)];
        slot.slab -= pages;
        slot.slab_reclaimable -= pages;
    }

    fn free_slabs(&mut self, zone: u8, pages: u64, cpu: u16) {
        if pages > 0 {
            self.uncount_slab(zone, pages);
            (0..pages).for_each(|_| self.give_frames(zone, cpu, 1));
        }
    }

    /// Adds a slab of one frame, or of the cache's usual number, just taken from the zone.
    pub fn add_slab(&mut self, kind: CacheKind, zone: u8, is_large: bool) {
        let pages = self.cache_mut(kind).grow(zone, is_large);
        let slot = &mut self.zones[usize::from(zone)];
        slot.slab += pages;
        slot.slab_reclaimable += pages;
    }
}

#[cfg(test)]
mod tests {
    use super::{CacheKind, ListLock, Object, ObjectShape, PAGE_BYTES, SlabCache, min_partial, per_slab};
    use crate::sched::task::Culprit;

    #[test]
    fn the_list_lock_is_served_in_the_order_of_arrival() {
        let mut lock = ListLock::default();
        assert_eq!(lock.queue(100, 10), None);
        assert_eq!(lock.queue(101, 10), Some((110, Culprit::Peers)));
        assert_eq!(lock.queue(102, 10), Some((120, Culprit::Peers)), "behind the second");
        assert_eq!(lock.queue(130, 10), None, "free again");
        lock = ListLock::default();
        lock.queue_monitor(0, 35_000_000);
        let waits = [lock.queue(1_000, 10), lock.queue(2_000, 10)];
        assert_eq!(waits, [Some((35_000_000, Culprit::Monitor)), Some((35_000_010, Culprit::Monitor))]);
        assert_eq!(lock.queue(35_000_005, 10), Some((35_000_020, Culprit::Peers)), "the monitor is done");
    }

    #[test]
    fn slub_gives_an_empty_slab_back_once_five_others_are_partial() {
        assert_eq!([104, 192, 1176, 1 << 22].map(min_partial), [5, 5, 5, 10], "half the logarithm, 5 to 10");
        let shape = ObjectShape { name: "buffer_head", bytes: 104, per_slab: 2, pages: 1 };
        let mut cache = SlabCache::new(CacheKind::BufferHead, shape, (1, 1, 1), true);
        (0..6).for_each(|_| _ = cache.grow(0, true));
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

    /// 4 * (fls(cpus) + 1) objects: 12 of 1192 B are 14 304, which is four pages, of which 13 leave 888 of 16 384 / 16
    /// = 1024.
    #[test]
    fn slabs_of_slub_are_as_large_as_the_cpus_make_them() {
        let pages = |bytes: u64, cpus: usize| {
            let shape = ObjectShape { name: "", bytes, per_slab: PAGE_BYTES / bytes, pages: 1 }.on_cpus(cpus);
            (shape.per_slab, shape.pages)
        };
        assert_eq!([1, 2, 3, 4].map(|cpus| pages(1192, cpus)), [(13, 4), (13, 4), (13, 4), (27, 8)]);
        assert_eq!([2, 8, 16].map(|cpus| pages(192, cpus)), [(21, 1), (21, 1), (42, 2)]);
        assert_eq!([2, 64].map(|cpus| pages(104, cpus)), [(39, 1), (39, 1)]);
    }

    #[test]
    fn a_slab_of_four_pages_is_freed_with_the_last_of_thirteen_objects() {
        let shape = ObjectShape { name: "ext4_inode_cache", bytes: 1192, per_slab: 3, pages: 1 }.on_cpus(2);
        let mut cache = SlabCache::new(CacheKind::Inode, shape, (2, 1, 1), true);
        (0..6).for_each(|_| _ = cache.grow(0, true));
        assert_eq!(cache.grow(0, false), 1, "where four pages are not to be had");
        assert_eq!((cache.objects(), cache.lists[0].pages), (6 * 13 + 3, 25));
        let taken: Vec<Object> = std::iter::from_fn(|| cache.take_one(0)).collect();
        let of = |slab: u32| taken.iter().filter(move |object| object.slab == slab);
        // One object of each slab, so that all are partial.
        let slabs: std::collections::BTreeSet<u32> = taken.iter().map(|object| object.slab).collect();
        slabs.iter().for_each(|&slab| _ = of(slab).take(1).map(|object| cache.give_one(*object)).sum::<u64>());
        let whole: Vec<u64> =
            slabs.iter().map(|&slab| of(slab).skip(1).map(|object| cache.give_one(*object)).sum()).collect();
        assert_eq!(whole, [4, 4, 4, 0, 0, 0, 0], "each goes while five are partial");
        assert_eq!((cache.slabs(), cache.lists[0].pages), (4, 13));
        assert_eq!(cache.objects(), cache.lists[0].free);
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
            // 48 + 4 x 16 + 16 x 248 is 4080; 17 would not fit beside their management, which the first guess leaves
            // unpadded.
            (248, 8, 16),
            // An eighth of a page and more: the management is outside the slab, or in the unused rest of the page.
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
