//! The lines of one file without what pasting adds (CRLF, terminal colours, mail quotes, wrapped rows), and a cursor
//! over them. Line numbers stay those of the file, and so do columns, except after escape sequences and entities.

mod comment;
mod counts;
pub mod dress;
mod margin;
mod paste;
mod prefix;
mod twice;
pub mod width;
mod wrapped;

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;

use super::Importer;
use super::anchors::{self, LINES_BELOW, Selected};
use super::when::When;
pub use counts::LineCounts;
use wrapped::Joins;

/// Longer lines are cut. Among the formats only JSON on one line is longer, and JSON is not cut.
pub const LINE_BYTES_MAX: usize = 1 << 20;
/// Lines after this many are dropped.
pub const LINES_MAX: usize = 8_000_000;
/// Larger files are cut, and a gap reports it.
pub const FILE_BYTES_MAX: usize = 256 << 20;

/// A cleaned file. All lines are spans of one buffer, so that JSON readers can take the remaining text in one piece.
#[derive(Debug, Default)]
pub struct Text {
    clean: String,
    spans: Vec<Span>,
    /// Number of lines that were cut at `LINE_BYTES_MAX`.
    pub cut_lines: u32,
    /// Number of lines that were only marks and were removed.
    pub lone_marks: u64,
    /// The file was longer than `FILE_BYTES_MAX` or had more than `LINES_MAX` lines.
    pub cut_file: bool,
    /// The time in the prefix that was removed from each line.
    times: Vec<Option<When>>,
    asked: Cell<Option<(usize, Known)>>,
    /// The importers selected for the last lines, at index modulo `SELECTED`.
    selected: RefCell<Vec<Option<(usize, Selected)>>>,
}

/// Number of lines whose selection is kept: more than the lines below that are searched.
const SELECTED: usize = 2 * LINES_BELOW;

/// The best importer for a line, with its score.
type Known = Option<(u8, &'static Importer)>;

#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    end: u32,
    /// Columns removed on the left (mail quotes, prefixes, margins).
    removed: u32,
    /// From 1. Lines that were joined to the line above have no span.
    number: u32,
    /// Number of non-blank lines of the file that were joined into this one. A line that was blank has 0, a line that
    /// is blank without its marks has 1.
    lines: u32,
}

/// Lines without the prefix or marks that they had.
#[derive(Debug)]
pub struct Bare {
    pub text: Text,
    /// The time in the first prefix.
    pub when: Option<When>,
    /// The file named by the prefix, as `grep` prints it.
    pub file: Option<String>,
    /// Number of lines of the original text.
    pub lines: usize,
    /// The prefix was a line number that rises by one from line to line.
    pub numbered: bool,
}

/// One line, without its line end.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// From 1.
    pub number: u32,
    pub text: &'a str,
    removed: u32,
    /// Number of non-blank lines of the file that were joined into this one; 0 for a blank line.
    pub lines: u32,
}

/// A word of a line and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    pub text: &'a str,
    /// From 1, in characters of the line in the file, including removed quotes.
    pub column: u32,
}

impl<'a> Line<'a> {
    /// The column (from 1) of a slice of this line's text.
    #[must_use]
    pub fn column_of(&self, piece: &str) -> u32 {
        let offset = (piece.as_ptr() as usize).checked_sub(self.text.as_ptr() as usize);
        let before = offset.and_then(|offset| self.text.get(..offset)).map_or(0, |before| before.chars().count());
        self.removed.saturating_add(u32::try_from(before).unwrap_or(u32::MAX)).saturating_add(1)
    }

    pub fn tokens(&self) -> impl Iterator<Item = Token<'a>> + use<'a> {
        let line = *self;
        let (mut before, mut column) = (0, self.removed);
        line.text.split_whitespace().map(move |text| {
            // Counted from the token before: long lines would otherwise cost quadratic time.
            let offset = (text.as_ptr() as usize).saturating_sub(line.text.as_ptr() as usize);
            let passed = line.text.get(before..offset).map_or(0, |passed| passed.chars().count());
            column = column.saturating_add(u32::try_from(passed).unwrap_or(u32::MAX));
            before = offset;
            Token { text, column: column.saturating_add(1) }
        })
    }

