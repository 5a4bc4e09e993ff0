//! Builds the machine of a scenario: zones from memory sizes, LRU lists, slab caches, the device, and the page cache of
//! a machine that has been up for long.

use crate::constant::constants;
use crate::kernel::PAGE_BYTES;
use std::cell::RefCell;

use crate::block::device::DeviceId;
use crate::block::disk::DiskModel;
use crate::fs::inode::{InodeId, Inodes, owner};
use crate::kernel::Profile;
use crate::machine::model_inputs::ModelInputs;
use crate::mm::chunk::{ACTIVE, ChunkId, Chunks, INACTIVE, WINDOW_PAGES};
use crate::mm::cpu_list::CpuList;
use crate::mm::memcontrol::Cgroup;
use crate::mm::memory::{Events, Mm, OfDevice};
use crate::mm::slab::{CACHES, CacheKind, Object, SlabCache};
use crate::mm::workingset::Shadows;
use crate::mm::xarray::Trees;
use crate::mm::zone::{self, Zone, ZoneKind};
use flatwater_workload::scenario::{DiskSpec, MachineSpec, Scenario};

constants! {
    const DMA_BYTES: u64 = kernel(16 << 20, "include/asm-i386/dma.h", "MAX_DMA_ADDRESS", "2.6.20");
    /// Default disks: one with an arm, and flash (6.x).
    const ARM_BYTES_PER_S: u64 = assumed(80_000_000, "a disk of the time");
    const ARM_SEEK_NS: u64 = assumed(8_000_000, "a disk of the time: mean seek of data sheets");
    const ARM_ROTATION_NS: u64 = published(8_300_000, "7200 turns a minute");
    const FLASH_BYTES_PER_S: u64 = assumed(500_000_000, "a SATA flash disk");
    const FLASH_ACCESS_NS: u64 = assumed(100_000, "a SATA flash disk: 10 000 requests a second one by one");
    /// Commands at once (NCQ).
    const QUEUE_DEPTH: usize = kernel(32, "include/linux/ata.h", "ATA_MAX_QUEUE", "2.6.18");
}
const GIB4: u64 = 4 << 30;

/// Pages of mem_map for `spanned` pages.
fn mem_map(spanned: u64, profile: &Profile) -> u64 {
    spanned * profile.struct_page_bytes.get() / PAGE_BYTES
}

/// Addresses of memory: from 0, with the part displaced by the PCI hole above 4 GiB.
#[derive(Clone, Copy)]
struct Addresses {
    hole: (u64, u64),
}

impl Addresses {
    fn of(total: u64, profile: &Profile) -> Addresses {
        let hole = profile.pci_hole_bytes.get();
        let from = GIB4 - hole;
        Addresses { hole: if total > from { (from, GIB4) } else { (GIB4, GIB4) } }
    }

    /// The address of the `at`-th byte of memory.
    fn start(&self, at: u64) -> u64 {
        if at >= self.hole.0 { at + (self.hole.1 - self.hole.0) } else { at }
    }

    /// The address after the `at`-th byte.
    fn end(&self, at: u64) -> u64 {
        if at > self.hole.0 { at + (self.hole.1 - self.hole.0) } else { at }
    }

    /// Bytes of the hole between two addresses.
    fn absent(&self, from: u64, to: u64) -> u64 {
        to.min(self.hole.1).saturating_sub(from.max(self.hole.0))
    }
}

/// The zones of a node that has the memory from `from` to `to`, by address (free_area_init_nodes). `mem_map` is in the
/// zone that it describes.
fn node_zones(node: usize, (from, to): (u64, u64), addresses: Addresses, profile: &Profile, zones: &mut Vec<Zone>) {
    let page = PAGE_BYTES;
    let (start, end) = (addresses.start(from), addresses.end(to));
    let kinds = [
        (ZoneKind::Dma, 0, DMA_BYTES.get()),
        (ZoneKind::Dma32, DMA_BYTES.get(), GIB4),
        (ZoneKind::Normal, GIB4, u64::MAX),
    ];
    // On 6.x struct pages come from the zones above the first 16 MiB.
    let mut described = 0;
    for (kind, low, high) in kinds {
        let (low, high) = (start.max(low), end.min(high));
        if low >= high {
            continue;
        }
        let spanned = (high - low) / page;
        let present = spanned - addresses.absent(low, high) / page;
        described += mem_map(spanned, profile);
        let taken = match kind {
            ZoneKind::Dma if profile.is_6() && end > DMA_BYTES.get() => 0,
            _ => std::mem::take(&mut described),
        };
        zones.push(Zone::new(node, kind, spanned, present.saturating_sub(taken)));
    }
}

