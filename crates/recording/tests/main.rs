//! Tests of the published interface: what a reader and a writer of recordings may rely on.

mod bounded;
mod columns;
mod costly;
mod example;
mod hostile;
mod roundtrip;
mod schema_use;
