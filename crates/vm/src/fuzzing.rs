//! Entry points of the fuzz targets `cpio` and `console`. The test below runs their corpora through the same
//! functions. Nothing here is part of the public interface.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, BufReader, Read, Write};

use flatwater_safefs::Dir;

use super::console::{Kept, each_line};
use super::cpio::{Head, Limits, Reader, Writer};
use super::guest::Line;
use super::watch::{unpack, unpack_by};

/// Small enough that a short input can reach each limit.
const LIMITS: Limits = Limits { entries: 16, file_bytes: 4096, total_bytes: 16 << 10 };
const NAME_BYTES_MAX: usize = 4096;
const KEPT_BEGIN_BYTES: usize = 24;
const KEPT_END_BYTES: usize = 40;

/// Files in memory by name. As in a directory, a name cannot be created twice.
type Taken = BTreeMap<String, Vec<u8>>;

/// Writer for a file of `Taken`.
struct Held<'a>(&'a RefCell<Taken>, String);

impl Write for Held<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().entry(self.1.clone()).or_default().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// If the first byte is 0, the rest is an archive. Otherwise the rest becomes the entries of a valid archive, which is
/// then damaged according to the byte. Files are unpacked into memory, because creating and removing real files took
/// nine tenths of the time.
pub fn cpio(bytes: &[u8]) {
    let Some((&choice, body)) = bytes.split_first() else { return };
    let archive = archive_for(choice, body);
    read_all(&archive);
    let (files, ended) = taken(&archive);
    assert!(files.len() <= LIMITS.entries as usize);
    let total_bytes: usize = files.values().map(Vec::len).sum();
    for (name, content) in &files {
        assert!(!name.is_empty() && !name.starts_with('.') && content.len() as u64 <= LIMITS.file_bytes);
        assert!(!name.contains(|c: char| c == '/' || c.is_control() || !c.is_ascii()));
    }
    assert!(total_bytes as u64 <= LIMITS.total_bytes, "{total_bytes}");
    if ended && choice == 1 {
        assert!(total_bytes <= body.len());
    }
}

/// Like `cpio`, but unpacks into a directory, as for a guest's archive: the files must equal those in memory, be
/// regular, and be accessible only to us. `place` is an empty directory of ours, and is empty again afterwards.
pub fn cpio_into(place: &Dir, bytes: &[u8]) {
    let Some((&choice, body)) = bytes.split_first() else { return };
    let archive = archive_for(choice, body);
    let (mut files, ended) = taken(&archive);
    assert_eq!(unpack(&mut archive.as_slice(), place, LIMITS).is_ok(), ended);
    for name in place.names().expect("our directory") {
        let name = name.to_str().expect("a plain name");
        let stat = place.stat(name).expect("a file of ours");
        assert_eq!((stat.st_mode & 0o170_000, stat.st_nlink), (0o100_000, 1));
        assert_eq!(stat.st_mode & 0o077, 0, "others may read what a guest wrote");
        let content = files.remove(name).expect("memory has the file too");
        assert_eq!(stat.st_size.cast_unsigned(), content.len() as u64);
        place.remove(name).expect("removed");
    }
    assert!(files.is_empty(), "{files:?}");
}

/// Files unpacked from an archive, and whether unpacking succeeded.
fn taken(archive: &[u8]) -> (Taken, bool) {
    let files = RefCell::new(Taken::new());
    let ended = unpack_by(&mut &archive[..], LIMITS, |name| {
        let before = files.borrow_mut().insert(name.to_owned(), Vec::new());
        if let Some(content) = before {
            files.borrow_mut().insert(name.to_owned(), content);
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        Ok(Held(&files, name.to_owned()))
    });
    let ended = ended.is_ok();
    (files.into_inner(), ended)
}

fn archive_for(choice: u8, body: &[u8]) -> Vec<u8> {
    if choice == 0 { body.to_vec() } else { damaged(archive_of(body), choice) }
}

/// Reading all entries with and without their content must give the same result.
fn read_all(archive: &[u8]) {
    let read = |content: bool| -> io::Result<Vec<Head>> {
        let (mut from, mut heads, mut into) = (Reader::new(archive, LIMITS), Vec::new(), Vec::new());
        while let Some(head) = from.next_head()? {
            assert!(head.name.len() < NAME_BYTES_MAX && head.bytes <= LIMITS.file_bytes);
            if content {
                into.clear();
                from.content(&mut into)?;
                assert_eq!(into.len() as u64, head.bytes);
            }
            heads.push(head);
        }
        assert!(heads.len() <= LIMITS.entries as usize);
        Ok(heads)
    };
    match (read(true), read(false)) {
        (Ok(with), Ok(without)) => assert_eq!(with, without),
        (Err(_), Err(_)) => {}
        (with, without) => panic!("{with:?} with the content, {without:?} without"),
    }
}

/// Builds an archive from entries: a byte for the kind, a length and a name, a length and a content. Remaining bytes
/// form the last content.
fn archive_of(mut body: &[u8]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    let mut take = |length: usize| {
        let (taken, rest) = body.split_at(length.min(body.len()));
        body = rest;
        taken
    };
    while let [kind, name_bytes, content_bytes] = *take(3) {
        let name = String::from_utf8_lossy(take(name_bytes.into())).into_owned();
        let content = take(content_bytes.into());
        let written = match kind % 8 {
            0 => writer.directory(&name),
            1 => writer.symlink(&name, &String::from_utf8_lossy(content)),
            _ => writer.file(&name, u32::from(kind), content),
        };
        written.expect("memory");
    }
    writer.finish().expect("memory")
}

/// Choice 1 leaves the archive unchanged; others truncate it or change one byte.
fn damaged(mut archive: Vec<u8>, choice: u8) -> Vec<u8> {
    let at = archive.len() * usize::from(choice / 2) / 128;
    match choice {
        1 => {}
        _ if choice.is_multiple_of(2) => archive.truncate(at),
        _ => archive.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= choice),
    }
    archive
}

