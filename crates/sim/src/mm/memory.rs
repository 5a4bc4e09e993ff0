//! The memory of the machine: zones, page cache, slabs and inodes in one structure, because reclaim touches all of
//! them. Nothing here blocks; allocation, reclaim and reading are built on it.

use crate::fs::inode::{InodeId, Inodes, Place};
use crate::kernel::Profile;
use crate::mm::chunk::{ACTIVE, ChunkId, Chunks, INACTIVE, NONE, WINDOW_PAGES};
use crate::mm::cpu_list::CpuList;
use crate::mm::memcontrol::Cgroup;
use crate::mm::reclaim::Pageout;
use crate::mm::slab::{CACHES, CacheKind, SlabCache};
use crate::mm::workingset::Shadows;
use crate::mm::xarray::Trees;
use crate::mm::zone::{Zone, ZoneKind};
use crate::run::invariant::Broken;

/// Counters of /proc/vmstat since boot.
#[derive(Clone, Debug, Default)]
pub struct Events {
    pub pgpgin_kib: u64,
    pub pgpgout_kib: u64,
    pub pgfault: u64,
    pub pgmajfault: u64,
    pub pgalloc: u64,
    pub pgfree: u64,
    pub pgscan_kswapd: u64,
    pub pgscan_direct: u64,
    pub pgsteal_kswapd: u64,
    pub pgsteal_direct: u64,
    pub allocstall: u64,
    pub pageoutrun: u64,
    pub slabs_scanned: u64,
    pub pginodesteal: u64,
    pub zone_reclaim_failed: u64,
    /// Pages that reclaim has written (nr_vmscan_write).
    pub vmscan_write: u64,
    /// Refaults, and those of them that were activated.
    pub workingset_refault: u64,
    pub workingset_activate: u64,
    pub numa_hit: Vec<u64>,
    pub numa_miss: Vec<u64>,
    pub numa_foreign: Vec<u64>,
}

impl Events {
    /// Counts PGSCAN and PGSTEAL of kswapd or of direct reclaim.
    pub fn note_scan(&mut self, kswapd: bool, scanned: u64, freed: u64) {
        let (scan, steal) = match kswapd {
            true => (&mut self.pgscan_kswapd, &mut self.pgsteal_kswapd),
            false => (&mut self.pgscan_direct, &mut self.pgsteal_direct),
        };
        (*scan, *steal) = (*scan + scanned, *steal + freed);
    }
}

#[derive(Debug)]
pub struct Mm {
    pub profile: Profile,
    pub zones: Vec<Zone>,
    pub nodes: usize,
    pub chunks: Chunks,
    pub inodes: Inodes,
    pub caches: Vec<SlabCache>,
    pub events: Events,
    /// The list of each CPU and zone, at `cpu * zones + zone`.
    pub cpu_lists: Vec<CpuList>,
    pub trees: Trees,
    /// Shadow entries of evicted pages.
    pub shadows: Shadows,
    /// Number of processes' memories made so far.
    pub memories: u64,
    /// The highest zone that each node's kswapd was last asked to balance (6.x).
    pub kswapd_highest: Vec<Option<ZoneKind>>,
    /// Runs of each node's kswapd since a page was last freed there (6.x: `kswapd_failures`).
    pub kswapd_failures: Vec<u32>,
    /// The inodes of the block devices, whose pages /proc/meminfo calls Buffers.
    pub block_devices: Vec<InodeId>,
    /// Dirty pages and pages under writeback of each device (BDI_RECLAIMABLE, BDI_WRITEBACK).
    pub by_device: Vec<OfDevice>,
    /// Zonelists by node, for memory up to Normal and up to the highest zone.
    pub lists_normal: Vec<Vec<u8>>,
    pub lists_any: Vec<Vec<u8>>,
    pub cgroup: Cgroup,
    /// Dirty pages of the present cluster of a scan that it may write.
    pub pageout: Vec<Pageout>,
    /// Pages of truncated files that stay on the LRU with their buffers (the journalled-page leak).
    pub leaked: u64,
    /// Placeholder for the file that those pages no longer have.
    pub ownerless: InodeId,
}

