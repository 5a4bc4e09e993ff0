//! Violated invariants of the model: always a bug of the simulator.

/// The part of the model that is inconsistent, with details.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Broken {
    #[error("the request queue: {0}")]
    Queue(String),
    #[error("the page lists: {0}")]
    Lists(String),
    #[error("the frames: {0}")]
    Frames(String),
}
