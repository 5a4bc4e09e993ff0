//! Many recordings, one question: which hosts, kernels and settings stall from what, who makes it so, and whether a rollout
//! helped. Hosts push thin summaries into a store of objects; they are compacted by the hour and judged.
//!
//! `store` (where objects lie, and their names), `push`, `compact`, `ask` (named
//! questions), `judge` (what differs, and by how much), `report`, `generate` (a fleet whose truth is known). docs/fleet.md says
//! how they are used.

pub mod aside;
pub mod ask;
pub mod cli;
pub mod compact;
pub mod error;
pub mod generate;
pub mod input;
pub mod judge;
pub mod push;
pub mod report;
mod sent;
pub mod store;
pub mod tables;
mod template;
pub mod time;

pub use error::FleetError;
pub use store::Fleet;
