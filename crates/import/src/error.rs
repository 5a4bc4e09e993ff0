//! What could not be read, and where.

use super::text::{Line, Token, shown};

/// One thing in one file that did not fit its format. What was read before it stays.
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

    /// About the line as a whole.
    #[must_use]
    pub fn line(line: &Line<'_>, expected: impl Into<String>) -> ImportError {
        let first = line.tokens().next();
        let column = first.map_or(1, |token| token.column);
        let found = if first.is_some() { format!("'{}'", shown(line.text)) } else { "an empty line".to_owned() };
        ImportError { line: line.number, column, expected: expected.into(), found }
    }

    /// Something should have followed on this line.
    #[must_use]
    pub fn short(line: &Line<'_>, expected: impl Into<String>) -> ImportError {
        let found = "the end of the line".to_owned();
        ImportError { line: line.number, column: line.end_column(), expected: expected.into(), found }
    }
}