/// Dirty pages and pages under writeback of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfDevice {
    pub dirty: u64,
    pub writeback: u64,
}

impl OfDevice {
    #[must_use]
    pub fn sum(self) -> u64 {
        self.dirty + self.writeback
    }
}

impl Mm {
    #[must_use]
    pub fn is_block_device(&self, inode: InodeId) -> bool {
        self.block_devices.contains(&inode)
    }

    /// The counts of a file's device.
    #[inline]
    pub fn of_device(&mut self, inode: InodeId) -> &mut OfDevice {
        let device = self.inodes.get(inode).device;
        &mut self.by_device[device.index()]
    }

    #[must_use]
    pub fn dirty(&self) -> u64 {
        self.by_device.iter().map(|own| own.dirty).sum()
    }

    #[must_use]
    pub fn writeback(&self) -> u64 {
        self.by_device.iter().map(|own| own.writeback).sum()
    }

    /// Checks that each device's counts are the sums over its files.
    fn check_devices(&self) -> Result<(), Broken> {
        let mut held = vec![OfDevice::default(); self.by_device.len()];
        for inode in self.inodes.there() {
            let own = &mut held[inode.device.index()];
            own.dirty += inode.dirty.as_deref().map_or(0, |dirty| dirty.pages);
            own.writeback += u64::from(inode.under_writeback);
        }
        if held == self.by_device {
            return Ok(());
        }
        Err(Broken::Frames(format!("{:?} counted by device, {held:?} in the devices' files", self.by_device)))
    }

    pub fn cache(&self, kind: CacheKind) -> &SlabCache {
        &self.caches[kind as usize]
    }

    pub fn cache_mut(&mut self, kind: CacheKind) -> &mut SlabCache {
        &mut self.caches[kind as usize]
    }

    #[inline]
    pub fn lookup(&self, inode: InodeId, page: u64) -> Option<(ChunkId, u32)> {
        let bit = 1u32 << (page % WINDOW_PAGES);
        let mut id = self.inodes.get(inode).windows.get((page / WINDOW_PAGES) as u32);
        while id != NONE {
            let chunk = self.chunks.get(id);
            if chunk.present & bit != 0 {
                return Some((id, bit));
            }
            id = chunk.sibling;
        }
        None
    }

    /// Puts a page into the page cache; its frame was just taken from the zone.
    pub fn insert(&mut self, inode: InodeId, page: u64, zone: u8) -> ChunkId {
        let (window, bit) = ((page / WINDOW_PAGES) as u32, 1u32 << (page % WINDOW_PAGES));
        let in_cgroup = self.inodes.get(inode).in_cgroup;
        let node = self.zones[usize::from(zone)].node;
        let own = self.zones[usize::from(zone)].lruvec;
        let lruvec = if in_cgroup { self.cgroup.lruvecs.get(node).copied().unwrap_or(own) } else { own };
        let list = if self.refaults(inode, page) { ACTIVE } else { INACTIVE };
        let id = self.chunk_for(inode, window, zone, lruvec, list);
        self.chunks.set_present(id, bit);
        self.inodes.get_mut(inode).pages += 1;
        self.zones[usize::from(zone)].file += 1;
        id
    }

    pub fn lacks_buffer(&self, (id, bit): (ChunkId, u32)) -> bool {
        self.chunks.get(id).buffers & bit == 0
    }

    /// The chunk of a window with pages of this zone on this list; makes it if it does not exist.
    pub fn chunk_for(&mut self, inode: InodeId, window: u32, zone: u8, lruvec: u8, list: usize) -> ChunkId {
        let head = self.inodes.get(inode).windows.get(window);
        let mut id = head;
        while id != NONE {
            let chunk = self.chunks.get(id);
            if chunk.zone == zone && chunk.lruvec == lruvec && usize::from(chunk.list) == list {
                return id;
            }
            id = chunk.sibling;
        }
        id = self.chunks.add(inode, window, zone, lruvec, head);
        self.inodes.get_mut(inode).windows.set(window, id);
        if list == ACTIVE {
            self.chunks.move_to_head(id, ACTIVE);
        }
        id
    }

