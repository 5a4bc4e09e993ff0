//! Files of days: the hours of a finished day, added up, so that a query over a month reads one row instead of 24.
//!
//! A day's file is made only from the parts of the day's hours, and contains their names, sizes and tags. Readers
//! compare these with the current parts. If they differ (after a late arrival, or if a compactor was killed between the
//! two), the hours are read instead. So a day's file can be missing or old, but never wrong, and can be removed at any
//! time.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, TimestampMicrosecondArray, UInt32Array};
use arrow::compute::{cast, take_record_batch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, TimeUnit, TimestampMicrosecondType};
use arrow::record_batch::RecordBatch;
use arrow::row::{RowConverter, SortField};
use flatwater_recording::summary::SummaryRow;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt, PutPayload};

use super::{merge, sorted};
use crate::left_out::{LeftOut, Why};
use crate::store::Fleet;
use crate::{FleetError, input};

/// Metadata key of a day's file: the parts that it was made from.
pub const PARTS_KEY: &str = "flatwater.days.parts";
/// Columns that describe single summaries; a day has none of them.
const OF_ONE: &[&str] = &["sequence", "hour_start", "clock_error_s", "recording", "written_by"];
/// Columns that are added up; null if no value was known.
const SUMS: &[&str] = &[
    "observed_ms",
    "calls",
    "stall_ns",
    "calls_over_1ms",
    "calls_over_3ms",
    "calls_over_10ms",
    "calls_over_30ms",
    "calls_over_100ms",
    "calls_over_300ms",
    "calls_over_1s",
    "calls_over_10s",
];
const WORST: &str = "worst_ns";
/// Columns that rows of hours do not have: how many hours a row sums up, and which.
const COUNTS: &[&str] = &["hours", "hours_observed", "hours_not_observed"];
const TIMES: &[&str] = &["first_hour", "last_hour", "first_stall"];

/// `v=1/table=days/dt=2026-11-22/day.parquet`.
#[must_use]
pub fn key(day: &str) -> String {
    format!("v=1/table=days/{day}/day.parquet")
}

/// The columns with measured values.
pub fn measures() -> impl Iterator<Item = &'static str> {
    SUMS.iter().chain(&[WORST]).copied()
}

/// The columns that identify a day's row: all but measured values and those of single summaries.
#[must_use]
pub fn keys() -> Vec<String> {
    let measured = |name: &&str| OF_ONE.contains(name) || measures().any(|measure| measure == *name);
    let schema = SummaryRow::schema();
    schema
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .filter(|name| !measured(name))
        .map(str::to_owned)
        .collect()
}

/// The columns of a day's file.
#[must_use]
pub fn schema() -> SchemaRef {
    let hours = SummaryRow::schema();
    let mut fields: Vec<Field> = keys().iter().filter_map(|name| hours.field_with_name(name).ok()).cloned().collect();
    fields.extend(measures().chain(COUNTS.iter().copied()).map(|name| Field::new(name, DataType::Int64, true)));
    let time = DataType::Timestamp(TimeUnit::Microsecond, None);
    fields.extend(TIMES.iter().map(|name| Field::new(*name, time.clone(), true)));
    Arc::new(Schema::new(fields))
}

/// The same columns as SQL over rows of hours, one row for each.
#[must_use]
pub fn of_hours() -> String {
    let mut columns = keys();
    columns.extend(measures().map(str::to_owned));
    columns.push("CAST(1 AS BIGINT) AS hours".to_owned());
    columns.push("CAST(CASE WHEN observed_ms > 0 THEN 1 ELSE 0 END AS BIGINT) AS hours_observed".to_owned());
    columns.push("CAST(CASE WHEN stall_ns IS NULL THEN 1 ELSE 0 END AS BIGINT) AS hours_not_observed".to_owned());
    columns.push("hour_start AS first_hour, hour_start AS last_hour".to_owned());
    columns.push("CASE WHEN stall_ns > 0 THEN hour_start END AS first_stall".to_owned());
    columns.join(", ")
}