    #[must_use]
    pub fn words(&self) -> Vec<&'a str> {
        self.text.split_whitespace().collect()
    }

    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.text.trim().is_empty()
    }

    /// The first column after the line, for errors about missing text.
    #[must_use]
    pub fn end_column(&self) -> u32 {
        self.removed + u32::try_from(self.text.chars().count()).unwrap_or(u32::MAX - self.removed - 1) + 1
    }
}

/// Decodes a file that begins with a UTF-16 byte order mark, as editors and shells on Windows write it.
fn utf16(bytes: &[u8]) -> Option<String> {
    let unit: fn([u8; 2]) -> u16 = match bytes {
        [0xff, 0xfe, ..] => u16::from_le_bytes,
        [0xfe, 0xff, ..] => u16::from_be_bytes,
        _ => return None,
    };
    let pairs = bytes.get(2..)?.chunks_exact(2);
    let units = pairs.filter_map(|pair| pair.try_into().ok()).map(unit);
    Some(char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect())
}

impl Text {
    /// Cleans a whole file. Never fails: bytes that are not UTF-8 become U+FFFD, which no format contains.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Text {
        Text::from_line(bytes, 1)
    }

    /// As `new`, for a part of a file whose first line has this number.
    #[must_use]
    pub fn from_line(bytes: &[u8], first: u32) -> Text {
        Text::numbered(bytes, first..=u32::MAX)
    }

    /// As `new`, for lines with these numbers.
    #[must_use]
    pub fn numbered(bytes: &[u8], numbers: impl IntoIterator<Item = u32>) -> Text {
        let cut_file = bytes.len() > FILE_BYTES_MAX;
        let bytes = bytes.get(..FILE_BYTES_MAX).unwrap_or(bytes);
        let raw = utf16(bytes).map_or_else(|| String::from_utf8_lossy(bytes), std::borrow::Cow::Owned);
        let mut text = Text { cut_file, ..Text::default() };
        // JSON may not be cut, and has no mail quotes or colours.
        let json = raw.trim_start().starts_with('{')
            && !paste::is_fence(raw.trim_start().lines().next().unwrap_or_default().trim());
        let printable = !json && paste::is_quoted_printable(&raw);
        let mut continues = false;
        for (line, number) in raw.split('\n').zip(numbers) {
            let mut line = line;
            let written = u32::from(!line.trim().is_empty());
            let continued = std::mem::take(&mut continues);
            let decoded;
            if printable {
                (decoded, continues) = paste::quoted_printable(line);
                line = &decoded;
            }
            if line.len() > LINE_BYTES_MAX && !json {
                let end = (0..=LINE_BYTES_MAX).rev().find(|&end| line.is_char_boundary(end)).unwrap_or(0);
                line = line.get(..end).unwrap_or_default();
                text.cut_lines += 1;
            }
            let quote = if json || continued { 0 } else { paste::quote_bytes(line) };
            if continued && text.clean.ends_with('\n') {
                text.clean.pop();
            }
            let whole = text.clean.len();
            paste::clean(line.get(quote..).unwrap_or_default(), json, &mut text.clean);
            // The marks of a quote may follow colours, entities or tags.
            let inner =
                if json || continued { 0 } else { paste::quote_bytes(text.clean.get(whole..).unwrap_or_default()) };
            let (quote, start) = (quote + inner, whole + inner);
            let cleaned = text.clean.get(start..).unwrap_or_default();
            // Before a soft break, trailing blanks belong to the line.
            let kept = if continues { cleaned.len() } else { cleaned.trim_end().len() };
            text.clean.truncate(start + kept);
            if text.spans.len() >= LINES_MAX {
                text.cut_file = true;
                break;
            }
            let (Ok(start), Ok(end)) = (u32::try_from(start), u32::try_from(start + kept)) else {
                text.cut_file = true;
                break;
            };
            match text.spans.last_mut().filter(|_| continued) {
                Some(broken) => (broken.end, broken.lines) = (end, broken.lines.saturating_add(written)),
                None => {
                    let removed = u32::try_from(quote).unwrap_or(0);
                    text.spans.push(Span { start, end, removed, number, lines: written });
                }
            }
            text.clean.push('\n');
        }
        if !json {
            text.single_space();
            if text.uncomment() {
                text.unquote();
            }
            text.unmargin();
            text = crate::rewrap::whole(&text).unwrap_or(text);
            text.respace();
        }
        text
    }

    /// Removes margins and joins broken lines.
    pub fn respace(&mut self) {
        // A trial may have read the lines as they were.
        self.asked.set(None);
        self.selected.borrow_mut().clear();
        self.dedent();
        self.unwrap();
    }

    /// Makes lines that were joined from several count as one.
    pub fn count_joined_once(&mut self) {
        self.spans.iter_mut().for_each(|span| span.lines = span.lines.min(1));
    }

    /// Joins lines that a mail program broke, where a row or frame is visibly incomplete.
    fn unwrap(&mut self) {
        let mut joins = Joins::default();
        let mut kept: Vec<Span> = Vec::new();
        let mut cuts: Vec<std::ops::Range<usize>> = Vec::new();
        let mut times = Vec::new();
        for at in 0..self.spans.len() {
            let (Some(&span), Some(line)) = (self.spans.get(at), self.text_at(at)) else { break };
            let joined = match kept.last() {
                Some(last) if at > 0 => {
                    let above = self.clean.get(last.start as usize..last.end as usize).unwrap_or_default();
                    joins.continues(above, line)
                }
                _ => joins.continues("", line),
            };
            if joined && let Some(last) = kept.last_mut().filter(|last| last.end < span.start) {
                // The end of the line above, and the columns that were removed on the left of this line.
                cuts.push(last.end as usize..span.start as usize);
                last.end = span.end;
                last.lines = last.lines.saturating_add(span.lines);
            } else {
                kept.push(span);
                times.extend(self.times.get(at).copied());
            }
        }
        if cuts.is_empty() {
            return;
        }
        // These bytes now lie within a span: blanks make them a space between words.
        let mut clean = std::mem::take(&mut self.clean).into_bytes();
        for cut in cuts {
            clean.get_mut(cut).unwrap_or_default().fill(b' ');
        }
        self.clean = String::from_utf8(clean).unwrap_or_default();
        (self.spans, self.times) = (kept, times);
    }

    /// The importer for a line. Keeps the answer for the last index.
    pub fn asked_once(&self, index: usize, ask: impl FnOnce() -> Known) -> Known {
        if let Some((_, known)) = self.asked.get().filter(|(of, _)| *of == index) {
            return known;
        }
        let known = ask();
        self.asked.set(Some((index, known)));
        known
    }

    /// The importers that the anchors of a line select. Keeps the answers for the last lines.
    #[must_use]
    pub fn selected(&self, index: usize) -> Selected {
        let Some(text) = self.text_at(index) else { return Selected::default() };
        let mut kept = self.selected.borrow_mut();
        kept.resize(SELECTED, None);
        let Some(slot) = kept.get_mut(index % SELECTED) else { return anchors::select(text) };
        match *slot {
            Some((of, selected)) if of == index => selected,
            _ => {
                let selected = anchors::select(text);
                *slot = Some((index, selected));
                selected
            }
        }
    }

    fn text_at(&self, index: usize) -> Option<&str> {
        let span = self.spans.get(index)?;
        self.clean.get(span.start as usize..span.end as usize)
    }

    /// The lines from `from` on that have the same kind of prefix as the first one (a log collector's time and name,
    /// `grep`'s file), without the prefix. `None` if the line at `from` has no prefix.
    #[must_use]
    pub fn without_prefix(&self, from: usize) -> Option<Bare> {
        let first = prefix::of(self.text_at(from)?)?;
        let mut text = Text::default();
        let mut lines = 0;
        for at in from..self.spans.len() {
            let (Some(span), Some(line)) = (self.spans.get(at), self.text_at(at)) else { break };
            let start = text.clean.len();
            let (cut, when) = match prefix::of(line) {
                Some(found) if found.kind == first.kind => (found.bytes, found.when),
                _ if line.trim().is_empty() => (line.len(), None),
                _ => break,
            };
            text.clean.push_str(line.get(cut..).unwrap_or_default());
            let (Ok(start), Ok(end)) = (u32::try_from(start), u32::try_from(text.clean.len())) else { break };
            let removed = span.removed.saturating_add(u32::try_from(cut).unwrap_or(0));
            text.spans.push(Span { start, end, removed, ..*span });
            text.times.push(when);
            text.clean.push('\n');
            lines += 1;
        }
        text.unmargin();
        text.unquote();
        text.respace();
        let file = match first.kind {
            prefix::Kind::File(path) => Some(path),
            _ => None,
        };
        Some(Bare { text, when: first.when, file, lines, numbered: false })
    }

    #[must_use]
    pub fn has_prefix(&self, at: usize) -> bool {
        self.text_at(at).is_some_and(|line| prefix::of(line).is_some())
    }

    /// The number of the line after the last one.
    #[must_use]
    pub fn next_number(&self) -> u32 {
        self.spans.last().map_or(1, |span| span.number.saturating_add(1))
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    #[must_use]
    pub fn line(&self, index: usize) -> Option<Line<'_>> {
        let span = self.spans.get(index)?;
        Some(Line { number: span.number, text: self.text_at(index)?, removed: span.removed, lines: span.lines })
    }
}

