//! Reads `zpool iostat`, with `-v` and `-l`: operations, bytes and waits of pools and their members.
//!
//! As with iostat, the first report is a mean, here since the import of the pool.

use super::builder::Builder;
use super::error::ImportError;
use super::means::{Alone, Mean, Means};
use super::number::{number, size};
use super::text::{Cursor, Line};
use super::{FormatKind, Importer};
use crate::anchors::Anchor;
use flatwater_recording::schema::disks;

pub const IMPORTER: Importer = Importer {
    name: "zpool-iostat",
    sentence: "zpool iostat, -v and -l: operations, bytes and waits of ZFS pools.",
    kind: FormatKind::Averages,
    anchors: &[Anchor::Table(&["bandwidth"])],
    detect: |cursor| if is_header(cursor.next_text()) { 92 } else { 0 },
    read,
};

/// Whether the line is `              capacity     operations     bandwidth    total_wait     disk_wait ...`.
fn is_header(text: &str) -> bool {
    let mut words = text.split_whitespace();
    words.next() == Some("capacity") && words.next() == Some("operations") && words.next() == Some("bandwidth")
}

/// Whether the line is `pool        alloc   free   read  write ...`, or the rule below it.
fn is_rest_of_header(text: &str) -> bool {
    text.starts_with("pool ") && text.contains("alloc") || text.starts_with("---")
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let (mut means, mut timed) = (Means::default(), false);
    while let Some(line) = cursor.peek() {
        if is_header(line.text) {
            timed = line.text.contains("total_wait");
        } else if !is_rest_of_header(line.text)
            && !line.is_blank()
            && !row(&line, timed).is_some_and(|row| means.push(row))
        {
            break;
        }
        cursor.take();
    }
    let alone = Alone {
        what: "interval of zpool iostat's report",
        why: "there is only one report: its values are means since the pool was imported",
        remedy: "zpool iostat -l 1 while it is slow",
    };
    means.write(b, "zpool-iostat", "iostat", alone);
    Ok(())
}

/// Parses `tank  5.44T  1.81T  12  310  102K  22.1M  15ms  450ms ...`; a dash is a missing value.
fn row(line: &Line<'_>, timed: bool) -> Option<Mean> {
    let words: Vec<&str> = line.text.split_whitespace().collect();
    let (name, rest) = words.split_first()?;
    let value = |at: usize| rest.get(at).copied();
    let bytes = |at: usize| value(at).and_then(|text| size(text, 1.0)).map(|bytes| bytes as f64);
    // `1.2K` operations are 1200.
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
    Some(Mean { name: (*name).to_owned(), cells })
}

/// Parses `450ms`, `1us`, `2s` or `12ns`.
fn span_ns(text: &str) -> Option<f64> {
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    units.iter().find_map(|(unit, ns)| Some(number(text.strip_suffix(unit)?)? * ns))
}

#[cfg(test)]
mod tests {
    use super::span_ns;

    #[test]
    fn spans_parse_with_their_unit() {
        assert_eq!((span_ns("450ms"), span_ns("2s"), span_ns("-")), (Some(450e6), Some(2e9), None));
        assert_eq!((span_ns("12us"), span_ns("7ns"), span_ns("ms")), (Some(12e3), Some(7.0), None));
    }
}
