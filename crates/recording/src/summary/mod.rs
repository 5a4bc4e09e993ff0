//! The summary: a recording, or an hour of the daemon, as a few thin rows that many hosts' rows are put beside.
//!
//! `Summarizer` adds slow calls up; `to_parquet` writes the rows as the file that fleets are asked by. The rows of an hour
//! that was observed and was quiet sum to 0, those of an hour that was not observed to null.

mod add;
mod file;
mod hour;
mod row;

pub use add::{Blame, Summarizer, Whose};
pub use file::{SummaryError, VERSION, VERSION_KEY, check_version, from_batch, schema, to_parquet};
pub use hour::HourStart;
pub use row::{CALLS_OVER_NS, SummaryOrigin, SummaryRow};
