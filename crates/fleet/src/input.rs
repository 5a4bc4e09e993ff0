//! Reads and checks objects that hosts pushed, without trusting them.

use arrow::array::AsArray;
use arrow::compute::{max, min};
use arrow::datatypes::Int64Type;
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use chrono::{DateTime, Datelike, Utc};
use flatwater_recording::summary::{self, SummaryError, SummaryRow, VERSION_KEY};
use object_store::{GetOptions, GetRange, ObjectMeta};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::{FooterTail, ParquetMetaDataReader};

use crate::FleetError;
use crate::compact::days::{self, PARTS_KEY};
use crate::left_out::Why;
use crate::store::Fleet;

/// Maximum size of a summary's file; ten rows take about ten KiB.
pub const BYTES_MAX: u64 = 64 << 20;

/// Limits of a file.
#[derive(Clone, Copy, Debug)]
struct Limits {
    rows: i64,
    decoded_bytes: u64,
}

/// A summary on its host, which can have many hours.
const OF_FILE: Limits = Limits { rows: 100_000, decoded_bytes: 256 << 20 };
/// One hour in the store. `flatwater watch` writes at most 64 rows, and one for each operation and cause.
const OF_HOUR: Limits = Limits { rows: 4_096, decoded_bytes: 8 << 20 };
/// A file that a compactor wrote.
const OF_PART: Limits = Limits { rows: i64::MAX, decoded_bytes: u64::MAX };
/// Maximum error of a host's clock.
pub const CLOCK_ERROR_MAX_S: u64 = 600;

/// Why an input is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub why: Why,
    pub exactly: String,
}

impl Refused {
    fn new(why: Why, exactly: impl Into<String>) -> Refused {
        Refused { why, exactly: exactly.into() }
    }
}

/// The rows of a summary's file.
pub fn decode(bytes: Bytes) -> Result<Vec<SummaryRow>, Refused> {
    let batches = batches(bytes)?;
    Ok(batches.iter().flat_map(SummaryRow::decode).collect())
}

/// The batches of a summary's file of a known version. Damage anywhere is an error here, not later in a query.
pub fn batches(bytes: Bytes) -> Result<Vec<RecordBatch>, Refused> {
    guarded(|| read(bytes, OF_FILE))
}

/// Like `batches`, for a host's hour in the store.
pub fn batches_of_hour(bytes: Bytes) -> Result<Vec<RecordBatch>, Refused> {
    guarded(|| read(bytes, OF_HOUR))
}

/// Like `batches`, for a part: it can have any number of rows.
pub fn batches_of_any_size(bytes: Bytes) -> Result<Vec<RecordBatch>, Refused> {
    guarded(|| read(bytes, OF_PART))
}

/// The Parquet crate panics on some invalid files; an input must not end the compactor.
pub fn guarded<T>(read: impl FnOnce() -> Result<T, Refused>) -> Result<T, Refused> {
    let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(read));
    read.unwrap_or_else(|_| Err(Refused::new(Why::Damaged, "its content is inconsistent")))
}

/// Whether a file of this version can be read.
pub fn version(found: Option<&str>) -> Result<(), Refused> {
    summary::check_version(found).map_err(|error| {
        let why = if matches!(error, SummaryError::TooNew { .. }) { Why::Newer } else { Why::Damaged };
        Refused::new(why, error.to_string())
    })
}

