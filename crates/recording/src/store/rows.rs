//! Structs <-> Arrow batches for `latency`, `stacks`, `events` and `gaps`. Calls and sampled tables have modules of
//! their own.
//!
//! Decoding never fails as a whole: columns are found by name, and a column that is absent or has another type is read
//! as nulls, so that older and newer recordings can be opened.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::types::{ArrowPrimitiveType, Int64Type, TimestampMicrosecondType, UInt32Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, ListArray, PrimitiveArray, RecordBatch, StringArray,
    StringViewArray, StructArray, UInt32Array, UInt64Array,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};

use super::flat::{FlatRows, FlatTable};
use super::{TableError, TableFile, calls, sampled};
use crate::{Call, Event, EventKind, Gap, LatencyBucket, OpKind, PackedHistogram, Series, Stack, StackId};

/// Rows that are being written to a table.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rows<'a> {
    Latency(&'a [LatencyBucket]),
    Calls(&'a [Call]),
    Stacks(&'a [Stack]),
    Events(&'a [Event]),
    Gaps(&'a [Gap]),
    /// Rows `from` to `from + count` of a plain table.
    Flat {
        table: FlatTable,
        rows: &'a dyn FlatRows,
        from: usize,
        count: usize,
    },
    Sampled(&'a Series),
}

impl<'a> Rows<'a> {
    /// All rows of a plain table.
    pub(super) fn flat(table: FlatTable, rows: &'a dyn FlatRows) -> Rows<'a> {
        Rows::Flat { table, rows, from: 0, count: rows.len() }
    }

    pub(super) fn file(self) -> TableFile {
        match self {
            Rows::Latency(_) => TableFile::Latency,
            Rows::Calls(_) => TableFile::Calls,
            Rows::Stacks(_) => TableFile::Stacks,
            Rows::Events(_) => TableFile::Events,
            Rows::Gaps(_) => TableFile::Gaps,
            Rows::Flat { table, .. } => TableFile::Flat(table),
            Rows::Sampled(series) => TableFile::Sampled(series.table),
        }
    }

    pub(super) fn len(self) -> usize {
        match self {
            Rows::Latency(rows) => rows.len(),
            Rows::Calls(rows) => rows.len(),
            Rows::Stacks(rows) => rows.len(),
            Rows::Events(rows) => rows.len(),
            Rows::Gaps(rows) => rows.len(),
            Rows::Flat { count, .. } => count,
            Rows::Sampled(series) => series.len(),
        }
    }

    /// `count` of these rows, beginning at `from`.
    pub(super) fn slice(self, from: usize, count: usize) -> Self {
        fn part<T>(rows: &[T], from: usize, count: usize) -> &[T] {
            let rest = rows.get(from..).unwrap_or_default();
            rest.get(..count).unwrap_or(rest)
        }
        match self {
            Rows::Latency(rows) => Rows::Latency(part(rows, from, count)),
            Rows::Calls(rows) => Rows::Calls(part(rows, from, count)),
            Rows::Stacks(rows) => Rows::Stacks(part(rows, from, count)),
            Rows::Events(rows) => Rows::Events(part(rows, from, count)),
            Rows::Gaps(rows) => Rows::Gaps(part(rows, from, count)),
            Rows::Flat { table, rows, from: first, count: all } => {
                let from = from.min(all);
                Rows::Flat { table, rows, from: first + from, count: count.min(all - from) }
            }
            Rows::Sampled(_) => self,
        }
    }

    /// `known` is the schema of earlier rows, which is reused if it fits.
    pub(super) fn encode(self, known: Option<&SchemaRef>) -> Result<RecordBatch, ArrowError> {
        match self {
            Rows::Latency(rows) => encode_latency(rows),
            Rows::Calls(rows) => calls::encode(rows),
            Rows::Stacks(rows) => encode_stacks(rows),
            Rows::Events(rows) => encode_events(rows),
            Rows::Gaps(rows) => encode_gaps(rows),
            Rows::Flat { rows, from, count, .. } => rows.encode(from, count),
            Rows::Sampled(series) => sampled::encode(series, known),
        }
    }
}

/// How many bytes may still be decoded, for one table and for the recording. Rows are charged with their size in
/// memory before they are kept.
#[derive(Debug)]
pub(super) struct Allowance<'a> {
    table_max: u64,
    table: AtomicU64,
    whole: &'a AtomicU64,
}

impl<'a> Allowance<'a> {
    pub(super) fn new(table_max: u64, whole: &'a AtomicU64) -> Allowance<'a> {
        Allowance { table_max, table: AtomicU64::new(table_max), whole }
    }

    pub(super) fn take(&self, bytes: usize) -> Result<(), TableError> {
        let take = |from: &AtomicU64| {
            let less = |left: u64| left.checked_sub(bytes as u64);
            from.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
        };
        if take(&self.table) && take(self.whole) {
            return Ok(());
        }
        Err(TableError::TooLarge { limit_bytes: self.table_max })
    }
}

/// Columns by name: of a batch, or fields of a struct.
#[derive(Clone, Copy)]
pub(super) enum Columns<'a> {
    Batch(&'a RecordBatch),
    Struct(&'a StructArray),
}

impl<'a> Columns<'a> {
    fn any(self, name: &str) -> Option<&'a dyn Array> {
        let column = match self {
            Columns::Batch(batch) => batch.column_by_name(name),
            Columns::Struct(fields) => fields.column_by_name(name),
        };
        Some(column?.as_ref())
    }

    fn typed<A: Array + 'static>(self, name: &str) -> Option<&'a A> {
        self.any(name)?.as_any().downcast_ref::<A>()
    }

    pub(super) fn u64(self, name: &str) -> Numbers<'a, UInt64Type> {
        Numbers::new(self.typed(name))
    }

    pub(super) fn u32(self, name: &str) -> Numbers<'a, UInt32Type> {
        Numbers::new(self.typed(name))
    }

    pub(super) fn i64(self, name: &str) -> Numbers<'a, Int64Type> {
        Numbers::new(self.typed(name))
    }

    pub(super) fn micros(self, name: &str) -> Numbers<'a, TimestampMicrosecondType> {
        Numbers::new(self.typed(name))
    }

    pub(super) fn flag(self, name: &str) -> Flags<'a> {
        Flags(self.typed(name))
    }

    pub(super) fn text(self, name: &str) -> Texts<'a> {
        self.any(name).map_or(Texts::None, Texts::of)
    }

    fn blob(self, name: &str) -> Blobs<'a> {
        self.any(name).map_or(Blobs::None, Blobs::of)
    }

    pub(super) fn list(self, name: &str) -> Option<&'a ListArray> {
        self.typed(name)
    }
}

