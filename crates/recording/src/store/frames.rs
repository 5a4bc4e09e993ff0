//! Frames: messages in a file that may be cut off at any byte.
//!
//! ```text
//! 0   4  magic "FWf1"
//! 4   4  stored length of the payload, bytes        (all numbers little-endian)
//! 8   4  sequence number of the frame in this file, from 0
//! 12  4  length after zstd decompression; 0 if the payload is stored plain
//! 16  4  CRC-32 (IEEE) of bytes 4..16 and the payload
//! 20  .. payload
//! ```
//!
//! At any other bytes a reader searches for the next magic and reports the number of bytes that it skipped.
//!
//! The concatenated payloads of a file are a plain Arrow stream. The Arrow crate trusts the lengths in a message's
//! metadata (a buffer beyond the body panics), so this module checks them against the body before it calls the crate.

use std::collections::HashMap;
use std::io::{self, Read, Seek, SeekFrom};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::convert::fb_to_schema;
use arrow_ipc::reader::RecordBatchDecoder;
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions, write_message};
use arrow_ipc::{Field, MessageHeader, MetadataVersion, Type, root_as_message};
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};

use super::TableError;

pub(super) const MAGIC: [u8; 4] = *b"FWf1";
const HEADER: usize = 20;
/// Maximum size of a frame, stored or decompressed: a second of samples is under 1 MB, a batch of calls a few MB.
pub(super) const PAYLOAD_MAX: u32 = 64 << 20;
/// Smaller payloads do not benefit from zstd.
const COMPRESS_FROM: usize = 256;
const LEVEL: i32 = 1;
/// Capacity for a second of samples.
const PACKED_KEPT: usize = 256 << 10;
/// A file with more bad frames than this is not a damaged recording but something else.
const DAMAGES_MAX: u32 = 1000;
/// Maximum number of bytes whose checksum fails, as a multiple of the file's size. In a damaged recording each bad
/// frame is checksummed once, so their sum is at most the size of the file. Checking a file that consists of headers
/// claiming 64 MiB each would take minutes.
const IN_VAIN_MAX: u64 = 4;

/// Writes frames around payloads. It keeps zstd's tables, because creating them costs more than compressing a few KB.
#[derive(Default)]
pub(super) struct Packer {
    zstd: Option<zstd::bulk::Compressor<'static>>,
    packed: Vec<u8>,
}

impl std::fmt::Debug for Packer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packer").finish_non_exhaustive()
    }
}

impl Packer {
    /// Appends a frame with this payload to `out`.
    pub(super) fn append(&mut self, out: &mut Vec<u8>, sequence: u32, payload: &[u8]) -> io::Result<()> {
        let too_large = || io::Error::new(io::ErrorKind::InvalidInput, "a frame of more than 64 MiB");
        let plain = u32::try_from(payload.len()).ok().filter(|&len| len <= PAYLOAD_MAX).ok_or_else(too_large)?;
        let (stored, plain) = if payload.len() >= COMPRESS_FROM && self.compress(payload)? {
            (self.packed.as_slice(), plain)
        } else {
            (payload, 0)
        };
        let mut fields = [0; 12];
        fields[..4].copy_from_slice(&(stored.len() as u32).to_le_bytes());
        fields[4..8].copy_from_slice(&sequence.to_le_bytes());
        fields[8..].copy_from_slice(&plain.to_le_bytes());
        out.extend(MAGIC);
        out.extend(fields);
        out.extend(checksum(&fields, stored).to_le_bytes());
        out.extend(stored);
        Ok(())
    }

    /// Compresses into `packed`; returns whether the result is shorter.
    fn compress(&mut self, payload: &[u8]) -> io::Result<bool> {
        let zstd = match &mut self.zstd {
            Some(zstd) => zstd,
            none => none.insert(zstd::bulk::Compressor::new(LEVEL)?),
        };
        self.packed.clear();
        // A burst of calls must not keep its memory for the rest of the run.
        self.packed.shrink_to(PACKED_KEPT);
        self.packed.reserve(zstd::zstd_safe::compress_bound(payload.len()));
        zstd.compress_to_buffer(payload, &mut self.packed)?;
        Ok(self.packed.len() < payload.len())
    }
}

fn checksum(fields: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(fields);
    hasher.update(payload);
    hasher.finalize()
}

