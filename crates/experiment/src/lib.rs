//! Trials and statistics over recordings: which of two is better (`compare`), whether a fix helps (`trial`, `judge`),
//! how far two performances of one scenario agree (`agree`), what a setting would do (`whatif`), and the estimates that all
//! of them rest on (`bootstrap`).
//!
//! Nothing here touches the machine or a kernel model: whoever performs a scenario is handed in as a `Performer` or a
//! closure, and gives back its recording.

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
