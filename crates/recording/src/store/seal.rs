//! Turns frames into Parquet files, and writes complete recordings.
//!
//! Sealing goes table by table, row group by row group, and within a group column by column, so the end of a long run
//! needs no more memory than the run. (The `ArrowWriter` of the Parquet crate keeps every column of a group open, and
//! each open column has zstd tables and a buffer of 1 MiB for a page. With two hundred open counters, a run that had
//! needed 33 MiB needed 118 MiB at its end.)

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch, types as arrow};
use arrow_schema::{DataType, Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{ArrowRowGroupWriterFactory, compute_leaves};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::ColumnPath;

use super::error::named;
use super::files::{self, Manifest, SealedFile};
use super::flat::FlatTable;
use super::frames::{self, Frames, Item, Message};
use super::rows::{self, Allowance, Rows};
use super::sampled;
use super::writer::write_header;
use super::{TableFile, WriteError, json};
use crate::header::FORMAT_VERSION;
use crate::series::ENTITIES_MAX;
use crate::{Gap, Header, LatencyBucket, Recording, Series, latency};

/// Values of a sampled table in memory at a time, at 16 bytes each; they form a row group. Smaller groups would make
/// the file larger, because each group has metadata for each column.
const VALUES_TOGETHER: usize = 1 << 19;
const ROWS_TOGETHER: usize = 16_384;
const ROWS_ENCODED: usize = 4096;

/// Seals the frames of a directory. Until this function returns, the frames are the recording.
pub(super) fn seal(dir: &Path) -> Result<(), WriteError> {
    let mut manifest = Manifest { format_version: FORMAT_VERSION, ..Manifest::default() };
    let result = seal_tables(dir, &mut manifest);
    if let Err(error) = result {
        unseal(dir);
        return Err(error);
    }
    for table in TableFile::all() {
        let _ = fs::remove_file(files::frames_path(dir, table));
    }
    Ok(())
}

/// Removes what an interrupted seal has written, so that the frames are the recording and no space is lost. The manifest goes
/// first: with it, a reader expects the Parquet files.
fn unseal(dir: &Path) {
    if fs::remove_file(dir.join(files::MANIFEST)).is_ok_and(|()| files::sync_directory(dir).is_err()) {
        // The removal may not survive a power cut: then the Parquet files must be there, too.
        return;
    }
    for table in TableFile::all() {
        let _ = fs::remove_file(files::parquet_path(dir, table));
    }
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
        .and_then(|()| json::replace(&path, manifest, true))
        .and_then(|()| files::sync_directory(dir))
        .map_err(WriteError::at(path))
}

/// Writes a Parquet file under a temporary name, makes it durable, and renames it.
fn write_parquet(path: &Path, fill: impl FnOnce(File) -> io::Result<u64>) -> io::Result<SealedFile> {
    let temporary = path.with_extension("parquet.tmp");
    let write = || {
        let mut file = files::create_temporary(&temporary)?;
        let rows = fill(file.try_clone()?)?;
        file.sync_all()?;
        let bytes = file.metadata()?.len();
        file.seek(SeekFrom::Start(0))?;
        let sealed = SealedFile { rows, bytes, crc32: files::checksum(&file)? };
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
            sampled::add_columns(&schema, &mut all);
        }
        Ok(())
    })?;
    if let Some(gap) = all.gaps().next() {
        // The frames stay: they contain all data.
        return Err(io::Error::other(gap.why));
    }
    let mut sink = SampledSink::new(out, all);
    each_message(frames, |message| match message {
        Message::Batch(batch) => sink.add(&batch),
        Message::Schema(_) => Ok(()),
    })?;
    sink.close()
}