/// The next item of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// A complete frame; its payload is in `Frames::payload`.
    Frame { sequence: u32 },
    /// A number of bytes that are not a frame; `at_end` if no frame follows.
    Damage { bytes: u64, at_end: bool },
}

/// Reads frames one by one. Memory is bounded by the largest frame.
#[derive(Debug)]
pub(super) struct Frames<R> {
    file: R,
    at: u64,
    length: u64,
    damages: u32,
    /// Bytes of frames with a wrong checksum.
    in_vain: u64,
    stored: Vec<u8>,
    payload: Vec<u8>,
}

impl<R: Read + Seek> Frames<R> {
    pub(super) fn new(mut file: R) -> io::Result<Frames<R>> {
        let length = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(0))?;
        Ok(Frames { file, at: 0, length, damages: 0, in_vain: 0, stored: Vec::new(), payload: Vec::new() })
    }

    pub(super) fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The next frame or damage; `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Item>> {
        if self.at >= self.length {
            return Ok(None);
        }
        if let Some((sequence, bytes)) = self.frame_here()? {
            self.at += bytes;
            return Ok(Some(Item::Frame { sequence }));
        }
        let from = self.at;
        self.damages += 1;
        let found = if self.gave_up() { None } else { self.find_frame()? };
        self.at = found.unwrap_or(self.length);
        Ok(Some(Item::Damage { bytes: self.at - from, at_end: found.is_none() }))
    }

    /// Whether a limit for bad frames is exceeded, which a damaged recording does not reach.
    fn gave_up(&self) -> bool {
        self.damages > DAMAGES_MAX || self.in_vain > IN_VAIN_MAX.saturating_mul(self.length)
    }

    /// The complete frame at `at`, if there is one: (sequence, length in bytes).
    fn frame_here(&mut self) -> io::Result<Option<(u32, u64)>> {
        self.file.seek(SeekFrom::Start(self.at))?;
        let mut header = [0; HEADER];
        if !read_full(&mut self.file, &mut header)? {
            return Ok(None);
        }
        let [m0, m1, m2, m3, fields @ .., c0, c1, c2, c3] = header;
        let number = |at: usize| fields.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
        let (stored, sequence, plain) = (number(0), number(4), number(8));
        if [m0, m1, m2, m3] != MAGIC || stored > PAYLOAD_MAX || plain > PAYLOAD_MAX {
            return Ok(None);
        }
        if u64::from(stored) > self.length.saturating_sub(self.at + HEADER as u64) {
            return Ok(None);
        }
        self.stored.resize(stored as usize, 0);
        if !read_full(&mut self.file, &mut self.stored)? {
            return Ok(None);
        }
        if checksum(&fields, &self.stored) != u32::from_le_bytes([c0, c1, c2, c3]) {
            self.in_vain += u64::from(stored);
            return Ok(None);
        }
        if plain == 0 {
            self.payload.clone_from(&self.stored);
        } else {
            let Ok(payload) = zstd::bulk::decompress(&self.stored, plain as usize) else { return Ok(None) };
            self.payload = payload;
        }
        Ok(Some((sequence, HEADER as u64 + u64::from(stored))))
    }

    /// Start of the next complete frame after `at`.
    fn find_frame(&mut self) -> io::Result<Option<u64>> {
        let mut chunk = vec![0; 64 << 10];
        let mut from = self.at + 1;
        while from < self.length {
            self.file.seek(SeekFrom::Start(from))?;
            let got = read_some(&mut self.file, &mut chunk)?;
            let window = chunk.get(..got).unwrap_or_default();
            for place in window.windows(MAGIC.len()).enumerate().filter(|(_, four)| *four == MAGIC) {
                self.at = from + place.0 as u64;
                if self.frame_here()?.is_some() {
                    return Ok(Some(self.at));
                }
                self.damages += 1;
                if self.gave_up() {
                    return Ok(None);
                }
            }
            if got < chunk.len() {
                return Ok(None);
            }
            // The magic may straddle two chunks.
            from += (got - (MAGIC.len() - 1)) as u64;
        }
        Ok(None)
    }
}

/// Fills the buffer; returns false if the file ends first.
fn read_full(file: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    Ok(read_some(file, buffer)? == buffer.len())
}

fn read_some(file: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while let Some(rest) = buffer.get_mut(got..).filter(|rest| !rest.is_empty()) {
        match file.read(rest) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

/// More fields than any kernel has counters.
const FIELDS_MAX: usize = 20_000;
const DEPTH_MAX: usize = 3;
/// More rows than a frame of 64 MiB can describe.
const ROWS_MAX: i64 = 1 << 26;

/// The content of a payload.
#[derive(Debug)]
pub(super) enum Message {
    Schema(SchemaRef),
    Batch(RecordBatch),
}

fn options() -> IpcWriteOptions {
    // 8 is the smallest alignment that Arrow accepts; its default of 64 would double the size of batches of ten rows.
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

/// Decodes a payload. A batch needs the preceding schema.
pub(super) fn decode(payload: &[u8], schema: Option<&SchemaRef>) -> Result<Message, TableError> {
    let (metadata, body) = split(payload).ok_or_else(|| TableError::damaged("not an Arrow message"))?;
    let message = root_as_message(metadata).map_err(|error| TableError::Damaged(format!("bad metadata: {error}")))?;
    match message.header_type() {
        MessageHeader::Schema => {
            let schema = message.header_as_schema().ok_or_else(|| TableError::damaged("no schema"))?;
            let fields = schema.fields().ok_or_else(|| TableError::damaged("no fields"))?;
            let known = fields.len() <= FIELDS_MAX && fields.iter().all(|field| is_known(&field, 0));
            // Dictionaries would need messages of their own, which the writer does not produce.
            if !known {
                return Err(TableError::damaged("column types that do not occur in recordings"));
            }
            Ok(Message::Schema(Arc::new(fb_to_schema(schema))))
        }
        MessageHeader::RecordBatch => {
            let batch = message.header_as_record_batch().ok_or_else(|| TableError::damaged("no batch"))?;
            let schema = schema.ok_or_else(|| TableError::damaged("rows without a schema"))?;
            check(&batch, schema, body.len())?;
            let body = Buffer::from(body);
            let none = HashMap::new();
            let decoded = || {
                RecordBatchDecoder::try_new(&body, batch, Arc::clone(schema), &none, &MetadataVersion::V5)
                    .and_then(RecordBatchDecoder::read_record_batch)
                    .map(Message::Batch)
                    .map_err(TableError::from)
            };
            // The checks above cover the known panics of the Arrow crate, but a recording may come from anyone.
            catch_unwind(AssertUnwindSafe(decoded)).unwrap_or_else(|_| Err(TableError::Contradiction))
        }
        other => Err(TableError::Damaged(format!("an Arrow message of the kind {other:?}"))),
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

fn check(batch: &arrow_ipc::RecordBatch<'_>, schema: &SchemaRef, body_bytes: usize) -> Result<(), TableError> {
    let nodes = batch.nodes().ok_or_else(|| TableError::damaged("no nodes"))?;
    let buffers = batch.buffers().ok_or_else(|| TableError::damaged("no buffers"))?;
    let (mut nodes_wanted, mut widths) = (0, Vec::new());
    for field in schema.fields() {
        parts_of(field.data_type(), &mut nodes_wanted, &mut widths);
    }
    if nodes.len() != nodes_wanted || buffers.len() != widths.len() || batch.compression().is_some() {
        return Err(TableError::damaged("a batch that does not match its schema"));
    }
    let length_ok = |length: i64| (0..=ROWS_MAX).contains(&length);
    if !length_ok(batch.length())
        || !nodes.iter().all(|node| length_ok(node.length()) && (0..=node.length()).contains(&node.null_count()))
    {
        return Err(TableError::damaged("an impossible number of rows"));
    }
    let inside = |offset: i64, length: i64| {
        let end = offset.checked_add(length);
        offset >= 0
            && length >= 0
            && end.is_some_and(|end| u64::try_from(end).is_ok_and(|end| end <= body_bytes as u64))
    };
    // Arrow panics if a buffer of numbers ends within a number.
    if buffers.iter().zip(&widths).any(|(buffer, width)| buffer.length() % width != 0) {
        return Err(TableError::damaged("a column that ends within a number"));
    }
    if !buffers.iter().all(|buffer| inside(buffer.offset(), buffer.length())) {
        return Err(TableError::damaged("a column beyond the frame's end"));
    }
    Ok(())
}

/// Adds the number of nodes that a column of this type has in a batch, and the widths of the values in its buffers.
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::{Cursor, Read, Result, Seek, SeekFrom};

    use proptest::prelude::{any, prop, proptest};

    use super::{Frames, HEADER, IN_VAIN_MAX, Item, MAGIC, Packer};

    fn framed(payloads: &[Vec<u8>]) -> Vec<u8> {
        let (mut out, mut packer) = (Vec::new(), Packer::default());
        for (sequence, payload) in (0..).zip(payloads) {
            packer.append(&mut out, sequence, payload).expect("small enough");
        }
        out
    }

    fn read_all(bytes: Vec<u8>) -> (Vec<(u32, Vec<u8>)>, u64) {
        let mut frames = Frames::new(Cursor::new(bytes)).expect("in memory");
        let (mut whole, mut damaged) = (Vec::new(), 0);
        while let Some(item) = frames.next().expect("in memory") {
            match item {
                Item::Frame { sequence } => whole.push((sequence, frames.payload().to_vec())),
                Item::Damage { bytes, .. } => damaged += bytes,
            }
        }
        (whole, damaged)
    }

    /// A file that counts the bytes read from it.
    struct Counted<'a>(Cursor<Vec<u8>>, &'a Cell<u64>);

    impl Read for Counted<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
            let got = self.0.read(buffer)?;
            self.1.set(self.1.get() + got as u64);
            Ok(got)
        }
    }

    impl Seek for Counted<'_> {
        fn seek(&mut self, to: SeekFrom) -> Result<u64> {
            self.0.seek(to)
        }
    }

    #[test]
    fn headers_that_claim_large_frames_cost_few_reads_of_the_file() {
        const CLAIMED: u32 = 3 << 19;
        let mut bytes = vec![0; 2 << 20];
        // 900 consecutive headers, each of a frame of 1.5 MiB with a wrong checksum.
        for place in 0..900 {
            let header = &mut bytes[place * HEADER..][..8];
            header[..4].copy_from_slice(&MAGIC);
            header[4..].copy_from_slice(&CLAIMED.to_le_bytes());
        }
        let (length, read) = (bytes.len() as u64, Cell::new(0));
        let mut frames = Frames::new(Counted(Cursor::new(bytes), &read)).expect("in memory");
        assert_eq!(frames.next().expect("in memory"), Some(Item::Damage { bytes: length, at_end: true }));
        assert_eq!(frames.next().expect("in memory"), None);
        assert!(read.get() < (IN_VAIN_MAX + 3) * length, "{} bytes read of {length}", read.get());
    }

    proptest! {
        #[test]
        fn a_truncated_file_yields_all_complete_frames(payloads: Vec<Vec<u8>>, cut in 0..400_usize) {
            let bytes = framed(&payloads);
            let torn = bytes[..bytes.len().saturating_sub(cut)].to_vec();
            let mut kept = 0;
            while kept < payloads.len() && framed(&payloads[..=kept]).len() <= torn.len() {
                kept += 1;
            }
            let left_over = torn.len() - framed(&payloads[..kept]).len();
            let (whole, damaged) = read_all(torn);
            assert_eq!(whole.into_iter().map(|(_, payload)| payload).collect::<Vec<_>>(), payloads[..kept]);
            assert_eq!(damaged, left_over as u64);
        }

        #[test]
        fn one_flipped_byte_costs_one_frame(size in 1..3000_usize, place: prop::sample::Index, change in 1..=255_u8) {
            let payloads: Vec<Vec<u8>> = (0..5_u8).map(|which| vec![which; size]).collect();
            let mut bytes = framed(&payloads);
            let place = place.index(bytes.len());
            bytes[place] ^= change;
            let (whole, damaged) = read_all(bytes);
            assert_eq!(whole.len(), 4);
            assert!(damaged > 0);
            assert!(whole.iter().all(|(sequence, payload)| *payload == payloads[*sequence as usize]));
        }

        #[test]
        fn arbitrary_bytes_can_be_read(mut bytes: Vec<u8>, places in prop::collection::vec(any::<prop::sample::Index>(), 0..4)) {
            for place in places {
                let at = place.index(bytes.len() + 1);
                bytes.splice(at..at, *b"FWf1");
            }
            let length = bytes.len() as u64;
            let (whole, damaged) = read_all(bytes);
            assert!(damaged <= length && (whole.is_empty() || damaged < length));
        }
    }
}
