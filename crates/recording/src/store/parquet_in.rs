//! Reads untrusted Parquet files within limits.
//!
//! A file of some hundred KB can claim anything: pages that decompress to gigabytes, a dictionary with one long word
//! that a million rows refer to, lists of a billion entries in a run of three bytes. Therefore the bytes of a column
//! chunk are read once, every page header in them is checked here, and only data within the limits reaches the Parquet
//! crate. Text is read as views into the pages, so that a word shared by a million rows is stored once. If the crate
//! panics on remaining bad data, the table fails and not the program.

use std::collections::HashMap;
use std::fs::File;
use std::io::Cursor;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::basic::Type as Physical;
use parquet::column::reader::{get_column_reader, get_typed_column_reader};
use parquet::data_type::DataType as Leaf;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;

use super::error::TableError;

const ROWS_PER_BATCH: usize = 8_192;
/// More threads do not help: decoding is limited by memory as much as by the CPU.
const THREADS_MAX: usize = 4;
/// Upper bound for the memory that one byte of the file's footer takes.
const FOOTER_GROWTH: u64 = 32;
/// Pages of the writer have one MiB, or contain one longer value.
const PAGE_BYTES_MAX: u64 = 64 << 20;
/// "PAR1", and the length before it.
const TAIL_BYTES: u64 = 8;

/// A file, or parts of a file in memory. Offsets refer to the file.
#[derive(Clone, Debug)]
struct Source {
    file: Arc<File>,
    bytes: u64,
    /// Column chunks that were read and checked, by their start.
    chunks: Vec<(u64, Bytes)>,
}

impl Length for Source {
    fn len(&self) -> u64 {
        self.bytes
    }
}

impl ChunkReader for Source {
    type T = Cursor<Bytes>;

    fn get_read(&self, start: u64) -> ParquetResult<Cursor<Bytes>> {
        if self.chunks.is_empty() {
            // Only the last bytes of the file itself are requested in this way.
            let length = self.bytes.saturating_sub(start).min(TAIL_BYTES);
            return Ok(Cursor::new(self.read(start, length as usize)?));
        }
        let (from, chunk) = self.chunk_at(start)?;
        Ok(Cursor::new(chunk.slice(from..)))
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        if self.chunks.is_empty() {
            return Ok(self.read(start, length)?);
        }
        let (from, chunk) = self.chunk_at(start)?;
        match from.checked_add(length) {
            Some(end) if end <= chunk.len() => Ok(chunk.slice(from..end)),
            _ => Err(ParquetError::EOF("a page beyond the column's end".to_owned())),
        }
    }
}

impl Source {
    /// The chunk that contains this byte, and the byte's offset in the chunk.
    fn chunk_at(&self, start: u64) -> ParquetResult<(usize, &Bytes)> {
        let found = self.chunks.iter().find_map(|(from, chunk)| {
            let place = usize::try_from(start.checked_sub(*from)?).ok()?;
            // Excluding the end, where the next chunk starts.
            (place < chunk.len()).then_some((place, chunk))
        });
        found.ok_or_else(|| ParquetError::EOF("a page outside its column".to_owned()))
    }

    fn read(&self, start: u64, length: usize) -> std::io::Result<Bytes> {
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, start)?;
        Ok(Bytes::from(bytes))
    }
}

/// A Parquet file whose footer is in memory.
#[derive(Debug)]
pub(super) struct ParquetFile {
    source: Source,
    metadata: ArrowReaderMetadata,
    /// Maximum memory for data that is read at one time.
    bytes_max: u64,
}

/// The non-null values of a flat column's rows, and one level per row that tells whether it has a value (empty if all
/// have).
pub(super) type Present<'a, T> = (&'a [<T as Leaf>::T], &'a [i16]);

impl ParquetFile {
    pub(super) fn open(file: File, bytes: u64, bytes_max: u64) -> Result<ParquetFile, TableError> {
        let source = Source { file: Arc::new(file), bytes, chunks: Vec::new() };
        check_footer(&source, bytes_max)?;
        let metadata = guarded(|| {
            let metadata = ArrowReaderMetadata::load(&source, ArrowReaderOptions::default())?;
            Ok(with_text_as_views(metadata))
        })?;
        Ok(ParquetFile { source, metadata, bytes_max })
    }

