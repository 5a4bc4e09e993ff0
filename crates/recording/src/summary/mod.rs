//! Summaries: a recording, or an hour of the daemon, as a few rows that can be compared with the rows of many hosts.
//!
//! `Summarizer` sums slow calls; `to_parquet` writes the file that fleets query. The rows of an observed quiet hour
//! sum to 0, those of an unobserved hour to null.

mod file;
mod hour;
mod row;
mod summarizer;

pub use file::{SummaryError, VERSION, VERSION_KEY, check_version, to_parquet};
pub use hour::HourStart;
pub use row::{CALLS_OVER_NS, SummaryOrigin, SummaryRow};
pub use summarizer::{Blame, Summarizer, Whose};
