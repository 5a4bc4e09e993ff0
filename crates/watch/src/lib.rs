//! The daemon: always on, and cheap enough that nobody has a reason to switch it off.
//!
//! It keeps the last minute in memory (`lookback`), asks a few questions of each second (`trigger`), and when one is
//! answered with yes, it writes a recording that begins a minute before (`capture`). What it keeps is bounded
//! (`store`), what it tells is counted (`metrics`, `http`), and what it costs is measured by itself (`budget`), which
//! sheds parts of the work, as gaps, before the machine feels them.
//!
//! ```text
//! sight (host) --> second --> lookback --> capture --> store
//!                    |           trigger ----^
//!                    +--> metrics --> http
//!                    +--> budget --> sight
//! ```

pub mod aggressor;
pub mod budget;
pub mod capture;
pub mod config;
pub mod daemon;
pub mod glob;
pub mod http;
pub mod lookback;
pub mod metrics;
pub mod now;
pub mod owner;
pub mod second;
pub mod sight;
pub mod store;
pub mod trigger;
