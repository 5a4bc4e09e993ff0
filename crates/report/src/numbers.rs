//! Formats numbers for people: grouped counts, durations and sizes with three digits, shares in percent.

use flatwater_recording::units::{Bytes, Nanos};

/// Formats 149998 as `149 998`.
pub fn count(n: u64) -> String {
    grouped(&n.to_string())
}

/// Inserts a space between groups of three digits (ISO 80000-1 has no comma).
fn grouped(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

pub fn time(ns: u64) -> String {
    Nanos(ns).to_string()
}

pub fn size(bytes: u64) -> String {
    Bytes(bytes).to_string()
}

/// Formats 0.712 as `71.2 %`. A share that would round to 0.0 % but is not 0 becomes `< 0.1 %`.
pub fn share(share: f64) -> String {
    if share > 0.0 && share < 0.0005 { "< 0.1 %".to_owned() } else { format!("{:.1} %", share * 100.0) }
}

/// A value with its unit. Times, sizes and shares are scaled.
pub fn quantity(value: f64, unit: &str) -> String {
    let whole = value.round();
    match unit {
        "ns" if whole >= 0.0 => time(whole as u64),
        "bytes" | "B" if whole >= 0.0 => size(whole as u64),
        "share" => share(value),
        "" => plain(value),
        unit => format!("{} {unit}", plain(value)),
    }
}

/// Groups integers, and rounds other numbers to three significant digits.
pub fn plain(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let (sign, size) = if value < 0.0 { ("-", -value) } else { ("", value) };
    if size >= 100.0 || size.fract() == 0.0 {
        return format!("{sign}{}", grouped(&format!("{size:.0}")));
    }
    let decimals = match size {
        s if s >= 10.0 => 1,
        s if s >= 1.0 => 2,
        s if s >= 0.1 => 3,
        _ => 4,
    };
    format!("{value:.decimals$}")
}

/// The count with the noun in singular or plural.
pub fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(n), if n == 1 { one } else { many })
}

/// A string from a recording, made safe for a terminal.
pub fn clean(text: &str) -> String {
    flatwater_recording::printable::line(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::{clean, count, plain, quantity, share};

    #[test]
    fn digits_are_grouped_by_three() {
        for (n, shown) in [(0, "0"), (999, "999"), (1_000, "1 000"), (149_998, "149 998"), (12_345_678, "12 345 678")] {
            assert_eq!(count(n), shown);
        }
    }

    #[test]
    fn a_small_share_is_not_printed_as_zero() {
        assert_eq!(share(0.0), "0.0 %");
        assert_eq!(share(0.0001), "< 0.1 %");
        assert_eq!(share(0.712), "71.2 %");
    }

    #[test]
    fn figures_keep_their_unit_and_three_digits() {
        assert_eq!(quantity(41_200_000.0, "ns"), "41.2 ms");
        assert_eq!(quantity(536_870_912.0, "bytes"), "512 MiB");
        assert_eq!(quantity(6_222_810.9, "pages/s"), "6 222 811 pages/s");
        assert_eq!(plain(-2.618), "-2.62");
        assert_eq!(plain(f64::NAN), "-");
    }

    #[test]
    fn escape_sequences_do_not_reach_a_terminal() {
        assert_eq!(clean("a\u{1b}]0;x\u{7}b"), "a\u{fffd}]0;x\u{fffd}b");
    }
}