fn read(bytes: Bytes, limits: Limits) -> Result<Vec<RecordBatch>, Refused> {
    let damaged = |error: &dyn std::fmt::Display| Refused::new(Why::Damaged, error.to_string());
    let builder = ParquetRecordBatchReaderBuilder::try_new(bytes).map_err(|error| damaged(&error))?;
    let file = builder.metadata().file_metadata();
    let pairs = file.key_value_metadata();
    let found = pairs.into_iter().flatten().find(|pair| pair.key == VERSION_KEY);
    version(found.and_then(|pair| pair.value.as_deref()))?;
    if file.num_rows() > limits.rows {
        return Err(Refused::new(Why::Damaged, format!("{} rows", file.num_rows())));
    }
    let decoded_max = limits.decoded_bytes;
    let too_large = || Refused::new(Why::Damaged, format!("it takes more than {} MiB of memory", decoded_max >> 20));
    // Each row that refers to a long word of a dictionary becomes a copy, so read only as many rows at a time as surely
    // fit.
    let chunks = builder.metadata().row_groups().iter().flat_map(|group| group.columns());
    let largest = chunks.map(|chunk| u64::try_from(chunk.uncompressed_size()).unwrap_or(u64::MAX)).max().unwrap_or(0);
    if largest > decoded_max {
        return Err(too_large());
    }
    let rows = usize::try_from((decoded_max / largest.max(1)).clamp(1, 1024)).unwrap_or(1024);
    let reader = builder.with_batch_size(rows).build().map_err(|error| damaged(&error))?;
    let (mut batches, mut decoded_bytes) = (Vec::new(), 0_u64);
    for batch in reader {
        let batch = batch.map_err(|error| damaged(&error))?;
        decoded_bytes = decoded_bytes.saturating_add(batch.get_array_memory_size() as u64);
        if decoded_bytes > decoded_max {
            return Err(too_large());
        }
        batches.push(batch);
    }
    Ok(batches)
}

/// Bytes to read from the end of a file; mostly the whole footer.
const TAIL_BYTES: u64 = 64 << 10;

/// The content of a file's footer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footer {
    /// The parts that a day's file was made from.
    pub parts: Option<String>,
}

/// Reads the footer of a file, and checks that its version is known. An error of the store is an error.
pub async fn look(fleet: &Fleet, file: &ObjectMeta) -> Result<Result<Footer, Refused>, FleetError> {
    let damaged = |exactly: String| Ok(Err(Refused::new(Why::Damaged, exactly)));
    if file.size < 12 {
        return damaged(format!("{} bytes", file.size));
    }
    let tail = last(fleet, file, TAIL_BYTES).await?;
    let Some((_, end)) = tail.split_last_chunk::<8>() else { return damaged("it is too short".to_owned()) };
    let footer_bytes = match FooterTail::try_new(end) {
        Ok(tail) => tail.metadata_length() as u64,
        Err(error) => return damaged(error.to_string()),
    };
    if footer_bytes + 8 > file.size {
        return damaged("its footer is longer than the file".to_owned());
    }
    let tail = if footer_bytes + 8 > tail.len() as u64 { last(fleet, file, footer_bytes + 8).await? } else { tail };
    Ok(guarded(|| footer(&tail, footer_bytes as usize)))
}

fn footer(tail: &Bytes, footer_bytes: usize) -> Result<Footer, Refused> {
    let damaged = |exactly: String| Refused::new(Why::Damaged, exactly);
    let end = tail.len() - 8;
    let begin =
        end.checked_sub(footer_bytes).ok_or_else(|| damaged("it became shorter while it was read".to_owned()))?;
    let decoded =
        ParquetMetaDataReader::decode_metadata(&tail[begin..end]).map_err(|error| damaged(error.to_string()))?;
    let mut pairs = decoded.file_metadata().key_value_metadata().into_iter().flatten();
    version(pairs.clone().find(|pair| pair.key == VERSION_KEY).and_then(|pair| pair.value.as_deref()))?;
    Ok(Footer { parts: pairs.find(|pair| pair.key == PARTS_KEY).and_then(|pair| pair.value.clone()) })
}

async fn last(fleet: &Fleet, file: &ObjectMeta, bytes: u64) -> Result<Bytes, FleetError> {
    let range = GetRange::Suffix(bytes.min(file.size));
    let options = GetOptions { range: Some(range), ..GetOptions::default() };
    Ok(fleet.store.get_opts(&file.location, options).await?.bytes().await?)
}

