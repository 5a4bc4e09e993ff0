//! Tests of the importers through their public interface.

mod columns;
mod golden;
mod refused;