    /// Frees pages of a chunk with their frames, buffer_heads and tree node, whether clean or dirty.
    pub fn drop_pages(&mut self, id: ChunkId, bits: u32, cpu: u16) -> u64 {
        let chunk = *self.chunks.get(id);
        let bits = bits & chunk.present;
        let dirty = u64::from((chunk.dirty & bits).count_ones());
        let writeback = u64::from((chunk.writeback & bits).count_ones());
        let device = self.of_device(chunk.inode);
        device.dirty -= dirty;
        device.writeback -= writeback;
        let zone = &mut self.zones[usize::from(chunk.zone)];
        zone.mapped -= u64::from((chunk.mapped & bits).count_ones());
        zone.dirty -= dirty;
        zone.writeback -= writeback;
        *(if chunk.anonymous { &mut zone.anonymous } else { &mut zone.file }) -= u64::from(bits.count_ones());
        let buffers = u64::from((chunk.buffers & bits).count_ones());
        if buffers > 0 {
            self.free_buffers(id, chunk.buffers & bits, cpu);
        }
        let pages = self.chunks.clear(id, bits);
        self.give_frames(chunk.zone, cpu, pages);
        let inode = self.inodes.get_mut(chunk.inode);
        inode.pages -= pages as u32;
        inode.under_writeback -= writeback as u32;
        if let Some(list) = inode.dirty.as_deref_mut() {
            list.pages -= dirty;
        }
        if inode.in_cgroup {
            self.cgroup.uncharge(pages);
            self.cgroup.anonymous -= if chunk.anonymous { pages } else { 0 };
            self.cgroup.dirty -= dirty;
            self.cgroup.writeback -= writeback;
        }
        if chunk.inode == self.ownerless {
            self.leaked -= pages;
        }
        if self.chunks.get(id).present == 0 {
            self.forget_chunk(id);
        }
        self.free_node(chunk.inode, cpu);
        if self.profile.is_6() {
            self.update_node(chunk.inode, chunk.window, cpu);
        }
        self.note_uncached(chunk.inode);
        pages
    }

    /// Whether any page of a window is cached.
    pub fn has_pages(&self, inode: InodeId, window: u32) -> bool {
        let mut id = self.inodes.get(inode).windows.get(window);
        while id != NONE {
            let chunk = self.chunks.get(id);
            if chunk.present != 0 {
                return true;
            }
            id = chunk.sibling;
        }
        false
    }

    /// include/linux/pagemap.h: mapping_shrinkable, 5.15: page cache, or a node of shadow entries, keeps an inode from
    /// the shrinker.
    pub fn cache_holds(&self, inode: InodeId) -> bool {
        self.profile.is_6() && (self.inodes.get(inode).pages > 0 || self.trees.holds(inode))
    }

    pub fn note_uncached(&mut self, inode: InodeId) {
        if !self.cache_holds(inode) {
            self.inodes.uncached(inode);
        }
    }

    /// Uncharges a page that was charged for this file and was not cached.
    pub fn uncharge_page(&mut self, inode: InodeId) {
        if self.inodes.get(inode).in_cgroup {
            self.cgroup.uncharge(1);
        }
    }

    fn forget_chunk(&mut self, id: ChunkId) {
        self.unname_chunk(id);
        self.chunks.remove(id);
    }

    /// Removes a chunk from its file's windows.
    fn unname_chunk(&mut self, id: ChunkId) {
        let chunk = *self.chunks.get(id);
        let head = self.inodes.get(chunk.inode).windows.get(chunk.window);
        if head == id {
            self.inodes.get_mut(chunk.inode).windows.set(chunk.window, chunk.sibling);
        } else {
            let mut before = head;
            while before != NONE && self.chunks.get(before).sibling != id {
                before = self.chunks.get(before).sibling;
            }
            if before != NONE {
                self.chunks.get_mut(before).sibling = chunk.sibling;
            }
        }
    }

