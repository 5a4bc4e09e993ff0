//! Reads /proc/meminfo of 2.4 to 6.x, complete or in parts, and the file of a node (`Node 0 MemFree: ...`).

use super::without_path;
use crate::anchors::Anchor;
use crate::builder::{Builder, Cell};
use crate::error::ImportError;
use crate::number::count;
use crate::text::{Cursor, Line};
use crate::{FormatKind, Importer};
use flatwater_recording::schema::find;
use flatwater_recording::{Entity, Table};

pub const IMPORTER: Importer = Importer {
    name: "meminfo",
    sentence: "/proc/meminfo from 2.4 on, complete or in parts, and /sys/devices/system/node/node*/meminfo.",
    kind: FormatKind::Averages,
    anchors: &[
        Anchor::Table(&[" kB", "MemTotal", "MemFree"]),
        Anchor::Line(&[
            "MemAvailable:",
            "MemUsed:",
            "Buffers:",
            "Cached:",
            "SwapCached:",
            "Active:",
            "Inactive:",
            "SwapTotal:",
            "SwapFree:",
            "Dirty:",
            "Writeback:",
            "AnonPages:",
            "Mapped:",
            "Slab:",
            "SReclaimable:",
            "SUnreclaim:",
            "LowTotal:",
            "LowFree:",
            "HighTotal:",
            "HighFree:",
            "Committed_AS:",
            "Shmem:",
            "KReclaimable:",
            "Active(file):",
            "Inactive(file):",
            "PageTables:",
        ]),
        Anchor::Common(&["total:"]),
    ],
    detect: |cursor| {
        let known = parse(cursor.next_text()).is_some_and(|(_, name, value)| {
            // Any known line with a unit, and lines of `KNOWN`, which other importers would claim.
            KNOWN.contains(&name) || value.ends_with("kB") && find(Table::Meminfo, &format!("{name}_bytes")).is_some()
        });
        if known || is_old_header(cursor.next_text()) { 85 } else { 0 }
    },
    read,
};

/// Names that may begin a part of the file; further lines may have any name.
const KNOWN: &[&str] = &[
    "MemTotal",
    "MemFree",
    "MemAvailable",
    "MemUsed",
    "Buffers",
    "Cached",
    "SwapCached",
    "Active",
    "Inactive",
    "SwapTotal",
    "SwapFree",
    "Dirty",
    "Writeback",
    "AnonPages",
    "Mapped",
    "Slab",
    "SReclaimable",
    "SUnreclaim",
    "LowTotal",
    "LowFree",
    "HighTotal",
    "HighFree",
    "Committed_AS",
    "Shmem",
    "KReclaimable",
    "Active(file)",
    "Inactive(file)",
    "PageTables",
];

/// Whether this is the header of the table that 2.4 printed before the lines: `        total:    used:    free:`.
fn is_old_header(text: &str) -> bool {
    let mut words = text.split_whitespace();
    words.next() == Some("total:") && words.next() == Some("used:")
}

/// Parses `Node 0 MemFree:  12 kB` as node, name and value.
fn parse(text: &str) -> Option<(Option<u32>, &str, &str)> {
    let (_, text) = without_path(text.trim());
    let (name, value) = text.split_once(':')?;
    let (node, name) = match name.strip_prefix("Node ") {
        Some(rest) => rest.split_once(' ').and_then(|(node, name)| Some((Some(node.parse().ok()?), name.trim())))?,
        None => (None, name),
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "_()".contains(c);
    let whole = name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(plain);
    whole.then_some((node, name, value.trim()))
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let place = b.snapshot("meminfo");
    let mut rows: Vec<(Option<u32>, Vec<(String, Cell)>)> = Vec::new();
    while let Some(line) = cursor.peek() {
        if is_old_header(line.text) {
            if !rows.is_empty() {
                break;
            }
            cursor.take();
            continue;
        }
        // 2.4 also prints totals in bytes; the lines below contain them in kB.
        if line.text.starts_with("Mem: ") || line.text.starts_with("Swap: ") {
            cursor.take();
            continue;
        }
        let Some((node, name, value)) = parse(line.text) else { break };
        if rows.len() >= 1024 {
            break;
        }
        let cells = match rows.iter().position(|(known, _)| *known == node).and_then(|place| rows.get_mut(place)) {
            Some((_, cells)) => cells,
            None => {
                rows.push((node, Vec::new()));
                let Some((_, cells)) = rows.last_mut() else { break };
                cells
            }
        };
        // A repeated line begins the next snapshot.
        if cells.len() >= 1000 || cells.iter().any(|(known, _)| known.strip_suffix("_bytes").unwrap_or(known) == name) {
            break;
        }
        cursor.take();
        match cell(&line, name, value) {
            Ok(cell) => cells.push(cell),
            Err(error) => b.problem(error),
        }
    }
    for (node, cells) in &rows {
        match node {
            Some(node) => {
                b.node(*node);
                b.row(place, Table::Nodes, &Entity::on_node(*node, ""), cells);
            }
            None => {
                totals(b, cells);
                b.row(place, Table::Meminfo, &Entity::default(), cells);
            }
        }
    }
    Ok(())
}

fn totals(b: &mut Builder, cells: &[(String, Cell)]) {
    for (name, cell) in cells {
        let Cell::Gauge(value) = cell else { continue };
        match name.as_str() {
            "MemTotal_bytes" => b.machine.memory_bytes = b.machine.memory_bytes.or(u64::try_from(*value).ok()),
            "SwapTotal_bytes" => b.machine.swap_bytes = b.machine.swap_bytes.or(u64::try_from(*value).ok()),
            _ => {}
        }
    }
}

fn cell(line: &Line<'_>, name: &str, value: &str) -> Result<(String, Cell), ImportError> {
    let mut words = value.split_whitespace();
    let Some(number) = words.next() else {
        return Err(ImportError::short(line, format!("a number after '{name}:'")));
    };
    let token = crate::text::Token { text: number, column: line.column_of(number) };
    let parsed = count(number).ok_or_else(|| ImportError::at(line, token, format!("a number of kB for '{name}'")))?;
    // Lines without a unit are counts (HugePages_Total).
    Ok(match words.next() {
        Some("kB") => (format!("{name}_bytes"), Cell::Gauge(parsed.saturating_mul(1024))),
        _ => (name.to_owned(), Cell::Gauge(parsed)),
    })
}

#[cfg(test)]
mod tests {
    use crate::import_texts;
    use flatwater_recording::Table;
    use flatwater_recording::schema::meminfo;

    #[test]
    fn a_heading_before_a_reading_is_not_an_average_of_sar() {
        let text = "MemFree:          374572 kB\nCached:          5550972 kB\n\nAfter:\nMemFree:         3477168 kB\nCached:          2724504 kB\n";
        let imported = import_texts(&[("f".to_owned(), text.into())]).expect("read");
        assert!(imported.formats.iter().all(|(_, format)| *format == "meminfo"), "{:?}", imported.formats);
        let (_, rows) = imported.recording.table(Table::Meminfo).expect("memory").by_entity().next().expect("a row");
        assert_eq!(rows.last(meminfo::CACHED_BYTES), Some(2_724_504 << 10));
    }
}
