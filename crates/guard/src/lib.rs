//! The guard's controller: it advises which neighbour to limit, limits one cgroup at a time, proves that the victim
//! gains, and removes the limit otherwise.
//!
//! [`Controller::step`] is a pure function of state, configuration and an [`Observation`]: it performs no I/O,
//! reads no clock, and draws random numbers only from the seed that [`Controller::new`] got. `watch` makes the
//! observations and performs the [`Decision`]s; limits and their leases are performed by `host::setup`.
//!
//! [`trial`] has the sequential test and its error rate, [`plan`] the choice of the limit, [`policy`] what the
//! administrator permits, and [`reason`] a name for each refusal.

pub mod action;
pub mod controller;
mod episode;
pub mod group;
pub mod observe;
pub mod plan;
pub mod policy;
pub mod reason;
pub mod trial;

#[cfg(test)]
mod episodes;
#[cfg(test)]
mod machine;

pub use action::{Action, Device, Setting};
pub use controller::{Advice, Controller, Decision, EpisodeId, Report, Result as EpisodeResult};
pub use group::GroupPath;
pub use observe::{
    Amount, Knobs, Lease, Means, Measure, Observation, Order, Reading, Sight, Suspect, Victim, VictimStall, Window,
};
pub use policy::{Mode, Pattern, PatternError, Policy};
pub use reason::{Refusal, Release, StandBack};
