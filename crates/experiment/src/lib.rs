//! Trials and statistics over recordings.
//!
//! - [`compare`] compares two recordings and says which one is better.
//! - [`verify`] performs an interleaved trial of a fix; [`trial`] holds its statistics.
//! - [`agree`] measures how far two recordings of one scenario agree, for example of two kernels.
//! - [`whatif`] runs a scenario with other settings and chooses among them.
//! - [`reproduce`] writes a scenario that imitates a recording, and compares both; [`proof`] is the trial of a fix of
//!   a recording's report.
//! - [`judge`] computes the figures that recordings are judged by, [`windowed`] the same figures from resampled
//!   windows, [`bootstrap`] their intervals, and [`verdict`] turns an interval into better, worse or not proven.
//!
//! This crate neither touches the machine nor calls a kernel model: the caller passes a [`verify::Performer`] or a
//! closure that performs a scenario and returns its recording.

pub mod agree;
mod block;
pub mod bootstrap;
pub mod compare;
pub mod figure;
pub mod judge;
pub mod proof;
pub mod reproduce;
pub mod trial;
pub mod verdict;
pub mod verify;
pub mod whatif;
pub mod windowed;
mod work;

pub use work::on_both;