/// 32-bit: lowmem, which has all of mem_map, and highmem.
fn zones_32(bytes: u64, lowmem: u64, profile: &Profile, zones: &mut Vec<Zone>) {
    let page = PAGE_BYTES;
    let dma = DMA_BYTES.get().min(bytes);
    let rest = bytes - dma;
    let normal = (lowmem - DMA_BYTES.get()).min(rest);
    let map = mem_map(bytes / page, profile).min(normal / page / 2);
    zones.push(Zone::new(0, ZoneKind::Dma, dma / page, (dma / page).saturating_sub(mem_map(dma / page, profile))));
    zones.push(Zone::new(0, ZoneKind::Normal, normal / page, (normal / page).saturating_sub(map)));
    if rest > normal {
        zones.push(Zone::new(0, ZoneKind::HighMem, (rest - normal) / page, (rest - normal) / page));
    }
}

/// The LRU lists of each zone or node, and the limits of zone reclaim.
fn give_lists(zones: &mut [Zone], chunks: &mut Chunks, profile: &Profile) {
    for index in 0..zones.len() {
        let first = zones.iter().position(|zone| zone.node == zones[index].node).unwrap_or(index);
        zones[index].lruvec = if profile.is_6() && first != index { zones[first].lruvec } else { chunks.add_lruvec() };
        zones[index].anonymous_lruvec =
            if profile.is_6() && first != index { zones[first].anonymous_lruvec } else { chunks.add_lruvec() };
        zones[index].min_unmapped = zones[index].managed / 100;
        zones[index].min_slab = zones[index].managed * 5 / 100;
    }
}

pub fn memory(profile: &Profile, node_bytes: &[u64], cpus: usize) -> Mm {
    let mut zones = Vec::new();
    let addresses = Addresses::of(node_bytes.iter().sum(), profile);
    let mut from = 0;
    match profile.lowmem_bytes {
        Some(lowmem) => zones_32(node_bytes.iter().sum(), lowmem.get(), profile, &mut zones),
        None => {
            for (node, &bytes) in node_bytes.iter().enumerate() {
                node_zones(node, (from, from + bytes), addresses, profile, &mut zones);
                from += bytes;
            }
        }
    }
    let nodes = node_bytes.len();
    let mut chunks = Chunks::default();
    give_lists(&mut zones, &mut chunks, profile);
    let shapes =
        [profile.objects.buffer_head, profile.objects.inode, profile.objects.dentry, profile.objects.radix_node];
    let caches = CACHES
        .iter()
        .map(|&kind| {
            let shape = shapes[kind as usize].get();
            let shape = if profile.is_6() { shape.on_cpus(cpus) } else { shape };
            SlabCache::new(kind, shape, (cpus, zones.len(), nodes), profile.is_6())
        })
        .collect();
    let mut inodes = Inodes::default();
    (inodes.lazy, inodes.new_are_referenced) = (profile.is_6(), !profile.is_6());
    let device = inodes.add((owner::MACHINE, 0), Object::default(), false);
    let ownerless = inodes.add((owner::NO_FILE, 0), Object::default(), false);
    let list = |kind: ZoneKind| {
        (0..nodes).map(|node| zone::zonelist(&zones, node, kind, !profile.is_6() && nodes > 1, nodes)).collect()
    };
    let (lists_normal, lists_any) = (list(ZoneKind::Normal), list(ZoneKind::HighMem));
    let events = Events {
        numa_hit: vec![0; nodes],
        numa_miss: vec![0; nodes],
        numa_foreign: vec![0; nodes],
        ..Events::default()
    };
    Mm {
        profile: profile.clone(),
        cpu_lists: vec![CpuList::default(); cpus * zones.len()],
        trees: Trees::default(),
        shadows: Shadows::default(),
        memories: 0,
        kswapd_highest: vec![None; nodes],
        kswapd_failures: vec![0; nodes],
        zones,
        nodes,
        chunks,
        inodes,
        caches,
        events,
        block_devices: vec![device],
        by_device: vec![OfDevice::default()],
        lists_normal,
        lists_any,
        cgroup: Cgroup::default(),
        pageout: Vec::new(),
        leaked: 0,
        ownerless,
    }
}

