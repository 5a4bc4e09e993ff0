//! Opens any recording: sealed, still being written, truncated by a kill, or damaged.
//!
//! Opening fails only if there is nothing to open. All other missing data becomes a `Gap`. Whatever the files claim,
//! no more than `Limits` is decoded.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arrow_array::RecordBatch;

use super::error::named;
use super::files::{self, Manifest, SealedFile};
use super::frames::{self, Frames, Item, Message};
use super::parquet_in::ParquetFile;
use super::rows::{self, Allowance};
use super::sampled::{self, SealedTable, Shared};
use super::writer::DROPPED;
use super::{ReadError, TableError, TableFile, calls, json};
use crate::header::FORMAT_VERSION;
use crate::{Gap, Header, Note, Recording, Series, Table, latency, schema};

pub(super) const DAMAGED_REMEDY: &str = "the rest of the recording is intact; if this file was copied, copy it again";
/// Maximum number of unknown tables, or unknown columns of one table, to name individually.
const NAMED_MAX: usize = 12;
const FEWER_REMEDY: &str = "raise the limit with --max-decoded, or record for a shorter time";

/// How much of a recording may be decoded. A file of a few hundred KB can claim to contain gigabytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// All tables together, bytes in memory.
    pub decoded_bytes: u64,
    /// Each single table, bytes in memory.
    pub table_bytes: u64,
}

impl Limits {
    /// At most `decoded_bytes` in total, and three quarters of that for a single table.
    #[must_use]
    pub fn of_bytes(decoded_bytes: u64) -> Limits {
        Limits { decoded_bytes, table_bytes: decoded_bytes / 4 * 3 }
    }

    /// A larger file is not part of a recording: even its checksum would take too long.
    fn file_bytes_max(self) -> u64 {
        self.decoded_bytes.saturating_mul(8)
    }
}

impl Default for Limits {
    /// 512 MiB: a million slow calls and hours of samples.
    fn default() -> Limits {
        Limits::of_bytes(512 << 20)
    }
}

impl Recording {
    /// Opens the recording in this directory, or in the directory of this file. Sampled tables stay in their files
    /// until their columns are used.
    pub fn open(path: impl AsRef<Path>) -> Result<Recording, ReadError> {
        Recording::open_with(path, Limits::default())
    }

    /// Like `open`, with other limits.
    pub fn open_with(path: impl AsRef<Path>, limits: Limits) -> Result<Recording, ReadError> {
        let dir = directory(path.as_ref())?;
        let mut recording = Recording::default();
        let header_found = read_header(&dir, &mut recording)?;
        let manifest = read_manifest(&dir, &mut recording)?;
        let shared = Arc::new(Shared::default());
        let left = AtomicU64::new(limits.decoded_bytes);
        let mut reader = Reader { dir: &dir, limits, left: &left, shared: &shared, recording: &mut recording };
        let mut tables_found = 0;
        for table in TableFile::all() {
            tables_found += usize::from(reader.table(table, manifest.as_ref()));
        }
        reader.tell_unknown(manifest.as_ref());
        if !header_found && tables_found == 0 && manifest.is_none() {
            // A directory without read permission looks like an empty one.
            return Err(match std::fs::read_dir(&dir) {
                Err(error) => ReadError::Private { path: named(&dir), error },
                Ok(_) => ReadError::NotARecording { path: named(&dir) },
            });
        }
        if !header_found {
            recording.gaps.push(Gap::new("header.json", "the file is missing or unreadable", DAMAGED_REMEDY));
        }
        read_outcomes(&dir, &mut recording);
        complete(&mut recording, manifest.is_some());
        recording.late_gaps = LateGaps(Some(shared));
        Ok(recording)
    }

    /// All gaps: those known when the recording was opened, and data that turned out to be unreadable later.
    #[must_use]
    pub fn gaps_found(&self) -> Vec<Gap> {
        let late = self.late_gaps.0.iter().flat_map(|shared| shared.gaps());
        let new = late.filter(|gap| !self.gaps.contains(gap));
        self.gaps.iter().cloned().chain(new).collect()
    }
}

