//! Detects a text that was pasted twice.

use super::Text;

/// Longer texts come from a collector.
const LINES_MAX: usize = 20_000;
/// Minimum non-blank lines of each half.
const HALF_MIN: usize = 3;

impl Text {
    /// Removes the second half if it repeats the first line by line, and returns its number of lines. Reading both
    /// halves would show that no value changed between them. Rows that are all equal may come from an idle machine and
    /// are kept.
    pub fn cut_copy(&mut self) -> Option<u64> {
        if self.spans.len() > LINES_MAX {
            return None;
        }
        let written = |at: &usize| self.text_at(*at).is_some_and(|line| !line.trim().is_empty());
        let lines: Vec<usize> = (0..self.spans.len()).filter(written).collect();
        let (first, second) = lines.split_at(lines.len() / 2);
        let line = |at: usize| self.text_at(at).unwrap_or_default().trim();
        let same =
            first.len() == second.len() && first.iter().zip(second).all(|(one, other)| line(*one) == line(*other));
        let distinct: std::collections::BTreeSet<&str> = first.iter().map(|at| line(*at)).collect();
        if !same || first.len() < HALF_MIN || distinct.len() * 2 <= first.len() {
            return None;
        }
        let from = second.first().copied()?;
        let copied = self.spans.iter().skip(from).map(|span| u64::from(span.lines)).sum();
        self.spans.truncate(from);
        self.times.truncate(from);
        Some(copied)
    }
}

#[cfg(test)]
mod tests {
    use super::Text;

    fn cut(raw: &str) -> (bool, usize) {
        let mut text = Text::new(raw.as_bytes());
        (text.cut_copy().is_some(), text.spans.len())
    }

    #[test]
    fn a_text_pasted_twice_is_read_once() {
        assert_eq!(cut("a 1\nb 2\nc 3\n\na 1\nb 2\nc 3\n"), (true, 4));
        assert_eq!(Text::new(b"a 1\nb 2\nc 3\n\na 1\nb 2\n\nc 3\n").cut_copy(), Some(3));
        assert!(!cut("a 1\nb 2\nc 3\na 1\nb 2\nc 4\n").0, "a second reading");
        assert!(!cut("0 0\n0 0\n0 0\n0 0\n0 0\n0 0\n").0, "an idle machine's rows");
        assert!(!cut("a 1\na 1\n").0, "too short to be sure");
    }
}
