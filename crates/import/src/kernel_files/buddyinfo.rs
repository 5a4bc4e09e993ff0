//! Reads /proc/buddyinfo: free blocks of each order, by zone.

use std::collections::HashSet;

use crate::anchors::Anchor;
use crate::builder::{Builder, Cell};
use crate::error::ImportError;
use crate::number::count;
use crate::text::{Cursor, Token};
use crate::{FormatKind, Importer};
use flatwater_recording::schema::buddy;
use flatwater_recording::{Entity, Table};

/// Orders that the schema does not know are ignored.
pub const IMPORTER: Importer = Importer {
    name: "buddyinfo",
    sentence: "/proc/buddyinfo.",
    kind: FormatKind::Unjudged,
    anchors: &[Anchor::Table(&[", zone"])],
    detect: |cursor| if zone(cursor.next_text()).is_some() { 92 } else { 0 },
    read,
};

/// Node and zone of `Node 0, zone   Normal  12  5 ...`.
fn zone(text: &str) -> Option<(u32, &str)> {
    let (node, rest) = text.trim().strip_prefix("Node ")?.split_once(", zone")?;
    let mut words = rest.split_whitespace();
    let name = words.next()?;
    words.next().and_then(count)?;
    Some((node.trim().parse().ok()?, name))
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let place = b.snapshot("buddyinfo");
    let mut seen = HashSet::new();
    while let Some(line) = cursor.peek() {
        let Some((node, name)) = zone(line.text) else { break };
        if !seen.insert((node, name)) {
            break;
        }
        cursor.take();
        b.node(node);
        let values: Vec<Token<'_>> = line.tokens().skip_while(|token| count(token.text).is_none()).collect();
        // `0,` in `Node 0,` does not parse as a number, so the first number is order 0.
        let further = values.len().saturating_sub(buddy::ALL.columns.len());
        b.overflow_by("numbers of free blocks of further orders", further as u64);
        let mut cells = Vec::new();
        for (column, token) in buddy::ALL.columns.iter().zip(values) {
            match count(token.text) {
                Some(blocks) => cells.push((*column, Cell::Gauge(blocks))),
                None => {
                    b.problem(ImportError::at(&line, token, "a number of free blocks"));
                    break;
                }
            }
        }
        b.row(place, Table::Buddy, &Entity::on_node(node, name), &cells);
    }
    Ok(())
}
