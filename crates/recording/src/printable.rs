//! Makes untrusted text safe to print: names of files, threads and hosts, lines of logs and of guests.
//!
//! A control character can move a terminal's cursor, set its title, or inject input; a bidirectional one shows a name
//! in a different order than its bytes. Both are replaced by U+FFFD, so that the replacement is visible.

use std::borrow::Cow;

/// C0, DEL and C1; marks and overrides of direction (Unicode's Bidi_Control); separators that some readers treat as
/// line ends; and the byte order mark, which is invisible.
#[must_use]
pub fn is_hostile(c: char) -> bool {
    let direction =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || direction || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')
}

/// Makes one line safe: a name, a cell, a message.
#[must_use]
pub fn line(text: &str) -> Cow<'_, str> {
    replaced(text, is_hostile)
}

/// Makes a whole output safe. Keeps line feeds, tabs and the colours of reports (`ESC [ digits ; ... m`).
#[must_use]
pub fn output(text: &str) -> Cow<'_, str> {
    if !text.contains(|c| is_hostile(c) && !is_layout(c)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(|c| is_hostile(c) && !is_layout(c)) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let kept = colour_bytes(from);
        let skipped = if kept > 0 { kept } else { from.chars().next().map_or(0, char::len_utf8) };
        out.push_str(if kept > 0 { &from[..kept] } else { "\u{fffd}" });
        rest = &from[skipped..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// The text without the numbers that `std::io::Error` prints behind its words: `(os error 13)`.
#[must_use]
pub fn without_error_numbers(text: &str) -> Cow<'_, str> {
    const BEGIN: &str = " (os error ";
    let mut parts = text.split(BEGIN);
    let first = parts.next().unwrap_or_default();
    if first.len() == text.len() {
        return Cow::Borrowed(text);
    }
    let mut out = first.to_owned();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        match part[digits..].strip_prefix(')').filter(|_| digits > 0) {
            Some(rest) => out.push_str(rest),
            None => {
                out.push_str(BEGIN);
                out.push_str(part);
            }
        }
    }
    Cow::Owned(out)
}

fn is_layout(c: char) -> bool {
    c == '\n' || c == '\t'
}

/// Length of the colour sequence at the start of the text; 0 if there is none.
fn colour_bytes(text: &str) -> usize {
    let Some(body) = text.strip_prefix("\u{1b}[") else { return 0 };
    let digits = body.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b';').count();
    let known = body.get(..digits).unwrap_or_default().split(';').all(is_colour);
    if known && body.as_bytes().get(digits) == Some(&b'm') { 2 + digits + 1 } else { 0 }
}

/// Reset, bold, dim, and foreground colours. Not 8, which hides text, nor 7 or a background colour, which can hide it.
fn is_colour(code: &str) -> bool {
    matches!(code, "" | "0" | "1" | "2" | "22") || matches!(code.parse(), Ok(30..=37_u8 | 39 | 90..=97))
}

/// Quotes the text as one word of a shell's command. The text must not contain control characters.
#[must_use]
pub fn shell_quoted(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,+@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(format!("'{}'", text.replace('\'', "'\\''")))
    }
}

fn replaced(text: &str, hostile: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&hostile) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|c| if hostile(c) { '\u{fffd}' } else { c }).collect())
}

#[cfg(test)]
mod tests {
    use super::{line, output, without_error_numbers};

    #[test]
    fn numbers_of_errors_are_left_out_and_other_text_stays() {
        let removed = "a: No such file or directory (os error 2); b: Permission denied (os error 13)";
        assert_eq!(without_error_numbers(removed), "a: No such file or directory; b: Permission denied");
        for kept in ["", "plain", "x (os error ", "x (os error )", "x (os error 1", "x (os error y)", "(os error 1)"] {
            assert_eq!(without_error_numbers(kept), kept);
        }
    }

    #[test]
    fn line_replaces_escapes_overrides_and_line_breaks() {
        assert_eq!(line("a\u{1b}]0;owned\u{7}b"), "a\u{fffd}]0;owned\u{fffd}b");
        assert_eq!(line("invoice\u{202e}gpj.exe"), "invoice\u{fffd}gpj.exe");
        assert_eq!(line("one\ntwo\u{9b}2J"), "one\u{fffd}two\u{fffd}2J");
        assert_eq!(line("gr\u{fc}n \u{65e5}\u{672c}"), "gr\u{fc}n \u{65e5}\u{672c}");
    }

    #[test]
    fn output_keeps_only_line_feeds_tabs_and_colours() {
        let report = "\u{1b}[1;31mslow\u{1b}[0m\t12\n";
        assert_eq!(output(report), report);
        assert_eq!(
            output("\u{1b}[2J\u{1b}[31m\u{1b}]52;c;x\u{7}\r\n"),
            "\u{fffd}[2J\u{1b}[31m\u{fffd}]52;c;x\u{fffd}\u{fffd}\n"
        );
        assert_eq!(output("end\u{1b}"), "end\u{fffd}");
        assert_eq!(output("\u{1b}[8mhidden\u{1b}[1;7m"), "\u{fffd}[8mhidden\u{fffd}[1;7m");
    }
}
