//! Performs scenarios on the live machine and records what the kernel does around them.
//!
//! There are two ways to a recording. [`run::run`] performs a scenario: [`setup`] applies its settings (and restores
//! them at the end), and [`driver::Driver`] starts threads and processes that make real calls and time them.
//! [`record::record`] follows programs that flatwater did not write: [`target::WatchedSet`] resolves process ids,
//! program names, units and containers to processes and a cgroup.
//!
//! Both read an [`observer::Observer`] ten times a second and pass each [`observer::Interval`] to a
//! [`session::Session`], which writes it. The observer reads:
//!
//! - [`tracer::Tracer`] loads the BPF object `bpf/slow_calls.bpf.c`, reads its ring buffer, and divides each slow call
//!   into segments with a cause.
//! - [`waits::WaitTracer`] loads the second object, `bpf/waits.bpf.c`: long sleeps of all threads, device requests, and
//!   operations of io_uring and libaio. It names the processes that made a slow call wait.
//! - [`sampler::Sampler`] reads the counters of /proc and /sys several times a second; [`proc`] has one parser a file.
//! - [`tasks::Tasks`] reads the kernel's own per-thread delay accounts where no hook can be attached.
//! - [`kernel_log::KernelLog`] keeps the lines of /dev/kmsg that explain a stall.
//!
//! [`snapshot::take`], [`policy::obstacles`] and [`sight::sights`] serve `flatwater check`: the settings now, what
//! prevents tracing, and how well each cause can be seen. `crates/watch` builds its daemon from the same observers.

mod bpf_object;
pub mod bpf_stats;
pub mod clock;
pub mod driver;
pub mod error;
pub mod imitation;
pub mod kallsyms;
pub mod kernel_log;
mod launch;
pub mod machine;
pub mod noise;
pub mod observer;
pub mod own_cost;
pub mod policy;
mod polled;
pub mod privileges;
pub mod proc;
pub mod record;
pub mod run;
pub mod sampler;
pub mod session;
mod settings;
mod settle;
pub mod setup;
pub mod sight;
pub mod signals;
pub mod snapshot;
pub mod target;
pub mod tasks;
pub mod tracer;
pub mod waits;
