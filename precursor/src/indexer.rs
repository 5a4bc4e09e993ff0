//! Keeps the indexes of an appender's framed files, on the thread that also removes old files. It reads the heads of
//! the frames that are in the file, so an append has no part in it.

use std::io;
use std::sync::atomic::Ordering;

use crate::core::Core;
use crate::files::{Names, read_full};
use crate::frame::{self, FILE_HEADER_LEN, Word};
use crate::index::{self, Index, POINT_LEN, Point, STEP_BYTES, STEP_RECORDS, head_of};
use crate::own::OwnFile;
use crate::reader_types::SeekCost;

/// Bytes read at a time.
const CHUNK: usize = 64 << 10;
/// Most bytes of the file passed in one turn.
const TURN_BYTES: u64 = 1 << 20;
/// Most turns at close. What is left is read by the next appender, or by the seek.
const LAST_TURNS: u32 = 256;
/// Most bytes of points that wait for room on the disk.
const PENDING_BYTES_MAX: usize = 64 << 10;

/// The state of a file.
#[derive(Debug)]
enum Place {
    /// Not looked at yet, or not begun.
    Unknown,
    /// Its index belongs to someone else or cannot be written.
    Without,
    Walking(Box<Walk>),
}

/// Keeps the indexes of an appender's files, one after the other.
#[derive(Debug)]
pub(crate) struct Indexer {
    seq: u64,
    place: Place,
}

impl Indexer {
    /// Begins with the current file. Older files keep the index that they have.
    pub(crate) fn new(core: &Core) -> Indexer {
        Indexer { seq: core.live.file().0, place: Place::Unknown }
    }

    /// The last turns, when everything is in the file.
    pub(crate) fn finish(mut self, core: &Core) {
        for _ in 0..LAST_TURNS {
            if !self.turn(core) {
                break;
            }
        }
    }

    /// Adds the points of frames that have reached the file. True if there is more to do at once.
    pub(crate) fn turn(&mut self, core: &Core) -> bool {
        let epoch = core.live.epoch();
        let (current, base) = core.live.file();
        let filed = core.filed_end();
        if core.live.epoch() != epoch {
            return true;
        }
        let old = self.seq < current;
        if matches!(self.place, Place::Unknown) {
            self.place = match Walk::begin(&core.names, self.seq) {
                Ok(found) => found.map_or(Place::Without, |walk| Place::Walking(Box::new(walk))),
                Err(_) => Place::Unknown,
            };
        }
        let end = if old { u64::MAX } else { filed.saturating_sub(base) };
        let more = match &mut self.place {
            Place::Walking(walk) => walk.advance(&core.names, end).unwrap_or(false),
            _ => false,
        };
        if !more && old {
            (self.seq, self.place) = (self.seq.saturating_add(1), Place::Unknown);
            // The indexes of files that were archived or removed.
            let _ = core.names.remove_indexes_without_file(current);
            return true;
        }
        more
    }
}

/// A file whose frames are passed one after the other.
#[derive(Debug)]
struct Walk {
    seq: u64,
    data: OwnFile,
    header: [u8; FILE_HEADER_LEN],
    /// `None` until there is a first point.
    index: Option<OwnFile>,
    /// Points in the index.
    points: u64,
    /// Points that are not in the index yet.
    pending: Vec<u8>,
    last: Point,
    /// Offset of the next frame, and the number that it must have.
    at: u64,
    number: u64,
}

impl Walk {
    /// Continues behind the last point that the index has. An error if the file is not begun, or cannot be read now.
    fn begin(names: &Names, seq: u64) -> io::Result<Option<Walk>> {
        let data = OwnFile::new(names.existing(seq)?)?;
        let file = data.get()?;
        let Some((header, first)) = index::header_bytes(file) else {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        };
        let index = match names.dir().private(&names.index_name(seq)) {
            Ok(found) => found,
            Err(_) => return Ok(None),
        };
        let mut last = Point { offset: FILE_HEADER_LEN as u64, number: first.first, time: 0 };
        let mut points = 0;
        if let Some(index) = &index {
            if index.metadata()?.len() > 0 && !index::begins(index) {
                return Ok(None);
            }
            let known = Index::new(index, file).and_then(|known| known.last_before(|_| true, &mut SeekCost::default()));
            if let Some((i, point)) = known {
                (points, last) = (i + 1, point);
            }
            index.set_len(if points == 0 { 0 } else { (points + 1) * POINT_LEN as u64 })?;
        }
        let index = index.map(OwnFile::new).transpose()?;
        let (at, number, pending) = (last.offset, last.number, Vec::new());
        Ok(Some(Walk { seq, data, header, index, points, pending, last, at, number }))
    }

    /// Passes frames up to `end`, but not many more than `TURN_BYTES`. False if there is nothing more to do now.
    fn advance(&mut self, names: &Names, end: u64) -> io::Result<bool> {
        if self.at >= end && self.pending.is_empty() {
            return Ok(false);
        }
        let until = self.at.saturating_add(TURN_BYTES);
        let mut buffer = vec![0; CHUNK];
        while self.at < until && self.pending.len() < PENDING_BYTES_MAX {
            let want = CHUNK.min(usize::try_from(end.saturating_sub(self.at)).unwrap_or(CHUNK));
            let got = read_full(self.data.get()?, buffer.get_mut(..want).unwrap_or_default(), self.at)?;
            let passed = self.pass(buffer.get(..got).unwrap_or_default());
            self.at = self.at.saturating_add(passed);
            if passed == 0 {
                self.store(names)?;
                return Ok(false);
            }
        }
        self.store(names)?;
        Ok(true)
    }

    /// Bytes of the frames that begin in these bytes, whose heads are whole.
    fn pass(&mut self, bytes: &[u8]) -> u64 {
        let mut passed = 0usize;
        while let Some(word) = bytes.get(passed..).and_then(|rest| rest.first_chunk()) {
            let len = match frame::word(u64::from_le_bytes(*word)) {
                Word::Data(_) => {
                    let head = bytes.get(passed..).and_then(head_of);
                    let Some((len, number, time)) = head.filter(|(_, number, _)| *number == self.number) else { break };
                    self.offer(Point { offset: self.at + passed as u64, number, time });
                    self.number = number.wrapping_add(1);
                    frame::framed_len(len)
                }
                Word::Filler(len) if len > 0 => frame::filler_len(len),
                // An end mark, or no frame.
                _ => break,
            };
            passed += len;
        }
        passed as u64
    }

    fn offer(&mut self, point: Point) {
        let far = point.offset.saturating_sub(self.last.offset) >= STEP_BYTES;
        if far || point.number.saturating_sub(self.last.number) >= STEP_RECORDS {
            self.pending.extend(point.encode(&self.header));
            self.last = point;
        }
    }

    fn store(&mut self, names: &Names) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        if self.index.is_none() {
            let mode = std::os::unix::fs::MetadataExt::mode(&self.data.get()?.metadata()?);
            self.index = Some(OwnFile::new(names.dir().create_index(&names.index_name(self.seq), mode)?)?);
        }
        if let Some(index) = &self.index {
            index::put(index.get()?, self.points, &self.pending)?;
        }
        self.points += (self.pending.len() / POINT_LEN) as u64;
        self.pending.clear();
        Ok(())
    }
}

/// Runs the last turns once all other threads of the appender have ended.
pub(crate) fn finish(core: &Core, indexer: Option<Indexer>) {
    let Some(indexer) = indexer else { return };
    while !core.filed.load(Ordering::Acquire) {
        std::thread::park();
    }
    indexer.finish(core);
}
