//! Opens recordings made of hostile bytes.

#![no_main]

mod feed;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| feed::read_as_recording(bytes));
