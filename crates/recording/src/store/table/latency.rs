//! `latency`: one row per bucket of time, operation and thread, with HDR histograms in V2 bytes.

use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, RecordBatch, StringArray, UInt64Array};
use arrow_schema::{ArrowError, DataType, Field, Schema};

use super::super::super::{LatencyBucket, OpKind, PackedHistogram};
use super::column::Columns;

fn schema() -> Schema {
    Schema::new(vec![
        Field::new("start_ns", DataType::UInt64, false),
        Field::new("width_ns", DataType::UInt64, false),
        Field::new("op", DataType::Utf8, false),
        Field::new("thread", DataType::Utf8, false),
        Field::new("count", DataType::UInt64, false),
        Field::new("bytes", DataType::UInt64, false),
        Field::new("worst_from_start_ns", DataType::UInt64, false),
        Field::new("worst_from_due_ns", DataType::UInt64, true),
        Field::new("from_start", DataType::Binary, false),
        Field::new("from_due", DataType::Binary, true),
    ])
}

pub(in super::super) fn encode(buckets: &[LatencyBucket]) -> Result<RecordBatch, ArrowError> {
    let u64s =
        |of: fn(&LatencyBucket) -> u64| Arc::new(UInt64Array::from_iter_values(buckets.iter().map(of))) as ArrayRef;
    let from_due = buckets.iter().map(|bucket| bucket.from_due.as_ref().map(PackedHistogram::to_v2_bytes));
    let columns: Vec<ArrayRef> = vec![
        u64s(|bucket| bucket.start_ns),
        u64s(|bucket| bucket.width_ns),
        Arc::new(StringArray::from_iter_values(buckets.iter().map(|bucket| bucket.op.name()))),
        Arc::new(StringArray::from_iter_values(buckets.iter().map(|bucket| &bucket.thread))),
        u64s(|bucket| bucket.from_start.count()),
        u64s(|bucket| bucket.bytes),
        u64s(|bucket| bucket.worst_from_start_ns),
        Arc::new(buckets.iter().map(|bucket| bucket.worst_from_due_ns).collect::<UInt64Array>()),
        Arc::new(BinaryArray::from_iter_values(buckets.iter().map(|bucket| bucket.from_start.to_v2_bytes()))),
        Arc::new(from_due.collect::<BinaryArray>()),
    ];
    RecordBatch::try_new(Arc::new(schema()), columns)
}

pub(in super::super) fn decode(batch: &RecordBatch, into: &mut Vec<LatencyBucket>) -> Result<(), String> {
    let columns = Columns::Batch(batch);
    let (start_ns, width_ns, bytes) = (columns.u64("start_ns"), columns.u64("width_ns"), columns.u64("bytes"));
    let (op, thread) = (columns.text("op"), columns.text("thread"));
    let (worst, worst_due) = (columns.u64("worst_from_start_ns"), columns.u64("worst_from_due_ns"));
    let (from_start, from_due) = (columns.bytes("from_start"), columns.bytes("from_due"));
    let mut refused = None;
    for row in 0..batch.num_rows() {
        let histogram = |bytes: Option<&[u8]>| bytes.map(PackedHistogram::from_v2_bytes).transpose();
        let histograms = histogram(from_start.get(row)).and_then(|start| Ok((start, histogram(from_due.get(row))?)));
        match histograms {
            Ok((Some(start), due)) => into.push(LatencyBucket {
                start_ns: start_ns.or_default(row),
                width_ns: width_ns.or_default(row),
                op: op.get(row).and_then(OpKind::from_name).unwrap_or(OpKind::Other),
                thread: thread.or_empty(row).to_owned(),
                bytes: bytes.or_default(row),
                from_start: start,
                from_due: due,
                worst_from_start_ns: worst.or_default(row),
                worst_from_due_ns: worst_due.get(row),
            }),
            Ok((None, _)) => refused = Some("a bucket without a histogram".to_owned()),
            Err(error) => refused = Some(error.to_string()),
        }
    }
    refused.map_or(Ok(()), Err)
}
