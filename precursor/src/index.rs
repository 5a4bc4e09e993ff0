//! The index beside a framed file: offset, number and time of a frame at regular intervals, so that a seek reads a few
//! frames and not the whole file (docs/precursor-format.md).
//!
//! The index is a hint. It is not synced and may lag behind the file, be torn, or belong to an earlier file of the same
//! name. A point counts only if its checksum, which covers the file's header, is right and its frame is in the file.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::files::{Names, read_full};
use crate::frame::{self, FILE_HEADER_LEN, FileHeader, Word};
use crate::reader_types::SeekCost;

/// Length of a point, and of the beginning of the index, bytes.
pub(crate) const POINT_LEN: usize = 32;
/// Begins an index; zeros follow up to the first point.
pub(crate) const MAGIC: &[u8; 8] = b"prcrsrI1";
/// A point follows another after at least as many bytes or records, whichever comes first.
pub(crate) const STEP_BYTES: u64 = 64 << 10;
pub(crate) const STEP_RECORDS: u64 = 256;

/// A frame: its offset, and the number and time of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) offset: u64,
    pub(crate) number: u64,
    pub(crate) time: u64,
}

impl Point {
    /// A point of the file that begins with this header.
    pub(crate) fn encode(self, header: &[u8; FILE_HEADER_LEN]) -> [u8; POINT_LEN] {
        let mut out = [0; POINT_LEN];
        let fields = [self.offset, self.number, self.time].into_iter().flat_map(u64::to_le_bytes);
        out.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
        let crc = checksum(header, &out[..24]).to_le_bytes();
        out[24..28].copy_from_slice(&crc);
        out
    }

    /// The point in these bytes; `None` if it is torn, or of another file.
    pub(crate) fn decode(bytes: &[u8; POINT_LEN], header: &[u8; FILE_HEADER_LEN]) -> Option<Point> {
        let number = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let valid = number(24)? == u64::from(checksum(header, &bytes[..24]));
        valid.then_some(Point { offset: number(0)?, number: number(8)?, time: number(16)? })
    }

    /// Whether the file has a frame with this number and time at the offset. Its payload is not checked.
    fn is_in(self, data: &File) -> bool {
        let mut head = [0; frame::HEADER];
        let aligned = self.offset.is_multiple_of(frame::WORD as u64) && self.offset <= i64::MAX as u64;
        if !aligned || read_full(data, &mut head, self.offset).is_ok_and(|got| got < head.len()) {
            return false;
        }
        head_of(&head).is_some_and(|(_, number, time)| (number, time) == (self.number, self.time))
    }
}

fn checksum(header: &[u8; FILE_HEADER_LEN], fields: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(header);
    hasher.update(fields);
    hasher.finalize()
}

/// Length, number and time of the record whose frame begins here; `None` for anything else.
pub(crate) fn head_of(bytes: &[u8]) -> Option<(usize, u64, u64)> {
    let word = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let Word::Data(len) = frame::word(word(0)?) else { return None };
    Some((len, word(frame::NUMBER_AT)?, word(frame::TIME_AT)?))
}

/// The header of a file of format 2, as bytes.
pub(crate) fn header_bytes(data: &File) -> Option<([u8; FILE_HEADER_LEN], FileHeader)> {
    let mut bytes = [0; FILE_HEADER_LEN];
    read_full(data, &mut bytes, 0).ok()?;
    Some((bytes, FileHeader::decode(&bytes).ok()?))
}

/// Whether these are the first bytes of an index.
pub(crate) fn begins(index: &File) -> bool {
    let mut magic = [0; MAGIC.len()];
    read_full(index, &mut magic, 0).is_ok() && magic == *MAGIC
}

/// The index of a file, for reading.
#[derive(Debug)]
pub(crate) struct Index<'a> {
    index: &'a File,
    data: &'a File,
    header: [u8; FILE_HEADER_LEN],
    points: u64,
}

impl<'a> Index<'a> {
    pub(crate) fn new(index: &'a File, data: &'a File) -> Option<Index<'a>> {
        let (header, _) = header_bytes(data)?;
        let points = (index.metadata().ok()?.len() / POINT_LEN as u64).checked_sub(1)?;
        begins(index).then_some(Index { index, data, header, points })
    }

    fn point(&self, i: u64) -> Option<Point> {
        let mut bytes = [0; POINT_LEN];
        let got = read_full(self.index, &mut bytes, (i + 1) * POINT_LEN as u64).ok()?;
        if got == POINT_LEN { Point::decode(&bytes, &self.header) } else { None }
    }

    /// The last point before what is sought, with its place in the index. A refused point, as behind a torn end, counts
    /// as one after it: the search continues among the earlier ones.
    pub(crate) fn last_before(&self, before: impl Fn(&Point) -> bool, cost: &mut SeekCost) -> Option<(u64, Point)> {
        let (mut low, mut high, mut best) = (0, self.points, None);
        while low < high {
            let middle = low + (high - low) / 2;
            cost.points += 1;
            let point = self.point(middle).filter(|point| {
                cost.frames += 1;
                point.is_in(self.data)
            });
            match point {
                Some(point) if before(&point) => (low, best) = (middle + 1, Some((middle, point))),
                other => {
                    cost.refused += u64::from(other.is_none());
                    high = middle;
                }
            }
        }
        best
    }
}

/// Opens the index of file `seq`, if all users who may write to the index may also write to the file.
pub(crate) fn find(names: &Names, seq: u64, data: &File) -> Option<File> {
    let index = names.dir().readable(&names.index_name(seq)).ok()??;
    let (ours, theirs) = (index.metadata().ok()?, data.metadata().ok()?);
    let fits = ours.uid() == theirs.uid() && ours.nlink() == 1 && ours.mode() & 0o022 & !theirs.mode() == 0;
    fits.then_some(index)
}

/// Removes the index of file `seq`, if there is one. The file may be gone.
pub(crate) fn remove(names: &Names, seq: u64) {
    let name = names.index_name(seq);
    if names.dir().private(&name).is_ok_and(|index| index.is_some_and(|index| begins(&index))) {
        // One that cannot be removed harms no reader, and the next appender tries again.
        let _ = names.dir().remove(&name);
    }
}

/// Writes points; the index already has `points` of them.
pub(crate) fn put(index: &File, points: u64, bytes: &[u8]) -> std::io::Result<()> {
    if points == 0 {
        index.write_all_at(&beginning(), 0)?;
    }
    index.write_all_at(bytes, (points + 1) * POINT_LEN as u64)
}

/// First bytes of an index.
pub(crate) fn beginning() -> [u8; POINT_LEN] {
    let mut out = [0; POINT_LEN];
    out[..MAGIC.len()].copy_from_slice(MAGIC);
    out
}