/// Gaps of the sampled tables that were found after the recording was opened.
#[derive(Clone, Debug, Default)]
pub struct LateGaps(Option<Arc<Shared>>);

/// Reads the recording in this directory, like `Recording::open`.
pub fn read(path: &Path) -> Result<Recording, ReadError> {
    Recording::open(path)
}

fn directory(path: &Path) -> Result<PathBuf, ReadError> {
    let metadata = path.metadata().map_err(|error| ReadError::NotFound { path: named(path), error })?;
    let parent = || path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(if metadata.is_dir() { path.to_owned() } else { parent().to_owned() })
}

/// The two fields that every version of the format has.
#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Version {
    format_version: u32,
    written_by: String,
}

fn check_version(dir: &Path, text: &[u8]) -> Result<(), ReadError> {
    match json::parse::<Version>(text) {
        Ok(Version { format_version: found, written_by }) if found > FORMAT_VERSION => {
            let written_by = if written_by.is_empty() { "that wrote it".to_owned() } else { written_by };
            Err(ReadError::TooNew { path: named(dir), found, written_by })
        }
        _ => Ok(()),
    }
}

fn read_header(dir: &Path, recording: &mut Recording) -> Result<bool, ReadError> {
    let path = dir.join(files::HEADER);
    let text = match json::read_text(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {
            return Err(ReadError::Unusable { path: named(&path), error });
        }
        Err(error) if error.kind() == std::io::ErrorKind::FileTooLarge => {
            recording.gaps.push(Gap::new("header.json", error.to_string(), DAMAGED_REMEDY));
            return Ok(true);
        }
        Err(_) => return Ok(false),
    };
    check_version(dir, &text)?;
    match json::parse::<Header>(&text) {
        Ok(mut header) => {
            if header.trigger.is_none() {
                header.trigger = trigger_in_notes(&header).map(str::to_owned);
            }
            recording.header = header;
        }
        Err(error) => recording.gaps.push(Gap::new("header.json", error.to_string(), DAMAGED_REMEDY)),
    }
    Ok(true)
}

/// The trigger's name in a recording of 0.2 and earlier, where `watch` wrote it to the first note only.
fn trigger_in_notes(header: &Header) -> Option<&str> {
    let Some(Note::Text(text)) = header.notes.first() else { return None };
    text.strip_prefix("set off by ")?.split_once(": ").map(|(name, _)| name)
}

fn read_manifest(dir: &Path, recording: &mut Recording) -> Result<Option<Manifest>, ReadError> {
    let text = match json::read_text(&dir.join(files::MANIFEST)) {
        Ok(text) => text,
        Err(error) => {
            say_unreadable("sealed.json", &error, recording);
            return Ok(None);
        }
    };
    check_version(dir, &text)?;
    let manifest = json::parse::<Manifest>(&text);
    if let Err(error) = &manifest {
        let gap = Gap::new("sealed.json", format!("{error}; the tables were read unchecked"), DAMAGED_REMEDY);
        recording.gaps.push(gap);
    }
    Ok(Some(manifest.unwrap_or_default()))
}

/// Adds a gap for an optional file that exists but cannot be read.
fn say_unreadable(name: &str, error: &std::io::Error, recording: &mut Recording) {
    if error.kind() != std::io::ErrorKind::NotFound {
        recording.gaps.push(Gap::new(name, error.to_string(), DAMAGED_REMEDY));
    }
}

struct Reader<'a> {
    dir: &'a Path,
    limits: Limits,
    /// Bytes that may still be decoded.
    left: &'a AtomicU64,
    shared: &'a Arc<Shared>,
    recording: &'a mut Recording,
}

