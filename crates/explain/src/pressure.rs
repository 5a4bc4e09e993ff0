//! What pressure stall information (PSI) says: from totals read twice, or from the averages of a snapshot.

use super::Evidence;
use super::facts::Facts;
use flatwater_recording::Column;
use flatwater_recording::schema::pressure;

/// All of the time, and what rounding adds.
const SHARE_MAX: f64 = 1.01;

/// Shares of time, 0 to 1, in which some thread and in which all threads that had work waited for one resource.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pressed {
    pub some: f64,
    pub full: f64,
    /// Of what they are shares, in words.
    pub over: &'static str,
}

impl Pressed {
    /// `some thread waited for memory 45 % of the time, all of them at once 40 % (PSI)`.
    #[must_use]
    pub fn evidence(&self, what: &str) -> Evidence {
        let all = format!(", all that had work at once {:.0} %", self.full * 100.0);
        let text = format!(
            "some thread waited for {what} {:.0} % {}{} (PSI)",
            self.some * 100.0,
            self.over,
            if self.full >= 0.005 { all } else { String::new() }
        );
        Evidence::new(text, self.some * 100.0, "%")
    }
}

impl Facts<'_> {
    /// How much of the time threads waited for this resource (`cpu`, `io`, `memory`), as PSI says it: from the totals
    /// where they were read twice, else from the averages that a snapshot shows.
    #[must_use]
    pub fn pressed(&self, resource: &str) -> Option<Pressed> {
        let rate = |column: Column| self.rate(column, resource).mean().map(|us_per_s| us_per_s / 1e6);
        // A share over 1 is a fault of the kernel's own counting (6.0-rc1 had one): it says nothing.
        if let Some(some) = rate(pressure::SOME_TOTAL_US).filter(|some| *some <= SHARE_MAX) {
            return Some(Pressed { some, full: rate(pressure::FULL_TOTAL_US).unwrap_or(0.0), over: "of the time" });
        }
        let shown = |column: Column| self.level(column, resource).peak().map(|point| point.value / 10_000.0);
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
            Some(Pressed { some: shown(some)?, full: shown(full).unwrap_or(0.0), over })
        });
        let each = each.filter(|pressed| pressed.some <= SHARE_MAX);
        each.max_by(|a, b| a.some.total_cmp(&b.some))
    }
}