/// A text that identifies the parts of a day: it changes whenever one of them is written.
#[must_use]
pub fn made_of(fleet: &Fleet, parts: &[ObjectMeta]) -> String {
    let mut text = String::new();
    for part in parts {
        let tag = part.e_tag.as_deref().unwrap_or("-");
        let _ = writeln!(text, "{} {} {tag}", fleet.relative(&part.location), part.size);
    }
    text
}

/// Sums of one row.
#[derive(Debug)]
struct Sum {
    sums: [Option<i64>; SUMS.len()],
    worst_ns: Option<i64>,
    counts: [i64; 3],
    first_us: i64,
    last_us: i64,
    first_stall_us: Option<i64>,
}

impl Default for Sum {
    fn default() -> Sum {
        Sum {
            sums: [None; SUMS.len()],
            worst_ns: None,
            counts: [0; 3],
            first_us: i64::MAX,
            last_us: i64::MIN,
            first_stall_us: None,
        }
    }
}

/// Adds up rows of hours with equal keys.
pub struct Days {
    converter: RowConverter,
    keys: Vec<String>,
    places: HashMap<Box<[u8]>, usize>,
    sums: Vec<Sum>,
    /// A column with a sum that does not fit into 64 bits.
    overflow: Option<&'static str>,
}

impl std::fmt::Debug for Days {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Days {{ {} rows }}", self.sums.len())
    }
}

impl Days {
    pub fn new() -> Result<Days, FleetError> {
        let (keys, schema) = (keys(), schema());
        let fields = schema.fields().iter().take(keys.len());
        let fields = fields.map(|field| SortField::new(field.data_type().clone())).collect();
        let converter = RowConverter::new(fields)?;
        Ok(Days { converter, keys, places: HashMap::new(), sums: Vec::new(), overflow: None })
    }

    /// Adds rows of hours, except those of recordings: the daemon's hours already contain these calls.
    pub fn add(&mut self, batch: &RecordBatch) -> Result<(), FleetError> {
        let schema = schema();
        let keys = self.keys.iter().zip(schema.fields()).map(|(name, field)| column(batch, name, field.data_type()));
        let keys: Vec<ArrayRef> = keys.collect::<Result<_, _>>()?;
        let rows = self.converter.convert_columns(&keys)?;
        let numbers = |name: &&str| -> Result<Int64Array, FleetError> {
            Ok(column(batch, name, &DataType::Int64)?.as_primitive::<Int64Type>().clone())
        };
        let sums: Vec<Int64Array> = SUMS.iter().map(numbers).collect::<Result<_, _>>()?;
        let worst = numbers(&WORST)?;
        let hours = column(batch, "hour_start", &DataType::Timestamp(TimeUnit::Microsecond, None))?;
        let hours = hours.as_primitive::<TimestampMicrosecondType>();
        let origin = column(batch, "origin", &DataType::Utf8)?;
        let origin = origin.as_string::<i32>();
        for row in 0..batch.num_rows() {
            if hours.is_null(row) || (origin.is_valid(row) && origin.value(row) == "capture") {
                continue;
            }
            let key = rows.row(row);
            let place = match self.places.get(key.as_ref()) {
                Some(place) => *place,
                None => {
                    self.places.insert(key.as_ref().into(), self.sums.len());
                    self.sums.push(Sum::default());
                    self.sums.len() - 1
                }
            };
            let Some(sum) = self.sums.get_mut(place) else { continue };
            let at = |column: &Int64Array| column.is_valid(row).then(|| column.value(row));
            for ((into, from), name) in sum.sums.iter_mut().zip(&sums).zip(SUMS) {
                let Some(more) = at(from) else { continue };
                *into = into.unwrap_or(0).checked_add(more);
                self.overflow = self.overflow.or(into.is_none().then_some(*name));
            }
            sum.worst_ns = sum.worst_ns.max(at(&worst));
            let (observed_ms, stall_ns, hour_us) = (at(&sums[0]), at(&sums[2]), hours.value(row));
            sum.counts[0] += 1;
            sum.counts[1] += i64::from(observed_ms.is_some_and(|ms| ms > 0));
            sum.counts[2] += i64::from(stall_ns.is_none());
            (sum.first_us, sum.last_us) = (sum.first_us.min(hour_us), sum.last_us.max(hour_us));
            if stall_ns.is_some_and(|ns| ns > 0) {
                sum.first_stall_us = Some(sum.first_stall_us.map_or(hour_us, |first| first.min(hour_us)));
            }
        }
        Ok(())
    }