    fn parquet(&self) -> &ParquetMetaData {
        self.metadata.metadata()
    }

    pub(super) fn schema(&self) -> &SchemaRef {
        self.metadata.schema()
    }

    /// Number of rows according to the footer.
    pub(super) fn rows(&self) -> u64 {
        let rows = self.parquet().row_groups().iter().map(|group| u64::try_from(group.num_rows()).unwrap_or(0));
        rows.fold(0, u64::saturating_add)
    }

    /// Index among the file's leaves of the flat column with this name and type.
    pub(super) fn leaf(&self, name: &str, physical: Physical) -> Option<usize> {
        self.leaves(physical).get(name).copied()
    }

    /// Indexes among the file's leaves of all flat columns of this type, by name.
    pub(super) fn leaves(&self, physical: Physical) -> HashMap<&str, usize> {
        let leaves = self.parquet().file_metadata().schema_descr().columns().iter().enumerate();
        let flat = leaves.filter_map(|(place, leaf)| match leaf.path().parts() {
            [name] if leaf.physical_type() == physical && leaf.max_rep_level() == 0 && leaf.max_def_level() <= 1 => {
                Some((name.as_str(), place))
            }
            _ => None,
        });
        // If two columns have the same name, the first one counts.
        flat.rev().collect()
    }

    /// Passes the values of a flat column to `take`, some thousand rows at a time.
    pub(super) fn values<T: Leaf>(
        &self,
        leaf: usize,
        take: &mut dyn FnMut(Present<'_, T>) -> Result<(), TableError>,
    ) -> Result<(), TableError> {
        for group in self.parquet().row_groups() {
            let column = group.columns().get(leaf).ok_or(TableError::Contradiction)?;
            let rows = usize::try_from(group.num_rows()).map_err(|_| TableError::Contradiction)?;
            let chunk = self.chunk(column, width_of::<T>())?;
            guarded(|| values_of::<T>(chunk, column, rows, take))?;
        }
        Ok(())
    }

    /// Reads a column chunk and checks its pages. `width` is the memory of one value.
    fn chunk(&self, column: &ColumnChunkMetaData, width: u64) -> Result<Source, TableError> {
        let (start, length) = range_of(column, self.source.bytes)?;
        if length > self.bytes_max {
            return Err(TableError::TooLarge { limit_bytes: self.bytes_max });
        }
        let bytes = self.source.read(start, usize::try_from(length).map_err(|_| TableError::Contradiction)?)?;
        look_through(&bytes, column, width, self.bytes_max)?;
        Ok(Source { chunks: vec![(start, bytes)], ..self.source.clone() })
    }

    /// Passes the batches of all row groups to `take`, one group after the other.
    pub(super) fn batches(
        &self,
        take: &mut dyn FnMut(&RecordBatch) -> Result<(), TableError>,
    ) -> Result<(), TableError> {
        (0..self.parquet().num_row_groups()).try_for_each(|group| self.group(group, take))
    }

    fn group(
        &self,
        group: usize,
        take: &mut dyn FnMut(&RecordBatch) -> Result<(), TableError>,
    ) -> Result<(), TableError> {
        let (mut chunks, mut values) = (Vec::new(), 0_u64);
        for column in self.parquet().row_group(group).columns() {
            // A view takes 16 bytes, a level 2.
            chunks.extend(self.chunk(column, 16)?.chunks);
            values = values.saturating_add(u64::try_from(column.num_values()).unwrap_or(u64::MAX).saturating_mul(20));
            let read: u64 = chunks.iter().map(|(_, chunk): &(u64, Bytes)| chunk.len() as u64).sum();
            if values.max(read) > self.bytes_max {
                return Err(TableError::TooLarge { limit_bytes: self.bytes_max });
            }
        }
        guarded(|| {
            let source = Source { chunks, ..self.source.clone() };
            let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(source, self.metadata.clone());
            let batches = builder.with_row_groups(vec![group]).with_batch_size(ROWS_PER_BATCH).build()?;
            for batch in batches {
                take(&batch?)?;
            }
            Ok(())
        })
    }

    /// All rows of the file in order; row groups are decoded in parallel. The error is that of the first failing
    /// group. Rows of the other groups are in `into` nevertheless, unless a limit was exceeded.
    pub(super) fn rows_beside<T: Send>(
        &self,
        decode: &(dyn Fn(&RecordBatch, &mut Vec<T>) -> Result<(), TableError> + Sync),
        into: &mut Vec<T>,
    ) -> Result<(), TableError> {
        let groups = self.parquet().num_row_groups();
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX).min(groups);
        let next = AtomicUsize::new(0);
        let work = || {
            let mut done = Vec::new();
            loop {
                let group = next.fetch_add(1, Ordering::Relaxed);
                if group >= groups {
                    return done;
                }
                let mut rows = Vec::new();
                let result = self.group(group, &mut |batch| decode(batch, &mut rows));
                if matches!(result, Err(TableError::TooLarge { .. })) {
                    next.store(groups, Ordering::Relaxed);
                }
                done.push((group, rows, result));
            }
        };
        let mut done = std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let mut done = work();
            done.extend(others.into_iter().filter_map(|other| other.join().ok()).flatten());
            done
        });
        done.sort_by_key(|&(group, ..)| group);
        into.reserve(done.iter().map(|(_, rows, _)| rows.len()).sum());
        let mut first = Ok(());
        for (_, mut rows, result) in done {
            into.append(&mut rows);
            if matches!(result, Err(TableError::TooLarge { .. })) {
                return result;
            }
            first = first.and(result);
        }
        first
    }
}

