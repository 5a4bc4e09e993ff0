//! The sampled tables: `at_ns`, `node`, `entity`, and one nullable column per counter or level.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};

use super::column::{Columns, Int64s};
use crate::schema::find;
use crate::{ColumnKind, Entity, Series, SeriesColumn, Table};

/// Metadata of a column that says whether it is a counter; absent on the three that say when and what.
const KIND: &str = "kind";
const KEYS: [&str; 3] = ["at_ns", "node", "entity"];

/// `known` is the schema of earlier rows: where it fits it is used, since to make one of some hundred columns with
/// their metadata, and to compare it, cost more than the rows of a second.
pub(in super::super) fn encode(series: &Series, known: Option<&SchemaRef>) -> Result<RecordBatch, ArrowError> {
    let owners = || series.entity.iter().map(|&index| series.entities.get(usize::from(index)));
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(UInt64Array::from_iter_values(series.at_ns.iter().copied())),
        Arc::new(owners().map(|owner| owner.and_then(|owner| owner.node)).collect::<UInt32Array>()),
        Arc::new(StringArray::from_iter_values(owners().map(|owner| owner.map_or("", |owner| owner.name.as_str())))),
    ];
    columns.extend(series.columns.iter().map(|column| {
        let whole: Option<Vec<i64>> = column.values.iter().copied().collect();
        let array = whole.map_or_else(|| column.values.iter().copied().collect::<Int64Array>(), Int64Array::from);
        Arc::new(array) as ArrayRef
    }));
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
        // An imported table may name a column like one of ours.
        let clash = if KEYS.contains(&column.name.as_str()) { "_" } else { "" };
        let field = Field::new(format!("{}{clash}", column.name), DataType::Int64, true);
        let kind = (KIND.to_owned(), kind_name(column.kind).to_owned());
        fields.push(field.with_metadata(HashMap::from([kind])));
    }
    Schema::new(fields)
}

/// Whether the schema, one that `schema_of` made, is what it would make of these columns.
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

/// Where a column stands. Batches keep their order, so the place behind the last one is tried first: searching
/// by name for each of some hundred columns of each batch took most of the time of reading one.
fn place_of(columns: &[SeriesColumn], likely: usize, name: &str) -> Option<usize> {
    match columns.get(likely) {
        Some(column) if column.name == name => Some(likely),
        _ => columns.iter().position(|column| column.name == name),
    }
}

/// Under which name and kind a column of a file is kept: today's, where the file has a former name or kind of it.
fn name_now(file: &Schema, table: Table, name: &str, kind: ColumnKind) -> (String, ColumnKind) {
    match find(table, name) {
        // The file has the column under both names, as an import of two logs may: each stays as it is.
        Some(column) if column.former.contains(&name) && file.field_with_name(column.name).is_ok() => {
            (name.to_owned(), column.kind)
        }
        Some(column) if column.former.contains(&name) => (column.name.to_owned(), column.kind),
        Some(column) => (name.to_owned(), column.kind),
        None => (name.to_owned(), kind),
    }
}

/// The columns of a schema, without rows.
pub(in super::super) fn add_columns(schema: &Schema, into: &mut Series) {
    let mut likely = 0;
    for field in schema.fields() {
        let Some(kind) = field.metadata().get(KIND) else { continue };
        if field.data_type() != &DataType::Int64 {
            continue;
        }
        let place = place_of(&into.columns, likely, field.name()).unwrap_or_else(|| {
            let kind = if kind == "counter" { ColumnKind::Counter } else { ColumnKind::Gauge };
            let (name, kind) = name_now(schema, into.table, field.name(), kind);
            place_of(&into.columns, likely, &name).unwrap_or_else(|| {
                let values = vec![None; into.len()];
                into.columns.push(SeriesColumn { name, kind, values });
                into.columns.len() - 1
            })
        });
        likely = place + 1;
    }
}

