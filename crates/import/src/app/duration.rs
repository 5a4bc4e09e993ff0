//! Parses durations as programs write them.

use crate::number::{nanos, number};

/// The first duration of a text in ns: `1.134771573s`, `20632ms`, `1m2.5s`, `[1.4s]`, `"took":"1.2s"`, `500 ms`,
/// `0.14 secs`. A number without a unit is multiplied by `bare_ns`; if that is 0, it is not a duration.
#[must_use]
pub fn first(text: &str, bare_ns: f64) -> Option<u64> {
    let start = text.find(|c: char| c.is_ascii_digit())?;
    let rest = text.get(start..)?;
    let mut total = 0.0;
    let mut any = false;
    let mut rest = rest;
    // `1h2m3.5s`: several units without blanks between them.
    for _ in 0..4 {
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let (digits, after) = rest.split_at_checked(end)?;
        let Some(value) = number(digits.trim_end_matches('.')) else { break };
        let blank = after.strip_prefix(' ').unwrap_or(after);
        let unit_end = blank.find(|c: char| !(c.is_alphabetic() || c == 'µ' || c == 'μ')).unwrap_or(blank.len());
        let (unit, tail) = blank.split_at_checked(unit_end)?;
        let Some(unit_ns) = unit_ns(unit) else {
            if any || bare_ns == 0.0 {
                break;
            }
            return Some(nanos(value, bare_ns));
        };
        total += value * unit_ns;
        any = true;
        rest = tail;
        if !rest.starts_with(|c: char| c.is_ascii_digit()) {
            break;
        }
    }
    any.then(|| nanos(total, 1.0))
}

fn unit_ns(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" | "nanoseconds" => 1.0,
        "us" | "µs" | "μs" | "usec" | "usecs" | "microseconds" | "micros" => 1e3,
        "ms" | "msec" | "msecs" | "millis" | "milliseconds" | "millisecond" => 1e6,
        "s" | "sec" | "secs" | "second" | "seconds" => 1e9,
        "m" | "min" | "mins" | "minutes" => 60e9,
        "h" | "hours" => 3600e9,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::first;

    #[test]
    fn durations_of_programs_parse() {
        for (text, ms) in [
            ("of 1.5s, expected", 1500.0),
            ("took 20632ms which", 20632.0),
            ("1m2.5s", 62500.0),
            ("[593ms] collecting", 593.0),
            ("\"took\":\"1.2s\"", 1200.0),
            ("0.1402922 secs", 140.2922),
            ("123 microseconds.", 0.123),
            ("250µs", 0.25),
        ] {
            assert_eq!(first(text, 0.0), Some((ms * 1e6_f64).round() as u64), "{text}");
        }
        assert_eq!(first("cost: 12", 1e6), Some(12_000_000));
        assert_eq!((first("no figure", 1e6), first("12 apples", 0.0)), (None, None));
    }
}
