//! `flatwater probe`: what can a neighbour do to the files of this directory?
//!
//! A *victim* process appends, syncs and reads in its own small files. A *neighbour* process loads the same file
//! system, another one, or another cgroup, in short phases with pauses between them. Each phase is compared with the
//! pauses before and after it, so that slow changes of the machine cancel.
//!
//! - [`plan`]: what is measured, where, and within which limits. [`place`] finds file systems and devices.
//! - [`child`]: the processes. They end when the probe ends, however it ends, and their files have no names.
//! - [`run`]: starts the processes, leads them through the phases, and records the victim's calls.
//! - [`work`]: what the neighbours did, without which nothing is isolated.
//! - [`statistic`]: the ratio of two latencies with its interval; [`verdict`]: isolated, degraded, severe, not proven.
//! - [`mechanism`]: how the neighbour made the calls wait, from the recording's attribution.
//! - [`output`]: text, JSON and a page.
//!
//! `plan`, `work`, `statistic`, `verdict` and `mechanism` do no I/O.

pub mod child;
mod children;
pub mod mechanism;
pub mod output;
pub mod place;
pub mod plan;
mod run;
pub mod statistic;
pub mod verdict;
pub mod work;

pub use run::{Options, ProbeError, run};

/// The hidden verb of the child processes.
pub const CHILD_VERB: &str = "__probe";