pub(in super::super) fn decode(batch: &RecordBatch, into: &mut Series) -> Result<(), String> {
    let keys = Columns::Batch(batch);
    let (at_ns, node, name) = (keys.u64("at_ns"), keys.u32("node"), keys.text("entity"));
    if !at_ns.is_there() {
        return Err("rows without at_ns".to_owned());
    }
    let schema = batch.schema();
    add_columns(&schema, into);
    let before = into.len();
    let mut latest: Option<(Option<u32>, &str, u16)> = None;
    for row in 0..batch.num_rows() {
        let owner = (node.get(row), name.or_empty(row));
        let index = match latest {
            Some((node, name, index)) if (node, name) == owner => index,
            _ => into.entity_index(&Entity { node: owner.0, name: owner.1.to_owned() }),
        };
        latest = Some((owner.0, owner.1, index));
        into.at_ns.push(at_ns.or_default(row));
        into.entity.push(index);
    }
    let rows = into.len();
    let mut likely = 0;
    for (field, array) in schema.fields().iter().zip(batch.columns()) {
        if !field.metadata().contains_key(KIND) {
            continue;
        }
        let place = place_of(&into.columns, likely, field.name()).or_else(|| {
            let (name, _) = name_now(&schema, into.table, field.name(), ColumnKind::Gauge);
            place_of(&into.columns, likely, &name)
        });
        let Some(place) = place else { continue };
        likely = place + 1;
        if let Some(column) = into.columns.get_mut(place) {
            column.values.resize(before, None);
            Int64s::of(array.as_ref()).extend_into(array.len(), &mut column.values);
        }
    }
    for column in &mut into.columns {
        column.values.resize(rows, None);
    }
    Ok(())
}

/// Drops rows from row `from` on whose moment is not to be kept.
pub(in super::super) fn retain_from(series: &mut Series, from: usize, keeps: &mut dyn FnMut(u64) -> bool) {
    let late = series.at_ns.get(from..).unwrap_or_default();
    let kept: Vec<usize> = (from..).zip(late).filter(|&(_, &at_ns)| keeps(at_ns)).map(|(row, _)| row).collect();
    fn compact<T: Copy>(values: &mut Vec<T>, from: usize, kept: &[usize]) {
        let chosen: Vec<T> = kept.iter().filter_map(|&row| values.get(row).copied()).collect();
        values.truncate(from);
        values.extend(chosen);
    }
    compact(&mut series.at_ns, from, &kept);
    compact(&mut series.entity, from, &kept);
    for column in &mut series.columns {
        compact(&mut column.values, from, &kept);
    }
}

/// Gives up memory that no row takes.
pub(in super::super) fn shrink(series: &mut Series) {
    series.at_ns.shrink_to_fit();
    series.entity.shrink_to_fit();
    series.columns.iter_mut().for_each(|column| column.values.shrink_to_fit());
}

/// Brings rows into an order: by time, or by entity and then time (neighbouring values alike: small files).
pub(in super::super) fn sort(series: &mut Series, by_entity: bool) {
    let key = |row: usize| {
        let owner = series.entity.get(row).copied().unwrap_or(0);
        let at_ns = series.at_ns.get(row).copied().unwrap_or(0);
        if by_entity { (u64::from(owner), at_ns) } else { (at_ns, u64::from(owner)) }
    };
    if (1..series.len()).all(|row| key(row - 1) <= key(row)) {
        return;
    }
    let mut order: Vec<usize> = (0..series.len()).collect();
    order.sort_by_key(|&row| key(row));
    fn permuted<T: Copy>(values: &[T], order: &[usize]) -> Vec<T> {
        order.iter().filter_map(|&row| values.get(row).copied()).collect()
    }
    series.at_ns = permuted(&series.at_ns, &order);
    series.entity = permuted(&series.entity, &order);
    for column in &mut series.columns {
        column.values = permuted(&column.values, &order);
    }
}
