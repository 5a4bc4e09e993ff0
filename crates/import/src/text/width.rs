//! Joins lines that were broken at a column: by a mail program between words, by a terminal anywhere.
//!
//! If no line is wider than mail or a terminal, and a line had no room for the first word of the next, the next line
//! may be its continuation. `crate::rewrap` reads the lines both ways and decides by the result.

use super::dress::candidates;
use super::{Span, Text};

/// How lines may have been broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// Between words, before they pass this column.
    Words(usize),
    /// As `Words`, in a table: rows have as many words as the header.
    Table(usize),
    /// Anywhere, by a terminal with this many columns.
    Letters(usize),
}

/// Columns at which mail programs and people break lines.
const COLUMNS: std::ops::RangeInclusive<usize> = 56..=100;
/// Widths of terminals.
const TERMINAL: std::ops::RangeInclusive<usize> = 70..=250;
/// Maximum blanks at the end of a terminal's row that the copy lost.
const BLANKS_MAX: usize = 4;
/// Maximum number of parts of one line.
const PARTS_MAX: usize = 12;

impl Text {
    /// The ways in which lines of this text may have been broken. Empty if a line is wider than any terminal.
    #[must_use]
    pub fn widths(&self) -> Vec<Width> {
        let (mut longest, mut as_long) = (0, 0);
        for at in 0..self.spans.len() {
            let columns = self.columns(at);
            // A single word cannot be broken.
            if columns > *COLUMNS.end() && self.words_at(at) < 2 {
                continue;
            }
            if columns > *TERMINAL.end() {
                return Vec::new();
            }
            if columns > longest {
                (longest, as_long) = (columns, 0);
            }
            as_long += usize::from(columns == longest);
        }
        let mut found = Vec::new();
        if COLUMNS.contains(&longest) {
            found.extend([Width::Words(longest), Width::Table(longest)]);
        }
        if TERMINAL.contains(&longest) && as_long > 1 {
            found.push(Width::Letters(longest));
        }
        found
    }

    /// Number of columns of a line, including what was removed on the left.
    fn columns(&self, at: usize) -> usize {
        let removed = self.spans.get(at).map_or(0, |span| span.removed as usize);
        removed + self.text_at(at).map_or(0, |line| line.chars().count())
    }

    /// First and last line of each block of at least two lines between blank lines; the end is exclusive.
    #[must_use]
    pub fn blocks(&self) -> Vec<(usize, usize)> {
        let blank = |at: usize| self.text_at(at).is_none_or(|line| line.trim().is_empty());
        let (mut found, mut at) = (Vec::new(), 0);
        while at < self.spans.len() {
            let end = (at..self.spans.len()).find(|at| blank(*at)).unwrap_or(self.spans.len());
            if end > at + 1 {
                found.push((at, end));
            }
            at = end + 1;
        }
        found
    }

    /// Groups each line of a block with its possible continuations. `None` if no line has one, or if a line would have
    /// more than `PARTS_MAX` parts: then the block is a table or prose of that width.
    #[must_use]
    pub fn groups(&self, (from, to): (usize, usize), width: Width) -> Option<Vec<(usize, usize)>> {
        let mut groups: Vec<(usize, usize)> = Vec::new();
        let (mut named, mut head) = (true, 0);
        for at in from..to {
            let Some((first, end)) = groups.last_mut() else {
                groups.push((at, at + 1));
                continue;
            };
            let words = |from: usize, to: usize| (from..to).map(|at| self.words_at(at)).sum::<usize>();
            let full = head > 0 && words(*first, *end) >= head;
            let table = matches!(width, Width::Table(_));
            let row = named && self.has_figures(at, at + 1) && !self.has_figures(*first, *end);
            if self.may_go_on(at, width) && !(table && (full || row)) && !self.begins_like(at, *first) {
                *end = at + 1;
                if *end - *first > PARTS_MAX {
                    return None;
                }
                continue;
            }
            // A table's header holds names; its rows have as many words.
            if std::mem::take(&mut named) && *end > *first + 1 && !self.has_figures(*first, *end) {
                head = words(*first, *end);
            }
            groups.push((at, at + 1));
        }
        groups.iter().any(|(first, end)| end - first > 1).then_some(groups)
    }

    fn words_at(&self, at: usize) -> usize {
        self.text_at(at).map_or(0, |line| line.split_whitespace().count())
    }

