//! Kernel object caches: /proc/slabinfo. Entity: the cache.

use super::columns;

columns! { ALL: Slabs, from "/proc/slabinfo";
    ACTIVE_OBJS    "active_objs"    gauge   count "2.4.0";
    NUM_OBJS       "num_objs"       gauge   count "2.4.0";
    OBJSIZE_BYTES  "objsize_bytes"  gauge   bytes "2.4.0";
    OBJS_PER_SLAB  "objs_per_slab"  gauge   count "2.6.0";
    PAGES_PER_SLAB "pages_per_slab" gauge   count "2.4.0";
    ACTIVE_SLABS   "active_slabs"   gauge   count "2.4.0";
    NUM_SLABS      "num_slabs"      gauge   count "2.4.0";
}

columns! { OF_TOOLS: Slabs;
    SIZE_BYTES      "size_bytes"      gauge   bytes "2.4.0"  is "CACHE SIZE of slabtop";
    ALLOCATIONS     "allocations"     counter count "2.6.0"  is "objects allocated, ALLOCS of slabratetop";
    ALLOCATED_BYTES "allocated_bytes" counter bytes "2.6.0"  is "BYTES of slabratetop";
}
