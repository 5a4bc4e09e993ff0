//! A recording on disk: `RecordingWriter` while it is made, `write_whole` where all of it is known, `read`.
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

mod error;
mod files;
mod frame;
mod ipc;
mod parquet_out;
mod parquet_table;
mod reader;
mod seal;
mod table;
mod thin;
mod writer;

pub use error::{ReadError, WriteError};
pub use reader::{read, read_thinned};
pub use seal::write_whole;
pub use writer::{Finished, RecordingWriter};
