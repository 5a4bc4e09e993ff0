//! The "newc" cpio archive: the format of the initramfs, and of the recording that the guest returns.
//!
//! Format: kernel Documentation/driver-api/early-userspace/buffer-format.rst, 6.1. Implemented here because it takes
//! forty lines and needs neither times of directories nor owners.

use std::io::{self, Read, Write};

const MAGIC: &[u8; 6] = b"070701";
const TRAILER: &str = "TRAILER!!!";
/// Maximum length of a path. flatwater's paths are shorter; a longer one means that the archive is damaged.
const NAME_BYTES_MAX: usize = 4096;

/// Writes entries one after another; `finish` adds the trailer.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    inode: u32,
}

impl<W: Write> Writer<W> {
    pub fn new(out: W) -> Writer<W> {
        Writer { out, inode: 0 }
    }

    pub fn directory(&mut self, name: &str) -> io::Result<()> {
        self.entry(name, 0o040_755, &[])
    }

    pub fn file(&mut self, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        self.entry(name, 0o100_000 | mode, content)
    }

    pub fn symlink(&mut self, name: &str, to: &str) -> io::Result<()> {
        self.entry(name, 0o120_777, to.as_bytes())
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        self.inode += 1;
        let size = u32::try_from(content.len()).map_err(|_| io::Error::other(format!("{name} is over 4 GiB")))?;
        let name_size = name.len() as u32 + 1;
        let links = if mode & 0o040_000 != 0 { 2 } else { 1 };
        // ino, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor, rdevmajor, rdevminor, namesize, check
        let fields = [self.inode, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name_size, 0];
        self.out.write_all(MAGIC)?;
        for field in fields {
            write!(self.out, "{field:08x}")?;
        }
        self.out.write_all(name.as_bytes())?;
        self.out.write_all(&[0])?;
        self.pad(110 + name.len() + 1)?;
        self.out.write_all(content)?;
        self.pad(content.len())
    }

    fn pad(&mut self, length: usize) -> io::Result<()> {
        self.out.write_all(&[0; 3][..length.wrapping_neg() % 4])
    }

    pub fn finish(mut self) -> io::Result<W> {
        self.entry(TRAILER, 0, &[])?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// The header of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub name: String,
    pub mode: u32,
    pub bytes: u64,
}

impl Head {
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.mode & 0o170_000 == 0o100_000
    }
}

/// Limits for an untrusted archive.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub entries: u32,
    pub file_bytes: u64,
    pub total_bytes: u64,
}

/// Reads an archive entry by entry. Keeps no more than a buffer and a name in memory.
#[derive(Debug)]
pub struct Reader<R> {
    from: R,
    limits: Limits,
    entries: u32,
    total_bytes: u64,
    /// Unread bytes of the current entry's content; `padding` follows them.
    left_bytes: u64,
    padding: u64,
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not a cpio archive: {what}"))
}

impl<R: Read> Reader<R> {
    pub fn new(from: R, limits: Limits) -> Reader<R> {
        Reader { from, limits, entries: 0, total_bytes: 0, left_bytes: 0, padding: 0 }
    }

    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let skipped = io::copy(&mut self.from.by_ref().take(bytes), &mut io::sink())?;
        if skipped == bytes { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// The next entry; `None` at the trailer. An archive that is truncated, invalid or exceeds a limit is an error.
    pub fn next_head(&mut self) -> io::Result<Option<Head>> {
        self.skip(self.left_bytes + self.padding)?;
        (self.left_bytes, self.padding) = (0, 0);
        let mut head = [0_u8; 110];
        self.from.read_exact(&mut head)?;
        if &head[..6] != MAGIC {
            return Err(bad("no magic"));
        }
        let field = |index: usize| {
            let digits = head.get(6 + index * 8..14 + index * 8).and_then(|bytes| std::str::from_utf8(bytes).ok());
            digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()).ok_or_else(|| bad("a field is not a number"))
        };
        let (mode, bytes, name_bytes) = (field(1)?, u64::from(field(6)?), field(11)? as usize);
        self.entries += 1;
        self.total_bytes = self.total_bytes.saturating_add(bytes);
        let Limits { entries, file_bytes, total_bytes } = self.limits;
        if name_bytes == 0 || name_bytes > NAME_BYTES_MAX || bytes > file_bytes {
            return Err(bad("a length is out of bounds"));
        }
        if self.entries > entries || self.total_bytes > total_bytes {
            return Err(bad("it exceeds the limits"));
        }
        let mut name = vec![0; name_bytes + (110 + name_bytes).wrapping_neg() % 4];
        self.from.read_exact(&mut name)?;
        name.truncate(name_bytes - 1);
        let name = String::from_utf8(name).map_err(|_| bad("a name is not UTF-8"))?;
        self.left_bytes = bytes;
        self.padding = bytes.wrapping_neg() % 4;
        Ok((name != TRAILER).then_some(Head { name, mode, bytes }))
    }

