//! Gives hostile texts to one importer after the other.

#![no_main]

mod feed;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| feed::import_as_chosen(bytes));