    fn has_figures(&self, from: usize, to: usize) -> bool {
        let mut words = (from..to).filter_map(|at| self.text_at(at)).flat_map(str::split_whitespace);
        words.any(|word| word.starts_with(|c: char| c.is_ascii_digit()))
    }

    /// Whether the line above had no room for the first word of this line.
    fn may_go_on(&self, at: usize, width: Width) -> bool {
        let above = at.checked_sub(1).map_or(0, |above| self.columns(above));
        match width {
            Width::Words(most) | Width::Table(most) => {
                let first = self.text_at(at).and_then(|line| line.split_whitespace().next()).unwrap_or_default();
                above + 1 + first.chars().count() > most
            }
            Width::Letters(columns) => above + BLANKS_MAX >= columns,
        }
    }

    /// Whether both lines begin with a time, a name or a number, as lines of a log do: then neither continues the
    /// other.
    fn begins_like(&self, at: usize, first: usize) -> bool {
        let (Some(line), Some(first)) = (self.text_at(at), self.text_at(first)) else { return false };
        if crate::kernel_log::is_prefixed(line) {
            return true;
        }
        // `5 down+0x43/0x60 <= ...` begins a stack with the number of tasks.
        let mut words = line.split_whitespace();
        let counted = words.next().is_some_and(|word| word.bytes().all(|c| c.is_ascii_digit()));
        if counted && words.next().is_some_and(|word| word.contains("+0x")) {
            return true;
        }
        let kinds = candidates(first);
        !kinds.is_empty() && candidates(line).iter().any(|one| kinds.iter().any(|other| one.follows(other)))
    }

    /// A copy of these groups, with each group joined into one line.
    #[must_use]
    pub fn grouped(&self, groups: &[(usize, usize)], width: Width) -> Text {
        let mut text = Text::default();
        groups.iter().for_each(|(first, end)| self.push_group(*first, *end, width, &mut text));
        text
    }

    /// A copy of the whole text, with each group joined into one line.
    #[must_use]
    pub fn with_groups(&self, groups: &[(usize, usize, Width)]) -> Text {
        let mut text =
            Text { cut_lines: self.cut_lines, cut_file: self.cut_file, lone_marks: self.lone_marks, ..Text::default() };
        let (mut at, mut groups) = (0, groups.iter().peekable());
        while at < self.spans.len() {
            let group = groups.next_if(|(first, ..)| *first == at);
            let (end, width) = group.map_or((at + 1, Width::Words(0)), |(_, end, width)| (*end, *width));
            self.push_group(at, end, width, &mut text);
            at = end;
        }
        text
    }

    fn push_group(&self, first: usize, end_line: usize, width: Width, text: &mut Text) {
        let Some(span) = self.spans.get(first) else { return };
        let start = text.clean.len();
        for at in first..end_line {
            text.clean.push_str(self.text_at(at).unwrap_or_default());
            if at + 1 < end_line {
                let missing = match width {
                    Width::Letters(columns) => columns.saturating_sub(self.columns(at)),
                    _ => 1,
                };
                text.clean.extend(std::iter::repeat_n(' ', missing));
            }
        }
        let (Ok(start), Ok(end)) = (u32::try_from(start), u32::try_from(text.clean.len())) else { return };
        let joined = (first + 1..end_line).filter_map(|at| self.spans.get(at));
        let lines = joined.fold(span.lines, |lines, span| lines.saturating_add(span.lines));
        text.spans.push(Span { start, end, lines, ..*span });
        text.times.extend(self.times.get(first).copied());
        text.clean.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::{Text, Width};

    fn joined(raw: &str, width: Width) -> Vec<String> {
        let text = Text::new(raw.as_bytes());
        let block = (0, text.len() - 1);
        let groups = text.groups(block, width).unwrap_or_default();
        let whole = text.grouped(&groups, width);
        (0..whole.len()).filter_map(|at| whole.line(at)).map(|line| line.text.to_owned()).collect()
    }

    #[test]
    fn broken_words_letters_and_tables_are_joined() {
        assert_eq!(joined("aaaa bbbb\ncccc\nd\n", Width::Words(10)), ["aaaa bbbb cccc", "d"]);
        assert_eq!(joined("aaaa bbbbb\nccc\nd\n", Width::Letters(10)), ["aaaa bbbbbccc", "d"]);
        let table = "name one\ntwo\nsda 1234\n5\nsdb 12 3\nsdc 12 3\n";
        assert_eq!(joined(table, Width::Table(8)), ["name one two", "sda 1234 5", "sdb 12 3", "sdc 12 3"]);
    }
}
