//! Frames and file headers of both formats; docs/precursor-format.md is their specification.
//!
//! A frame of format 2 is a word, a record number, a time, the payload, and zeros up to a multiple of 8. Format 1 has
//! neither number nor time, and its files have no header. This library writes format 2 and reads both.
//!
//! The word is little-endian and contains, from the low end, the payload's length (30 bits), a state (2 bits), and a
//! CRC-32 (32 bits). It is stored whole, after the payload, so a frame is either committed or not. A word of zero means
//! that no record has been stored here.

/// Length of a frame's word, and alignment of frames, bytes.
pub(crate) const WORD: usize = 8;
/// Length of word, number and time before the payload, bytes.
pub(crate) const HEADER: usize = 24;
/// Offset of the record number in a frame, bytes.
pub(crate) const NUMBER_AT: usize = 8;
/// Offset of the time in a frame, bytes.
pub(crate) const TIME_AT: usize = 16;
/// Longest payload, bytes.
pub(crate) const LEN_MAX: usize = (1 << 30) - 1;

const RESERVED: u64 = 1;
const DATA: u64 = 2;
const FILLER: u64 = 3;

/// Initial values of the CRC-32.
const SEED_1: u32 = 0x7072_6563;
const SEED_2: u32 = 0x7072_6332;

/// Length of the mark that ends a rolled file: an empty filler. A file without the mark was not complete, so the files
/// after it do not continue it.
pub(crate) const END_MARK_LEN: usize = WORD;

/// Layout of the frames of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// A word before the payload.
    First,
    /// Word, number and time before the payload.
    Second,
}

impl Format {
    /// Length of what comes before the payload, bytes.
    const fn header(self) -> usize {
        match self {
            Format::First => WORD,
            Format::Second => HEADER,
        }
    }

    const fn seed(self) -> u32 {
        match self {
            Format::First => SEED_1,
            Format::Second => SEED_2,
        }
    }

    /// The end mark's bytes.
    pub(crate) fn end_mark(self) -> [u8; END_MARK_LEN] {
        self.filler(0).to_le_bytes()
    }

    /// Length of a payload with its frame, bytes.
    pub(crate) const fn framed_len(self, len: usize) -> usize {
        (self.header() + len).next_multiple_of(WORD)
    }

    /// The word of a filler with `len` bytes after the word. The checksum does not cover them: they may be half a
    /// record.
    pub(crate) fn filler(self, len: usize) -> u64 {
        sealed(self.seed(), (FILLER << 30) | len as u64, &[], &[])
    }

    /// Length that a word claims for its frame, bytes, whether or not the frame is valid.
    pub(crate) fn claimed_len(self, value: u64) -> usize {
        match word(value) {
            Word::Data(len) | Word::Reserved(len) => self.framed_len(len),
            Word::Filler(len) => filler_len(len),
            Word::Empty => 0,
        }
    }

    /// The frame at the beginning of `bytes`; `None` if it is not whole and valid.
    pub(crate) fn first(self, bytes: &[u8]) -> Option<Found<'_>> {
        let value = number_at(bytes, 0)?;
        match word(value) {
            Word::Data(len) => {
                let payload = bytes.get(self.header()..self.header().checked_add(len)?)?;
                let whole = self.framed_len(len);
                let (number, time) = match self {
                    Format::First => (0, 0),
                    Format::Second => (number_at(bytes, NUMBER_AT)?, number_at(bytes, TIME_AT)?),
                };
                let sound = match self {
                    Format::First => sealed(SEED_1, value & 0xffff_ffff, &[], payload) == value,
                    Format::Second => data(payload, time) == value,
                };
                (bytes.len() >= whole && sound).then_some(Found { payload: Some(payload), number, time, len: whole })
            }
            Word::Filler(len) => {
                let whole = filler_len(len);
                let sound = bytes.len() >= whole && self.filler(len) == value;
                sound.then_some(Found { payload: None, number: 0, time: 0, len: whole })
            }
            Word::Empty | Word::Reserved(_) => None,
        }
    }
}

/// Whether `bytes` is an end mark of either format.
pub(crate) fn is_end_mark(bytes: &[u8]) -> bool {
    bytes == Format::First.end_mark() || bytes == Format::Second.end_mark()
}

/// A frame's word, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    /// No record has been stored here.
    Empty,
    /// A producer has taken this many payload bytes and not finished.
    Reserved(usize),
    /// A record of this length.
    Data(usize),
    /// Space without a record, with this many bytes after the word, left by a dead producer.
    Filler(usize),
}

/// Length of a frame of format 2, bytes.
pub(crate) const fn framed_len(len: usize) -> usize {
    Format::Second.framed_len(len)
}

/// Length of a filler with `len` bytes after its word, bytes.
pub(crate) const fn filler_len(len: usize) -> usize {
    (WORD + len).next_multiple_of(WORD)
}

pub(crate) fn word(value: u64) -> Word {
    let len = (value & LEN_MAX as u64) as usize;
    match (value >> 30) & 3 {
        RESERVED => Word::Reserved(len),
        DATA => Word::Data(len),
        FILLER => Word::Filler(len),
        _ => Word::Empty,
    }
}

pub(crate) fn reserved(len: usize) -> u64 {
    (RESERVED << 30) | len as u64
}

/// The word of a committed record of format 2. The checksum does not cover the record's number, which continues that of
/// the record before.
#[inline]
pub(crate) fn data(payload: &[u8], time: u64) -> u64 {
    sealed(SEED_2, (DATA << 30) | payload.len() as u64, &time.to_le_bytes(), payload)
}

