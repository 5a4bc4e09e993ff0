//! Finds what a paste may have added to every line of a block: a collector's prefix, line numbers, marks of a list or a
//! comment, marks at both ends. Some of these look like output of a tool; `crate::undress` reads the block both ways
//! and decides by the result.

use super::{Bare, Span, Text, prefix};
use crate::when::{When, clock, days, month};

/// The kind of addition that the lines of a block share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Collector(prefix::Kind),
    /// `Nov 22 10:11:12 text` without host and unit, also where the text could be read as a host.
    Stamp,
    /// `Nov 22 10:11:12 host text`.
    Host(String),
    /// `10:11:12 text` with any text.
    Clock,
    /// A number that rises from line to line, and its separator: `12:text`, `12  text`.
    Counted(&'static str),
    /// Marks at both ends, from `PAIRS`.
    Pair(&'static str),
    /// A mark at the beginning, from `LEADERS`.
    Leader(&'static str),
}

/// The additions to one line.
#[derive(Clone, Debug)]
pub struct Dress {
    pub kind: Kind,
    /// Bytes at the beginning and at the end of the line.
    front: usize,
    back: usize,
    when: Option<When>,
    number: Option<u64>,
}

/// Marks of Markdown, Jira and wikis for bold text and code.
const PAIRS: &[(&str, &str)] = &[("```", "```"), ("`", "`"), ("**", "**"), ("{{", "}}"), ("'''", "'''"), ("\"", "\"")];
/// Marks of lists and comments.
const LEADERS: &[&str] = &["- ", "* ", "+ ", "# ", "// ", "-- ", "; ", "\u{2022} ", "\u{b7} ", "! "];
/// Separators after a line number, longer ones first.
const SEPARATORS: &[&str] = &[": ", ":", " | ", "| ", ") ", ". ", "- ", "  ", " "];
/// This many consecutive numbers are line numbers, not a column of a table.
const NUMBERED_MIN: usize = 5;
/// Minimum length of a line that a mail program broke.
const BROKEN_MIN: usize = 50;
/// Maximum number of parts of one broken line.
const PARTS_MAX: usize = 4;

/// All additions that a line may have.
#[must_use]
pub fn candidates(line: &str) -> Vec<Dress> {
    let text = line.trim_start();
    let indent = line.len() - text.len();
    let mut found: Vec<Dress> = prefix::of(line).map(Dress::of_prefix).into_iter().collect();
    found.extend(stamped(text));
    found.extend(clocked(text));
    found.extend(counted(text));
    found.extend(marked(text));
    found.extend(composed(text));
    for dress in &mut found {
        if !matches!(dress.kind, Kind::Collector(_)) {
            dress.front = (dress.front + indent).min(line.len());
        }
    }
    found
}

impl Dress {
    fn new(kind: Kind, front: usize) -> Dress {
        Dress { kind, front, back: 0, when: None, number: None }
    }

    /// Whether a line with this addition may follow a line with the other. Line numbers must rise by one: other numbers
    /// may be figures of a row.
    #[must_use]
    pub fn follows(&self, above: &Dress) -> bool {
        let counts = self.number.is_none() || above.number.is_some_and(|above| self.number == Some(above + 1));
        self.kind == above.kind && counts && self.kind != Kind::Collector(prefix::Kind::Number)
    }

    fn of_prefix(prefix: prefix::Prefix) -> Dress {
        Dress { when: prefix.when, ..Dress::new(Kind::Collector(prefix.kind), prefix.bytes) }
    }
}

/// The addition of this kind. Also recognizes a line that consists of the addition only.
fn of_kind(line: &str, kind: &Kind) -> Option<Dress> {
    let find = |line: &str| candidates(line).into_iter().find(|dress| dress.kind == *kind);
    find(line).or_else(|| {
        let dress = find(&format!("{line} x"))?;
        (dress.front >= line.len()).then_some(Dress { front: line.len(), back: 0, ..dress })
    })
}

fn stamped(text: &str) -> Vec<Dress> {
    let of = || {
        let mut words = text.split(' ').filter(|word| !word.is_empty());
        let (name, day, time) = (words.next()?, words.next()?, words.next()?);
        days(1972, month(name)?, day.parse().ok()?)?;
        clock(time)?;
        let stamp = text.find(time)? + time.len() + 1;
        let host = words.next().map(|host| (host, text.get(stamp..).and_then(|rest| rest.find(host)).unwrap_or(0)));
        Some((stamp, host))
    };
    let Some((stamp, host)) = of() else { return Vec::new() };
    let hosted = host.filter(|(host, _)| !host.ends_with(':'));
    let hosted = hosted.map(|(host, at)| Dress::new(Kind::Host(host.to_owned()), stamp + at + host.len() + 1));
    [Dress::new(Kind::Stamp, stamp)].into_iter().chain(hosted).collect()
}

fn clocked(text: &str) -> Option<Dress> {
    let (word, _) = text.split_once([' ', '\t'])?;
    let inner = word.trim_matches(['[', ']', ':']);
    (inner.len() >= 8 && clock(&inner.replace(',', ".")).is_some()).then(|| Dress::new(Kind::Clock, word.len() + 1))
}

fn counted(text: &str) -> Vec<Dress> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let Some((number, rest)) = text.split_at_checked(digits).filter(|_| (1..=7).contains(&digits)) else {
        return Vec::new();
    };
    let number = number.parse().ok();
    let separated = SEPARATORS.iter().filter(|separator| rest.starts_with(**separator));
    separated
        .map(|separator| Dress { number, ..Dress::new(Kind::Counted(separator), digits + separator.len()) })
        .collect()
}

/// `web-1  | ` of docker compose before a line that contains bars itself.
fn composed(text: &str) -> Option<Dress> {
    let (name, rest) = text.split_once(" | ")?;
    let bare = name.trim_end();
    let container = bare.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || b"_-.".contains(&c))
        && bare.ends_with(|c: char| c.is_ascii_digit())
        && bare.contains(['-', '_']);
    let barred = container && rest.contains('|');
    barred.then(|| Dress::new(Kind::Collector(prefix::Kind::Name(bare.to_owned())), text.len() - rest.len()))
}

