//! Reads a file in chunks, so that memory is bounded for a log of any length.
//!
//! A chunk ends where a section begins, so that no table loses its header: before the line with the highest score of
//! any importer among the last `TAIL_BYTES`. A JSON document is one chunk, up to `text::FILE_BYTES_MAX`.

use std::io::Read;

use super::text::{Cursor, FILE_BYTES_MAX, Text};
use super::{foreign, known};

/// Size of a chunk.
const CHUNK_BYTES: usize = 32 << 20;
/// The end of a chunk in which the beginning of a section is searched.
const TAIL_BYTES: usize = 256 << 10;
/// Maximum bytes of a file that are read; the bytes after them are a gap.
pub const SOURCE_BYTES_MAX: u64 = 16 << 30;

/// A file that is read chunk by chunk.
pub struct Source<'a> {
    reader: Box<dyn Read + 'a>,
    /// Bytes that were read and not yet returned.
    held: Vec<u8>,
    ended: bool,
    handed: u64,
    /// The file continues beyond `SOURCE_BYTES_MAX`.
    pub cut: bool,
    /// The file is one JSON document.
    pub document: bool,
}

impl std::fmt::Debug for Source<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("held", &self.held.len()).field("handed", &self.handed).finish_non_exhaustive()
    }
}

impl<'a> Source<'a> {
    pub fn new(reader: impl Read + 'a) -> Source<'a> {
        Source { reader: Box::new(reader), held: Vec::new(), ended: false, handed: 0, cut: false, document: false }
    }

    /// The first bytes of the file, without consuming them.
    pub fn head(&mut self) -> std::io::Result<&[u8]> {
        self.fill(CHUNK_BYTES)?;
        Ok(&self.held)
    }

    /// The next chunk; `None` at the end.
    pub fn next(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        self.fill(CHUNK_BYTES)?;
        // One JSON document, or UTF-16, whose line ends cannot be found before decoding.
        if self.handed == 0 && (is_document(&self.held) || foreign::is_wide(&self.held)) {
            self.fill(FILE_BYTES_MAX + 1)?;
            self.document = is_document(&self.held);
            self.ended = true;
        }
        if self.held.is_empty() {
            return Ok(None);
        }
        let end = if self.ended { self.held.len() } else { end_of_chunk(&self.held) };
        let rest = self.held.split_off(end);
        let chunk = std::mem::replace(&mut self.held, rest);
        self.handed += chunk.len() as u64;
        if self.handed >= SOURCE_BYTES_MAX && !(self.ended && self.held.is_empty()) {
            (self.ended, self.cut) = (true, true);
            self.held.clear();
        }
        Ok(Some(chunk))
    }

    /// Reads until `held` has this many bytes or the file ends.
    fn fill(&mut self, bytes: usize) -> std::io::Result<()> {
        while !self.ended && self.held.len() < bytes {
            let wanted = (bytes - self.held.len()) as u64;
            let read = self.reader.by_ref().take(wanted).read_to_end(&mut self.held)?;
            self.ended = read == 0;
        }
        Ok(())
    }
}

fn is_document(bytes: &[u8]) -> bool {
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace() && **byte < 0x80);
    // Servers log one JSON object a line, so `}` ends the first line. A document's first line is `{` or does not end
    // so.
    first == Some(&b'{') && {
        let line = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
        line < 3 || !bytes.get(..line).is_some_and(|line| line.trim_ascii_end().ends_with(b"}"))
    }
}

/// The length of the chunk at the beginning of these bytes.
fn end_of_chunk(bytes: &[u8]) -> usize {
    let from = bytes.len().saturating_sub(TAIL_BYTES);
    let tail = bytes.get(from..).unwrap_or_default();
    // The last line may be incomplete.
    let Some(whole) = tail.iter().rposition(|byte| *byte == b'\n') else { return bytes.len() };
    let starts: Vec<usize> =
        tail.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
    let text = Text::new(tail.get(..=whole).unwrap_or_default());
    let mut cursor = Cursor::new(&text);
    let mut best: Option<(u8, u32)> = None;
    while let Some(line) = cursor.peek() {
        // The first line of the tail may be incomplete.
        if line.number > 1 && !line.is_blank() {
            let score = known(&cursor).map_or(0, |(score, _)| score);
            if score > 0 && best.is_none_or(|(so_far, _)| score >= so_far) {
                best = Some((score, line.number));
            }
        }
        cursor.take();
    }
    let at = best.and_then(|(_, number)| starts.get(number as usize - 2).copied());
    from + at.unwrap_or(whole + 1)
}

#[cfg(test)]
mod tests {
    use super::{CHUNK_BYTES, Source};

    fn chunks(bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut source = Source::new(bytes);
        std::iter::from_fn(|| source.next().expect("memory can be read")).collect()
    }

    #[test]
    fn chunks_end_where_a_section_begins_and_lose_no_byte() {
        let table = "procs -----------memory---------- ---swap-- -----io---- -system-- ------cpu-----\n r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st\n 1  0      0 500000  40000 900000    0    0    10   200  100  200  1  1 98  0  0\n 1  0      0 500000  40000 900000    0    0    10   200  100  200  1  1 98  0  0\n";
        let bytes = table.repeat(CHUNK_BYTES * 3 / 2 / table.len()).into_bytes();
        let chunks = chunks(&bytes);
        assert_eq!(chunks.len(), 2);
        assert_eq!(chunks.concat(), bytes);
        assert!(
            chunks[1].starts_with(b"procs ") || chunks[1].starts_with(b" r  b"),
            "{:?}",
            String::from_utf8_lossy(&chunks[1][..40])
        );
    }

    #[test]
    fn small_files_and_documents_are_one_chunk() {
        assert_eq!(chunks(b"").len(), 0);
        assert_eq!(chunks(b"one line").len(), 1);
        let document = format!("{{\n\"a\": \"{}\"\n}}\n", "x".repeat(CHUNK_BYTES + 5));
        assert_eq!(chunks(document.as_bytes()).len(), 1);
        let endless = vec![b'x'; CHUNK_BYTES + 5];
        assert_eq!(chunks(&endless).concat(), endless);
    }
}
