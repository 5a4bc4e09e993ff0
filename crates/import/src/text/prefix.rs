//! What log collectors and `grep` put before each line.

use crate::when::{DAY_NS, When, Zero, clock, days, epoch, iso, month};

/// Who put the prefix there. Lines of one kind are read together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `2026-11-22T10:11:12.123456789Z text`, with `stdout F` of a container runtime behind it.
    Time,
    /// `1700000000.123 text`.
    Epoch,
    /// `Nov 22 10:11:12 text` (ts), `Nov 22 10:11:12 host unit[123]: text` (journald).
    Syslog,
    /// `web-1  | text` (docker compose), `[pod/a/b] text` (kubectl --prefix).
    Name(String),
    /// `/path/to/file:text`, `file.log:123:text`.
    File(String),
    /// `03384 text`: a line's number (`cat -n`, `nl`), or a console's seconds since its start.
    Number,
    /// `10:11:12 text`, `10:11:12,123 text`: a terminal's clock, without a day.
    Clock,
    /// `node01: text` (pdsh, ansible, clush), `[node01] text`.
    Host(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    pub kind: Kind,
    /// Length with the separator behind it.
    pub bytes: usize,
    pub when: Option<When>,
}

/// The prefix of a line, if it has one and something stands behind it.
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
        // Of an empty line the blank behind it is lost.
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
    // A row of figures between bars is a table's.
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
    // The host and who logged: `db1 etcd[123]: `.
    if let (Some(host), Some(tag)) = (words.next(), words.next())
        && tag.ends_with(':')
        && !host.ends_with(':')
    {
        // The kernel's own lines are read with their prefix.
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
    // With -n the number of the line follows.
    let number = rest
        .split_once([':', '-'])
        .map(|(number, _)| number)
        .filter(|number| !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit()));
    let bytes = path.len() + 1 + number.filter(|_| log).map_or(0, |number| number.len() + 1);
    Some(Prefix { kind: Kind::File(path.to_owned()), bytes, when: None })
}

/// A number or a clock alone before words: rows of figures go on with figures.
fn counted(text: &str) -> Option<Prefix> {
    let (word, rest) = text.split_once([' ', '\t'])?;
    let said = rest.trim_start();
    let words = said.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '[' | '<' | '?' | '_'));
    let inner = word.trim_matches(['[', ']', ':']);
    let digits = !inner.is_empty() && inner.len() <= 10 && inner.bytes().all(|c| c.is_ascii_digit());
    let kind = match () {
        () if !words => return None,
        () if digits => Kind::Number,
        () if inner.len() >= 8 && clock(&inner.replace(',', ".")).is_some() => Kind::Clock,
        () => return None,
    };
    // Frames are indented behind it, and need no margin.
    Some(Prefix { kind, bytes: text.len() - said.len(), when: None })
}

/// Who printed the line, as programs that ask many hosts put it before each.
fn host(text: &str) -> Option<Prefix> {
    let (name, rest) = match text.strip_prefix('[') {
        Some(inner) => inner.split_once("] ")?,
        None => text.split_once(": ")?,
    };
    let plain = name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.bytes().all(|c| c.is_ascii_alphanumeric() || b"-._".contains(&c));
    // Hosts are numbered or have a domain; `Dirty: 12 kB` and `Mem: 1 2` are a file's own words.
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
    fn every_collectors_prefix() {
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
