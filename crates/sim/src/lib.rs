//! The simulator: runs a scenario on a model of the kernel that it names, and returns the same recording that a real
//! machine would have given.
//!
//! Runs are deterministic: virtual nanoseconds, one event queue (`sched::clock`), and every random choice from a seeded
//! Pcg64. A simulated thread is a future; `run` starts them and gathers the recording.
//!
//! | folder | content |
//! |---|---|
//! | `mm` | zones, free pages, page cache, LRU lists, reclaim, slabs, memory cgroups |
//! | `writeback` | dirty limits, flushers, writing files |
//! | `block` | queues, elevators, devices |
//! | `fs` | names, inodes, where files are on a disk, journals |
//! | `sched` | virtual time, CPUs, threads, and where a thread spends its time |
//! | `kernel` | versions: constants and features of each |
//! | `machine` | a scenario's machine, its settings, and what the model refuses |
//! | `run` | workloads' threads, samples, the recording |
//! | `v22` | 2.2 kernels, which have a memory of their own |
//!
//! The path of one page: `fs::vfs::write` calls `mm::alloc::page`, which checks the watermarks of `mm::zone`, wakes
//! `mm::kswapd` or reclaims (`mm::reclaim`, `mm::shrinker`). The page is in a chunk (`mm::chunk`) until `writeback` has
//! cleaned it through `block` and a scan frees it (`mm::memory::drop_pages`). Each module lists what it models and
//! leaves out.

mod block;
pub mod constant;
mod fs;
pub mod kernel;
mod linked;
mod machine;
mod mm;
mod run;
mod sched;
mod v22;
mod writeback;

pub use machine::Machine;
pub use machine::bounds::Bound;
pub use machine::knob_support::modelled_knobs;
pub use machine::refuse::leave_out;
pub use run::options::{Ablations, Options, Truth};
pub use run::recorder::TrueStall;
pub use run::warm::Warm;
pub use run::{SimError, constants, run, run_with};
pub use sched::{site, task};
