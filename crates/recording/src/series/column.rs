//! One column of a sampled table: integers and nulls, in memory or in a sealed file.

use std::fmt;
use std::sync::Arc;

use arrow_array::{Array, Int64Array};

use super::ColumnKind;
use crate::store::{ReadError, SealedTable};

/// One counter or gauge of a table. The values of a new table are in memory; those of an opened recording are decoded
/// from its file on first use.
#[derive(Clone)]
pub struct SeriesColumn {
    /// The kernel's name of the counter.
    pub name: String,
    /// Counter or gauge.
    pub kind: ColumnKind,
    cells: Cells,
}

#[derive(Clone)]
enum Cells {
    Memory(Ints),
    File { table: Arc<SealedTable>, place: usize },
}

impl SeriesColumn {
    /// A column in memory; `None` marks a failed reading.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        kind: ColumnKind,
        values: impl IntoIterator<Item = Option<i64>>,
    ) -> SeriesColumn {
        SeriesColumn { name: name.into(), kind, cells: Cells::Memory(values.into_iter().collect()) }
    }

    /// A column of a sealed file: number `place` among the sampled columns.
    pub(crate) fn sealed(name: &str, kind: ColumnKind, table: &Arc<SealedTable>, place: usize) -> SeriesColumn {
        SeriesColumn { name: name.to_owned(), kind, cells: Cells::File { table: Arc::clone(table), place } }
    }

    /// The values, one per row of the table. Call this once before a loop: the column may have to be decoded from its
    /// file.
    ///
    /// If the file turns out to be damaged, all values are absent and `Recording::gaps_found` reports it.
    #[must_use]
    pub fn values(&self) -> Values<'_> {
        Values(match &self.cells {
            Cells::Memory(ints) => Held::Memory(ints),
            Cells::File { table, place } => table.column(*place).map_or(Held::Nothing, Held::Array),
        })
    }

    pub(crate) fn values_array(&self) -> Result<Int64Array, ReadError> {
        match &self.cells {
            Cells::Memory(ints) => Ok(ints.array()),
            Cells::File { table, place } => table.column(*place),
        }
    }

    /// The same values in memory, for a table that will change.
    pub(super) fn in_memory(&self) -> SeriesColumn {
        let cells = match &self.cells {
            Cells::Memory(ints) => ints.clone(),
            Cells::File { .. } => self.values().iter().collect(),
        };
        SeriesColumn { name: self.name.clone(), kind: self.kind, cells: Cells::Memory(cells) }
    }

    fn ints_mut(&mut self) -> &mut Ints {
        if let Cells::File { .. } = self.cells {
            *self = self.in_memory();
        }
        match &mut self.cells {
            Cells::Memory(ints) => ints,
            Cells::File { .. } => unreachable!("was brought into memory above"),
        }
    }

    /// Appends the values of an array.
    pub(crate) fn extend_from(&mut self, array: &Int64Array) {
        self.ints_mut().extend_from(array);
    }

    /// Appends values.
    pub(super) fn extend(&mut self, values: impl IntoIterator<Item = Option<i64>>) {
        let ints = self.ints_mut();
        values.into_iter().for_each(|value| ints.push(value));
    }

    /// Sets the length to `rows`; new values are absent.
    pub(crate) fn pad(&mut self, rows: usize) {
        self.ints_mut().resize(rows);
    }

    pub(crate) fn clear(&mut self) {
        *self.ints_mut() = Ints::default();
    }
}

impl PartialEq for SeriesColumn {
    fn eq(&self, other: &SeriesColumn) -> bool {
        let same = || self.values().iter().eq(other.values().iter());
        self.name == other.name && self.kind == other.kind && same()
    }
}

impl Eq for SeriesColumn {}

impl fmt::Debug for SeriesColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("SeriesColumn");
        shown.field("name", &self.name).field("kind", &self.kind);
        match &self.cells {
            Cells::Memory(ints) => shown.field("values", &ints.iter().collect::<Vec<_>>()).finish(),
            Cells::File { .. } => shown.finish_non_exhaustive(),
        }
    }
}

/// The values of one column by row.
#[derive(Clone, Debug, Default)]
pub struct Values<'a>(Held<'a>);

#[derive(Clone, Debug, Default)]
enum Held<'a> {
    #[default]
    Nothing,
    Memory(&'a Ints),
    Array(Int64Array),
}

impl Values<'_> {
    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Held::Nothing => 0,
            Held::Memory(ints) => ints.values.len(),
            Held::Array(array) => array.len(),
        }
    }

    /// Whether it has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a row; `None` if the reading failed or the row does not exist.
    #[must_use]
    pub fn get(&self, row: usize) -> Option<i64> {
        match &self.0 {
            Held::Nothing => None,
            Held::Memory(ints) => ints.get(row),
            Held::Array(array) => array.values().get(row).copied().filter(|_| array.is_valid(row)),
        }
    }

    /// Iterates over all rows.
    pub fn iter(&self) -> impl Iterator<Item = Option<i64>> + '_ {
        (0..self.len()).map(|row| self.get(row))
    }
}

/// Numbers and nulls, at 8 bytes per number.
#[derive(Clone, Debug, Default)]
struct Ints {
    values: Vec<i64>,
    /// One flag per value; empty if no value is absent, as in most columns.
    absent: Vec<bool>,
}

impl Ints {
    fn push(&mut self, value: Option<i64>) {
        if value.is_none() && self.absent.is_empty() {
            self.absent.resize(self.values.len(), false);
        }
        if value.is_none() || !self.absent.is_empty() {
            self.absent.push(value.is_none());
        }
        self.values.push(value.unwrap_or(0));
    }

    fn get(&self, row: usize) -> Option<i64> {
        let absent = self.absent.get(row).copied().unwrap_or(false);
        self.values.get(row).copied().filter(|_| !absent)
    }

    fn iter(&self) -> impl Iterator<Item = Option<i64>> + '_ {
        (0..self.values.len()).map(|row| self.get(row))
    }

    fn resize(&mut self, rows: usize) {
        if rows <= self.values.len() {
            self.values.truncate(rows);
            self.absent.truncate(rows);
            return;
        }
        self.absent.resize(self.values.len(), false);
        self.absent.resize(rows, true);
        self.values.resize(rows, 0);
    }

    fn extend_from(&mut self, array: &Int64Array) {
        if array.null_count() == 0 && self.absent.is_empty() {
            self.values.extend_from_slice(array.values());
        } else {
            array.iter().for_each(|value| self.push(value));
        }
    }

    fn array(&self) -> Int64Array {
        if self.absent.is_empty() { Int64Array::from(self.values.clone()) } else { self.iter().collect() }
    }
}

impl FromIterator<Option<i64>> for Ints {
    fn from_iter<I: IntoIterator<Item = Option<i64>>>(values: I) -> Ints {
        let mut ints = Ints::default();
        values.into_iter().for_each(|value| ints.push(value));
        ints
    }
}