/// A position in the text. Importers peek at lines to detect a format, and take the lines that they understand.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    text: &'a Text,
    at: usize,
}

impl<'a> Cursor<'a> {
    #[must_use]
    pub fn new(text: &'a Text) -> Cursor<'a> {
        Cursor { text, at: 0 }
    }

    #[must_use]
    pub fn peek(&self) -> Option<Line<'a>> {
        self.ahead(0)
    }

    /// The line that is `lines` lines after the next one.
    #[must_use]
    pub fn ahead(&self, lines: usize) -> Option<Line<'a>> {
        self.text.line(self.at.checked_add(lines)?)
    }

    /// The text of the next line; empty at the end.
    #[must_use]
    pub fn next_text(&self) -> &'a str {
        self.peek().map_or("", |line| line.text)
    }

    pub fn take(&mut self) -> Option<Line<'a>> {
        let line = self.peek()?;
        self.at += 1;
        Some(line)
    }

    #[must_use]
    pub fn text(&self) -> &'a Text {
        self.text
    }

    /// The time in the prefix that was removed from the next line.
    #[must_use]
    pub fn when(&self) -> Option<When> {
        self.text.times.get(self.at).copied().flatten()
    }

    #[must_use]
    pub fn position(&self) -> usize {
        self.at
    }

    /// The numbers of the first line and the last non-blank line between here and a later cursor.
    #[must_use]
    pub fn numbers_to(&self, later: &Cursor<'_>) -> (u32, u32) {
        let number = |at: usize| self.text.spans.get(at).map_or(0, |span| span.number);
        let has_text = |at: &usize| self.text.line(*at).is_some_and(|line| !line.is_blank());
        let last = (self.at..later.at).rev().find(has_text).unwrap_or(self.at);
        (number(self.at), number(last))
    }

    /// The whole text from the next line on.
    #[must_use]
    pub fn rest(&self) -> &'a str {
        let start = self.text.spans.get(self.at).map_or(self.text.clean.len(), |span| span.start as usize);
        self.text.clean.get(start..).unwrap_or_default()
    }

    /// Number of lines in the break at the cursor (`...` and blank lines around it). `None` without a break.
    #[must_use]
    pub fn lines_of_break(&self) -> Option<usize> {
        let lines = (0..64).take_while(|&at| self.ahead(at).is_some_and(|line| line.is_blank() || is_break(line.text)));
        let (mut count, mut broken) = (0, false);
        for at in lines {
            broken |= self.ahead(at).is_some_and(|line| is_break(line.text));
            count = at + 1;
        }
        broken.then_some(count)
    }

    pub fn take_lines(&mut self, lines: usize) {
        self.at = self.at.saturating_add(lines).min(self.text.len());
    }
}