    /// Marks a page dirty; true if it was clean.
    #[inline]
    pub fn set_dirty(&mut self, id: ChunkId, bit: u32, now_ns: u64) -> bool {
        let chunk = self.chunks.get_mut(id);
        if chunk.dirty & bit != 0 {
            return false;
        }
        let first = chunk.dirty == 0;
        chunk.dirty |= bit;
        let (inode, window, zone) = (chunk.inode, chunk.window, usize::from(chunk.zone));
        self.of_device(inode).dirty += 1;
        self.zones[zone].dirty += 1;
        let inode = self.inodes.get_mut(inode);
        self.cgroup.dirty += u64::from(inode.in_cgroup);
        let list = inode.dirty.get_or_insert_default();
        if list.pages == 0 {
            list.since_ns = now_ns;
        }
        list.pages += 1;
        if first {
            list.windows.push_back(window);
        }
        true
    }

    /// mark_page_accessed: the first access makes a page referenced, the second one active. Returns its chunk.
    #[inline]
    pub fn touch(&mut self, id: ChunkId, bit: u32) -> ChunkId {
        let chunk = self.chunks.get_mut(id);
        if chunk.referenced & bit == 0 {
            chunk.referenced |= bit;
        } else if usize::from(chunk.list) == INACTIVE {
            let folio = self.folio_of(id);
            if folio.is_large() {
                self.activate_folio(&folio);
                return id;
            }
            let chunk = self.chunks.get_mut(id);
            if chunk.referenced.count_ones() * 2 <= chunk.present.count_ones() {
                return self.activate_page(id, bit);
            }
            // By majority: the chunk moves as one.
            chunk.referenced = 0;
            let (lruvec, pages) = (usize::from(chunk.lruvec), chunk.pages());
            self.note_activated(lruvec, pages);
            self.chunks.move_to_head(id, ACTIVE);
        }
        id
    }

    /// Frees an inode that has no pages left, and its dentry.
    pub fn free_inode(&mut self, id: InodeId, cpu: u16) {
        if self.inodes.get(id).anonymous {
            self.shadows.forget(id);
            return self.inodes.remove(id);
        }
        self.free_node(id, cpu);
        if self.inodes.get(id).place == Place::Dentry {
            self.free_dentry(id, cpu);
        }
        let object = self.inodes.get(id).object;
        self.inodes.remove(id);
        self.free_tree(id, cpu);
        self.shadows.forget(id);
        self.free_object(CacheKind::Inode, object, cpu);
    }

    /// Drops the pages of a file from `first_page` on; dirty and mapped ones only if `all`.
    pub fn invalidate(&mut self, inode: InodeId, first_page: u64, all: bool, cpu: u16) -> u64 {
        let mut freed = 0;
        let end = self.inodes.get(inode).windows.end();
        for window in (first_page / WINDOW_PAGES) as u32..end {
            let mut id = self.inodes.get(inode).windows.get(window);
            while id != NONE {
                let chunk = *self.chunks.get(id);
                let mut bits = chunk.present;
                if u64::from(window) == first_page / WINDOW_PAGES {
                    bits &= u32::MAX << (first_page % WINDOW_PAGES);
                }
                // Pages under writeback wait for their completion, which drops those of a dead inode.
                bits &= !chunk.writeback;
                if !all {
                    bits &= !(chunk.dirty | chunk.mapped);
                }
                freed += self.drop_pages(id, bits, cpu);
                id = chunk.sibling;
            }
        }
        freed
    }

