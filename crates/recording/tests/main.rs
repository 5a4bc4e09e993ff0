//! Tests of the public interface for readers and writers of recordings.

mod bounded;
mod columns;
mod costly;
mod example;
mod hostile;
mod interface;
mod roundtrip;
mod schema_use;
