//! One table from a Parquet file, with limits and a safety net.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::file::metadata::ParquetMetaData;

pub(super) const ROWS_PER_BATCH: usize = 8_192;
/// Values (rows x columns) that a reader agrees to unpack; an hour of samples has about 20 million.
const VALUES_MAX: u64 = 2_000_000_000;
const CHUNK_BYTES_MAX: i64 = 2 << 30;

/// What the Parquet crate cannot read without a panic.
const CONTRADICTION: &str = "its contents contradict themselves";
/// More threads than this find nothing to do: unpacking is memory's work as much as the processor's.
const THREADS_MAX: usize = 4;

/// Hands every batch of the file to `take`, at most `rows_max` rows at a time; the error is for people.
pub(super) fn read(
    path: &Path,
    rows_max: usize,
    take: &mut dyn FnMut(&RecordBatch) -> Result<(), String>,
) -> Result<(), String> {
    // The Parquet crate checks most of what it reads, but not all (it indexes by what pages claim), and a
    // recording may come from anyone: a panic in there ends the table, not the program.
    catch_unwind(AssertUnwindSafe(|| {
        let metadata = metadata(path)?;
        let file = File::open(path).map_err(|error| error.to_string())?;
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata);
        let reader =
            builder.with_batch_size(rows_max.min(ROWS_PER_BATCH)).build().map_err(|error| error.to_string())?;
        for batch in reader {
            take(&batch.map_err(|error| error.to_string())?)?;
        }
        Ok(())
    }))
    .unwrap_or_else(|_| Err(CONTRADICTION.to_owned()))
}

/// Columns that are unpacked at a time where memory is short: each that is open has zstd tables and a page of its own.
const COLUMNS_TOGETHER: usize = 16;
/// A group of more values than this is not ours.
const GROUP_VALUES_MAX: usize = 1 << 20;

/// As `read`, and needs a tenth of the memory for a table of two hundred columns.
pub(super) fn read_narrowly(
    path: &Path,
    rows_max: usize,
    take: &mut dyn FnMut(&RecordBatch) -> Result<(), String>,
) -> Result<(), String> {
    let metadata =
        catch_unwind(AssertUnwindSafe(|| metadata(path))).unwrap_or_else(|_| Err(CONTRADICTION.to_owned()))?;
    let columns = metadata.schema().fields().len();
    let values = |rows: i64| usize::try_from(rows).unwrap_or(usize::MAX).saturating_mul(columns);
    if metadata.metadata().row_groups().iter().any(|group| values(group.num_rows()) > GROUP_VALUES_MAX) {
        return read(path, rows_max, take);
    }
    for group in 0..metadata.metadata().num_row_groups() {
        let whole = catch_unwind(AssertUnwindSafe(|| group_by_columns(path, &metadata, group)))
            .unwrap_or_else(|_| Err(CONTRADICTION.to_owned()))?;
        for from in (0..whole.num_rows()).step_by(rows_max.max(1)) {
            take(&whole.slice(from, rows_max.min(whole.num_rows() - from)))?;
        }
    }
    Ok(())
}

fn group_by_columns(path: &Path, metadata: &ArrowReaderMetadata, group: usize) -> Result<RecordBatch, String> {
    let rows = usize::try_from(metadata.metadata().row_group(group).num_rows()).unwrap_or(0);
    let fields = metadata.schema().fields().len();
    let mut columns = Vec::with_capacity(fields);
    for from in (0..fields).step_by(COLUMNS_TOGETHER) {
        let some = from..fields.min(from + COLUMNS_TOGETHER);
        let file = File::open(path).map_err(|error| error.to_string())?;
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata.clone())
            .with_row_groups(vec![group])
            .with_projection(ProjectionMask::roots(metadata.metadata().file_metadata().schema_descr(), some))
            .with_batch_size(rows.max(1))
            .build();
        let batch = reader.map_err(|error| error.to_string())?.next().transpose().map_err(|error| error.to_string())?;
        columns.extend(batch.iter().flat_map(|batch| batch.columns().iter().cloned()));
    }
    RecordBatch::try_new(Arc::clone(metadata.schema()), columns).map_err(|error| error.to_string())
}

