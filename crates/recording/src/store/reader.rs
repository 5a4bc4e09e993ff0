//! Opens any recording: sealed, still being written, torn by a kill, or damaged.
//!
//! It fails only where there is nothing to open. Everything else that is missing becomes a `Gap`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;

use super::super::header::FORMAT_VERSION;
use super::super::{Gap, Header, Recording, Series, latency, schema};
use super::error::ReadError;
use super::files::{self, Manifest};
use super::frame::{Frames, Item};
use super::ipc::{self, Message};
use super::parquet_table;
use super::table::{TableFile, calls, series};
use super::thin::Thinning;
use super::writer::DROPPED;

const DAMAGED_REMEDY: &str = "the rest of the recording is intact; if this file was copied, copy it again";

/// Rows that are taken in at a time where most of them are then dropped: less than a MB for the widest tables.
const ROWS_WHERE_THINNED: usize = 256;
const THINNED: &str = "made from a part of the samples, spread evenly, and latencies of some seconds together, to need little \
                       memory at the end of a long run; `flatwater explain` and `flatwater report` on this recording use all of them";

/// Reads the recording in this directory (or the one that this file of it lies in).
pub fn read(path: &Path) -> Result<Recording, ReadError> {
    read_keeping(path, None)
}

/// As `read`, but keeps about this many moments of each sampled table, spread evenly over the measured part (one
/// value takes 16 bytes in memory: an hour at 10 Hz some hundred MB), and counts latencies into about as many buckets. A note
/// in the header says so. Calls and all else are whole.
pub fn read_thinned(path: &Path, moments_max: u64) -> Result<Recording, ReadError> {
    read_keeping(path, Some(moments_max))
}

fn read_keeping(path: &Path, moments_max: Option<u64>) -> Result<Recording, ReadError> {
    let dir = directory(path)?;
    let mut recording = Recording::default();
    let header_found = read_header(&dir, &mut recording)?;
    let manifest = read_manifest(&dir, &mut recording)?;
    let (start_ns, duration_ns) = (recording.header.clock.start_ns, recording.header.duration_ns);
    let thinning = moments_max.map(|most| Thinning::new(start_ns, duration_ns, most));
    let (mut tables_found, mut thinned) = (0, false);
    for table in TableFile::all() {
        let mut into = Sink { recording: &mut recording, thinning: thinning.clone(), thinned: false };
        tables_found += usize::from(read_table(&dir, table, manifest.as_ref(), &mut into));
        thinned |= into.thinned;
    }
    recording.gaps.extend(files::unknown_tables(&dir).into_iter().map(|name| {
        let why = "this flatwater does not know such a table, so nothing of it is shown";
        Gap::new(format!("table {name}"), why, "open it with the flatwater that wrote it, or a newer one")
    }));
    if thinned {
        // Rows came in faster than they were dropped, and left room for more than there are.
        recording.series.iter_mut().for_each(series::shrink);
        recording.header.notes.push(THINNED.into());
    }
    if !header_found && tables_found == 0 && manifest.is_none() {
        return Err(ReadError::NotARecording { path: dir });
    }
    if !header_found {
        recording.gaps.push(Gap::new("header.json", "it is missing or unreadable", DAMAGED_REMEDY));
    }
    read_outcomes(&dir, &mut recording);
    complete(&mut recording, manifest.is_some());
    Ok(recording)
}

fn directory(path: &Path) -> Result<PathBuf, ReadError> {
    let metadata = path.metadata().map_err(|error| ReadError::NotFound { path: path.to_owned(), error })?;
    let parent = || path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(if metadata.is_dir() { path.to_owned() } else { parent().to_owned() })
}

/// The two fields that even a format we do not know must have.
#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Version {
    format_version: u32,
    written_by: String,
}

fn check_version(dir: &Path, text: &[u8]) -> Result<(), ReadError> {
    match serde_json::from_slice::<Version>(text) {
        Ok(Version { format_version: found, written_by }) if found > FORMAT_VERSION => {
            let written_by = if written_by.is_empty() { "that wrote it".to_owned() } else { written_by };
            Err(ReadError::TooNew { path: dir.to_owned(), found, written_by })
        }
        _ => Ok(()),
    }
}

fn read_header(dir: &Path, recording: &mut Recording) -> Result<bool, ReadError> {
    let Ok(text) = files::read_json_text(&dir.join(files::HEADER)) else { return Ok(false) };
    check_version(dir, &text)?;
    match serde_json::from_slice::<Header>(&text) {
        Ok(header) => recording.header = header,
        Err(error) => recording.gaps.push(Gap::new("header.json", error.to_string(), DAMAGED_REMEDY)),
    }
    Ok(true)
}

fn read_manifest(dir: &Path, recording: &mut Recording) -> Result<Option<Manifest>, ReadError> {
    let Ok(text) = files::read_json_text(&dir.join(files::MANIFEST)) else { return Ok(None) };
    check_version(dir, &text)?;
    let manifest = serde_json::from_slice::<Manifest>(&text);
    if let Err(error) = &manifest {
        let gap = Gap::new("sealed.json", format!("{error}; its tables were read unchecked"), DAMAGED_REMEDY);
        recording.gaps.push(gap);
    }
    Ok(Some(manifest.unwrap_or_default()))
}

/// Where the rows of one table go.
struct Sink<'a> {
    recording: &'a mut Recording,
    thinning: Option<Thinning>,
    /// Rows were dropped or joined.
    thinned: bool,
}

