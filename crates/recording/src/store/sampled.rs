//! The sampled tables: `at_ns`, `node`, `entity`, and one nullable column per counter or gauge.
//!
//! Opening a recording reads only the footer of a sealed table. The rows' keys are read when rows are used, and each
//! column when it is used: an hour has a hundred million bytes of columns, and a report needs a tenth of them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow_buffer::{BooleanBuffer, NullBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use parquet::basic::Type as Physical;
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};

use super::error::named;
use super::parquet_in::ParquetFile;
use super::rows::{Allowance, Columns};
use super::{ReadError, TableError};
use crate::schema::find;
use crate::series::{COLUMNS_MAX, ENTITIES_MAX, Keys, Refused, order_of};
use crate::{ColumnKind, Entity, Gap, Series, SeriesColumn, Table};

/// Metadata of a field that says whether it is a counter; absent from the three key columns.
const KIND: &str = "kind";
const KEYS: [&str; 3] = ["at_ns", "node", "entity"];

/// `known` is the schema of earlier rows, which is reused if it fits: creating and comparing a schema of some hundred
/// columns with metadata costs more than encoding the rows of a second.
pub(super) fn encode(series: &Series, known: Option<&SchemaRef>) -> Result<RecordBatch, ArrowError> {
    let entities = series.entities();
    let owners = || series.owners().iter().map(|&index| entities.get(usize::from(index)));
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(UInt64Array::from_iter_values(series.at_ns().iter().copied())),
        Arc::new(owners().map(|owner| owner.and_then(|owner| owner.node)).collect::<UInt32Array>()),
        Arc::new(StringArray::from_iter_values(owners().map(|owner| owner.map_or("", |owner| owner.name.as_str())))),
    ];
    for column in &series.columns {
        columns.push(Arc::new(column.values_array().map_err(|error| ArrowError::ExternalError(Box::new(error)))?));
    }
    let schema = known.filter(|schema| fits(schema, series)).cloned();
    RecordBatch::try_new(schema.unwrap_or_else(|| Arc::new(schema_of(series))), columns)
}

fn schema_of(series: &Series) -> Schema {
    let mut fields = vec![
        Field::new("at_ns", DataType::UInt64, false),
        Field::new("node", DataType::UInt32, true),
        Field::new("entity", DataType::Utf8, false),
    ];
    for column in &series.columns {
        // An imported table may have a column with the name of a key column.
        let clash = if KEYS.contains(&column.name.as_str()) { "_" } else { "" };
        let field = Field::new(format!("{}{clash}", column.name), DataType::Int64, true);
        let kind = (KIND.to_owned(), kind_name(column.kind).to_owned());
        fields.push(field.with_metadata(HashMap::from([kind])));
    }
    Schema::new(fields)
}

/// Whether this schema, which `schema_of` created, equals the one that it would create for these columns.
fn fits(schema: &Schema, series: &Series) -> bool {
    let fields = schema.fields().get(KEYS.len()..).unwrap_or_default();
    fields.len() == series.columns.len()
        && fields.iter().zip(&series.columns).all(|(field, column)| {
            *field.name() == column.name
                && field.metadata().get(KIND).is_some_and(|kind| kind == kind_name(column.kind))
        })
}

fn kind_name(kind: ColumnKind) -> &'static str {
    match kind {
        ColumnKind::Counter => "counter",
        ColumnKind::Gauge => "gauge",
    }
}

/// Kind of a field's column; `None` for key columns and for fields that are not numbers.
fn kind_of(field: &Field) -> Option<ColumnKind> {
    let kind = field.metadata().get(KIND).filter(|_| field.data_type() == &DataType::Int64)?;
    Some(if kind == "counter" { ColumnKind::Counter } else { ColumnKind::Gauge })
}

