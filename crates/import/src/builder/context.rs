//! What the lines outside of tables say about the tables below them. The reading loop alone changes it: no importer
//! sees what another importer did.

use crate::sar;
use crate::when::{self, When};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Context {
    /// The time of the last stamp line in this file.
    pub moment: Option<When>,
    /// The command at the last prompt in this file, such as `vmstat 5`.
    pub command: Option<String>,
    /// The day in the last banner of sysstat in this file, days since 1970.
    pub date: Option<i64>,
}

/// Longest line that is a time without a clock: a date, or seconds since 1970.
const SHORT: usize = 24;

impl Context {
    /// Takes over the time or day that a line states, whichever importer read the line.
    pub fn line(&mut self, text: &str) {
        // Most lines of tables are longer, or have no clock.
        if text.len() <= SHORT || text.len() <= 80 && text.matches(':').nth(1).is_some() {
            self.moment = when::stamp(text).or(self.moment);
        }
        if sar::is_banner(text) {
            self.date = sar::banner_date(text).or(self.date);
        }
    }
}
