//! Opens recordings made of hostile bytes.

#![no_main]

mod feed;

libfuzzer_sys::fuzz_target!(
    // libFuzzer's hook ends the process at any panic. The reader ends some of its libraries' panics itself
    // (`parquet_table`); one that it lets through ends the process all the same.
    init: std::panic::set_hook(Box::new(|_| {})),
    |bytes: &[u8]| feed::read_as_recording(bytes)
);
