//! [`Reader`]: reads the records of a framed file or pattern, also while they are written.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::files::{Names, read_full};
use crate::frame::{self, FILE_HEADER_LEN, FileHeader, Format, NoHeader, Scan, Word};
use crate::reader_live::LiveView;
use crate::reader_types::{ReadError, Record, SeekCost, Waiting, Writer};
use crate::stats::Position;

#[path = "reader_seek.rs"]
mod seek;

/// Bytes read at a time.
const CHUNK: u64 = 64 << 10;
/// Interval at which an idle reader looks for a new writer and for a removed file.
const LOOK: Duration = Duration::from_millis(20);

/// The file that is read.
#[derive(Debug)]
struct Current {
    seq: u64,
    /// Position of the first byte; assumed until the header is read.
    base: u64,
    /// `None` until it exists: with a ring, the writer is ahead of the files.
    file: Option<File>,
    /// `None` until the header, or the first frame of format 1, is read.
    scan: Option<Scan>,
    /// Offset of the next frame.
    offset: u64,
}

/// A frame whose payload is in the buffer.
#[derive(Debug, Clone, Copy)]
struct Framed {
    number: u64,
    time: u64,
    payload: Option<(usize, usize)>,
    len: u64,
}

/// Reads the records of a framed file or pattern in order, in the writer's process or another, also while they are
/// written and after the writer's death.
///
/// A reader returns records that are published and no others. Recovery keeps every record that a reader has returned,
/// unless the machine dies. Files of format 1 are read too. A reader of the writer's user reads the writer's shared
/// memory, and is woken by the writer. Any other reader sees records once they are in the file, and polls.
#[derive(Debug)]
pub struct Reader {
    names: Names,
    live: Option<LiveView>,
    current: Option<Current>,
    /// Bytes of the current file from `buffered_at` on.
    buffer: Vec<u8>,
    buffered_at: u64,
    record_bytes_max: usize,
    /// The bytes in the buffer are published.
    limited: bool,
    waiting: Waiting,
    looked: Instant,
    /// Number of the next record, if one was read.
    next_number: Option<u64>,
    cost: SeekCost,
}

impl Reader {
    /// Opens a file, or a pattern with `{}` in its name, at its first record. The file need not exist yet; its
    /// directory must.
    pub fn open(path: impl AsRef<Path>) -> Result<Reader, ReadError> {
        let path = path.as_ref();
        let problem = |e: crate::files::NameError| ReadError::Path { path: path.to_owned(), problem: e.to_string() };
        let names = Names::of(path).map_err(problem)?;
        let live = LiveView::find(&names).map_err(ReadError::io("read the shared memory of", path))?;
        let mut reader = Reader {
            names,
            live,
            current: None,
            buffer: Vec::new(),
            buffered_at: 0,
            record_bytes_max: frame::LEN_MAX,
            limited: false,
            waiting: Waiting::default(),
            looked: Instant::now(),
            next_number: None,
            cost: SeekCost::default(),
        };
        reader.begin_at_first()?;
        Ok(reader)
    }

    /// Longest record that the reader takes into memory. Default: 1 GiB - 1 byte.
    pub fn record_bytes_max(&mut self, bytes: usize) {
        self.record_bytes_max = bytes;
    }

    /// How `next_within` waits.
    pub fn waiting(&mut self, waiting: Waiting) {
        self.waiting = waiting;
    }

    /// The next record that is published; `None` if there is none yet.
    #[expect(clippy::should_implement_trait, reason = "the record borrows the reader's buffer")]
    pub fn next(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        let Some(found) = self.peek()? else { return Ok(None) };
        Ok(Some(self.deliver(&found)))
    }

