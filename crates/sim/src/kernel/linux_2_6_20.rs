//! Linux 2.6.20: the mail servers, 32-bit with PAE (with and without the leak of journalled pages) and 64-bit.

use super::{
    Constant, ContextReadahead, Objects, Profile, ScanBalance, SlabFallback, SwapRule, Throttle, ZoneReclaim,
    linux_2_6_32,
};
use crate::slab::ObjectShape;

const fn object(name: &'static str, bytes: u64, per_slab: u64, from: &'static str) -> Constant<ObjectShape> {
    Constant::kernel(ObjectShape { name, bytes, per_slab }, from, "sizeof; mm/slab.c: cache_estimate", "2.6.20")
}

/// 32-bit sizes, added up from their fields (of the reiserfs inode 384 to 448 B are published) (include/linux/buffer_head.h,
/// include/linux/dcache.h with DNAME_INLINE_LEN_MIN 36, lib/radix-tree.c with rcu_head and two tags, 2.6.20). In a slab
/// each takes 4 B more for its bufctl, and the slab's own struct 28 B (mm/slab.c: cache_estimate).
const OBJECTS_32: Objects = Objects {
    buffer_head: object("buffer_head", 52, 72, "include/linux/buffer_head.h"),
    // The inode 340 B, and 88 B of reiserfs' own (16 for i_key, 16 for i_mmap, 16 for i_xattr_sem and ten words): with or without
    // extended attributes nine are in a slab, as with every size from 403 to 448.
    inode: object("reiser_inode_cache", 428, 9, "include/linux/reiserfs_fs_i.h, include/linux/fs.h"),
    dentry: object("dentry", 132, 29, "include/linux/dcache.h"),
    radix_node: object("radix_tree_node", 288, 13, "lib/radix-tree.c"),
};

const OBJECTS_64: Objects = Objects {
    buffer_head: object("buffer_head", 104, 37, "include/linux/buffer_head.h"),
    inode: object("reiser_inode_cache", 680, 5, "include/linux/reiserfs_fs_i.h"),
    dentry: object("dentry", 208, 18, "include/linux/dcache.h"),
    radix_node: object("radix_tree_node", 552, 7, "lib/radix-tree.c"),
};

pub fn pae() -> Profile {
    Profile {
        name: "linux-2.6.20-pae",
        sentence: "2.6.20, 32-bit PAE: 896 MiB of lowmem for inodes, dentries and metadata; the leak patched.",
        struct_page_bytes: Constant::kernel(32, "include/linux/mm_types.h", "sizeof(struct page), i386", "2.6.20"),
        hz: Constant::kernel(250, "kernel/Kconfig.hz", "CONFIG_HZ, default", "2.6.20"),
        lowmem_bytes: Some(Constant::kernel(896 << 20, "arch/i386/kernel/setup.c", "MAXMEM_PFN", "2.6.20")),
        pci_hole_bytes: Constant::assumed(0, "all of the published total is memory"),
        reclaim_distance: None,
        zonelist_by_zone: true,
        ages_evenly: true,
        relatime: false,
        sync_writes: false,
        context_readahead: ContextReadahead::Never,
        fdatasync_skips: false,
        swap: SwapRule { balance: ScanBalance::Tendency, ..linux_2_6_32::profile().swap },
        slab_fallback: SlabFallback::TriesHarder,
        zone_reclaim: ZoneReclaim::None,
        throttle: Throttle::PerCpuRateLimit,
        dirty_ratio: Constant::kernel(40, "mm/page-writeback.c", "vm_dirty_ratio", "2.6.20"),
        background_ratio: Constant::kernel(10, "mm/page-writeback.c", "dirty_background_ratio", "2.6.20"),
        inodes_per_block: Constant::assumed(24, "a leaf of 4 KiB: stat data and items of so many files"),
        // A name of about 64 bytes with its head of 16 (include/linux/reiserfs_fs.h: reiserfs_de_head), at the place that its
        // hash leads to: leaves that fill in no order are two thirds full.
        names_per_block: Some(Constant::assumed(36, "names of 64 bytes with their heads, leaves two thirds full")),
        radix_nodes: true,
        file_systems: &["reiserfs", "ext3", "ext2", "xfs"],
        objects: OBJECTS_32,
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
        struct_page_bytes: Constant::kernel(56, "include/linux/mm_types.h", "sizeof(struct page), x86-64", "2.6.20"),
        lowmem_bytes: None,
        objects: OBJECTS_64,
        ..pae()
    }
}
