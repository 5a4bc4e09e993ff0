//! The atomics of `claim.rs`, `lane.rs` and `turns.rs`; the model tests compile these files with loom's atomics
//! instead.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
