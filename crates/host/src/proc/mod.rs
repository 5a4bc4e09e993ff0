//! Readers of kernel files, one module per file: pure functions from the file's bytes to rows, which do not allocate
//! once the file's shape is known.
//!
//! A line that the kernel does not print has no column, and a line that a reader does not understand is skipped:
//! kernels add and drop lines in every release, and none of these files is worth failing over.

pub mod bdi;
pub mod buddyinfo;
pub mod cgroup;
pub mod disk;
pub mod file;
pub mod flat;
#[cfg(test)]
mod lines;
pub mod meminfo;
pub mod mounts;
pub mod pressure;
pub mod sheet;
pub mod slabinfo;
pub mod stat;
pub mod text;
pub mod vmstat;
pub mod zoneinfo;

pub use file::KernelFile;
pub use sheet::Sheet;
