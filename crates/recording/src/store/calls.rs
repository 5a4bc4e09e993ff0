//! The table `calls`: one row per slow call, with its segments as a list of structs.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BooleanArray, ListArray, RecordBatch, StringArray, StructArray, UInt32Array, UInt64Array,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema};

use super::TableError;
use super::rows::{Allowance, Columns, Meanings, Numbers};
use crate::{Basis, Call, Cause, CauseBasis, DurationBasis, OpKind, Segment, StackId};
use arrow_array::types::{UInt32Type, UInt64Type};

fn segment_fields() -> Fields {
    Fields::from(vec![
        Field::new("offset_ns", DataType::UInt64, false),
        Field::new("ns", DataType::UInt64, false),
        Field::new("cause", DataType::Utf8, false),
        Field::new("basis", DataType::Utf8, false),
        Field::new("cause_basis", DataType::Utf8, false),
        Field::new("stack", DataType::UInt32, true),
        Field::new("count", DataType::UInt32, false),
    ])
}

pub(super) fn schema() -> Schema {
    let item = Field::new("item", DataType::Struct(segment_fields()), false);
    Schema::new(vec![
        Field::new("pid", DataType::UInt32, false),
        Field::new("tid", DataType::UInt32, false),
        Field::new("thread", DataType::Utf8, false),
        Field::new("op", DataType::Utf8, false),
        Field::new("bytes", DataType::UInt64, true),
        Field::new("offset_bytes", DataType::UInt64, true),
        Field::new("file", DataType::Utf8, true),
        Field::new("due_ns", DataType::UInt64, true),
        Field::new("start_ns", DataType::UInt64, false),
        Field::new("duration_ns", DataType::UInt64, false),
        Field::new("after_exit_ns", DataType::UInt64, false),
        Field::new("damaged", DataType::Boolean, false),
        Field::new("still_under_way", DataType::Boolean, false),
        Field::new("errno", DataType::UInt32, true),
        Field::new("parts", DataType::List(Arc::new(item)), false),
    ])
}

pub(super) fn encode(calls: &[Call]) -> Result<RecordBatch, ArrowError> {
    let u32s = |of: fn(&Call) -> u32| Arc::new(UInt32Array::from_iter_values(calls.iter().map(of))) as ArrayRef;
    let u64s = |of: fn(&Call) -> u64| Arc::new(UInt64Array::from_iter_values(calls.iter().map(of))) as ArrayRef;
    let maybe = |of: fn(&Call) -> Option<u64>| Arc::new(calls.iter().map(of).collect::<UInt64Array>()) as ArrayRef;
    let flags = |of: fn(&Call) -> bool| Arc::new(calls.iter().map(of).map(Some).collect::<BooleanArray>()) as ArrayRef;
    let columns: Vec<ArrayRef> = vec![
        u32s(|call| call.pid),
        u32s(|call| call.tid),
        Arc::new(StringArray::from_iter_values(calls.iter().map(|call| &call.thread))),
        Arc::new(StringArray::from_iter_values(calls.iter().map(|call| call.op.name()))),
        maybe(|call| call.bytes),
        maybe(|call| call.offset_bytes),
        Arc::new(calls.iter().map(|call| call.file.as_deref()).collect::<StringArray>()),
        maybe(|call| call.due_ns),
        u64s(|call| call.start_ns),
        u64s(|call| call.duration_ns),
        u64s(|call| call.after_exit_ns),
        flags(|call| call.damaged),
        flags(|call| call.still_under_way),
        Arc::new(calls.iter().map(|call| call.errno).collect::<UInt32Array>()),
        Arc::new(encode_segments(calls)?),
    ];
    RecordBatch::try_new(Arc::new(schema()), columns)
}

fn encode_segments(calls: &[Call]) -> Result<ListArray, ArrowError> {
    let segments = || calls.iter().flat_map(|call| &call.segments);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(UInt64Array::from_iter_values(segments().map(|segment| segment.offset_ns))),
        Arc::new(UInt64Array::from_iter_values(segments().map(|segment| segment.ns))),
        Arc::new(StringArray::from(segments().map(|segment| segment.cause.name()).collect::<Vec<_>>())),
        Arc::new(StringArray::from(segments().map(|segment| basis_name(segment.duration_basis)).collect::<Vec<_>>())),
        Arc::new(StringArray::from(segments().map(|segment| segment.cause_basis.name()).collect::<Vec<_>>())),
        Arc::new(segments().map(|segment| segment.stack.map(|stack| stack.0)).collect::<UInt32Array>()),
        Arc::new(UInt32Array::from_iter_values(segments().map(|segment| segment.count))),
    ];
    let item = Arc::new(Field::new("item", DataType::Struct(segment_fields()), false));
    let offsets = OffsetBuffer::from_lengths(calls.iter().map(|call| call.segments.len()));
    ListArray::try_new(item, offsets, Arc::new(StructArray::try_new(segment_fields(), columns, None)?), None)
}