fn present<A: Array>(array: Option<&A>, row: usize) -> Option<&A> {
    array.filter(|array| row < array.len() && array.is_valid(row))
}

pub(super) struct Numbers<'a, T: ArrowPrimitiveType> {
    array: Option<&'a PrimitiveArray<T>>,
    /// All values if none is null, as in most columns: a fast path for millions of reads.
    whole: &'a [T::Native],
}

impl<'a, T: ArrowPrimitiveType> Numbers<'a, T> {
    fn new(array: Option<&'a PrimitiveArray<T>>) -> Numbers<'a, T> {
        let whole = array.filter(|array| array.null_count() == 0).map_or(&[][..], |array| array.values());
        Numbers { array, whole }
    }

    #[inline]
    pub(super) fn get(&self, row: usize) -> Option<T::Native> {
        match self.whole.get(row) {
            Some(value) => Some(*value),
            None => present(self.array, row).map(|array| array.value(row)),
        }
    }

    pub(super) fn or_default(&self, row: usize) -> T::Native {
        self.get(row).unwrap_or_default()
    }

    pub(super) fn is_there(&self) -> bool {
        self.array.is_some()
    }
}

#[derive(Clone, Copy)]
pub(super) struct Flags<'a>(Option<&'a BooleanArray>);

impl Flags<'_> {
    pub(super) fn get(self, row: usize) -> Option<bool> {
        present(self.0, row).map(|array| array.value(row))
    }
}

