//! A regular grid over the sampled tables: one line of sar and vmstat per interval.

use chrono::DateTime;

use flatwater_recording::schema::ColumnKey;
use flatwater_recording::{Header, Recording, Rows, Table};

/// The interval of one row, on the recording's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    pub from_ns: u64,
    pub to_ns: u64,
}

/// Readings of one column, for look-ups at the grid's instants.
#[derive(Clone, Debug, Default)]
pub struct Readings {
    points: Vec<(u64, i64)>,
}

const SECOND_NS: u64 = 1_000_000_000;

/// The shortest of these intervals that gives at most 120 rows, else 600 s.
fn chosen_interval_ns(span_ns: u64) -> u64 {
    let fits = [1, 5, 10, 30, 60, 300].into_iter().map(|s| s * SECOND_NS).find(|ns| span_ns / ns <= 120);
    fits.unwrap_or(600 * SECOND_NS)
}

/// The grid over the samples of these tables. It is never finer than the samples, so that an import with rows of 5 s is
/// printed with the same rows, and it ends at the last sample, so that every row covers its whole interval.
pub fn grid(recording: &Recording, tables: &[Table], interval_ns: Option<u64>) -> Vec<Interval> {
    let mut instants: Vec<u64> =
        tables.iter().filter_map(|table| recording.table(*table)).flat_map(|series| series.at_ns().to_vec()).collect();
    instants.sort_unstable();
    instants.dedup();
    let (Some(&first), Some(&last)) = (instants.first(), instants.last()) else { return Vec::new() };
    let wanted = interval_ns.unwrap_or_else(|| chosen_interval_ns(last - first)).max(1);
    let mut rows = Vec::new();
    let mut from_ns = first;
    let early = (wanted / 50).min(SECOND_NS / 4);
    for &at_ns in &instants {
        // The sampler's jitter can make a sample slightly early; it ends its row all the same.
        if at_ns - from_ns >= wanted - early {
            rows.push(Interval { from_ns, to_ns: at_ns });
            from_ns = at_ns;
        }
    }
    if rows.is_empty() && last > first {
        rows.push(Interval { from_ns: first, to_ns: last });
    }
    rows
}

impl Interval {
    pub fn seconds(self) -> f64 {
        self.to_ns.saturating_sub(self.from_ns) as f64 / 1e9
    }
}

impl Readings {
    pub fn of(rows: &Rows<'_>, column: impl ColumnKey) -> Readings {
        Readings { points: rows.values(column).collect() }
    }

    /// The last reading at or before this instant.
    pub fn at(&self, at_ns: u64) -> Option<i64> {
        let after = self.points.partition_point(|(when, _)| *when <= at_ns);
        after.checked_sub(1).and_then(|place| self.points.get(place)).map(|(_, value)| *value)
    }

    /// A counter's rise over the row; `None` if it was not read at both ends, or if it fell because it was reset.
    pub fn rise(&self, row: Interval) -> Option<i64> {
        let (from, to) = (self.at(row.from_ns)?, self.at(row.to_ns)?);
        to.checked_sub(from).filter(|rise| *rise >= 0)
    }

    pub fn rate(&self, row: Interval) -> Option<f64> {
        let seconds = row.seconds();
        if seconds > 0.0 { self.rise(row).map(|rise| rise as f64 / seconds) } else { None }
    }
}

/// Time of day (UTC) as `HH:MM:SS`, or the time since the start if the wall clock is unknown.
pub fn clock(header: &Header, at_ns: u64) -> String {
    let seconds = match header.clock.wall_offset_ns {
        Some(offset) => (i128::from(at_ns) + i128::from(offset)).div_euclid(i128::from(SECOND_NS)).rem_euclid(86_400),
        None => i128::from(at_ns.saturating_sub(header.clock.start_ns) / SECOND_NS),
    };
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// The day of the recording's start as `MM/DD/YYYY`, as sysstat prints it in the C locale; `None` without a wall clock.
pub fn day(header: &Header) -> Option<String> {
    let wall_ns = i128::from(header.clock.start_ns) + i128::from(header.clock.wall_offset_ns?);
    let seconds = i64::try_from(wall_ns.div_euclid(i128::from(SECOND_NS))).ok()?;
    Some(DateTime::from_timestamp(seconds, 0)?.format("%m/%d/%Y").to_string())
}

#[cfg(test)]
mod tests {
    use super::{chosen_interval_ns, clock, day};
    use flatwater_recording::{Clock, Header};

    fn at(wall_s: i64) -> Header {
        Header { clock: Clock { start_ns: 0, wall_offset_ns: Some(wall_s * 1_000_000_000) }, ..Header::default() }
    }

    #[test]
    fn dates_are_right_around_leap_years() {
        for (wall_s, shown) in [
            (0, "01/01/1970"),
            (951_782_400, "02/29/2000"),
            (1_795_219_200, "11/21/2026"),
            (4_107_542_400, "03/01/2100"),
        ] {
            assert_eq!(day(&at(wall_s)).as_deref(), Some(shown));
        }
    }

    #[test]
    fn without_a_wall_clock_times_count_from_the_start() {
        assert_eq!(clock(&at(1_795_219_200 + 3_661), 0), "01:01:01");
        assert_eq!(clock(&Header::default(), 90_000_000_000), "00:01:30");
        assert_eq!(day(&Header::default()), None);
    }

    #[test]
    fn the_interval_grows_with_the_length_of_the_recording() {
        assert_eq!(chosen_interval_ns(30_000_000_000), 1_000_000_000);
        assert_eq!(chosen_interval_ns(3_600_000_000_000), 30_000_000_000);
    }
}