    /// The rows, ordered like those of hours.
    pub fn finish(self) -> Result<RecordBatch, FleetError> {
        let Days { converter, keys, places, sums, .. } = self;
        let mut ordered: Vec<(Box<[u8]>, usize)> = places.into_iter().collect();
        // The same hours must give the same file.
        ordered.sort_unstable();
        let parser = converter.parser();
        let mut arrays = converter.convert_rows(ordered.iter().map(|(key, _)| parser.parse(key)))?;
        let sums: Vec<&Sum> = ordered.iter().filter_map(|(_, place)| sums.get(*place)).collect();
        let numbers = |of: &dyn Fn(&Sum) -> Option<i64>| -> ArrayRef {
            Arc::new(sums.iter().map(|sum| of(sum)).collect::<Int64Array>())
        };
        let times = |of: &dyn Fn(&Sum) -> Option<i64>| -> ArrayRef {
            Arc::new(sums.iter().map(|sum| of(sum)).collect::<TimestampMicrosecondArray>())
        };
        arrays.extend((0..SUMS.len()).map(|at| numbers(&|sum| sum.sums[at])));
        arrays.push(numbers(&|sum| sum.worst_ns));
        arrays.extend((0..COUNTS.len()).map(|at| numbers(&|sum| Some(sum.counts[at]))));
        arrays.push(times(&|sum| Some(sum.first_us)));
        arrays.push(times(&|sum| Some(sum.last_us)));
        arrays.push(times(&|sum| sum.first_stall_us));
        debug_assert_eq!(keys.len() + SUMS.len() + 1 + COUNTS.len() + TIMES.len(), arrays.len());
        let batch = RecordBatch::try_new(schema(), arrays)?;
        // By cause, kernel and host, like the hours.
        let columns = ["cause", "kernel", "host"].map(|name| batch.column_by_name(name).cloned());
        let columns: Vec<ArrayRef> = columns.into_iter().flatten().collect();
        let fields = columns.iter().map(|column| SortField::new(column.data_type().clone())).collect();
        let rows = RowConverter::new(fields)?.convert_columns(&columns)?;
        let mut order: Vec<u32> = (0..u32::try_from(batch.num_rows()).unwrap_or(u32::MAX)).collect();
        order.sort_by(|one, other| rows.row(*one as usize).cmp(&rows.row(*other as usize)));
        Ok(take_record_batch(&batch, &UInt32Array::from(order))?)
    }
}

/// A column of a batch; nulls if an older flatwater wrote the batch without that column.
pub(super) fn column(batch: &RecordBatch, name: &str, kind: &DataType) -> Result<ArrayRef, FleetError> {
    match batch.column_by_name(name) {
        Some(column) if column.data_type() == kind => Ok(Arc::clone(column)),
        Some(column) => Ok(cast(column, kind)?),
        None => Ok(arrow::array::new_null_array(kind, batch.num_rows())),
    }
}

/// Makes the file of a day from its parts, unless the current file was made from the same parts. Returns whether it
/// wrote a file.
pub(super) async fn day(fleet: &Fleet, day: &str, left_out: &mut LeftOut) -> Result<bool, FleetError> {
    let parts = fleet.list(&format!("v=1/table=summary/{day}")).await?;
    let (location, made_of) = (fleet.key(&key(day)), made_of(fleet, &parts));
    if parts.is_empty() || is_of(fleet, &location, &made_of).await? {
        return Ok(false);
    }
    let mut days = Days::new()?;
    for part in &parts {
        let bytes = fleet.store.get(&part.location).await?.bytes().await?;
        let added = tokio::task::block_in_place(|| match input::batches_of_any_size(bytes) {
            Ok(batches) => batches.iter().try_for_each(|batch| days.add(batch)).map(|()| None),
            Err(refused) => Ok(Some(refused)),
        })?;
        if let Some(refused) = added {
            // A day that lacks one hour would be silently wrong. Instead queries read the hours, and report the
            // damaged part.
            left_out.put(refused.why, fleet.relative(&part.location), refused.exactly);
            return Ok(false);
        }
    }
    if let Some(column) = days.overflow {
        let exactly = format!("a sum of {column} does not fit into 64 bits; the hours are read instead");
        left_out.put(Why::Excess, fleet.relative(&location), exactly);
        return Ok(false);
    }
    let bytes = tokio::task::block_in_place(|| sorted::day_bytes(&days.finish()?, &made_of))?;
    fleet.store.put(&location, PutPayload::from(bytes)).await?;
    // After a power cut an unsynced file could have a footer but no valid rows.
    merge::durable(fleet, &location)?;
    Ok(true)
}

