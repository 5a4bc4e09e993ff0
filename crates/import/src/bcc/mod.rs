//! Tools of bcc and bpftrace that print one line per slow thing.

mod drsnoop;
mod slower;

pub use drsnoop::IMPORTER as DRSNOOP;
pub use slower::IMPORTER as SLOWER;
