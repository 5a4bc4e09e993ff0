//! Parses hostile texts as kernel files.

#![no_main]

mod feed;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| feed::parse_as_kernel_file(bytes));
