//! The public interface. A name that has to leave this list is a breaking change: it needs a new version and a line in
//! CHANGELOG.md.

#[expect(unused_imports, reason = "the compiler checks that the names exist")]
use precursor::{
    After, AppendError, Appender, BackPressure, Durability, Durable, Evidence, Existing, Framing, Leftover,
    ManyAppender, Mode, OpenError, Options, Owner, Position, ReadError, Reader, Record, RecoverError, Recovered,
    Removal, Seek, SeekCost, Stats, Survival, SyncError, Syncer, Waiting, Writer, leftovers, limits, probe, records,
    recover,
};
