//! What differs, and by how much: hosts are the unit, alike hosts are compared, and an interval goes with every figure.

pub mod contrast;
pub mod facts;
pub mod findings;
pub mod hosts;
pub mod rollout;
mod strata;

pub use facts::Facts;
pub use findings::{Finding, Findings, findings};
pub use rollout::{Changed, Rollout, rollout};