/// The Parquet crate checks most but not all input: a panic in it is taken as an error of the file.
fn guarded<T>(read: impl FnOnce() -> Result<T, TableError>) -> Result<T, TableError> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or(Err(TableError::Contradiction))
}

fn width_of<T: Leaf>() -> u64 {
    (size_of::<T::T>() + size_of::<i16>()) as u64
}

fn values_of<T: Leaf>(
    chunk: Source,
    column: &ColumnChunkMetaData,
    rows: usize,
    take: &mut dyn FnMut(Present<'_, T>) -> Result<(), TableError>,
) -> Result<(), TableError> {
    let pages = SerializedPageReader::new(Arc::new(chunk), column, rows, None)?;
    let descr = column.column_descr_ptr();
    let optional = descr.max_def_level() > 0;
    let mut reader = get_typed_column_reader::<T>(get_column_reader(descr, Box::new(pages)));
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    let mut left = rows;
    while left > 0 {
        values.clear();
        levels.clear();
        let wanted = left.min(ROWS_PER_BATCH);
        let (got, ..) = reader.read_records(wanted, optional.then_some(&mut levels), None, &mut values)?;
        if got == 0 {
            return Err(TableError::damaged("a column with too few values"));
        }
        // One level per row; the number of levels with 1 must equal the number of values.
        let present = if optional { levels.iter().filter(|&&level| level == 1).count() } else { got };
        if present != values.len() || (optional && levels.len() != got) {
            return Err(TableError::Contradiction);
        }
        take((&values, if present == got { &[] } else { &levels }))?;
        left -= got;
    }
    Ok(())
}

/// Reads text as views, so that a word shared by many rows is in memory once. If a schema does not allow this, the
/// text is read as before.
fn with_text_as_views(metadata: ArrowReaderMetadata) -> ArrowReaderMetadata {
    let schema = Schema::new(metadata.schema().fields().iter().map(|field| viewed(field)).collect::<Vec<_>>());
    let schema = schema.with_metadata(metadata.schema().metadata().clone());
    let options = ArrowReaderOptions::new().with_schema(Arc::new(schema));
    ArrowReaderMetadata::try_new(Arc::clone(metadata.metadata()), options).unwrap_or(metadata)
}

fn viewed(field: &Field) -> Field {
    let data_type = match field.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Dictionary(..) => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        DataType::List(item) => DataType::List(Arc::new(viewed(item))),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(|field| viewed(field)).collect()),
        other => other.clone(),
    };
    field.clone().with_data_type(data_type)
}

