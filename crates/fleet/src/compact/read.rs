//! Reads the inputs of a compaction, many small files at a time.
//!
//! A host's hour has about ten rows of fifty columns, so the cost is per file and column, not per row. One thread reads
//! and decodes up to 128 files, and joins their rows at once: ten rows as fifty arrays of their own would take more
//! memory for the arrays than for the rows.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use arrow::array::{Array, AsArray};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Int64Type, SchemaRef};
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use flatwater_recording::SummaryRow;
use flatwater_recording::summary;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::{GetResult, GetResultPayload, ObjectMeta, ObjectStoreExt};

use super::days::column;
use crate::FleetError;
use crate::input::{self, Refused};
use crate::left_out::Why;
use crate::store::{Fleet, name_of, name_of_before};

/// Inputs that one thread reads before it joins their rows, and their total size. A host's file has about ten KiB;
/// large files must not use up all memory.
const CHUNK: usize = 128;
const CHUNK_BYTES: u64 = 16 << 20;
/// Inputs of a chunk that are requested at a time.
const FETCHED: usize = 32;

/// The name of a summary: host, boot and sequence.
pub(super) type Name = (String, Option<String>, i64);

/// The name and number of rows of an input, or why it is left out.
pub(super) type Counted = Result<(Name, usize), Refused>;

/// Splits the inputs into chunks, in order.
pub(super) fn chunks(inputs: Vec<ObjectMeta>) -> Vec<Vec<ObjectMeta>> {
    let mut all: Vec<Vec<ObjectMeta>> = Vec::new();
    let mut bytes = 0;
    for input in inputs {
        match all.last_mut() {
            Some(last) if last.len() < CHUNK && bytes + input.size <= CHUNK_BYTES => {
                bytes += input.size;
                last.push(input);
            }
            _ => {
                bytes = input.size;
                all.push(vec![input]);
            }
        }
    }
    all
}

/// An input as the store returned it.
enum Content {
    /// A file of a directory, read by the thread that decodes it.
    File(File, PathBuf),
    Bytes(Bytes),
    TooLarge,
}

/// The rows of a chunk's inputs in their order, and the number of rows of each. An input that is left out has none.
pub(super) async fn read_chunk(
    fleet: &Fleet,
    schema: &SchemaRef,
    chunk: Vec<ObjectMeta>,
) -> Result<(RecordBatch, Vec<(ObjectMeta, Counted)>), FleetError> {
    let fetching = stream::iter(chunk).map(|meta| fetch(fleet, meta)).buffered(FETCHED);
    let fetched: Vec<(ObjectMeta, Content)> = fetching.try_collect().await?;
    let schema = SchemaRef::clone(schema);
    let decoding = tokio::task::spawn_blocking(move || decoded(fetched, &schema));
    decoding.await.map_err(|error| FleetError::Encode(error.to_string()))?
}

async fn fetch(fleet: &Fleet, meta: ObjectMeta) -> Result<(ObjectMeta, Content), FleetError> {
    if meta.size > input::BYTES_MAX {
        return Ok((meta, Content::TooLarge));
    }
    let content = match fleet.store.get(&meta.location).await? {
        GetResult { payload: GetResultPayload::File(file, path), .. } => Content::File(file, path),
        other => Content::Bytes(other.bytes().await?),
    };
    Ok((meta, content))
}

fn decoded(
    fetched: Vec<(ObjectMeta, Content)>,
    schema: &SchemaRef,
) -> Result<(RecordBatch, Vec<(ObjectMeta, Counted)>), FleetError> {
    let mut batches = Vec::with_capacity(fetched.len());
    let mut inputs = Vec::with_capacity(fetched.len());
    for (meta, content) in fetched {
        let bytes = match content {
            Content::Bytes(bytes) => Ok(bytes),
            Content::TooLarge => Err(damaged(format!("{} bytes", meta.size))),
            Content::File(file, path) => {
                let mut bytes = Vec::with_capacity(usize::try_from(meta.size).unwrap_or(0));
                // Bytes beyond the listed size are ignored: an object that grows was not complete.
                file.take(meta.size).read_to_end(&mut bytes).map_err(FleetError::file(&path))?;
                Ok(Bytes::from(bytes))
            }
        };
        let counted = bytes.and_then(|bytes| checked(&meta, bytes, schema)).map(|(name, rows)| {
            let count = rows.iter().map(RecordBatch::num_rows).sum();
            batches.extend(rows);
            (name, count)
        });
        inputs.push((meta, counted));
    }
    Ok((concat_batches(schema, &batches)?, inputs))
}

fn damaged(exactly: String) -> Refused {
    Refused { why: Why::Damaged, exactly }
}

/// The rows of one input. All must belong to the summary that its key names.
fn checked(meta: &ObjectMeta, bytes: Bytes, schema: &SchemaRef) -> Result<(Name, Vec<RecordBatch>), Refused> {
    let batches = input::batches(bytes)?;
    let first = batches.iter().find(|batch| batch.num_rows() > 0);
    let row = first.and_then(|batch| summary::from_batch(&batch.slice(0, 1)).pop());
    let row: SummaryRow = row.ok_or_else(|| damaged("it has no rows".to_owned()))?;
    let named = meta.location.filename().unwrap_or_default();
    let mut is_one = [name_of(&row), name_of_before(&row)].iter().any(|name| named == format!("{name}.parquet"));
    let name = (row.host.clone(), row.boot.clone(), row.sequence);
    for batch in &batches {
        names(batch, |other| is_one &= other == name).map_err(|error| damaged(error.to_string()))?;
    }
    if !is_one {
        return Err(damaged("its rows belong to another summary than its key".to_owned()));
    }
    batches.iter().try_for_each(input::check_measures)?;
    input::check_clock(&row, meta.last_modified)?;
    let batches = as_now(&batches, schema).map_err(|error| damaged(error.to_string()))?;
    Ok((name, batches))
}

/// Calls `take` with the name of each run of rows of one summary; a summary whose rows are not adjacent occurs more
/// than once.
pub(super) fn names(batch: &RecordBatch, mut take: impl FnMut(Name)) -> Result<(), FleetError> {
    let hosts = column(batch, "host", &DataType::Utf8)?;
    let boots = column(batch, "boot", &DataType::Utf8)?;
    let sequences = column(batch, "sequence", &DataType::Int64)?;
    let (hosts, boots) = (hosts.as_string::<i32>(), boots.as_string::<i32>());
    let sequences = sequences.as_primitive::<Int64Type>();
    let mut last = None;
    for row in 0..batch.num_rows() {
        let host = if hosts.is_valid(row) { hosts.value(row) } else { "" };
        let boot = boots.is_valid(row).then(|| boots.value(row));
        let sequence = if sequences.is_valid(row) { sequences.value(row) } else { 0 };
        let name = (host, boot, sequence);
        if last != Some(name) {
            take((host.to_owned(), boot.map(str::to_owned), sequence));
            last = Some(name);
        }
    }
    Ok(())
}

/// Batches with the current columns; an older flatwater wrote fewer.
pub(super) fn as_now(batches: &[RecordBatch], schema: &SchemaRef) -> Result<Vec<RecordBatch>, FleetError> {
    let each = batches.iter().map(|batch| {
        if batch.schema_ref().fields() == schema.fields() {
            Ok(RecordBatch::try_new(SchemaRef::clone(schema), batch.columns().to_vec())?)
        } else {
            Ok(SummaryRow::encode(&summary::from_batch(batch))?)
        }
    });
    each.collect()
}
