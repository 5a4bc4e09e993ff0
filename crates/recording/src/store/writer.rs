//! Writes a recording during the run.
//!
//! Rows become frames in memory immediately and reach the files at most once a second, so a kill at any instant loses
//! at most that second. A full disk, or any other write error, never stops the measurement: what has been written
//! stays, what cannot be written is dropped, and a gap gives the time of the loss.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_schema::SchemaRef;

use super::error::{TableError, WriteError, advice, named};
use super::flat::FlatTable;
use super::frames::{self, Packer};
use super::rows::Rows;
use super::{TableFile, files, json, seal};
use crate::header::FORMAT_VERSION;
use crate::{
    AsyncCall, Call, Event, Gap, Header, Imitation, LatencyBucket, Series, Stack, Users, Waited, WorkloadOutcome,
};

const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// The schema is repeated after this many batches, so that damage to it loses minutes and not the whole table.
const BATCHES_PER_SCHEMA: u32 = 120;
const ROWS_PER_FRAME: usize = 16_384;
const RESERVE_BYTES: u64 = 256 << 10;
/// Disk space for one gap, including the file's directory entry.
const GAP_BYTES: u64 = 16 << 10;

/// Name of the gap for dropped rows. It is written when the loss begins and again, with its extent, at the end.
pub(super) const DROPPED: &str = "part of this recording";

/// Writes a recording during the run. If it is dropped without `finish`, the recording stays readable.
#[derive(Debug)]
pub struct RecordingWriter {
    dir: PathBuf,
    tables: BTreeMap<TableFile, TableWriter>,
    outcomes: Vec<WorkloadOutcome>,
    durable: bool,
    /// Whether the directory has names that are not synced.
    has_new_names: bool,
    sync_directory: fn(&Path) -> io::Result<()>,
    flushed: Instant,
    packer: Packer,
    trouble: Option<Trouble>,
}

/// Result of `RecordingWriter::finish`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finished {
    /// Whether the recording was turned into Parquet; if not, its frames are readable nevertheless.
    pub sealed: bool,
    /// The losses of the writer itself, and why the recording is not sealed. Also part of the recording, if it could be
    /// written.
    pub gaps: Vec<Gap>,
}

#[derive(Debug, Default)]
struct TableWriter {
    file: Option<File>,
    /// Length up to the last complete frame.
    good_bytes: u64,
    sequence: u32,
    schema: Option<SchemaRef>,
    batches_since_schema: u32,
    pending: Vec<u8>,
}

/// A write error and the resulting loss.
#[derive(Debug)]
struct Trouble {
    why: String,
    remedy: &'static str,
    since: Instant,
    dropped_bytes: u64,
}

impl Trouble {
    fn new(why: String, error: &io::Error) -> Trouble {
        Trouble { why, remedy: advice(error), since: Instant::now(), dropped_bytes: 0 }
    }
}

impl RecordingWriter {
    /// Creates the directory (its parent must exist) and writes a first header.
    pub fn create(dir: &Path, header: &Header) -> Result<RecordingWriter, WriteError> {
        RecordingWriter::begin(dir, header, false, files::sync_directory)
    }

    /// As `create`, with an fsync of the first header, and of files and directory at each flush. The recording then
    /// survives a power cut, but the fsync disturbs the file system, which may be under test.
    pub fn create_durable(dir: &Path, header: &Header) -> Result<RecordingWriter, WriteError> {
        RecordingWriter::begin(dir, header, true, files::sync_directory)
    }

    fn begin(
        dir: &Path,
        header: &Header,
        durable: bool,
        sync_directory: fn(&Path) -> io::Result<()>,
    ) -> Result<RecordingWriter, WriteError> {
        files::create_dir(dir).map_err(WriteError::at(dir))?;
        if dir.join(files::HEADER).exists() {
            return Err(WriteError::Exists { path: named(dir) });
        }
        write_header(dir, header, durable)?;
        // Best effort: without a reserve, a full disk only costs the last gap.
        if let Ok(mut reserve) = files::create_temporary(&dir.join(files::RESERVE)) {
            // Written and not only allocated, because some file systems cannot allocate.
            let _ = reserve.write_all(&vec![0; RESERVE_BYTES as usize]);
        }
        if durable {
            sync_directory(dir).map_err(WriteError::at(dir))?;
        }
        Ok(RecordingWriter {
            dir: dir.to_owned(),
            tables: BTreeMap::new(),
            outcomes: Vec::new(),
            durable,
            has_new_names: false,
            sync_directory,
            flushed: Instant::now(),
            packer: Packer::default(),
            trouble: None,
        })
    }