impl Reader<'_> {
    fn say(&mut self, table: TableFile, why: impl Into<String>) {
        self.recording.gaps.push(Gap::new(format!("table {}", table.name()), why, DAMAGED_REMEDY));
    }

    fn complain(&mut self, table: TableFile, error: &TableError) {
        if let TableError::TooLarge { limit_bytes } = error {
            let why = format!("it decodes to more than the limit of {} MiB per table", limit_bytes >> 20);
            let what = format!("part of table {}", table.name());
            self.recording.gaps.push(Gap::new(what, why, FEWER_REMEDY));
        } else {
            self.say(table, error.to_string());
        }
    }

    /// Reads a table from its valid file; returns false if it has none.
    fn table(&mut self, table: TableFile, manifest: Option<&Manifest>) -> bool {
        let frames = files::frames_path(self.dir, table);
        let parquet = files::parquet_path(self.dir, table);
        let exists = |path: &Path| path.symlink_metadata().is_ok();
        let listed = manifest.and_then(|manifest| manifest.tables.get(table.name()));
        if manifest.is_none() && exists(&frames) {
            if let Err(error) = self.frames(&frames, table) {
                self.complain(table, &error);
            }
            return true;
        }
        if !exists(&parquet) {
            if listed.is_some() {
                self.say(table, "its file is missing");
            }
            return listed.is_some();
        }
        if let Err(error) = self.parquet(&parquet, table, listed) {
            self.complain(table, &error);
        }
        true
    }

    fn parquet(&mut self, path: &Path, table: TableFile, listed: Option<&SealedFile>) -> Result<(), TableError> {
        let (mut file, bytes) = files::open(path, self.limits.file_bytes_max())?;
        let as_sealed = match listed {
            Some(listed) => listed.bytes == bytes && files::checksum(&file)? == listed.crc32,
            None => false,
        };
        if listed.is_some() && !as_sealed {
            self.say(table, "the file differs from the sealed one; the readable part is shown");
        }
        file.seek(SeekFrom::Start(0))?;
        let file = ParquetFile::open(file, bytes, self.limits.table_bytes)?;
        let allowance = Allowance::new(self.limits.table_bytes, self.left);
        self.tell_unknown_columns(table, file.schema().fields().iter().map(|field| field.name().as_str()));
        match table {
            TableFile::Calls => {
                let decode = |batch: &RecordBatch, into: &mut Vec<_>| {
                    rows::check_names(batch)?;
                    calls::decode(batch, into, &allowance)
                };
                file.rows_beside(&decode, &mut self.recording.calls)
            }
            TableFile::Sampled(kind) => {
                let sealed = SealedTable::open(kind, path.to_owned(), file, &allowance, self.shared)?;
                if !as_sealed {
                    sealed.verify();
                }
                if sealed.rows() > 0 {
                    self.recording.series.push(Series::sealed(kind, &Arc::new(sealed)));
                }
                Ok(())
            }
            _ => file.batches(&mut |batch| absorb(table, batch, self.recording, &allowance)),
        }
    }

    fn frames(&mut self, path: &Path, table: TableFile) -> Result<(), TableError> {
        let (file, _) = files::open(path, self.limits.file_bytes_max())?;
        let allowance = Allowance::new(self.limits.table_bytes, self.left);
        let read = read_frames(file, self.limits, &mut |message| match message {
            Message::Schema(schema) => {
                self.tell_unknown_columns(table, schema.fields().iter().map(|field| field.name().as_str()));
                Ok(())
            }
            Message::Batch(batch) => absorb(table, batch, self.recording, &allowance),
        })?;
        if let Some(why) = read {
            let what = format!("part of table {}", table.name());
            self.recording.gaps.push(Gap::new(what, why, DAMAGED_REMEDY));
        }
        Ok(())
    }

    /// Reports columns of a newer flatwater. Sampled tables are exempt: the kernel determines their columns.
    fn tell_unknown_columns<'n>(&mut self, table: TableFile, names: impl Iterator<Item = &'n str>) {
        let Some(known) = rows::schema_of(table) else { return };
        let unknown: BTreeSet<&str> = names.filter(|name| known.field_with_name(name).is_err()).collect();
        let gap = |reader: &Self, name: &str| reader.unknown(format!("column {name} of table {}", table.name()));
        self.tell_first(&unknown, gap, |more| format!("{more} more columns of table {}", table.name()));
    }

    /// Reports tables of a newer flatwater.
    fn tell_unknown(&mut self, manifest: Option<&Manifest>) {
        let listed = manifest.into_iter().flat_map(|manifest| manifest.tables.keys().cloned());
        let mut names: BTreeSet<String> = listed.chain(files::tables_in(self.dir)).collect();
        names.retain(|name| !TableFile::all().any(|known| known.name() == name));
        let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        self.tell_first(
            &names,
            |reader, name| reader.unknown(format!("table {name}")),
            |more| format!("{more} more tables"),
        );
    }

    /// One gap for each of the first `NAMED_MAX` names, and one for all others.
    fn tell_first(
        &mut self,
        names: &BTreeSet<&str>,
        gap: impl Fn(&Self, &str) -> Gap,
        further: impl Fn(usize) -> String,
    ) {
        let first = names.iter().take(NAMED_MAX).map(|name| gap(self, name));
        let more = names.len().checked_sub(NAMED_MAX).filter(|more| *more > 0);
        let gaps: Vec<Gap> = first.chain(more.map(|more| self.unknown(further(more)))).collect();
        for gap in gaps {
            if !self.recording.gaps.contains(&gap) {
                self.recording.gaps.push(gap);
            }
        }
    }

    fn unknown(&self, what: String) -> Gap {
        let (ours, theirs) = (env!("CARGO_PKG_VERSION"), self.recording.header.written_by.as_str());
        let theirs = if theirs.is_empty() { "a newer version" } else { theirs };
        let why = format!("flatwater {ours} does not know it; the recording was made by flatwater {theirs}");
        Gap::new(what, why, "open the recording with the flatwater that made it; everything else was read")
    }
}

