//! Reads slabtop (`-o`, or copied from the screen).

use super::builder::{Builder, Cell};
use super::error::ImportError;
use super::number::{count, size};
use super::text::{Cursor, Line, Token};
use super::{FormatKind, Importer};
use crate::anchors::{Anchor, DIGITS};
use flatwater_recording::schema::{Column, slabs};
use flatwater_recording::{Entity, Table};

pub const IMPORTER: Importer = Importer {
    name: "slabtop",
    sentence: "slabtop, one or several screens.",
    kind: FormatKind::Unjudged,
    anchors: &[Anchor::Table(&["OBJS", "Active / Total Objects"]), Anchor::Start(DIGITS)],
    detect: |cursor| match cursor.next_text().trim() {
        text if is_header(text) => 95,
        text if text.starts_with("Active / Total Objects") => 95,
        text if is_row(text) => 80,
        _ => 0,
    },
    read,
};

fn is_header(text: &str) -> bool {
    let mut words = text.split_whitespace();
    words.next() == Some("OBJS") && words.next() == Some("ACTIVE")
}

/// Whether the line is a row, also without a header: two numbers, a percentage, a size, two numbers, a size in KiB, a
/// name.
fn is_row(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [objects, active, used, object, slabs, each, cache, name] = words.as_slice() else { return false };
    let kib = |word: &str| word.strip_suffix('K').is_some_and(|number| number.parse::<f64>().is_ok());
    [objects, active, slabs, each].into_iter().all(|word| count(word).is_some())
        && used.strip_suffix('%').and_then(count).is_some()
        && kib(object)
        && kib(cache)
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, ':' | '_'))
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let place = b.snapshot("slabtop");
    let mut header = is_row(cursor.next_text());
    while let Some(line) = cursor.peek() {
        let text = line.text.trim();
        if is_header(text) {
            if header {
                break;
            }
            header = true;
        } else if text.starts_with("Active / Total") || text.contains("/ Average / ") {
            if header {
                break;
            }
        } else if !text.is_empty() {
            if !header || !text.starts_with(|c: char| c.is_ascii_digit()) {
                break;
            }
            match cells(&line) {
                Ok((name, cells)) => b.row(place, Table::Slabs, &Entity::named(name), &cells),
                Err(error) => b.problem(error),
            }
        }
        cursor.take();
    }
    Ok(())
}

/// `955617 955617 100%    0.10K  24503       39     98012K buffer_head`.
fn cells<'a>(line: &Line<'a>) -> Result<(&'a str, Vec<(Column, Cell)>), ImportError> {
    let tokens: Vec<Token<'a>> = line.tokens().collect();
    let [objects, active, _, object, slabs, _, cache, name, ..] = tokens.as_slice() else {
        return Err(ImportError::short(line, "OBJS ACTIVE USE OBJ-SIZE SLABS OBJ/SLAB CACHE-SIZE NAME"));
    };
    let number = |token: &Token<'_>| count(token.text).ok_or_else(|| ImportError::at(line, *token, "a number"));
    let bytes = |token: &Token<'_>| {
        size(token.text, 1024.0).ok_or_else(|| ImportError::at(line, *token, "a size such as 0.19K"))
    };
    let cells = vec![
        (slabs::ACTIVE_OBJS, Cell::Gauge(number(active)?)),
        (slabs::NUM_OBJS, Cell::Gauge(number(objects)?)),
        // slabtop rounds it to 10 bytes.
        (slabs::OBJSIZE_BYTES, Cell::Gauge(bytes(object)?)),
        (slabs::NUM_SLABS, Cell::Gauge(number(slabs)?)),
        (slabs::SIZE_BYTES, Cell::Gauge(bytes(cache)?)),
    ];
    Ok((name.text, cells))
}

#[cfg(test)]
mod tests {
    use super::is_row;

    #[test]
    fn a_row_without_its_header_is_known_by_its_shape() {
        assert!(is_row("955617 955617 100%    0.10K  24503       39     98012K buffer_head"));
        assert!(is_row(" 69804  23094   0%    0.19K   3324       21     13296K dentry "));
        assert!(!is_row("955617 955617 100%    0.10K  24503       39     98012K"));
        assert!(!is_row("   281 root      20   0   14.9g   9.1g   8192 S   6.0"));
    }
}
