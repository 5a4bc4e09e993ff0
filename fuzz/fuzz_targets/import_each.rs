//! One importer, chosen by the first byte, on text that need not look like its format at all.

#![no_main]

use flatwater::import::text::{Cursor, Text};
use flatwater::import::{Builder, IMPORTERS, read_section};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let Some(importer) = IMPORTERS.get(usize::from(*choice) % IMPORTERS.len()) else { return };
    let text = Text::new(bytes);
    let mut cursor = Cursor::new(&text);
    let mut builder = Builder::default();
    builder.begin_file("fuzz");
    while cursor.peek().is_some() {
        read_section(importer, &mut cursor, &mut builder);
    }
    builder.end_file();
    let recording = builder.finish(&["fuzz".to_owned()]);
    assert!(recording.calls.iter().all(flatwater::recording::Call::tiles));
});
