//! One reader per kernel file: pure functions from its bytes to rows, without allocation once a file's shape is known.
//!
//! What a kernel does not print has no column, and what a reader cannot make sense of it skips: kernels add and
//! drop lines in every release, and none of these files is worth failing over.

pub mod bdi;
pub mod buddyinfo;
pub mod cgroup;
pub mod disk;
pub mod file;
pub mod flat;
pub mod kpageflags;
#[cfg(test)]
mod lines;
pub mod meminfo;
pub mod mounts;
pub mod pagetypeinfo;
pub mod pressure;
pub mod sheet;
pub mod slabinfo;
pub mod stat;
pub mod text;
pub mod vmstat;
pub mod zoneinfo;

pub use file::KernelFile;
pub use sheet::Sheet;
