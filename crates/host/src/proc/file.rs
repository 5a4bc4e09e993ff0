//! A kernel file that is opened once and read repeatedly with pread.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::text::same;

/// Initial size of the read buffer; it is doubled, and stays so, when a file does not fit.
pub const BUFFER_BYTES: usize = 32 << 10;
/// Larger than any file that is read, on any machine.
const BUFFER_MAX: usize = 16 << 20;

/// A file under /proc or /sys.
#[derive(Debug)]
pub struct KernelFile {
    path: PathBuf,
    file: File,
    /// The number of reads that the whole text took last time, and the beginning of the last line.
    reads: u32,
    ending: Vec<u8>,
}

impl KernelFile {
    pub fn open(path: &Path) -> io::Result<KernelFile> {
        Ok(KernelFile { path: path.to_owned(), file: File::open(path)?, reads: 0, ending: Vec::new() })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the whole current text into `buffer`.
    ///
    /// A read that returns 0 shows the end, but for files like /proc/vmstat the kernel adds up all per-CPU counters on
    /// every read, including that one (`vmstat_start`). So after the first time the text counts as complete if the same
    /// number of reads returned a text whose last line begins as before.
    pub fn read<'a>(&mut self, buffer: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        let (mut filled, mut reads) = (0, 0);
        loop {
            if filled == buffer.len() {
                if buffer.len() >= BUFFER_MAX {
                    return Err(io::Error::new(io::ErrorKind::FileTooLarge, "more than 16 MiB of text"));
                }
                buffer.resize((buffer.len() * 2).max(BUFFER_BYTES), 0);
            }
            let room = buffer.get_mut(filled..).unwrap_or_default();
            let got = match self.file.read_at(room, filled as u64) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            filled += got;
            reads += 1;
            let text = buffer.get(..filled).unwrap_or_default();
            if got == 0 {
                self.reads = reads - 1;
                let ending = last_line_key(text);
                if self.ending != ending {
                    self.ending = ending.to_vec();
                }
                break;
            }
            if reads == self.reads && text.ends_with(b"\n") && same(last_line_key(text), &self.ending) {
                break;
            }
        }
        Ok(buffer.get(..filled).unwrap_or_default())
    }
}

/// The last line up to its first digit, which stays the same when the number changes.
fn last_line_key(text: &[u8]) -> &[u8] {
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    let start = memchr::memrchr(b'\n', body).map_or(0, |at| at + 1);
    let line = body.get(start..).unwrap_or_default();
    let end = line.iter().position(u8::is_ascii_digit).unwrap_or(line.len());
    line.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::KernelFile;

    #[test]
    fn a_file_that_grows_or_shrinks_is_read_whole() {
        let place = tempfile::NamedTempFile::new().expect("temporary file");
        let mut file = KernelFile::open(place.path()).expect("opened");
        let mut buffer = Vec::new();
        let long = format!("{}last 5\n", "line 1\n".repeat(20_000));
        for text in ["a 1\nb 2\n", "a 1\nb 30\n", "a 1\nb 2\nc 3\n", "a 1\n", "", long.as_str(), "a 1\nb 2\n"] {
            std::fs::write(place.path(), text).expect("written");
            assert_eq!(file.read(&mut buffer).expect("read"), text.as_bytes());
        }
    }
}