/// Adds the further devices, and the device of each workload's files.
pub fn add_devices(mm: &mut Mm, scenario: &Scenario) {
    mm.inodes.homes = scenario.workloads.iter().map(|spec| DeviceId::nth(spec.device)).collect();
    for place in 1..=scenario.machine.devices.len() {
        let inode = mm.inodes.add((owner::NO_FILE, place as u64), Object::default(), false);
        mm.inodes.get_mut(inode).device = DeviceId::nth(place);
        mm.block_devices.push(inode);
        mm.by_device.push(OfDevice::default());
    }
}

/// Files that filled the cache before the scenario began: pages of one old file each GiB.
const OLD_FILE_PAGES: u64 = 1 << 18;

/// Fills memory as on a machine that has been up for long: first processes (`pinned_percent`), then page cache with its
/// buffer_heads: files read more than once (`active_percent` of the free memory above the high watermark), then others
/// (`cache_percent` of the rest).
pub fn fill(mm: &mut Mm, inputs: &ModelInputs) {
    let ModelInputs { pinned_percent: pinned, active_percent: active, cache_percent: cache, .. } = *inputs;
    // GFP_HIGHUSER: processes' pages come from highmem if there is any.
    let high: u64 = mm.zones.iter().filter(|zone| zone.kind == ZoneKind::HighMem).map(|zone| zone.managed).sum();
    let all = mm.managed();
    for zone in 0..mm.zones.len() as u8 {
        let slot = &mut mm.zones[usize::from(zone)];
        let share = match (high > 0, slot.kind) {
            (true, ZoneKind::HighMem) => all * pinned / 100,
            (true, _) => 0,
            (false, _) => slot.managed * pinned / 100,
        };
        let take = share.min(slot.free);
        slot.free -= take;
        slot.pinned += take;
        if slot.kind == ZoneKind::Dma {
            continue;
        }
        for (percent, list) in [(active, ACTIVE), (cache, INACTIVE)] {
            let slot = &mm.zones[usize::from(zone)];
            let room = slot.free.saturating_sub(slot.high + slot.reserve[ZoneKind::Normal as usize]) * percent / 100;
            fill_cache(mm, zone, room, list);
        }
    }
}

/// Takes pages out of each node's zones, largest first: `reserved` were never managed (kernel image, firmware, struct
/// pages beyond the model's), `resident` are allocated for good (initramfs, slabs, processes).
pub fn take_away(mm: &mut Mm, machine: &MachineSpec) {
    let page = PAGE_BYTES;
    for (bytes, reserved) in [(&machine.reserved_bytes, true), (&machine.resident_bytes, false)] {
        for (node, bytes) in bytes.iter().enumerate() {
            let mut left = bytes / page;
            // The kernel's memory is lowmem.
            let own = |zone: &&mut Zone| zone.node == node && zone.kind != ZoneKind::HighMem;
            let mut zones: Vec<&mut Zone> = mm.zones.iter_mut().filter(own).collect();
            zones.sort_by_key(|zone| std::cmp::Reverse(zone.managed));
            for zone in zones {
                let take = left.min(zone.free);
                zone.free -= take;
                left -= take;
                if reserved {
                    zone.managed -= take;
                    zone.min_unmapped = zone.managed / 100;
                    zone.min_slab = zone.managed * 5 / 100;
                } else {
                    zone.pinned += take;
                }
            }
        }
    }
}

/// Sets the min watermarks of each node's zones, lowest zone first.
pub fn set_boot_minimums(mm: &mut Mm, machine: &MachineSpec) {
    for (node, sizes) in machine.zone_min_bytes.iter().enumerate() {
        let own = mm.zones.iter_mut().filter(|zone| zone.node == node && zone.managed > 0);
        for (zone, bytes) in own.zip(sizes) {
            zone.min_at_boot = Some(bytes / PAGE_BYTES);
        }
    }
    note_managed_at_boot(&mut mm.zones, PAGE_BYTES);
}

