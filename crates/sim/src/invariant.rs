//! An invariant of the model that does not hold: always a bug of the simulator.

/// Which part of the model contradicts itself, and how.
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
