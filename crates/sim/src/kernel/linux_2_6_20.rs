//! Linux 2.6.20: the mail servers, 32-bit with PAE (with and without the leak of journalled pages) and 64-bit.

use super::{Constant, Objects, Profile, SlabFallback, Throttle, ZoneReclaim, linux_2_6_32};
use crate::mm::slab::ObjectShape;

const fn object(name: &'static str, bytes: u64, word_bytes: u64, from: &'static str) -> Constant<ObjectShape> {
    Constant::kernel(ObjectShape::slab(name, bytes, word_bytes), from, "sizeof; mm/slab.c: cache_estimate", "2.6.20")
}

/// sizeof of the structs as arch/i386/defconfig has them (SMP, LBD, PROFILING, DNOTIFY, INOTIFY, reiserfs with ACL and
/// XATTR; no QUOTA, no SECURITY), computed by a compiler from their declarations. sector_t and blkcnt_t are 8 B with
/// LBD.
const OBJECTS_32: Objects = Objects {
    buffer_head: object("buffer_head", 56, 4, "include/linux/buffer_head.h"),
    // 324 B of struct inode and 96 B of reiserfs' own; with QUOTA 428, nine to a slab either way.
    inode: object("reiser_inode_cache", 420, 4, "include/linux/reiserfs_fs_i.h, include/linux/fs.h"),
    dentry: object("dentry", 132, 4, "include/linux/dcache.h"),
    radix_node: object("radix_tree_node", 288, 4, "lib/radix-tree.c"),
};

/// As `OBJECTS_32`, with arch/x86_64/defconfig.
const OBJECTS_64: Objects = Objects {
    buffer_head: object("buffer_head", 104, 8, "include/linux/buffer_head.h"),
    // 536 B of struct inode and 144 B of reiserfs' own.
    inode: object("reiser_inode_cache", 680, 8, "include/linux/reiserfs_fs_i.h, include/linux/fs.h"),
    dentry: object("dentry", 208, 8, "include/linux/dcache.h"),
    radix_node: object("radix_tree_node", 552, 8, "lib/radix-tree.c"),
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
        shared_lru: true,
        relatime: false,
        slab_fallback: SlabFallback::TriesHarder,
        zone_reclaim: ZoneReclaim::None,
        throttle: Throttle::PerCpuRateLimit,
        dirty_ratio: Constant::kernel(40, "mm/page-writeback.c", "vm_dirty_ratio", "2.6.20"),
        background_ratio: Constant::kernel(10, "mm/page-writeback.c", "dirty_background_ratio", "2.6.20"),
        inodes_per_block: Constant::assumed(24, "a leaf of 4 KiB: stat data and items of 24 files"),
        // A name of about 64 bytes with its head of 16 (include/linux/reiserfs_fs.h: reiserfs_de_head), at the place
        // that its hash leads to: leaves that fill in no order are two thirds full.
        names_per_block: Some(Constant::assumed(36, "names of 64 bytes with their heads, leaves two thirds full")),
        radix_nodes: true,
        file_systems: &["reiserfs", "ext3", "ext2"],
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