type Decode<T> = fn(&RecordBatch, &mut Vec<T>) -> Result<(), String>;

/// All rows of the file, its row groups unpacked beside each other, in their order. The error is that of the
/// first group that had one; what could be read is in `into` all the same.
pub(super) fn read_beside<T: Send>(path: &Path, decode: Decode<T>, into: &mut Vec<T>) -> Result<(), String> {
    let metadata = catch_unwind(AssertUnwindSafe(|| metadata(path).map(with_words_numbered)))
        .unwrap_or_else(|_| Err(CONTRADICTION.to_owned()))?;
    let groups = metadata.metadata().num_row_groups();
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX).min(groups);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let group = next.fetch_add(1, Ordering::Relaxed);
            if group >= groups {
                return done;
            }
            let mut rows = Vec::new();
            let result = catch_unwind(AssertUnwindSafe(|| read_group(path, &metadata, group, decode, &mut rows)));
            done.push((group, rows, result.unwrap_or_else(|_| Err(CONTRADICTION.to_owned()))));
        }
    };
    let mut done = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut done = work();
        done.extend(others.into_iter().filter_map(|other| other.join().ok()).flatten());
        done
    });
    done.sort_by_key(|&(group, ..)| group);
    into.reserve(done.iter().map(|(_, rows, _)| rows.len()).sum());
    let mut first = Ok(());
    for (_, mut rows, result) in done {
        into.append(&mut rows);
        first = first.and(result);
    }
    first
}

fn read_group<T>(
    path: &Path,
    metadata: &ArrowReaderMetadata,
    group: usize,
    decode: Decode<T>,
    into: &mut Vec<T>,
) -> Result<(), String> {
    // A file of its own: clones of one descriptor share their place in it.
    let file = File::open(path).map_err(|error| error.to_string())?;
    let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata.clone());
    let builder = builder.with_row_groups(vec![group]).with_batch_size(ROWS_PER_BATCH);
    for batch in builder.build().map_err(|error| error.to_string())? {
        decode(&batch.map_err(|error| error.to_string())?, into)?;
    }
    Ok(())
}

fn metadata(path: &Path) -> Result<ArrowReaderMetadata, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let bytes = file.metadata().map_err(|error| error.to_string())?.len();
    let metadata =
        ArrowReaderMetadata::load(&file, ArrowReaderOptions::default()).map_err(|error| error.to_string())?;
    check(metadata.metadata(), bytes)?;
    Ok(metadata)
}

/// As the file has them, words stay numbers with a dictionary beside them: a million rows name a cause, and there are
/// thirty causes. What cannot be read so is read as it was.
fn with_words_numbered(metadata: ArrowReaderMetadata) -> ArrowReaderMetadata {
    let schema = Schema::new(metadata.schema().fields().iter().map(|field| numbered(field)).collect::<Vec<_>>());
    let options = ArrowReaderOptions::new().with_schema(Arc::new(schema));
    ArrowReaderMetadata::try_new(Arc::clone(metadata.metadata()), options).unwrap_or(metadata)
}

fn numbered(field: &Field) -> Field {
    let data_type = match field.data_type() {
        DataType::Utf8 => DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
        DataType::List(item) => DataType::List(Arc::new(numbered(item))),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(|field| numbered(field)).collect()),
        other => other.clone(),
    };
    field.clone().with_data_type(data_type)
}

fn check(metadata: &ParquetMetaData, file_bytes: u64) -> Result<(), String> {
    let mut values = 0_u64;
    for group in metadata.row_groups() {
        for column in group.columns() {
            let inside = |at: i64, length: i64| {
                at >= 0 && length >= 0 && at.checked_add(length).is_some_and(|end| end as u64 <= file_bytes)
            };
            let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
            if !inside(start, column.compressed_size()) || !(0..=CHUNK_BYTES_MAX).contains(&column.uncompressed_size())
            {
                return Err("a column beyond the end of the file".to_owned());
            }
            values = values.saturating_add(u64::try_from(column.num_values()).unwrap_or(u64::MAX));
        }
    }
    if values > VALUES_MAX { Err(format!("{values} values are more than this reader unpacks")) } else { Ok(()) }
}
