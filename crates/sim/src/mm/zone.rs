//! Nodes, zones, watermarks and per-CPU page lists.
//!
//! Models: the zones of each node with the frames that `mem_map` takes, min/low/high from `min_free_kbytes`,
//! lowmem_reserve, the order of the zonelists, and free frames as a count with a list per CPU in front. Leaves out:
//! which frames are free.

use crate::constant::constants;
use crate::kernel::PAGE_BYTES;
use crate::kernel::Profile;
use crate::mm::cpu_list::PcpSizes;
use flatwater_recording::schema::zones;

constants! {
    const PAGEBLOCK: u64 = kernel(512, "include/linux/pageblock-flags.h", "pageblock_nr_pages (2 MiB)", "6.1");
    /// Migrate types: unmovable, movable, reclaimable.
    const MIGRATE_PCPTYPES: u64 = kernel(3, "include/linux/mmzone.h", "MIGRATE_PCPTYPES", "4.18");
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ZoneKind {
    #[default]
    Dma,
    Dma32,
    Normal,
    HighMem,
}

impl ZoneKind {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ZoneKind::Dma => zones::DMA,
            ZoneKind::Dma32 => "DMA32",
            ZoneKind::Normal => "Normal",
            ZoneKind::HighMem => "HighMem",
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Zone {
    pub node: usize,
    pub kind: ZoneKind,
    pub spanned: u64,
    /// Frames that the allocator manages (`present` up to 3.9, `managed` later).
    pub managed: u64,
    pub free: u64,
    /// Frames on per-CPU lists: neither free nor used.
    pub on_cpu_lists: u64,
    pub slab: u64,
    pub slab_reclaimable: u64,
    /// Anonymous and kernel memory that reclaim cannot take.
    pub pinned: u64,
    pub file: u64,
    /// Anonymous pages on an LRU list.
    pub anonymous: u64,
    pub mapped: u64,
    pub dirty: u64,
    pub writeback: u64,
    pub min: u64,
    pub low: u64,
    pub high: u64,
    /// Frames withheld from requests that could have used a higher zone, by that zone's kind.
    pub reserve: [u64; 4],
    pub lruvec: u8,
    /// The lists of anonymous pages.
    pub anonymous_lruvec: u8,
    /// Priority of the last reclaim of this zone (`prev_priority`, up to 2.6.27).
    pub prev_priority: u32,
    /// `zone_reclaim` lets one task in at a time (ZONE_RECLAIM_LOCKED).
    pub reclaim_locked: bool,
    /// Pages scanned since one was last freed: beyond six times its LRU pages the zone is unreclaimable.
    pub scanned: u64,
    /// Inactive and active pages due to be scanned but fewer than a cluster so far (nr_scan_inactive, nr_scan_active).
    pub due: [u64; 2],
    /// ZONE_ALL_UNRECLAIMABLE: only kswapd sets it (balance_pgdat), only frames coming back to the zone clear it.
    pub all_unreclaimable: bool,
    /// Its share of min_free_kbytes where the kernel computed it before the initramfs was given back, pages.
    pub min_at_boot: Option<u64>,
    /// Pages that the zone managed at that time, without an initramfs that was freed later.
    pub managed_at_boot: u64,
    pub min_unmapped: u64,
    pub min_slab: u64,
    /// Sizes of the CPUs' lists; 6.x only.
    pub pcp: PcpSizes,
}

impl Zone {
    #[must_use]
    pub fn new(node: usize, kind: ZoneKind, spanned: u64, managed: u64) -> Zone {
        let free = managed;
        let managed_at_boot = managed;
        Zone { node, kind, spanned, managed, free, managed_at_boot, prev_priority: 12, ..Zone::default() }
    }

    /// `zone_watermark_ok` for order 0: strictly more than the watermark and the reserve must be free.
    #[inline]
    pub fn above(&self, mark: u64, wanted: ZoneKind) -> bool {
        self.free > mark + self.reserve[wanted as usize]
    }

    /// As `above`, for an allocation; mm/page_alloc.c: get_page_from_freelist, 6.7: sets ZONE_BELOW_HIGH if the zone is
    /// below its high watermark.
    #[inline]
    pub fn admits(&mut self, mark: u64, wanted: ZoneKind) -> bool {
        if !self.pcp.below_high && self.above(self.high, wanted) {
            return true;
        }
        self.pcp.below_high = true;
        self.above(mark, wanted)
    }

    /// mm/page_alloc.c: free_unref_page_commit, 6.7: clears ZONE_BELOW_HIGH after pages were freed.
    pub fn note_high(&mut self) {
        let is_high = self.above(self.high, ZoneKind::HighMem);
        self.pcp.below_high &= !is_high;
    }

    /// Frames by use, which must add up to `managed` (checked after each run).
    #[must_use]
    pub fn accounted(&self) -> u64 {
        self.free + self.on_cpu_lists + self.slab + self.pinned + self.file + self.anonymous
    }
}

/// min, low, high and the reserves of all zones, from `min_free_kbytes`.
pub fn set_watermarks(zones: &mut [Zone], min_free_kbytes: u64, scale_factor: u64, profile: &Profile) {
    let pages_min = min_free_kbytes * 1024 / PAGE_BYTES;
    let lowmem: u64 = zones.iter().filter(|zone| zone.kind != ZoneKind::HighMem).map(|zone| zone.managed).sum();
    for zone in zones.iter_mut() {
        // The product of two page counts may need more than 64 bits.
        let share = (u128::from(pages_min) * u128::from(zone.managed) / u128::from(lowmem.max(1))) as u64;
        let share = zone.min_at_boot.unwrap_or(share);
        // mm/page_alloc.c: setup_per_zone_wmarks, 2.6.32: a highmem zone keeps only 32 to 128 pages as min.
        let highmem = zone.kind == ZoneKind::HighMem;
        zone.min = if highmem { (zone.managed / 1024).clamp(32, 128) } else { share };
        if profile.is_6() {
            // mm/page_alloc.c: __setup_per_zone_wmarks, 6.1.
            let gap = (share / 4).max(zone.managed * scale_factor / 10_000);
            (zone.low, zone.high) = (zone.min + gap, zone.min + 2 * gap);
        } else {
            (zone.low, zone.high) = (zone.min + share / 4, zone.min + share / 2);
        }
    }
    set_reserves(zones, profile.lowmem_reserve_ratio);
}

/// mm/page_alloc.c: setup_per_zone_lowmem_reserve: each zone withholds 1/ratio of the node's higher zones.
pub fn set_reserves(zones: &mut [Zone], ratio: [u64; 3]) {
    let shapes: Vec<(usize, ZoneKind, u64)> = zones.iter().map(|zone| (zone.node, zone.kind, zone.managed)).collect();
    for zone in zones.iter_mut() {
        let divisor = match zone.kind {
            ZoneKind::Dma => ratio[0],
            ZoneKind::Dma32 => ratio[1],
            _ => ratio[2],
        };
        for wanted in [ZoneKind::Dma32, ZoneKind::Normal, ZoneKind::HighMem] {
            let above: u64 = shapes
                .iter()
                .filter(|(node, kind, _)| *node == zone.node && *kind > zone.kind && *kind <= wanted)
                .map(|(.., managed)| managed)
                .sum();
            zone.reserve[wanted as usize] = above / divisor.max(1);
        }
    }
}

/// mm/page_alloc.c: calculate_totalreserve_pages: the sum of each zone's high watermark and largest reserve.
#[must_use]
pub fn totalreserve_pages(zones: &[Zone]) -> u64 {
    let of = |zone: &Zone| (zone.reserve.iter().max().unwrap_or(&0) + zone.high).min(zone.managed);
    zones.iter().map(of).sum()
}

/// mm/page_alloc.c: init_per_zone_wmark_min (2.6.32): isqrt(16 x lowmem KiB), clamped.
#[must_use]
pub fn default_min_free_kbytes(zones: &[Zone], profile: &Profile) -> u64 {
    let lowmem: u64 = zones.iter().filter(|zone| zone.kind != ZoneKind::HighMem).map(|zone| zone.managed).sum();
    let own = (lowmem * PAGE_BYTES / 1024 * 16).isqrt().clamp(128, profile.min_free_kbytes_max.get());
    if profile.is_6() { own.max(recommended_min_free_kbytes(zones, PAGE_BYTES)) } else { own }
}

/// mm/khugepaged.c: set_recommended_min_free_kbytes, 4.18: two page blocks of each zone and nine for the migrate types;
/// at most a twentieth of the lowmem above the high watermarks (nr_free_buffer_pages).
fn recommended_min_free_kbytes(zones: &[Zone], page_bytes: u64) -> u64 {
    let populated = zones.iter().filter(|zone| zone.managed > 0 && zone.kind != ZoneKind::HighMem);
    let nr_zones = populated.clone().count() as u64;
    let wanted = PAGEBLOCK.get() * nr_zones * (2 + MIGRATE_PCPTYPES.get() * MIGRATE_PCPTYPES.get());
    let most: u64 = populated.map(|zone| zone.managed.saturating_sub(zone.high)).sum::<u64>() / 20;
    wanted.min(most) * page_bytes / 1024
}

/// The zonelist of a request from `node` for memory up to `kind`.
#[must_use]
pub fn zonelist(zones: &[Zone], node: usize, kind: ZoneKind, by_zone: bool, nodes: usize) -> Vec<u8> {
    let mut list: Vec<u8> = (0..zones.len() as u8).filter(|&zone| zones[usize::from(zone)].kind <= kind).collect();
    let far = |zone: &Zone| (zone.node + nodes - node) % nodes;
    list.sort_by_key(|&zone| {
        let zone = &zones[usize::from(zone)];
        let (kind, far) = (3 - zone.kind as usize, far(zone));
        // default_zonelist_order, 2.6.32: by zone where DMA zones are a small part, so that they are used last.
        if by_zone { (kind, far) } else { (far, kind) }
    });
    list
}

#[cfg(test)]
mod tests {
    use super::{Zone, ZoneKind, recommended_min_free_kbytes, totalreserve_pages};

    #[test]
    fn huge_pages_raise_min_free_kbytes_to_eleven_page_blocks_a_zone() {
        let zone = |kind, managed| Zone::new(0, kind, managed, managed);
        let zones = [zone(ZoneKind::Dma, 3840), zone(ZoneKind::Dma32, 800_000), zone(ZoneKind::Normal, 1_200_000)];
        // 512 pages x 3 zones x 11: the 67584 that x86-64 machines of more than 4 GiB show.
        assert_eq!(recommended_min_free_kbytes(&zones, 4096), 67_584);
        assert_eq!(
            recommended_min_free_kbytes(&[zone(ZoneKind::Dma32, 20_000)], 4096),
            4000,
            "a twentieth of the memory"
        );
    }

    #[test]
    fn a_zone_keeps_its_high_watermark_and_the_most_it_withholds_but_no_more_than_it_has() {
        let mut dma = Zone::new(0, ZoneKind::Dma, 4096, 4000);
        (dma.high, dma.reserve) = (30, [0, 2000, 3900, 3900]);
        let mut normal = Zone::new(0, ZoneKind::Normal, 100_000, 90_000);
        normal.high = 1500;
        assert_eq!(totalreserve_pages(&[dma.clone(), normal.clone()]), 3900 + 30 + 1500);
        dma.high = 200;
        assert_eq!(totalreserve_pages(&[dma, normal]), 4000 + 1500);
    }
}
