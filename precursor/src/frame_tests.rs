//! The layout of frames and file headers, and what damaged ones are taken for.

use super::{FILE_HEADER_LEN, FileHeader, Format, HEADER, NoHeader, data, framed_len, records, reserved, sound_len};

fn framed(payload: &[u8], number: u64, time: u64) -> Vec<u8> {
    let mut out = data(payload, time).to_le_bytes().to_vec();
    out.extend(number.to_le_bytes());
    out.extend(time.to_le_bytes());
    out.extend_from_slice(payload);
    out.resize(framed_len(payload.len()), 0);
    out
}

fn head(first: u64) -> Vec<u8> {
    FileHeader { seq: 0, base: 0, first, begun: 0 }.encode().to_vec()
}

/// A frame of format 1, built without the library.
fn old(payload: &[u8]) -> Vec<u8> {
    let low = (2u32 << 30) | payload.len() as u32;
    let mut hasher = crc32fast::Hasher::new_with_initial(0x7072_6563);
    hasher.update(&low.to_le_bytes());
    hasher.update(payload);
    let mut out = low.to_le_bytes().to_vec();
    out.extend(hasher.finalize().to_le_bytes());
    out.extend_from_slice(payload);
    out.resize(out.len().next_multiple_of(8), 0);
    out
}

#[test]
fn records_come_back_and_filler_does_not() {
    let mut file = head(7);
    file.extend(framed(b"one", 7, 0));
    file.extend(Format::Second.filler(16).to_le_bytes());
    file.extend([7; 16]);
    file.extend(framed(b"", 8, 5));
    file.extend(framed(&[9; 220], 9, 6));
    file.extend([0; 64]);
    let got: Vec<&[u8]> = records(&file).collect();
    assert_eq!(got, [b"one".as_slice(), b"", &[9; 220]]);
    assert_eq!(sound_len(&file), file.len() - 64);
}

#[test]
fn every_torn_or_flipped_tail_is_seen() {
    let start = [head(0), framed(b"before", 0, 3)].concat();
    let tail = framed(&(0..220).map(|i| i as u8).collect::<Vec<_>>(), 1, 4);
    for cut in 0..HEADER + 220 {
        let file = [&start[..], &tail[..cut]].concat();
        assert_eq!(sound_len(&file), start.len(), "cut at {cut}");
    }
    for bit in 0..(HEADER + 220) * 8 {
        let mut file = [&start[..], &tail[..]].concat();
        file[start.len() + bit / 8] ^= 1 << (bit % 8);
        assert_eq!(sound_len(&file), start.len(), "flipped bit {bit}");
    }
    let mut open = start.clone();
    open.extend(reserved(220).to_le_bytes());
    open.resize(4096, 0);
    assert_eq!(sound_len(&open), start.len());
}

/// A frame that is valid by itself, but not the next one, ends the run: for example one of an earlier use of a block.
#[test]
fn a_number_that_does_not_continue_ends_the_run() {
    for wrong in [0, 4, 6, u64::MAX] {
        let file = [head(4), framed(b"first", 4, 0), framed(b"second", wrong, 0)].concat();
        assert_eq!(records(&file).count(), 1, "{wrong}");
    }
    assert_eq!(records(&[head(5), framed(b"first", 4, 0)].concat()).count(), 0);
    assert_eq!(records(&[head(u64::MAX), framed(b"last", u64::MAX, 0)].concat()).count(), 0);
}

#[test]
fn files_of_format_1_are_read() {
    let file = [old(b"one"), old(b""), old(&[9; 220]), vec![0; 64]].concat();
    let got: Vec<&[u8]> = records(&file).collect();
    assert_eq!(got, [b"one".as_slice(), b"", &[9; 220]]);
    assert_eq!(sound_len(&file), file.len() - 64);
    // A pattern whose first file is of format 1.
    let both = [old(b"old"), Format::First.end_mark().to_vec(), head(0), framed(b"new", 0, 0)].concat();
    assert!(records(&both).eq([b"old", b"new"]));
}

#[test]
fn a_header_is_read_whole_or_not_at_all() {
    let header = FileHeader { seq: 3, base: 1 << 40, first: 77, begun: 1 };
    let bytes = header.encode();
    assert_eq!(FileHeader::decode(&bytes), Ok(header));
    for cut in 0..FILE_HEADER_LEN {
        let wanted = if cut < 8 { NoHeader::Absent } else { NoHeader::Damaged };
        assert_eq!(FileHeader::decode(&bytes[..cut]), Err(wanted), "{cut}");
    }
    for bit in 0..FILE_HEADER_LEN * 8 {
        let mut flipped = bytes;
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(FileHeader::decode(&flipped).is_err(), "bit {bit}");
    }
    let mut later = bytes;
    later[8] = 3;
    let crc = crc32fast::hash(&later[..60]);
    later[60..].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(FileHeader::decode(&later), Err(NoHeader::Version(3)));
    // Not a frame of format 1.
    assert_eq!(Format::First.first(&bytes), None);
}
