//! Selects the importers of a line: one automaton searches the line for the anchors of all importers.
//!
//! An importer is asked only about lines that have an anchor of that importer, so it costs nothing for other lines,
//! and long logs are skimmed for the same anchors (`skim`).

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};

use super::text::Cursor;
use super::{FormatKind, IMPORTERS, Importer};

/// The property of a line that selects an importer for it.
#[derive(Clone, Copy, Debug)]
pub enum Anchor {
    /// One of these texts, which mark a table or a report: a long log also keeps the lines around.
    Table(&'static [&'static str]),
    /// One of these texts: a long log keeps this line.
    Line(&'static [&'static str]),
    /// One of these texts, which prose contains as well: a long log does not keep a line because of them.
    Common(&'static [&'static str]),
    /// As `Line`, with the texts of another table of this crate.
    LineOf(fn() -> Vec<&'static str>),
    /// One of these texts in one of the `LINES_BELOW` lines below.
    Below(&'static [&'static str]),
    /// As `Below`, with the texts of another table of this crate.
    BelowOf(fn() -> Vec<&'static str>),
    /// One of these characters is the first that is not blank.
    Start(&'static str),
    /// The line is a single word.
    OneWord,
}

pub const DIGITS: &str = "0123456789";
/// Number of lines below a line that are searched for `Anchor::Below`.
pub const LINES_BELOW: usize = 20;

/// A set of importers: bit `n` is `IMPORTERS[n]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Importers(u128);

const _: () = assert!(IMPORTERS.len() <= u128::BITS as usize);

impl Importers {
    const NONE: Importers = Importers(0);

    fn one(number: usize) -> Importers {
        Importers(1 << number)
    }

    fn join(&mut self, other: Importers) {
        self.0 |= other.0;
    }

    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The importers in the order of the registry.
    pub fn iter(self) -> impl Iterator<Item = &'static Importer> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let number = left.trailing_zeros();
            left &= left.checked_sub(1)?;
            IMPORTERS.get(number as usize)
        })
    }
}

/// The importers that a line's anchors select.
#[derive(Clone, Copy, Debug, Default)]
pub struct Selected {
    /// By texts in the line.
    pub by_text: Importers,
    /// By the first character, or because the line is one word.
    by_shape: Importers,
    /// For the lines above this one.
    above: Importers,
}

impl Selected {
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.by_text.is_empty() && self.by_shape.is_empty()
    }
}

/// The data of the automaton about one text.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    of_line: Importers,
    of_lines_above: Importers,
    /// The text marks a table or report.
    pub table: bool,
    /// The text marks a report of the kernel.
    pub report: bool,
    /// The text marks a line to keep.
    pub line: bool,
}

#[derive(Debug)]
pub struct Anchors {
    automaton: AhoCorasick,
    /// By number of the pattern.
    found: Vec<Found>,
    /// By first byte.
    starts: Vec<Importers>,
    one_word: Importers,
}

/// `None` only if the automaton exceeds the library's limits, which a test excludes.
pub static ANCHORS: LazyLock<Option<Anchors>> = LazyLock::new(|| Anchors::of(IMPORTERS, |_| true));
/// The anchors of lines that a long log keeps. Without anchors that prose contains, a search of a gigabyte has few hits.
pub static KEPT: LazyLock<Option<Anchors>> =
    LazyLock::new(|| Anchors::of(IMPORTERS, |found| found.table || found.line));