/// Derives the managed pages at boot from the watermarks: the reserve is int_sqrt(lowmem_kbytes * 16), divided among
/// the zones by their memory (mm/page_alloc.c: calculate_min_free_kbytes, __setup_per_zone_wmarks, 6.1).
fn note_managed_at_boot(zones: &mut [Zone], page_bytes: u64) {
    let reserve: u64 = zones.iter().filter_map(|zone| zone.min_at_boot).sum();
    let reserve_kib = reserve * page_bytes / 1024;
    let lowmem = reserve_kib.saturating_mul(reserve_kib) / 16 * 1024 / page_bytes;
    for zone in zones.iter_mut() {
        if let Some(min) = zone.min_at_boot.filter(|_| reserve > 0) {
            zone.managed_at_boot = zone.managed.min(lowmem * min / reserve);
        }
    }
}

/// Caches the first blocks of the disk as read more than once, by the mount and by earlier programs: they include the
/// inodes of the run's directory, which are made one after the other in its parent's group (fs/ext4/ialloc.c:
/// find_group_orlov).
pub fn keep_buffers(mm: &mut Mm, machine: &MachineSpec) {
    let device = mm.block_devices[0];
    let mut page = 0;
    for (node, bytes) in machine.buffers_bytes.iter().enumerate() {
        let Some(zone) = mm.lists_normal.get(node).map(|list| list[0]) else { return };
        for _ in 0..(bytes / PAGE_BYTES).min(mm.zones[usize::from(zone)].free) {
            mm.zones[usize::from(zone)].free -= 1;
            let mut id = mm.insert(device, page, zone);
            for _ in 0..2 {
                id = mm.touch(id, 1 << (page % WINDOW_PAGES));
            }
            page += 1;
        }
    }
}

fn fill_cache(mm: &mut Mm, zone: u8, room: u64, list: usize) {
    let per_slab = mm.profile.objects.buffer_head.get().per_slab;
    let pages = room * per_slab / (per_slab + 1) / WINDOW_PAGES * WINDOW_PAGES;
    mm.zones[usize::from(zone)].free -= pages;
    let mut inode = 0;
    for page in (0..pages).step_by(WINDOW_PAGES as usize) {
        if page % OLD_FILE_PAGES == 0 {
            let Some(object) = add_object(mm, CacheKind::Inode, zone) else { return };
            let file = 1 + ((list as u64) << 48 | u64::from(zone) << 32 | page);
            inode = mm.inodes.add((owner::MACHINE, file), object, false);
            mm.inodes.get_mut(inode).size = OLD_FILE_PAGES * PAGE_BYTES;
            // Closed long ago, and its dentry pruned.
            mm.inodes.put(inode, crate::fs::inode::Place::Unused);
        }
        let at = page % OLD_FILE_PAGES;
        let id = insert_window(mm, inode, at, zone);
        add_buffers(mm, id, zone);
        if list == ACTIVE {
            mm.chunks.move_to_head(id, ACTIVE);
        }
    }
}

/// Allocates the buffer_heads of a whole window.
fn add_buffers(mm: &mut Mm, id: ChunkId, zone: u8) {
    mm.chunks.get_mut(id).buffers = u32::MAX;
    if !mm.profile.is_6() {
        let pages = mm.cache_mut(CacheKind::BufferHead).prefill(zone, WINDOW_PAGES);
        return take_slabs(mm, zone, pages);
    }
    for page in 0..WINDOW_PAGES {
        match add_object(mm, CacheKind::BufferHead, zone) {
            Some(buffer) => mm.chunks.buffer_slabs.note(id, 1 << page, buffer.slab),
            None => mm.chunks.get_mut(id).buffers &= !(1 << page),
        }
    }
}

