//! The 2.2 kernels: a buffer cache beside the page cache.

use super::{Bforget, BufferCache, Constant, Profile, Throttle, linux_2_6_17};
use crate::sched::site::Generation;

const CACHE: BufferCache = BufferCache {
    bforget: Bforget::Orphans,
    // Pages of memory >> 7, at least 10, at most 256; low is twice, high three times as much.
    freepages_shift: Constant::kernel(7, "mm/page_alloc.c", "free_area_init", "2.2.1"),
    freepages_min: Constant::kernel(10, "mm/page_alloc.c", "free_area_init", "2.2.1"),
    freepages_max: Constant::kernel(256, "mm/page_alloc.c", "free_area_init", "2.2.1"),
    priority: Constant::kernel(6, "mm/vmscan.c", "do_try_to_free_pages", "2.2.1"),
    swap_cluster_max: Constant::kernel(32, "include/linux/swap.h", "SWAP_CLUSTER_MAX", "2.2.1"),
    // buffer_mem and page_cache: {2, 10, 60} and {2, 15, 75}, of which only min_percent is ever read.
    buffermem_min_percent: Constant::kernel(2, "mm/swap.c", "buffer_mem", "2.2.1"),
    pagecache_min_percent: Constant::kernel(2, "mm/swap.c", "page_cache", "2.2.1"),
    nfract_percent: Constant::kernel(40, "fs/buffer.c", "bdf_prm.nfract", "2.2.1"),
    ndirty: Constant::kernel(500, "fs/buffer.c", "bdf_prm.ndirty", "2.2.1"),
    age_buffer_ns: Constant::kernel(30_000_000_000, "fs/buffer.c", "bdf_prm.age_buffer (30*HZ)", "2.2.1"),
    kernel_bytes: Constant::assumed(16 << 20, "text, mem_map and slabs"),
    process_pages: Constant::assumed(60, "private pages of a small process"),
};

fn profile(name: &'static str, sentence: &'static str, bforget: Bforget) -> Profile {
    Profile {
        name,
        generation: Generation::V2_2,
        sentence,
        hz: Constant::kernel(100, "include/asm-i386/param.h", "HZ", "2.2.1"),
        throttle: Throttle::None,
        file_systems: &["ext2"],
        schedulers: &[],
        buffer_cache: Some(BufferCache { bforget, ..CACHE }),
        ..linux_2_6_17::profile()
    }
}

pub fn v2_2_3() -> Profile {
    let sentence = "2.2.3: fs/buffer.c, __bforget() leaves a forgotten buffer nameless on the clean list.";
    profile("linux-2.2.3", sentence, Bforget::Orphans)
}

/// The text of the fix that was proposed first was not available: this is the least change that puts a forgotten
/// buffer on the free list once it is unreferenced, without checks.
pub fn v2_2_3_proposed() -> Profile {
    let sentence =
        "2.2.3 with the first proposed fix of __bforget(): always unhashed, on the free list once unreferenced.";
    profile("linux-2.2.3-proposed-bforget", sentence, Bforget::FreesWhenUnheld)
}

pub fn v2_2_5() -> Profile {
    let sentence = "2.2.5: fs/buffer.c, __bforget() releases a shared or locked buffer, else put_last_free().";
    profile("linux-2.2.5", sentence, Bforget::PutsLastFree)
}
