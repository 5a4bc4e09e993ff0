//! Reads any bytes as a framed file, see `precursor/src/fuzzing.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| precursor::fuzzing::frames(bytes));
