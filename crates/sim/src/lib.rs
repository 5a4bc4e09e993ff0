//! The simulator: runs a scenario on a model of the kernel that it names, and returns the same recording that a real
//! machine would have given.
//!
//! Deterministic: virtual nanoseconds, one event queue (`clock`), every random choice from a seeded Pcg64. The path
//! of one page: `vfs::write` asks `alloc::page`, which looks at the zones (`zone`), wakes `kswapd` or reclaims
//! (`reclaim`, `shrinker`); the page lives in a `chunk` until `writeback` has cleaned it through `block` and a scan
//! gives its frame back (`memory::drop_pages`). docs/simulator.md says what each part leaves out.

mod actor;
mod ahead;
mod alloc;
mod anonymous;
mod balance;
mod batching;
mod block;
mod bounds;
mod build;
mod chunk;
mod clock;
pub mod constant;
mod copying;
mod cpu;
mod cpu_list;
mod device;
mod disk;
mod drive;
mod fair;
mod fault;
mod file_system;
mod filemap_add;
mod flusher;
mod inactive_list;
mod inode;
mod invariant;
mod io_less;
mod journal;
pub mod kernel;
mod knobs;
mod kswapd;
mod machine;
mod mapped;
mod memory;
mod modelled;
mod monitor;
mod names;
mod node_dirty_limit;
mod options;
mod placement;
mod prepare;
mod process;
mod proportions;
mod ranges;
mod readahead;
mod reclaim;
mod recorder;
mod refuse;
mod requests;
mod rotation;
mod run;
mod sample;
mod share;
mod shrinker;
pub mod site;
mod slab;
mod slab_partial;
mod sync;
pub mod task;
mod throttle;
mod user_lock;
mod v22;
mod v6;
mod vfs;
mod warm;
mod wbt;
mod workingset;
mod writeback;
mod zone;

pub use bounds::Bound;
pub use machine::Machine;
pub use modelled::modelled_knobs;
pub use options::{Ablations, Options, Truth};
pub use recorder::TrueStall;
pub use refuse::leave_out;
pub use run::{SimError, constants, run, run_with};
pub use warm::Warm;
