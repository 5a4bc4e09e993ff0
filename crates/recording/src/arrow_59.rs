//! Everything of this crate's interface whose types are those of Arrow 59.

use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{ArrowError, SchemaRef};

use crate::schema::ColumnKey;
use crate::store::flat::{FlatColumns, FlatRow, FlatTable};
use crate::summary::SummaryRow;
use crate::{ReadError, Recording, Series, SeriesColumn};

impl Recording {
    /// The rows of one plain table (`waits`, `requests`, `queue_owners` ...) as an Arrow batch; `None` if no table has
    /// this name.
    #[must_use]
    pub fn plain_table(&self, name: &str) -> Option<RecordBatch> {
        let table = FlatTable::ALL.iter().find(|table| table.name() == name)?;
        let rows = table.rows(self);
        rows.encode(0, rows.len()).ok()
    }
}

impl Series {
    /// Values of a column as an Arrow array, one per row; `None` if the table has no such column.
    pub fn array(&self, key: impl ColumnKey) -> Result<Option<Int64Array>, ReadError> {
        self.column(key).map(SeriesColumn::array).transpose()
    }
}

impl SeriesColumn {
    /// The values as an Arrow array; cheap if they come from a file that is decoded already.
    pub fn array(&self) -> Result<Int64Array, ReadError> {
        self.values_array()
    }
}

impl SummaryRow {
    /// The columns of a summary.
    #[must_use]
    pub fn schema() -> SchemaRef {
        Arc::new(<SummaryRow as FlatRow>::schema())
    }

    /// Encodes rows as an Arrow batch.
    pub fn encode(rows: &[SummaryRow]) -> Result<RecordBatch, ArrowError> {
        SummaryRow::batch(rows)
    }

    /// Decodes the rows of a batch. A column that is absent or has another type is read as missing.
    #[must_use]
    pub fn decode(batch: &RecordBatch) -> Vec<SummaryRow> {
        let reader = <SummaryRow as FlatRow>::reader(FlatColumns::of_batch(batch));
        (0..batch.num_rows()).map(reader).collect()
    }
}