    /// Truncation of a data=journal file, 2.6.20: invalidatepage refuses pages whose buffers the journal still has
    /// (here all written pages), and truncate removes them from the file nevertheless. They stay on the LRU without a
    /// file.
    pub fn leak_written(&mut self, inode: InodeId, cpu: u16) {
        for window in 0..self.inodes.get(inode).windows.end() {
            let mut id = self.inodes.get(inode).windows.get(window);
            while id != NONE {
                let chunk = *self.chunks.get(id);
                if chunk.writeback == 0 && chunk.buffers != 0 {
                    self.drop_pages(id, !chunk.buffers, cpu);
                    self.leak_chunk(id);
                }
                id = chunk.sibling;
            }
        }
        self.free_node(inode, cpu);
    }

    fn leak_chunk(&mut self, id: ChunkId) {
        self.unname_chunk(id);
        let ownerless = self.ownerless;
        let chunk = self.chunks.get_mut(id);
        let (pages, dirty, mapped) = (chunk.pages(), chunk.dirty.count_ones(), chunk.mapped.count_ones());
        (chunk.dirty, chunk.mapped, chunk.sibling) = (0, 0, NONE);
        let (inode, zone) = (std::mem::replace(&mut chunk.inode, ownerless), usize::from(chunk.zone));
        self.of_device(inode).dirty -= u64::from(dirty);
        self.zones[zone].mapped -= u64::from(mapped);
        self.zones[zone].dirty -= u64::from(dirty);
        let old = self.inodes.get_mut(inode);
        old.pages -= pages as u32;
        if old.in_cgroup {
            self.cgroup.uncharge(pages);
            self.cgroup.dirty -= u64::from(dirty);
        }
        if let Some(list) = old.dirty.as_deref_mut() {
            list.pages -= u64::from(dirty);
        }
        self.inodes.get_mut(ownerless).pages += pages as u32;
        self.leaked += pages;
    }

    /// Checks that every frame of every zone is accounted for and that the counters agree with the pages.
    pub fn check(&self) -> Result<(), Broken> {
        let dirty = self.sum(|zone| zone.dirty);
        if dirty != self.dirty() {
            return Err(Broken::Frames(format!("{} dirty pages counted, {dirty} in the zones", self.dirty())));
        }
        self.check_devices()?;
        let held = self.chunks.check(self.zones.len())?;
        let writeback = held.under_writeback;
        let in_zones = self.sum(|zone| zone.writeback);
        if writeback != self.writeback() || writeback != in_zones {
            let counted = self.writeback();
            return Err(Broken::Frames(format!(
                "{counted} pages under writeback counted, {writeback} held, {in_zones} in the zones"
            )));
        }
        let by_zone = held.by_zone;
        for (index, zone) in self.zones.iter().enumerate() {
            let slabs: u64 = self.caches.iter().map(|cache| cache.lists[index].pages).sum();
            if zone.accounted() != zone.managed || by_zone[index] != zone.file + zone.anonymous || slabs != zone.slab {
                return Err(Broken::Frames(format!(
                    "node {} zone {}: {} of {} frames accounted for; {} file pages counted, {} held; {} slab pages counted, {} held",
                    zone.node,
                    zone.kind.name(),
                    zone.accounted(),
                    zone.managed,
                    zone.file,
                    by_zone[index],
                    zone.slab,
                    slabs
                )));
            }
        }
        Ok(())
    }

    /// A sum over all zones.
    pub fn sum(&self, of: impl Fn(&Zone) -> u64) -> u64 {
        self.zones.iter().map(of).sum()
    }

    /// Frames that the allocator manages (totalram_pages).
    pub fn managed(&self) -> u64 {
        self.sum(|zone| zone.managed)
    }

    /// Percent of memory that processes have mapped (nr_mapped and nr_anon_pages by total_pages, 2.6.18).
    pub fn mapped_percent(&self) -> u64 {
        100 * self.sum(|zone| zone.mapped + zone.pinned + zone.anonymous) / (1 + self.managed())
    }

    pub fn all_caches(&self) -> impl Iterator<Item = (CacheKind, &SlabCache)> {
        CACHES.iter().map(|&kind| (kind, self.cache(kind)))
    }
}
