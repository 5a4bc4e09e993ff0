//! All integration tests in one program, so that only one is linked.
//!
//! Tests run in any order and in parallel. A test that changes its process (limits, signal handlers, forks) runs in
//! another process of this program.

#![allow(
    clippy::duplicate_mod,
    reason = "the models and the tests of unsafe code compile the same files with other atomics"
)]

mod alone;
mod c_abi;
mod c_full;
mod closed_descriptors;
mod closing;
mod corpus;
mod crash;
mod failing_device;
mod file_systems;
mod forge;
mod forked;
mod formats;
mod hostile;
mod interface;
mod java;
mod kinds;
mod limits;
mod misuse;
mod model_lane;
mod model_many;
mod modes;
mod no_room;
mod packaging;
mod positions;
mod power_cut;
mod reading;
mod retaining;
mod same_file;
mod seeking;
mod shared_memory;
mod sigbus;
mod unsafe_code;
mod volume;
mod writer;