/// The first byte is the number of bytes per read; the rest is the guest's output. Lines and kept parts of the console
/// are compared with a simple reference implementation.
pub fn console(bytes: &[u8]) {
    let Some((&chunk, body)) = bytes.split_first() else { return };
    let (chunk, line_bytes_max) = (usize::from(chunk % 32) + 1, usize::from(chunk / 32) * 8 + 1);
    let mut lines = Vec::new();
    each_line(&mut BufReader::with_capacity(chunk, body), line_bytes_max, |line| {
        assert!(line.len() <= line_bytes_max);
        if let Some(line) = Line::parse(String::from_utf8_lossy(line).trim()) {
            assert!(Line::parse(&line.text()).is_some(), "{line:?}");
        }
        lines.push(line.to_vec());
        true
    })
    .expect("memory does not fail");
    let mut expected: Vec<&[u8]> = body.split(|byte| *byte == b'\n').collect();
    // After the last newline there is a line only if bytes follow.
    expected.pop_if(|last| last.is_empty());
    let expected: Vec<&[u8]> = expected.into_iter().map(|line| &line[..line.len().min(line_bytes_max)]).collect();
    assert_eq!(lines, expected);
    kept(chunk, body);
}

fn kept(chunk: usize, body: &[u8]) {
    let mut kept = Kept::bounded(KEPT_BEGIN_BYTES, KEPT_END_BYTES);
    let (mut from, mut piece) = (body, vec![0; chunk]);
    while let Ok(length @ 1..) = from.read(&mut piece) {
        kept.add(&piece[..length]);
    }
    let (begin, rest) = body.split_at(body.len().min(KEPT_BEGIN_BYTES));
    let dropped = rest.len().saturating_sub(KEPT_END_BYTES);
    let text = kept.text();
    assert!(text.starts_with(&*String::from_utf8_lossy(begin)));
    assert!(text.ends_with(&*String::from_utf8_lossy(&rest[dropped..])));
    assert_eq!(
        text.contains("were dropped here"),
        dropped > 0 || String::from_utf8_lossy(body).contains("were dropped here")
    );
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use flatwater_safefs::Dir;

    fn folder(target: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
    }

    /// Runs each input, cut at every length and with each bit flipped; for long inputs at evenly spaced positions.
    fn near(target: &str, run: impl Fn(&[u8])) {
        let files = std::fs::read_dir(folder(target)).expect("a corpus").map(|entry| entry.expect("entry").path());
        let mut count = 0;
        for path in files {
            let bytes = std::fs::read(&path).expect("read");
            println!("{}", path.display());
            run(&bytes);
            for at in (0..bytes.len()).step_by((bytes.len() / 64).max(1)) {
                run(&bytes[..at]);
                for bit in 0..8 {
                    let mut changed = bytes.clone();
                    changed[at] ^= 1 << bit;
                    run(&changed);
                }
            }
            count += 1;
        }
        assert!(count >= 4, "{target}: {count} inputs");
    }

    #[test]
    fn cpio_corpus_and_mutations() {
        let place = tempfile::tempdir().expect("a directory");
        let dir = Dir::open_own(place.path()).expect("ours");
        near("cpio", |bytes| {
            super::cpio(bytes);
            super::cpio_into(&dir, bytes);
        });
    }

    #[test]
    fn console_corpus_and_mutations() {
        near("console", super::console);
    }

    /// Rewrites the seeds after a change of the format.
    #[test]
    #[ignore = "writes into the repository"]
    fn writes_the_seeds() {
        let put = |target: &str, name: &str, bytes: &[u8]| {
            std::fs::create_dir_all(folder(target)).expect("a folder");
            std::fs::write(folder(target).join(name), bytes).expect("written");
        };
        let entries = [&[2, 4, 5][..], b"a.js", b"hello", &[0, 1, 0], b"d", &[1, 1, 4], b"l", b"/etc"].concat();
        let files = [&[2, 1, 2][..], b"a", b"{}", &[2, 8, 3], b"b.frames", b"xyz"].concat();
        let good = super::archive_of(&entries);
        put("cpio", "raw", &[&[0][..], &good].concat());
        put("cpio", "raw-torn", &[&[0][..], &good[..good.len() / 2]].concat());
        put("cpio", "files", &[&[1][..], &files].concat());
        put("cpio", "twice", &[&[1][..], &files, &files].concat());
        put("cpio", "kinds", &[&[1][..], &entries].concat());
        put("cpio", "cut", &[&[64][..], &files].concat());
        put("cpio", "outside", &[&[1, 2, 7, 1][..], b"../evilx"].concat());
        put("console", "lines", b"\x05@booted\n@message hello\nnoise\n@done\n");
        put("console", "long", &[&b"\xe3@failed "[..], &[b'x'; 300], b"\n\n@working"].concat());
        put("console", "no-newline", &[&[31][..], &[0xe2; 80]].concat());
        put("console", "split-characters", "\u{2}äöü€\r\n\u{1b}[2J\u{202e}@message x\n".as_bytes());
    }
}
