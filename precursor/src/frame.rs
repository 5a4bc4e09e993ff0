//! Frames: an 8-byte word, the payload, and zeros up to a multiple of 8.
//!
//! The word is little-endian and contains, from the low end, the payload's length (30 bits), a state (2 bits), and a
//! CRC-32 of the word's low half and the payload (32 bits). It is stored whole, after the payload, so a frame is either
//! committed or not. A word of zero means that no record has been stored here.

/// Length of the word before the payload, bytes.
pub(crate) const HEADER: usize = 8;
/// Longest payload, bytes.
pub(crate) const LEN_MAX: usize = (1 << 30) - 1;

const RESERVED: u64 = 1;
const DATA: u64 = 2;
const FILLER: u64 = 3;

/// Length of the mark that ends a rolled file: an empty filler. A file without the mark was not complete, so the files
/// after it do not continue it.
pub(crate) const END_MARK_LEN: usize = HEADER;

/// The end mark's bytes.
pub(crate) fn end_mark() -> [u8; END_MARK_LEN] {
    filler(0).to_le_bytes()
}

/// Whether `bytes` is an end mark.
pub(crate) fn is_end_mark(bytes: &[u8]) -> bool {
    bytes == end_mark()
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
    /// Space without a record, of this payload length, left by a dead producer.
    Filler(usize),
}

/// Length of a payload with its frame, bytes.
pub(crate) const fn framed_len(len: usize) -> usize {
    (HEADER + len).next_multiple_of(HEADER)
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

/// The word of a committed record.
#[inline]
pub(crate) fn data(payload: &[u8]) -> u64 {
    sealed((DATA << 30) | payload.len() as u64, payload)
}

/// The word of a filler with a payload of `len` bytes. The checksum does not cover the payload, which may be half a
/// record.
pub(crate) fn filler(len: usize) -> u64 {
    // No payload in the checksum, see above.
    sealed((FILLER << 30) | len as u64, &[])
}

#[inline]
fn sealed(low: u64, payload: &[u8]) -> u64 {
    let mut hasher = crc32fast::Hasher::new_with_initial(0x7072_6563);
    hasher.update(&(low as u32).to_le_bytes());
    hasher.update(payload);
    (u64::from(hasher.finalize()) << 32) | low
}

/// A frame that was found in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found<'a> {
    /// The record; `None` for a filler.
    pub(crate) payload: Option<&'a [u8]>,
    /// Distance to the next frame, bytes.
    pub(crate) len: usize,
}

/// The frame at the beginning of `bytes`; `None` if it is not whole and valid.
pub(crate) fn first(bytes: &[u8]) -> Option<Found<'_>> {
    let value = u64::from_le_bytes(bytes.get(..HEADER)?.try_into().ok()?);
    match word(value) {
        Word::Data(len) => {
            let payload = bytes.get(HEADER..HEADER.checked_add(len)?)?;
            let whole = framed_len(len);
            (bytes.len() >= whole && data(payload) == value).then_some(Found { payload: Some(payload), len: whole })
        }
        Word::Filler(len) => {
            let whole = framed_len(len);
            (bytes.len() >= whole && filler(len) == value).then_some(Found { payload: None, len: whole })
        }
        Word::Empty | Word::Reserved(_) => None,
    }
}

/// Length that a word claims for its frame, bytes, whether or not the frame is valid.
pub(crate) fn claimed_len(value: u64) -> usize {
    match word(value) {
        Word::Data(len) | Word::Filler(len) | Word::Reserved(len) => framed_len(len),
        Word::Empty => 0,
    }
}

/// Length of the run of valid frames at the beginning of `bytes`.
pub(crate) fn sound_len(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(found) = bytes.get(at..).and_then(first) {
        at += found.len;
    }
    at
}

/// The records of a framed file, in order, up to the first frame that is not whole and valid.
pub fn records(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let found = first(bytes.get(at..)?)?;
            at += found.len;
            if found.payload.is_some() {
                return found.payload;
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{HEADER, data, filler, framed_len, records, reserved, sound_len};

    fn framed(payload: &[u8]) -> Vec<u8> {
        let mut out = data(payload).to_le_bytes().to_vec();
        out.extend_from_slice(payload);
        out.resize(framed_len(payload.len()), 0);
        out
    }

    #[test]
    fn records_come_back_and_filler_does_not() {
        let mut file = framed(b"one");
        file.extend(filler(16).to_le_bytes());
        file.extend([7; 16]);
        file.extend(framed(b""));
        file.extend(framed(&[9; 220]));
        file.extend([0; 64]);
        let got: Vec<&[u8]> = records(&file).collect();
        assert_eq!(got, [b"one".as_slice(), b"", &[9; 220]]);
        assert_eq!(sound_len(&file), file.len() - 64);
    }

    #[test]
    fn every_torn_or_flipped_tail_is_seen() {
        let head = framed(b"before");
        let tail = framed(&(0..220).map(|i| i as u8).collect::<Vec<_>>());
        for cut in 0..HEADER + 220 {
            let file = [&head[..], &tail[..cut]].concat();
            assert_eq!(sound_len(&file), head.len(), "cut at {cut}");
        }
        for bit in 0..(HEADER + 220) * 8 {
            let mut file = [&head[..], &tail[..]].concat();
            file[head.len() + bit / 8] ^= 1 << (bit % 8);
            assert_eq!(sound_len(&file), head.len(), "flipped bit {bit}");
        }
        let mut open = head.clone();
        open.extend(reserved(220).to_le_bytes());
        open.resize(4096, 0);
        assert_eq!(sound_len(&open), head.len());
    }
}
