//! Virtual time, CPUs, threads, and where a thread spends or loses its time.

pub mod clock;
pub mod cpu;
pub mod site;
pub mod task;
pub mod user_lock;
