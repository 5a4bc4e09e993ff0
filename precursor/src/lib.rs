//! Appends to a file without meeting allocation, reclaim, the journal or dirty throttling on the writer's own thread.
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("journal");
//! use precursor::Options;
//!
//! let mut journal = Options::new(&path).open()?; // probes the machine and chooses a mode
//! println!("{}: {}", journal.mode().name(), journal.reasons().join("; "));
//! let position = journal.append(b"a record")?; // survives this process, as after write()
//! journal.sync_to(position)?; // survives the machine
//! journal.close()?; // the file has its exact length
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What survives what
//!
//! | mode | the process dies | the machine dies |
//! |---|---|---|
//! | `plain` | after `append` | after `sync_to` |
//! | `prefetch`, `window` | after `append` | after `sync_to` |
//! | `ring` | after `append`: reopening, or [`recover`], writes what the ring still held | after `sync_to` |
//!
//! The middle column needs a shared-memory file in `/dev/shm` (see [`Options::shm_dir`]). Where none can be made, or
//! where it may go with a container or at a logout, the records of a ring, and of an unframed window or prefetch, survive the process
//! only after `sync_to`, and [`Survival`] says `SyncTo` instead of `Append`. Without a mode, `open` then takes another one, down to
//! `plain`: never one that is weaker than `write()`, unless [`Options::process_death_may_lose`] allows it. A mode asked for by name,
//! and many producers, get their ring. [`Position`] is what was accepted; only `sync_to` and `close` make a [`Durable`].

mod ahead;
#[cfg(test)]
mod any_order_tests;
mod appender;
mod atomics;
mod behind;
pub mod budget;
#[allow(non_camel_case_types, reason = "names as C has them")]
pub mod c;
mod c_convert;
#[allow(non_camel_case_types, reason = "names as C has them")]
pub mod c_many;
#[allow(non_camel_case_types, reason = "names as C has them")]
pub mod c_types;
pub mod choose;
mod claim;
mod core;
mod error;
mod files;
mod flush;
pub mod follow;
mod followed;
mod fork;
mod frame;
#[doc(hidden)]
pub mod fuzzing;
mod handles;
#[cfg(test)]
mod helper_tests;
mod hot;
mod lane;
mod lasting;
mod leftovers;
mod live;
mod many;
mod open;
mod options;
mod patience;
pub mod plan;
mod probe;
mod process;
mod recover;
mod replay;
mod resync;
mod ring;
mod sidecar;
mod sigbus;
mod space;
mod stage;
mod start;
mod stats;
mod syncer;
mod sys;
mod timer;
mod turns;
mod window;
mod written;

pub use appender::Appender;
pub use error::{AppendError, OpenError, RecoverError, SyncError};
pub use frame::records;
pub use lasting::Removal;
pub use leftovers::{Leftover, Owner, leftovers};
pub use many::ManyAppender;
pub use options::{BackPressure, Durability, Existing, Framing, Options};
pub use plan::Mode;
pub use probe::{limits, probe};
pub use recover::{Evidence, Recovered, recover};
pub use stats::{After, Durable, Position, Stats, Survival};
pub use syncer::Syncer;
