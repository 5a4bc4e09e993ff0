//! Unpacks any bytes as the archive in which a guest returns its recording, see `crates/vm/src/fuzzing.rs`.
#![no_main]

/// One in this many inputs is also unpacked into a directory, which takes a hundred times as long as into memory.
const INTO_FILES_EVERY: u32 = 256;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    thread_local! {
        static PLACE: tempfile::TempDir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
        static COUNT: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
    }
    flatwater_vm::fuzzing::cpio(bytes);
    let count = COUNT.get().wrapping_add(1);
    COUNT.set(count);
    if count % INTO_FILES_EVERY == 0 {
        PLACE.with(|place| {
            let dir = flatwater_safefs::Dir::open_own(place.path()).expect("a new directory");
            flatwater_vm::fuzzing::cpio_into(&dir, bytes);
        });
    }
});
