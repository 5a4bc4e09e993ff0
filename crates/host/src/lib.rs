//! The live machine: performs scenarios with real calls and watches the kernel around them.

pub mod bpf_stats;
pub mod clock;
pub mod driver;
pub mod error;
pub mod kallsyms;
pub mod kernel_log;
mod launch;
pub mod machine;
pub mod noise;
pub mod own_cost;
pub mod policy;
pub mod privileges;
pub mod proc;
pub mod record;
pub mod run;
pub mod sampler;
pub mod session;
pub mod setup;
pub mod sight;
pub mod snapshot;
pub mod speed;
pub mod target;
pub mod tasks;
pub mod tracer;
pub mod waits;