/// Caches pages of a mapped file as after hours of reading: with buffer_heads, mapped, referenced, on the inactive
/// list. Files go to the nodes in turn, to another node if one is full, and stay on the disk if all are full.
pub fn warm(mm: &mut Mm, inode: InodeId, pages: u64, file: usize) {
    let nodes = mm.nodes;
    for first in (0..pages / WINDOW_PAGES * WINDOW_PAGES).step_by(WINDOW_PAGES as usize) {
        let has_room = |zone: &&u8| {
            let zone = &mm.zones[usize::from(**zone)];
            zone.free > zone.high + zone.reserve[ZoneKind::HighMem as usize] + 2 * WINDOW_PAGES
        };
        let Some(&zone) = mm.lists_any[file % nodes].iter().find(has_room) else { return };
        mm.zones[usize::from(zone)].free -= WINDOW_PAGES;
        let id = insert_window(mm, inode, first, zone);
        let chunk = mm.chunks.get_mut(id);
        (chunk.mapped, chunk.referenced) = (owner::MACHINE, u32::MAX);
        mm.zones[usize::from(zone)].mapped += WINDOW_PAGES;
        add_buffers(mm, id, zone);
    }
}

/// Inserts a whole window of the file; its frames have been taken.
fn insert_window(mm: &mut Mm, inode: InodeId, page: u64, zone: u8) -> ChunkId {
    let id = mm.insert(inode, page, zone);
    mm.chunks.set_present(id, !1);
    mm.inodes.get_mut(inode).pages += WINDOW_PAGES as u32 - 1;
    mm.zones[usize::from(zone)].file += WINDOW_PAGES - 1;
    id
}

/// Allocates one object; `None` if the zone has no memory above its min watermark.
pub fn add_object(mm: &mut Mm, kind: CacheKind, zone: u8) -> Option<Object> {
    if mm.cache(kind).lists[usize::from(zone)].free == 0 {
        let slot = &mm.zones[usize::from(zone)];
        if slot.free < slot.min + mm.cache(kind).shape.pages {
            return None;
        }
        let pages = mm.cache_mut(kind).grow(zone, true);
        take_slabs(mm, zone, pages);
    }
    mm.cache_mut(kind).take_one(zone)
}

fn take_slabs(mm: &mut Mm, zone: u8, pages: u64) {
    let slot = &mut mm.zones[usize::from(zone)];
    slot.free -= pages;
    slot.slab += pages;
    slot.slab_reclaimable += pages;
}

/// The machine's size, with defaults for values that the scenario does not set.
pub struct Shape {
    pub cpus: usize,
    pub node_bytes: Vec<u64>,
    pub distance: u64,
    pub disk: DiskModel,
}

pub fn shape(machine: &MachineSpec, profile: &Profile) -> Shape {
    let node_bytes = if machine.node_bytes.is_empty() { vec![GIB4] } else { machine.node_bytes.clone() };
    let cpus = machine.cpus.map_or(4, |cpus| cpus as usize).max(node_bytes.len());
    let distance = machine.distance.map_or(20, u64::from);
    Shape { cpus, node_bytes, distance, disk: disk(&machine.disk, profile) }
}

pub fn disk(spec: &DiskSpec, profile: &Profile) -> DiskModel {
    let is_flash = profile.is_6();
    // The default is a disk of 80 MB/s, 8 ms mean seek, 7200 rpm, on 6.x flash of 500 MB/s. `iops` or `latency` makes
    // it flash.
    let flash = (is_flash || spec.iops.or(spec.latency_ns).is_some()) && spec.seek_ns.is_none();
    // With a limit of requests a second the device serves one request at a time.
    let limited = spec.iops.filter(|_| spec.latency_ns.is_none());
    let depth = if limited.is_some() { 1 } else { QUEUE_DEPTH.get() };
    let depth = spec.queue_depth.map_or(depth, |depth| depth.max(1) as usize);
    let write = spec.write_bytes_per_s.unwrap_or(if flash { FLASH_BYTES_PER_S.get() } else { ARM_BYTES_PER_S.get() });
    DiskModel {
        read_bytes_per_s: spec.read_bytes_per_s.unwrap_or(write).max(1),
        write_bytes_per_s: write.max(1),
        seek_ns: if flash { 0 } else { spec.seek_ns.unwrap_or(ARM_SEEK_NS.get()) },
        rotation_ns: if flash { 0 } else { spec.rotation_ns.unwrap_or(ARM_ROTATION_NS.get()) },
        access_ns: limited.map_or(spec.latency_ns.unwrap_or(FLASH_ACCESS_NS.get()), |iops| 1_000_000_000 / iops.max(1)),
        pages: spec.bytes.unwrap_or(500 << 30) / PAGE_BYTES,
        in_order: flash && is_flash,
        depth,
    }
}