    /// The recording's directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Replaces the header atomically, when a fact about the whole recording becomes known.
    pub fn header(&self, header: &Header) -> Result<(), WriteError> {
        write_header(&self.dir, header, self.durable)?;
        self.sync_names().map_err(WriteError::at(&self.dir))
    }

    /// Syncs the directory, if the recording is durable.
    fn sync_names(&self) -> io::Result<()> {
        if self.durable { (self.sync_directory)(&self.dir) } else { Ok(()) }
    }

    /// Appends slow calls.
    pub fn append_calls(&mut self, calls: &[Call]) -> Result<(), WriteError> {
        self.append(Rows::Calls(calls))
    }

    /// Appends latency histograms.
    pub fn append_latency(&mut self, buckets: &[LatencyBucket]) -> Result<(), WriteError> {
        self.append(Rows::Latency(buckets))
    }

    /// Appends stacks, each once, before or after the calls that refer to them.
    pub fn append_stacks(&mut self, stacks: &[Stack]) -> Result<(), WriteError> {
        self.append(Rows::Stacks(stacks))
    }

    /// Appends the reasons of waits of slow calls.
    pub fn append_waited(&mut self, waited: &Waited) -> Result<(), WriteError> {
        self.append(Rows::flat(FlatTable::Waits, &waited.waits.as_slice()))?;
        self.append(Rows::flat(FlatTable::Requests, &waited.requests.as_slice()))?;
        self.append(Rows::flat(FlatTable::QueueAhead, &waited.ahead.as_slice()))?;
        self.append(Rows::flat(FlatTable::CpuOwners, &waited.cpus.as_slice()))
    }

    /// Appends the users of devices and memory in an interval.
    pub fn append_users(&mut self, users: &Users) -> Result<(), WriteError> {
        self.append(Rows::flat(FlatTable::QueueOwners, &users.owners.as_slice()))?;
        self.append(Rows::flat(FlatTable::Dirtiers, &users.dirtiers.as_slice()))?;
        self.append(Rows::flat(FlatTable::MemoryUsers, &users.memory.as_slice()))
    }

    /// Appends the data to imitate the recorded programs; once, at the end.
    pub fn append_imitation(&mut self, imitation: &Imitation) -> Result<(), WriteError> {
        self.append(Rows::flat(FlatTable::Operations, &imitation.operations.as_slice()))?;
        self.append(Rows::flat(FlatTable::OperationFiles, &imitation.files.as_slice()))?;
        self.append(Rows::flat(FlatTable::Limits, &imitation.limits.as_slice()))?;
        self.append(Rows::flat(FlatTable::ServiceTimes, &imitation.service_times.as_slice()))
    }

    /// Appends asynchronous calls.
    pub fn append_async_calls(&mut self, rows: &[AsyncCall]) -> Result<(), WriteError> {
        self.append(Rows::flat(FlatTable::AsyncCalls, &rows))
    }

    /// Appends rows of one sampled table; its columns may differ from earlier ones.
    pub fn append_series(&mut self, series: &Series) -> Result<(), WriteError> {
        let refused: Vec<Gap> = series.gaps().collect();
        self.append(Rows::Gaps(&refused))?;
        self.append(Rows::Sampled(series))
    }

    /// Appends events.
    pub fn append_events(&mut self, events: &[Event]) -> Result<(), WriteError> {
        self.append(Rows::Events(events))
    }

    /// Appends gaps.
    pub fn append_gaps(&mut self, gaps: &[Gap]) -> Result<(), WriteError> {
        self.append(Rows::Gaps(gaps))
    }

    /// Writes the results of a workload immediately. They come last, so the reserve is released for them on a full
    /// disk.
    pub fn outcome(&mut self, outcome: WorkloadOutcome) -> Result<(), WriteError> {
        self.outcomes.push(outcome);
        let _ = fs::remove_file(self.dir.join(files::RESERVE));
        let path = self.dir.join(files::OUTCOMES);
        json::replace(&path, &self.outcomes, self.durable).map_err(WriteError::at(path))?;
        self.sync_names().map_err(WriteError::at(&self.dir))
    }

