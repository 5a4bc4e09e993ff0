//! Limits of a table's entities and columns, and the gaps for data beyond them.

use super::Table;
use crate::Gap;

/// Maximum number of entities of one table: a row stores its entity's number in 16 bits.
pub const ENTITIES_MAX: usize = u16::MAX as usize;
/// Maximum number of columns of one table: ten times the number of counters in any kernel file.
pub const COLUMNS_MAX: usize = 4096;

/// Rows and columns that a table refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refused {
    /// Rows of entities beyond `ENTITIES_MAX`.
    pub(crate) rows: u64,
    /// Whether there were columns beyond `COLUMNS_MAX`.
    pub(crate) columns: bool,
}

impl Refused {
    /// One gap for each exceeded limit.
    pub(crate) fn gaps(self, table: Table) -> impl Iterator<Item = Gap> {
        let name = table.name();
        let rows = (self.rows > 0).then(|| {
            let why =
                format!("{} rows of entities beyond the limit of {ENTITIES_MAX} per table were dropped", self.rows);
            Gap::new(
                format!("part of table {name}"),
                why,
                "record or import fewer cgroups, devices or caches at a time",
            )
        });
        let columns = self.columns.then(|| {
            let why = format!("columns beyond the limit of {COLUMNS_MAX} per table were dropped");
            Gap::new(format!("columns of table {name}"), why, "import the files one at a time")
        });
        rows.into_iter().chain(columns)
    }
}
