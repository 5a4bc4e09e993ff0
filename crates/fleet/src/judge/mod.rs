//! Statistics: what differs between hosts, and by how much. Hosts are the unit, similar hosts are compared, and every
//! figure has an interval.

pub mod contrast;
pub mod facts;
pub mod findings;
pub mod hosts;
pub mod rollout;
mod strata;

pub use facts::Facts;
pub use findings::{Finding, Findings, findings};
pub use rollout::{Changed, Rollout, rollout};

/// The note for an answer that lacks summaries which are not yet compacted.
#[must_use]
pub fn waiting(summaries: usize) -> String {
    let (noun, verb) = if summaries == 1 { ("summary", "is") } else { ("summaries", "are") };
    format!(
        "{summaries} {noun} {verb} not compacted: run `flatwater-fleet compact`, which names those that it cannot use"
    )
}
