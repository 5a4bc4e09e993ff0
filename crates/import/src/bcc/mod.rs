//! Tools of bcc and bpftrace that print one line per slow operation, and their tables.

mod drsnoop;
mod slower;
mod tables;

pub use drsnoop::IMPORTER as DRSNOOP;
pub use slower::IMPORTER as SLOWER;
pub use tables::IMPORTER as TABLES;
