//! Whether a block is read without what each of its lines is dressed in: if more comes of it.
//!
//! Many prefixes look like what tools print themselves: sar's rows begin with a clock, SMART's with a number, servers'
//! lines with a date. So the first lines of the block are read both ways, and what is read decides.

use std::cmp::Reverse;

use super::builder::Builder;
use super::text::dress::{Kind, candidates};
use super::text::{Bare, Cursor, Text};
use super::{PREFIXES_MAX, Unknown, read_sections};

/// Lines that are read both ways.
const SAMPLE_LINES: usize = 120;
/// A block has so many lines at least.
const DRESSED_MIN: usize = 3;
/// The interval after which a kind is tried again becomes so many times as long each time, as a power of two; and that power's limit.
const LONGER: u32 = 3;
const LONGER_MAX: u32 = 18;

/// After so many sections that no dress was taken off, only one line in `SELDOM` is looked at: long logs have no dress, or
/// one from their first line on.
const PATIENCE: usize = 200;
const SELDOM: usize = 64;

/// Kinds that were tried in vain, with the line from which on they are tried again.
#[derive(Debug, Default)]
pub struct Tried {
    kinds: Vec<(Kind, usize, u32)>,
    /// Sections since the last block that was read without its dress.
    bare: usize,
}

impl Tried {
    fn again_from(&self, kind: &Kind) -> usize {
        self.kinds.iter().find(|(known, ..)| known == kind).map_or(0, |(_, from, _)| *from)
    }

    /// The next trial is much farther away than the last one was, so that a long log costs no more for it.
    fn in_vain(&mut self, kind: &Kind, at: usize) {
        let wait = |doublings: u32| SAMPLE_LINES << (doublings * LONGER).min(LONGER_MAX);
        if let Some((_, from, doublings)) = self.kinds.iter_mut().find(|(known, ..)| known == kind) {
            (*from, *doublings) = (at + wait(*doublings + 1), *doublings + 1);
        } else {
            self.kinds.push((kind.clone(), at + wait(0), 0));
        }
    }
}

/// The block at the cursor without its dress, if more is read of it so.
pub fn better(cursor: &Cursor<'_>, builder: &Builder, tried: &mut Tried, depth: usize) -> Option<Bare> {
    let (text, at) = (cursor.text(), cursor.position());
    tried.bare = tried.bare.saturating_add(1);
    if tried.bare > PATIENCE && at % SELDOM != 0 {
        return None;
    }
    let mut best: Option<(Worth, Kind)> = None;
    let mut as_it_stands: Option<(usize, Worth)> = None;
    for kind in candidates(cursor.next_text()).into_iter().map(|dress| dress.kind) {
        if tried.again_from(&kind) > at {
            continue;
        }
        let (sample, dressed) = text.undressed(at, &kind, SAMPLE_LINES);
        if dressed < DRESSED_MIN {
            continue;
        }
        let plain = match as_it_stands {
            Some((lines, worth)) if lines == sample.lines => worth,
            _ => worth(&text.part(at, sample.lines), builder, PREFIXES_MAX),
        };
        as_it_stands = Some((sample.lines, plain));
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

/// What comes of lines: few of them that nobody knows or takes anything from, first; then many values, frames, calls and so on.
type Worth = (Reverse<u64>, usize);

/// Whether to read the lines without their dress. Less of a log may not come of it, however little is left unknown: sar's rows
/// without their clock are known as well. Lines that are numbered one by one are the exception: the numbers count as values.
fn gains(plain: Worth, bare: Worth, numbered: bool) -> bool {
    if numbered {
        return bare.0 >= plain.0 && bare.1 > 0;
    }
    bare > plain && bare.1 * 2 >= plain.1
}

fn worth(text: &Text, builder: &Builder, depth: usize) -> Worth {
    let mut trial = Builder::default();
    trial.begin_file(builder.file_name());
    trial.command.clone_from(&builder.command);
    trial.moment = builder.moment;
    read_sections(text, &mut trial, &mut Vec::new(), &mut Unknown::default(), depth);
    let summary = trial.summary();
    let idle = (summary.lines - summary.understood.min(summary.lines)) + summary.passed_over;
    (Reverse(idle), trial.weight())
}