/// Current name and kind of a column of a file, which may contain a former name or kind.
fn name_now(file: &Schema, table: Table, name: &str, kind: ColumnKind) -> (String, ColumnKind) {
    match find(table, name) {
        // The file has a column under both names, as an import of two logs may produce: keep both.
        Some(column) if column.former.contains(&name) && file.field_with_name(column.name).is_ok() => {
            (name.to_owned(), column.kind)
        }
        Some(column) if column.former.contains(&name) => (column.name.to_owned(), column.kind),
        Some(column) => (name.to_owned(), column.kind),
        None => (name.to_owned(), kind),
    }
}

/// Index of the field's column in the table, which is added if new; `None` if the table has the maximum number of
/// columns.
fn place_of(schema: &Schema, field: &Field, kind: ColumnKind, likely: usize, into: &mut Series) -> Option<usize> {
    // Batches keep their order. Looking up some hundred names for each batch took most of the time of reading it.
    if into.columns.get(likely).is_some_and(|column| column.name == *field.name()) {
        return Some(likely);
    }
    let (name, kind) = name_now(schema, into.table, field.name(), kind);
    into.place_of(&name, kind)
}

/// Adds the columns of a schema, without rows.
pub(super) fn add_columns(schema: &Schema, into: &mut Series) {
    let mut likely = 0;
    for field in schema.fields() {
        let Some(kind) = kind_of(field) else { continue };
        likely = place_of(schema, field, kind, likely, into).map_or(likely, |place| place + 1);
    }
}

/// Appends the rows of a batch.
pub(super) fn decode(batch: &RecordBatch, into: &mut Series, allowance: &Allowance<'_>) -> Result<(), TableError> {
    let keys = Columns::Batch(batch);
    let (at_ns, node, name) = (keys.u64("at_ns"), keys.u32("node"), keys.text("entity"));
    if !at_ns.is_there() {
        return Err(TableError::damaged("rows without at_ns"));
    }
    let schema = batch.schema();
    add_columns(&schema, into);
    allowance.take(batch.num_rows() * (KEY_BYTES + into.columns.len() * size_of::<i64>()))?;
    let before = into.len();
    let mut latest: Option<(Option<u32>, &str, Option<u16>)> = None;
    let mut owners = Vec::with_capacity(batch.num_rows());
    for row in 0..batch.num_rows() {
        let owner = (node.get(row), name.or_empty(row));
        let index = match latest {
            Some((node, name, index)) if (node, name) == owner => index,
            _ => {
                let known = into.entities().len();
                let index = into.entity_index(&Entity { node: owner.0, name: owner.1.to_owned() });
                if into.entities().len() > known {
                    allowance.take(2 * (size_of::<Entity>() + owner.1.len()))?;
                }
                index
            }
        };
        latest = Some((owner.0, owner.1, index));
        owners.push(index);
    }
    let refused = owners.iter().filter(|owner| owner.is_none()).count();
    into.refuse_rows(refused as u64);
    let keep: Option<BooleanArray> = (refused > 0).then(|| owners.iter().map(|owner| Some(owner.is_some())).collect());
    let rows = (0..batch.num_rows()).map(|row| at_ns.or_default(row)).zip(owners);
    into.extend_keys(rows.filter_map(|(at_ns, owner)| Some((at_ns, owner?))));
    let mut likely = 0;
    for (field, array) in schema.fields().iter().zip(batch.columns()) {
        let array = array.as_any().downcast_ref::<Int64Array>();
        let Some((array, kind)) = array.zip(kind_of(field)) else { continue };
        let Some(place) = place_of(&schema, field, kind, likely, into) else { continue };
        likely = place + 1;
        if let Some(column) = into.columns.get_mut(place) {
            column.pad(before);
            match &keep {
                Some(keep) => {
                    let kept = (array.iter().zip(keep)).filter(|(_, keep)| *keep == Some(true)).map(|(value, _)| value);
                    column.extend_from(&kept.collect());
                }
                None => column.extend_from(array),
            }
        }
    }
    into.pad_columns();
    Ok(())
}