#[derive(Clone, Copy)]
pub(super) enum Texts<'a> {
    None,
    /// From frames.
    Plain(&'a StringArray),
    /// From Parquet.
    Views(&'a StringViewArray),
}

impl<'a> Texts<'a> {
    pub(super) fn of(array: &'a dyn Array) -> Texts<'a> {
        match (array.as_any().downcast_ref(), array.as_any().downcast_ref()) {
            (Some(plain), _) => Texts::Plain(plain),
            (_, Some(views)) => Texts::Views(views),
            _ => Texts::None,
        }
    }

    pub(super) fn get(self, row: usize) -> Option<&'a str> {
        match self {
            Texts::None => None,
            Texts::Plain(array) => present(Some(array), row).map(|array| array.value(row)),
            Texts::Views(array) => present(Some(array), row).map(|array| array.value(row)),
        }
    }

    /// The text, or `""` if there is none.
    pub(super) fn or_empty(self, row: usize) -> &'a str {
        self.get(row).unwrap_or_default()
    }
}

/// Maximum length of a name in bytes: four times PATH_MAX, because C++ symbols may be longer than paths.
pub(super) const NAME_BYTES_MAX: usize = 16 << 10;

/// Fails if a name in the columns is longer than `NAME_BYTES_MAX`. Readers compare and copy names for each row.
pub(super) fn check_names(batch: &RecordBatch) -> Result<(), TableError> {
    if batch.columns().iter().any(|column| has_long_name(column.as_ref())) {
        return Err(TableError::damaged(format!("a name of more than {NAME_BYTES_MAX} bytes")));
    }
    Ok(())
}

fn has_long_name(array: &dyn Array) -> bool {
    let any = array.as_any();
    if let Some(texts) = any.downcast_ref::<StringViewArray>() {
        texts.lengths().any(|bytes| bytes as usize > NAME_BYTES_MAX)
    } else if let Some(texts) = any.downcast_ref::<StringArray>() {
        (0..texts.len()).any(|row| usize::try_from(texts.value_length(row)).unwrap_or(0) > NAME_BYTES_MAX)
    } else if let Some(fields) = any.downcast_ref::<StructArray>() {
        fields.columns().iter().any(|column| has_long_name(column.as_ref()))
    } else if let Some(lists) = any.downcast_ref::<ListArray>() {
        has_long_name(lists.values().as_ref())
    } else {
        false
    }
}

/// Decodes words of a column into values, with a cache. A million rows contain a cause, but there are only thirty
/// causes: recent values are cached by the view of the text, which is the same for all rows that refer to the same
/// word of a page.
pub(super) struct Meanings<'a, T> {
    texts: Texts<'a>,
    of: fn(&str) -> T,
    known: [Cell<Option<(u128, T)>>; MEANINGS],
}

const MEANINGS: usize = 64;

