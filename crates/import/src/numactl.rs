//! Reads `numactl -H`: nodes, their CPUs and memory, and the distances between them, in any order.

use super::builder::{Builder, Cell};
use super::error::ImportError;
use super::number::count;
use super::text::{Cursor, Line, Token};
use super::{FormatKind, Importer};
use crate::anchors::Anchor;
use flatwater_recording::schema::nodes;
use flatwater_recording::{Entity, Table};

pub const IMPORTER: Importer = Importer {
    name: "numactl",
    sentence: "numactl -H (--hardware): nodes, CPUs, memory, distances.",
    kind: FormatKind::Unjudged,
    anchors: &[Anchor::Table(&["available:", "node distances:"]), Anchor::Common(&["node "])],
    detect: |cursor| {
        let text = cursor.next_text().trim();
        let begins = text.starts_with("available:") && text.contains("nodes") || text == "node distances:";
        if begins || node_line(text).is_some() { 90 } else { 0 }
    },
    read,
};

/// `node 0 size: 65418 MB` -> (0, "size").
fn node_line(text: &str) -> Option<(u32, &str)> {
    let (left, _) = text.trim().strip_prefix("node ")?.split_once(':')?;
    let (node, what) = left.split_once(' ')?;
    matches!(what, "cpus" | "size" | "free").then_some(())?;
    Some((node.parse().ok()?, what))
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let mut free: Vec<(u32, i64)> = Vec::new();
    while let Some(line) = cursor.peek() {
        let text = line.text.trim();
        if let Some((node, what)) = node_line(text) {
            cursor.take();
            if let Err(error) = node_value(&line, node, what, b, &mut free) {
                b.problem(error);
            }
        } else if text == "node distances:" {
            cursor.take();
            if let Err(error) = distances(cursor, b) {
                b.problem(error);
            }
        } else if text.starts_with("available:") || line.is_blank() {
            cursor.take();
        } else {
            break;
        }
    }
    let cpus = b.machine.nodes.iter().map(|node| node.cpus.len()).sum::<usize>();
    b.machine.cpus = u32::try_from(cpus).ok().filter(|cpus| *cpus > 0).or(b.machine.cpus);
    let sizes = || b.machine.nodes.iter().filter_map(|node| node.memory_bytes);
    if sizes().next().is_some() {
        b.machine.memory_bytes = Some(sizes().fold(0_u64, u64::saturating_add));
    }
    if !free.is_empty() {
        let place = b.snapshot("numactl");
        for (node, bytes) in free {
            let total = b.node(node).and_then(|shape| shape.memory_bytes).and_then(|total| i64::try_from(total).ok());
            let total = total.map(|total| (nodes::MEM_TOTAL_BYTES, Cell::Gauge(total)));
            let cells: Vec<_> = total.into_iter().chain([(nodes::MEM_FREE_BYTES, Cell::Gauge(bytes))]).collect();
            b.row(place, Table::Nodes, &Entity::on_node(node, ""), &cells);
        }
    }
    Ok(())
}

fn node_value(
    line: &Line<'_>,
    node: u32,
    what: &str,
    b: &mut Builder,
    free: &mut Vec<(u32, i64)>,
) -> Result<(), ImportError> {
    let values: Vec<Token<'_>> = line.tokens().skip(3).collect();
    let Some(shape) = b.node(node) else {
        return Err(ImportError::line(line, "a node number below 1024"));
    };
    if what == "cpus" {
        for token in values {
            let cpu = token.text.parse().ok().filter(|cpu: &u32| *cpu < 65_536);
            let cpu = cpu.ok_or_else(|| ImportError::at(line, token, "the number of a CPU"))?;
            if let Err(at) = shape.cpus.binary_search(&cpu) {
                shape.cpus.insert(at, cpu);
            }
        }
        return Ok(());
    }
    let Some(&token) = values.first() else { return Err(ImportError::short(line, "a size")) };
    let megabytes = count(token.text).ok_or_else(|| ImportError::at(line, token, "a number of MB"))?;
    // numactl.c (print_node_cpus) divides by 1024 * 1024 and prints MB.
    let bytes = megabytes.saturating_mul(1 << 20);
    if what == "free" {
        free.push((node, bytes));
        return Ok(());
    }
    shape.memory_bytes = u64::try_from(bytes).ok();
    Ok(())
}

/// Reads the matrix: a line of node numbers, then rows such as `0: 10 21 21 21`.
fn distances(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let Some(header) = cursor.peek() else { return Ok(()) };
    if !header.text.trim().starts_with("node ") {
        return Err(ImportError::line(&header, "'node' and the numbers of the nodes"));
    }
    let columns: Vec<Option<u32>> = header.tokens().skip(1).map(|token| token.text.parse().ok()).collect();
    cursor.take();
    while let Some(line) = cursor.peek() {
        let Some((node, _)) = line.text.split_once(':') else { break };
        let Ok(node) = node.trim().parse::<u32>() else { break };
        cursor.take();
        let values: Vec<Token<'_>> = line.tokens().skip_while(|token| !token.text.ends_with(':')).skip(1).collect();
        let mut row = Vec::new();
        for (place, to) in columns.iter().enumerate() {
            let Some(&token) = values.get(place) else {
                b.problem(ImportError::short(&line, format!("{} distances", columns.len())));
                break;
            };
            let Some(distance) = token.text.parse::<u32>().ok() else {
                b.problem(ImportError::at(&line, token, "a distance"));
                break;
            };
            // Nodes without memory are omitted: the column is not the node number.
            let Some(to) = to.filter(|to| *to < 1024) else { continue };
            row.resize(row.len().max(to as usize + 1), 0);
            if let Some(slot) = row.get_mut(to as usize) {
                *slot = distance;
            }
        }
        if let Some(shape) = b.node(node) {
            shape.distances = row;
        }
    }
    Ok(())
}
