//! Reads /proc/slabinfo 1.1 (2.4), 2.0 and 2.1 (2.6 to 6.x).

use crate::anchors::Anchor;
use crate::builder::{Builder, Cell};
use crate::error::ImportError;
use crate::number::count;
use crate::text::{Cursor, Line, Token};
use crate::{FormatKind, Importer};
use flatwater_recording::schema::{Column, slabs};
use flatwater_recording::{Entity, Table};

pub const IMPORTER: Importer = Importer {
    name: "slabinfo",
    sentence: "/proc/slabinfo of 2.4 (1.1) to 6.x (2.1).",
    kind: FormatKind::Unjudged,
    anchors: &[Anchor::Table(&["slabinfo - version", "# name  ", ": tunables "])],
    detect: |cursor| match cursor.next_text() {
        text if text.starts_with("slabinfo - version") || text.starts_with("# name  ") => 95,
        text if text.contains(": tunables ") && text.contains(": slabdata ") => 90,
        _ => 0,
    },
    read,
};

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let place = b.snapshot("slabinfo");
    let mut old = false;
    let mut begun = false;
    while let Some(line) = cursor.peek() {
        let text = line.text.trim();
        if let Some(version) = text.strip_prefix("slabinfo - version:") {
            if begun {
                break;
            }
            old = version.trim().starts_with("1.");
        } else if !text.starts_with('#') {
            let row = count(text.split_whitespace().nth(1).unwrap_or_default()).is_some();
            if !(row || text.contains(" : tunables")) || line.is_blank() {
                break;
            }
            match cells(&line, old) {
                Ok((name, cells)) => b.row(place, Table::Slabs, &Entity::named(name), &cells),
                Err(error) => b.problem(error),
            }
        }
        begun = true;
        cursor.take();
    }
    Ok(())
}

/// 2.x: name active num objsize objperslab pagesperslab : tunables ... : slabdata active num shared.
/// 1.1: name active num objsize active-slabs num-slabs pages-per-slab.
fn cells<'a>(line: &Line<'a>, old: bool) -> Result<(&'a str, Vec<(Column, Cell)>), ImportError> {
    let tokens: Vec<Token<'a>> = line.tokens().collect();
    let Some(name) = tokens.first() else { return Err(ImportError::line(line, "the name of a cache")) };
    let slabs = tokens.iter().position(|token| token.text == "slabdata").unwrap_or(tokens.len());
    let places = match old {
        true => [1, 2, 3, 4, 5, 6],
        false => [1, 2, 3, slabs + 1, slabs + 2, 5],
    };
    let columns = [
        slabs::ACTIVE_OBJS,
        slabs::NUM_OBJS,
        slabs::OBJSIZE_BYTES,
        slabs::ACTIVE_SLABS,
        slabs::NUM_SLABS,
        slabs::PAGES_PER_SLAB,
    ];
    let mut cells = Vec::new();
    for (column, place) in columns.into_iter().zip(places) {
        let Some(&token) = tokens.get(place) else {
            return Err(ImportError::short(line, format!("'{column}' of cache '{}'", name.text)));
        };
        let value =
            count(token.text).ok_or_else(|| ImportError::at(line, token, format!("a number for '{column}'")))?;
        cells.push((column, Cell::Gauge(value)));
    }
    Ok((name.text, cells))
}
