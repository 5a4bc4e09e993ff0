//! Prints the schema as the tables of docs/recording.md.

use std::fmt::Write;

use arrow_schema::{DataType, Field, Schema};

use super::{Column, GROUPS, Group};
use crate::series::{ColumnKind, Table};
use crate::store::flat::{FlatRow, FlatTable, TASK_FIELDS};
use crate::summary::SummaryRow;

/// The entity of a row of this table.
fn entity(table: Table) -> &'static str {
    match table {
        Table::Zones => "node + zone, populated ones only",
        Table::Vmstat | Table::Meminfo => "none",
        Table::Nodes => "node",
        Table::Slabs => "cache; read at start, end and on request only",
        Table::Pressure => "`cpu`, `memory`, `io`",
        Table::Cgroup => "path of the target's memory cgroup, and of each ancestor that has a limit",
        Table::Disks => "the target's device and those below it (LVM, RAID, loop file)",
        Table::Writeback => "none: the machine; `major:minor`: a device",
        Table::Cpu => "`all`, `cpuN`; with more than 16 CPUs, single CPUs once a second",
        Table::Buddy => "node + zone",
        Table::Workload => {
            "workload, or `name(id)` of a process or thread of the target where no hook could be attached"
        }
    }
}

/// The sampled tables, for docs/recording.md.
#[must_use]
pub fn markdown() -> String {
    let mut out = String::new();
    for &table in Table::ALL {
        let _ = write!(out, "\n#### {}\n\nEntity: {}.\n", table.name(), entity(table));
        let _ = write!(out, "\n| from | kind | unit | columns (since Linux) |\n|---|---|---|---|\n");
        for group in GROUPS.iter().filter(|group| group.table == table) {
            rows(&mut out, group);
        }
    }
    out
}

/// The plain tables, for docs/recording.md.
#[must_use]
pub fn flat_markdown() -> String {
    let mut out = String::new();
    for &table in FlatTable::ALL {
        flat_table(&mut out, table.name(), table.about(), &table.schema(), table.fields());
    }
    out
}

/// The table of summaries, for docs/recording.md.
#[must_use]
pub fn summary_markdown() -> String {
    let mut out = String::new();
    let fields = SummaryRow::FIELDS;
    flat_table(&mut out, SummaryRow::NAME, SummaryRow::ABOUT, &SummaryRow::schema(), fields);
    out
}

fn flat_table(out: &mut String, name: &str, about: &str, schema: &Schema, fields: &[(&str, &str)]) {
    let _ = write!(out, "\n### {name}\n\n{}\n\n| column | type | meaning |\n|---|---|---|\n", about.trim());
    for (field, meaning) in fields {
        // A task has several columns, none with the field's own name.
        let one = schema.field_with_name(field).is_ok();
        let columns = schema.fields().iter().filter(|column| match one {
            true => column.name() == field,
            false => TASK_FIELDS.iter().any(|part| *column.name() == format!("{field}_{part}")),
        });
        let (names, types): (Vec<_>, Vec<_>) =
            columns.map(|column| (format!("`{}`", column.name()), type_name(column))).unzip();
        let mut kinds = types;
        kinds.dedup();
        let _ = writeln!(out, "| {} | {} | {} |", names.join(", "), kinds.join(", "), meaning.trim());
    }
}

fn type_name(column: &Field) -> String {
    let name = match column.data_type() {
        DataType::UInt32 => "u32",
        DataType::UInt64 => "u64",
        DataType::Int64 => "i64",
        DataType::Timestamp(..) => "timestamp",
        DataType::Boolean => "bool",
        _ => "text",
    };
    if column.is_nullable() { format!("{name} or null") } else { name.to_owned() }
}

/// One row for each kind and unit of a group, in the order of their first columns.
fn rows(out: &mut String, group: &Group) {
    let mut reported: Vec<(ColumnKind, &'static str)> = Vec::new();
    for column in group.columns {
        let key = (column.kind, column.unit.name());
        if reported.contains(&key) {
            continue;
        }
        reported.push(key);
        let same_kind = group.columns.iter().filter(|other| (other.kind, other.unit.name()) == key);
        let names: Vec<String> = same_kind.map(described).collect();
        let file = if group.file.is_empty() { "flatwater, tools" } else { group.file };
        let kind = if column.kind == ColumnKind::Counter { "counter" } else { "gauge" };
        let _ = writeln!(out, "| {file} | {kind} | {} | {} |", key.1, names.join(", "));
    }
}

/// `queue_ns` (2.6.0; formerly `weighted_io_ns`; meaning).
fn described(column: &Column) -> String {
    let zone = if column.by_zone { "[_ZONE]" } else { "" };
    let mut about = vec![column.since.to_owned()];
    if !column.former.is_empty() {
        about.push(format!("formerly `{}`", column.former.join("`, `")));
    }
    if !column.meaning.is_empty() {
        about.push(column.meaning.to_owned());
    }
    format!("`{}{zone}` ({})", column.name, about.join("; "))
}
