//! Position of an error in a scenario's text, and suggestions for misspelt names.

use super::ScenarioError;
use flatwater_recording::knob::nearest;

/// A scenario's text and its name in errors.
pub struct Place<'a> {
    pub origin: &'a str,
    pub text: &'a str,
}

impl Place<'_> {
    pub fn bad(&self, offset: usize, what: impl ToString) -> ScenarioError {
        let line = self.text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1;
        ScenarioError::Bad { origin: self.origin.to_owned(), line, what: what.to_string() }
    }

    /// The TOML parser's error, with a suggestion for a misspelt name.
    pub fn unreadable(&self, error: &toml::de::Error) -> ScenarioError {
        self.bad(error.span().map_or(0, |span| span.start), with_hint(error.message()))
    }

    /// Offset of the line that begins a table: `[setup]`.
    pub fn of_table(&self, heading: &str) -> usize {
        let mut offset = 0;
        for line in self.text.split_inclusive('\n') {
            if line.trim_start().starts_with(heading) {
                return offset;
            }
            offset += line.len();
        }
        0
    }

    /// Offset of the first assignment of a key after `from`, ignoring comments and parts of other words.
    pub fn of_key(&self, from: usize, key: &str) -> usize {
        let rest = self.text.get(from..).unwrap_or_default();
        let mut offset = from;
        for line in rest.split_inclusive('\n') {
            let found = line.match_indices(key).find(|&(at, _)| is_assigned(line, at, key.len()));
            if let Some((at, _)) = found {
                return offset + at;
            }
            offset += line.len();
        }
        // `vm.swappiness` may be written as a table `[setup.vm]` with the key `swappiness`.
        match key.split_once('.') {
            Some((_, tail)) => self.of_key(from, tail),
            None => from,
        }
    }
}

/// Whether the word at `at` is a key in this line.
fn is_assigned(line: &str, at: usize, length: usize) -> bool {
    let (before, after) = (line.get(..at).unwrap_or_default(), line.get(at + length..).unwrap_or_default());
    let begins = before.chars().next_back().is_none_or(|c| c.is_whitespace() || "\"'{,.".contains(c));
    let is_comment = before.trim_start().starts_with('#');
    let after = after.trim_start_matches(['"', '\'']).trim_start();
    begins && !is_comment && after.starts_with(['=', '.'])
}

/// Adds the nearest name to serde's message `unknown field `durtion`, expected one of `duration`, ...`.
fn with_hint(message: &str) -> String {
    let message = message.trim();
    let mut quoted = message.split('`').skip(1).step_by(2);
    let Some(given) = quoted.next().filter(|_| message.starts_with("unknown ")) else { return message.to_owned() };
    let hint = nearest(given, quoted).map(|near| format!(" (did you mean '{near}'?)")).unwrap_or_default();
    format!("{message}{hint}")
}