/// Joins the rows of each bucket.
fn seal_latency(frames: &Path, out: File) -> io::Result<u64> {
    let (mut out, mut joining) = (TableOut::new(out), latency::Joining::default());
    let add = |out: &mut TableOut, whole: &[LatencyBucket]| {
        if whole.is_empty() { Ok(()) } else { out.add(rows::encode_latency(whole).map_err(io::Error::other)?) }
    };
    each_message(frames, |message| {
        let Message::Batch(batch) = message else { return Ok(()) };
        let mut rows = Vec::new();
        // A bucket that cannot be decoded here could not be decoded later either.
        let _ = rows::decode_latency(&batch, &mut rows, &Allowance::new(u64::MAX, &AtomicU64::new(u64::MAX)));
        add(&mut out, &joining.add(rows))
    })?;
    add(&mut out, &joining.end())?;
    out.close()
}

fn each_message(frames: &Path, mut take: impl FnMut(Message) -> io::Result<()>) -> io::Result<()> {
    let mut frames = Frames::new(files::open(frames, u64::MAX)?.0)?;
    let mut schema = None;
    while let Some(item) = frames.next()? {
        // Damage in frames that this process wrote moments ago comes from the disk; keep the remaining frames.
        if matches!(item, Item::Damage { .. }) {
            continue;
        }
        let Ok(message) = frames::decode(frames.payload(), schema.as_ref()) else { continue };
        if let Message::Schema(new) = &message {
            schema = Some(Arc::clone(new));
        }
        take(message)?;
    }
    Ok(())
}

