//! Imports any text with one importer, which the first byte selects.

#![no_main]

mod feed;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| feed::import_as_chosen(bytes));
