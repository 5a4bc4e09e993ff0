//! Answers questions over the recordings of many hosts: which hosts, kernels and settings stall and why, which programs
//! cause it, and whether a rollout helped.
//!
//! Hosts [`push`] summaries of their hours into an object store ([`store`] has the keys). [`compact`] merges them into
//! a few sorted files per hour. [`ask`] answers named questions in SQL, [`judge`] computes what differs between hosts
//! and by how much, and [`report`] writes one HTML page. [`generate`] makes a synthetic fleet with known facts, for
//! tests. docs/fleet.md describes the use.

pub mod ask;
pub mod cli;
pub mod compact;
pub mod error;
pub mod generate;
pub mod input;
pub mod judge;
pub mod left_out;
pub mod push;
pub mod report;
mod sent;
pub mod store;
pub mod tables;
mod template;
pub mod time;

pub use error::FleetError;
pub use store::Fleet;
