//! Renders answers as text, JSON, CSV, Parquet and HTML.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::compute::cast;
use arrow::csv::WriterBuilder;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::json::writer::{JsonArray, WriterBuilder as JsonBuilder};
use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use flatwater_recording::printable;
use flatwater_recording::units::Nanos;
use parquet::arrow::ArrowWriter;

use crate::FleetError;
use crate::left_out::LeftOut;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    #[default]
    Text,
    Json,
    Csv,
    Parquet,
    Html,
}

/// The rows of an answer, with what is missing from them.
#[derive(Clone, Debug)]
pub struct Answer {
    pub about: String,
    /// `2026-11-21 00:00:00 to 2026-11-22 00:00:00 UTC`.
    pub range: String,
    pub rows: Vec<RecordBatch>,
    pub left_out: LeftOut,
    /// Printed after the rows: summaries not yet compacted, parts that are missing.
    pub notes: Vec<String>,
}

impl Answer {
    fn schema(&self) -> Option<SchemaRef> {
        self.rows.first().map(RecordBatch::schema)
    }

    #[must_use]
    pub fn count(&self) -> usize {
        self.rows.iter().map(RecordBatch::num_rows).sum()
    }

    /// The text after the rows.
    #[must_use]
    pub fn notes_text(&self) -> String {
        let mut text = self.left_out.to_string();
        for note in &self.notes {
            let _ = writeln!(text, "{note}");
        }
        text
    }

    /// The whole answer in this format.
    pub fn render(&self, format: Format) -> Result<Vec<u8>, FleetError> {
        match format {
            Format::Text => Ok(self.text()?.into_bytes()),
            Format::Json => self.json(),
            Format::Csv => self.csv(),
            Format::Parquet => self.parquet(),
            Format::Html => Ok(self.html()?.into_bytes()),
        }
    }

    /// The column names and the cells of each row, formatted for people. A null is an empty cell.
    fn cells(&self) -> Result<(Vec<String>, Vec<Vec<String>>), FleetError> {
        let Some(schema) = self.schema() else { return Ok((Vec::new(), Vec::new())) };
        let names: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
        let options = FormatOptions::default().with_timestamp_format(Some("%Y-%m-%d %H:%M"));
        let mut rows = Vec::with_capacity(self.count());
        for batch in &self.rows {
            let columns = batch.columns().iter();
            let shown: Vec<ArrayFormatter<'_>> =
                columns.map(|column| ArrayFormatter::try_new(column, &options)).collect::<Result<_, _>>()?;
            for row in 0..batch.num_rows() {
                let cells = shown.iter().zip(batch.columns()).zip(&names).map(|((cell, column), name)| {
                    if column.is_null(row) {
                        return String::new();
                    }
                    human(name, &cell.value(row).to_string())
                });
                rows.push(cells.collect());
            }
        }
        Ok((names, rows))
    }

    fn numeric(&self) -> Vec<bool> {
        let fields = self.schema().map(|schema| schema.fields().clone());
        fields.iter().flat_map(|fields| fields.iter()).map(|field| field.data_type().is_numeric()).collect()
    }

    fn text(&self) -> Result<String, FleetError> {
        let (names, rows) = self.cells()?;
        let heads: Vec<String> = names.iter().map(|name| head(name)).collect();
        let mut out = format!("{}\n{}\n\n", self.about, self.range);
        if rows.is_empty() {
            out.push_str("no rows\n");
        } else {
            let widths: Vec<usize> = (0..heads.len())
                .map(|at| rows.iter().map(|row| shown_width(&row[at])).chain([heads[at].len()]).max().unwrap_or(0))
                .collect();
            let numeric = self.numeric();
            for row in std::iter::once(&heads).chain(&rows) {
                let mut line = String::new();
                for (at, cell) in row.iter().enumerate() {
                    let cell = if cell.is_empty() { "-" } else { cell };
                    let pad = widths[at].saturating_sub(cell.chars().count());
                    let (before, after) = if numeric[at] { (pad, 0) } else { (0, pad) };
                    let _ = write!(line, "{}{cell}{}  ", " ".repeat(before), " ".repeat(after));
                }
                let _ = writeln!(out, "{}", line.trim_end());
            }
        }
        let text = self.notes_text();
        if !text.is_empty() {
            let _ = write!(out, "\n{text}");
        }
        Ok(out)
    }

