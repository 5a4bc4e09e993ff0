//! Recovers from a dead writer's damaged live block, rings and files, see `precursor/src/fuzzing.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    thread_local! {
        static DIR: tempfile::TempDir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    }
    DIR.with(|dir| precursor::fuzzing::live(dir.path(), bytes));
});
