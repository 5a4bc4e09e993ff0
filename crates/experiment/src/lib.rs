//! Trials and statistics over recordings: which of two is better (`compare`), whether a fix helps (`trial`, `judge`),
//! how far two performances of one scenario agree (`agree`), and the estimates that all of them rest on (`bootstrap`).
//!
//! Nothing here touches the machine or a kernel model: whoever performs a scenario hands in its recordings.

pub mod agree;
mod block;
pub mod bootstrap;
pub mod compare;
pub mod judge;
pub mod trial;
pub mod verdict;
pub mod windowed;
mod work;
