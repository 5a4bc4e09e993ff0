//! One table as a Parquet file: encodings on the way out, limits and a safety net on the way in.

use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

const ROWS_PER_GROUP: usize = 65_536;
pub(super) const ROWS_PER_BATCH: usize = 8_192;
/// Values (rows x columns) that a reader agrees to unpack; an hour of samples has about 20 million.
const VALUES_MAX: u64 = 2_000_000_000;
const CHUNK_BYTES_MAX: i64 = 2 << 30;

pub(super) fn writer(file: File, schema: &Arc<Schema>) -> io::Result<ArrowWriter<File>> {
    let level = ZstdLevel::try_new(3).map_err(io::Error::other)?;
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_max_row_group_row_count(Some(ROWS_PER_GROUP));
    for path in integer_columns(schema) {
        // Counters and levels change little from row to row: differences pack into a few bits.
        properties = properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    ArrowWriter::try_new(file, Arc::clone(schema), Some(properties.build())).map_err(io::Error::other)
}

/// Paths of all 32 and 64-bit integer columns, in lists of structs too.
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
