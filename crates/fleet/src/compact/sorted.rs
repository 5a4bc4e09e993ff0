//! Sorts the rows of a part and encodes its file.

use arrow::array::UInt32Array;
use arrow::compute::take_record_batch;
use arrow::record_batch::RecordBatch;
use arrow::row::{RowConverter, SortField};
use flatwater_recording::summary::{VERSION, VERSION_KEY};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::WriterProperties;

use super::days::PARTS_KEY;
use crate::FleetError;

/// The sort order: a question about one cause, kernel or host reads few row groups. The last columns make the order
/// independent of the compactor.
const ORDER: &[&str] =
    &["cause", "kernel", "host", "boot", "sequence", "service", "operation", "aggressor", "stall_ns"];
/// Number of columns of `ORDER` that the file declares as sorted.
const DECLARED: usize = 3;
const GROUP_ROWS: usize = 131_072;

/// The rows in this order, nulls first.
pub fn sorted(batch: &RecordBatch) -> Result<RecordBatch, FleetError> {
    let columns: Vec<_> = ORDER.iter().filter_map(|name| batch.column_by_name(name)).cloned().collect();
    let fields = columns.iter().map(|column| SortField::new(column.data_type().clone())).collect();
    let rows = RowConverter::new(fields)?.convert_columns(&columns)?;
    let mut order: Vec<u32> = (0..u32::try_from(batch.num_rows()).unwrap_or(u32::MAX)).collect();
    order.sort_by(|one, other| rows.row(*one as usize).cmp(&rows.row(*other as usize)));
    Ok(take_record_batch(batch, &UInt32Array::from(order))?)
}

/// The file of sorted rows of hours.
pub fn part_bytes(batch: &RecordBatch) -> Result<Vec<u8>, FleetError> {
    file(batch, Vec::new())
}

/// The file of a day, with the parts that it was made from.
pub(super) fn day_bytes(batch: &RecordBatch, made_of: &str) -> Result<Vec<u8>, FleetError> {
    file(batch, vec![KeyValue::new(PARTS_KEY.to_owned(), made_of.to_owned())])
}

fn file(batch: &RecordBatch, mut about: Vec<KeyValue>) -> Result<Vec<u8>, FleetError> {
    let schema = batch.schema();
    let place = |name: &&str| schema.index_of(name).ok().and_then(|at| i32::try_from(at).ok());
    let order = ORDER.iter().take(DECLARED).filter_map(place);
    let sorting = order.map(|column_idx| SortingColumn { column_idx, descending: false, nulls_first: true }).collect();
    about.push(KeyValue::new(VERSION_KEY.to_owned(), VERSION.to_string()));
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_created_by(format!("flatwater-fleet {}", env!("CARGO_PKG_VERSION")))
        .set_key_value_metadata(Some(about))
        .set_sorting_columns(Some(sorting))
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), schema, Some(properties))?;
    writer.write(batch)?;
    Ok(writer.into_inner()?)
}
