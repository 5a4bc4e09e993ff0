//! Reads /proc/pressure/*. The resource is in the path before the lines, or follows from the order of
//! `cat /proc/pressure/*`.

use super::without_path;
use crate::anchors::Anchor;
use crate::builder::{Builder, Cell};
use crate::error::ImportError;
use crate::number::{number, rounded};
use crate::text::{Cursor, Line};
use crate::{FormatKind, Importer};
use flatwater_recording::schema::{Column, pressure};
use flatwater_recording::{Entity, Table};

pub const IMPORTER: Importer = Importer {
    name: "pressure",
    sentence: "/proc/pressure/cpu, io, memory and a cgroup's *.pressure.",
    kind: FormatKind::Averages,
    anchors: &[
        Anchor::Table(&["some avg10=", "full avg10=", "pressure/", ".pressure"]),
        Anchor::Below(&["some avg10=", "full avg10="]),
    ],
    detect: |cursor| {
        let next = cursor.ahead(1).is_some_and(|line| is_pressure(line.text));
        if is_pressure(cursor.next_text()) || (label(cursor.next_text()).is_some() && next) { 92 } else { 0 }
    },
    read,
};

fn is_pressure(text: &str) -> bool {
    let (_, text) = without_path(text.trim());
    text.starts_with("some avg10=") || text.starts_with("full avg10=")
}

/// The resource in a path or command: `cat /proc/pressure/io`, `==> memory.pressure <==`.
fn resource(text: &str) -> Option<&'static str> {
    ["cpu", "io", "memory", "irq"].into_iter().find(|name| {
        let path = format!("pressure/{name}");
        text.contains(&path) || text.contains(&format!("{name}.pressure"))
    })
}

/// The resource named by a line that precedes the values.
fn label(text: &str) -> Option<&'static str> {
    let bare = text.trim().trim_matches(|c: char| "=<>-:# ".contains(c));
    let word = ["cpu", "io", "memory", "irq"].into_iter().find(|name| bare.eq_ignore_ascii_case(name));
    word.or_else(|| resource(text).filter(|_| !is_pressure(text)))
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let place = b.snapshot("pressure");
    let from_command: Vec<&'static str> = match b.context().command.as_deref() {
        Some(command) => command.split_whitespace().filter_map(resource).collect(),
        None => Vec::new(),
    };
    let mut rows: Vec<(&'static str, Vec<(String, Cell)>)> = Vec::new();
    let mut named: Option<&'static str> = None;
    let mut assumed = false;
    while let Some(line) = cursor.peek() {
        let below = cursor.ahead(1).is_some_and(|line| label(line.text).is_some() || is_pressure(line.text));
        if line.is_blank() && below {
            cursor.take();
            continue;
        }
        if let Some(name) = label(line.text) {
            named = Some(name);
            cursor.take();
            continue;
        }
        if !is_pressure(line.text) {
            break;
        }
        let (path, text) = without_path(line.text.trim());
        let begins = text.starts_with("some");
        // `some` begins the next file; cat prints the files in alphabetical order.
        let ordinal = if begins { rows.len() } else { rows.len().saturating_sub(1) };
        let by_order = from_command.get(ordinal).copied();
        let known = resource(path).or(named).or(by_order);
        assumed |= known.is_none();
        let name = known.or(["cpu", "io", "memory", "irq"].get(ordinal).copied()).unwrap_or("irq");
        if begins {
            if rows.iter().any(|(known, _)| *known == name) {
                break;
            }
            rows.push((name, Vec::new()));
        }
        cursor.take();
        match (cells(&line, text), rows.last_mut()) {
            (Ok(cells), Some((_, row))) => row.extend(cells),
            (Err(error), _) => b.problem(error),
            (Ok(_), None) => b.problem(ImportError::line(&line, "a line with 'some' before that with 'full'")),
        }
    }
    if assumed && rows.len() == 1 {
        b.gap(
            "the resource of the pressure lines",
            "it is not named, and there is only one block of lines",
            "keep the path: grep . /proc/pressure/*",
        );
        rows[0].0 = "unnamed";
    } else if assumed {
        b.gap("the resource of the pressure lines", "they are not named: the order cpu, io, memory is assumed", "");
    }
    for (name, cells) in &rows {
        b.row(place, Table::Pressure, &Entity::named(name), cells);
    }
    Ok(())
}

/// Line, key and column of `some avg10=0.16 avg60=0.37 avg300=1.15 total=51639225`.
const COLUMNS: [(&str, &str, Column); 8] = [
    ("some", "avg10", pressure::SOME_AVG10_CENTIPERCENT),
    ("some", "avg60", pressure::SOME_AVG60_CENTIPERCENT),
    ("some", "avg300", pressure::SOME_AVG300_CENTIPERCENT),
    ("some", "total", pressure::SOME_TOTAL_US),
    ("full", "avg10", pressure::FULL_AVG10_CENTIPERCENT),
    ("full", "avg60", pressure::FULL_AVG60_CENTIPERCENT),
    ("full", "avg300", pressure::FULL_AVG300_CENTIPERCENT),
    ("full", "total", pressure::FULL_TOTAL_US),
];

fn cells(line: &Line<'_>, text: &str) -> Result<Vec<(String, Cell)>, ImportError> {
    let (mut kind, mut cells) = ("", Vec::new());
    for word in text.split_whitespace() {
        // People also paste both lines of a file as one.
        if matches!(word, "some" | "full") {
            kind = word;
            continue;
        }
        let token = crate::text::Token { text: word, column: line.column_of(word) };
        let pair = word.split_once('=').and_then(|(name, value)| Some((name, number(value)?)));
        let Some((name, value)) = pair else { return Err(ImportError::at(line, token, "NAME=NUMBER")) };
        let known = COLUMNS.iter().find(|(line, key, _)| (*line, *key) == (kind, name));
        cells.push(match known {
            Some((_, "total", column)) => (column.name.to_owned(), Cell::Counter(rounded(value))),
            Some((_, _, column)) => (column.name.to_owned(), Cell::Gauge(rounded(value * 100.0))),
            // A window of averages that no kernel has yet.
            None => (format!("{kind}_{name}_centipercent"), Cell::Gauge(rounded(value * 100.0))),
        });
    }
    Ok(cells)
}

#[cfg(test)]
mod tests {
    use crate::import_texts;
    use flatwater_recording::Table;
    use flatwater_recording::schema::pressure;

    #[test]
    fn both_lines_of_a_file_on_one_line_with_its_path_are_read() {
        let text = "/proc/pressure/cpu:     some avg10=98.72 avg60=97.89 avg300=96.02\n\
                    /proc/pressure/memory:  some avg10=0.50        full avg10=0.25\n";
        let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        let table = recording.table(Table::Pressure).expect("a table");
        let last = |name: &str, column| {
            table.by_entity().find(|(entity, _)| entity.name == name).and_then(|(_, rows)| rows.last(column))
        };
        assert_eq!(last("cpu", pressure::SOME_AVG10_CENTIPERCENT), Some(9_872));
        assert_eq!(last("memory", pressure::SOME_AVG10_CENTIPERCENT), Some(50));
        assert_eq!(last("memory", pressure::FULL_AVG10_CENTIPERCENT), Some(25));
    }
}