/// Memory of a row besides its values: instant, owner, order, and index among the entity's rows.
const KEY_BYTES: usize = 8 + 2 + 4 + 4;
/// Owner of a row whose entity exceeds the limit; `ENTITIES_MAX` guarantees that no entity has this index.
const NO_ENTITY: u16 = u16::MAX;
/// PATH_MAX, because the longest names are paths of cgroups.
const NAME_BYTES_MAX: usize = 4096;
/// Size of the cache of decoded columns. Columns that do not fit are decoded again on each use, at some hundred
/// million values per second.
const KEPT_BYTES_MAX: usize = 24 << 20;

/// A table of a sealed recording, most of which is still in its file.
#[derive(Debug)]
pub(crate) struct SealedTable {
    table: Table,
    path: PathBuf,
    file: ParquetFile,
    rows: usize,
    /// Indexes of the file's leaves.
    at_ns: usize,
    node: Option<usize>,
    entity: Option<usize>,
    columns: Vec<(String, ColumnKind, usize)>,
    keys: OnceLock<(Keys, Option<Vec<u32>>)>,
    shared: Arc<Shared>,
}

/// State that the sealed tables of a recording share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    kept: Mutex<Kept>,
    gaps: Mutex<Vec<Gap>>,
}

/// Decoded columns in order of use, the most recent last.
#[derive(Debug, Default)]
struct Kept {
    columns: VecDeque<(Table, usize, Int64Array)>,
    bytes: usize,
}

impl Kept {
    fn get(&mut self, table: Table, place: usize) -> Option<Int64Array> {
        let at = self.columns.iter().rposition(|(of, known, _)| (*of, *known) == (table, place))?;
        let found = self.columns.remove(at)?;
        let array = found.2.clone();
        self.columns.push_back(found);
        Some(array)
    }

