//! Turns frames into Parquet, and writes recordings that are known as a whole.
//!
//! Table by table, a few thousand rows at a time: the memory of a long run's end is that of its middle.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;

use super::super::header::FORMAT_VERSION;
use super::super::{Header, LatencyBucket, Recording, Series, latency};
use super::error::WriteError;
use super::files::{self, Manifest, SealedTable};
use super::frame::{Frames, Item};
use super::ipc::{self, Message};
use super::parquet_out::TableOut;
use super::table::{Rows, TableFile, latency as latency_rows, series};
use super::writer::write_header;

/// Values of a sampled table that are in memory at a time, 16 bytes each, and make a row group. Fewer would make the
/// file larger: each group says something of each of its columns.
const VALUES_TOGETHER: usize = 1 << 19;
const ROWS_TOGETHER: usize = 16_384;
const ROWS_ENCODED: usize = 4096;

/// Seals the frames of a directory. Until it returns, the frames stay what the recording is.
pub(super) fn seal(dir: &Path) -> Result<(), WriteError> {
    let mut manifest = Manifest { format_version: FORMAT_VERSION, ..Manifest::default() };
    let result = seal_tables(dir, &mut manifest);
    if let Err(error) = result {
        // Half a set of Parquet files helps nobody and takes space that is missing.
        for table in TableFile::all() {
            let _ = fs::remove_file(files::parquet_path(dir, table));
        }
        return Err(error);
    }
    for table in TableFile::all() {
        let _ = fs::remove_file(files::frames_path(dir, table));
    }
    Ok(())
}

fn seal_tables(dir: &Path, manifest: &mut Manifest) -> Result<(), WriteError> {
    for table in TableFile::all() {
        let frames = files::frames_path(dir, table);
        if frames.exists() {
            let path = files::parquet_path(dir, table);
            let sealed = write_parquet(&path, |temporary| seal_table(&frames, table, temporary));
            manifest.tables.insert(table.name().to_owned(), sealed.map_err(WriteError::at(path))?);
        }
    }
    publish(dir, manifest)
}

fn publish(dir: &Path, manifest: &Manifest) -> Result<(), WriteError> {
    let path = dir.join(files::MANIFEST);
    files::sync_directory(dir)
        .and_then(|()| files::replace_json(&path, manifest, true))
        .and_then(|()| files::sync_directory(dir))
        .map_err(WriteError::at(path))
}

