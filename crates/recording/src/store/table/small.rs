//! `stacks`, `events` and `gaps`.

use std::sync::Arc;

use arrow_array::{ArrayRef, ListArray, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{ArrowError, DataType, Field, Schema};

use super::super::super::{Event, EventKind, Gap, Stack, StackId};
use super::column::{Columns, Texts};

pub(in super::super) fn encode_stacks(stacks: &[Stack]) -> Result<RecordBatch, ArrowError> {
    let frame = Arc::new(Field::new("item", DataType::Utf8, false));
    let schema = Schema::new(vec![
        Field::new("id", DataType::UInt32, false),
        Field::new("frames", DataType::List(Arc::clone(&frame)), false),
    ]);
    let names =
        StringArray::from(stacks.iter().flat_map(|stack| &stack.frames).map(String::as_str).collect::<Vec<_>>());
    let offsets = OffsetBuffer::from_lengths(stacks.iter().map(|stack| stack.frames.len()));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(UInt32Array::from_iter_values(stacks.iter().map(|stack| stack.id.0))),
        Arc::new(ListArray::try_new(frame, offsets, Arc::new(names), None)?),
    ];
    RecordBatch::try_new(Arc::new(schema), columns)
}

pub(in super::super) fn decode_stacks(batch: &RecordBatch, into: &mut Vec<Stack>) -> Result<(), String> {
    let columns = Columns::Batch(batch);
    let id = columns.u32("id");
    let list = columns.list("frames").ok_or("stacks without frames")?;
    let names = Texts::of(list.values().as_ref());
    for row in 0..batch.num_rows() {
        let (Some(id), Some(&[from, to])) = (id.get(row), list.value_offsets().get(row..row + 2)) else { continue };
        let rows = usize::try_from(from).unwrap_or(0)..usize::try_from(to).unwrap_or(0);
        into.push(Stack { id: StackId(id), frames: rows.map(|row| names.or_empty(row).to_owned()).collect() });
    }
    Ok(())
}

pub(in super::super) fn encode_events(events: &[Event]) -> Result<RecordBatch, ArrowError> {
    let schema = Schema::new(vec![
        Field::new("at_ns", DataType::UInt64, false),
        Field::new("kind", DataType::Utf8, false),
        Field::new("text", DataType::Utf8, false),
    ]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(UInt64Array::from_iter_values(events.iter().map(|event| event.at_ns))),
        Arc::new(StringArray::from_iter_values(events.iter().map(|event| event.kind.name()))),
        Arc::new(StringArray::from_iter_values(events.iter().map(|event| event.kind.to_string()))),
    ];
    RecordBatch::try_new(Arc::new(schema), columns)
}

pub(in super::super) fn decode_events(batch: &RecordBatch, into: &mut Vec<Event>) -> Result<(), String> {
    let columns = Columns::Batch(batch);
    let (at_ns, kind, text) = (columns.u64("at_ns"), columns.text("kind"), columns.text("text"));
    for row in 0..batch.num_rows() {
        let kind = EventKind::read(kind.or_empty(row), text.or_empty(row));
        into.push(Event::new(at_ns.or_default(row), kind));
    }
    Ok(())
}

pub(in super::super) fn encode_gaps(gaps: &[Gap]) -> Result<RecordBatch, ArrowError> {
    let schema = Schema::new(vec![
        Field::new("what", DataType::Utf8, false),
        Field::new("why", DataType::Utf8, false),
        Field::new("remedy", DataType::Utf8, false),
        Field::new("at_ns", DataType::UInt64, true),
    ]);
    let texts = |of: fn(&Gap) -> &String| Arc::new(StringArray::from_iter_values(gaps.iter().map(of))) as ArrayRef;
    let columns: Vec<ArrayRef> = vec![
        texts(|gap| &gap.what),
        texts(|gap| &gap.why),
        texts(|gap| &gap.remedy),
        Arc::new(gaps.iter().map(|gap| gap.at_ns).collect::<UInt64Array>()),
    ];
    RecordBatch::try_new(Arc::new(schema), columns)
}

pub(in super::super) fn decode_gaps(batch: &RecordBatch, into: &mut Vec<Gap>) -> Result<(), String> {
    let columns = Columns::Batch(batch);
    let (what, why, remedy) = (columns.text("what"), columns.text("why"), columns.text("remedy"));
    let at_ns = columns.u64("at_ns");
    for row in 0..batch.num_rows() {
        let gap = Gap::new(what.or_empty(row), why.or_empty(row), remedy.or_empty(row));
        into.push(Gap { at_ns: at_ns.get(row), ..gap });
    }
    Ok(())
}
