//! Reads JSON inside logs: finds the document at the cursor and reads it even if its end is missing.

use serde_json::Value;

use super::builder::Builder;
use super::error::ImportError;
use super::text::{Cursor, Line};

/// The document at a cursor.
struct Document {
    /// `None` if no element is complete.
    value: Option<Value>,
    problem: Option<ImportError>,
    /// Number of lines of `value`.
    lines: usize,
    /// Number of lines of the document, of which those after `lines` could not be read.
    all_lines: usize,
}

/// Scores a document that has this key in its first three lines.
pub fn detect(cursor: &Cursor<'_>, key: &str) -> u8 {
    let begins = cursor.next_text().trim_start().starts_with('{');
    let named = (0..3).filter_map(|ahead| cursor.ahead(ahead)).any(|line| line.text.contains(key));
    if begins && named { 95 } else { 0 }
}

/// Reads the document at the cursor and consumes its lines. If it was cut off, all complete elements are kept, and the
/// problem is reported. Lines after an error are left to other importers.
pub fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<Value, ImportError> {
    let document = parse(cursor);
    for line in (document.lines..document.all_lines).filter_map(|at| cursor.ahead(at)) {
        if !line.is_blank() {
            b.stumble(line.number, line.text);
        }
    }
    cursor.take_lines(document.all_lines);
    match (document.value, document.problem) {
        (Some(value), problem) => {
            problem.into_iter().for_each(|problem| b.problem(problem));
            Ok(value)
        }
        (None, Some(problem)) => Err(problem),
        (None, None) => Ok(Value::Null),
    }
}

fn parse(cursor: &Cursor<'_>) -> Document {
    let Some(first) = cursor.peek() else {
        return Document { value: None, problem: None, lines: 0, all_lines: 0 };
    };
    let rest = cursor.rest().trim_end();
    let lines_of = |text: &str| text.matches('\n').count() + 1;
    let mut stream = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
    let parsed = stream.next();
    let offset = stream.byte_offset();
    match parsed {
        Some(Ok(value)) => {
            let (read, after) = rest.split_at_checked(offset).unwrap_or((rest, ""));
            let lines = lines_of(read);
            let foreign = after.lines().next().unwrap_or_default().trim();
            let problem = cursor.ahead(lines - 1).filter(|_| !foreign.is_empty());
            let problem = problem.map(|line| ImportError::line(&line, "the end of the line after a JSON document"));
            Document { value: Some(value), problem, lines, all_lines: lines }
        }
        Some(Err(error)) => {
            let complete = complete(rest);
            let value = complete.as_ref().and_then(|(_, text)| serde_json::from_str(text).ok());
            let lines =
                complete.filter(|_| value.is_some()).map_or(0, |(end, _)| lines_of(rest.get(..end).unwrap_or("")));
            let all_lines = if error.is_eof() { lines_of(rest) } else { error.line().clamp(1, lines_of(rest)) };
            let problem = Some(place(&first, &error));
            Document { value, problem, lines, all_lines: all_lines.max(lines) }
        }
        None => Document { value: None, problem: None, lines: 1, all_lines: 1 },
    }
}

fn place(first: &Line<'_>, error: &serde_json::Error) -> ImportError {
    let line = first.number.saturating_add(u32::try_from(error.line()).unwrap_or(u32::MAX)).saturating_sub(1);
    let found = if error.is_eof() { "the end of the file".to_owned() } else { error.to_string() };
    ImportError {
        line,
        column: u32::try_from(error.column()).unwrap_or(u32::MAX).max(1),
        expected: "the rest of a JSON document".to_owned(),
        found,
    }
}

/// The end of the last complete element, and the text up to there with the open brackets closed.
fn complete(text: &str) -> Option<(usize, String)> {
    let mut open: Vec<char> = Vec::new();
    let mut safe: Option<(usize, Vec<char>)> = None;
    let (mut in_string, mut escaped) = (false, false);
    for (at, c) in text.char_indices() {
        if in_string {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match c {
            '"' => in_string = true,
            '{' => open.push('}'),
            '[' => open.push(']'),
            '}' | ']' => {
                if open.pop() != Some(c) {
                    break;
                }
                safe = Some((at + 1, open.clone()));
            }
            // The element before a comma is complete.
            ',' => safe = Some((at, open.clone())),
            _ => {}
        }
        // serde_json reads no deeper.
        if open.len() > 128 {
            break;
        }
    }
    let (end, open) = safe?;
    let mut out = text.get(..end)?.to_owned();
    out.extend(open.iter().rev());
    Some((end, out))
}

#[cfg(test)]
mod tests {
    use super::parse;
    use crate::import_texts;
    use crate::text::{Cursor, Text};
    use flatwater_recording::Table;

    #[test]
    fn a_cut_document_keeps_its_complete_elements() {
        let text = Text::new(b"{\"a\": [1, 2, {\"b\": \"x,y]\", \"c\": 3");
        let document = parse(&Cursor::new(&text));
        assert_eq!(document.value.expect("elements").to_string(), r#"{"a":[1,2,{"b":"x,y]"}]}"#);
        let cut = document.problem.expect("a problem");
        assert_eq!((cut.line, cut.found.as_str()), (1, "the end of the file"));
    }

    #[test]
    fn invalid_json_is_reported_with_its_position() {
        let text = Text::new(b"{\"a\" 1}\n");
        let document = parse(&Cursor::new(&text));
        let error = document.problem.expect("an error");
        assert_eq!((document.value, error.line, error.column), (None, 1, 6));
        assert!(parse(&Cursor::new(&Text::new(&b"[".repeat(100_000)))).value.is_none());
    }

    #[test]
    fn lines_after_a_broken_document_are_read_by_their_importers() {
        let log = "{\"sysstat\": {\"hosts\": [\n{\"nodename\" 1}]}}\nMemTotal: 16384000 kB\nMemFree: 100 kB\nBuffers: 2 kB\n\
            Cached: 500 kB\n";
        let recording = import_texts(&[("f".to_owned(), log.into())]).expect("read").recording;
        assert!(recording.table(Table::Meminfo).is_some());
        let summary = recording.header.import.expect("a summary");
        assert_eq!((summary.not_understood_lines(), summary.used_lines()), (2, 4), "{summary:?}");
    }
}
