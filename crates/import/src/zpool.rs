//! `zpool iostat`, with `-v` and `-l`: operations and bytes of pools and their members, and how long requests take.
//!
//! The first report is the mean since the pool was imported, as iostat's is.

use std::collections::BTreeMap;

use super::Importer;
use super::builder::{Builder, Cell};
use super::error::ImportError;
use super::number::{number, size};
use super::text::{Cursor, Line};
use flatwater_recording::schema::disks;
use flatwater_recording::{Column, Entity, Table};

pub const IMPORTER: Importer = Importer {
    name: "zpool-iostat",
    sentence: "zpool iostat, -v and -l: operations, bytes and waits of ZFS pools.",
    detect: |cursor| if is_header(cursor.next_text()) { 92 } else { 0 },
    read,
};

const SECOND_NS: i64 = 1_000_000_000;
/// More members than a pool has, times more reports than anybody pastes.
const ROWS_MAX: usize = 1_000_000;

/// `              capacity     operations     bandwidth    total_wait     disk_wait ...`
fn is_header(text: &str) -> bool {
    let mut words = text.split_whitespace();
    words.next() == Some("capacity") && words.next() == Some("operations") && words.next() == Some("bandwidth")
}

/// `pool        alloc   free   read  write ...`, and the rule below it.
fn is_rest_of_header(text: &str) -> bool {
    text.starts_with("pool ") && text.contains("alloc") || text.starts_with("---")
}

/// One line: a pool or a member of it, in one report.
struct Row {
    name: String,
    /// For each second of the report's interval.
    cells: Vec<(Column, f64)>,
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let (mut rows, mut timed): (Vec<Row>, bool) = (Vec::new(), false);
    while let Some(line) = cursor.peek() {
        if is_header(line.text) {
            timed = line.text.contains("total_wait");
        } else if !is_rest_of_header(line.text) && !line.is_blank() {
            match row(&line, timed) {
                Some(row) if rows.len() < ROWS_MAX => rows.push(row),
                _ => break,
            }
        }
        cursor.take();
    }
    let interval = b.command.as_deref().and_then(|command| {
        let words = command.split_whitespace().skip_while(|word| *word != "iostat").skip(1);
        words.filter_map(|word| word.parse::<i64>().ok()).find(|seconds| (1..=86_400).contains(seconds))
    });
    let step = interval.unwrap_or(1) * SECOND_NS;
    let (track, at) = b.origin("zpool-iostat");
    let mut by_name: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in &rows {
        by_name.entry(&row.name).or_default().push(row);
    }
    if by_name.values().all(|all| all.len() == 1) && !rows.is_empty() {
        b.gap(
            "the time that zpool iostat's report is about",
            "there is one report only: its figures are means since the pool was imported",
            "zpool iostat -l 1 while it is slow",
        );
    }
    for (name, all) in by_name {
        let rates = if all.len() > 1 { all.get(1..).unwrap_or_default() } else { &all[..] };
        let entity = Entity::named(name);
        let Some(first) = rates.first() else { continue };
        let zeros: Vec<(Column, Cell)> = first.cells.iter().map(|(column, _)| (*column, Cell::Rise(0.0))).collect();
        b.row((track, at), Table::Disks, &entity, &zeros);
        for (rate, place) in rates.iter().zip(1_i64..) {
            let seconds = step as f64 / 1e9;
            let cells: Vec<(Column, Cell)> =
                rate.cells.iter().map(|(column, each)| (*column, Cell::Rise(each * seconds))).collect();
            b.row((track, at.saturating_add(place.saturating_mul(step))), Table::Disks, &entity, &cells);
        }
    }
    Ok(())
}

/// `tank  5.44T  1.81T  12  310  102K  22.1M  15ms  450ms ...`; a dash stands for nothing.
fn row(line: &Line<'_>, timed: bool) -> Option<Row> {
    let words: Vec<&str> = line.text.split_whitespace().collect();
    let (name, rest) = words.split_first()?;
    let value = |at: usize| rest.get(at).copied();
    let bytes = |at: usize| value(at).and_then(|text| size(text, 1.0)).map(|bytes| bytes as f64);
    // `1.2K` operations are 1200 of them.
    let many = |at: usize| {
        let text = value(at)?;
        text.strip_suffix('K').and_then(number).map(|thousands| thousands * 1e3).or_else(|| number(text))
    };
    let plausible = rest.len() >= 6 && rest.iter().take(2).all(|word| *word == "-" || size(word, 1.0).is_some());
    if !plausible {
        return None;
    }
    let (reads, writes) = (many(2)?, many(3)?);
    let mut cells = vec![(disks::READS, reads), (disks::WRITES, writes)];
    cells.extend(bytes(4).map(|bytes| (disks::READ_BYTES, bytes)));
    cells.extend(bytes(5).map(|bytes| (disks::WRITE_BYTES, bytes)));
    if timed {
        let wait = |at: usize| value(at).and_then(span_ns);
        cells.push((disks::READ_NS, wait(6).unwrap_or(0.0) * reads));
        cells.push((disks::WRITE_NS, wait(7).unwrap_or(0.0) * writes));
    }
    Some(Row { name: (*name).to_owned(), cells })
}

/// `450ms`, `1us`, `2s`, `12ns`.
fn span_ns(text: &str) -> Option<f64> {
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    units.iter().find_map(|(unit, ns)| Some(number(text.strip_suffix(unit)?)? * ns))
}

#[cfg(test)]
mod tests {
    use super::span_ns;

    #[test]
    fn spans_have_units() {
        assert_eq!((span_ns("450ms"), span_ns("2s"), span_ns("-")), (Some(450e6), Some(2e9), None));
        assert_eq!((span_ns("12us"), span_ns("7ns"), span_ns("ms")), (Some(12e3), Some(7.0), None));
    }
}
