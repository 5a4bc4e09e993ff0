//! Pressure stall information (PSI): from totals that were read twice, or from the averages of a single reading.

use super::Evidence;
use super::facts::Facts;
use flatwater_recording::schema::{Column, pressure};

/// All of the time, plus rounding.
const SHARE_MAX: f64 = 1.01;

/// Shares of time, 0 to 1, in which some thread waited for a resource, and in which all non-idle threads did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pressed {
    pub some: f64,
    /// `None` if the kernel does not print it.
    pub full: Option<f64>,
    /// The period that the shares refer to, in words.
    pub over: &'static str,
}

impl Pressed {
    /// The shares as a sentence: `some thread waited for memory 45 % of the time, all that had work at once 40 %
    /// (PSI)`.
    #[must_use]
    pub fn evidence(&self, what: &str) -> Evidence {
        let full = self.full.filter(|full| *full >= 0.005);
        let all = full.map(|full| format!(", all that had work at once {:.0} %", full * 100.0)).unwrap_or_default();
        let text = format!("some thread waited for {what} {:.0} % {}{all} (PSI)", self.some * 100.0, self.over);
        Evidence::new(text, self.some * 100.0, "%")
    }
}

impl Facts<'_> {
    /// The PSI of a resource (`cpu`, `io`, `memory`): from the totals if they were read twice, otherwise the
    /// highest of the averages.
    #[must_use]
    pub fn pressed(&self, resource: &str) -> Option<Pressed> {
        let rate = |column: Column| self.rate(column, resource).mean().map(|us_per_s| us_per_s / 1e6);
        // A share above 1 is a counting bug of the kernel (6.0-rc1 had one) and is ignored.
        if let Some(some) = rate(pressure::SOME_TOTAL_US).filter(|some| *some <= SHARE_MAX) {
            return Some(Pressed { some, full: rate(pressure::FULL_TOTAL_US), over: "of the time" });
        }
        let shown = |column: Column| self.level(column, resource);
        let windows = [
            (pressure::SOME_AVG10_CENTIPERCENT, pressure::FULL_AVG10_CENTIPERCENT, "of the 10 s before the reading"),
            (pressure::SOME_AVG60_CENTIPERCENT, pressure::FULL_AVG60_CENTIPERCENT, "of the minute before the reading"),
            (
                pressure::SOME_AVG300_CENTIPERCENT,
                pressure::FULL_AVG300_CENTIPERCENT,
                "of the 5 minutes before the reading",
            ),
        ];
        let each = windows.into_iter().filter_map(|(some, full, over)| {
            // Both of one reading: the peaks may be at different times.
            let peak = shown(some).peak()?;
            let full =
                shown(full).points.iter().find(|point| point.at_ns == peak.at_ns).map(|point| point.value / 10_000.0);
            Some(Pressed { some: peak.value / 10_000.0, full, over })
        });
        let each = each.filter(|pressed| pressed.some <= SHARE_MAX);
        each.max_by(|a, b| a.some.total_cmp(&b.some))
    }
}

#[cfg(test)]
mod tests {
    use crate::facts::Facts;
    use crate::testing::RecordingBuilder;
    use flatwater_recording::{Entity, Table};

    #[test]
    fn both_shares_are_those_of_one_reading() {
        let columns: [(&str, &[i64]); 2] =
            [("some_avg10_centipercent", &[4_500, 900]), ("full_avg10_centipercent", &[100, 800])];
        let recording = RecordingBuilder::new().gauges(Table::Pressure, &Entity::named("io"), &columns).done();
        let pressed = Facts::of(&recording).pressed("io").expect("averages");
        assert_eq!((pressed.some, pressed.full), (0.45, Some(0.01)));
        let alone = RecordingBuilder::new().gauges(Table::Pressure, &Entity::named("cpu"), &columns[..1]).done();
        assert_eq!(Facts::of(&alone).pressed("cpu").and_then(|pressed| pressed.full), None, "not printed, not 0");
    }
}
