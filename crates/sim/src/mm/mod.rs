//! Memory management: zones, page cache, lists, reclaim, slabs, memory cgroups.

pub mod alloc;
pub mod anonymous;
pub mod chunk;
pub mod cpu_list;
pub mod fault;
pub mod filemap_add;
pub mod folio;
pub mod kswapd;
pub mod kswapd_node;
pub mod lru_balance;
pub mod mapped;
pub mod memcg_reclaim;
pub mod memcontrol;
pub mod memory;
pub mod readahead;
pub mod reclaim;
pub mod shrink_node;
pub mod shrinker;
pub mod slab;
pub mod slab_partial;
pub mod super_cache;
pub mod workingset;
pub mod xarray;
pub mod zone;
