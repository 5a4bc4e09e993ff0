//! Appends records to a file so that the writer's thread does not wait for block allocation, reclaim, the journal or
//! dirty throttling.
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
//! [`Options::open`] probes the machine and returns an [`Appender`], the handle of one producer. [`Options::open_many`]
//! returns a [`ManyAppender`], which each producing thread clones. A [`Syncer`] syncs and reads counters on another
//! thread.
//!
//! A [`Reader`] reads framed records, also while they are written, in this process or another.
//!
//! An append returns a [`Position`]: the end of what the appender has accepted. Only `sync_to` and `close` return a
//! [`Durable`], a position up to which everything is on the device. [`recover`] finds the end of the data that a dead
//! writer left, and [`leftovers()`] lists the shared memory of dead writers. [`follow`] prepares the file of a running
//! program that cannot link this library. [`c`] is the C interface.
//!
//! # When a record survives
//!
//! | mode | death of the process | death of the machine |
//! |---|---|---|
//! | `plain` | after `append` | after `sync_to` |
//! | `prefetch`, `window` | after `append` | after `sync_to` |
//! | `ring` | after `append`: reopening, or [`recover`], writes the rest of the ring to the file | after `sync_to` |
//!
//! The middle column needs a shared-memory file in `/dev/shm` ([`Options::shm_dir`]). If none can be created, or if it
//! may be removed at a logout or with a container, the records of `ring`, and those of an unframed `window` or
//! `prefetch`, survive the process only after `sync_to`; [`Survival`] then says `SyncTo` instead of `Append`.
//!
//! Without a mode (`auto`), `open` never chooses a mode that keeps less than `write()` would, unless
//! [`Options::process_death_may_lose`] allows it; it falls back as far as `plain`. A mode requested by name, and a ring
//! for many producers, are opened all the same.

#![warn(missing_docs)]

#[cfg(test)]
mod any_order_tests;
mod appender;
mod atomics;
pub mod budget;
#[allow(non_camel_case_types, reason = "C naming")]
pub mod c;
mod c_convert;
mod c_handle;
#[allow(non_camel_case_types, reason = "C naming")]
mod c_many;
#[allow(non_camel_case_types, reason = "C naming")]
mod c_read;
#[allow(non_camel_case_types, reason = "C naming")]
mod c_types;
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
mod helper;
#[cfg(test)]
mod helper_tests;
mod hot;
mod index;
#[cfg(test)]
mod index_tests;
mod indexer;
mod keep;
mod lane;
mod lasting;
mod leftovers;
mod live;
mod many;
mod mode;
mod open;
mod options;
mod own;
mod patience;
pub mod plan;
mod probe;
mod process;
mod reader;
mod reader_live;
mod reader_types;
mod recover;
#[cfg(test)]
mod refused_tests;
mod replay;
mod resync;
mod ring;
mod ring_use;
mod sidecar;
mod sigbus;
mod space;
mod stage;
mod start;
mod stats;
mod syncer;
mod sys;
mod timer;
mod window;
mod write_back;
mod written;

pub use appender::Appender;
pub use error::{AppendError, OpenError, RecoverError, SyncError};
pub use frame::records;
pub use lasting::Removal;
pub use leftovers::{Leftover, Owner, leftovers};
pub use many::ManyAppender;
pub use mode::Mode;
pub use options::{BackPressure, Durability, Existing, Framing, Options};
pub use probe::{limits, probe};
pub use reader::Reader;
pub use reader_types::{ReadError, Record, Seek, SeekCost, Waiting, Writer};
pub use recover::{Evidence, Recovered, recover};
pub use stats::{After, Durable, Position, Stats, Survival};
pub use syncer::Syncer;