    fn append(&mut self, rows: Rows<'_>) -> Result<(), WriteError> {
        let table = self.tables.entry(rows.file()).or_default();
        let encode = |error: TableError| WriteError::Encode { table: rows.file().name(), error };
        if let Rows::Sampled(series) = rows {
            return if series.is_empty() { Ok(()) } else { table.append(rows, &mut self.packer).map_err(encode) };
        }
        for from in (0..rows.len()).step_by(ROWS_PER_FRAME) {
            table.append(rows.slice(from, ROWS_PER_FRAME), &mut self.packer).map_err(encode)?;
        }
        Ok(())
    }

    /// Writes the appended rows to the files, unless the last flush was less than a second ago. May be called as often
    /// as convenient.
    pub fn flush(&mut self) {
        if self.flush_is_due() {
            self.flush_now();
        }
    }

    /// Whether the last flush was at least a second ago.
    #[must_use]
    pub fn flush_is_due(&self) -> bool {
        self.flushed.elapsed() >= FLUSH_EVERY
    }

    /// Writes what waits in memory.
    pub fn flush_now(&mut self) {
        self.flushed = Instant::now();
        let known = self.trouble.is_some();
        for (table, writer) in &mut self.tables {
            let pending = writer.pending.len() as u64;
            let path = files::frames_path(&self.dir, *table);
            self.has_new_names |= writer.file.is_none() && pending > 0;
            if let Err(error) = writer.write_out(&path, self.durable) {
                writer.undo();
                let failed = || Trouble::new(format!("writing {} failed: {error}", path.display()), &error);
                self.trouble.get_or_insert_with(failed).dropped_bytes += pending;
            }
        }
        if self.has_new_names {
            match self.sync_names() {
                Ok(()) => self.has_new_names = false,
                Err(error) => {
                    let failed = || Trouble::new(format!("syncing {} failed: {error}", self.dir.display()), &error);
                    self.trouble.get_or_insert_with(failed);
                }
            }
        }
        if !known && self.trouble.is_some() {
            self.write_trouble();
        }
    }

    /// Writes the gap immediately, in case the process does not live to call `finish`. A small part of the reserve
    /// makes room for it.
    fn write_trouble(&mut self) {
        let reserve = OpenOptions::new().write(true).open(self.dir.join(files::RESERVE));
        let _ = reserve.and_then(|reserve| reserve.set_len(RESERVE_BYTES - GAP_BYTES));
        if let Some(gap) = self.trouble() {
            let gaps = self.tables.entry(TableFile::Gaps).or_default();
            let path = files::frames_path(&self.dir, TableFile::Gaps);
            self.has_new_names |= gaps.file.is_none();
            let written = gaps.append(Rows::Gaps(&[gap]), &mut self.packer).is_ok()
                && gaps.write_out(&path, self.durable).is_ok();
            if !written {
                gaps.undo();
            }
            // If this fails, the next flush tries again.
            self.has_new_names &= self.sync_names().is_err();
        }
    }

    /// A gap for the rows that could not be written so far; the run loop prints it once.
    #[must_use]
    pub fn trouble(&self) -> Option<Gap> {
        let trouble = self.trouble.as_ref()?;
        let why = format!(
            "{}; {} KiB of the recording were dropped in the {:.0} s since then",
            trouble.why,
            trouble.dropped_bytes >> 10,
            trouble.since.elapsed().as_secs_f64(),
        );
        Some(Gap::new(DROPPED, why, trouble.remedy))
    }

    /// Writes the last rows and the final header, and turns the recording into Parquet. If that fails (no space), the
    /// frames stay and remain readable.
    pub fn finish(mut self, header: &Header) -> Result<Finished, WriteError> {
        let mut finished = Finished { sealed: false, gaps: Vec::new() };
        self.flush_now();
        let _ = fs::remove_file(self.dir.join(files::RESERVE));
        if let Some(gap) = self.trouble() {
            self.append_gaps(std::slice::from_ref(&gap))?;
            finished.gaps.push(gap);
            self.flush_now();
        }
        let written = self.header(header);
        // Closes the frame files before they are read.
        self.tables.clear();
        match written.and_then(|()| seal::seal(&self.dir)) {
            Ok(()) => finished.sealed = true,
            Err(error) => finished.gaps.push(Gap::new(
                "Parquet files of this recording",
                error.to_string(),
                "the .frames files contain the complete recording, and every command reads them",
            )),
        }
        Ok(finished)
    }
}

