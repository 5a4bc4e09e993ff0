//! Parses times as logs print them. Text without a zone is read as UTC: the distance between rows matters most.

use chrono::{DateTime, Datelike, NaiveDate};

use super::number::number;

pub const SECOND_NS: i64 = 1_000_000_000;
pub const DAY_NS: i64 = 86_400 * SECOND_NS;

/// The zero that an instant counts from. Tracks with the same zero are joined exactly, others approximately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Zero {
    /// 1970-01-01.
    Epoch,
    /// January 1 of a year that the text does not name (syslog). Counted in 1972, a leap year.
    Year,
    /// Midnight of a day that the text does not name.
    Day,
    /// The boot of the machine (printk, ftrace).
    Boot,
    /// The start of the log.
    Start,
}

/// An instant, ns from its zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct When {
    pub zero: Zero,
    pub ns: i64,
}

impl When {
    #[must_use]
    pub fn new(zero: Zero, ns: i64) -> When {
        When { zero, ns }
    }
}

/// Days from 1970-01-01 to a Gregorian date; `None` if the date does not exist or is not in 1970 to 2200.
#[must_use]
pub fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let (month, day) = (u32::try_from(month).ok()?, u32::try_from(day).ok()?);
    let year = i32::try_from(year).ok().filter(|year| (1970..=2200).contains(year))?;
    let date = NaiveDate::from_ymd_opt(year, month, day)?;
    Some(date.signed_duration_since(NaiveDate::default()).num_days())
}

/// The year of an instant in ns since 1970.
#[must_use]
pub fn year_of(epoch_ns: i64) -> i64 {
    i64::from(DateTime::from_timestamp_nanos(epoch_ns).year())
}

/// Parses `10:30:55`, `10:30:55.123456`, `10:30:55,123` and `10:30` as ns since midnight.
#[must_use]
pub fn clock(text: &str) -> Option<i64> {
    let mut fields = text.split(':');
    let (hours, minutes, seconds) = (fields.next()?, fields.next()?, fields.next().unwrap_or("0"));
    if fields.next().is_some()
        || hours.len() > 2
        || minutes.len() != 2
        || !seconds.starts_with(|c: char| c.is_ascii_digit())
    {
        return None;
    }
    let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
    let seconds = number(seconds)?;
    let whole = (0..24).contains(&hours) && (0..60).contains(&minutes) && (0.0..61.0).contains(&seconds);
    whole.then(|| (hours * 3600 + minutes * 60) * SECOND_NS + (seconds * 1e9).round() as i64)
}

/// Converts a time of the 12-hour clock to the 24-hour clock; `None` if the word is neither AM nor PM.
#[must_use]
pub fn half_day(ns: i64, word: &str) -> Option<i64> {
    let noon = DAY_NS / 2;
    match word.trim_end_matches('.').to_ascii_lowercase().replace('.', "").as_str() {
        "am" | "午前" | "上午" => Some(if ns >= noon { ns - noon } else { ns }),
        "pm" | "午後" | "下午" => Some(if ns < noon { ns + noon } else { ns }),
        _ => None,
    }
}

/// Parses a date as tools print it: `2026-11-21`, `11/21/2026`, `11/21/26`, `21.11.2026`. Days since 1970.
/// With slashes the month comes first (sar's default), unless the number is too large for a month.
#[must_use]
pub fn date(text: &str) -> Option<i64> {
    let separator = text.chars().find(|c| !c.is_ascii_digit())?;
    if text.ends_with('日') {
        let spaced = text.replace(['年', '月'], "-");
        return date(spaced.trim_end_matches('日'));
    }
    let mut fields = text.split(separator);
    let mut next = || fields.next()?.parse::<i64>().ok();
    let (a, b, c) = (next()?, next()?, next()?);
    if fields.next().is_some() {
        return None;
    }
    let century = |year: i64| {
        if year < 70 {
            year + 2000
        } else if year < 100 {
            year + 1900
        } else {
            year
        }
    };
    match separator {
        '-' | '/' if a > 31 => days(a, b, c),
        '-' | '/' => days(century(c), a, b).or_else(|| days(century(c), b, a)),
        '.' => days(century(c), b, a),
        _ => None,
    }
}

