//! Tests of the importers through their public interface.

mod columns;
mod figures;
mod foreign_lines;
mod golden;
mod refused;
