//! Results of each workload, computed from observations; one file per workload.

pub mod bulk;
pub mod checkpoint;
pub mod graphdb;
pub mod journal;
pub mod levels;
pub mod maildir;
pub mod sdet;
pub mod statistics;