/// Adds the rows of a batch to the recording.
fn absorb(
    table: TableFile,
    batch: &RecordBatch,
    into: &mut Recording,
    allowance: &Allowance<'_>,
) -> Result<(), TableError> {
    // Texts of events and gaps may be long, and sampled tables have their own limit.
    if !matches!(table, TableFile::Events | TableFile::Gaps | TableFile::Sampled(_)) {
        rows::check_names(batch)?;
    }
    match table {
        TableFile::Latency => rows::decode_latency(batch, &mut into.latency, allowance),
        TableFile::Calls => calls::decode(batch, &mut into.calls, allowance),
        TableFile::Stacks => rows::decode_stacks(batch, &mut into.stacks, allowance),
        TableFile::Events => rows::decode_events(batch, &mut into.events, allowance),
        TableFile::Gaps => rows::decode_gaps(batch, &mut into.gaps, allowance),
        TableFile::Flat(table) => table.absorb(batch, into, allowance),
        TableFile::Sampled(table) => sampled::decode(batch, series_of(table, &mut into.series), allowance),
    }
}

fn series_of(table: Table, all: &mut Vec<Series>) -> &mut Series {
    let known = all.iter().position(|series| series.table == table).unwrap_or_else(|| {
        all.push(Series::new(table));
        all.len() - 1
    });
    &mut all[known]
}

