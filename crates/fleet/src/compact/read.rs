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
use arrow::datatypes::{DataType, Int64Type, SchemaRef, TimeUnit, TimestampMicrosecondType};
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use flatwater_recording::summary::SummaryRow;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::{GetResult, GetResultPayload, ObjectMeta, ObjectStoreExt};

use super::days::column;
use super::merge::HOST_BYTES_MAX;
use crate::FleetError;
use crate::input::{self, Refused};
use crate::left_out::Why;
use crate::store::{Fleet, host_of_key, is_key_of, is_recording_of};

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

/// Splits the inputs into chunks, in order. The inputs of a host are in one chunk, so that their memory can be limited.
pub(super) fn chunks(inputs: Vec<ObjectMeta>) -> Vec<Vec<ObjectMeta>> {
    let mut all: Vec<Vec<ObjectMeta>> = Vec::new();
    let mut bytes = 0_u64;
    for input in inputs {
        let is_of = |last: &Vec<ObjectMeta>| {
            last.last().is_some_and(|last| host_of_key(&last.location) == host_of_key(&input.location))
        };
        match all.last_mut() {
            Some(last) if is_of(last) || (last.len() < CHUNK && bytes.saturating_add(input.size) <= CHUNK_BYTES) => {
                bytes = bytes.saturating_add(input.size);
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
struct Fetched {
    meta: ObjectMeta,
    /// Its key below the fleet's prefix.
    key: String,
    content: Content,
}

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
    let fetched: Vec<Fetched> = fetching.try_collect().await?;
    let schema = SchemaRef::clone(schema);
    let decoding = tokio::task::spawn_blocking(move || decoded(fetched, &schema));
    decoding.await.map_err(|error| FleetError::Encode(error.to_string()))?
}

async fn fetch(fleet: &Fleet, meta: ObjectMeta) -> Result<Fetched, FleetError> {
    let key = fleet.relative(&meta.location);
    if meta.size > input::BYTES_MAX {
        return Ok(Fetched { meta, key, content: Content::TooLarge });
    }
    let content = match fleet.store.get(&meta.location).await? {
        GetResult { payload: GetResultPayload::File(file, path), .. } => Content::File(file, path),
        other => Content::Bytes(other.bytes().await?),
    };
    Ok(Fetched { meta, key, content })
}

fn decoded(fetched: Vec<Fetched>, schema: &SchemaRef) -> Result<(RecordBatch, Vec<(ObjectMeta, Counted)>), FleetError> {
    let mut batches = Vec::with_capacity(fetched.len());
    let mut inputs = Vec::with_capacity(fetched.len());
    let (mut host, mut host_bytes) = (String::new(), 0_u64);
    for Fetched { meta, key, content } in fetched {
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
        let of = host_of_key(&meta.location);
        if of != host {
            (host, host_bytes) = (of, 0);
        }
        let counted =
            bytes.and_then(|bytes| input::guarded(|| checked(&meta, &key, bytes, schema))).and_then(|(name, rows)| {
                let memory = rows.iter().map(|batch| batch.get_array_memory_size() as u64).sum::<u64>();
                host_bytes = host_bytes.saturating_add(memory);
                if host_bytes > HOST_BYTES_MAX {
                    let most = HOST_BYTES_MAX >> 20;
                    let exactly = format!("{}: more than {most} MiB in one hour", name.0);
                    return Err(Refused { why: Why::Excess, exactly });
                }
                let count = rows.iter().map(RecordBatch::num_rows).sum();
                batches.extend(rows);
                Ok((name, count))
            });
        inputs.push((meta, counted));
    }
    Ok((concat_batches(schema, &batches)?, inputs))
}

fn damaged(exactly: impl Into<String>) -> Refused {
    Refused { why: Why::Damaged, exactly: exactly.into() }
}

/// The rows of one input. All must belong to the summary, hour and shard that its key names.
fn checked(
    meta: &ObjectMeta,
    key: &str,
    bytes: Bytes,
    schema: &SchemaRef,
) -> Result<(Name, Vec<RecordBatch>), Refused> {
    let batches = input::batches_of_hour(bytes)?;
    let first = batches.iter().find(|batch| batch.num_rows() > 0);
    let row = first.and_then(|batch| SummaryRow::decode(&batch.slice(0, 1)).pop());
    let row: SummaryRow = row.ok_or_else(|| damaged("it has no rows"))?;
    let name = (row.host.clone(), row.boot.clone(), row.sequence);
    let mut is_one = is_key_of(key, &row);
    for batch in &batches {
        names(batch, |other| is_one &= other == name).map_err(|error| damaged(error.to_string()))?;
    }
    if !is_one {
        return Err(damaged("its rows belong to another summary, hour or shard than its key"));
    }
    input::check_measures(&batches, row.hour_start.is_some())?;
    input::check_clock(&row, meta.last_modified)?;
    let batches = as_now(&batches, schema).map_err(|error| damaged(error.to_string()))?;
    batches.iter().try_for_each(input::check_texts)?;
    check_rows(&batches, &row)?;
    Ok((name, batches))
}

/// Whether all rows are of the first one's hour, exactly one is of the hour itself, and they name no recording of
/// another host.
fn check_rows(batches: &[RecordBatch], first: &SummaryRow) -> Result<(), Refused> {
    let start_us = first.hour_start.map(|hour| hour.epoch_s().saturating_mul(1_000_000));
    let mut of_hour = 0;
    for batch in batches {
        let get = |name, kind: &DataType| column(batch, name, kind).map_err(|error| damaged(error.to_string()));
        let hours = get("hour_start", &DataType::Timestamp(TimeUnit::Microsecond, None))?;
        if hours.as_primitive::<TimestampMicrosecondType>().iter().any(|hour| hour != start_us) {
            return Err(damaged("its rows belong to another hour than its key"));
        }
        of_hour += get("cause", &DataType::Utf8)?.null_count();
        let recordings = get("recording", &DataType::Utf8)?;
        if !recordings.as_string::<i32>().iter().flatten().all(|place| is_recording_of(place, first)) {
            return Err(damaged("it names a recording that is not its own"));
        }
    }
    if of_hour != 1 {
        return Err(damaged(format!("it has {of_hour} rows for the hour itself, not one")));
    }
    Ok(())
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

/// Calls `take` with the host of each row and the approximate size of the row.
pub(super) fn host_bytes(batch: &RecordBatch, mut take: impl FnMut(&str, u64)) -> Result<(), FleetError> {
    let hosts = column(batch, "host", &DataType::Utf8)?;
    let hosts = hosts.as_string::<i32>();
    let texts: Vec<_> = batch.columns().iter().filter_map(|column| column.as_string_opt::<i32>()).collect();
    let others = 8 * (batch.num_columns() - texts.len()) as u64;
    for row in 0..batch.num_rows() {
        let text: u64 = texts.iter().map(|text| u64::from(text.value_length(row).unsigned_abs())).sum();
        take(if hosts.is_valid(row) { hosts.value(row) } else { "" }, text + others);
    }
    Ok(())
}

/// Batches with the current columns; an older flatwater wrote fewer.
pub(super) fn as_now(batches: &[RecordBatch], schema: &SchemaRef) -> Result<Vec<RecordBatch>, FleetError> {
    let each = batches.iter().map(|batch| {
        if batch.schema_ref().fields() == schema.fields() {
            Ok(RecordBatch::try_new(SchemaRef::clone(schema), batch.columns().to_vec())?)
        } else {
            Ok(SummaryRow::encode(&SummaryRow::decode(batch))?)
        }
    });
    each.collect()
}
