//! Finds the prefixes that log collectors and `grep` add to each line.

use crate::when::{DAY_NS, When, Zero, clock, days, epoch, iso, month};

/// Form of a prefix. Lines with the same kind are read together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `2026-11-22T10:11:12.123456789Z text`; container runtimes add `stdout F` before the text.
    Time,
    /// `1700000000.123 text`.
    Epoch,
    /// `Nov 22 10:11:12 text` (ts), `Nov 22 10:11:12 host unit[123]: text` (journald).
    Syslog,
    /// `web-1  | text` (docker compose), `[pod/a/b] text` (kubectl --prefix).
    Name(String),
    /// `/path/to/file:text`, `file.log:123:text`.
    File(String),
    /// `03384 text`: a line number (`cat -n`, `nl`), or the seconds since a console's start.
    Number,
    /// `10:11:12 text`, `10:11:12,123 text`: a terminal's clock without a date.
    Clock,
    /// `node01: text` (pdsh, ansible, clush), `[node01] text`.
    Host(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    pub kind: Kind,
    /// Length including the separator.
    pub bytes: usize,
    pub when: Option<When>,
}

/// The prefix of a line, if it has one.
#[must_use]
pub fn of(line: &str) -> Option<Prefix> {
    let indent = line.len() - line.trim_start().len();
    let text = line.trim_start();
    let head = text.get(..text.char_indices().nth(200).map_or(text.len(), |(at, _)| at))?;
    let found = time(head)
        .or_else(|| named(head))
        .or_else(|| syslog(head))
        .or_else(|| file(head))
        .or_else(|| counted(head))
        .or_else(|| host(head))?;
    Some(Prefix { bytes: (found.bytes + indent).min(line.len()), ..found })
}

fn time(text: &str) -> Option<Prefix> {
    let (word, rest) = text.split_once([' ', '\t'])?;
    let inner = word.trim_matches(['[', ']', ':', ',']);
    let bytes = word.len() + 1;
    if let Some(when) = iso(inner).filter(|_| inner.len() >= 19) {
        // An empty line has lost the blank after the prefix.
        let runtime = ["stdout F", "stderr F", "stdout P", "stderr P"]
            .iter()
            .find(|start| rest.strip_prefix(**start).is_some_and(|text| text.is_empty() || text.starts_with(' ')));
        return Some(Prefix {
            kind: Kind::Time,
            bytes: bytes + runtime.map_or(0, |start| start.len() + 1),
            when: Some(when),
        });
    }
    // `2026-11-22 10:11:12[.123] text`.
    let day = word.trim_start_matches('[');
    if day.len() == 10 && day.as_bytes().get(4) == Some(&b'-') {
        let (clocked, _) = rest.split_once([' ', '\t'])?;
        let when = iso(&format!("{day} {}", clocked.trim_end_matches([']', ':', ','])))?;
        return Some(Prefix { kind: Kind::Time, bytes: bytes + clocked.len() + 1, when: Some(when) });
    }
    Some(Prefix { kind: Kind::Epoch, bytes, when: Some(epoch(inner)?) })
}

fn named(text: &str) -> Option<Prefix> {
    if let Some((pod, rest)) = text.strip_prefix("[pod/").and_then(|rest| rest.split_once("] ")) {
        let kind = Kind::Name(pod.to_owned());
        return Some(Prefix { kind, bytes: text.len() - rest.len(), when: None });
    }
    let (name, rest) = text.split_once("| ")?;
    let bare = name.trim_end();
    let plain =
        !bare.is_empty() && bare.len() <= 64 && bare.bytes().all(|c| c.is_ascii_alphanumeric() || b"_-./".contains(&c));
    // More bars mean a row of a table.
    let container = name.ends_with(' ') && bare.contains(|c: char| c.is_ascii_lowercase()) && !rest.contains('|');
    (plain && container).then(|| Prefix {
        kind: Kind::Name(bare.to_owned()),
        bytes: text.len() - rest.len(),
        when: None,
    })
}

fn syslog(text: &str) -> Option<Prefix> {
    let mut words = text.split(' ').filter(|word| !word.is_empty());
    let (name, day, time) = (words.next()?, words.next()?, words.next()?);
    let ns = days(1972, month(name)?, day.parse().ok()?)? * DAY_NS + clock(time)?;
    let mut bytes = text.find(time)? + time.len() + 1;
    // Host and program: `db1 etcd[123]: `.
    if let (Some(host), Some(tag)) = (words.next(), words.next())
        && tag.ends_with(':')
        && !host.ends_with(':')
    {
        // `kernel_log` reads kernel lines with their prefix.
        if tag == "kernel:" {
            return None;
        }
        bytes = text.get(bytes..).and_then(|rest| rest.find(tag)).map(|at| bytes + at + tag.len() + 1)?;
    }
    Some(Prefix { kind: Kind::Syslog, bytes: bytes.min(text.len()), when: Some(When::new(Zero::Year, ns)) })
}