impl Anchors {
    fn of(importers: &[Importer], wanted: fn(&Found) -> bool) -> Option<Anchors> {
        let mut texts: Vec<(&'static str, Found)> = Vec::new();
        let mut starts = vec![Importers::NONE; 256];
        let mut one_word = Importers::NONE;
        for (number, importer) in importers.iter().enumerate() {
            let own = Importers::one(number);
            let report = importer.kind == FormatKind::KernelLog;
            let line = Found { of_line: own, line: true, ..Found::default() };
            let below = Found { of_lines_above: own, ..Found::default() };
            let table = Found { table: true, report, ..line };
            for anchor in importer.anchors {
                let (list, found) = match anchor {
                    Anchor::Table(list) => (list.to_vec(), table),
                    Anchor::Line(list) => (list.to_vec(), line),
                    Anchor::LineOf(list) => (list(), line),
                    Anchor::Common(list) => (list.to_vec(), Found { line: false, ..line }),
                    Anchor::Below(list) => (list.to_vec(), below),
                    Anchor::BelowOf(list) => (list(), below),
                    Anchor::Start(characters) => {
                        for byte in characters.bytes() {
                            starts.get_mut(usize::from(byte)).into_iter().for_each(|start| start.join(own));
                        }
                        continue;
                    }
                    Anchor::OneWord => {
                        one_word.join(own);
                        continue;
                    }
                };
                texts.extend(list.into_iter().map(|text| (text, found)));
            }
        }
        texts.retain(|(_, found)| wanted(found));
        texts.sort_by_key(|(text, _)| *text);
        let mut patterns: Vec<&str> = Vec::new();
        let mut found: Vec<Found> = Vec::new();
        for (text, new) in texts {
            match found.last_mut().filter(|_| patterns.last() == Some(&text)) {
                Some(known) => known.join(new),
                None => {
                    patterns.push(text);
                    found.push(new);
                }
            }
        }
        let automaton = AhoCorasick::builder().kind(Some(AhoCorasickKind::DFA)).build(patterns).ok()?;
        Some(Anchors { automaton, found, starts, one_word })
    }

    /// Selects the importers for a line.
    #[must_use]
    pub fn select(&self, text: &str) -> Selected {
        let mut selected = Selected::default();
        for found in self.all_in(text.as_bytes()).map(|(_, found)| found) {
            selected.by_text.join(found.of_line);
            selected.above.join(found.of_lines_above);
        }
        let text = text.trim();
        if let Some(importers) = text.bytes().next().and_then(|first| self.starts.get(usize::from(first))) {
            selected.by_shape.join(*importers);
        }
        if !text.is_empty() && !text.contains(char::is_whitespace) {
            selected.by_shape.join(self.one_word);
        }
        selected
    }

    /// All anchors, each with the position of the first byte; ordered by their ends.
    pub fn all_in<'a>(&'a self, bytes: &'a [u8]) -> impl Iterator<Item = (usize, Found)> + 'a {
        let known = |number: usize| self.found.get(number).copied();
        self.automaton
            .find_overlapping_iter(bytes)
            .filter_map(move |found| Some((found.start(), known(found.pattern().as_usize())?)))
    }
}

impl Found {
    fn join(&mut self, other: Found) {
        self.of_line.join(other.of_line);
        self.of_lines_above.join(other.of_lines_above);
        self.table |= other.table;
        self.report |= other.report;
        self.line |= other.line;
    }
}

/// The importers to ask about the line at the cursor.
#[must_use]
pub fn importers_at(cursor: &Cursor<'_>) -> Importers {
    let selected = |ahead: usize| cursor.text().selected(cursor.position() + ahead);
    let own = selected(0);
    let mut importers = own.by_text;
    importers.join(own.by_shape);
    for ahead in 1..=LINES_BELOW {
        importers.join(selected(ahead).above);
    }
    importers
}

/// The importers that the anchors of a line select; all importers without an automaton.
#[must_use]
pub fn select(text: &str) -> Selected {
    let all = || Selected { by_text: Importers(u128::MAX), by_shape: Importers::NONE, above: Importers(u128::MAX) };
    ANCHORS.as_ref().map_or_else(all, |anchors| anchors.select(text))
}

/// Whether a line has an anchor that a long log keeps.
#[must_use]
pub fn is_kept(text: &str) -> bool {
    KEPT.as_ref().is_none_or(|anchors| anchors.automaton.is_match(text))
}

#[cfg(test)]
mod tests {
    use super::{ANCHORS, Anchor, KEPT, select};
    use crate::IMPORTERS;
    use crate::text::{Cursor, Text};

    #[test]
    fn the_automaton_has_all_anchors_and_every_importer_has_one() {
        assert!(ANCHORS.is_some() && KEPT.is_some());
        for importer in IMPORTERS {
            assert!(!importer.anchors.is_empty(), "{}", importer.name);
            for anchor in importer.anchors {
                let texts = match anchor {
                    Anchor::Table(texts) | Anchor::Line(texts) | Anchor::Common(texts) | Anchor::Below(texts) => {
                        texts.to_vec()
                    }
                    Anchor::LineOf(texts) | Anchor::BelowOf(texts) => texts(),
                    Anchor::Start(_) | Anchor::OneWord => continue,
                };
                assert!(!texts.is_empty() && texts.iter().all(|text| !text.is_empty()), "{}", importer.name);
            }
        }
    }

    #[test]
    fn a_line_of_prose_selects_no_importer_and_a_header_selects_its_own() {
        for line in ["the quick brown fox", "// a comment of the code"] {
            assert!(select(line).by_text.is_empty(), "{line}");
        }
        let names = |line: &str| select(line).by_text.iter().map(|importer| importer.name).collect::<Vec<_>>();
        assert!(names(" r  b   swpd   free   buff  cache").contains(&"vmstat"));
        assert!(!names(" r  b   swpd   free   buff  cache").contains(&"slabinfo"));
    }

    /// The lines of all example logs and published logs.
    #[test]
    fn every_line_that_an_importer_detects_has_an_anchor() {
        let mut missing: Vec<String> = Vec::new();
        let mut detected = 0_usize;
        for path in crate::skim_agrees::logs() {
            let text = Text::new(&std::fs::read(&path).expect("a log"));
            let mut cursor = Cursor::new(&text);
            while let Some(line) = cursor.peek() {
                let selected = super::importers_at(&cursor);
                for (number, importer) in IMPORTERS.iter().enumerate() {
                    if (importer.detect)(&cursor) > 0 {
                        detected += 1;
                        if selected.0 & (1 << number) == 0 {
                            missing.push(format!(
                                "{}: {}:{}: {}",
                                importer.name,
                                path.display(),
                                line.number,
                                line.text
                            ));
                        }
                    }
                }
                cursor.take();
            }
        }
        assert!(missing.is_empty(), "{} of {detected}:\n{}", missing.len(), missing.join("\n"));
        assert!(detected > 15_000, "{detected}");
    }
}