/// Whether a line marks omitted lines: `...`, `[snip]` and the like.
#[must_use]
pub fn is_break(text: &str) -> bool {
    if text.len() > 80 {
        return false;
    }
    let inner = text.trim_matches(|c: char| c.is_whitespace() || "[](){}<>-*=/\\".contains(c));
    let dots = !inner.is_empty() && inner.chars().all(|c| matches!(c, '.' | '…'));
    (dots && (inner.len() >= 2)) || ["snip", "8<", "snipped", "cut"].iter().any(|word| inner.eq_ignore_ascii_case(word))
}

/// At most 60 characters of a line, for messages.
#[must_use]
pub fn shown(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.trim().chars();
    for c in chars.by_ref().take(60) {
        let _ = write!(out, "{c}");
    }
    if chars.next().is_some() {
        out.push_str(" ...");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{Cursor, Text};

    #[test]
    fn quotes_and_colours_are_removed_and_columns_stay() {
        let text = Text::new(b"> > r b\r\n>\n\x1b[1;31mred\x1b[0m\tx\n> > 1 oops");
        let lines: Vec<&str> = (0..text.len()).filter_map(|at| text.line(at)).map(|line| line.text).collect();
        assert_eq!(lines, ["r b", "", "red x", "1 oops"]);
        let token = text.line(3).and_then(|line| line.tokens().last()).expect("two words");
        assert_eq!((token.text, token.column), ("oops", 7));
    }

    #[test]
    fn lines_that_a_mail_program_broke_are_joined() {
        let text = Text::new(
            b"Device: rrqm/s wrqm/s r/s w/s rkB/s wkB/s avgrq-sz\navgqu-sz await svctm %util\nsda 0.00 1.00 2.00 3.00 4.00 5.00\n6.00 7.00 8.00 9.00 10.00\n\n[<ffffffff81>]\nio_schedule+0x73/0xc0\n",
        );
        let lines: Vec<(u32, &str)> =
            (0..text.len()).filter_map(|at| text.line(at)).map(|line| (line.number, line.text)).collect();
        assert_eq!(lines[0].1.split(' ').count(), 12);
        assert_eq!(lines[1], (3, "sda 0.00 1.00 2.00 3.00 4.00 5.00 6.00 7.00 8.00 9.00 10.00"));
        assert_eq!(lines[3], (6, "[<ffffffff81>] io_schedule+0x73/0xc0"));
    }

    #[test]
    fn a_collectors_prefix_is_taken_off_the_lines_that_share_it() {
        let text = Text::new(b"web-1  | r b swpd\nweb-1  | 1 0 0\nplain\n");
        let bare = text.without_prefix(0).expect("a prefix");
        assert_eq!((bare.when, bare.lines, bare.text.line(1).map(|line| line.text)), (None, 2, Some("1 0 0")));
        assert!(text.without_prefix(2).is_none());
    }

    #[test]
    fn utf_16_with_its_mark_is_text() {
        for mark in [[0xff, 0xfe], [0xfe, 0xff]] {
            let swap = mark[0] == 0xfe;
            let units =
                "r b\r\n1".encode_utf16().map(|unit| if swap { unit.to_be_bytes() } else { unit.to_le_bytes() });
            let bytes: Vec<u8> = mark.into_iter().chain(units.flatten()).collect();
            let text = Text::new(&bytes);
            assert_eq!((0..2).filter_map(|at| text.line(at)).map(|line| line.text).collect::<Vec<_>>(), ["r b", "1"]);
        }
        assert_eq!(Text::new(b"\xff\xfe1").len(), 1, "an odd byte at the end");
    }

    #[test]
    fn the_importer_of_a_line_is_asked_for_once() {
        let text = Text::new(b"a\nb");
        let asked = std::cell::Cell::new(0);
        for index in [0, 0, 1, 1, 1] {
            let ask = || {
                asked.set(asked.get() + 1);
                None
            };
            assert!(text.asked_once(index, ask).is_none());
        }
        assert_eq!(asked.get(), 2);
    }

    #[test]
    fn the_cursor_ends_at_the_end() {
        let text = Text::new(b"a\nb");
        let mut cursor = Cursor::new(&text);
        assert_eq!(cursor.rest(), "a\nb\n");
        assert_eq!(cursor.take().map(|line| line.text), Some("a"));
        cursor.take_lines(usize::MAX);
        assert!(cursor.take().is_none() && cursor.rest().is_empty());
    }
}
