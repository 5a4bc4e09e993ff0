//! Reads any bytes as a slot of the precursor's sidecar, see `precursor/src/fuzzing.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    precursor::fuzzing::sidecar(bytes);
    precursor::fuzzing::sealed_sidecar(bytes);
});