/// `Nov` -> 11.
#[must_use]
pub fn month(text: &str) -> Option<i64> {
    let months = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let lower = text.get(..3)?.to_ascii_lowercase();
    let place = months.iter().position(|&known| known == lower)?;
    let whole = text.len() == 3 || text.chars().all(|c| c.is_ascii_alphabetic());
    (whole && text.len() <= 9).then_some(place as i64 + 1)
}

/// Seconds east of UTC: `+01:00`, `-0500`, `Z`, `UTC`, `GMT`. Names of other zones count as UTC.
fn zone(text: &str) -> Option<i64> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'+' => (1, text.get(1..)?),
        b'-' => (-1, text.get(1..)?),
        b'A'..=b'Z' if text.len() <= 5 => return Some(0),
        _ => return None,
    };
    let digits = digits.replace(':', "");
    if !(digits.len() == 4 || digits.len() == 2) {
        return None;
    }
    let hours: i64 = digits.get(..2)?.parse().ok()?;
    let minutes: i64 = digits.get(2..).filter(|rest| !rest.is_empty()).map_or(Some(0), |rest| rest.parse().ok())?;
    Some(sign * (hours * 3600 + minutes * 60))
}

/// Parses `2026-11-21T08:19:55.123+01:00` and similar forms.
#[must_use]
pub fn iso(text: &str) -> Option<When> {
    let (day, rest) = text.split_once(['T', ' '])?;
    let day = date(day).filter(|_| text.as_bytes().get(4) == Some(&b'-'))?;
    let rest = rest.trim();
    let end = rest.find(|c: char| !(c.is_ascii_digit() || matches!(c, ':' | '.' | ','))).unwrap_or(rest.len());
    let (time, east) = rest.split_at_checked(end)?;
    let east = east.trim();
    let offset = if east.is_empty() { 0 } else { zone(east)? };
    Some(When::new(Zero::Epoch, day * DAY_NS + clock(time)? - offset * SECOND_NS))
}

/// Parses seconds, milliseconds, microseconds or nanoseconds since 1970; the size gives the unit (1995 to 2100).
#[must_use]
pub fn epoch(text: &str) -> Option<When> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.len() < 9 || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return None;
    }
    let value: i64 = whole.parse().ok()?;
    let unit = match value {
        788_918_400..=4_102_444_800 => SECOND_NS,
        788_918_400_000..=4_102_444_800_000 => 1_000_000,
        788_918_400_000_000..=4_102_444_800_000_000 => 1_000,
        788_918_400_000_000_000..=4_102_444_800_000_000_000 => 1,
        _ => return None,
    };
    let part = if fraction.is_empty() { 0.0 } else { format!("0.{fraction}").parse::<f64>().ok()? };
    Some(When::new(Zero::Epoch, value.checked_mul(unit)? + (part * unit as f64).round() as i64))
}

/// Parses the output of `date`: `Sat Nov 21 08:19:55 UTC 2026`, `Sat 21 Nov 2026 08:19:55 AM UTC`.
fn date_command(text: &str) -> Option<When> {
    let words: Vec<&str> = text.split_whitespace().collect();
    if !(4..=7).contains(&words.len()) {
        return None;
    }
    let (mut time, mut half, mut month_found, mut day, mut year, mut offset) = (None, None, None, None, None, 0);
    for word in words {
        let word = word.trim_end_matches([',', '.']);
        if let Some(ns) = clock(word) {
            time = Some(ns);
        } else if let Some(ns) = time.and_then(|ns| half_day(ns, word)) {
            half = Some(ns);
        } else if let Some(found) = month(word) {
            month_found = Some(found);
        } else if let Ok(value) = word.parse::<i64>().map(|value| value.abs()) {
            if word.starts_with(['+', '-']) {
                offset = zone(word)?;
            } else if value <= 31 && day.is_none() {
                day = Some(value);
            } else {
                year = Some(value);
            }
        } else if !word.chars().all(|c| c.is_alphabetic()) {
            return None;
        }
    }
    let day = days(year?, month_found?, day?)?;
    Some(When::new(Zero::Epoch, day * DAY_NS + half.or(time)? - offset * SECOND_NS))
}

