//! Properties of the machine that a reference does not contain, so that they cannot be passed to the model.

/// Each becomes a gap of the model's recording. The remedy is to record the reference again with this version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsaid {
    #[error("the reference has no samples of {what}")]
    Samples { what: &'static str },
    #[error("the reference has samples of {has} nodes, the scenario has {wants}")]
    Nodes { has: usize, wants: usize },
    #[error("the reference has no {column} of node {node}")]
    Column { column: &'static str, node: usize },
    #[error("the reference has no zone of node {node}")]
    Zone { node: u32 },
    #[error("the reference has no min of zone {zone} of node {node}")]
    Min { zone: String, node: u32 },
    #[error("the reference has more samples of one node than of another")]
    Uneven,
    #[error("the reference has {has} samples of a node's {column} but {others} of {other}")]
    Partly { column: &'static str, has: usize, other: &'static str, others: usize },
}
