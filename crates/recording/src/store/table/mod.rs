//! Nouns <-> Arrow batches, one table per file.
//!
//! Decoding never fails as a whole: columns are looked up by name, and one that is absent or has another type
//! reads as nulls, so that older and newer recordings open.

pub(super) mod calls;
mod column;
pub(super) mod latency;
pub(super) mod series;
pub(super) mod small;

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};

use super::super::series::Table;
use super::super::{Call, Event, Gap, LatencyBucket, Recording, Series, Stack};

/// Every table that a recording can have; each is a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TableFile {
    Latency,
    Calls,
    Stacks,
    Events,
    Gaps,
    Sampled(Table),
}

/// Rows on their way to a table.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rows<'a> {
    Latency(&'a [LatencyBucket]),
    Calls(&'a [Call]),
    Stacks(&'a [Stack]),
    Events(&'a [Event]),
    Gaps(&'a [Gap]),
    Sampled(&'a Series),
}

impl TableFile {
    pub(super) fn all() -> impl Iterator<Item = TableFile> {
        let fixed =
            [TableFile::Latency, TableFile::Calls, TableFile::Stacks, TableFile::Events, TableFile::Gaps].into_iter();
        fixed.chain(Table::ALL.iter().map(|&table| TableFile::Sampled(table)))
    }

    /// Name of the table and stem of its file.
    pub(super) fn name(self) -> &'static str {
        match self {
            TableFile::Latency => "latency",
            TableFile::Calls => "calls",
            TableFile::Stacks => "stacks",
            TableFile::Events => "events",
            TableFile::Gaps => "gaps",
            TableFile::Sampled(table) => table.name(),
        }
    }

    /// Adds the rows of a batch to the recording; the error is for people.
    pub(super) fn absorb(self, batch: &RecordBatch, into: &mut Recording) -> Result<(), String> {
        match self {
            TableFile::Latency => latency::decode(batch, &mut into.latency),
            TableFile::Calls => calls::decode(batch, &mut into.calls),
            TableFile::Stacks => small::decode_stacks(batch, &mut into.stacks),
            TableFile::Events => small::decode_events(batch, &mut into.events),
            TableFile::Gaps => small::decode_gaps(batch, &mut into.gaps),
            TableFile::Sampled(table) => {
                let known = into.series.iter().position(|series| series.table == table);
                let place = known.unwrap_or_else(|| {
                    into.series.push(Series::new(table));
                    into.series.len() - 1
                });
                into.series.get_mut(place).map_or(Ok(()), |series| series::decode(batch, series))
            }
        }
    }
}

impl Rows<'_> {
    pub(super) fn file(self) -> TableFile {
        match self {
            Rows::Latency(_) => TableFile::Latency,
            Rows::Calls(_) => TableFile::Calls,
            Rows::Stacks(_) => TableFile::Stacks,
            Rows::Events(_) => TableFile::Events,
            Rows::Gaps(_) => TableFile::Gaps,
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
            Rows::Sampled(series) => series.len(),
        }
    }

    /// These rows from `from`, `count` of them.
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
            Rows::Sampled(_) => self,
        }
    }

    /// `known` is the schema of the rows before, used again where it fits.
    pub(super) fn encode(self, known: Option<&SchemaRef>) -> Result<RecordBatch, ArrowError> {
        match self {
            Rows::Latency(rows) => latency::encode(rows),
            Rows::Calls(rows) => calls::encode(rows),
            Rows::Stacks(rows) => small::encode_stacks(rows),
            Rows::Events(rows) => small::encode_events(rows),
            Rows::Gaps(rows) => small::encode_gaps(rows),
            Rows::Sampled(series) => series::encode(series, known),
        }
    }
}
