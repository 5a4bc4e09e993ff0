//! The atomics of what the model tests compile once more with loom's: `claim.rs` and `turns.rs`.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
