//! Reads /proc/zoneinfo of 2.6 to 6.x, complete or in parts.

use std::collections::HashSet;

use crate::anchors::Anchor;
use crate::builder::{Builder, Cell};
use crate::error::ImportError;
use crate::number::count;
use crate::text::{Cursor, Line};
use crate::{FormatKind, Importer};
use flatwater_recording::{Entity, Table};

pub const ZONEINFO: Importer = Importer {
    name: "zoneinfo",
    sentence: "/proc/zoneinfo of 2.6 to 6.x, complete or only some zones and lines.",
    kind: FormatKind::Unjudged,
    anchors: &[Anchor::Table(&[", zone"])],
    detect: |cursor| if zone(cursor.next_text()).is_some() && !cursor.next_text().contains("order") { 90 } else { 0 },
    read,
};

/// Parses `Node 1, zone   Normal`.
fn zone(text: &str) -> Option<(u32, &str)> {
    let (node, zone) = text.trim().strip_prefix("Node ")?.split_once(", zone")?;
    let zone = zone.trim();
    let whole = !zone.is_empty() && !zone.contains(char::is_whitespace);
    Some((node.trim().parse().ok()?, zone)).filter(|_| whole)
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let place = b.snapshot("zoneinfo");
    let mut seen = HashSet::new();
    while let Some(header) = cursor.peek() {
        let Some((node, name)) = zone(header.text) else { break };
        // A zone that was already read begins the next snapshot.
        if !seen.insert((node, name)) {
            break;
        }
        cursor.take();
        b.node(node);
        let mut cells: Vec<(&str, Cell)> = Vec::new();
        let (mut per_cpu, mut names) = (false, HashSet::new());
        while let Some(line) = cursor.peek() {
            if line.is_blank() || !is_inside(&line) {
                break;
            }
            cursor.take();
            per_cpu |= line.text.trim_start().starts_with("pagesets");
            match value(&line, &mut per_cpu) {
                Ok(Some((column, cell))) if names.insert(column) => cells.push((column, cell)),
                Ok(_) => {}
                Err(error) => b.problem(error),
            }
        }
        b.row(place, Table::Zones, &Entity::on_node(node, name), &cells);
    }
    Ok(())
}

/// Whether this is a line of a zone: `pages free 12`, `min 3`, `protection: (...)`, `nr_free_pages 5`,
/// `per-node stats`.
fn is_inside(line: &Line<'_>) -> bool {
    let mut words = line.text.split_whitespace();
    let first = words.next().unwrap_or_default();
    let name = |c: char| c.is_ascii_alphanumeric() || "_-:().,".contains(c);
    let named = first.starts_with(|c: char| c.is_ascii_alphabetic()) && first.chars().all(name) && first != "Node";
    let known = first.ends_with(':') || matches!(first, "pages" | "pagesets" | "per-node" | "vm" | "all_unreclaimable");
    named && (known || words.next().is_none_or(|second| count(second).is_some()))
        || line.text.trim_start().starts_with(['(', '['])
}

/// The column and value of a line; `None` for lines without a value.
fn value<'a>(line: &Line<'a>, per_cpu: &mut bool) -> Result<Option<(&'a str, Cell)>, ImportError> {
    let tokens: Vec<_> = line.tokens().collect();
    let names_and_value = match tokens.as_slice() {
        [pages, name, value, ..] if pages.text == "pages" => Some((name.text, *value)),
        // 2.6.32 prints `scanned  0 (aa: 0 ia: 0)`, later kernels one number.
        [name, value, ..] if !name.text.ends_with(':') && name.text != "pages" => Some((name.text, *value)),
        [name, value] => Some((name.text.trim_end_matches(':'), *value)),
        [name] if !name.text.ends_with(':') && name.text != "pagesets" && !name.text.starts_with('(') => {
            return Err(ImportError::short(line, format!("a number after '{}'", name.text)));
        }
        _ => None,
    };
    let Some((name, token)) = names_and_value else { return Ok(None) };
    // `cpu: 0` opens a per-CPU block, whose `count`, `high` and `batch` do not belong to the zone.
    if name == "cpu" {
        *per_cpu = true;
        return Ok(None);
    }
    if matches!(name, "all_unreclaimable" | "start_pfn" | "node_unreclaimable") {
        *per_cpu = false;
    }
    if *per_cpu || matches!(name, "per-node" | "vm" | "protection" | "inactive_ratio" | "prev_priority" | "start_pfn") {
        return Ok(None);
    }
    let value =
        count(token.text).ok_or_else(|| ImportError::at(line, token, format!("a number of pages for '{name}'")))?;
    Ok(Some((name, Cell::Gauge(value))))
}