    fn json(&self) -> Result<Vec<u8>, FleetError> {
        // Write nulls: a missing key would look like a column that does not exist.
        let mut writer = JsonBuilder::new().with_explicit_nulls(true).build::<_, JsonArray>(Vec::new());
        writer.write_batches(&self.rows.iter().collect::<Vec<_>>())?;
        writer.finish()?;
        let mut rows = writer.into_inner();
        if rows.is_empty() {
            rows.extend(b"[]");
        }
        let rows: serde_json::Value =
            serde_json::from_slice(&rows).map_err(|error| FleetError::Encode(error.to_string()))?;
        let all = serde_json::json!({
            "flatwater": 1, "kind": "fleet-answer", "about": self.about, "range": self.range,
            "rows": rows, "left_out": self.left_out, "notes": self.notes,
        });
        let text = serde_json::to_string_pretty(&all).map_err(|error| FleetError::Encode(error.to_string()))?;
        Ok((json_for_terminals(&text) + "\n").into_bytes())
    }

    fn csv(&self) -> Result<Vec<u8>, FleetError> {
        let mut writer = WriterBuilder::new().with_header(true).build(Vec::new());
        for batch in &self.rows {
            writer.write(&for_spreadsheets(batch)?)?;
        }
        Ok(writer.into_inner())
    }

    fn parquet(&self) -> Result<Vec<u8>, FleetError> {
        let Some(schema) = self.schema() else { return Ok(Vec::new()) };
        let mut writer = ArrowWriter::try_new(Vec::new(), schema, None)?;
        for batch in &self.rows {
            writer.write(batch)?;
        }
        Ok(writer.into_inner()?)
    }

