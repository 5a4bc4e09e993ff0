//! Tests of the importers through their public interface.

mod accounting;
mod columns;
mod figures;
mod foreign_lines;
mod golden;
mod growth;
mod refused;
