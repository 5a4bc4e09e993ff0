//! Whether lines that a mail program or a terminal may have broken are read whole: if more comes of it.
//!
//! `text::wrapped` knows how some rows and sentences go on. Of all others only the width tells, and a width is no proof:
//! tables may be as wide by themselves. So each block is read both ways.

use super::builder::Builder;
use super::text::Text;
use super::text::width::Width;
use super::{PREFIXES_MAX, Unknown, read_sections};

/// Texts with more lines are no mail.
const LINES_MAX: usize = 5000;

/// The text with the lines whole that were broken, if any were.
pub fn whole(text: &Text) -> Option<Text> {
    if text.len() > LINES_MAX {
        return None;
    }
    let widths = text.widths();
    let mut joined: Vec<(usize, usize, Width)> = Vec::new();
    if widths.is_empty() {
        return None;
    }
    for block in text.blocks() {
        let plain = worth(text.part(block.0, block.1 - block.0));
        let tried = widths.iter().filter_map(|width| {
            let groups = text.groups(block, *width)?;
            Some((worth(text.grouped(&groups, *width)), *width, groups))
        });
        // The first of equals.
        let best = tried.reduce(|best, next| if next.0 > best.0 { next } else { best });
        if let Some((_, width, groups)) = best.filter(|(worth, ..)| *worth > plain) {
            joined.extend(groups.into_iter().map(|(first, end)| (first, end, width)));
        }
    }
    (!joined.is_empty()).then(|| text.with_groups(&joined))
}

/// What comes of a block: values, frames, calls and so on first, then as few lines as may be that nobody knows.
fn worth(mut text: Text) -> (usize, std::cmp::Reverse<u32>) {
    text.respace();
    let (mut trial, mut unknown) = (Builder::default(), Unknown::default());
    read_sections(&text, &mut trial, &mut Vec::new(), &mut unknown, PREFIXES_MAX - 1);
    (trial.weight(), std::cmp::Reverse(unknown.lines))
}
