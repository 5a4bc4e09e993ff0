//! Processes an input for the fuzz targets and for the test that replays their corpus. Not part of the public
//! interface.

use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::files::Names;
use crate::frame;
use crate::handles::Dir;
use crate::sidecar::Entry;
use crate::sys::page_bytes;

/// Decodes any bytes as a slot of a sidecar. An accepted entry is encoded and decoded again without a change.
pub fn sidecar(bytes: &[u8]) {
    let Some((generation, entry)) = Entry::decode(bytes) else { return };
    let again = entry.encode(generation).expect("a decoded entry can be encoded");
    let (second, same) = Entry::decode(&again).expect("an encoded entry can be decoded");
    assert_eq!((second, &same), (generation, &entry));
}

/// As [`sidecar`], with a valid magic number and checksum, so that every field is reached.
pub fn sealed_sidecar(bytes: &[u8]) {
    let mut slot = bytes.to_vec();
    slot.resize(1020, 0);
    let magic = if bytes.len().is_multiple_of(2) { b"prcrsrS2" } else { b"prcrsrS1" };
    slot.iter_mut().zip(magic).for_each(|(to, from)| *to = *from);
    slot.extend(crc32fast::hash(&slot).to_le_bytes());
    sidecar(&slot);
}

/// Reads any bytes as a framed file: the records lie within the run of valid frames.
pub fn frames(bytes: &[u8]) {
    let sound = frame::sound_len(bytes);
    assert!(sound <= bytes.len() && sound.is_multiple_of(frame::WORD));
    let inside = bytes.as_ptr_range();
    let mut payload_bytes = 0;
    for record in frame::records(bytes) {
        assert!(inside.start <= record.as_ptr() && record.as_ptr_range().end <= inside.end);
        payload_bytes += record.len();
    }
    assert!(payload_bytes <= sound);
    assert_eq!(frame::sound_len(bytes.get(..sound).unwrap_or_default()), sound);
    // Cutting the last byte of the run shortens the run.
    let less = frame::sound_len(bytes.get(..sound.saturating_sub(1)).unwrap_or_default());
    assert!(sound == 0 || less < sound);
}

/// The input, read as numbers.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        let first = self.0.first().copied().unwrap_or(0);
        self.0 = self.0.get(1..).unwrap_or_default();
        first
    }

    /// Mostly small numbers, which are close to valid values; sometimes any number.
    fn number(&mut self) -> u64 {
        let kind = self.byte();
        let raw = self.0.first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word));
        self.0 = self.0.get(if kind % 4 == 3 { 8 } else { 2 }..).unwrap_or_default();
        match kind % 4 {
            0 => raw & 0xff,
            1 => raw & 0xffff,
            2 => (raw & 0xffff) * 8,
            _ => raw,
        }
    }
}

/// The byte that fills the dead writer's file.
const WRITTEN: u8 = 0x61;
const TOKEN: u64 = 7;
const SHM_ID: u64 = 9;

/// Recovers from a dead writer's live block, rings, sidecar and files in which some numbers are replaced. Recovery must
/// succeed or refuse, and never leave fewer bytes than the journalled durable length. `dir` is an empty directory.
///
/// # Panics
/// If recovery leaves fewer or other bytes, or if the directory cannot be written.
pub fn live(dir: &Path, bytes: &[u8]) {
    let mut script = Script(bytes);
    let choice = script.byte();
    let names = Names::of(&dir.join(if choice & 1 == 0 { "log" } else { "log-{}" })).expect("a directory");
    let folder = Dir::named(dir).expect("a directory");
    let stem = names.shm_stem(SHM_ID);
    let (len, durable) = (script.number() & 0xffff, script.number() & 0xffff);
    let entry = Entry {
        token: TOKEN,
        seq: 0,
        len: durable.min(len),
        base: Some(0),
        closed: choice & 16 != 0,
        preallocated: choice & 2 != 0,
        framed: choice & 4 != 0,
        number: None,
        shm_id: SHM_ID,
        boot: crate::probe::boot_id(),
        shm_dir: folder.path().to_owned(),
    };
    put(&folder, &names.side_name(), &entry.encode(1).expect("a short path"));
    put(&folder, &names.name(0), &vec![WRITTEN; usize::try_from(len).unwrap_or(0)]);
    let mut page = vec![0; usize::try_from(page_bytes()).unwrap_or(4096)];
    for (at, value) in crate::live::words_of_a_dead_writer(&entry, len, choice & 8 != 0) {
        set(&mut page, at, value);
    }
    // Replaces up to 15 words, anywhere in the first 2 KiB of the live block.
    for _ in 0..script.byte() % 16 {
        let (at, value) = (u64::from(script.byte()) * 8, script.number());
        set(&mut page, usize::try_from(at).unwrap_or(0), value);
    }
    put(&folder, &format!("{stem}.live"), &page);
    for index in 0..2 {
        let ring: Vec<u8> = script.0.iter().copied().cycle().take(page.len()).collect();
        put(&folder, &format!("{stem}.ring{index}"), if script.0.is_empty() { &page } else { &ring });
    }
    let before = entry.len;
    // Refusing is allowed as well: then nothing was cut.
    let _ = crate::recover::recover_names(&names);
    let left = names.len(0).expect("the file is there");
    assert!(left >= before, "{left} of {before} durable bytes are left");
    let mut durable = vec![0; usize::try_from(before).unwrap_or(0)];
    let file = names.existing(0).expect("the file is there");
    file.read_exact_at(&mut durable, 0).expect("the durable bytes can be read");
    assert!(durable.iter().all(|&byte| byte == WRITTEN), "durable bytes were overwritten");
    for name in folder.names().expect("the directory can be listed") {
        folder.remove(&name).expect("a file of this target");
    }
}

fn set(page: &mut [u8], at: usize, value: u64) {
    if let Some(word) = page.get_mut(at..at + 8) {
        word.copy_from_slice(&value.to_le_bytes());
    }
}

fn put(folder: &Dir, name: &str, bytes: &[u8]) {
    let file = folder.create(name).expect("the directory is empty");
    file.write_all_at(bytes, 0).expect("written");
}