    /// A page with one table.
    fn html(&self) -> Result<String, FleetError> {
        let (names, rows) = self.cells()?;
        let numeric = self.numeric();
        let mut out = format!(
            "<!doctype html><meta charset=\"utf-8\"><meta http-equiv=\"Content-Security-Policy\" \
             content=\"default-src 'none'; style-src 'unsafe-inline'\"><title>{about}</title>\
             <style>body{{font:15px system-ui;margin:2em}}td,th{{padding:.2em .8em;text-align:left}}\
             .n{{text-align:right;font-variant-numeric:tabular-nums}}tr:nth-child(even){{background:#f3f5f7}}</style>\
             <h1>{about}</h1><p>{range}</p><table><tr>",
            about = escaped(&self.about),
            range = escaped(&self.range)
        );
        let class = |at: usize| if numeric[at] { " class=\"n\"" } else { "" };
        for (at, name) in names.iter().enumerate() {
            let _ = write!(out, "<th{}>{}</th>", class(at), escaped(&head(name)));
        }
        out.push_str("</tr>\n");
        for row in rows {
            out.push_str("<tr>");
            for (at, cell) in row.iter().enumerate() {
                let _ = write!(out, "<td{}>{}</td>", class(at), escaped(cell));
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</table>\n");
        let text = self.notes_text();
        if !text.is_empty() {
            let _ = writeln!(out, "<pre>{}</pre>", escaped(&text));
        }
        Ok(out)
    }
}

/// Escapes what JSON allows in its strings but a terminal acts on: DEL, C1 and characters of direction. A reader gets
/// the same text.
#[must_use]
pub fn json_for_terminals(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c != '\n' && printable::is_hostile(c) {
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

fn shown_width(cell: &str) -> usize {
    cell.chars().count().max(1)
}

/// The heading of a column. Cells of `stall_ns` have units, so the heading has none.
fn head(name: &str) -> String {
    printable::line(name.strip_suffix("_ns").unwrap_or(name)).replace('_', " ")
}

/// A cell for people: times with a unit, text without characters that control a terminal.
#[must_use]
pub fn human(name: &str, plain: &str) -> String {
    // A mean of times is a fraction.
    if name.ends_with("_ns")
        && let Ok(ns) = plain.parse::<f64>()
    {
        let sign = if ns < 0.0 { "-" } else { "" };
        return format!("{sign}{}", Nanos(plain.parse().unwrap_or(ns.abs().round() as u64)));
    }
    printable::line(plain).into_owned()
}

/// Prefixes text that a spreadsheet would run as a formula with an apostrophe, as in the CSV of a recording. Hosts
/// choose the text of these cells.
fn for_spreadsheets(batch: &RecordBatch) -> Result<RecordBatch, FleetError> {
    let mut fields = Vec::with_capacity(batch.num_columns());
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(batch.num_columns());
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        let kind = field.data_type();
        let value = if let DataType::Dictionary(_, value) = kind { value.as_ref() } else { kind };
        if !matches!(value, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) {
            fields.push(field.as_ref().clone());
            columns.push(Arc::clone(column));
            continue;
        }
        let text = cast(column, &DataType::Utf8)?;
        let safe = text.as_string::<i32>().iter().map(|cell| {
            let cell = printable::line(cell?);
            Some(if cell.starts_with(['=', '+', '-', '@']) { format!("'{cell}") } else { cell.into_owned() })
        });
        fields.push(Field::new(field.name(), DataType::Utf8, true));
        columns.push(Arc::new(safe.collect::<StringArray>()));
    }
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}

pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, StringArray, StringViewArray};
    use arrow::datatypes::{DataType, Field, Schema};
    use arrow::record_batch::RecordBatch;

    use super::{Answer, Format, human, json_for_terminals};
    use crate::left_out::{LeftOut, Why};

    fn answer() -> Answer {
        let schema =
            Schema::new(vec![Field::new("host", DataType::Utf8, true), Field::new("stall_ns", DataType::Int64, true)]);
        let hosts = StringArray::from(vec![Some("db<1>\u{1b}[31m"), Some("db2")]);
        let rows = RecordBatch::try_new(
            Arc::new(schema),
            vec![Arc::new(hosts), Arc::new(Int64Array::from(vec![Some(41_200_000), None]))],
        );
        let mut left_out = LeftOut::default();
        left_out.put(Why::Damaged, "v=1/x", "torn");
        Answer {
            about: "Who.".into(),
            range: "a to b".into(),
            rows: vec![rows.expect("rows")],
            left_out,
            notes: vec!["3 summaries wait".into()],
        }
    }

    fn rendered(format: Format) -> String {
        String::from_utf8(answer().render(format).expect("rendered")).expect("text")
    }

    #[test]
    fn each_format_distinguishes_null_from_zero_and_lists_what_is_missing() {
        let text = rendered(Format::Text);
        assert!(text.contains("41.2 ms") && text.contains("not used: 1 cannot be read: v=1/x (torn)"), "{text}");
        assert!(!text.contains('\u{1b}') && text.lines().any(|line| line.starts_with("db2") && line.ends_with('-')));
        let json: serde_json::Value = serde_json::from_str(&rendered(Format::Json)).expect("JSON");
        assert_eq!(json["rows"][0]["stall_ns"], 41_200_000);
        assert!(json["rows"][1].get("stall_ns").is_some_and(serde_json::Value::is_null));
        assert_eq!(json["left_out"]["found"]["damaged"]["v=1/x"], "torn");
        assert!(rendered(Format::Csv).ends_with("db2,\n"));
        assert!(!rendered(Format::Csv).contains('\u{1b}'));
        let html = rendered(Format::Html);
        assert!(html.contains("db&lt;1&gt;") && !html.contains("db<1>"), "{html}");
    }

    #[test]
    fn a_host_is_never_a_formula_and_a_negative_number_stays_a_number() {
        let schema =
            Schema::new(vec![Field::new("host", DataType::Utf8View, true), Field::new("n", DataType::Int64, true)]);
        let hosts = StringViewArray::from(vec![Some("=cmd|' /C calc'!A0"), Some("a,\"b\"\n"), None]);
        let rows = RecordBatch::try_new(
            Arc::new(schema),
            vec![Arc::new(hosts), Arc::new(Int64Array::from(vec![Some(-7), None, Some(0)]))],
        );
        let answer = Answer { rows: vec![rows.expect("rows")], ..answer() };
        let csv = String::from_utf8(answer.render(Format::Csv).expect("rendered")).expect("text");
        assert_eq!(csv, "host,n\n'=cmd|' /C calc'!A0,-7\n\"a,\"\"b\"\"\u{fffd}\",\n,0\n");
    }

    /// DEL, C1 and characters of direction are escaped too.
    #[test]
    fn json_does_not_control_the_terminal() {
        let name = "a\u{7f}\u{9b}2J\u{202e}\u{2028}\u{feff}\"\\\n\u{e9}";
        let json = json_for_terminals(&serde_json::json!([name]).to_string());
        assert!(!json.contains(flatwater_recording::printable::is_hostile), "{json:?}");
        let read: Vec<String> = serde_json::from_str(&json).expect("JSON");
        assert_eq!(read, [name]);
    }

    #[test]
    fn times_have_units_for_integers_and_fractions() {
        assert_eq!(human("stall_ns", "41200000"), "41.2 ms");
        assert_eq!(human("mean_ns", "41200000.4"), "41.2 ms");
        assert_eq!(human("change_ns", "-41200000"), "-41.2 ms");
        assert_eq!(human("calls", "41200000"), "41200000");
        assert_eq!(human("host", "a\u{202e}b"), "a\u{fffd}b");
    }

    #[test]
    fn an_answer_without_rows_is_rendered() {
        let mut none = answer();
        none.rows = none.rows.iter().map(|batch| batch.slice(0, 0)).collect();
        for format in [Format::Text, Format::Json, Format::Csv, Format::Parquet, Format::Html] {
            assert!(none.render(format).is_ok(), "{format:?}");
        }
        assert!(String::from_utf8(none.text().expect("text").into_bytes()).expect("text").contains("no rows"));
    }
}
