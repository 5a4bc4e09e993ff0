//! One table as a Parquet file: encodings on the way out, limits and a safety net on the way in.

use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Schema};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

const ROWS_PER_GROUP: usize = 65_536;
const ROWS_PER_BATCH: usize = 8_192;
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

/// Hands every batch of the file to `take`; the error is for people.
pub(super) fn read(path: &Path, take: &mut dyn FnMut(&RecordBatch) -> Result<(), String>) -> Result<(), String> {
    // The Parquet crate checks most of what it reads, but not all (it indexes by what pages claim), and a
    // recording may come from anyone: a panic in there ends the table, not the program.
    catch_unwind(AssertUnwindSafe(|| read_checked(path, take)))
        .unwrap_or_else(|_| Err("its contents contradict themselves".to_owned()))
}

fn read_checked(path: &Path, take: &mut dyn FnMut(&RecordBatch) -> Result<(), String>) -> Result<(), String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let bytes = file.metadata().map_err(|error| error.to_string())?.len();
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| error.to_string())?;
    check(builder.metadata(), bytes)?;
    let reader = builder.with_batch_size(ROWS_PER_BATCH).build().map_err(|error| error.to_string())?;
    for batch in reader {
        take(&batch.map_err(|error| error.to_string())?)?;
    }
    Ok(())
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
