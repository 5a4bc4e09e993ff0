//! The "newc" cpio archive: what the kernel unpacks as initramfs, and what the guest hands its recording back in.
//!
//! Format: kernel Documentation/driver-api/early-userspace/buffer-format.rst, 6.1. Own code because it is forty
//! lines and needs neither directories' times nor owners.

use std::io::{self, Read, Write};

const MAGIC: &[u8; 6] = b"070701";
const TRAILER: &str = "TRAILER!!!";
/// No path of ours is longer; a longer one in an archive means that it is damaged.
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

/// One file of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub mode: u32,
    pub content: Vec<u8>,
}

impl Entry {
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.mode & 0o170_000 == 0o100_000
    }
}

/// Reads the next entry; `None` at the trailer. An archive that ends early or is no archive is an error.
pub fn read_entry(from: &mut impl Read, file_bytes_max: usize) -> io::Result<Option<Entry>> {
    let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("not a cpio archive: {what}"));
    let mut head = [0_u8; 110];
    from.read_exact(&mut head)?;
    if &head[..6] != MAGIC {
        return Err(bad("no magic"));
    }
    let field = |index: usize| {
        let digits = head.get(6 + index * 8..14 + index * 8).and_then(|bytes| std::str::from_utf8(bytes).ok());
        digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()).ok_or_else(|| bad("a field is no number"))
    };
    let (mode, size, name_size) = (field(1)?, field(6)? as usize, field(11)? as usize);
    if name_size == 0 || name_size > NAME_BYTES_MAX || size > file_bytes_max {
        return Err(bad("a length is out of bounds"));
    }
    let mut name = vec![0; name_size + (110 + name_size).wrapping_neg() % 4];
    from.read_exact(&mut name)?;
    name.truncate(name_size - 1);
    let name = String::from_utf8(name).map_err(|_| bad("a name is not UTF-8"))?;
    let mut content = vec![0; size + size.wrapping_neg() % 4];
    from.read_exact(&mut content)?;
    content.truncate(size);
    Ok((name != TRAILER).then_some(Entry { name, mode, content }))
}

#[cfg(test)]
mod tests {
    use super::{Entry, Writer, read_entry};

    fn archive() -> Vec<u8> {
        let mut writer = Writer::new(Vec::new());
        writer.directory("a").expect("memory");
        writer.file("a/b", 0o644, b"hello").expect("memory");
        writer.symlink("c", "a/b").expect("memory");
        writer.finish().expect("memory")
    }

    #[test]
    fn what_was_written_is_read_back() {
        let (bytes, mut names) = (archive(), Vec::new());
        let mut from = bytes.as_slice();
        while let Some(entry) = read_entry(&mut from, 100).expect("whole") {
            names.push(entry);
        }
        let file = Entry { name: "a/b".into(), mode: 0o100_644, content: b"hello".to_vec() };
        assert_eq!((names.len(), &names[1]), (3, &file));
        assert!(names[1].is_file() && !names[0].is_file());
    }

    #[test]
    fn a_torn_or_foreign_archive_is_an_error_at_every_length() {
        let bytes = archive();
        for length in 0..bytes.len() {
            let mut from = &bytes[..length];
            while let Ok(Some(_)) = read_entry(&mut from, 100) {}
        }
        assert!(read_entry(&mut [b'x'; 200].as_slice(), 100).is_err());
        let mut from = bytes.as_slice();
        read_entry(&mut from, 100).expect("the directory");
        assert!(read_entry(&mut from, 3).is_err(), "a file over the limit");
    }
}
