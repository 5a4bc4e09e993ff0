//! The live machine: performs scenarios with real calls and watches the kernel around them.

pub mod clock;
pub mod driver;
pub mod kallsyms;
pub mod tracer;
