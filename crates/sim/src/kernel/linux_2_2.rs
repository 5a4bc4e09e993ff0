//! What the 2.2 kernels have in common: a buffer cache beside the page cache.

use super::{Bforget, BufferCache, Profile, Throttle, linux_2_6_17};

pub const CACHE: BufferCache = BufferCache {
    bforget: Bforget::Orphans,
    // mm/page_alloc.c, free_area_init(): freepages.min is pages >> 7, at least 10, at most 256; low 2 x, high 3 x.
    freepages_shift: 7,
    freepages_min: [10, 256],
    // mm/vmscan.c: do_try_to_free_pages() begins at priority 6; include/linux/swap.h: SWAP_CLUSTER_MAX.
    priority: 6,
    swap_cluster_max: 32,
    // mm/swap.c: buffer_mem and page_cache {2, 10, 60} and {2, 15, 75}: only min_percent is ever read.
    buffermem_min_percent: 2,
    pagecache_min_percent: 2,
    // fs/buffer.c: bdf_prm {40, 500, 64, 256, 15, 30*HZ, 5*HZ, 1884, 2}.
    nfract_percent: 40,
    ndirty: 500,
    age_buffer_ns: 30_000_000_000,
    // Sizes of the modelled system, not of the kernel: text, mem_map and slabs; private pages of a small process.
    kernel_bytes: 16 << 20,
    process_pages: 60,
};

pub fn profile(name: &'static str, sentence: &'static str, bforget: Bforget) -> Profile {
    Profile {
        name,
        sentence,
        hz: 100,
        throttle: Throttle::None,
        journal: false,
        buffer_cache: Some(BufferCache { bforget, ..CACHE }),
        ..linux_2_6_17::profile()
    }
}
