//! Reads numastat: counters by node, `-n` (the same in MB), `-m` (meminfo by node), `-p` (processes by node).

use super::builder::{Builder, Cell};
use super::error::ImportError;
use super::number::{number, rounded};
use super::text::{Cursor, Line, Token};
use super::{FormatKind, Importer};
use crate::anchors::Anchor;
use flatwater_recording::schema::nodes;
use flatwater_recording::{Entity, Table};

pub const IMPORTER: Importer = Importer {
    name: "numastat",
    sentence: "numastat, -n, -m and -p.",
    kind: FormatKind::Unjudged,
    anchors: &[
        Anchor::Table(&["Per-node ", "numa_"]),
        Anchor::Common(&[
            "Node ", "Total", "node0", "node1", "node2", "node3", "node4", "node5", "node6", "node7", "node8", "node9",
        ]),
    ],
    detect: |cursor| match cursor.next_text() {
        text if text.starts_with("Per-node ") && text.contains("(in MBs)") => 95,
        text if heads(text).is_some() && cursor.ahead(1).is_some_and(|line| line.text.starts_with("numa_hit")) => 90,
        text if heads(text).is_some() && cursor.ahead(1).is_some_and(|line| is_rule(line.text)) => 80,
        _ => 0,
    },
    read,
};

const MB: f64 = 1_048_576.0;

#[derive(Clone, PartialEq)]
enum What {
    /// Pages since boot.
    Counters,
    /// Pages since boot, as MB.
    CountersInMb,
    Meminfo,
    /// One process, by kind of memory.
    Process(String),
    /// One row for each process.
    Processes,
}

/// The columns of a header (`node0 node1`, `Node 0 Node 1 Total`); `None` is a total.
fn heads(text: &str) -> Option<Vec<Option<u32>>> {
    let text = text.trim().strip_prefix("PID").unwrap_or(text);
    let mut heads = Vec::new();
    let mut words = text.split_whitespace();
    while let Some(word) = words.next() {
        heads.push(match word {
            "Node" => Some(words.next()?.parse().ok()?),
            "Total" => None,
            _ => Some(word.strip_prefix("node")?.parse().ok()?),
        });
    }
    (!heads.is_empty()).then_some(heads)
}

fn is_rule(text: &str) -> bool {
    text.trim().starts_with("---") && text.chars().all(|c| c == '-' || c.is_whitespace())
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let place = b.snapshot("numastat");
    let mut what = What::Counters;
    let mut columns: Vec<Option<u32>> = Vec::new();
    // On machines with many nodes numastat prints the rows again for the next nodes.
    while let Some(line) = cursor.peek() {
        let text = line.text;
        if text.starts_with("Per-node ") {
            what = match () {
                () if text.contains("numastat info") => What::CountersInMb,
                () if text.contains("system memory") => What::Meminfo,
                () => match text.split_once("for PID ") {
                    Some((_, process)) => What::Process(format!("pid {}", process.trim())),
                    None => What::Processes,
                },
            };
            columns.clear();
        } else if let Some(heads) = heads(text) {
            columns = heads;
        } else if is_rule(text) || line.is_blank() || text.starts_with("Token ") {
            // Rules, and numastat's messages about meminfo lines that it does not know.
        } else if columns.is_empty() || !is_row(&line) {
            break;
        } else if let Err(error) = row(&line, &what, &columns, place, b) {
            b.problem(error);
        }
        cursor.take();
    }
    Ok(())
}

/// The column for a row of `numastat -p`.
fn of_process(name: &str) -> String {
    let mut columns = nodes::OF_TOOLS.columns.iter().map(|column| column.name);
    let known = columns.find(|column| column.strip_suffix("_bytes") == Some(name));
    known.map_or_else(|| format!("{name}_bytes"), str::to_owned)
}

fn is_row(line: &Line<'_>) -> bool {
    line.tokens().last().is_some_and(|token| number(token.text).is_some()) && line.tokens().count() >= 2
}

fn row(
    line: &Line<'_>,
    what: &What,
    columns: &[Option<u32>],
    place: (super::builder::Track, i64),
    b: &mut Builder,
) -> Result<(), ImportError> {
    let tokens: Vec<Token<'_>> = line.tokens().collect();
    // Names may contain blanks (`1234 (my app)`): count the numbers from the right.
    let Some(first) = tokens.len().checked_sub(columns.len()).filter(|first| *first > 0) else {
        return Err(ImportError::short(line, format!("a name and {} numbers", columns.len())));
    };
    let (names, values) = tokens.split_at(first);
    let name = names.iter().map(|token| token.text).collect::<Vec<_>>().join(" ");
    if name == "Total" {
        return Ok(());
    }
    for (column, token) in columns.iter().zip(values) {
        let value = number(token.text).filter(|value| *value >= 0.0);
        let value = value.ok_or_else(|| ImportError::at(line, *token, format!("a number for '{name}'")))?;
        let Some(node) = column else { continue };
        if b.node(*node).is_none() {
            continue;
        }
        let (bytes, page_bytes) = (Cell::Gauge(rounded(value * MB)), b.machine.page_size_bytes() as f64);
        let (entity, column, cell) = match what {
            What::Counters => (String::new(), name.clone(), Cell::Counter(rounded(value))),
            What::CountersInMb => {
                (String::new(), name.to_ascii_lowercase(), Cell::Counter(rounded(value * MB / page_bytes)))
            }
            What::Meminfo if name.starts_with("HugePages_") => {
                (String::new(), name.clone(), Cell::Gauge(rounded(value)))
            }
            What::Meminfo => (String::new(), format!("{name}_bytes"), bytes),
            What::Process(process) => (process.clone(), of_process(&name), bytes),
            What::Processes => (format!("pid {name}"), nodes::PRIVATE_BYTES.name.to_owned(), bytes),
        };
        b.row(place, Table::Nodes, &Entity::on_node(*node, &entity), &[(column, cell)]);
    }
    Ok(())
}