impl<'a, T: Copy> Meanings<'a, T> {
    pub(super) fn new(texts: Texts<'a>, of: fn(&str) -> T) -> Meanings<'a, T> {
        Meanings { texts, of, known: [const { Cell::new(None) }; MEANINGS] }
    }

    /// The value of this row; a missing word is decoded as `""`.
    #[inline]
    pub(super) fn get(&self, row: usize) -> T {
        let view = match self.texts {
            Texts::Views(array) => array.views().get(row).copied().filter(|_| array.is_valid(row)),
            Texts::None | Texts::Plain(_) => None,
        };
        let Some(view) = view else { return (self.of)(self.texts.or_empty(row)) };
        // The view contains the length, the first bytes, and the last bytes or the place in the page: enough to
        // distinguish thirty words.
        let mixed = (view ^ (view >> 64)) as u64;
        let place = (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize;
        let Some(cell) = self.known.get(place) else { return (self.of)(self.texts.or_empty(row)) };
        match cell.get() {
            Some((known, meaning)) if known == view => meaning,
            _ => {
                let meaning = (self.of)(self.texts.or_empty(row));
                cell.set(Some((view, meaning)));
                meaning
            }
        }
    }
}

#[derive(Clone, Copy)]
pub(super) enum Blobs<'a> {
    None,
    Plain(&'a BinaryArray),
    Views(&'a BinaryViewArray),
}

impl<'a> Blobs<'a> {
    fn of(array: &'a dyn Array) -> Blobs<'a> {
        match (array.as_any().downcast_ref(), array.as_any().downcast_ref()) {
            (Some(plain), _) => Blobs::Plain(plain),
            (_, Some(views)) => Blobs::Views(views),
            _ => Blobs::None,
        }
    }

    fn get(self, row: usize) -> Option<&'a [u8]> {
        match self {
            Blobs::None => None,
            Blobs::Plain(array) => present(Some(array), row).map(|array| array.value(row)),
            Blobs::Views(array) => present(Some(array), row).map(|array| array.value(row)),
        }
    }
}

fn latency_schema() -> Schema {
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

pub(super) fn encode_latency(buckets: &[LatencyBucket]) -> Result<RecordBatch, ArrowError> {
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
    RecordBatch::try_new(Arc::new(latency_schema()), columns)
}

pub(super) fn decode_latency(
    batch: &RecordBatch,
    into: &mut Vec<LatencyBucket>,
    allowance: &Allowance<'_>,
) -> Result<(), TableError> {
    let columns = Columns::Batch(batch);
    let (start_ns, width_ns, bytes) = (columns.u64("start_ns"), columns.u64("width_ns"), columns.u64("bytes"));
    let (op, thread) = (columns.text("op"), columns.text("thread"));
    let (worst, worst_due) = (columns.u64("worst_from_start_ns"), columns.u64("worst_from_due_ns"));
    let (from_start, from_due) = (columns.blob("from_start"), columns.blob("from_due"));
    let mut refused = None;
    for row in 0..batch.num_rows() {
        let packed = from_start.get(row).map_or(0, <[u8]>::len) + from_due.get(row).map_or(0, <[u8]>::len);
        allowance.take(size_of::<LatencyBucket>() + packed + thread.or_empty(row).len())?;
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
            Ok((None, _)) => refused = Some(TableError::damaged("a bucket without a histogram")),
            Err(error) => refused = Some(TableError::Damaged(error.to_string())),
        }
    }
    refused.map_or(Ok(()), Err)
}

fn frame_field() -> Arc<Field> {
    Arc::new(Field::new("item", DataType::Utf8, false))
}

fn stacks_schema() -> Schema {
    Schema::new(vec![
        Field::new("id", DataType::UInt32, false),
        Field::new("frames", DataType::List(frame_field()), false),
    ])
}

pub(super) fn encode_stacks(stacks: &[Stack]) -> Result<RecordBatch, ArrowError> {
    let names =
        StringArray::from(stacks.iter().flat_map(|stack| &stack.frames).map(String::as_str).collect::<Vec<_>>());
    let offsets = OffsetBuffer::from_lengths(stacks.iter().map(|stack| stack.frames.len()));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(UInt32Array::from_iter_values(stacks.iter().map(|stack| stack.id.0))),
        Arc::new(ListArray::try_new(frame_field(), offsets, Arc::new(names), None)?),
    ];
    RecordBatch::try_new(Arc::new(stacks_schema()), columns)
}

pub(super) fn decode_stacks(
    batch: &RecordBatch,
    into: &mut Vec<Stack>,
    allowance: &Allowance<'_>,
) -> Result<(), TableError> {
    let columns = Columns::Batch(batch);
    let id = columns.u32("id");
    let list = columns.list("frames").ok_or_else(|| TableError::damaged("stacks without frames"))?;
    let names = Texts::of(list.values().as_ref());
    for row in 0..batch.num_rows() {
        let (Some(id), Some(&[from, to])) = (id.get(row), list.value_offsets().get(row..row + 2)) else { continue };
        let rows = usize::try_from(from).unwrap_or(0)..usize::try_from(to).unwrap_or(0);
        let text: usize = rows.clone().map(|row| size_of::<String>() + names.or_empty(row).len()).sum();
        allowance.take(size_of::<Stack>() + text)?;
        into.push(Stack { id: StackId(id), frames: rows.map(|row| names.or_empty(row).to_owned()).collect() });
    }
    Ok(())
}

fn events_schema() -> Schema {
    Schema::new(vec![
        Field::new("at_ns", DataType::UInt64, false),
        Field::new("kind", DataType::Utf8, false),
        Field::new("text", DataType::Utf8, false),
    ])
}

pub(super) fn encode_events(events: &[Event]) -> Result<RecordBatch, ArrowError> {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(UInt64Array::from_iter_values(events.iter().map(|event| event.at_ns))),
        Arc::new(StringArray::from_iter_values(events.iter().map(|event| event.kind.name()))),
        Arc::new(StringArray::from_iter_values(events.iter().map(|event| event.kind.to_string()))),
    ];
    RecordBatch::try_new(Arc::new(events_schema()), columns)
}

pub(super) fn decode_events(
    batch: &RecordBatch,
    into: &mut Vec<Event>,
    allowance: &Allowance<'_>,
) -> Result<(), TableError> {
    let columns = Columns::Batch(batch);
    let (at_ns, kind, text) = (columns.u64("at_ns"), columns.text("kind"), columns.text("text"));
    for row in 0..batch.num_rows() {
        allowance.take(size_of::<Event>() + text.or_empty(row).len())?;
        let kind = EventKind::read(kind.or_empty(row), text.or_empty(row));
        into.push(Event::new(at_ns.or_default(row), kind));
    }
    Ok(())
}

fn gaps_schema() -> Schema {
    Schema::new(vec![
        Field::new("what", DataType::Utf8, false),
        Field::new("why", DataType::Utf8, false),
        Field::new("remedy", DataType::Utf8, false),
        Field::new("at_ns", DataType::UInt64, true),
    ])
}

pub(super) fn encode_gaps(gaps: &[Gap]) -> Result<RecordBatch, ArrowError> {
    let texts = |of: fn(&Gap) -> &String| Arc::new(StringArray::from_iter_values(gaps.iter().map(of))) as ArrayRef;
    let columns: Vec<ArrayRef> = vec![
        texts(|gap| &gap.what),
        texts(|gap| &gap.why),
        texts(|gap| &gap.remedy),
        Arc::new(gaps.iter().map(|gap| gap.at_ns).collect::<UInt64Array>()),
    ];
    RecordBatch::try_new(Arc::new(gaps_schema()), columns)
}

pub(super) fn decode_gaps(
    batch: &RecordBatch,
    into: &mut Vec<Gap>,
    allowance: &Allowance<'_>,
) -> Result<(), TableError> {
    let columns = Columns::Batch(batch);
    let (what, why, remedy) = (columns.text("what"), columns.text("why"), columns.text("remedy"));
    let at_ns = columns.u64("at_ns");
    for row in 0..batch.num_rows() {
        let text = what.or_empty(row).len() + why.or_empty(row).len() + remedy.or_empty(row).len();
        allowance.take(size_of::<Gap>() + text)?;
        let gap = Gap::new(what.or_empty(row), why.or_empty(row), remedy.or_empty(row));
        into.push(Gap { at_ns: at_ns.get(row), ..gap });
    }
    Ok(())
}

/// The known columns of a table; `None` for sampled tables, whose columns the kernel determines.
pub(super) fn schema_of(table: TableFile) -> Option<Schema> {
    Some(match table {
        TableFile::Latency => latency_schema(),
        TableFile::Calls => calls::schema(),
        TableFile::Stacks => stacks_schema(),
        TableFile::Events => events_schema(),
        TableFile::Gaps => gaps_schema(),
        TableFile::Flat(table) => table.schema(),
        TableFile::Sampled(_) => return None,
    })
}
