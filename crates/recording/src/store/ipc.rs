//! Arrow IPC messages in the payload of frames. The payloads of a file, one behind the other, are a plain
//! Arrow stream.
//!
//! The Arrow crate trusts the lengths that it finds in a message's metadata (a buffer beyond the body panics),
//! so everything is checked against the body here before it sees any of it.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::convert::fb_to_schema;
use arrow_ipc::reader::RecordBatchDecoder;
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions, write_message};
use arrow_ipc::{Field, MessageHeader, MetadataVersion, Type, root_as_message};
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};

/// More fields than any kernel has counters.
const FIELDS_MAX: usize = 20_000;
const DEPTH_MAX: usize = 3;
/// More rows than a frame of 64 MiB can say anything about.
const ROWS_MAX: i64 = 1 << 26;

/// What a payload holds.
#[derive(Debug)]
pub(super) enum Message {
    Schema(SchemaRef),
    Batch(RecordBatch),
}

fn options() -> IpcWriteOptions {
    // 8 is the smallest alignment that Arrow takes; its default of 64 would double batches of ten rows.
    IpcWriteOptions::try_new(8, false, MetadataVersion::V5).unwrap_or_default()
}

pub(super) fn encode_schema(schema: &Schema) -> Result<Vec<u8>, ArrowError> {
    let options = options();
    let encoded = IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(
        schema,
        &mut DictionaryTracker::new(true),
        &options,
    );
    let mut bytes = Vec::new();
    write_message(&mut bytes, encoded, &options)?;
    Ok(bytes)
}

pub(super) fn encode_batch(batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
    let options = options();
    let mut tracker = DictionaryTracker::new(true);
    let (_, encoded) =
        IpcDataGenerator::default().encode(batch, &mut tracker, &options, &mut IpcWriteContext::default())?;
    let mut bytes = Vec::new();
    write_message(&mut bytes, encoded, &options)?;
    Ok(bytes)
}

/// Reads a payload; batches need the schema that came before.
pub(super) fn decode(payload: &[u8], schema: Option<&SchemaRef>) -> Result<Message, String> {
    let (metadata, body) = split(payload).ok_or("no Arrow message")?;
    let message = root_as_message(metadata).map_err(|error| format!("bad metadata: {error}"))?;
    match message.header_type() {
        MessageHeader::Schema => {
            let schema = message.header_as_schema().ok_or("no schema")?;
            let fields = schema.fields().ok_or("no fields")?;
            let known = fields.len() <= FIELDS_MAX && fields.iter().all(|field| is_known(&field, 0));
            // Dictionaries would need messages of their own; our writer has none.
            if !known {
                return Err("columns of types that no recording has".to_owned());
            }
            Ok(Message::Schema(Arc::new(fb_to_schema(schema))))
        }
        MessageHeader::RecordBatch => {
            let batch = message.header_as_record_batch().ok_or("no batch")?;
            let schema = schema.ok_or("rows without their schema")?;
            check(&batch, schema, body.len())?;
            let body = Buffer::from(body);
            let none = HashMap::new();
            let decoded = || {
                RecordBatchDecoder::try_new(&body, batch, Arc::clone(schema), &none, &MetadataVersion::V5)
                    .and_then(RecordBatchDecoder::read_record_batch)
                    .map(Message::Batch)
                    .map_err(|error| error.to_string())
            };
            // The checks above are for what we know to panic in there; a recording may come from anyone.
            catch_unwind(AssertUnwindSafe(decoded))
                .unwrap_or_else(|_| Err("contents that contradict themselves".to_owned()))
        }
        other => Err(format!("an Arrow message of the kind {other:?}")),
    }
}

/// Metadata and body of an encapsulated message.
fn split(payload: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = payload.strip_prefix(&[0xff; 4])?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}

fn is_known(field: &Field<'_>, depth: usize) -> bool {
    let children = || field.children().into_iter().flatten().collect::<Vec<_>>();
    let known = match field.type_type() {
        Type::Int => field.type_as_int().is_some_and(|int| matches!(int.bitWidth(), 8 | 16 | 32 | 64)),
        Type::Utf8 | Type::Binary | Type::Bool => true,
        Type::List => children().len() == 1 && depth < DEPTH_MAX,
        Type::Struct_ => depth < DEPTH_MAX && children().len() <= FIELDS_MAX,
        _ => false,
    };
    let named = field.name().is_some() && field.dictionary().is_none();
    known && named && children().iter().all(|child| depth < DEPTH_MAX && is_known(child, depth + 1))
}

fn check(batch: &arrow_ipc::RecordBatch<'_>, schema: &SchemaRef, body_bytes: usize) -> Result<(), String> {
    let nodes = batch.nodes().ok_or("no nodes")?;
    let buffers = batch.buffers().ok_or("no buffers")?;
    let (mut nodes_wanted, mut widths) = (0, Vec::new());
    for field in schema.fields() {
        parts_of(field.data_type(), &mut nodes_wanted, &mut widths);
    }
    if nodes.len() != nodes_wanted || buffers.len() != widths.len() || batch.compression().is_some() {
        return Err("a batch that does not fit its schema".to_owned());
    }
    let length_ok = |length: i64| (0..=ROWS_MAX).contains(&length);
    if !length_ok(batch.length())
        || !nodes.iter().all(|node| length_ok(node.length()) && (0..=node.length()).contains(&node.null_count()))
    {
        return Err("an impossible number of rows".to_owned());
    }
    let inside = |offset: i64, length: i64| {
        let end = offset.checked_add(length);
        offset >= 0
            && length >= 0
            && end.is_some_and(|end| u64::try_from(end).is_ok_and(|end| end <= body_bytes as u64))
    };
    // Half a number at a buffer's end panics when Arrow looks at it as numbers.
    if buffers.iter().zip(&widths).any(|(buffer, width)| buffer.length() % width != 0) {
        return Err("a column that ends within a number".to_owned());
    }
    if !buffers.iter().all(|buffer| inside(buffer.offset(), buffer.length())) {
        return Err("a column beyond the end of its frame".to_owned());
    }
    Ok(())
}

/// Counts the nodes that a column of this type takes in a batch, and lists its buffers by the width of their values.
fn parts_of(data_type: &DataType, nodes: &mut usize, widths: &mut Vec<i64>) {
    *nodes += 1;
    widths.push(1);
    match data_type {
        DataType::Utf8 | DataType::Binary => widths.extend([4, 1]),
        DataType::List(item) => {
            widths.push(4);
            parts_of(item.data_type(), nodes, widths);
        }
        DataType::Struct(fields) => fields.iter().for_each(|field| parts_of(field.data_type(), nodes, widths)),
        other => widths.push(other.primitive_width().and_then(|width| i64::try_from(width).ok()).unwrap_or(1)),
    }
}
