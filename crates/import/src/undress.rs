//! Reads a block without what was added to its lines (prefixes, numbers, marks) if that yields more.
//!
//! Many prefixes look like output of a tool: rows of sar begin with a clock, rows of SMART with a number, lines of
//! servers with a date. So the first lines of a block are read both ways and the results compared.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::builder::Builder;
use super::text::dress::{Kind, candidates};
use super::text::{Bare, Cursor, Text};
use super::{PREFIXES_MAX, Unknown, read_sections};

/// Number of lines that are read both ways.
const SAMPLE_LINES: usize = 120;
/// Minimum lines of a block with the same addition.
const DRESSED_MIN: usize = 3;
/// After each failed trial of a kind the wait until the next is multiplied by 2^LONGER, up to 2^LONGER_MAX in total.
const LONGER: u32 = 3;
const LONGER_MAX: u32 = 18;

/// After this many sections without an addition only one line in `SELDOM` is examined: long logs have no additions, or
/// have them from the first line on.
const PATIENCE: usize = 200;
const SELDOM: usize = 64;

/// Kinds that were tried without success, each with the position of the next trial and the number of failures so far.
#[derive(Debug, Default)]
pub struct Tried {
    kinds: HashMap<Kind, (usize, u32)>,
    /// Sections since the last block that was read without its additions.
    bare: usize,
}

impl Tried {
    fn again_from(&self, kind: &Kind) -> usize {
        self.kinds.get(kind).map_or(0, |(from, _)| *from)
    }

    /// Postpones the next trial of this kind. The wait grows with each failure, so that trials stay cheap in a long
    /// log.
    fn in_vain(&mut self, kind: &Kind, at: usize) {
        let wait = |doublings: u32| SAMPLE_LINES << (doublings * LONGER).min(LONGER_MAX);
        let later = |(from, doublings): &mut (usize, u32)| {
            (*from, *doublings) = (at + wait(*doublings + 1), *doublings + 1);
        };
        self.kinds.entry(kind.clone()).and_modify(later).or_insert((at + wait(0), 0));
    }
}

/// The block at the cursor without its additions, if that yields more.
pub fn better(cursor: &Cursor<'_>, builder: &Builder, tried: &mut Tried, depth: usize) -> Option<Bare> {
    let (text, at) = (cursor.text(), cursor.position());
    tried.bare = tried.bare.saturating_add(1);
    if tried.bare > PATIENCE && at % SELDOM != 0 {
        return None;
    }
    let mut best: Option<(Worth, Kind)> = None;
    let mut unchanged: Option<(usize, Worth)> = None;
    for kind in candidates(cursor.next_text()).into_iter().map(|dress| dress.kind) {
        if tried.again_from(&kind) > at {
            continue;
        }
        let (sample, dressed) = text.undressed(at, &kind, SAMPLE_LINES);
        if dressed < DRESSED_MIN {
            continue;
        }
        let plain = match unchanged {
            Some((lines, worth)) if lines == sample.lines => worth,
            _ => worth(&text.part(at, sample.lines), builder, PREFIXES_MAX),
        };
        unchanged = Some((sample.lines, plain));
        let bare = worth(&sample.text, builder, depth + 1);
        if !gains(plain, bare, sample.numbered) {
            tried.in_vain(&kind, at);
        } else if best.as_ref().is_none_or(|(found, _)| bare > *found) {
            best = Some((bare, kind));
        }
    }
    let (_, kind) = best?;
    tried.bare = 0;
    Some(text.undressed(at, &kind, usize::MAX).0)
}

/// The value of a reading: first, how few lines are unknown or yield nothing; then the number of values, frames, calls
/// and so on.
type Worth = (Reverse<u64>, usize);

/// Whether to read the lines without their additions. Fewer unknown lines do not justify losing data: rows of sar
/// without their clock are known as well. Line numbers are the exception, since they count as values in the plain
/// reading.
fn gains(plain: Worth, bare: Worth, numbered: bool) -> bool {
    if numbered {
        return bare.0 >= plain.0 && bare.1 > 0;
    }
    bare > plain && bare.1 * 2 >= plain.1
}

fn worth(text: &Text, builder: &Builder, depth: usize) -> Worth {
    let mut trial = Builder::default();
    trial.begin_file(builder.file_name());
    builder.context().clone_into(trial.context_mut());
    read_sections(text, &mut trial, &mut Vec::new(), &mut Unknown::default(), depth);
    let summary = trial.summary();
    let idle = (summary.lines - summary.understood.min(summary.lines)) + summary.passed_over;
    (Reverse(idle), trial.weight())
}