/// Range of a column chunk in the file: (start, bytes).
fn range_of(column: &ColumnChunkMetaData, file_bytes: u64) -> Result<(u64, u64), TableError> {
    let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
    let range = u64::try_from(start).ok().zip(u64::try_from(column.compressed_size()).ok());
    let inside = |&(start, length): &(u64, u64)| start.checked_add(length).is_some_and(|end| end <= file_bytes);
    range.filter(inside).ok_or_else(|| TableError::damaged("a column beyond the end of the file"))
}

/// Checks the footer, which lists every column of every row group. If a list claims more elements than bytes follow,
/// or if the footer would exceed the limit in memory, it does not reach the Parquet crate.
fn check_footer(source: &Source, bytes_max: u64) -> Result<(), TableError> {
    let no_parquet = || TableError::damaged("not a Parquet file, or its end is missing");
    let tail_at = source.bytes.checked_sub(TAIL_BYTES).ok_or_else(no_parquet)?;
    let tail = source.read(tail_at, TAIL_BYTES as usize)?;
    let (length, magic) = tail.split_first_chunk::<4>().ok_or_else(no_parquet)?;
    let length = u64::from(u32::from_le_bytes(*length));
    let footer_at = tail_at.checked_sub(length).filter(|_| magic == b"PAR1").ok_or_else(no_parquet)?;
    if length > bytes_max / FOOTER_GROWTH {
        return Err(TableError::TooLarge { limit_bytes: bytes_max });
    }
    let footer = source.read(footer_at, usize::try_from(length).map_err(|_| TableError::Contradiction)?)?;
    let whole = Thrift { rest: &footer }.skip(STRUCT, 0);
    whole.ok_or_else(|| TableError::damaged("a contradictory footer"))
}

/// Checks the pages of a column chunk: decompressed sizes and encodings must be possible results of the writer.
fn look_through(bytes: &[u8], column: &ColumnChunkMetaData, width: u64, bytes_max: u64) -> Result<(), TableError> {
    let too_large = TableError::TooLarge { limit_bytes: bytes_max };
    let declared = u64::try_from(column.num_values()).map_err(|_| TableError::Contradiction)?;
    if declared.saturating_mul(width) > bytes_max {
        return Err(too_large);
    }
    let (mut rest, mut values) = (bytes, 0_u64);
    while !rest.is_empty() && values < declared {
        let mut thrift = Thrift { rest };
        let page = thrift.page().ok_or_else(|| TableError::damaged("a page without a header"))?;
        rest = thrift.rest.get(page.compressed as usize..).ok_or_else(|| TableError::damaged("a truncated page"))?;
        if u64::from(page.unpacked) > PAGE_BYTES_MAX.min(bytes_max) {
            return Err(too_large);
        }
        match page.kind {
            DATA_PAGE | DATA_PAGE_V2 => values += u64::from(page.values),
            // Each value takes at least one byte; the crate would create the numbers of a longer list first.
            DICTIONARY_PAGE if page.values > page.unpacked => return Err(TableError::Contradiction),
            _ => {}
        }
        if !ENCODINGS.contains(&page.encoding) {
            return Err(TableError::damaged("an encoding that does not occur in recordings"));
        }
    }
    if values > declared { Err(TableError::Contradiction) } else { Ok(()) }
}

const DATA_PAGE: u32 = 0;
const DICTIONARY_PAGE: u32 = 2;
const DATA_PAGE_V2: u32 = 3;
/// PLAIN, PLAIN_DICTIONARY, RLE, DELTA_BINARY_PACKED, RLE_DICTIONARY. DELTA_BYTE_ARRAY is missing: it stores text as a
/// prefix of the previous text, and can expand to the square of the stored size.
const ENCODINGS: [u32; 5] = [0, 2, 3, 5, 8];

