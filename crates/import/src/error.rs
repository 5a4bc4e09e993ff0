//! Errors with a position in a log.

use super::text::{Line, Token, shown};

/// A part of a file that does not fit its format. Everything read before it is kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: expected {expected}, found {found}")]
pub struct ImportError {
    /// From 1.
    pub line: u32,
    /// From 1.
    pub column: u32,
    pub expected: String,
    /// Quoted, or a phrase such as `the end of the line`.
    pub found: String,
}

impl ImportError {
    #[must_use]
    pub fn at(line: &Line<'_>, token: Token<'_>, expected: impl Into<String>) -> ImportError {
        let found = format!("'{}'", shown(token.text));
        ImportError { line: line.number, column: token.column, expected: expected.into(), found }
    }

    /// An error about the whole line.
    #[must_use]
    pub fn line(line: &Line<'_>, expected: impl Into<String>) -> ImportError {
        let first = line.tokens().next();
        let column = first.map_or(1, |token| token.column);
        let found = if first.is_some() { format!("'{}'", shown(line.text)) } else { "an empty line".to_owned() };
        ImportError { line: line.number, column, expected: expected.into(), found }
    }

    /// An error about missing text at the end of the line.
    #[must_use]
    pub fn short(line: &Line<'_>, expected: impl Into<String>) -> ImportError {
        let found = "the end of the line".to_owned();
        ImportError { line: line.number, column: line.end_column(), expected: expected.into(), found }
    }
}
