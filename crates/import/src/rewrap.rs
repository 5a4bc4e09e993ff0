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
        let best = tried.reduce(|best, next| if gains(best.0, next.0) { next } else { best });
        if let Some((_, width, groups)) = best.filter(|(whole, ..)| gains(plain, *whole)) {
            joined.extend(groups.into_iter().map(|(first, end)| (first, end, width)));
        }
    }
    (!joined.is_empty()).then(|| text.with_groups(&joined))
}

/// Values, frames, calls and so on; lines that somebody knows, and lines that nobody does.
type Worth = (usize, u64, u32);

/// More is read, more lines are known though there are fewer, or all are. That fewer lines are unknown says nothing.
fn gains(plain: Worth, whole: Worth) -> bool {
    whole.0 > plain.0 || (whole.0 == plain.0 && (whole.1 > plain.1 || whole.2 == 0 && plain.2 > 0))
}

/// What comes of a block.
fn worth(mut text: Text) -> Worth {
    text.respace();
    // A line that is joined from several is one: to join is no gain by itself.
    text.count_joined_once();
    let (mut trial, mut unknown) = (Builder::default(), Unknown::default());
    read_sections(&text, &mut trial, &mut Vec::new(), &mut unknown, PREFIXES_MAX - 1);
    (trial.weight(), trial.summary().understood, unknown.lines)
}
