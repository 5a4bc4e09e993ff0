//! Linux 2.6.20: the mail servers, 32-bit with PAE (with and without the leak of journalled pages) and 64-bit.

use super::{Costs, Objects, Profile, SlabFallback, Throttle, ZoneReclaim, linux_2_6_32};
use crate::slab::ObjectShape;

/// 32-bit sizes: reiserfs inode 384 to 448 B published, the others added up from their fields (include/linux/buffer_head.h,
/// include/linux/dcache.h with DNAME_INLINE_LEN_MIN 36, lib/radix-tree.c with rcu_head and two tags, 2.6.20). In a slab
/// each takes 4 B more for its bufctl, and the slab's own struct 28 B (mm/slab.c: cache_estimate).
const OBJECTS_32: Objects = Objects {
    buffer_head: ObjectShape { name: "buffer_head", bytes: 52, per_slab: 72 },
    inode: ObjectShape { name: "reiser_inode_cache", bytes: 440, per_slab: 9 },
    dentry: ObjectShape { name: "dentry", bytes: 132, per_slab: 29 },
    radix_node: ObjectShape { name: "radix_tree_node", bytes: 288, per_slab: 13 },
};

const OBJECTS_64: Objects = Objects {
    buffer_head: ObjectShape { name: "buffer_head", bytes: 104, per_slab: 37 },
    inode: ObjectShape { name: "reiser_inode_cache", bytes: 680, per_slab: 5 },
    dentry: ObjectShape { name: "dentry", bytes: 208, per_slab: 18 },
    radix_node: ObjectShape { name: "radix_tree_node", bytes: 552, per_slab: 7 },
};

pub fn pae() -> Profile {
    Profile {
        name: "linux-2.6.20-pae",
        sentence: "2.6.20, 32-bit PAE: 896 MiB of lowmem for inodes, dentries and metadata; the leak patched.",
        struct_page_bytes: 32,
        hz: 250,
        // arch/i386: 16 MiB DMA + 880 MiB NORMAL.
        lowmem_bytes: Some(896 << 20),
        pci_hole_bytes: 0,
        reclaim_distance: None,
        zonelist_by_zone: true,
        ages_evenly: true,
        slab_fallback: SlabFallback::TriesHarder,
        zone_reclaim: ZoneReclaim::None,
        throttle: Throttle::PerCpuRateLimit,
        dirty_ratio: 40,
        background_ratio: 10,
        // reiserfs packs stat data and directory items of a few dozen files into a 4 KiB leaf.
        inodes_per_block: 24,
        // A name of about 64 bytes with its head of 16 (include/linux/reiserfs_fs.h: reiserfs_de_head), at the place that its
        // hash leads to: leaves that fill in no order are two thirds full.
        names_per_block: Some(36),
        radix_nodes: true,
        objects: OBJECTS_32,
        costs: Costs { jiffy_ns: 4_000_000, ..linux_2_6_32::COSTS },
        ..linux_2_6_32::profile()
    }
}

pub fn pae_leak() -> Profile {
    Profile {
        name: "linux-2.6.20-pae-leak",
        sentence: "As linux-2.6.20-pae, with data=journal pages left on the LRU when their file is truncated.",
        leaks_journalled_pages: true,
        ..pae()
    }
}

pub fn x86_64() -> Profile {
    Profile {
        name: "linux-2.6.20-x86_64",
        sentence: "2.6.20, 64-bit: no highmem, so inodes compete with page cache on even terms.",
        struct_page_bytes: 56,
        lowmem_bytes: None,
        objects: OBJECTS_64,
        ..pae()
    }
}
