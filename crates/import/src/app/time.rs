//! Finds the time of a server's log line, in any format near the beginning of the line.

use crate::when::{DAY_NS, When, Zero, clock, date, days, epoch, iso, month};

/// Keys of the time in JSON lines.
const KEYS: &[&str] =
    &["\"ts\":\"", "\"$date\":\"", "\"time\":\"", "\"timestamp\":\"", "\"@timestamp\":\"", "\"t\":\"", "\"ts\":"];

/// Maximum words at the beginning of a line to search for a time.
const WORDS_MAX: usize = 10;

#[must_use]
pub fn of_line(text: &str) -> Option<When> {
    let head = text.get(..text.char_indices().nth(240).map_or(text.len(), |(at, _)| at))?;
    if head.contains('"')
        && let Some(rest) = KEYS.iter().find_map(|key| head.split_once(key).map(|(_, rest)| rest))
    {
        let value = rest.split(['"', ',', '}']).next()?;
        return iso(value).or_else(|| epoch(value));
    }
    let words: Vec<&str> = head
        .split_whitespace()
        .take(WORDS_MAX)
        .map(|word| word.trim_start_matches('[').split(']').next().unwrap_or(word).trim_end_matches([',', ':']))
        .collect();
    (0..words.len()).find_map(|at| of_words(words.get(at..)?))
}

fn of_words(words: &[&str]) -> Option<When> {
    let first = *words.first()?;
    if let Some(when) = iso(first) {
        return Some(when);
    }
    // RocksDB: `2026/11/22-10:20:30.123456`.
    if let Some((day, time)) = first.split_once('-').filter(|(day, _)| day.len() == 10) {
        return Some(When::new(Zero::Epoch, date(day)? * DAY_NS + clock(time)?));
    }
    let second = *words.get(1)?;
    if let (Some(day), Some(time)) = (date(first), clock(second)) {
        return Some(When::new(Zero::Epoch, day * DAY_NS + time));
    }
    let third = *words.get(2)?;
    // Syslog: `Nov 22 10:20:30`.
    if let (Some(month), Ok(day), Some(time)) = (month(first), second.parse::<i64>(), clock(third)) {
        return Some(When::new(Zero::Year, days(1972, month, day)? * DAY_NS + time));
    }
    // Redis: `22 Nov 2026 10:20:30.123`; before 4.0 without the year.
    let (day, month) = (first.parse::<i64>().ok()?, month(second)?);
    match (third.parse::<i64>(), words.get(3).and_then(|word| clock(word))) {
        (Ok(year), Some(time)) => Some(When::new(Zero::Epoch, days(year, month, day)? * DAY_NS + time)),
        _ => Some(When::new(Zero::Year, days(1972, month, day)? * DAY_NS + clock(third)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::of_line;
    use crate::when::{SECOND_NS, Zero};

    #[test]
    fn times_of_all_servers_are_found() {
        for (line, zero) in [
            ("2026-11-22 10:20:30.185438 W | wal: sync", Zero::Epoch),
            ("[2026-11-22T10:20:30,052][WARN ][o.e.m.j]", Zero::Epoch),
            ("[2026-11-22 10:20:30,892] WARN fsync-ing", Zero::Epoch),
            ("{\"level\":\"warn\",\"ts\":\"2026-11-22T10:20:30.123Z\",\"msg\":\"x\"}", Zero::Epoch),
            ("{\"t\":{\"$date\":\"2026-11-22T10:20:30.123+00:00\"},\"s\":\"I\"}", Zero::Epoch),
            ("{\"level\":\"warn\",\"ts\":1795342830.1,\"msg\":\"x\"}", Zero::Epoch),
            ("1:M 22 Nov 2026 10:20:30.007 * text", Zero::Epoch),
            ("[1] 22 Nov 10:20:30.007 * text", Zero::Year),
            ("Nov 22 10:20:30 db1 etcd[12]: text", Zero::Year),
            ("2026/11/22-10:20:30.123456 7f12 [WARN] text", Zero::Epoch),
            ("name_1  | 2026-11-22  10:20:30 1402 [Note] InnoDB", Zero::Epoch),
        ] {
            let when = of_line(line).unwrap_or_else(|| panic!("no time: {line}"));
            assert_eq!(when.zero, zero, "{line}");
            assert_eq!(when.ns.div_euclid(SECOND_NS) % 86_400, 37_230, "{line}");
        }
        assert_eq!(of_line("no time at all 12"), None);
    }
}