/// Writes a Parquet file under a temporary name, makes it durable, and gives it its name.
fn write_parquet(path: &Path, fill: impl FnOnce(File) -> io::Result<u64>) -> io::Result<SealedTable> {
    let temporary = path.with_extension("parquet.tmp");
    let write = || {
        let rows = fill(File::create(&temporary)?)?;
        let file = File::open(&temporary)?;
        file.sync_all()?;
        let sealed = SealedTable { rows, bytes: file.metadata()?.len(), crc32: files::checksum(&temporary)? };
        fs::rename(&temporary, path)?;
        Ok(sealed)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}

fn seal_table(frames: &Path, table: TableFile, out: File) -> io::Result<u64> {
    if table == TableFile::Latency {
        return seal_latency(frames, out);
    }
    let TableFile::Sampled(kind) = table else {
        let mut out = TableOut::new(out);
        each_message(frames, |message| match message {
            Message::Batch(batch) => out.add(batch),
            Message::Schema(_) => Ok(()),
        })?;
        return out.close();
    };
    let mut all = Series::new(kind);
    each_message(frames, |message| {
        if let Message::Schema(schema) = message {
            series::add_columns(&schema, &mut all);
        }
        Ok(())
    })?;
    let mut sink = SampledSink::new(out, all);
    each_message(frames, |message| match message {
        Message::Batch(batch) => sink.add(&batch),
        Message::Schema(_) => Ok(()),
    })?;
    sink.close()
}

/// Rows of one bucket become one on the way.
fn seal_latency(frames: &Path, out: File) -> io::Result<u64> {
    let (mut out, mut joining) = (TableOut::new(out), latency::Joining::default());
    let add = |out: &mut TableOut, whole: &[LatencyBucket]| {
        if whole.is_empty() { Ok(()) } else { out.add(latency_rows::encode(whole).map_err(io::Error::other)?) }
    };
    each_message(frames, |message| {
        let Message::Batch(batch) = message else { return Ok(()) };
        let mut rows = Vec::new();
        // A bucket that cannot be read here could not be read later.
        let _ = latency_rows::decode(&batch, &mut rows);
        add(&mut out, &joining.add(rows))
    })?;
    add(&mut out, &joining.end())?;
    out.close()
}

fn each_message(frames: &Path, mut take: impl FnMut(Message) -> io::Result<()>) -> io::Result<()> {
    let mut frames = Frames::new(File::open(frames)?)?;
    let mut schema = None;
    while let Some(item) = frames.next()? {
        // Damage in frames that we wrote ourselves a moment ago is the disk's; the rest is still worth having.
        if matches!(item, Item::Damage { .. }) {
            continue;
        }
        let Ok(message) = ipc::decode(frames.payload(), schema.as_ref()) else { continue };
        if let Message::Schema(new) = &message {
            schema = Some(Arc::clone(new));
        }
        take(message)?;
    }
    Ok(())
}

/// Collects rows of a sampled table, sorts some thousands by entity, and writes them under one schema.
struct SampledSink {
    out: TableOut,
    rows: Series,
    /// Rows that are sorted together and make a group.
    together: usize,
}

impl SampledSink {
    fn new(out: File, columns: Series) -> SampledSink {
        let together = (VALUES_TOGETHER / columns.columns.len().max(1)).clamp(1, ROWS_TOGETHER);
        SampledSink { out: TableOut::new(out), rows: columns, together }
    }

    fn add(&mut self, batch: &RecordBatch) -> io::Result<()> {
        let mut from = 0;
        while from < batch.num_rows() {
            let some = (batch.num_rows() - from).min(self.together.saturating_sub(self.rows.len()).max(1));
            series::decode(&batch.slice(from, some), &mut self.rows).map_err(io::Error::other)?;
            from += some;
            if self.rows.len() >= self.together {
                self.write()?;
            }
        }
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        series::sort(&mut self.rows, true);
        let group = series::encode(&self.rows, None).map_err(io::Error::other)?;
        self.rows.at_ns.clear();
        self.rows.entity.clear();
        for column in &mut self.rows.columns {
            column.values.clear();
        }
        self.out.write_flat(&group)
    }

    fn close(mut self) -> io::Result<u64> {
        if !self.rows.is_empty() {
            self.write()?;
        }
        self.out.close()
    }
}

/// Writes a recording that is known as a whole (simulator, import), sealed from the start.
pub fn write_whole(dir: &Path, recording: &Recording) -> Result<(), WriteError> {
    match fs::create_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(WriteError::at(dir)(error)),
        _ => {}
    }
    if dir.join(files::HEADER).exists() {
        return Err(WriteError::Exists { path: dir.to_owned() });
    }
    write_header(dir, &Header { complete: true, ..recording.header.clone() }, true)?;
    if !recording.outcomes.is_empty() {
        let path = dir.join(files::OUTCOMES);
        files::replace_json(&path, &recording.outcomes, true).map_err(WriteError::at(path))?;
    }
    let mut manifest = Manifest { format_version: FORMAT_VERSION, ..Manifest::default() };
    let fixed = [
        Rows::Latency(&recording.latency),
        Rows::Calls(&recording.calls),
        Rows::Stacks(&recording.stacks),
        Rows::Events(&recording.events),
        Rows::Gaps(&recording.gaps),
    ];
    for rows in fixed.into_iter().chain(recording.series.iter().map(Rows::Sampled)) {
        if rows.len() > 0 {
            let path = files::parquet_path(dir, rows.file());
            let sealed = write_parquet(&path, |out| write_rows(out, rows)).map_err(WriteError::at(path))?;
            manifest.tables.insert(rows.file().name().to_owned(), sealed);
        }
    }
    publish(dir, &manifest)
}

fn write_rows(out: File, rows: Rows<'_>) -> io::Result<u64> {
    if let Rows::Sampled(series) = rows {
        let all = series::encode(series, None).map_err(io::Error::other)?;
        let mut columns = Series::new(series.table);
        series::add_columns(&all.schema(), &mut columns);
        let mut sink = SampledSink::new(out, columns);
        sink.add(&all)?;
        return sink.close();
    }
    let mut out = TableOut::new(out);
    for from in (0..rows.len()).step_by(ROWS_ENCODED) {
        out.add(rows.slice(from, ROWS_ENCODED).encode(None).map_err(io::Error::other)?)?;
    }
    out.close()
}
