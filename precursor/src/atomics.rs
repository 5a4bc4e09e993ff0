//! Atomics for `claim.rs`, `lane.rs` and `ring_use.rs`. Tests compile these files with other atomics, such as loom's.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
