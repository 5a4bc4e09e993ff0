//! Reads any bytes as the output of a guest's serial ports, see `crates/vm/src/fuzzing.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| flatwater_vm::fuzzing::console(bytes));