/// Maximum stall time of a host in an hour: that of 65,536 threads.
pub const STALL_NS_MAX: i64 = HOUR_MS * 1_000_000 * 65_536;
/// Maximum observed time in an hour.
pub const HOUR_MS: i64 = 3_600_000;
/// Maximum length of a text, twice that of a path.
const TEXT_BYTES_MAX: usize = 8 << 10;
/// Maximum length of a text that names a host or its setup. The longest hostname has 64 bytes.
const NAME_BYTES_MAX: usize = 512;
/// Columns with such names.
const NAMES: &[&str] = &[
    "host",
    "boot",
    "kernel",
    "hypervisor",
    "shape",
    "cause",
    "operation",
    "thp_enabled",
    "thp_defrag",
    "queue_scheduler",
];

/// Whether the measured values are plausible, so that one made-up value cannot make a sum over the fleet wrong. Rows
/// without wall time can be of more than an hour.
pub fn check_measures(batches: &[RecordBatch], is_hour: bool) -> Result<(), Refused> {
    for name in days::measures() {
        let limit = if is_hour && name == "observed_ms" { HOUR_MS } else { STALL_NS_MAX };
        let mut sum = 0_i128;
        for column in batches.iter().filter_map(|batch| batch.column_by_name(name)) {
            let Some(column) = column.as_primitive_opt::<Int64Type>() else {
                return Err(Refused::new(Why::Damaged, format!("its column {name} is not a number")));
            };
            let (least, most) = (min(column).unwrap_or(0), max(column).unwrap_or(0));
            let wrong = if least < 0 { least } else { most };
            if least < 0 || most > limit {
                return Err(Refused::new(Why::Damaged, format!("{name} {wrong} is impossible")));
            }
            sum += column.iter().flatten().map(i128::from).sum::<i128>();
        }
        if name == "stall_ns" && sum > i128::from(limit) {
            return Err(Refused::new(Why::Damaged, format!("stall_ns {sum} of all its rows together is impossible")));
        }
    }
    Ok(())
}

/// Whether no text is longer than the names and paths of a kernel. The batch has the columns of `SummaryRow::schema`.
pub fn check_texts(batch: &RecordBatch) -> Result<(), Refused> {
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        let Some(column) = column.as_string_opt::<i32>() else { continue };
        let longest = column.iter().flatten().map(str::len).max().unwrap_or(0);
        let name = field.name();
        if longest > if NAMES.contains(&name.as_str()) { NAME_BYTES_MAX } else { TEXT_BYTES_MAX } {
            return Err(Refused::new(Why::Damaged, format!("its column {name} has a text of {longest} bytes")));
        }
    }
    Ok(())
}

/// Whether the host's clock was right, as far as that can be determined. `stored` is when the store received the rows.
pub fn check_clock(row: &SummaryRow, stored: DateTime<Utc>) -> Result<(), Refused> {
    let off = |seconds: u64, which: &str| Refused::new(Why::Clock, format!("{}: {seconds} s {which}", row.host));
    if let Some(error_s) = row.clock_error_s
        && error_s.unsigned_abs() > CLOCK_ERROR_MAX_S
    {
        return Err(off(error_s.unsigned_abs(), if error_s > 0 { "ahead" } else { "behind" }));
    }
    let Some(hour) = row.hour_start else { return Ok(()) };
    let Some(start) =
        DateTime::from_timestamp(hour.epoch_s(), 0).filter(|start| (1970..10_000).contains(&start.year()))
    else {
        return Err(off(hour.epoch_s().unsigned_abs(), "from 1970; that is not the time of a summary"));
    };
    // Rows may arrive late, but never before their hour.
    let ahead_s = u64::try_from((start - stored).num_seconds()).unwrap_or(0);
    if ahead_s > CLOCK_ERROR_MAX_S { Err(off(ahead_s, "in the future")) } else { Ok(()) }
}