pub(super) fn write_header(dir: &Path, header: &Header, durable: bool) -> Result<(), WriteError> {
    let header = Header { format_version: FORMAT_VERSION, ..header.clone() };
    let path = dir.join(files::HEADER);
    json::replace(&path, &header, durable).map_err(WriteError::at(path))
}

impl TableWriter {
    fn append(&mut self, rows: Rows<'_>, packer: &mut Packer) -> Result<(), TableError> {
        let batch = rows.encode(self.schema.as_ref())?;
        let known = self.schema.as_ref().is_some_and(|known| {
            let schema = batch.schema_ref();
            Arc::ptr_eq(known, schema) || known == schema
        });
        if !known || self.batches_since_schema >= BATCHES_PER_SCHEMA {
            let message = frames::encode_schema(&batch.schema())?;
            self.frame(&message, packer)?;
            self.schema = Some(batch.schema());
            self.batches_since_schema = 0;
        }
        self.batches_since_schema += 1;
        self.frame(&frames::encode_batch(&batch)?, packer)
    }

    fn frame(&mut self, message: &[u8], packer: &mut Packer) -> Result<(), TableError> {
        packer.append(&mut self.pending, self.sequence, message)?;
        self.sequence += 1;
        Ok(())
    }

    fn write_out(&mut self, path: &Path, durable: bool) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(files::create_new(path)?),
        };
        file.write_all(&self.pending)?;
        if durable {
            file.sync_data()?;
        }
        self.good_bytes += self.pending.len() as u64;
        self.pending.clear();
        // A burst of calls must not keep its memory for the rest of the run.
        self.pending.shrink_to(256 << 10);
        Ok(())
    }

    /// Removes a partly written flush, so that the file ends with a complete frame.
    fn undo(&mut self) {
        if let Some(file) = &self.file {
            let _ = file.set_len(self.good_bytes);
        }
        self.pending.clear();
        // The dropped bytes may have contained the schema.
        self.schema = None;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io;
    use std::path::Path;

    use super::{RecordingWriter, files};
    use crate::{Event, EventKind, Gap, Header};

    thread_local! {
        static SYNCS: Cell<u32> = const { Cell::new(0) };
    }

    fn counted(dir: &Path) -> io::Result<()> {
        SYNCS.set(SYNCS.get() + 1);
        files::sync_directory(dir)
    }

    fn refused(_: &Path) -> io::Result<()> {
        Err(io::ErrorKind::StorageFull.into())
    }

    /// Directory syncs after the first header, after two new tables, after a flush without a new table, and after one
    /// more table and another header.
    fn syncs(name: &str, durable: bool) -> [u32; 4] {
        let place = tempfile::tempdir().expect("a directory");
        SYNCS.set(0);
        let header = Header::default();
        let begun = RecordingWriter::begin(&place.path().join(name), &header, durable, counted);
        let mut writer = begun.expect("begins");
        let begun = SYNCS.get();
        let gap = || [Gap::new("one", "two", "three")];
        writer.append_gaps(&gap()).expect("encoded");
        writer.append_events(&[Event::new(1, EventKind::Mark("a".into()))]).expect("encoded");
        writer.flush_now();
        let two_tables = SYNCS.get();
        writer.append_gaps(&gap()).expect("encoded");
        writer.flush_now();
        let no_table = SYNCS.get();
        writer.append_stacks(&[crate::Stack { id: crate::StackId(1), frames: Vec::new() }]).expect("encoded");
        writer.flush_now();
        writer.header(&header).expect("written");
        [begun, two_tables, no_table, SYNCS.get()]
    }

    /// Without these, a power cut loses the first header, or the names of the tables.
    #[test]
    fn a_durable_recording_syncs_its_directory_when_names_are_new() {
        assert_eq!(syncs("durable", true), [1, 2, 2, 4]);
        assert_eq!(syncs("plain", false), [0; 4]);
    }

    #[test]
    fn a_directory_that_cannot_be_synced_is_a_gap() {
        let place = tempfile::tempdir().expect("a directory");
        let mut writer = RecordingWriter::create_durable(place.path(), &Header::default()).expect("begins");
        writer.sync_directory = refused;
        writer.append_gaps(&[Gap::new("one", "two", "three")]).expect("encoded");
        writer.flush_now();
        let gap = writer.trouble().expect("a gap");
        assert!(gap.why.contains("syncing"), "{gap:?}");
        assert!(writer.has_new_names, "the next flush tries again");
    }
}
