//! How many entities and columns a table holds, and what is said of those beyond.

use super::Table;
use crate::Gap;

/// The most entities of one table: a row numbers its entity in 16 bits.
pub const ENTITIES_MAX: usize = u16::MAX as usize;
/// The most columns of one table: ten times as many as any kernel has counters in one file.
pub const COLUMNS_MAX: usize = 4096;

/// Rows and columns that a table had no place for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refused {
    /// Rows of entities beyond `ENTITIES_MAX`.
    pub(crate) rows: u64,
    /// There were columns beyond `COLUMNS_MAX`.
    pub(crate) columns: bool,
}

impl Refused {
    /// One gap for each limit that was reached.
    pub(crate) fn gaps(self, table: Table) -> impl Iterator<Item = Gap> {
        let name = table.name();
        let rows = (self.rows > 0).then(|| {
            let why =
                format!("{} rows are of further entities than the {ENTITIES_MAX} that one table numbers", self.rows);
            Gap::new(
                format!("part of table {name}"),
                why,
                "record or import fewer cgroups, devices or caches at a time",
            )
        });
        let columns = self.columns.then(|| {
            let why = format!(
                "it has more columns than the {COLUMNS_MAX} that one table holds; the further ones were left out"
            );
            Gap::new(format!("columns of table {name}"), why, "import the files one at a time")
        });
        rows.into_iter().chain(columns)
    }
}
