//! File systems: names, inodes, where files are on a disk, the log.

pub mod file_system;
pub mod inode;
pub mod journal;
pub mod namei;
pub mod placement;
pub mod ranges;
pub mod vfs;
