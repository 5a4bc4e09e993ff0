//! Writes a recording while it is made.
//!
//! Rows become frames in memory at once and reach the files at most once a second, so that a kill at any
//! instant costs at most that second. A full disk (or any other write error) never stops the measurement:
//! what is written stays, what cannot be written is dropped, and a gap says from when to when.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_schema::SchemaRef;

use super::error::{TableError, WriteError, advice};
use super::flat::FlatTable;
use super::frames::{self, Packer};
use super::rows::Rows;
use super::{TableFile, files, json, seal};
use crate::header::FORMAT_VERSION;
use crate::{AsyncCall, Call, Event, Gap, Header, LatencyBucket, Series, Stack, Users, Waited, WorkloadOutcome};

const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// The schema is repeated after this many batches, so that damage to it costs minutes and not the table.
const BATCHES_PER_SCHEMA: u32 = 120;
const ROWS_PER_FRAME: usize = 16_384;
const RESERVE_BYTES: u64 = 256 << 10;
/// What one gap takes, with the directory entry of its file.
const GAP_BYTES: u64 = 16 << 10;

/// The gap that tells of it; written when it begins and again, with its extent, at the end.
pub(super) const DROPPED: &str = "part of this recording";

/// A recording that is being made. Dropped without `finish`, it stays readable.
#[derive(Debug)]
pub struct RecordingWriter {
    dir: PathBuf,
    tables: BTreeMap<TableFile, TableWriter>,
    outcomes: Vec<WorkloadOutcome>,
    durable: bool,
    flushed: Instant,
    packer: Packer,
    trouble: Option<Trouble>,
}

/// How a recording ended up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finished {
    /// False if it could not be turned into Parquet; its frames are readable all the same.
    pub sealed: bool,
    /// What the writer itself lost, and why it is not sealed; already part of the recording where that could be written.
    pub gaps: Vec<Gap>,
}

#[derive(Debug, Default)]
struct TableWriter {
    file: Option<File>,
    /// Length up to the last whole frame.
    good_bytes: u64,
    sequence: u32,
    schema: Option<SchemaRef>,
    batches_since_schema: u32,
    pending: Vec<u8>,
}

/// A write error and what it cost.
#[derive(Debug)]
struct Trouble {
    why: String,
    remedy: &'static str,
    since: Instant,
    dropped_bytes: u64,
}

impl RecordingWriter {
    /// Creates the directory (its parent must exist) with a first header in it.
    pub fn create(dir: &Path, header: &Header) -> Result<RecordingWriter, WriteError> {
        files::create_dir(dir).map_err(WriteError::at(dir))?;
        if dir.join(files::HEADER).exists() {
            return Err(WriteError::Exists { path: dir.to_owned() });
        }
        write_header(dir, header, false)?;
        // Best effort: without a reserve a full disk costs the last gap, nothing else.
        if let Ok(mut reserve) = files::create_temporary(&dir.join(files::RESERVE)) {
            // Written, not only allocated: some file systems cannot do the latter.
            let _ = reserve.write_all(&vec![0; RESERVE_BYTES as usize]);
        }
        Ok(RecordingWriter {
            dir: dir.to_owned(),
            tables: BTreeMap::new(),
            outcomes: Vec::new(),
            durable: false,
            flushed: Instant::now(),
            packer: Packer::default(),
            trouble: None,
        })
    }

    /// Also fsync at each flush: survives a power cut, and disturbs the file system that may be under test.
    #[must_use]
    pub fn durable(mut self, durable: bool) -> RecordingWriter {
        self.durable = durable;
        self
    }

    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Replaces the header, atomically. Used when something about the whole became known.
    pub fn header(&self, header: &Header) -> Result<(), WriteError> {
        write_header(&self.dir, header, self.durable)
    }

    pub fn append_calls(&mut self, calls: &[Call]) -> Result<(), WriteError> {
        self.append(Rows::Calls(calls))
    }

    pub fn append_latency(&mut self, buckets: &[LatencyBucket]) -> Result<(), WriteError> {
        self.append(Rows::Latency(buckets))
    }

    /// Stacks may come before or after the calls that refer to them, each once.
    pub fn append_stacks(&mut self, stacks: &[Stack]) -> Result<(), WriteError> {
        self.append(Rows::Stacks(stacks))
    }

    /// Why slow calls waited.
    pub fn append_waited(&mut self, waited: &Waited) -> Result<(), WriteError> {
        self.append(Rows::flat(FlatTable::Waits, &waited.waits.as_slice()))?;
        self.append(Rows::flat(FlatTable::Requests, &waited.requests.as_slice()))?;
        self.append(Rows::flat(FlatTable::QueueAhead, &waited.ahead.as_slice()))?;
        self.append(Rows::flat(FlatTable::CpuOwners, &waited.cpus.as_slice()))
    }