fn file(text: &str) -> Option<Prefix> {
    let (path, rest) = text.split_once(':')?;
    let plain = !path.contains(char::is_whitespace) && !rest.is_empty();
    let (base, folder) = (path.rsplit('/').next().unwrap_or(path), path.contains('/'));
    let log = [".log", ".txt", ".out", ".gz", ".1"].iter().any(|end| base.ends_with(end));
    (plain && (folder && !path.contains("//") || log)).then_some(())?;
    // `grep -n` adds the line number.
    let number = rest
        .split_once([':', '-'])
        .map(|(number, _)| number)
        .filter(|number| !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit()));
    let bytes = path.len() + 1 + number.filter(|_| log).map_or(0, |number| number.len() + 1);
    Some(Prefix { kind: Kind::File(path.to_owned()), bytes, when: None })
}

/// A lone number or clock before words. Rows of figures have figures there.
fn counted(text: &str) -> Option<Prefix> {
    let (word, rest) = text.split_once([' ', '\t'])?;
    let text_behind = rest.trim_start();
    let words = text_behind.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '[' | '<' | '?' | '_'));
    let inner = word.trim_matches(['[', ']', ':']);
    let digits = !inner.is_empty() && inner.len() <= 10 && inner.bytes().all(|c| c.is_ascii_digit());
    let kind = match () {
        () if !words => return None,
        () if digits => Kind::Number,
        () if inner.len() >= 8 && clock(&inner.replace(',', ".")).is_some() => Kind::Clock,
        () => return None,
    };
    // The frames behind it are indented; the margin is removed as well.
    Some(Prefix { kind, bytes: text.len() - text_behind.len(), when: None })
}

/// The host name that pdsh, ansible and similar programs put before each line.
fn host(text: &str) -> Option<Prefix> {
    let (name, rest) = match text.strip_prefix('[') {
        Some(inner) => inner.split_once("] ")?,
        None => text.split_once(": ")?,
    };
    let plain = name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.bytes().all(|c| c.is_ascii_alphanumeric() || b"-._".contains(&c));
    // Hosts have a digit or a domain; `Dirty: 12 kB` and `Mem: 1 2` are words of a file.
    let numbered = name.contains(|c: char| c.is_ascii_digit()) && name.contains(|c: char| c.is_ascii_lowercase());
    let domain = name.contains('.') && !name.ends_with('.');
    (plain && (numbered || domain) && !rest.trim().is_empty()).then(|| Prefix {
        kind: Kind::Host(name.to_owned()),
        bytes: text.len() - rest.len(),
        when: None,
    })
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn all_prefixes_of_collectors_are_found() {
        for (line, rest) in [
            ("2026-11-22T10:11:12.123456789Z stdout F r b swpd", "r b swpd"),
            ("2026-11-22T10:11:12.123456789Z stderr F", ""),
            ("2026-11-22T10:11:12+00:00 r b swpd", "r b swpd"),
            ("2026-11-22 10:11:12 r b swpd", "r b swpd"),
            ("[2026-11-22 10:11:12] r b swpd", "r b swpd"),
            ("1763800000.123 r b swpd", "r b swpd"),
            ("Nov 22 10:11:12 r b swpd", "r b swpd"),
            ("Nov 22 10:11:12 db1 stat[12]: r b swpd", "r b swpd"),
            ("web-1  | r b swpd", "r b swpd"),
            ("[pod/a-b/c] r b swpd", "r b swpd"),
            ("/var/log/a/out.log:r b swpd", "r b swpd"),
            ("stat.log:12:r b swpd", "r b swpd"),
            ("03384 task:fio state:D stack:0 pid:12", "task:fio state:D stack:0 pid:12"),
            ("    17\tr b swpd", "r b swpd"),
            ("10:11:12,316 r b swpd", "r b swpd"),
            ("[10:11:12] r b swpd", "r b swpd"),
            ("node01: r b swpd", "r b swpd"),
            ("[db1.example.org] r b swpd", "r b swpd"),
        ] {
            let found = of(line).unwrap_or_else(|| panic!("no prefix: {line}"));
            assert_eq!(line.get(found.bytes..), Some(rest), "{line}");
        }
        for line in
            ["", "r b swpd", "CPU | sys 1% | user 2% |", "Dirty: 12 kB", "12 34 56", "http://a/b:c d", "10:11:12 3 4 5"]
        {
            assert_eq!(of(line), None, "{line}");
        }
    }
}