/// Reads the frames of a file; returns a description of damage before its end. An error is the one that stopped
/// reading.
fn read_frames(
    file: File,
    limits: Limits,
    take: &mut dyn FnMut(&Message) -> Result<(), TableError>,
) -> Result<Option<String>, TableError> {
    let mut frames = Frames::new(file)?;
    let mut schema = None;
    let mut next_sequence = 0;
    let (mut lost_frames, mut lost_bytes, mut last_error, mut decoded_bytes) = (0_u64, 0, None, 0_u64);
    while let Some(item) = frames.next()? {
        let sequence = match item {
            // A truncated tail is the normal result of a kill: `complete` reports it once for all tables.
            Item::Damage { at_end: true, .. } => continue,
            Item::Damage { bytes, .. } => {
                lost_bytes += bytes;
                continue;
            }
            Item::Frame { sequence } => sequence,
        };
        lost_frames += u64::from(sequence.saturating_sub(next_sequence));
        next_sequence = sequence.saturating_add(1);
        decoded_bytes += frames.payload().len() as u64;
        if decoded_bytes > limits.file_bytes_max() {
            return Err(TableError::TooLarge { limit_bytes: limits.table_bytes });
        }
        let message = frames::decode(frames.payload(), schema.as_ref());
        if let Ok(Message::Schema(new)) = &message {
            schema = Some(Arc::clone(new));
        }
        match message.and_then(|message| take(&message)) {
            Err(error @ TableError::TooLarge { .. }) => return Err(error),
            Err(error) => last_error = Some(error),
            Ok(()) => {}
        }
    }
    if lost_bytes == 0 && lost_frames == 0 && last_error.is_none() {
        return Ok(None);
    }
    let cause = last_error.map(|error| format!(" ({error})")).unwrap_or_default();
    Ok(Some(format!("{lost_frames} flushes are missing or damaged, {lost_bytes} bytes were skipped{cause}")))
}

fn read_outcomes(dir: &Path, recording: &mut Recording) {
    let text = match json::read_text(&dir.join(files::OUTCOMES)) {
        Ok(text) => text,
        Err(error) => return say_unreadable("outcomes.json", &error, recording),
    };
    match json::parse(&text) {
        Ok(outcomes) => recording.outcomes = outcomes,
        Err(error) => recording.gaps.push(Gap::new("outcomes.json", error.to_string(), DAMAGED_REMEDY)),
    }
}

/// Sorts the rows, and adds what the end of a run would have written.
fn complete(recording: &mut Recording, sealed: bool) {
    for series in &mut recording.series {
        series.sort(false);
    }
    recording.calls.sort_by_key(|call| call.start_ns);
    // The sort must be stable: the links of a call are written in reading order.
    recording.waits.sort_by_key(|wait| (wait.call_start_ns, wait.call_tid));
    recording.requests.sort_by_key(|request| request.id);
    recording.queue_ahead.sort_by_key(|ahead| ahead.request);
    recording.queue_owners.sort_by_key(|row| row.start_ns);
    recording.dirtiers.sort_by_key(|row| row.start_ns);
    recording.memory_users.sort_by_key(|row| row.start_ns);
    recording.cpu_owners.sort_by_key(|row| (row.start_ns, row.call_tid));
    recording.async_calls.sort_by_key(|call| call.start_ns);
    let refused: Vec<Gap> = recording.series.iter().flat_map(Series::gaps).collect();
    recording.gaps.extend(refused);
    latency::join(&mut recording.latency);
    recording.events.sort_by_key(|event| event.at_ns);
    recording.stacks.sort_by_key(|stack| stack.id);
    let unknown = schema::unknown(recording);
    recording.gaps.extend(unknown);
    let last_dropped = recording.gaps.iter().rposition(|gap| gap.what == DROPPED);
    let mut place = 0..;
    recording.gaps.retain(|gap| place.next() == last_dropped || gap.what != DROPPED);
    if !recording.header.complete {
        let why = if sealed {
            "the run ended early"
        } else {
            "the writer was killed or is still running; up to the last second is missing"
        };
        recording.gaps.push(Gap::new("the end of this recording", why, ""));
        let start_ns = recording.header.clock.start_ns;
        let seen = last_instant(recording).saturating_sub(start_ns);
        recording.header.duration_ns = recording.header.duration_ns.max(seen);
    }
}

fn last_instant(recording: &Recording) -> u64 {
    let sampled = recording.series.iter().filter_map(|series| series.at_ns().last().copied());
    let calls = recording.calls.iter().map(crate::Call::end_ns);
    let buckets = recording.latency.iter().map(|bucket| bucket.start_ns.saturating_add(bucket.width_ns));
    sampled.chain(calls).chain(buckets).max().unwrap_or(0)
}
