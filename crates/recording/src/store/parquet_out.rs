//! One table into a Parquet file, in little memory: a row group at a time, and of each group a column at a time.
//!
//! The Parquet crate's `ArrowWriter` keeps every column of a group open, and each open column has zstd tables and room
//! for a page of 1 MiB. With two hundred counters side by side a run that had needed 33 MiB needed 118 to end.

use std::fs::File;
use std::io;
use std::sync::Arc;

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

/// A group is written when it holds as much, in memory.
const GROUP_BYTES: usize = 4 << 20;
const GROUP_ROWS: usize = 65_536;

/// A table's file. Nothing is written to it, not even a head, before the first rows come.
pub(super) struct TableOut {
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
    pub(super) fn new(file: File) -> TableOut {
        TableOut { file: Some(file), groups: None, held: Vec::new(), held_bytes: 0, rows: 0 }
    }

    /// Rows that may share a group with those before and after them.
    pub(super) fn add(&mut self, batch: RecordBatch) -> io::Result<()> {
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

    /// These rows as one group; their columns must be numbers and text.
    pub(super) fn write_flat(&mut self, group: &RecordBatch) -> io::Result<()> {
        self.groups(group)?.map_or(Ok(()), |groups| groups.write_flat(group).map_err(flatten))
    }

    /// Ends the file; how many rows it has.
    pub(super) fn close(mut self) -> io::Result<u64> {
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
                let mut writer = writers.next().ok_or_else(|| wrong("a column too many"))?;
                writer.write(&leaf)?;
                writer.close()?.append_to_row_group(&mut group)?;
            }
        }
        group.close().map(drop)
    }

    /// As `write`, and opens no column before the one before it is closed.
    fn write_flat(&mut self, rows: &RecordBatch) -> Result<(), ParquetError> {
        let mut group = self.file.next_row_group()?;
        self.count += 1;
        for column in rows.columns() {
            let mut out = group.next_column()?.ok_or_else(|| wrong("a column too many"))?;
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
    // Ignored where the column takes no nulls.
    let present: Vec<i16> = (0..array.len()).map(|row| i16::from(array.is_valid(row))).collect();
    // Parquet knows signed numbers; what they stand for is in the schema.
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
        _ => Err(wrong("a column that is neither number nor text")),
    };
    written.map(drop)
}

fn properties(schema: &Schema) -> Result<WriterProperties, ParquetError> {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_statistics_enabled(EnabledStatistics::Chunk);
    for path in integer_columns(schema) {
        // Counters and levels change little from row to row: differences pack into a few bits.
        properties = properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    Ok(properties.build())
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

/// Parquet wraps I/O errors; ENOSPC must stay recognisable.
fn flatten(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(inner) => io::Error::other(inner),
        },
        other => io::Error::other(other),
    }
}
