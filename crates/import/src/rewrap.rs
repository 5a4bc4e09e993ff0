//! Joins lines that a mail program or a terminal may have broken, if that yields more.
//!
//! `text::wrapped` knows how some rows and sentences continue. For all others only the width of the lines hints at it,
//! and tables may have that width by themselves. So each block is read both ways.

use super::builder::Builder;
use super::text::Text;
use super::text::width::Width;
use super::{PREFIXES_MAX, Unknown, read_sections};

/// Texts with more lines are not mail.
const LINES_MAX: usize = 5000;

/// The text with its broken lines joined. `None` if no line was broken.
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
        // On a tie the first one stays.
        let best = tried.reduce(|best, next| if gains(best.0, next.0) { next } else { best });
        if let Some((_, width, groups)) = best.filter(|(whole, ..)| gains(plain, *whole)) {
            joined.extend(groups.into_iter().map(|(first, end)| (first, end, width)));
        }
    }
    (!joined.is_empty()).then(|| text.with_groups(&joined))
}

/// Number of values, frames, calls and so on; number of known lines; number of unknown lines.
type Worth = (usize, u64, u32);

/// Whether joining is better: it yields more data, more known lines although there are fewer lines, or no unknown line.
/// Merely fewer unknown lines prove nothing.
fn gains(plain: Worth, whole: Worth) -> bool {
    whole.0 > plain.0 || (whole.0 == plain.0 && (whole.1 > plain.1 || whole.2 == 0 && plain.2 > 0))
}

/// Reads a block and measures the result.
fn worth(mut text: Text) -> Worth {
    text.respace();
    // A joined line counts as one line: joining by itself is not a gain.
    text.count_joined_once();
    let (mut trial, mut unknown) = (Builder::default(), Unknown::default());
    read_sections(&text, &mut trial, &mut Vec::new(), &mut unknown, PREFIXES_MAX - 1);
    (trial.weight(), trial.summary().understood, unknown.lines)
}
