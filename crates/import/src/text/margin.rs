//! Removes common margins, the mail quotes behind them, and blank lines after every line.

use super::{Span, Text, paste};

/// Margin of a code block in Markdown.
const MARGIN_MIN: usize = 4;
/// Minimum lines of a text with a blank line after each.
const SPACED_MIN: usize = 4;

impl Text {
    /// Removes the blank lines if there is one after each line, as some web pages and mail programs print text.
    pub(super) fn single_space(&mut self) {
        let blank = |span: &Span| {
            self.clean.get(span.start as usize..span.end as usize).is_none_or(|line| line.trim().is_empty())
        };
        let written = self.spans.iter().position(|span| !blank(span)).unwrap_or(0);
        let mut after = self.spans.iter().skip(written);
        let mut lines = 0;
        while let Some(line) = after.next() {
            let spaced = after.next().is_none_or(blank);
            if !spaced {
                return;
            }
            lines += usize::from(!blank(line));
        }
        if lines >= SPACED_MIN {
            let mut at = 0;
            let mut marks = 0;
            self.spans.retain(|span| {
                at += 1;
                let keeps = at <= written || (at - written) % 2 == 1;
                marks += if keeps { 0 } else { u64::from(span.lines) };
                keeps
            });
            self.lone_marks += marks;
        }
    }

    /// Removes the margin that all lines have in common.
    pub(super) fn unmargin(&mut self) {
        let margin = |line: &str| {
            line.get(..line.len() - line.trim_start_matches([' ', '\t']).len()).unwrap_or_default().to_owned()
        };
        let mut common: Option<String> = None;
        let mut lines = 0;
        for line in (0..self.spans.len()).filter_map(|at| self.text_at(at)).filter(|line| !line.trim().is_empty()) {
            let shared = common.map_or_else(
                || margin(line),
                |common: String| {
                    let same = common.bytes().zip(line.bytes()).take_while(|(a, b)| a == b).count();
                    common.get(..same).unwrap_or_default().to_owned()
                },
            );
            if shared.is_empty() {
                return;
            }
            (common, lines) = (Some(shared), lines + 1);
        }
        let cut = common.filter(|_| lines > 1).and_then(|common| u32::try_from(common.len()).ok()).unwrap_or(0);
        if cut == 0 {
            return;
        }
        for span in &mut self.spans {
            let cut = cut.min(span.end - span.start);
            (span.start, span.removed) = (span.start + cut, span.removed + cut);
        }
        self.unquote();
    }

    /// Removes the marks of a mail quote that follow a margin or a prefix.
    pub(super) fn unquote(&mut self) {
        for at in 0..self.spans.len() {
            let quote = self.text_at(at).map_or(0, paste::quote_bytes);
            if let (Ok(quote), Some(span)) = (u32::try_from(quote), self.spans.get_mut(at)) {
                (span.start, span.removed) = (span.start + quote, span.removed + quote);
            }
        }
    }

    /// Removes the margin of code blocks as Markdown indents them: the block is at the top or below a blank line, and
    /// every line is indented by four columns or more.
    pub(super) fn dedent(&mut self) {
        let (mut at, mut any) = (0, false);
        while at < self.spans.len() {
            let is_blank = |text: &Text, at: usize| text.text_at(at).is_none_or(|line| line.trim().is_empty());
            let opens = at == 0 || is_blank(self, at - 1);
            let margin = |text: &Text, at: usize| {
                let line = text.text_at(at)?;
                let all = line.len() - line.trim_start_matches(' ').len();
                (all >= MARGIN_MIN || line.is_empty()).then_some((all, line.is_empty()))
            };
            if !opens || is_blank(self, at) || margin(self, at).is_none() {
                at += 1;
                continue;
            }
            let (first, mut least, mut lines) = (at, usize::MAX, 0);
            while let Some((all, blank)) = (at < self.spans.len()).then(|| margin(self, at)).flatten() {
                if !blank {
                    (least, lines) = (least.min(all), lines + 1);
                }
                at += 1;
            }
            if lines < 2 {
                continue;
            }
            let cut = u32::try_from(least).unwrap_or(0);
            any = true;
            for span in self.spans.get_mut(first..at).unwrap_or_default() {
                if span.end > span.start {
                    span.start += cut;
                    span.removed += cut;
                }
            }
        }
        if any {
            self.unquote();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Text;

    #[test]
    fn blocks_of_code_lose_their_margin() {
        let lines = |text: &str| {
            let text = Text::new(text.as_bytes());
            (0..text.len()).filter_map(|at| text.line(at)).map(|line| line.text.to_owned()).collect::<Vec<_>>()
        };
        let code = "so:\n\n    avg-cpu:  %user %idle\n               1 99\n\n    Device: tps\nend\n";
        assert_eq!(lines(code)[2..6], ["avg-cpu:  %user %idle", "           1 99", "", "Device: tps"]);
        let nested = "State:\n    Running:\n        since: today\n";
        assert_eq!(lines(nested)[1..3], ["    Running:", "        since: today"], "the indentation is the structure");
        assert_eq!(lines("\n              total used\nMem: 1 2\n")[1], "              total used", "one line");
    }
}
