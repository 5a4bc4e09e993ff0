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

/// Said beside an answer that had to do without summaries that were pushed.
#[must_use]
pub fn waiting(summaries: usize) -> String {
    let (noun, verb) = if summaries == 1 { ("summary", "is") } else { ("summaries", "are") };
    format!(
        "{summaries} {noun} {verb} not compacted: run `flatwater-fleet compact`, which names those that it cannot use"
    )
}
