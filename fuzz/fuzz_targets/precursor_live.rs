//! Hostile bytes as what the precursor finds after a crash; see `precursor/src/fuzzing.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    thread_local! {
        static DIR: tempfile::TempDir = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
    }
    DIR.with(|dir| precursor::fuzzing::live(dir.path(), bytes));
});