fn marked(text: &str) -> Option<Dress> {
    if let Some(leader) = LEADERS.iter().find(|leader| text.starts_with(**leader)) {
        // A rule of dashes has no blank after its first dash and does not match.
        return Some(Dress::new(Kind::Leader(leader), leader.len()));
    }
    let (open, close) =
        PAIRS.iter().find(|(open, close)| text.starts_with(open) && text.len() >= open.len() + close.len())?;
    let back = text.len() - text.strip_suffix(close)?.len();
    Some(Dress { back, ..Dress::new(Kind::Pair(open), open.len()) })
}

impl Text {
    /// Takes up to `most` lines from `from` on without this addition. Returns them and how many of them had it.
    #[must_use]
    pub fn undressed(&self, from: usize, kind: &Kind, most: usize) -> (Bare, usize) {
        let (mut text, mut lines, mut dressed) = (Text::default(), 0, 0);
        let (mut when, mut last, mut steady) = (None, None, true);
        for at in from..self.spans.len().min(from.saturating_add(most)) {
            let (Some(span), Some(line)) = (self.spans.get(at), self.text_at(at)) else { break };
            let found = of_kind(line, kind).filter(|found| found.number.is_none() || found.number > last);
            let (front, back) = match found {
                Some(found) => {
                    steady &= last.is_none_or(|last: u64| found.number == Some(last + 1));
                    (dressed, last) = (dressed + 1, found.number);
                    when = when.or(found.when);
                    text.times.push(found.when);
                    (found.front, found.back)
                }
                None if line.trim().is_empty() => (line.len(), 0),
                None if self.is_rest_of(at, kind) => (0, 0),
                None => break,
            };
            text.times.resize(lines + 1, None);
            let end = line.len().saturating_sub(back).max(front);
            let start = text.clean.len();
            text.clean.push_str(line.get(front..end).unwrap_or_default());
            let (Ok(start), Ok(end)) = (u32::try_from(start), u32::try_from(text.clean.len())) else { break };
            let removed = span.removed.saturating_add(u32::try_from(front).unwrap_or(0));
            text.spans.push(Span { start, end, removed, ..*span });
            text.clean.push('\n');
            lines += 1;
        }
        text.unmargin();
        text.unquote();
        text.respace();
        let file = match kind {
            Kind::Collector(prefix::Kind::File(path)) => Some(path.clone()),
            _ => None,
        };
        let numbered = last.is_some() && steady && dressed == lines && lines >= NUMBERED_MIN;
        (Bare { text, when, file, lines, numbered }, dressed)
    }