pub(super) fn decode(batch: &RecordBatch, into: &mut Vec<Call>, allowance: &Allowance<'_>) -> Result<(), TableError> {
    let columns = Columns::Batch(batch);
    let (pid, tid, thread, op) = (columns.u32("pid"), columns.u32("tid"), columns.text("thread"), columns.text("op"));
    let op = Meanings::new(op, |name| OpKind::from_name(name).unwrap_or(OpKind::Other));
    let (bytes, offset_bytes, file) = (columns.u64("bytes"), columns.u64("offset_bytes"), columns.text("file"));
    let (due_ns, after_exit_ns) = (columns.u64("due_ns"), columns.u64("after_exit_ns"));
    let (start_ns, duration_ns) = (columns.u64("start_ns"), columns.u64("duration_ns"));
    if !start_ns.is_there() || !duration_ns.is_there() {
        return Err(TableError::damaged("calls without start_ns and duration_ns"));
    }
    // `still_under_way` is new in 0.2; before, recordings omitted calls that had not returned.
    let (damaged, still_under_way) = (columns.flag("damaged"), columns.flag("still_under_way"));
    let errno = columns.u32("errno");
    let segments = SegmentColumns::of(columns.list("parts"));
    into.reserve(batch.num_rows());
    for row in 0..batch.num_rows() {
        let text = thread.or_empty(row).len() + file.or_empty(row).len();
        let segments_bytes =
            segments.as_ref().map_or(0, |segments| segments.range_of(row).len()) * size_of::<Segment>();
        allowance.take(size_of::<Call>() + text + segments_bytes)?;
        let mut call = Call {
            pid: pid.or_default(row),
            tid: tid.or_default(row),
            thread: thread.or_empty(row).to_owned(),
            op: op.get(row),
            bytes: bytes.get(row),
            offset_bytes: offset_bytes.get(row),
            file: file.get(row).map(str::to_owned),
            due_ns: due_ns.get(row),
            start_ns: start_ns.or_default(row),
            duration_ns: duration_ns.or_default(row),
            segments: segments.as_ref().map_or_else(Vec::new, |segments| segments.of_row(row)),
            after_exit_ns: after_exit_ns.or_default(row),
            damaged: damaged.get(row).unwrap_or(false),
            still_under_way: still_under_way.get(row).unwrap_or(false),
            errno: errno.get(row),
        };
        repair(&mut call);
        into.push(call);
    }
    Ok(())
}

struct SegmentColumns<'a> {
    list: &'a ListArray,
    offset_ns: Numbers<'a, UInt64Type>,
    ns: Numbers<'a, UInt64Type>,
    cause: Meanings<'a, Cause>,
    basis: Meanings<'a, Basis>,
    /// New in 0.2.
    cause_basis: Meanings<'a, Option<CauseBasis>>,
    stack: Numbers<'a, UInt32Type>,
    count: Numbers<'a, UInt32Type>,
}

impl<'a> SegmentColumns<'a> {
    fn of(list: Option<&'a ListArray>) -> Option<SegmentColumns<'a>> {
        let list = list?;
        let fields = Columns::Struct(list.values().as_any().downcast_ref::<StructArray>()?);
        Some(SegmentColumns {
            list,
            offset_ns: fields.u64("offset_ns"),
            ns: fields.u64("ns"),
            // An unknown name comes from a newer flatwater: keep the time, as unexplained.
            cause: Meanings::new(fields.text("cause"), |name| Cause::from_name(name).unwrap_or(Cause::Unexplained)),
            basis: Meanings::new(fields.text("basis"), basis_of),
            cause_basis: Meanings::new(fields.text("cause_basis"), CauseBasis::from_name),
            stack: fields.u32("stack"),
            count: fields.u32("count"),
        })
    }

    fn range_of(&self, row: usize) -> Range<usize> {
        let Some(&[from, to]) = self.list.value_offsets().get(row..row + 2) else { return 0..0 };
        usize::try_from(from).unwrap_or(0)..usize::try_from(to).unwrap_or(0)
    }

    fn of_row(&self, row: usize) -> Vec<Segment> {
        let segments = self.range_of(row).map(|row| {
            let (cause, basis) = (self.cause.get(row), self.basis.get(row));
            let cause_basis = self.cause_basis.get(row).unwrap_or_else(|| CauseBasis::of_basis(basis, cause));
            let (offset_ns, ns) = (self.offset_ns.or_default(row), self.ns.or_default(row));
            Segment::new(offset_ns, ns, cause, basis.into(), cause_basis)
                .with_stack(self.stack.get(row).map(StackId))
                .with_count(self.count.get(row).unwrap_or(1))
        });
        segments.collect()
    }
}

/// Name of a duration basis in the column `basis`, which keeps the names of 0.1 for readers of that version.
fn basis_name(duration: DurationBasis) -> &'static str {
    Basis::from(duration).name()
}

fn basis_of(name: &str) -> Basis {
    match name {
        "exact" => Basis::Exact,
        "sampled" => Basis::Sampled,
        _ => Basis::Inferred,
    }
}

/// Readers rely on segments that tile the call; segments that do not are replaced by one unexplained segment.
fn repair(call: &mut Call) {
    let sum = call.segments.iter().try_fold(0_u64, |at, segment| {
        let next = at.checked_add(segment.ns)?;
        (segment.offset_ns == at).then_some(next)
    });
    if sum != Some(call.duration_ns) {
        call.damaged = true;
        call.segments = vec![Segment::unexplained(call.duration_ns)];
    }
}