/// Collects rows of a sampled table, sorts some thousands at a time by entity, and writes them with one schema.
struct SampledSink {
    out: TableOut,
    rows: Series,
    /// Rows that are sorted together and form a group.
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
            let (batch, unbounded) = (batch.slice(from, some), AtomicU64::new(u64::MAX));
            let allowance = Allowance::new(u64::MAX, &unbounded);
            sampled::decode(&batch, &mut self.rows, &allowance).map_err(io::Error::other)?;
            from += some;
            if self.rows.len() >= self.together {
                self.write()?;
            }
        }
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        self.rows.sort(true);
        let group = sampled::encode(&self.rows, None).map_err(io::Error::other)?;
        self.rows.clear_rows();
        if self.rows.entities().len() + ROWS_TOGETHER > ENTITIES_MAX {
            self.rows.clear_entities();
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

/// Writes a complete recording (simulator, import), sealed from the start.
pub fn write_whole(dir: &Path, recording: &Recording) -> Result<(), WriteError> {
    files::create_dir(dir).map_err(WriteError::at(dir))?;
    if dir.join(files::HEADER).exists() {
        return Err(WriteError::Exists { path: named(dir) });
    }
    write_header(dir, &Header { complete: true, ..recording.header.clone() }, true)?;
    if !recording.outcomes.is_empty() {
        let path = dir.join(files::OUTCOMES);
        json::replace(&path, &recording.outcomes, true).map_err(WriteError::at(path))?;
    }
    let mut manifest = Manifest { format_version: FORMAT_VERSION, ..Manifest::default() };
    let refused = recording.series.iter().flat_map(Series::gaps).filter(|gap| !recording.gaps.contains(gap));
    let gaps: Vec<Gap> = recording.gaps.iter().cloned().chain(refused).collect();
    let fixed = [
        Rows::Latency(&recording.latency),
        Rows::Calls(&recording.calls),
        Rows::Stacks(&recording.stacks),
        Rows::Events(&recording.events),
        Rows::Gaps(&gaps),
    ];
    let flat = FlatTable::ALL.iter().map(|&table| Rows::flat(table, table.rows(recording)));
    for rows in fixed.into_iter().chain(flat).chain(recording.series.iter().map(Rows::Sampled)) {
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
        let all = sampled::encode(series, None).map_err(io::Error::other)?;
        let mut columns = Series::new(series.table);
        sampled::add_columns(&all.schema(), &mut columns);
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

/// Size of a row group in memory. A reader creates a zstd context for each column of each group: with groups of 4 MiB
/// that took a quarter of the time of `explain` for a million calls.
const GROUP_BYTES: usize = 12 << 20;
const GROUP_ROWS: usize = 65_536;

/// The file of a table. Nothing is written to it, not even a header, before the first rows arrive.
struct TableOut {
    file: Option<File>,
    groups: Option<Groups>,
    held: Vec<RecordBatch>,
    held_bytes: usize,
    rows: u64,
}

struct Groups {
    file: SerializedFileWriter<File>,
    columns: ArrowRowGroupWriterFactory,
    schema: SchemaRef,
    count: usize,
}

impl TableOut {
    fn new(file: File) -> TableOut {
        TableOut { file: Some(file), groups: None, held: Vec::new(), held_bytes: 0, rows: 0 }
    }

    /// Adds rows, which may share a group with rows before and after.
    fn add(&mut self, batch: RecordBatch) -> io::Result<()> {
        self.held_bytes += batch.get_array_memory_size();
        self.held.push(batch);
        let rows: usize = self.held.iter().map(RecordBatch::num_rows).sum();
        if self.held_bytes >= GROUP_BYTES || rows >= GROUP_ROWS { self.write_held() } else { Ok(()) }
    }

    fn write_held(&mut self) -> io::Result<()> {
        let held = std::mem::take(&mut self.held);
        self.held_bytes = 0;
        let Some(first) = held.first() else { return Ok(()) };
        let group = concat_batches(first.schema_ref(), &held).map_err(io::Error::other)?;
        drop(held);
        self.groups(&group)?.map_or(Ok(()), |groups| groups.write(&group).map_err(flatten))
    }

    fn groups(&mut self, group: &RecordBatch) -> io::Result<Option<&mut Groups>> {
        if let Some(file) = self.file.take() {
            self.groups = Some(Groups::new(file, group.schema_ref()).map_err(flatten)?);
        }
        self.rows += group.num_rows() as u64;
        Ok(self.groups.as_mut())
    }

    /// Writes these rows as one group. The columns must be numbers or text.
    fn write_flat(&mut self, group: &RecordBatch) -> io::Result<()> {
        self.groups(group)?.map_or(Ok(()), |groups| groups.write_flat(group).map_err(flatten))
    }

    /// Closes the file; returns its number of rows.
    fn close(mut self) -> io::Result<u64> {
        self.write_held()?;
        if let Some(groups) = self.groups {
            groups.file.close().map_err(flatten)?;
        }
        Ok(self.rows)
    }
}

impl Groups {
    fn new(file: File, schema: &SchemaRef) -> Result<Groups, ParquetError> {
        let writer = ArrowWriter::try_new(file, Arc::clone(schema), Some(properties(schema)?))?;
        let (file, columns) = writer.into_serialized_writer()?;
        Ok(Groups { file, columns, schema: Arc::clone(schema), count: 0 })
    }

    fn write(&mut self, rows: &RecordBatch) -> Result<(), ParquetError> {
        let mut group = self.file.next_row_group()?;
        let mut writers = self.columns.create_column_writers(self.count)?.into_iter();
        self.count += 1;
        for (field, column) in self.schema.fields().iter().zip(rows.columns()) {
            for leaf in compute_leaves(field, column)? {
                let mut writer = writers.next().ok_or_else(|| wrong("too many columns"))?;
                writer.write(&leaf)?;
                writer.close()?.append_to_row_group(&mut group)?;
            }
        }
        group.close().map(drop)
    }

    /// Like `write`, but closes each column before it opens the next.
    fn write_flat(&mut self, rows: &RecordBatch) -> Result<(), ParquetError> {
        let mut group = self.file.next_row_group()?;
        self.count += 1;
        for column in rows.columns() {
            let mut out = group.next_column()?.ok_or_else(|| wrong("too many columns"))?;
            write_column(&mut out, column.as_ref())?;
            out.close()?;
        }
        group.close().map(drop)
    }
}

fn wrong(what: &str) -> ParquetError {
    ParquetError::General(what.to_owned())
}

fn write_column(out: &mut SerializedColumnWriter<'_>, array: &dyn Array) -> Result<(), ParquetError> {
    // Ignored if the column has no nulls.
    let present: Vec<i16> = (0..array.len()).map(|row| i16::from(array.is_valid(row))).collect();
    // Parquet stores signed numbers; the schema has the logical type.
    let written = match array.data_type() {
        DataType::Int64 => {
            let values: Vec<i64> = array.as_primitive::<arrow::Int64Type>().iter().flatten().collect();
            out.typed::<parquet::data_type::Int64Type>().write_batch(&values, Some(&present), None)
        }
        DataType::UInt64 => {
            let values = array.as_primitive::<arrow::UInt64Type>().iter().flatten();
            let values: Vec<i64> = values.map(u64::cast_signed).collect();
            out.typed::<parquet::data_type::Int64Type>().write_batch(&values, Some(&present), None)
        }
        DataType::UInt32 => {
            let values = array.as_primitive::<arrow::UInt32Type>().iter().flatten();
            let values: Vec<i32> = values.map(u32::cast_signed).collect();
            out.typed::<parquet::data_type::Int32Type>().write_batch(&values, Some(&present), None)
        }
        DataType::Utf8 => {
            let values: Vec<ByteArray> = array.as_string::<i32>().iter().flatten().map(ByteArray::from).collect();
            out.typed::<ByteArrayType>().write_batch(&values, Some(&present), None)
        }
        _ => Err(wrong("a column that is neither a number nor text")),
    };
    written.map(drop)
}

fn properties(schema: &Schema) -> Result<WriterProperties, ParquetError> {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_statistics_enabled(EnabledStatistics::Chunk);
    for path in integer_columns(schema) {
        // Counters and gauges change little between rows: their differences fit into a few bits.
        properties = properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    Ok(properties.build())
}

/// Paths of all 32-bit and 64-bit integer columns, including those in lists of structs.
fn integer_columns(schema: &Schema) -> Vec<ColumnPath> {
    let mut paths = Vec::new();
    for field in schema.fields() {
        let parts = match field.data_type() {
            DataType::List(item) => match item.data_type() {
                DataType::Struct(fields) => Some(fields),
                _ => None,
            },
            _ => None,
        };
        if is_integer(field.data_type()) {
            paths.push(ColumnPath::new(vec![field.name().clone()]));
        }
        for part in parts.into_iter().flatten().filter(|part| is_integer(part.data_type())) {
            let names = [field.name(), "list", "item", part.name()];
            paths.push(ColumnPath::new(names.map(str::to_owned).to_vec()));
        }
    }
    paths
}

fn is_integer(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Int64 | DataType::UInt64 | DataType::UInt32)
}

/// Unwraps I/O errors that Parquet has wrapped, so that ENOSPC stays recognisable.
fn flatten(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(inner) => io::Error::other(inner),
        },
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::{Event, EventKind, Header, RecordingWriter, read};

    #[test]
    fn a_seal_that_failed_at_its_end_leaves_the_frames_as_the_recording() {
        let place = tempfile::tempdir().expect("a directory");
        let (dir, aside) = (place.path().join("recording"), place.path().join("events.frames"));
        let mut writer = RecordingWriter::create(&dir, &Header::default()).expect("created");
        writer.append_events(&[Event::new(7, EventKind::Mark("here".to_owned()))]).expect("appended");
        writer.flush_now();
        fs::copy(dir.join("events.frames"), &aside).expect("copied");
        super::seal(&dir).expect("sealed");
        // The last sync of the directory failed: everything is still there.
        fs::copy(&aside, dir.join("events.frames")).expect("copied");
        assert!(dir.join("sealed.json").exists() && dir.join("events.parquet").exists());
        super::unseal(&dir);
        assert!(!dir.join("sealed.json").exists() && !dir.join("events.parquet").exists());
        let recording = read(&dir).expect("readable");
        assert_eq!(recording.events.len(), 1, "{:?}", recording.gaps_found());
    }
}
