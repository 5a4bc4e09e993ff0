//! Opens recordings of arbitrary bytes.

#![no_main]

mod feed;

libfuzzer_sys::fuzz_target!(
    // libFuzzer's hook would end the process at any panic. The reader catches some panics of libraries
    // (`parquet_table`); a panic that it does not catch still ends the process.
    init: std::panic::set_hook(Box::new(|_| {})),
    |bytes: &[u8]| feed::read_as_recording(bytes)
);
