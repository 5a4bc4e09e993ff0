//! The daemon: records continuously, at a bounded and measured cost.
//!
//! [`daemon`] runs the loop. Once a second [`sight`] delivers a [`second::Second`] of slow calls and counters,
//! [`lookback`] keeps the last minute of them in memory, and [`trigger`] checks them. A trigger that fires starts a
//! [`capture`]: a recording that begins with the look-back. [`store`] limits the recordings on disk, and [`hourly`]
//! writes a summary of each hour for fleets.
//!
//! [`guard`] advises which neighbour to limit, and limits it if the configuration permits that.
//!
//! [`metrics`] counts for Prometheus and [`now`] makes the table of `flatwater top`; [`http`] serves both. [`owner`]
//! and [`aggressor`] name the victim and the aggressor of a call, by the part of a cgroup's path that root made
//! (`cgroup`); [`account`] divides limits among users. [`budget`] measures the daemon's own cost, and sheds parts
//! of the work (each a gap) before the daemon affects the machine.
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
mod busiest;
pub mod capture;
mod cgroup;
pub mod config;
pub mod daemon;
pub mod guard;
#[cfg(test)]
mod hostile;
#[cfg(all(test, feature = "tls"))]
mod hostile_tls;
pub mod hourly;
pub mod http;
mod label;
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