/// Fields of a page header.
#[derive(Clone, Copy, Debug, Default)]
struct Page {
    kind: u32,
    unpacked: u32,
    compressed: u32,
    values: u32,
    encoding: u32,
}

/// Thrift's compact protocol, as far as the checks need it.
struct Thrift<'a> {
    rest: &'a [u8],
}

const STRUCT: u8 = 12;
const DEPTH_MAX: u32 = 16;

impl Thrift<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(byte)
    }

    fn bytes(&mut self, count: u64) -> Option<()> {
        self.rest = self.rest.get(usize::try_from(count).ok()?..)?;
        Some(())
    }

    fn unsigned(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A number that must not be negative.
    fn count(&mut self) -> Option<u32> {
        let zigzag = self.unsigned()?;
        if zigzag & 1 == 0 { u32::try_from(zigzag >> 1).ok() } else { None }
    }

    /// The next field of a struct: (number, type); the inner `None` is the end of the struct.
    fn field(&mut self, before: i64) -> Option<Option<(i64, u8)>> {
        let head = self.byte()?;
        let (delta, kind) = (i64::from(head >> 4), head & 0x0f);
        match (kind, delta) {
            (0, _) => Some(None),
            (_, 0) => {
                let zigzag = self.unsigned()?;
                Some(Some(((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64), kind)))
            }
            _ => Some(Some((before.checked_add(delta)?, kind))),
        }
    }

    fn skip(&mut self, kind: u8, depth: u32) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        match kind {
            // As a field, a flag is encoded in the type; in a list it takes a byte (see `skip_list`).
            1 | 2 => Some(()),
            3 => self.bytes(1),
            4..=6 => self.unsigned().map(drop),
            7 => self.bytes(8),
            8 => self.unsigned().and_then(|length| self.bytes(length)),
            9 | 10 => self.skip_list(depth),
            STRUCT => {
                let mut before = 0;
                while let Some((number, kind)) = self.field(before)? {
                    before = number;
                    self.skip(kind, depth + 1)?;
                }
                Some(())
            }
            // Parquet has no maps.
            _ => None,
        }
    }

    fn skip_list(&mut self, depth: u32) -> Option<()> {
        let head = self.byte()?;
        let count = if head >> 4 == 15 { self.unsigned()? } else { u64::from(head >> 4) };
        let kind = head & 0x0f;
        if count > self.rest.len() as u64 {
            return None;
        }
        (0..count).try_for_each(|_| if matches!(kind, 1 | 2) { self.bytes(1) } else { self.skip(kind, depth + 1) })
    }

    /// `PageHeader` of parquet.thrift; the bytes of the page follow it.
    fn page(&mut self) -> Option<Page> {
        let (mut page, mut before) = (Page::default(), 0);
        while let Some((number, kind)) = self.field(before)? {
            before = number;
            match (number, kind) {
                (1, 5) => page.kind = self.count()?,
                (2, 5) => page.unpacked = self.count()?,
                (3, 5) => page.compressed = self.count()?,
                // data_page_header and dictionary_page_header: values, encoding, ...
                (5 | 7, STRUCT) => (page.values, page.encoding) = self.values_and_encoding(2)?,
                // data_page_header_v2: values, nulls, rows, encoding, ...
                (8, STRUCT) => (page.values, page.encoding) = self.values_and_encoding(4)?,
                _ => self.skip(kind, 1)?,
            }
        }
        Some(page)
    }

    fn values_and_encoding(&mut self, encoding_is: i64) -> Option<(u32, u32)> {
        let (mut values, mut encoding, mut before) = (None, None, 0);
        while let Some((number, kind)) = self.field(before)? {
            before = number;
            match (number, kind) {
                (1, 5) => values = Some(self.count()?),
                (number, 5) if number == encoding_is => encoding = Some(self.count()?),
                _ => self.skip(kind, 2)?,
            }
        }
        values.zip(encoding)
    }
}
