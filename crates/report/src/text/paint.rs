//! Text under construction: width, wrapping with a hanging indent, and colours if requested.

use std::borrow::Cow;

use textwrap::{WordSeparator, WordSplitter};

use super::super::numbers::clean;

/// The text so far, with the width and colour to use.
pub struct Page {
    text: String,
    width: usize,
    colour: bool,
}

#[derive(Clone, Copy)]
pub enum Ink {
    Strong,
    Quiet,
    Alarm,
    Good,
}

/// Least width, below which wrapping would leave one word per line.
const NARROWEST: usize = 50;

impl Page {
    pub fn new(width: usize, colour: bool) -> Page {
        Page { text: String::new(), width: width.max(NARROWEST), colour }
    }

    pub fn finish(self) -> String {
        self.text
    }

    /// Adds finished lines.
    pub fn add(&mut self, lines: &str) {
        self.text.push_str(lines);
    }

    pub fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    pub fn paint(&self, ink: Ink, text: &str) -> String {
        if !self.colour || text.is_empty() {
            return text.to_owned();
        }
        let code = match ink {
            Ink::Strong => "1",
            Ink::Quiet => "2",
            Ink::Alarm => "1;31",
            Ink::Good => "1;32",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }

    /// Adds `text` behind `lead`, wrapped at the page's width. Further lines are indented by the length of `lead`.
    pub fn wrapped(&mut self, lead: &str, ink: Option<Ink>, text: &str) {
        let indent = lead.chars().count();
        let room = self.width.saturating_sub(indent).max(20);
        for (place, line) in wrap(&clean(text), room).iter().enumerate() {
            let before = if place == 0 { lead.to_owned() } else { " ".repeat(indent) };
            let shown = ink.map_or_else(|| line.clone(), |ink| self.paint(ink, line));
            self.line(&format!("{before}{shown}"));
        }
    }

    /// Adds parts joined by ` · `, with line breaks only between parts; the first part is painted.
    pub fn joined(&mut self, first: Ink, parts: &[String]) {
        let mut line = String::new();
        let mut used = 0;
        for (place, part) in parts.iter().enumerate() {
            let part = clean(part);
            let length = part.chars().count();
            if place > 0 && used + 3 + length > self.width {
                self.line(&line);
                line = format!("  {part}");
                used = 2 + length;
            } else if place > 0 {
                line = format!("{line} · {part}");
                used += 3 + length;
            } else {
                line = self.paint(first, &part);
                used = length;
            }
        }
        self.line(&line);
    }
}

/// `text` behind `lead`, wrapped at `width`. Further lines are indented by the length of `lead`. Ends with a line feed.
#[must_use]
pub fn hanging(lead: &str, text: &str, width: usize) -> String {
    let mut page = Page::new(width, false);
    page.wrapped(lead, None, text);
    page.finish()
}

/// Wraps text. Words longer than the line are not broken, because they are paths and commands to copy.
#[must_use]
pub fn wrap(text: &str, room: usize) -> Vec<String> {
    let options = textwrap::Options::new(room)
        .break_words(false)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation);
    let text = text.split_whitespace().collect::<Vec<&str>>().join(" ");
    textwrap::wrap(&text, options).into_iter().map(Cow::into_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::{Page, wrap};

    #[test]
    fn lines_break_between_words_and_hang() {
        let mut page = Page::new(50, false);
        page.wrapped("   fix   ", None, "prefetch ahead of the writer with the precursor, or raise memory.max");
        assert_eq!(
            page.finish(),
            "   fix   prefetch ahead of the writer with the\n         precursor, or raise memory.max\n"
        );
    }

    #[test]
    fn a_long_path_is_not_torn() {
        assert_eq!(wrap("see /a/very/long/path now", 10), ["see", "/a/very/long/path", "now"]);
    }
}