    fn put(&mut self, table: Table, place: usize, array: &Int64Array) {
        self.bytes += array.get_buffer_memory_size();
        self.columns.push_back((table, place, array.clone()));
        while self.bytes > KEPT_BYTES_MAX && self.columns.len() > 1 {
            let Some((.., old)) = self.columns.pop_front() else { break };
            self.bytes -= old.get_buffer_memory_size();
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Gaps for data that turned out to be unreadable after the recording was opened.
    pub(super) fn gaps(&self) -> Vec<Gap> {
        locked(&self.gaps).clone()
    }
}

impl SealedTable {
    /// Reads no rows; checks that the rows fit into the allowance.
    pub(super) fn open(
        table: Table,
        path: PathBuf,
        file: ParquetFile,
        allowance: &Allowance<'_>,
        shared: &Arc<Shared>,
    ) -> Result<SealedTable, TableError> {
        let at_ns = file.leaf("at_ns", Physical::INT64).ok_or_else(|| TableError::damaged("rows without at_ns"))?;
        let leaves = file.leaves(Physical::INT64);
        let mut names = HashSet::new();
        let fields = file.schema().fields().iter();
        let columns = fields.filter_map(|field| {
            let (name, kind) = name_now(file.schema(), table, field.name(), kind_of(field)?);
            // Of two columns with the same name, only the first can be looked up.
            let leaf = leaves.get(field.name().as_str()).filter(|_| names.insert(name.clone()))?;
            Some((name, kind, *leaf))
        });
        let mut columns: Vec<_> = columns.collect();
        if columns.len() > COLUMNS_MAX {
            columns.truncate(COLUMNS_MAX);
            locked(&shared.gaps).extend(Refused { rows: 0, columns: true }.gaps(table));
        }
        // All keys, and one column while it is decoded and reordered.
        let bytes = file.rows().saturating_mul((KEY_BYTES + 2 * size_of::<i64>()) as u64);
        allowance.take(usize::try_from(bytes).unwrap_or(usize::MAX))?;
        Ok(SealedTable {
            table,
            path,
            rows: usize::try_from(file.rows()).map_err(|_| TableError::Contradiction)?,
            at_ns,
            node: file.leaf("node", Physical::INT32),
            entity: file.leaf("entity", Physical::BYTE_ARRAY),
            columns,
            file,
            keys: OnceLock::new(),
            shared: Arc::clone(shared),
        })
    }

    pub(crate) fn columns(this: &Arc<SealedTable>) -> Vec<SeriesColumn> {
        let named = this.columns.iter().enumerate();
        named.map(|(place, (name, kind, _))| SeriesColumn::sealed(name, *kind, this, place)).collect()
    }

    /// Number of rows according to the footer; 0 if the keys turn out to be unreadable.
    pub(crate) fn rows(&self) -> usize {
        self.keys.get().map_or(self.rows, |(keys, _)| keys.at_ns.len())
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keyed().0
    }

    fn keyed(&self) -> &(Keys, Option<Vec<u32>>) {
        self.keys.get_or_init(|| {
            self.read_keys().unwrap_or_else(|error| {
                self.complain("the rows", &error);
                (Keys::default(), None)
            })
        })
    }

    fn complain(&self, what: &str, error: &TableError) {
        let why = format!("cannot read {what}: {error}");
        let gap = Gap::new(format!("table {}", self.table.name()), why, super::reader::DAMAGED_REMEDY);
        let mut gaps = locked(&self.shared.gaps);
        if !gaps.contains(&gap) {
            gaps.push(gap);
        }
    }

    fn read_keys(&self) -> Result<(Keys, Option<Vec<u32>>), TableError> {
        let mut at_ns: Vec<u64> = Vec::new();
        self.file.values::<Int64Type>(self.at_ns, &mut |(values, levels)| {
            if !levels.is_empty() {
                return Err(TableError::damaged("rows without an instant"));
            }
            at_ns.extend(values.iter().map(|value| value.cast_unsigned()));
            Ok(())
        })?;
        let nodes = self.nodes()?;
        let (entities, owners) = self.owners(at_ns.len(), &nodes)?;
        if owners.len() != at_ns.len() {
            return Err(TableError::Contradiction);
        }
        let refused = owners.iter().filter(|owner| **owner == NO_ENTITY).count();
        let mut order = order_of(&at_ns, &owners, false);
        if refused > 0 {
            let all = order.unwrap_or_else(|| (0..u32::try_from(at_ns.len()).unwrap_or(u32::MAX)).collect());
            let kept = |row: &u32| owners.get(*row as usize).is_some_and(|owner| *owner != NO_ENTITY);
            order = Some(all.into_iter().filter(kept).collect());
            let refused = Refused { rows: refused as u64, columns: false };
            locked(&self.shared.gaps).extend(refused.gaps(self.table));
        }
        let Some(order) = order else { return Ok((Keys::new(entities, at_ns, owners), None)) };
        fn ordered<T: Copy>(values: &[T], order: &[u32]) -> Vec<T> {
            order.iter().filter_map(|&row| values.get(row as usize).copied()).collect()
        }
        Ok((Keys::new(entities, ordered(&at_ns, &order), ordered(&owners, &order)), Some(order)))
    }

    /// Node of each row; empty if the table has no nodes.
    fn nodes(&self) -> Result<Vec<Option<u32>>, TableError> {
        let mut nodes = Vec::new();
        let Some(leaf) = self.node else { return Ok(nodes) };
        self.file.values::<Int32Type>(leaf, &mut |(values, levels)| {
            spread(values, levels, |value| nodes.push(value.map(|value| value.cast_unsigned())));
            Ok(())
        })?;
        Ok(if nodes.iter().all(Option::is_none) { Vec::new() } else { nodes })
    }

    /// The entities, and the index of the entity of each row.
    fn owners(&self, rows: usize, nodes: &[Option<u32>]) -> Result<(Vec<Entity>, Vec<u16>), TableError> {
        let (mut entities, mut owners) = (Vec::<Entity>::new(), Vec::with_capacity(rows));
        let mut known: HashMap<(Option<u32>, Vec<u8>), u16> = HashMap::new();
        // Rows of one entity are adjacent within a row group: the lookup is done once for each run.
        let mut index_of = |node: Option<u32>, name: &ByteArray| match known.get(&(node, name.data().to_vec())) {
            Some(index) => *index,
            None if entities.len() >= ENTITIES_MAX => NO_ENTITY,
            None => {
                entities.push(Entity { node, name: String::from_utf8_lossy(name.data()).into_owned() });
                let index = u16::try_from(entities.len() - 1).unwrap_or(NO_ENTITY);
                known.insert((node, name.data().to_vec()), index);
                index
            }
        };
        let mut latest: Option<(Option<u32>, ByteArray, u16)> = None;
        let mut add = |name: ByteArray| {
            let node = nodes.get(owners.len()).copied().flatten();
            let index = match &latest {
                Some((of, known, index)) if *of == node && *known == name => *index,
                _ => index_of(node, &name),
            };
            latest = Some((node, name, index));
            owners.push(index);
        };
        match self.entity {
            Some(leaf) => self.file.values::<ByteArrayType>(leaf, &mut |(values, levels)| {
                // Comparing very long names for each row could take very long.
                if values.iter().any(|name| name.len() > NAME_BYTES_MAX) {
                    return Err(TableError::damaged("a name longer than any path"));
                }
                spread(values, levels, |name| add(name.unwrap_or_default()));
                Ok(())
            })?,
            None => (0..rows).for_each(|_| add(ByteArray::default())),
        }
        Ok((entities, owners))
    }

    /// The values of a column in row order.
    pub(crate) fn column(&self, place: usize) -> Result<Int64Array, ReadError> {
        if let Some(array) = locked(&self.shared.kept).get(self.table, place) {
            return Ok(array);
        }
        let (keys, order) = self.keyed();
        let read = self
            .read_column(place, order.as_deref())
            .and_then(|array| if array.len() == keys.at_ns.len() { Ok(array) } else { Err(TableError::Contradiction) });
        let array = read.map_err(|error| {
            let name = self.columns.get(place).map_or("", |(name, ..)| name);
            self.complain(&format!("column {name}"), &error);
            ReadError::Table { path: named(&self.path), error }
        })?;
        locked(&self.shared.kept).put(self.table, place, &array);
        Ok(array)
    }

    fn read_column(&self, place: usize, order: Option<&[u32]>) -> Result<Int64Array, TableError> {
        let &(.., leaf) = self.columns.get(place).ok_or(TableError::Contradiction)?;
        let (mut all, mut valid) = (Vec::with_capacity(self.rows), Vec::new());
        self.file.values::<Int64Type>(leaf, &mut |(values, levels)| {
            if levels.is_empty() && valid.is_empty() {
                all.extend_from_slice(values);
                return Ok(());
            }
            valid.resize(all.len(), true);
            if levels.is_empty() {
                all.extend_from_slice(values);
                valid.resize(all.len(), true);
            } else {
                spread(values, levels, |value| {
                    valid.push(value.is_some());
                    all.push(value.unwrap_or(0));
                });
            }
            Ok(())
        })?;
        if let Some(order) = order {
            all = order.iter().filter_map(|&row| all.get(row as usize).copied()).collect();
            if !valid.is_empty() {
                valid = order.iter().filter_map(|&row| valid.get(row as usize).copied()).collect();
            }
        }
        let nulls = (!valid.is_empty()).then(|| NullBuffer::new(BooleanBuffer::from(valid)));
        Ok(Int64Array::try_new(ScalarBuffer::from(all), nulls)?)
    }

    /// Decodes every column and keeps none; for files that differ from the sealed ones.
    pub(super) fn verify(&self) {
        let (_, order) = self.keyed();
        for (place, (name, ..)) in self.columns.iter().enumerate() {
            if let Err(error) = self.read_column(place, order.as_deref()) {
                self.complain(&format!("column {name}"), &error);
            }
        }
    }
}

/// Passes the value of each row to `take`; `levels` is empty if all rows have one.
fn spread<T: Clone>(values: &[T], levels: &[i16], mut take: impl FnMut(Option<T>)) {
    if levels.is_empty() {
        values.iter().for_each(|value| take(Some(value.clone())));
        return;
    }
    let mut values = values.iter();
    levels.iter().for_each(|&level| take(if level == 1 { values.next().cloned() } else { None }));
}
