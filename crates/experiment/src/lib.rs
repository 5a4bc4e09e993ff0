//! Trials and statistics over recordings: which of two is better (`compare`), whether a fix helps (`trial`, `judge`),
//! how far two runs of one scenario agree (`agree`), what a setting would change (`whatif`), and the estimates that
//! they all use (`bootstrap`).
//!
//! Nothing here touches the machine or a kernel model: the caller passes a `Performer` or a closure that performs a
//! scenario and returns its recording.

pub mod agree;
mod block;
pub mod bootstrap;
pub mod compare;
pub mod judge;
pub mod trial;
pub mod verdict;
pub mod verify;
pub mod whatif;
pub mod windowed;
mod work;

pub use work::on_both;
