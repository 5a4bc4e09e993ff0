//! Parses numbers as tools print them: decimal commas, units, suffixes.

/// A finite number. A decimal comma (sar in a German or French locale) counts as a point.
#[must_use]
pub fn number(text: &str) -> Option<f64> {
    let first = text.as_bytes().first()?;
    if !(first.is_ascii_digit() || matches!(first, b'-' | b'+' | b'.')) {
        return None;
    }
    let value: f64 = match text.split_once(',') {
        _ if text.matches(',').count() > 1 => ungrouped(text)?.parse().ok()?,
        Some(_) if text.contains('.') => ungrouped(text)?.parse().ok()?,
        Some((whole, rest)) if !text.contains('.') => format!("{whole}.{rest}").parse().ok()?,
        _ => text.parse().ok()?,
    };
    value.is_finite().then_some(value)
}

/// Removes the commas of `1,234,567` and `1,234.5`: groups of three digits, as people and `perf stat` print them.
fn ungrouped(text: &str) -> Option<String> {
    let (whole, fraction) = text.split_once('.').map_or((text, None), |(whole, fraction)| (whole, Some(fraction)));
    let mut groups = whole.split(',');
    let first = groups.next()?.trim_start_matches(['-', '+']);
    let three = |group: &str| group.len() == 3 && group.bytes().all(|c| c.is_ascii_digit());
    let fits = (1..=3).contains(&first.len()) && groups.all(three) && !fraction.is_some_and(|rest| rest.contains(','));
    fits.then(|| text.replace(',', ""))
}

/// A non-negative integer, saturating at `i64::MAX`. `1,234` is 1234.
#[must_use]
pub fn count(text: &str) -> Option<i64> {
    if text.contains(',') {
        return ungrouped(text).filter(|text| !text.contains('.')).and_then(|text| count(&text));
    }
    text.parse::<u64>().ok().map(|value| i64::try_from(value).unwrap_or(i64::MAX))
}

/// Rounds to an i64, saturating.
#[must_use]
pub fn rounded(value: f64) -> i64 {
    // `as` saturates, and NaN becomes 0; callers pass only finite values.
    value.round() as i64
}

/// Converts this many units of `unit_ns` to ns; negative values become 0.
#[must_use]
pub fn nanos(value: f64, unit_ns: f64) -> u64 {
    (value * unit_ns).round().clamp(0.0, 9.2e18) as u64
}

/// Bytes: `12.5Gi`, `310M`, `4.0K`, `0B`, `1024`. All suffixes are powers of 1024 (free -h, slabtop); a number without
/// a suffix is multiplied by `bare`.
#[must_use]
pub fn size(text: &str, bare: f64) -> Option<i64> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | ',' | '-' | '+'))).unwrap_or(text.len());
    let value = number(text.get(..end)?)?;
    let factor = match text.get(end..)?.trim_end_matches(['i', 'B']) {
        "" if text.ends_with('B') => 1.0,
        "" => bare,
        "K" | "k" => 1024.0,
        "M" | "m" => 1024.0 * 1024.0,
        "G" | "g" => 1024.0 * 1024.0 * 1024.0,
        "T" | "t" => 1024_f64.powi(4),
        "P" => 1024_f64.powi(5),
        _ => return None,
    };
    Some(rounded(value * factor))
}

/// The leading decimal digits of a text as a number, and the text after them.
#[must_use]
pub fn leading(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at_checked(end)?;
    Some((digits.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::{count, leading, number, size};

    #[test]
    fn numbers_of_all_locales_parse_and_words_do_not() {
        assert_eq!(number("951.42"), Some(951.42));
        assert_eq!(number("951,42"), Some(951.42));
        assert_eq!((number("1,234,567"), number("1,234.5")), (Some(1_234_567.0), Some(1234.5)));
        assert_eq!((count("1,234"), count("12,34"), count("1,234.5")), (Some(1234), None, None));
        for text in ["", "x", "nan", "inf", "infinity", "1e999", "1,2.3", "-", "1.2.3", "1,23,456"] {
            assert_eq!(number(text), None, "{text}");
        }
        assert_eq!(count("-1"), None);
        assert_eq!(leading("16KB"), Some((16, "KB")));
    }

    #[test]
    fn sizes_parse_with_their_unit() {
        assert_eq!(size("1.5Gi", 1.0), Some(3 << 29));
        assert_eq!(size("310M", 1.0), Some(310 << 20));
        assert_eq!(size("0B", 1024.0), Some(0));
        assert_eq!(size("12", 1024.0), Some(12288));
        assert_eq!(size("12 parsecs", 1.0), None);
    }
}