impl Sink<'_> {
    fn absorb(&mut self, table: TableFile, batch: &RecordBatch) -> Result<(), String> {
        let (kind, thinning) = match (table, &mut self.thinning) {
            (TableFile::Sampled(kind), Some(thinning)) => (kind, thinning),
            (TableFile::Latency, Some(thinning)) => {
                let before = self.recording.latency.len();
                let done = table.absorb(batch, self.recording);
                self.thinned |= thinning.widen(&mut self.recording.latency, before);
                return done;
            }
            _ => return table.absorb(batch, self.recording),
        };
        let before = self.recording.table(kind).map_or(0, Series::len);
        table.absorb(batch, self.recording)?;
        if let Some(series) = self.recording.series.iter_mut().find(|series| series.table == kind) {
            let all = series.len();
            series::retain_from(series, before, &mut |at_ns| thinning.keeps(at_ns));
            self.thinned |= series.len() < all;
        }
        Ok(())
    }

    fn absorb_parquet(&mut self, table: TableFile, path: &Path) -> Result<(), String> {
        match table {
            TableFile::Calls => parquet_table::read_beside(path, calls::decode, &mut self.recording.calls),
            TableFile::Sampled(_) | TableFile::Latency if self.thinning.is_some() => {
                parquet_table::read_narrowly(path, ROWS_WHERE_THINNED, &mut |batch| self.absorb(table, batch))
            }
            _ => parquet_table::read(path, parquet_table::ROWS_PER_BATCH, &mut |batch| self.absorb(table, batch)),
        }
    }
}

/// Reads a table from whichever of its files counts; false if it has none.
fn read_table(dir: &Path, table: TableFile, manifest: Option<&Manifest>, into: &mut Sink<'_>) -> bool {
    let frames = files::frames_path(dir, table);
    let parquet = files::parquet_path(dir, table);
    let listed = manifest.and_then(|manifest| manifest.tables.get(table.name()));
    let say = |recording: &mut Recording, why: String| {
        recording.gaps.push(Gap::new(format!("table {}", table.name()), why, DAMAGED_REMEDY));
    };
    if manifest.is_none() && frames.exists() {
        read_frames(&frames, table, into).unwrap_or_else(|error| say(into.recording, error.to_string()));
        return true;
    }
    if !parquet.exists() {
        if listed.is_some() {
            say(into.recording, "its file is missing".to_owned());
        }
        return listed.is_some();
    }
    if let Some(listed) = listed {
        match files::checksum(&parquet) {
            Ok(found) if found == listed.crc32 => {}
            Ok(_) => say(into.recording, "it differs from what was sealed; what can be read of it is shown".to_owned()),
            Err(error) => say(into.recording, error.to_string()),
        }
    }
    if let Err(why) = into.absorb_parquet(table, &parquet) {
        say(into.recording, why);
    }
    true
}

fn read_frames(path: &Path, table: TableFile, into: &mut Sink<'_>) -> std::io::Result<()> {
    let mut frames = Frames::new(File::open(path)?)?;
    let mut schema = None;
    let mut next_sequence = 0;
    let (mut lost_frames, mut lost_bytes, mut last_error) = (0_u64, 0, None);
    while let Some(item) = frames.next()? {
        match item {
            // A torn tail is what a kill leaves: `complete` says so once for all tables.
            Item::Damage { at_end: true, .. } => {}
            Item::Damage { bytes, .. } => lost_bytes += bytes,
            Item::Frame { sequence } => {
                lost_frames += u64::from(sequence.saturating_sub(next_sequence));
                next_sequence = sequence.saturating_add(1);
                match ipc::decode(frames.payload(), schema.as_ref()) {
                    Ok(Message::Schema(new)) => schema = Some(Arc::clone(&new)),
                    Ok(Message::Batch(batch)) => {
                        last_error = into.absorb(table, &batch).err().or(last_error);
                    }
                    Err(error) => last_error = Some(error),
                }
            }
        }
    }
    if lost_bytes > 0 || lost_frames > 0 || last_error.is_some() {
        let cause = last_error.map(|error| format!(" ({error})")).unwrap_or_default();
        let why = format!("{lost_frames} flushes are missing or damaged, {lost_bytes} bytes were skipped{cause}");
        into.recording.gaps.push(Gap::new(format!("part of table {}", table.name()), why, DAMAGED_REMEDY));
    }
    Ok(())
}

fn read_outcomes(dir: &Path, recording: &mut Recording) {
    let Ok(text) = files::read_json_text(&dir.join(files::OUTCOMES)) else { return };
    match serde_json::from_slice(&text) {
        Ok(outcomes) => recording.outcomes = outcomes,
        Err(error) => recording.gaps.push(Gap::new("outcomes.json", error.to_string(), DAMAGED_REMEDY)),
    }
}

/// Puts rows in order, and fills in what the end of a run would have written.
fn complete(recording: &mut Recording, sealed: bool) {
    for series in &mut recording.series {
        series::sort(series, false);
    }
    recording.calls.sort_by_key(|call| call.start_ns);
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
            "the run was ended before its time"
        } else {
            "it was killed, or is still being written; up to its last second is missing"
        };
        recording.gaps.push(Gap::new("the end of this recording", why, ""));
        let start_ns = recording.header.clock.start_ns;
        let seen = last_instant(recording).saturating_sub(start_ns);
        recording.header.duration_ns = recording.header.duration_ns.max(seen);
    }
}

fn last_instant(recording: &Recording) -> u64 {
    let sampled = recording.series.iter().filter_map(|series| series.at_ns.last().copied());
    let calls = recording.calls.iter().map(super::super::Call::end_ns);
    let buckets = recording.latency.iter().map(|bucket| bucket.start_ns.saturating_add(bucket.width_ns));
    sampled.chain(calls).chain(buckets).max().unwrap_or(0)
}