async fn is_of(fleet: &Fleet, location: &Path, made_of: &str) -> Result<bool, FleetError> {
    match fleet.store.head(location).await {
        Ok(meta) => {
            Ok(matches!(input::look(fleet, &meta).await?, Ok(footer) if footer.parts.as_deref() == Some(made_of)))
        }
        Err(object_store::Error::NotFound { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;
    use flatwater_recording::summary::{HourStart, SummaryOrigin, SummaryRow};

    use super::{Days, schema};

    fn row(hour: i64, stall_ns: Option<i64>) -> SummaryRow {
        SummaryRow {
            host: "db-7".to_owned(),
            sequence: hour,
            hour_start: Some(HourStart::of_hours(498_648 + hour)),
            stall_ns,
            calls: stall_ns.map(|_| 2),
            observed_ms: Some(if stall_ns.is_some() { 3_600_000 } else { 0 }),
            ..SummaryRow::default()
        }
    }

    #[test]
    fn hours_add_up_and_not_observed_differs_from_zero() {
        let cause = |hour, ns| SummaryRow { cause: Some("lock".to_owned()), observed_ms: None, ..row(hour, Some(ns)) };
        let capture = SummaryRow { origin: SummaryOrigin::Capture, ..cause(3, 1_000) };
        let blind = SummaryRow { host: "blind".to_owned(), ..row(1, None) };
        let rows =
            [row(0, Some(0)), row(1, None), row(5, Some(0)), cause(0, 0), cause(4, 70), cause(5, 7), capture, blind];
        let mut days = Days::new().expect("a converter");
        for rows in rows.chunks(3) {
            days.add(&SummaryRow::encode(rows).expect("encoded")).expect("added");
        }
        let day = days.finish().expect("a batch");
        assert_eq!((day.schema(), day.num_rows()), (schema(), 3));
        let shown: Vec<String> = ["host", "cause"]
            .iter()
            .map(|name| {
                format!("{:?}", day.column_by_name(name).expect("there").as_string::<i32>().iter().collect::<Vec<_>>())
            })
            .collect();
        assert_eq!(shown, [r#"[Some("blind"), Some("db-7"), Some("db-7")]"#, r#"[None, None, Some("lock")]"#]);
        let numbers = |name: &str| -> Vec<Option<i64>> {
            day.column_by_name(name).expect("there").as_primitive::<Int64Type>().iter().collect()
        };
        assert_eq!(numbers("stall_ns"), [None, Some(0), Some(77)]);
        assert_eq!(numbers("hours"), [Some(1), Some(3), Some(3)]);
        assert_eq!(numbers("hours_not_observed"), [Some(1), Some(1), Some(0)]);
        assert_eq!(numbers("observed_ms"), [Some(0), Some(7_200_000), None]);
        let times = |name: &str| {
            let column =
                arrow::compute::cast(day.column_by_name(name).expect("there"), &arrow::datatypes::DataType::Int64);
            column
                .expect("a number")
                .as_primitive::<Int64Type>()
                .iter()
                .map(|us| us.map(|us| us / 3_600_000_000 - 498_648))
                .collect::<Vec<_>>()
        };
        assert_eq!(times("first_hour"), [Some(1), Some(0), Some(0)]);
        assert_eq!(times("first_stall"), [None, None, Some(4)]);
        assert_eq!(times("last_hour"), [Some(1), Some(5), Some(5)]);
    }
}
