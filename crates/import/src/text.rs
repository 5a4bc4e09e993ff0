//! The text of one file, cleaned of what pasting adds (CRLF, terminal colours, mail quotes), and a cursor over
//! its lines. Cleaning keeps line numbers, and columns but for escape sequences.

use std::fmt::Write as _;

/// Longer lines are cut: no format read here has them, bar JSON on one line.
pub const LINE_BYTES_MAX: usize = 1 << 20;
/// Lines after these are cut off.
pub const LINES_MAX: usize = 8_000_000;
/// Larger files are cut, and a gap says so.
pub const FILE_BYTES_MAX: usize = 256 << 20;

/// A cleaned file. Lines are spans of one buffer, so that JSON readers can have the rest of it in one piece.
#[derive(Debug, Default)]
pub struct Text {
    clean: String,
    spans: Vec<Span>,
    /// Lines that were cut at `LINE_BYTES_MAX`.
    pub cut_lines: u32,
    /// The file was longer than `FILE_BYTES_MAX`.
    pub cut_file: bool,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    end: u32,
    /// Columns removed at the left (mail quotes).
    removed: u32,
}

/// One line, without its end.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// From 1.
    pub number: u32,
    pub text: &'a str,
    removed: u32,
}

/// A word of a line and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    pub text: &'a str,
    /// From 1, in characters that were in the file before the quotes were removed.
    pub column: u32,
}

impl<'a> Line<'a> {
    /// The column (from 1) of a piece of this line's text.
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
            // Counted on from the token before: lines may be long.
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

    /// First column after the line, where something is missing.
    #[must_use]
    pub fn end_column(&self) -> u32 {
        self.removed + u32::try_from(self.text.chars().count()).unwrap_or(u32::MAX - self.removed - 1) + 1
    }
}

/// Removes ANSI escape sequences and control characters other than the tab.
fn without_controls(line: &str, out: &mut String) {
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' if chars.peek() == Some(&'[') => {
                chars.next();
                // Parameters and intermediates up to the final byte, as ECMA-48 has it.
                while chars.next_if(|c| ('\u{20}'..'\u{40}').contains(c)).is_some() {}
                chars.next_if(|c| ('\u{40}'..'\u{7f}').contains(c));
            }
            '\t' => out.push('\t'),
            // sar and date print narrow and no-break spaces in some locales.
            '\u{a0}' | '\u{202f}' | '\u{feff}' => out.push(' '),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
}

/// Length of the mail quote (`> `, `>> `, `> > `) at the start of the line, bytes.
fn quote_bytes(line: &str) -> usize {
    let mut end = 0;
    for (at, c) in line.char_indices() {
        match c {
            '>' => end = at + 1,
            ' ' if at == end && at > 0 => {}
            _ => break,
        }
    }
    if end > 0 && line.as_bytes().get(end) == Some(&b' ') { end + 1 } else { end }
}

/// The text of a file that begins with a byte order mark of UTF-16, as Windows' editors and shells write it.
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
    /// Never fails: what is not UTF-8 becomes U+FFFD, which no format expects.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Text {
        let cut_file = bytes.len() > FILE_BYTES_MAX;
        let bytes = bytes.get(..FILE_BYTES_MAX).unwrap_or(bytes);
        let raw = utf16(bytes).map_or_else(|| String::from_utf8_lossy(bytes), std::borrow::Cow::Owned);
        let mut text = Text { cut_file, ..Text::default() };
        // Text in JSON may not be cut, and has no quotes or colours.
        let json = raw.trim_start().starts_with('{');
        for line in raw.split('\n') {
            let mut line = line;
            if line.len() > LINE_BYTES_MAX && !json {
                let end = (0..=LINE_BYTES_MAX).rev().find(|&end| line.is_char_boundary(end)).unwrap_or(0);
                line = line.get(..end).unwrap_or_default();
                text.cut_lines += 1;
            }
            let quote = if json { 0 } else { quote_bytes(line) };
            let start = text.clean.len();
            without_controls(line.get(quote..).unwrap_or_default(), &mut text.clean);
            let kept = text.clean.get(start..).unwrap_or_default().trim_end().len();
            text.clean.truncate(start + kept);
            if text.spans.len() >= LINES_MAX {
                text.cut_file = true;
                break;
            }
            let (Ok(start), Ok(end)) = (u32::try_from(start), u32::try_from(start + kept)) else {
                text.cut_file = true;
                break;
            };
            text.spans.push(Span { start, end, removed: u32::try_from(quote).unwrap_or(0) });
            text.clean.push('\n');
        }
        text
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
        let text = self.clean.get(span.start as usize..span.end as usize)?;
        Some(Line { number: u32::try_from(index).ok()? + 1, text, removed: span.removed })
    }
}

/// Where reading has got to. Importers peek to recognise and take what they understand.
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

    /// The line `lines` after the next one.
    #[must_use]
    pub fn ahead(&self, lines: usize) -> Option<Line<'a>> {
        self.text.line(self.at.checked_add(lines)?)
    }

    /// The next line's text, empty at the end.
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
    pub fn position(&self) -> usize {
        self.at
    }

    /// How many lines with anything on them lie between here and a later cursor of the same text.
    #[must_use]
    pub fn lines_to(&self, later: &Cursor<'_>) -> u64 {
        let lines = (self.at..later.at).filter_map(|at| self.text.line(at));
        lines.filter(|line| !line.is_blank() && !is_break(line.text)).count() as u64
    }

    /// Everything from the next line on, in one piece.
    #[must_use]
    pub fn rest(&self) -> &'a str {
        let start = self.text.spans.get(self.at).map_or(self.text.clean.len(), |span| span.start as usize);
        self.text.clean.get(start..).unwrap_or_default()
    }

    /// Lines to take to get past a break (`...`, with blank lines round it); none if there is no break here.
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

/// `...` and what else stands for lines left out.
#[must_use]
pub fn is_break(text: &str) -> bool {
    let inner = text.trim_matches(|c: char| c.is_whitespace() || "[](){}<>-*=/\\".contains(c));
    let dots = !inner.is_empty() && inner.chars().all(|c| matches!(c, '.' | '…'));
    (dots && (inner.len() >= 2)) || matches!(inner.to_ascii_lowercase().as_str(), "snip" | "8<" | "snipped" | "cut")
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
    fn what_pasting_adds_is_removed_and_columns_stay() {
        let text = Text::new(b"> > r b\r\n>\n\x1b[1;31mred\x1b[0m\tx\n> > 1 oops");
        let lines: Vec<&str> = (0..text.len()).filter_map(|at| text.line(at)).map(|line| line.text).collect();
        assert_eq!(lines, ["r b", "", "red\tx", "1 oops"]);
        let token = text.line(3).and_then(|line| line.tokens().last()).expect("two words");
        assert_eq!((token.text, token.column), ("oops", 7));
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
    fn the_cursor_ends_at_the_end() {
        let text = Text::new(b"a\nb");
        let mut cursor = Cursor::new(&text);
        assert_eq!(cursor.rest(), "a\nb\n");
        assert_eq!(cursor.take().map(|line| line.text), Some("a"));
        cursor.take_lines(usize::MAX);
        assert!(cursor.take().is_none() && cursor.rest().is_empty());
    }
}
