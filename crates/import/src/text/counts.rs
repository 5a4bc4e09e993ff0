//! Counts the lines that an importer took.

use super::{Cursor, is_break};

/// Numbers of non-blank lines of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCounts {
    pub text: u64,
    /// Marks of omitted lines: `...`.
    pub breaks: u64,
    /// Lines that are blank without the marks of mail, markup or a collector.
    pub marks: u64,
}

impl Cursor<'_> {
    /// Number of lines of the file between here and a later cursor of the same text.
    #[must_use]
    pub fn lines_to(&self, later: &Cursor<'_>) -> LineCounts {
        let mut counts = LineCounts::default();
        for line in (self.at..later.at).filter_map(|at| self.text.line(at)) {
            let kind = match () {
                () if line.is_blank() => &mut counts.marks,
                () if is_break(line.text) => &mut counts.breaks,
                () => &mut counts.text,
            };
            *kind += u64::from(line.lines);
        }
        counts
    }
}
