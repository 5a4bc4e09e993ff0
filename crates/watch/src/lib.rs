//! The daemon: records continuously, at a bounded and measured cost.
//!
//! It keeps the last minute in memory (`lookback`), checks its triggers once a second (`trigger`), and when one fires,
//! it writes a recording that begins a minute before (`capture`). What it keeps is bounded (`store`), what it reports
//! is counted (`metrics`, `http`), and what it costs is measured (`budget`), which sheds parts of the work, as gaps,
//! before the machine is affected.
//!
//! ```text
//! sight (host) --> second --> lookback --> capture --> store
//!                    |           trigger ----^
//!                    +--> metrics --> http
//!                    +--> hourly  --> store
//!                    +--> budget --> sight
//! ```

pub mod account;
pub mod aggressor;
mod answers;
pub mod budget;
pub mod capture;
pub mod config;
pub mod daemon;
#[cfg(test)]
mod hostile;
pub mod hourly;
pub mod http;
pub mod lookback;
pub mod metrics;
pub mod now;
pub mod owner;
mod peer;
mod places;
mod registry;
#[cfg(feature = "tls")]
pub mod remote;
#[cfg(not(feature = "tls"))]
#[path = "remote_without_tls.rs"]
pub mod remote;
mod request;
pub mod second;
pub mod sight;
pub mod store;
pub mod trigger;
