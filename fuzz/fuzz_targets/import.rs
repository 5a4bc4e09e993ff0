//! Imports any bytes as a log.

#![no_main]

mod feed;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| feed::import_as_a_user(bytes));
