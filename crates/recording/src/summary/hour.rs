//! The hour of a row, stored in Arrow and Parquet as a timestamp in microseconds without a time zone.

use std::sync::Arc;

use arrow_array::{ArrayRef, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field, TimeUnit};

use crate::store::flat::{Cells, FlatColumns};

pub const HOUR_NS: i64 = 3_600_000_000_000;
const HOUR_US: i64 = HOUR_NS / 1_000;

/// The start of an hour, UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HourStart {
    hours: i64,
}

impl HourStart {
    /// The hour that contains this instant, given in ns since the epoch.
    #[must_use]
    pub fn of_ns(wall_ns: i64) -> HourStart {
        HourStart { hours: wall_ns.div_euclid(HOUR_NS) }
    }

    /// Hours since the epoch.
    #[must_use]
    pub const fn of_hours(hours: i64) -> HourStart {
        HourStart { hours }
    }

    /// Hours since 1970.
    #[must_use]
    pub const fn hours(self) -> i64 {
        self.hours
    }

    /// Seconds since the epoch.
    #[must_use]
    pub fn epoch_s(self) -> i64 {
        self.hours.saturating_mul(3_600)
    }

    /// Year, month, day and hour of the day.
    #[must_use]
    pub fn civil(self) -> (i64, u32, u32, u32) {
        // Civil date from days: Howard Hinnant's algorithm over eras of 400 years, from 0000-03-01.
        let days = self.hours.div_euclid(24) + 719_468;
        let era = days.div_euclid(146_097);
        let of_era = days.rem_euclid(146_097);
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted = (5 * of_year + 2) / 153;
        let day = of_year - (153 * shifted + 2) / 5 + 1;
        let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        (year, month as u32, day as u32, self.hours.rem_euclid(24) as u32)
    }
}

fn field(name: &str) -> Field {
    Field::new(name, DataType::Timestamp(TimeUnit::Microsecond, None), true)
}

impl Cells for Option<HourStart> {
    fn fields(name: &'static str) -> Vec<Field> {
        vec![field(name)]
    }

    fn arrays<'a>(cells: impl Iterator<Item = &'a Self> + Clone) -> Vec<ArrayRef> {
        let micros = cells.map(|cell| cell.map(|hour| hour.hours.saturating_mul(HOUR_US)));
        vec![Arc::new(micros.collect::<TimestampMicrosecondArray>())]
    }

    fn reader<'a>(columns: FlatColumns<'a>, name: &'static str) -> impl Fn(usize) -> Self + 'a {
        let micros = columns.micros(name);
        move |row| micros(row).map(|micros| HourStart { hours: micros.div_euclid(HOUR_US) })
    }
}

#[cfg(test)]
mod tests {
    use super::HourStart;

    #[test]
    fn hours_convert_to_civil_dates() {
        let hour = HourStart::of_ns(1_795_312_799_000_000_000);
        assert_eq!((hour.epoch_s(), hour.civil()), (1_795_309_200, (2026, 11, 22, 1)));
        assert_eq!(HourStart::of_hours(0).civil(), (1970, 1, 1, 0));
        assert_eq!(HourStart::of_hours(-1).civil(), (1969, 12, 31, 23));
        // 29 February of a leap year divisible by 400.
        assert_eq!(HourStart::of_hours(264_072).civil(), (2000, 2, 16, 0));
        assert_eq!(HourStart::of_hours(264_072 + 13 * 24).civil(), (2000, 2, 29, 0));
    }
}