    /// Whether a mail program broke this line off the one above: it has no addition, the lines around it have.
    fn is_rest_of(&self, at: usize, kind: &Kind) -> bool {
        let is_dressed = |at: usize| self.text_at(at).is_some_and(|line| of_kind(line, kind).is_some());
        let above = (1..PARTS_MAX).filter_map(|back| at.checked_sub(back)).find(|above| is_dressed(*above));
        let long = above.and_then(|above| self.text_at(above)).is_some_and(|line| line.len() >= BROKEN_MIN);
        long && (1..PARTS_MAX).any(|ahead| is_dressed(at + ahead))
    }

    /// A copy of this many lines.
    #[must_use]
    pub fn part(&self, from: usize, lines: usize) -> Text {
        let mut text = Text::default();
        for at in from..self.spans.len().min(from.saturating_add(lines)) {
            let (Some(span), Some(line)) = (self.spans.get(at), self.text_at(at)) else { break };
            let start = text.clean.len();
            text.clean.push_str(line);
            let (Ok(start), Ok(end)) = (u32::try_from(start), u32::try_from(text.clean.len())) else { break };
            text.spans.push(Span { start, end, ..*span });
            text.clean.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, Text, candidates, of_kind, prefix};

    #[test]
    fn each_dress_is_found_and_leaves_the_line() {
        for (line, kind, left) in [
            ("12:r b swpd", Kind::Counted(":"), "r b swpd"),
            ("12: r b swpd", Kind::Counted(": "), "r b swpd"),
            ("    12   1  0 0", Kind::Counted("  "), " 1  0 0"),
            ("08:00:01 1 0 0", Kind::Clock, "1 0 0"),
            ("Nov 22 10:11:12 Mem: a b: 1", Kind::Stamp, "Mem: a b: 1"),
            ("Nov 22 10:11:12 db1 1 0 0", Kind::Host("db1".to_owned()), "1 0 0"),
            ("web-1  | CPU | sys 1% |", Kind::Collector(prefix::Kind::Name("web-1".to_owned())), "CPU | sys 1% |"),
            ("`1 0 0`", Kind::Pair("`"), "1 0 0"),
            ("**1 0 0**", Kind::Pair("**"), "1 0 0"),
            ("{{1 0 0}}", Kind::Pair("{{"), "1 0 0"),
            ("  - 1 0 0", Kind::Leader("- "), "1 0 0"),
            ("#", Kind::Leader("# "), ""),
        ] {
            let found = of_kind(line, &kind).unwrap_or_else(|| panic!("not dressed: {line}"));
            assert_eq!(line.get(found.front..line.len() - found.back), Some(left), "{line}");
        }
        assert!(candidates("r b swpd").is_empty() && candidates("").is_empty());
    }

    #[test]
    fn numbers_rise_and_broken_lines_stay_together() {
        let lines = |raw: &str, kind: Kind| {
            let (bare, dressed) = Text::new(raw.as_bytes()).undressed(0, &kind, 100);
            let text = &bare.text;
            (
                dressed,
                (0..text.len()).filter_map(|at| text.line(at)).map(|line| line.text.to_owned()).collect::<Vec<_>>(),
            )
        };
        assert_eq!(
            lines("1:a\n2:b\n\n2:c\n", Kind::Counted(":")),
            (2, vec!["a".to_owned(), "b".into(), String::new()])
        );
        let long = "x".repeat(60);
        let (dressed, left) = lines(&format!("- {long}\nrest\n- b\nc\n"), Kind::Leader("- "));
        assert_eq!((dressed, left), (2, vec![long, "rest".to_owned(), "b".to_owned()]));
    }
}