    /// The next record; waits for it at most for this time.
    pub fn next_within(&mut self, most: Duration) -> Result<Option<Record<'_>>, ReadError> {
        let until = Instant::now().checked_add(most);
        let mut nap = Duration::from_micros(50);
        loop {
            if let Some(found) = self.peek()? {
                return Ok(Some(self.deliver(&found)));
            }
            let now = Instant::now();
            let left = until.map_or(LOOK, |until| until.saturating_duration_since(now));
            if left.is_zero() {
                return Ok(None);
            }
            if now.duration_since(self.looked) >= LOOK {
                self.looked = now;
                self.look_around()?;
                continue;
            }
            self.pause(left.min(LOOK), &mut nap);
        }
    }

    /// Moves behind a record whose payload is in the buffer, and returns it.
    fn deliver(&mut self, found: &Framed) -> Record<'_> {
        self.pass(found);
        let bytes = found.payload.and_then(|(from, to)| self.buffer.get(from..to)).unwrap_or_default();
        let time_ns = if found.time == 0 { None } else { Some(found.time) };
        Record { number: found.number, time_ns, position: Position(self.position()), bytes }
    }

    fn pause(&self, most: Duration, nap: &mut Duration) {
        match (&self.live, self.waiting) {
            (Some(live), Waiting::Spinning) => {
                for _ in 0..1000 {
                    if live.published() > self.position() {
                        return;
                    }
                    std::hint::spin_loop();
                }
            }
            (None, Waiting::Spinning) => std::hint::spin_loop(),
            (Some(live), _) if live.published() <= self.position() => live.sleep(self.position(), most),
            // Published and not in the file yet, or no shared memory to wait on.
            _ => {
                std::thread::sleep(most.min(*nap));
                *nap = (*nap * 2).min(Duration::from_millis(1));
            }
        }
    }

    /// What is known of the writer now.
    pub fn writer(&self) -> Writer {
        match &self.live {
            None => Writer::Unknown,
            Some(live) if live.is_held() => Writer::Alive,
            Some(_) => Writer::Dead,
        }
    }

    /// Bytes of the current file behind the last record that are not zero and not whole frames, if the end of the
    /// records is reached: a torn tail, or damage.
    pub fn unread_bytes(&mut self) -> Result<u64, ReadError> {
        if self.peek()?.is_some() {
            return Ok(0);
        }
        let Some((current, file)) = self.current.as_ref().and_then(|c| Some((c, c.file.as_ref()?))) else {
            return Ok(0);
        };
        let path = self.names.path(current.seq);
        let end = crate::files::data_end(file, current.offset).map_err(ReadError::io("read", &path))?;
        let mut word = [0; frame::WORD];
        read_full(file, &mut word, current.offset).map_err(ReadError::io("read", &path))?;
        // At an end mark the next file is missing; nothing is damaged.
        Ok(if frame::is_end_mark(&word) { 0 } else { end.saturating_sub(current.offset) })
    }

    /// Position of the next frame.
    fn position(&self) -> u64 {
        self.current.as_ref().map_or(0, |current| current.base.saturating_add(current.offset))
    }

    fn present(&self) -> Result<Vec<u64>, ReadError> {
        self.names.present().map_err(ReadError::io("list", self.names.dir().path()))
    }

    fn begin(&mut self, seq: u64, base: u64) {
        self.current = Some(Current { seq, base, file: None, scan: None, offset: 0 });
        self.buffer.clear();
        self.buffered_at = 0;
    }

    /// Begins at a file that was listed, and opens it, so that its removal takes no record from the reader. False if
    /// it has been removed since it was listed.
    fn begin_open(&mut self, seq: u64, base: u64) -> Result<bool, ReadError> {
        let file = match self.names.readable(seq) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            other => other.map_err(ReadError::io("open", &self.names.path(seq)))?,
        };
        self.begin(seq, base);
        if let Some(current) = &mut self.current {
            current.file = Some(file);
        }
        Ok(true)
    }

    fn missing(&self, from: u64) -> ReadError {
        let seq = self.current.as_ref().map_or(0, |current| current.seq);
        ReadError::Missing { from, path: self.names.path(seq) }
    }

    /// Moves behind a frame.
    fn pass(&mut self, found: &Framed) {
        if let Some(current) = &mut self.current {
            current.offset += found.len;
            if found.payload.is_some() {
                let next = found.number.checked_add(1);
                self.next_number = next;
                if let Some(scan) = &mut current.scan {
                    scan.next = next;
                }
            }
        }
    }

    /// The next record, which stays the next one.
    fn peek(&mut self) -> Result<Option<Framed>, ReadError> {
        loop {
            if self.current.is_none() {
                self.begin_at_first()?;
            }
            let Some(current) = &self.current else { return Ok(None) };
            let Some(scan) = current.scan else {
                if !self.read_header()? {
                    return Ok(None);
                }
                continue;
            };
            match self.frame(scan)? {
                Some(found) if found.payload.is_some() => return Ok(Some(found)),
                Some(found) if found.len > frame::END_MARK_LEN as u64 => self.pass(&found),
                Some(found) => {
                    if !self.next_file(found.len)? {
                        return Ok(None);
                    }
                }
                None => {
                    self.check_published()?;
                    if !self.continues_elsewhere(scan)? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Reads the header of the current file. False if it is not written yet.
    fn read_header(&mut self) -> Result<bool, ReadError> {
        self.load(FILE_HEADER_LEN as u64, true)?;
        if FileHeader::decode(&self.buffer) == Err(NoHeader::Damaged) {
            // Perhaps it is being stored.
            std::thread::sleep(Duration::from_millis(1));
            self.load(FILE_HEADER_LEN as u64, true)?;
        }
        let expected = self.next_number;
        let Some(current) = &mut self.current else { return Ok(false) };
        let path = self.names.path(current.seq);
        if self.buffer.iter().take(FILE_HEADER_LEN).all(|byte| *byte == 0) {
            return Ok(false);
        }
        match FileHeader::decode(&self.buffer) {
            Ok(header) => {
                (current.base, current.offset) = (header.base, FILE_HEADER_LEN as u64);
                current.scan = Some(Scan { format: Format::Second, next: Some(header.first) });
                if let Some(from) = expected.filter(|expected| header.first > *expected) {
                    return Err(ReadError::Missing { from, path });
                }
                Ok(true)
            }
            Err(NoHeader::Version(version)) => Err(ReadError::Version { path, version }),
            Err(NoHeader::Damaged) => Err(ReadError::Damaged { path, offset: 0 }),
            Err(NoHeader::Absent) => {
                let scan = Scan { format: Format::First, next: None };
                if self.frame(scan)?.is_none() {
                    return Err(ReadError::NotFramed { path });
                }
                if let Some(current) = &mut self.current {
                    current.scan = Some(scan);
                }
                Ok(true)
            }
        }
    }

    /// The frame at the current offset; `None` if it is not published, or not whole.
    fn frame(&mut self, mut scan: Scan) -> Result<Option<Framed>, ReadError> {
        // The second attempt reads the bytes again: they may have been stored since.
        for again in [false, true] {
            let Some(current) = &self.current else { return Ok(None) };
            let skip = usize::try_from(current.offset.saturating_sub(self.buffered_at)).unwrap_or(usize::MAX);
            let held = self.buffer.get(skip..).unwrap_or_default();
            if let Some(found) = scan.take(held) {
                let header = found.len.min(if scan.format == Format::First { frame::WORD } else { frame::HEADER });
                let from = skip + header;
                let payload = found.payload.map(|payload| (from, from + payload.len()));
                let number = match scan.format {
                    Format::First => self.next_number.unwrap_or(0),
                    Format::Second => found.number,
                };
                return Ok(Some(Framed { number, time: found.time, payload, len: found.len as u64 }));
            }
            if again {
                return Ok(None);
            }
            self.load(frame::WORD as u64, false)?;
            let claimed = self.buffer.first_chunk::<8>().map_or(0, |word| {
                let value = u64::from_le_bytes(*word);
                if matches!(frame::word(value), Word::Reserved(_)) { 0 } else { scan.format.claimed_len(value) }
            });
            if claimed > self.buffer.len() {
                self.check_len(claimed)?;
                self.load(claimed as u64, false)?;
            }
        }
        Ok(None)
    }

    /// Bytes that are published and not a frame are damage.
    fn check_published(&self) -> Result<(), ReadError> {
        let (Some(current), true) = (&self.current, self.limited) else { return Ok(()) };
        if self.buffer.len() < frame::WORD {
            return Ok(());
        }
        Err(ReadError::Damaged { path: self.names.path(current.seq), offset: current.offset })
    }

    fn check_len(&self, claimed: usize) -> Result<(), ReadError> {
        let Some(current) = &self.current else { return Ok(()) };
        // Of a torn frame the length may be any number: only one that the file can hold is a record.
        let file_len = current.file.as_ref().and_then(|file| Some(file.metadata().ok()?.len()));
        let fits = file_len.is_none_or(|file_len| current.offset.saturating_add(claimed as u64) <= file_len);
        match claimed.saturating_sub(frame::HEADER) > self.record_bytes_max && fits {
            true => {
                let (path, offset) = (self.names.path(current.seq), current.offset);
                Err(ReadError::TooLong { path, offset, len: claimed })
            }
            false => Ok(()),
        }
    }

    /// Fills the buffer from the current offset on, with at least `need` bytes if as many are published.
    fn load(&mut self, need: u64, header: bool) -> Result<(), ReadError> {
        let Some(current) = &mut self.current else { return Ok(()) };
        self.buffer.clear();
        self.buffered_at = current.offset;
        let (at, path) = (current.base.saturating_add(current.offset), self.names.path(current.seq));
        let mut want = need.max(CHUNK);
        self.limited = false;
        if let Some(live) = &mut self.live {
            // Positions of many producers count no header.
            let limited = live.file().0 <= current.seq && !(header && live.many());
            if limited {
                want = want.min(live.published().saturating_sub(at));
                self.limited = true;
                if want == 0 {
                    return Ok(());
                }
                let copied = match at.is_multiple_of(frame::WORD as u64) {
                    true => live.copy(at, want, &mut self.buffer).map_err(ReadError::io("read the ring of", &path))?,
                    false => None,
                };
                if copied.is_some() {
                    return Ok(());
                }
            }
        }
        if current.file.is_none() {
            current.file = match self.names.readable(current.seq) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
                other => Some(other.map_err(ReadError::io("open", &path))?),
            };
        }
        let Some(file) = &current.file else { return Ok(()) };
        let len = file.metadata().map_err(ReadError::io("look at", &path))?.len();
        if len < current.offset {
            return Err(ReadError::Truncated { path, offset: current.offset, len });
        }
        let want = usize::try_from(want.min(len - current.offset)).unwrap_or(0);
        self.buffer.resize(want, 0);
        let got = read_full(file, &mut self.buffer, current.offset).map_err(ReadError::io("read", &path))?;
        self.buffer.truncate(got);
        Ok(())
    }

    /// Moves from an end mark of `mark` bytes to the next file. False if it has not begun.
    fn next_file(&mut self, mark: u64) -> Result<bool, ReadError> {
        let Some(current) = &self.current else { return Ok(false) };
        // A file with the largest number is the last one.
        let Some(next) = current.seq.checked_add(1) else { return Ok(false) };
        let base = current.base.saturating_add(current.offset).saturating_add(mark);
        let path = self.names.path(next);
        if !self.names.rolls() {
            return Ok(false);
        }
        let ahead = self.live.as_ref().is_some_and(|live| !live.many() && live.published() > base);
        let exists = || self.names.dir().exists(&self.names.name(next)).map_err(ReadError::io("look for", &path));
        if ahead || exists()? {
            self.begin(next, base);
            return Ok(true);
        }
        let later = self.present()?.into_iter().find(|seq| *seq > next);
        // The writer may have made both between the two looks: it makes files in order.
        if later.is_some() && exists()? {
            self.begin(next, base);
            return Ok(true);
        }
        match later {
            Some(later) => {
                // The next call continues behind the gap.
                let from = self.next_number.take().unwrap_or(0);
                self.begin(later, 0);
                Err(ReadError::Missing { from, path: self.names.path(later) })
            }
            None => Ok(false),
        }
    }

    /// A file without an end mark: whether the next one continues it, which its first number shows.
    fn continues_elsewhere(&mut self, scan: Scan) -> Result<bool, ReadError> {
        let Some(current) = &self.current else { return Ok(false) };
        let Some(next) = current.seq.checked_add(1) else { return Ok(false) };
        let running = self.live.as_ref().is_some_and(|live| live.file().0 <= current.seq);
        if running || !self.names.rolls() {
            return Ok(false);
        }
        let Ok(file) = self.names.readable(next) else { return Ok(false) };
        let header = crate::files::header_of(&file).map_err(ReadError::io("read", &self.names.path(next)))?;
        let joins = header.is_some_and(|header| scan.next == Some(header.first) && scan.format == Format::Second);
        if joins {
            self.begin(next, 0);
        }
        Ok(joins)
    }

    /// Looks for another writer, and whether the current file was removed.
    fn look_around(&mut self) -> Result<(), ReadError> {
        let path = self.names.given().to_owned();
        let found = LiveView::find(&self.names).map_err(ReadError::io("read the shared memory of", &path))?;
        let same = found.as_ref().map(LiveView::token) == self.live.as_ref().map(LiveView::token);
        if !same {
            self.live = found;
            return Ok(());
        }
        let Some(current) = &self.current else { return Ok(()) };
        let path = self.names.path(current.seq);
        let Some(file) = &current.file else {
            // Removed before it was opened.
            let later = self.present()?.into_iter().find(|seq| *seq > current.seq);
            let gone = self.live.as_ref().is_none_or(|live| live.file().0 > current.seq);
            let Some(later) = later.filter(|_| gone && self.names.readable(current.seq).is_err()) else {
                return Ok(());
            };
            let from = self.next_number.take().unwrap_or(0);
            self.begin(later, 0);
            return Err(ReadError::Missing { from, path: self.names.path(later) });
        };
        let entry = self.names.dir().stat(&self.names.name(current.seq)).map_err(ReadError::io("look for", &path))?;
        let ours = crate::handles::identity(file).map_err(ReadError::io("look at", &path))?;
        match entry {
            Some(entry) if entry.identity == ours => Ok(()),
            // Archived: it is whole, and the reader continues with the next file.
            None if self.names.rolls() && self.live.as_ref().is_some_and(|live| live.file().0 > current.seq) => Ok(()),
            _ => Err(ReadError::Removed { path }),
        }
    }
}
