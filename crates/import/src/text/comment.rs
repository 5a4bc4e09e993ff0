//! Removes comment marks, for logs pasted into a comment of a script or source file.

use super::Text;

/// Comment marks of scripts, C and Java, SQL and assemblers.
const COMMENTS: &[&str] = &["#", "*", "//", "--", ";"];
/// Minimum number of lines of a commented text.
const COMMENTED_MIN: usize = 3;

impl Text {
    /// Removes the comment mark from each line if every line has the same one. Returns whether it did.
    pub(super) fn uncomment(&mut self) -> bool {
        let begins = |line: &str, leader: &str| {
            line.trim_start().strip_prefix(leader).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        // The search ends at the first line without the mark: in most logs that is the first line.
        let written = || (0..self.spans.len()).filter_map(|at| self.text_at(at)).filter(|line| !line.trim().is_empty());
        let first = written().next().unwrap_or_default();
        let Some(leader) = COMMENTS.iter().find(|leader| begins(first, leader)) else { return false };
        if written().nth(COMMENTED_MIN - 1).is_none() || !written().all(|line| begins(line, leader)) {
            return false;
        }
        for at in 0..self.spans.len() {
            let cut = self
                .text_at(at)
                .filter(|line| begins(line, leader))
                .map(|line| (line.len() - line.trim_start().len() + leader.len() + 1).min(line.len()));
            if let (Some(cut), Some(span)) = (cut.and_then(|cut| u32::try_from(cut).ok()), self.spans.get_mut(at)) {
                span.start += cut;
                span.removed += cut;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::Text;

    #[test]
    fn a_text_that_is_a_comment_is_read_without_its_leaders() {
        let lines = |raw: &str| {
            let text = Text::new(raw.as_bytes());
            (0..text.spans.len()).filter_map(|at| text.text_at(at).map(str::to_owned)).collect::<Vec<_>>()
        };
        assert_eq!(lines(" * r b swpd\n *  1 0 0\n\n *  2 0 0\n")[..4], ["r b swpd", " 1 0 0", "", " 2 0 0"]);
        assert_eq!(lines("# top - 1\n# Tasks: 1\n#   1 a\n")[..3], ["top - 1", "Tasks: 1", "  1 a"]);
        // A prompt is not a comment, and neither is a report's heading.
        assert_eq!(lines("# vmstat 1\n 1 0 0\n# uptime\n")[..3], ["# vmstat 1", " 1 0 0", "# uptime"]);
        assert_eq!(lines("# a\n# b\n")[..2], ["# a", "# b"]);
        assert_eq!(lines("// a\n//\n// b\n")[..3], ["a", "", "b"], "an empty comment line");
    }
}
