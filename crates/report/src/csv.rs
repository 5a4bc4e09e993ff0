//! Prints one table as CSV, quoted as in RFC 4180. An empty cell is a value that was not read, never 0.

mod calls;

use super::quantiles::Together;
use super::{Format, Options, ReportError, facts};
use flatwater_explain::Explanation;
use flatwater_recording::arrow_array::{
    Array, ArrayRef, BooleanArray, Float32Array, Float64Array, Int8Array, Int16Array, Int32Array, Int64Array,
    LargeStringArray, RecordBatch, StringArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use flatwater_recording::{LatencyBucket, Recording, Series, SeriesColumn, Table, Values, printable};

pub const FORMAT: Format =
    Format { name: "csv", sentence: "One table as CSV: --table zones, vmstat, latency, calls, ...", render };

/// The tables that are not sampled, in the order in which errors list them.
const OTHERS: &[&str] = &["latency", "calls", "parts", "stacks", "events", "gaps", "setup", "hooks", "delays"];

fn render(recording: &Recording, _explanation: &Explanation, options: &Options) -> Result<String, ReportError> {
    let Some(wanted) = options.table.as_deref() else {
        return Err(ReportError::TableNeeded { held: held(recording) });
    };
    let mut out = Csv::default();
    match wanted {
        "latency" => latency(&mut out, &recording.latency),
        "calls" => calls::calls(&mut out, recording),
        "parts" => calls::segments(&mut out, recording),
        "stacks" => calls::stacks(&mut out, recording),
        "events" => calls::events(&mut out, recording),
        "gaps" => calls::gaps(&mut out, recording),
        "setup" => calls::setup(&mut out, recording),
        "hooks" => calls::hooks(&mut out, recording),
        "delays" => calls::delays(&mut out, recording),
        name => match recording.plain_table(name) {
            Some(rows) => plain(&mut out, &rows),
            None => sampled(&mut out, recording, name)?,
        },
    }
    Ok(out.text)
}

/// Names of the tables that have rows.
fn held(recording: &Recording) -> Vec<&'static str> {
    let full = |name: &&&str| match **name {
        "latency" => !recording.latency.is_empty(),
        "calls" | "parts" => !recording.calls.is_empty(),
        "stacks" => !recording.stacks.is_empty(),
        "events" => !recording.events.is_empty(),
        "gaps" => !recording.gaps.is_empty(),
        "setup" => !recording.header.setup.is_empty(),
        "hooks" => !recording.header.hooks.is_empty(),
        _ => calls::bulk(recording).is_some_and(|bulk| !bulk.delays.is_empty()),
    };
    let others = OTHERS.iter().filter(full).copied();
    let has_rows = |name: &&'static str| recording.plain_table(name).is_some_and(|rows| rows.num_rows() > 0);
    let plain = Recording::plain_tables().filter(has_rows);
    others
        .chain(plain)
        .chain(recording.series.iter().filter(|series| !series.is_empty()).map(|s| s.table.name()))
        .collect()
}

fn sampled(out: &mut Csv, recording: &Recording, name: &str) -> Result<(), ReportError> {
    let table = Table::from_name(name).ok_or_else(|| ReportError::UnknownTable {
        given: name.to_owned(),
        known: OTHERS
            .iter()
            .copied()
            .chain(Recording::plain_tables())
            .chain(Table::ALL.iter().map(|table| table.name()))
            .collect(),
    })?;
    let series = recording.table(table).ok_or_else(|| ReportError::TableMissing {
        table: table.name(),
        why: facts::why_missing(&recording.gaps, &[table.name()]),
        held: held(recording),
    })?;
    series_rows(out, series);
    Ok(())
}

/// Prints a table of any columns; each value may be absent.
fn plain(out: &mut Csv, rows: &RecordBatch) {
    for field in rows.schema_ref().fields() {
        out.text(field.name());
    }
    out.end();
    for row in 0..rows.num_rows() {
        for column in rows.columns() {
            plain_cell(out, column, row);
        }
        out.end();
    }
}

/// One value; of a column of a type that has no CSV form, the name of the type, because an empty cell would say that
/// the value is absent.
fn plain_cell(out: &mut Csv, column: &ArrayRef, row: usize) {
    macro_rules! number {
        ($($array:ty),*) => {
            $(if let Some(numbers) = column.as_any().downcast_ref::<$array>() {
                return out.number(numbers.value(row));
            })*
        };
    }
    if column.is_null(row) {
        return out.text("");
    }
    number!(UInt64Array, UInt32Array, UInt16Array, UInt8Array);
    number!(Int64Array, Int32Array, Int16Array, Int8Array, Float64Array, Float32Array, BooleanArray);
    if let Some(texts) = column.as_any().downcast_ref::<StringArray>() {
        return out.text(texts.value(row));
    }
    if let Some(texts) = column.as_any().downcast_ref::<LargeStringArray>() {
        return out.text(texts.value(row));
    }
    out.text(&format!("({})", column.data_type()));
}

