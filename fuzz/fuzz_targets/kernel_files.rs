//! Parses any text as a kernel file.

#![no_main]

mod feed;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| feed::parse_as_kernel_file(bytes));
