//! What an import dropped because it can hold no more, and gaps and notes without duplicates.

use std::collections::{BTreeMap, HashSet};

use super::{ITEMS_MAX, NOWHERE, Placed};
use flatwater_recording::Gap;

/// Maximum gaps and notes; further ones are counted.
const GAPS_MAX: usize = 1000;
const NOTES_MAX: usize = 100;
/// Maximum different gaps and notes that are known; after these a repeated one is counted again.
const KNOWN_MAX: usize = 100_000;

/// Number of dropped items by kind.
#[derive(Debug, Default)]
pub struct Limits {
    dropped: BTreeMap<&'static str, u64>,
}

impl Limits {
    pub fn drop_items(&mut self, what: &'static str, count: u64) {
        if count > 0 {
            let sum = self.dropped.entry(what).or_default();
            *sum = sum.saturating_add(count);
        }
    }

    pub fn push<T>(&mut self, items: &mut Vec<Placed<T>>, item: Placed<T>, what: &'static str) {
        if items.len() < ITEMS_MAX && item.track != NOWHERE {
            items.push(item);
        } else {
            self.drop_items(what, 1);
        }
    }

    /// A gap for each kind of item that was dropped.
    pub fn gaps(self) -> impl Iterator<Item = Gap> {
        self.dropped.into_iter().map(|(what, count)| {
            let why = "more than an import can hold";
            Gap::new(format!("{count} {what}"), why, "import a shorter part of the log")
        })
    }
}

/// Gaps and notes in the order in which they were reported.
#[derive(Debug, Default)]
pub struct Remarks {
    gaps: Vec<Gap>,
    notes: Vec<String>,
    known: HashSet<(String, String, String)>,
    more: u64,
}

impl Remarks {
    pub fn gap(&mut self, gap: Gap) {
        let key = (gap.what.clone(), gap.why.clone(), gap.remedy.clone());
        if self.is_new(key) {
            if self.gaps.len() < GAPS_MAX {
                self.gaps.push(gap);
            } else {
                self.more += 1;
            }
        }
    }

    pub fn note(&mut self, note: String) {
        if self.is_new((note.clone(), String::new(), String::new())) {
            if self.notes.len() < NOTES_MAX {
                self.notes.push(note);
            } else {
                self.more += 1;
            }
        }
    }

    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    fn is_new(&mut self, key: (String, String, String)) -> bool {
        if self.known.len() >= KNOWN_MAX { !self.known.contains(&key) } else { self.known.insert(key) }
    }

    /// The gaps, with one that counts those beyond the limits, and the notes.
    pub fn into_parts(mut self) -> (Vec<Gap>, Vec<String>) {
        if self.more > 0 {
            let what = format!("{} further gaps and notes", self.more);
            self.gaps.push(Gap::new(what, "a recording keeps the first 1000 gaps and 100 notes of an import", ""));
        }
        (self.gaps, self.notes)
    }
}

#[cfg(test)]
mod tests {
    use crate::Builder;

    #[test]
    fn gaps_and_notes_beyond_the_limit_are_counted() {
        let mut b = Builder::default();
        for each in 0..1100 {
            b.gap(format!("part {}", each / 2 * 2), "why", "");
            b.gap(format!("part {each}"), "why", "");
            b.note(format!("note {each}"));
        }
        let recording = b.finish(&[]);
        assert_eq!((recording.gaps.len(), recording.header.notes.len()), (1001, 100));
        assert_eq!(recording.gaps[1000].what, "1100 further gaps and notes", "100 gaps and 1000 notes");
    }
}