/// The time of a line that contains only a time, as loops print it between snapshots: `== 2026-01-01 10:00:00 ==`,
/// output of `date`, seconds since 1970, OSWatcher's `zzz ***`, `time: 10:00:00`.
#[must_use]
pub fn stamp(line: &str) -> Option<When> {
    if line.len() > 80 {
        return None;
    }
    let mut inner = line.trim_matches(|c: char| c.is_whitespace() || "=-#*[]<>(){}|".contains(c));
    for label in ["zzz", "timestamp", "time", "date", "TIMESTAMP", "Time", "Date", "TS", "ts", "at"] {
        if let Some(rest) = inner.strip_prefix(label).filter(|rest| rest.starts_with([':', '=', ' ', '*'])) {
            inner = rest.trim_matches(|c: char| c.is_whitespace() || ":=*[]-".contains(c));
            break;
        }
    }
    let inner = inner.trim_end_matches(':');
    // iostat -t, and logs in the US locale.
    let slashed = || {
        let words: Vec<&str> = inner.split_whitespace().collect();
        let (day, time) = (date(words.first()?)?, clock(words.get(1)?)?);
        let time = words.get(2).map_or(Some(time), |word| half_day(time, word))?;
        Some(When::new(Zero::Epoch, day * DAY_NS + time))
    };
    let alone = |text: &str| clock(text).filter(|_| text.matches(':').count() == 2).map(|ns| When::new(Zero::Day, ns));
    let halved = || {
        let (time, half) = inner.split_once(' ')?;
        Some(When::new(Zero::Day, half_day(clock(time)?, half.trim())?))
    };
    iso(inner)
        .or_else(|| epoch(inner))
        .or_else(slashed)
        .or_else(|| date_command(inner))
        .or_else(|| alone(inner))
        .or_else(halved)
}

#[cfg(test)]
mod tests {
    use super::{DAY_NS, SECOND_NS, When, Zero, clock, date, days, half_day, stamp, year_of};

    #[test]
    fn dates_are_days_since_1970() {
        assert_eq!(days(1970, 1, 1), Some(0));
        assert_eq!(days(2000, 3, 1), Some(11_017));
        assert_eq!(days(2026, 2, 29), None);
        for text in ["2026-11-21", "11/21/2026", "11/21/26", "21.11.2026", "21/11/2026", "2026年11月21日"] {
            assert_eq!(date(text), days(2026, 11, 21), "{text}");
        }
        assert_eq!(year_of(days(2024, 12, 31).expect("a day") * DAY_NS), 2024);
        assert_eq!(year_of(days(2025, 1, 1).expect("a day") * DAY_NS), 2025);
    }

    #[test]
    fn times_of_12_and_24_hour_clocks_parse() {
        assert_eq!(clock("10:30:55"), Some(37_855 * SECOND_NS));
        assert_eq!(half_day(clock("12:00:01").expect("a time"), "AM"), Some(SECOND_NS));
        assert_eq!(half_day(clock("12:00:01").expect("a time"), "PM"), Some(43_201 * SECOND_NS));
        assert_eq!(half_day(clock("01:00:00").expect("a time"), "pm"), Some(46_800 * SECOND_NS));
        for text in ["25:00:00", "10:61:00", "10:00:00:00", "10:0:0", ":00:00", "10:00:"] {
            assert_eq!(clock(text), None, "{text}");
        }
    }

    #[test]
    fn lines_that_contain_only_a_time_are_stamps() {
        let when = |ns| Some(When::new(Zero::Epoch, ns));
        let ns = days(2026, 11, 21).expect("a day") * DAY_NS + clock("08:19:55").expect("a time");
        for text in [
            "Sat Nov 21 08:19:55 UTC 2026",
            "Sat 21 Nov 2026 08:19:55 AM UTC",
            "== 2026-11-21 08:19:55 ==",
            "2026-11-21T09:19:55+01:00",
            "zzz ***Sat Nov 21 08:19:55 UTC 2026",
            "1795249195",
            "[1795249195]",
            "TS: 1795249195000",
            "11/21/2026 08:19:55 AM",
        ] {
            assert_eq!(stamp(text), when(ns), "{text}");
        }
        assert_eq!(stamp("--- 08:19:55 ---"), Some(When::new(Zero::Day, 29_995 * SECOND_NS)));
        for text in ["", "MemTotal: 5 kB", "1 0 0", "Mem: 1795249195", "12345", "procs memory"] {
            assert_eq!(stamp(text), None, "{text}");
        }
    }
}
