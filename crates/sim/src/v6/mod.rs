//! Memory management of 6.x where it differs from 2.6 by mechanism: page blocks and watermark boosts, reclaim by node and
//! priority, the shrinker of dentries and inodes, the page cache's tree nodes, memory cgroups.

pub mod blocks;
pub mod boot_blocks;
pub mod buddy;
pub mod cgroup;
pub mod fallback;
pub mod folio;
mod frames;
pub mod kswapd;
pub mod memcg;
pub mod node;
pub mod super_cache;
pub mod tree;
