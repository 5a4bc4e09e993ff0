//! Recordings on disk: `RecordingWriter` writes one during a run, `write_whole` a complete one, and `Recording::open`
//! reads.
//!
//! ```text
//! header.json            facts about the whole recording, replaced atomically
//! TABLE.frames           during recording: framed Arrow IPC messages, appended once a second
//! TABLE.parquet          once sealed
//! sealed.json            written last: the sealed tables with sizes and checksums
//! ```
//!
//! Until `sealed.json` exists, the frames are valid and Parquet files are left over from an interrupted seal; once it
//! exists, the reverse is true. At every instant one of the two can be read. `docs/recording.md` describes every
//! field.
//!
//! Modules: `files` (the directory), `frames` (messages in a file that may be cut off anywhere), `parquet_in`
//! (untrusted Parquet files, within limits), `rows`, `calls` and `flat` (structs <-> Arrow), `sampled` (tables of
//! counters, column by column), `reader`, `writer`, `seal`.

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

/// All tables of a recording. Each is a file.
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

    /// Name of the table and stem of the file's name.
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
