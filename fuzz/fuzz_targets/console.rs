//! Hostile bytes as what a guest sends over its serial ports; see `crates/vm/src/fuzzing.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| flatwater_vm::fuzzing::console(bytes));
