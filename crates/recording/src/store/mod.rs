//! A recording on disk: `RecordingWriter` while it is made, `write_whole` where all of it is known, `Recording::open`.
//!
//! ```text
//! header.json            what is known about the whole, replaced atomically
//! TABLE.frames           while it is written: framed Arrow IPC messages, appended once a second
//! TABLE.parquet          once sealed
//! sealed.json            written last: which tables were sealed, their sizes and checksums
//! ```
//!
//! Until `sealed.json` stands, frames are the truth and Parquet files are leftovers of an interrupted seal;
//! once it stands, the reverse. There is no instant at which neither can be read.
//! `docs/recording.md` describes every field.
//!
//! Who reads what: `files` (the directory), `frames` (messages in a file that may end anywhere), `parquet_in` (Parquet
//! of unknown origin, within bounds), `rows`, `calls` and `flat` (nouns <-> Arrow), `sampled` (tables of counters, column by
//! column), `reader`, `writer`, `seal`.

mod calls;
mod error;
mod files;
pub(crate) mod flat;
mod frames;
mod json;
mod parquet_in;
mod reader;
mod rows;
mod sampled;
mod seal;
mod writer;

pub use error::{ReadError, TableError, WriteError};
pub use reader::{LateGaps, Limits, read};
pub(crate) use sampled::SealedTable;
pub use seal::write_whole;
pub use writer::{Finished, RecordingWriter};

use crate::series::Table;
use flat::FlatTable;

/// Every table that a recording can have; each is a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TableFile {
    Latency,
    Calls,
    Stacks,
    Events,
    Gaps,
    Flat(FlatTable),
    Sampled(Table),
}

impl TableFile {
    fn all() -> impl Iterator<Item = TableFile> {
        let fixed =
            [TableFile::Latency, TableFile::Calls, TableFile::Stacks, TableFile::Events, TableFile::Gaps].into_iter();
        let flat = FlatTable::ALL.iter().map(|&table| TableFile::Flat(table));
        fixed.chain(flat).chain(Table::ALL.iter().map(|&table| TableFile::Sampled(table)))
    }

    /// Name of the table and stem of its file.
    fn name(self) -> &'static str {
        match self {
            TableFile::Latency => "latency",
            TableFile::Calls => "calls",
            TableFile::Stacks => "stacks",
            TableFile::Events => "events",
            TableFile::Gaps => "gaps",
            TableFile::Flat(table) => table.name(),
            TableFile::Sampled(table) => table.name(),
        }
    }
}
