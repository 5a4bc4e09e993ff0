//! Where a reader continues after a seek: the file by the headers, then a frame by the file's index, then a scan.

use std::io;

use super::{Current, Framed, Reader};
use crate::frame::{FILE_HEADER_LEN, FileHeader, Format, Scan};
use crate::index::{self, Index, Point};
use crate::reader_types::{ReadError, Seek, SeekCost};

impl Reader {
    /// Continues elsewhere.
    pub fn seek(&mut self, to: Seek) -> Result<(), ReadError> {
        self.cost = SeekCost::default();
        match to {
            Seek::First => {
                self.next_number = None;
                self.begin_at_first()
            }
            Seek::End => self.seek_end(),
            Seek::After(position) => {
                self.begin_near(|header| header.base <= position)?;
                self.jump(|point, base| base.saturating_add(point.offset) <= position)?;
                self.skip_while(|_, end| end <= position)
            }
            Seek::Number(number) => {
                self.begin_near(|header| header.first <= number)?;
                self.jump(|point, _| point.number <= number)?;
                self.skip_while(|found, _| found.number < number)?;
                match self.peek()? {
                    Some(found) if found.number > number => Err(self.missing(number)),
                    _ => Ok(()),
                }
            }
            Seek::TimeNs(time) => {
                // Strictly before: the file before may end with records of the same time.
                self.begin_near(|header| header.begun < time)?;
                self.jump(|point, _| point.time < time)?;
                self.skip_while(|found, _| found.time < time)
            }
        }
    }

    fn seek_end(&mut self) -> Result<(), ReadError> {
        self.look_around()?;
        if let Some(live) = &self.live {
            let ((seq, base), end) = (live.last_file(), live.published());
            if let Some(offset) = end.checked_sub(base).filter(|offset| *offset >= FILE_HEADER_LEN as u64) {
                self.begin(seq, base);
                if let Some(current) = &mut self.current {
                    current.offset = offset;
                    current.scan = Some(Scan { format: Format::Second, next: None });
                }
                return Ok(());
            }
        }
        if let Some(last) = self.present()?.last() {
            self.begin(*last, 0);
        }
        self.jump(|_, _| true)?;
        self.skip_while(|_, _| true)
    }

    fn skip_while(&mut self, skip: impl Fn(&Framed, u64) -> bool) -> Result<(), ReadError> {
        while let Some(found) = self.peek()? {
            self.cost.frames += 1;
            let end = self.position().saturating_add(found.len);
            if !skip(&found, end) {
                return Ok(());
            }
            self.pass(&found);
        }
        Ok(())
    }

    /// What the last seek has read.
    pub fn seek_cost(&self) -> SeekCost {
        self.cost
    }

    /// Moves to the frame of the last point of the file's index for which `before` holds; it gets the point and the
    /// file's base. Stays at the first frame without such a point, or if its frame is not whole.
    fn jump(&mut self, before: impl Fn(&Point, u64) -> bool) -> Result<(), ReadError> {
        if self.peek()?.is_none() {
            return Ok(());
        }
        let Some(Current { seq, base, file: Some(data), scan: Some(scan), offset }) = &self.current else {
            return Ok(());
        };
        let Some(file) = index::find(&self.names, *seq, data).filter(|_| scan.format == Format::Second) else {
            return Ok(());
        };
        let known = Index::new(&file, data);
        let found = known.and_then(|known| known.last_before(|point| before(point, *base), &mut self.cost));
        let Some((_, point)) = found.filter(|(_, point)| point.offset > *offset) else { return Ok(()) };
        let here = (*offset, *scan, self.next_number);
        let there = Scan { format: Format::Second, next: Some(point.number) };
        self.enter(point.offset, there, there.next);
        self.cost.frames += 1;
        let whole = match self.frame(there) {
            Ok(found) => found.is_some_and(|found| found.payload.is_some()),
            // The scan reports it, if it is a record.
            Err(ReadError::TooLong { .. }) => false,
            Err(other) => return Err(other),
        };
        if !whole {
            self.cost.refused += 1;
            self.enter(here.0, here.1, here.2);
        }
        Ok(())
    }

    /// Continues at an offset of the current file.
    fn enter(&mut self, offset: u64, scan: Scan, next_number: Option<u64>) {
        if let Some(current) = &mut self.current {
            (current.offset, current.scan) = (offset, Some(scan));
        }
        self.next_number = next_number;
        self.buffer.clear();
        self.buffered_at = offset;
    }

    pub(super) fn begin_at_first(&mut self) -> Result<(), ReadError> {
        self.current = None;
        while let Some(&first) = self.present()?.first() {
            if self.begin_open(first, 0)? {
                break;
            }
        }
        Ok(())
    }

    /// Begins at the last file that may hold what is sought: whose header satisfies `before`, or has none.
    fn begin_near(&mut self, before: impl Fn(&FileHeader) -> bool) -> Result<(), ReadError> {
        self.next_number = None;
        self.current = None;
        while !self.try_begin_near(&before)? {}
        Ok(())
    }

    /// False if the file was removed before it was opened.
    fn try_begin_near(&mut self, before: &impl Fn(&FileHeader) -> bool) -> Result<bool, ReadError> {
        let files = self.present()?;
        let (mut low, mut high) = (0, files.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let Some(&seq) = files.get(middle) else { break };
            let header = match self.names.readable(seq) {
                Ok(file) => crate::files::header_of(&file).map_err(ReadError::io("read", &self.names.path(seq)))?,
                // Removed since it was listed: it was one of the oldest.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    low = middle + 1;
                    continue;
                }
                Err(e) => return Err(ReadError::io("open", &self.names.path(seq))(e)),
            };
            // A file without a header is of format 1, one of the oldest, or the last one and just begun.
            let is_before = match header {
                Some(header) => before(&header),
                None => middle + 1 < files.len(),
            };
            if is_before { low = middle + 1 } else { high = middle }
        }
        match files.get(low.saturating_sub(1)) {
            Some(&seq) => {
                let base = self.base_before(&files, seq)?;
                self.begin_open(seq, base)
            }
            None => Ok(true),
        }
    }

    /// Position at which a file of format 1 begins: after the older files.
    fn base_before(&self, files: &[u64], seq: u64) -> Result<u64, ReadError> {
        let mut base = 0u64;
        for older in files.iter().take_while(|older| **older < seq) {
            let len = self.names.len(*older).map_err(ReadError::io("look at", &self.names.path(*older)))?;
            base = base.saturating_add(len);
        }
        Ok(base)
    }
}