#[inline]
fn sealed(seed: u32, low: u64, time: &[u8], payload: &[u8]) -> u64 {
    let mut hasher = crc32fast::Hasher::new_with_initial(seed);
    hasher.update(&(low as u32).to_le_bytes());
    hasher.update(time);
    hasher.update(payload);
    (u64::from(hasher.finalize()) << 32) | low
}

fn number_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// A frame that was found in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found<'a> {
    /// The record; `None` for a filler.
    pub(crate) payload: Option<&'a [u8]>,
    /// Number and time of the record; 0 for a filler and in format 1.
    pub(crate) number: u64,
    pub(crate) time: u64,
    /// Distance to the next frame, bytes.
    pub(crate) len: usize,
}

/// Header of a file of format 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileHeader {
    /// Number in the file's name; 0 for a single file.
    pub(crate) seq: u64,
    /// Position of the file's first byte.
    pub(crate) base: u64,
    /// Number of the file's first record.
    pub(crate) first: u64,
    /// When the file was begun, ns since 1970; 0 = unknown.
    pub(crate) begun: u64,
}

/// Length of a file's header, bytes.
pub(crate) const FILE_HEADER_LEN: usize = 64;
/// Begins a file of format 2. No valid frame of format 1 begins with it: its state bits are not those of a record or a
/// filler.
pub(crate) const FILE_MAGIC: &[u8; 8] = b"prcrsrF2";
/// Version in the header.
pub(crate) const FILE_VERSION: u32 = 2;

/// Why a header is not usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoHeader {
    /// It does not begin with the magic.
    Absent,
    /// It begins with the magic and is cut or damaged.
    Damaged,
    /// It is of this version, which the library does not know.
    Version(u32),
}

impl FileHeader {
    pub(crate) fn encode(&self) -> [u8; FILE_HEADER_LEN] {
        let mut out = [0; FILE_HEADER_LEN];
        let (low, high) = (FILE_VERSION, FILE_HEADER_LEN as u32);
        let words = [u64::from(low) | u64::from(high) << 32, self.seq, self.base, self.first, self.begun, 0];
        let bytes = FILE_MAGIC.iter().copied().chain(words.into_iter().flat_map(u64::to_le_bytes));
        out.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        if let Some((body, last)) = out.split_last_chunk_mut::<4>() {
            *last = crc32fast::hash(body).to_le_bytes();
        }
        out
    }

    /// The header at the beginning of a file.
    pub(crate) fn decode(bytes: &[u8]) -> Result<FileHeader, NoHeader> {
        if bytes.get(..FILE_MAGIC.len()).is_none_or(|magic| magic != FILE_MAGIC) {
            return Err(NoHeader::Absent);
        }
        let whole = bytes.get(..FILE_HEADER_LEN).and_then(|whole| whole.split_last_chunk::<4>());
        let (body, crc) = whole.ok_or(NoHeader::Damaged)?;
        if crc32fast::hash(body) != u32::from_le_bytes(*crc) {
            return Err(NoHeader::Damaged);
        }
        let number = |at| number_at(body, at).ok_or(NoHeader::Damaged);
        let version = number(8)?;
        if version != u64::from(FILE_VERSION) | (FILE_HEADER_LEN as u64) << 32 {
            return Err(NoHeader::Version(version as u32));
        }
        Ok(FileHeader { seq: number(16)?, base: number(24)?, first: number(32)?, begun: number(40)? })
    }
}

/// Reads frames one after the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scan {
    pub(crate) format: Format,
    /// Format 2: number of the next record; `None` if any is accepted.
    pub(crate) next: Option<u64>,
}

impl Scan {
    /// How to read a file that begins with these bytes, and the offset of the first frame.
    pub(crate) fn of_file(bytes: &[u8]) -> (Scan, usize) {
        match FileHeader::decode(bytes) {
            Ok(header) => (Scan { format: Format::Second, next: Some(header.first) }, FILE_HEADER_LEN),
            Err(_) => (Scan { format: Format::First, next: None }, 0),
        }
    }

    /// The frame at the beginning of `bytes`, if it is whole, valid and the next one.
    pub(crate) fn take<'a>(&mut self, bytes: &'a [u8]) -> Option<Found<'a>> {
        let found = self.format.first(bytes)?;
        if self.format == Format::Second && found.payload.is_some() {
            if self.next.is_some_and(|next| next != found.number) {
                return None;
            }
            self.next = Some(found.number.checked_add(1)?);
        }
        Some(found)
    }

    /// Length of the run of valid frames at the beginning of `bytes`.
    pub(crate) fn run_len(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while let Some(found) = bytes.get(at..).and_then(|rest| self.take(rest)) {
            at += found.len;
        }
        at
    }
}

/// Length of the header and the run of valid frames at the beginning of a file.
pub(crate) fn sound_len(bytes: &[u8]) -> usize {
    let (mut scan, from) = Scan::of_file(bytes);
    from + bytes.get(from..).map_or(0, |frames| scan.run_len(frames))
}

/// The records of a framed file, or of the files of a pattern one after the other, in order, up to the first frame that
/// is not whole and valid.
pub fn records(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (mut scan, mut at) = Scan::of_file(bytes);
    std::iter::from_fn(move || {
        loop {
            let rest = bytes.get(at..)?;
            let Some(found) = scan.take(rest) else {
                let ended = bytes.get(at.checked_sub(END_MARK_LEN)?..at).is_some_and(is_end_mark);
                let header = FileHeader::decode(rest).ok().filter(|_| ended)?;
                scan = Scan { format: Format::Second, next: Some(header.first) };
                at += FILE_HEADER_LEN;
                continue;
            };
            at += found.len;
            if found.payload.is_some() {
                return found.payload;
            }
        }
    })
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
