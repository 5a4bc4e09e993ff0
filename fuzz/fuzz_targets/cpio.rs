//! Hostile bytes as the archive in which a guest hands back its recording; see `crates/vm/src/fuzzing.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    thread_local! {
        static PLACE: tempfile::TempDir = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
    }
    PLACE.with(|place| {
        let dir = flatwater_safefs::Dir::open_own(place.path()).expect("ours");
        flatwater_vm::fuzzing::cpio(&dir, bytes);
    });
});
