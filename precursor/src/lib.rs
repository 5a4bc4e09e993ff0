//! Appends to a file without meeting allocation, reclaim, the journal or dirty throttling on the writer's own thread.

pub mod budget;
pub mod choose;
pub mod plan;