fn series_rows(out: &mut Csv, series: &Series) {
    let by_node = series.entities().iter().any(|entity| entity.node.is_some());
    let by_name = series.entities().iter().any(|entity| !entity.name.is_empty());
    out.text("at_ns");
    if by_node {
        out.text("node");
    }
    if by_name {
        out.text("entity");
    }
    for column in &series.columns {
        out.text(&column.name);
    }
    out.end();
    let columns: Vec<Values<'_>> = series.columns.iter().map(SeriesColumn::values).collect();
    for (row, at_ns) in series.at_ns().iter().enumerate() {
        let entity = series.owners().get(row).and_then(|index| series.entities().get(usize::from(*index)));
        out.number(*at_ns);
        if by_node {
            out.optional(entity.and_then(|entity| entity.node));
        }
        if by_name {
            out.text(entity.map_or("", |entity| entity.name.as_str()));
        }
        for column in &columns {
            out.optional(column.get(row));
        }
        out.end();
    }
}

const QUANTILES: [f64; 4] = [0.5, 0.99, 0.999, 0.9999];

fn latency(out: &mut Csv, buckets: &[LatencyBucket]) {
    out.header(&[
        "start_ns",
        "width_ns",
        "op",
        "thread",
        "count",
        "bytes",
        "p50_ns",
        "p99_ns",
        "p999_ns",
        "p9999_ns",
        "max_ns",
        "due_p50_ns",
        "due_p99_ns",
        "due_p999_ns",
        "due_p9999_ns",
        "due_max_ns",
    ]);
    for bucket in buckets {
        out.number(bucket.start_ns);
        out.number(bucket.width_ns);
        out.text(bucket.op.name());
        out.text(&bucket.thread);
        out.number(bucket.from_start.count());
        out.number(bucket.bytes);
        let from_start = Together::of([&bucket.from_start]);
        for quantile in QUANTILES {
            out.optional(from_start.at(quantile));
        }
        out.number(bucket.worst_from_start_ns);
        let from_due = Together::of(&bucket.from_due);
        for quantile in QUANTILES {
            out.optional(from_due.at(quantile));
        }
        out.optional(bucket.worst_from_due_ns);
        out.end();
    }
}

/// The CSV under construction.
#[derive(Debug, Default)]
struct Csv {
    text: String,
    begun: bool,
}

impl Csv {
    fn header(&mut self, names: &[&str]) {
        for name in names {
            self.text(name);
        }
        self.end();
    }

    /// Adds a string from the recording. A spreadsheet runs a cell that starts with one of these characters as a
    /// formula; an apostrophe before it makes the cell text.
    fn text(&mut self, cell: &str) {
        let cell = printable::line(cell);
        if cell.starts_with(['=', '+', '-', '@']) {
            self.cell(&format!("'{cell}"));
        } else {
            self.cell(&cell);
        }
    }

    fn cell(&mut self, cell: &str) {
        if std::mem::replace(&mut self.begun, true) {
            self.text.push(',');
        }
        if cell.contains(['"', ',', '\n', '\r']) {
            self.text.push('"');
            self.text.push_str(&cell.replace('"', "\"\""));
            self.text.push('"');
        } else {
            self.text.push_str(cell);
        }
    }

    fn number(&mut self, value: impl std::fmt::Display) {
        self.cell(&value.to_string());
    }

    fn optional(&mut self, value: Option<impl std::fmt::Display>) {
        match value {
            Some(value) => self.number(value),
            None => self.text(""),
        }
    }

    fn end(&mut self) {
        self.text.push('\n');
        self.begun = false;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Csv, plain};
    use flatwater_recording::arrow_array::{
        ArrayRef, BinaryArray, BooleanArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
        UInt16Array,
    };

    /// Columns of other types than the first four were printed as empty cells, which mean "not read".
    #[test]
    fn columns_of_all_types_are_printed() {
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("signed", Arc::new(Int64Array::from(vec![Some(-7), None]))),
            ("small", Arc::new(Int32Array::from(vec![-1, 2]))),
            ("short", Arc::new(UInt16Array::from(vec![3, 4]))),
            ("share", Arc::new(Float64Array::from(vec![0.5, 1.5]))),
            ("flag", Arc::new(BooleanArray::from(vec![true, false]))),
            ("text", Arc::new(StringArray::from(vec!["a", "b"]))),
            ("bytes", Arc::new(BinaryArray::from(vec![Some(&b"x"[..]), None]))),
        ];
        let rows =
            RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true)));
        let mut out = Csv::default();
        plain(&mut out, &rows.expect("columns of one length"));
        assert_eq!(
            out.text,
            "signed,small,short,share,flag,text,bytes\n-7,-1,3,0.5,true,a,(Binary)\n,2,4,1.5,false,b,\n"
        );
    }

    #[test]
    fn a_formula_becomes_text_but_a_negative_number_stays_a_number() {
        let mut out = Csv::default();
        out.text("=cmd|' /C calc'!A0");
        out.text("@sum(1,2)");
        out.text("na\u{202e}me");
        out.number(-7);
        out.end();
        assert_eq!(out.text, "'=cmd|' /C calc'!A0,\"'@sum(1,2)\",na\u{fffd}me,-7\n");
    }

    #[test]
    fn cells_with_commas_quotes_and_lines_are_quoted() {
        let mut out = Csv::default();
        out.text("a,b");
        out.text("say \"no\"");
        out.optional(None::<u64>);
        out.number(7);
        out.end();
        assert_eq!(out.text, "\"a,b\",\"say \"\"no\"\"\",,7\n");
    }
}