/// A random number generator for one purpose.
pub fn generator(seed: u64, purpose: u64) -> RefCell<rand_pcg::Pcg64> {
    RefCell::new(rand_pcg::Pcg64::new(u128::from(seed), u128::from(purpose) << 1 | 1))
}

#[cfg(test)]
mod tests {
    use super::{Addresses, keep_buffers, memory, node_zones, note_managed_at_boot};
    use crate::kernel::find;
    use crate::mm::chunk::ACTIVE;
    use crate::mm::zone::{Zone, ZoneKind};
    use flatwater_workload::scenario::MachineSpec;

    /// A guest of 6.12 with 1724 kB of min_free_kbytes: 431 pages for 46 439 at boot, of which 24 135 and 18 532 in the
    /// large zones, where 26 269 and 27 742 are managed once the initramfs is given back. Batches are of 3 pages, not 7
    /// (zone_batchsize).
    #[test]
    fn an_initramfs_makes_batches_smaller() {
        let zone = |node, managed, min| {
            let mut zone = Zone::new(node, ZoneKind::Dma32, managed, managed);
            zone.min_at_boot = Some(min);
            zone
        };
        let mut zones = [zone(0, 3_840, 35), zone(0, 26_269, 224), zone(1, 27_742, 172)];
        note_managed_at_boot(&mut zones, 4096);
        assert_eq!(zones.each_ref().map(|zone| zone.managed_at_boot), [3_771, 24_135, 18_532]);
        zones[1].size_pcp(1);
        assert_eq!(zones[1].pcp.batch, 3);
        zones[1].min_at_boot = None;
        zones[1].size_pcp(1);
        assert_eq!(zones[1].pcp.batch, 7, "computed anew, when a watermark is set");
    }

    /// Two nodes. The second has read 26 blocks more than once before the run, so they are page cache on its active
    /// list.
    #[test]
    fn blocks_of_the_disk_that_are_in_memory_are_found_there() {
        let profile = find("linux-6.1").expect("a profile");
        let mut mm = memory(&profile, &[128 << 20, 128 << 20], 2);
        let machine = MachineSpec { buffers_bytes: vec![0, 26 << 12], ..MachineSpec::default() };
        let free = mm.zones.iter().map(|zone| zone.free).sum::<u64>();
        keep_buffers(&mut mm, &machine);
        assert_eq!(free - mm.zones.iter().map(|zone| zone.free).sum::<u64>(), 26);
        let device = mm.block_devices[0];
        let (id, _) = mm.lookup(device, 25).expect("it was read");
        let chunk = mm.chunks.get(id);
        assert_eq!((mm.zones[usize::from(chunk.zone)].node, usize::from(chunk.list)), (1, ACTIVE));
        assert!(mm.lookup(device, 26).is_none());
    }

    fn zones(nodes: &[u64]) -> Vec<(usize, ZoneKind, u64)> {
        let profile = find("linux-2.6.32").expect("a profile");
        let addresses = Addresses::of(nodes.iter().sum(), &profile);
        let (mut zones, mut from) = (Vec::new(), 0);
        for (node, bytes) in nodes.iter().enumerate() {
            node_zones(node, (from, from + bytes), addresses, &profile, &mut zones);
            from += bytes;
        }
        zones.iter().map(|zone| (zone.node, zone.kind, zone.spanned)).collect()
    }

    #[test]
    fn a_node_has_the_zones_that_its_addresses_lie_in() {
        use ZoneKind::{Dma, Dma32, Normal};
        let gib = 1 << 30;
        let pages = |gib: u64| gib << 18;
        // Two nodes of 2 GiB: the second begins below the hole of the fourth GiB and ends above 4 GiB.
        assert_eq!(
            zones(&[2 * gib, 2 * gib]),
            [(0, Dma, 4096), (0, Dma32, pages(2) - 4096), (1, Dma32, pages(2)), (1, Normal, pages(1))]
        );
        assert_eq!(zones(&[gib, gib]), [(0, Dma, 4096), (0, Dma32, pages(1) - 4096), (1, Dma32, pages(1))]);
        let large = zones(&[64 * gib, 64 * gib]);
        assert_eq!(large[1..], [(0, Dma32, pages(4) - 4096), (0, Normal, pages(61)), (1, Normal, pages(64))]);
    }
}