    /// Writes the content of the current entry to `into`.
    pub fn content(&mut self, into: &mut impl Write) -> io::Result<()> {
        let copied = io::copy(&mut self.from.by_ref().take(self.left_bytes), into)?;
        let whole = copied == self.left_bytes;
        self.left_bytes -= copied;
        if whole { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Head, Limits, Reader, Writer};

    const LIMITS: Limits = Limits { entries: 100, file_bytes: 100, total_bytes: 1000 };

    fn archive() -> Vec<u8> {
        let mut writer = Writer::new(Vec::new());
        writer.directory("a").expect("memory");
        writer.file("a/b", 0o644, b"hello").expect("memory");
        writer.symlink("c", "a/b").expect("memory");
        writer.finish().expect("memory")
    }

    #[test]
    fn an_archive_round_trips() {
        let bytes = archive();
        let mut from = Reader::new(bytes.as_slice(), LIMITS);
        assert!(!from.next_head().expect("whole").expect("a directory").is_file());
        let file = Head { name: "a/b".into(), mode: 0o100_644, bytes: 5 };
        assert_eq!(from.next_head().expect("whole"), Some(file));
        let mut content = Vec::new();
        from.content(&mut content).expect("whole");
        assert_eq!(content, b"hello");
        assert_eq!(from.next_head().expect("whole").map(|head| head.name), Some("c".into()), "its content is skipped");
        assert_eq!(from.next_head().expect("whole"), None);
    }

    #[test]
    fn a_truncated_or_invalid_archive_is_an_error() {
        let bytes = archive();
        for length in 0..bytes.len() {
            let mut from = Reader::new(&bytes[..length], LIMITS);
            let ended = loop {
                match from.next_head() {
                    Ok(Some(_)) => {}
                    other => break other,
                }
            };
            // Only the trailer's padding may be missing.
            assert!(ended.is_err() || length + 4 > bytes.len(), "{length} of {}", bytes.len());
        }
        assert!(Reader::new([b'x'; 200].as_slice(), LIMITS).next_head().is_err());
    }

    /// S6: an entry that claimed 1 GiB took 1 GiB of the host's memory.
    #[test]
    fn claimed_sizes_are_not_allocated_and_limits_are_enforced() {
        let mut writer = Writer::new(Vec::new());
        writer.file("large", 0o644, &[7; 90]).expect("memory");
        let bytes = writer.finish().expect("memory");
        let claims = |field: &str| {
            let mut bytes = bytes.clone();
            bytes[54..62].copy_from_slice(field.as_bytes());
            bytes
        };
        let all = Limits { file_bytes: u64::MAX, total_bytes: u64::MAX, ..LIMITS };
        let claimed = claims("fffffff0");
        let mut from = Reader::new(claimed.as_slice(), all);
        from.next_head().expect("a head").expect("an entry");
        let mut content = Vec::new();
        assert!(from.content(&mut content).is_err() && content.capacity() < 1 << 16, "{}", content.capacity());
        for limits in
            [Limits { file_bytes: 89, ..LIMITS }, Limits { total_bytes: 89, ..LIMITS }, Limits { entries: 0, ..LIMITS }]
        {
            assert!(Reader::new(bytes.as_slice(), limits).next_head().is_err(), "{limits:?}");
        }
    }
}
