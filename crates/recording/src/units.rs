//! Quantities with their unit in the type: nanoseconds, bytes, pages.
//!
//! Parsing accepts common spellings (`200us`, `1.5s`, `512MiB`, `64M`, `150MB`); printing gives three significant
//! digits for people. Machine-readable output does not use `Display`: it has plain integers, with the unit in the
//! field's name.

use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A duration or an instant, in nanoseconds. Instants are CLOCK_MONOTONIC unless a name says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub u64);

/// A size in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// A count of page frames; its size in bytes depends on the machine (`Machine::page_bytes`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pages(pub u64);

/// Why a quantity could not be parsed: the given text, and the accepted forms.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{given}' is not {wanted}")]
pub struct UnitError {
    /// The refused text.
    pub given: String,
    /// What is accepted.
    pub wanted: &'static str,
}

const TIME_WANTED: &str = "a duration: give a number with ns, us, ms, s, min or h, such as 200us or 30s";
const SIZE_WANTED: &str = "a size: give a number of bytes, or one with KiB, MiB or GiB (K, M, G; kB, MB and GB are powers of ten), such as 512MiB";

impl Nanos {
    /// 1 us
    pub const MICROSECOND: Nanos = Nanos(1_000);
    /// 1 ms
    pub const MILLISECOND: Nanos = Nanos(1_000_000);
    /// 1 s
    pub const SECOND: Nanos = Nanos(1_000_000_000);

    /// A number of seconds.
    #[must_use]
    pub fn from_secs(secs: u64) -> Nanos {
        Nanos(secs.saturating_mul(1_000_000_000))
    }

    /// The same time in seconds.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The difference, 0 if it would be negative.
    #[must_use]
    pub fn saturating_sub(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(other.0))
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    /// Saturates: clocks that were read out of order must not wrap around to centuries.
    fn sub(self, other: Nanos) -> Nanos {
        self.saturating_sub(other)
    }
}

impl Pages {
    /// Size of this number of pages.
    #[must_use]
    pub fn bytes(self, page_bytes: u64) -> Bytes {
        Bytes(self.0.saturating_mul(page_bytes))
    }
}

/// Splits `12.5ms` into `12.5` and `ms`.
fn split_number(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    number.is_finite().then(|| (number, text[end..].trim()))
}

fn scaled(number: f64, factor: f64) -> Option<u64> {
    let value = number * factor;
    // 2^63 and not 2^64, because later stages may store the value as a signed 64-bit integer.
    (value < 9.2e18).then(|| value.round() as u64)
}

impl FromStr for Nanos {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Nanos, UnitError> {
        let refuse = || UnitError { given: text.to_owned(), wanted: TIME_WANTED };
        let (number, unit) = split_number(text).ok_or_else(refuse)?;
        let factor = match unit {
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" | "sec" => 1e9,
            "m" | "min" => 60e9,
            "h" => 3600e9,
            _ => return Err(refuse()),
        };
        scaled(number, factor).map(Nanos).ok_or_else(refuse)
    }
}

impl FromStr for Bytes {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Bytes, UnitError> {
        let refuse = || UnitError { given: text.to_owned(), wanted: SIZE_WANTED };
        let (number, unit) = split_number(text).ok_or_else(refuse)?;
        // IEC and SI: MiB is 2^20, MB is 10^6. A single letter is a power of two, as in the kernel's own settings
        // (memory.max, mem=) and in dd.
        let factor = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1.0,
            "k" | "kib" => 1024.0,
            "m" | "mib" => 1024.0 * 1024.0,
            "g" | "gib" => 1024.0 * 1024.0 * 1024.0,
            "t" | "tib" => 1024.0_f64.powi(4),
            "kb" => 1e3,
            "mb" => 1e6,
            "gb" => 1e9,
            "tb" => 1e12,
            _ => return Err(refuse()),
        };
        scaled(number, factor).map(Bytes).ok_or_else(refuse)
    }
}

/// Prints three significant digits and a unit: `41.2 ms`.
fn print_scaled(f: &mut fmt::Formatter<'_>, value: f64, unit: &str) -> fmt::Result {
    let decimals = if value >= 99.95 || value.fract() == 0.0 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    let text = format!("{value:.decimals$} {unit}");
    f.pad(&text)
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0 as f64;
        match self.0 {
            0..1_000 => print_scaled(f, ns, "ns"),
            1_000..1_000_000 => print_scaled(f, ns / 1e3, "us"),
            1_000_000..1_000_000_000 => print_scaled(f, ns / 1e6, "ms"),
            1_000_000_000..600_000_000_000 => print_scaled(f, ns / 1e9, "s"),
            600_000_000_000..36_000_000_000_000 => print_scaled(f, ns / 60e9, "min"),
            _ => print_scaled(f, ns / 3600e9, "h"),
        }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        match self.0 {
            0..1_024 => print_scaled(f, bytes, "B"),
            1_024..1_048_576 => print_scaled(f, bytes / 1024.0, "KiB"),
            1_048_576..1_073_741_824 => print_scaled(f, bytes / 1_048_576.0, "MiB"),
            _ => print_scaled(f, bytes / 1_073_741_824.0, "GiB"),
        }
    }
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pages", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{Bytes, Nanos};

    #[test]
    fn durations_parse_and_print_in_common_spellings() {
        for (text, ns, shown) in [
            ("200us", 200_000, "200 us"),
            ("1.5s", 1_500_000_000, "1.50 s"),
            ("41.2ms", 41_200_000, "41.2 ms"),
            ("10h", 36_000_000_000_000, "10 h"),
            ("2 min", 120_000_000_000, "120 s"),
        ] {
            let parsed: Nanos = text.parse().expect(text);
            assert_eq!(parsed, Nanos(ns), "{text}");
            assert_eq!(parsed.to_string(), shown);
        }
    }

    #[test]
    fn mib_is_a_power_of_two_and_mb_one_of_ten() {
        assert_eq!("64M".parse(), Ok(Bytes(64 << 20)));
        for (text, bytes) in
            [("8KB", 8_000), ("150MB", 150_000_000), ("1.5 GB", 1_500_000_000), ("2tb", 2_000_000_000_000)]
        {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        assert_eq!("512MiB".parse(), Ok(Bytes(512 << 20)));
        assert_eq!(Bytes(512 << 20).to_string(), "512 MiB");
    }

    #[test]
    fn invalid_quantities_are_refused_with_an_example() {
        for text in ["", "fast", "-3s", "1e400s", "30", "3 fortnights", "nan s", "99999999999999h"] {
            let refusal = text.parse::<Nanos>().expect_err(text);
            assert!(refusal.to_string().contains("such as 200us"), "{refusal}");
        }
        assert!("12 parsecs".parse::<Bytes>().is_err());
    }
}
