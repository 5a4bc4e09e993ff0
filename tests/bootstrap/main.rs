//! Error rates of the statistics of `compare` and `verify`: coverage of the intervals, and false alarms.

mod coverage;
mod false_alarms;
mod recorded;
mod trials;