    /// Who used the devices and the memory in an interval.
    pub fn append_users(&mut self, users: &Users) -> Result<(), WriteError> {
        self.append(Rows::flat(FlatTable::QueueOwners, &users.owners.as_slice()))?;
        self.append(Rows::flat(FlatTable::Dirtiers, &users.dirtiers.as_slice()))?;
        self.append(Rows::flat(FlatTable::MemoryUsers, &users.memory.as_slice()))
    }

    pub fn append_async_calls(&mut self, rows: &[AsyncCall]) -> Result<(), WriteError> {
        self.append(Rows::flat(FlatTable::AsyncCalls, &rows))
    }

    /// Rows of one sampled table; columns may differ from earlier ones.
    pub fn append_series(&mut self, series: &Series) -> Result<(), WriteError> {
        let refused: Vec<Gap> = series.gaps().collect();
        self.append(Rows::Gaps(&refused))?;
        self.append(Rows::Sampled(series))
    }

    pub fn append_events(&mut self, events: &[Event]) -> Result<(), WriteError> {
        self.append(Rows::Events(events))
    }

    pub fn append_gaps(&mut self, gaps: &[Gap]) -> Result<(), WriteError> {
        self.append(Rows::Gaps(gaps))
    }

    /// What a workload reports of itself; written at once. It comes last, so on a full disk the reserve is given up for it.
    pub fn outcome(&mut self, outcome: WorkloadOutcome) -> Result<(), WriteError> {
        self.outcomes.push(outcome);
        let _ = fs::remove_file(self.dir.join(files::RESERVE));
        let path = self.dir.join(files::OUTCOMES);
        json::replace(&path, &self.outcomes, self.durable).map_err(WriteError::at(path))
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

    /// Writes out what was appended, unless that was done less than a second ago. Call it as often as you like.
    pub fn flush(&mut self) {
        if self.flush_is_due() {
            self.flush_now();
        }
    }

    /// Whether the last time was a second ago.
    #[must_use]
    pub fn flush_is_due(&self) -> bool {
        self.flushed.elapsed() >= FLUSH_EVERY
    }

    pub fn flush_now(&mut self) {
        self.flushed = Instant::now();
        let known = self.trouble.is_some();
        for (table, writer) in &mut self.tables {
            let pending = writer.pending.len() as u64;
            let path = files::frames_path(&self.dir, *table);
            if let Err(error) = writer.write_out(&path, self.durable) {
                writer.undo();
                let trouble = self.trouble.get_or_insert_with(|| Trouble {
                    why: format!("writing {} failed: {error}", path.display()),
                    remedy: advice(&error),
                    since: Instant::now(),
                    dropped_bytes: 0,
                });
                trouble.dropped_bytes += pending;
            }
        }
        if !known && self.trouble.is_some() {
            self.tell_trouble();
        }
    }

    /// Writes the gap at once, should nobody live to call `finish`. A little of the reserve makes room for it.
    fn tell_trouble(&mut self) {
        let reserve = OpenOptions::new().write(true).open(self.dir.join(files::RESERVE));
        let _ = reserve.and_then(|reserve| reserve.set_len(RESERVE_BYTES - GAP_BYTES));
        if let Some(gap) = self.trouble() {
            let gaps = self.tables.entry(TableFile::Gaps).or_default();
            let path = files::frames_path(&self.dir, TableFile::Gaps);
            let told = gaps.append(Rows::Gaps(&[gap]), &mut self.packer).is_ok()
                && gaps.write_out(&path, self.durable).is_ok();
            if !told {
                gaps.undo();
            }
        }
    }

    /// What could not be written so far; the run loop shows it once.
    #[must_use]
    pub fn trouble(&self) -> Option<Gap> {
        let trouble = self.trouble.as_ref()?;
        let why = format!(
            "{}; {} KiB of the recording were dropped in the {:.0} s since",
            trouble.why,
            trouble.dropped_bytes >> 10,
            trouble.since.elapsed().as_secs_f64(),
        );
        Some(Gap::new(DROPPED, why, trouble.remedy))
    }

    /// Writes the last rows and the final header, and turns the recording into Parquet. If that cannot be
    /// done (no space), the frames stay and remain readable.
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
        // Closes the frame files before they are read back.
        self.tables.clear();
        match written.and_then(|()| seal::seal(&self.dir)) {
            Ok(()) => finished.sealed = true,
            Err(error) => finished.gaps.push(Gap::new(
                "Parquet files of this recording",
                error.to_string(),
                "the recording is complete in its .frames files, and every command reads those",
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

    /// Takes back a half-written flush, so that the file ends with a whole frame.
    fn undo(&mut self) {
        if let Some(file) = &self.file {
            let _ = file.set_len(self.good_bytes);
        }
        self.pending.clear();
        // What was dropped may have held the schema.
        self.schema = None;
    }
}
