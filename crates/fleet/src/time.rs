//! Parses times from the command line and formats them for keys and SQL. All times are UTC.

use chrono::{DateTime, NaiveDate, NaiveDateTime, TimeDelta, Utc};
use flatwater_recording::summary::HourStart;

use crate::FleetError;

/// A range of hours, without `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub from: HourStart,
    pub to: HourStart,
}

impl Range {
    /// Parses the command line's range; by default the last 24 hours including the current one.
    pub fn parse(from: Option<&str>, to: Option<&str>, now: DateTime<Utc>) -> Result<Range, FleetError> {
        let to = to.map_or(Ok(now), |text| parse(text, now))?;
        let from = from.map_or(Ok(to - TimeDelta::hours(24)), |text| parse(text, now))?;
        let last = hour_of(to - TimeDelta::nanoseconds(1));
        let range = Range { from: hour_of(from), to: HourStart::of_hours(last.hours() + 1) };
        if range.from >= range.to {
            return Err(FleetError::Usage(format!("--from {} is not before --to {}", sql(range.from), sql(range.to))));
        }
        Ok(range)
    }

    #[must_use]
    pub fn hours(self) -> i64 {
        self.to.hours() - self.from.hours()
    }

    #[must_use]
    pub fn has(self, hour: HourStart) -> bool {
        self.from <= hour && hour < self.to
    }
}

fn hour_of(at: DateTime<Utc>) -> HourStart {
    HourStart::of_hours(at.timestamp().div_euclid(3_600))
}

/// Parses `2026-11-22`, `2026-11-22T02:00`, `36h`, `7d` or `now`.
pub fn parse(given: &str, now: DateTime<Utc>) -> Result<DateTime<Utc>, FleetError> {
    let wrong = || FleetError::Time { given: given.to_owned() };
    if given == "now" {
        return Ok(now);
    }
    if let Some(count) = given.strip_suffix(['h', 'd']) {
        let count: i64 = count.parse().ok().filter(|count| (0..1_000_000).contains(count)).ok_or_else(wrong)?;
        let ago = if given.ends_with('d') { TimeDelta::days(count) } else { TimeDelta::hours(count) };
        return now.checked_sub_signed(ago).ok_or_else(wrong);
    }
    let plain = given.trim_end_matches('Z').replace(' ', "T");
    let whole = ["%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M"];
    let found = whole.iter().find_map(|form| NaiveDateTime::parse_from_str(&plain, form).ok());
    let day = || NaiveDate::parse_from_str(&plain, "%Y-%m-%d").ok()?.and_hms_opt(0, 0, 0);
    found.or_else(day).map(|at| at.and_utc()).ok_or_else(wrong)
}

/// `2026-11-22 02:00:00`, as SQL writes it between quotes.
#[must_use]
pub fn sql(hour: HourStart) -> String {
    let (year, month, day, of_day) = hour.civil();
    format!("{year:04}-{month:02}-{day:02} {of_day:02}:00:00")
}

#[cfg(test)]
mod tests {
    use super::{Range, parse, sql};
    use chrono::{TimeZone, Utc};

    #[test]
    fn times_are_read_as_people_write_them() {
        let now = Utc.with_ymd_and_hms(2026, 11, 22, 14, 20, 0).single().expect("a time");
        let read = |text| parse(text, now).map(|at| at.to_rfc3339()).unwrap_or_else(|error| error.to_string());
        assert_eq!(read("2026-11-22"), "2026-11-22T00:00:00+00:00");
        assert_eq!(read("2026-11-22T02:00"), "2026-11-22T02:00:00+00:00");
        assert_eq!(read("2026-11-22 02:00:30Z"), "2026-11-22T02:00:30+00:00");
        assert_eq!(read("2h"), "2026-11-22T12:20:00+00:00");
        assert_eq!(read("1d"), "2026-11-21T14:20:00+00:00");
        assert!(read("yesterday").contains("36h"));
        let day = Range::parse(None, None, now).expect("a range");
        assert_eq!((sql(day.from), sql(day.to)), ("2026-11-21 14:00:00".into(), "2026-11-22 15:00:00".into()));
        let whole = Range::parse(Some("2026-11-20"), Some("2026-11-21"), now).expect("a range");
        assert_eq!(whole.hours(), 24);
        assert!(Range::parse(Some("2026-11-21"), Some("2026-11-20"), now).is_err());
    }
}
