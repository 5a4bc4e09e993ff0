//! Reads JSON inside logs: finds the document at the cursor and reads it even if its end is missing.

use serde_json::Value;

use super::builder::Builder;
use super::error::ImportError;
use super::text::{Cursor, Line};

/// One document, and the problem if its end was missing and had to be added.
pub struct Document {
    pub value: Value,
    pub cut: Option<ImportError>,
}

/// Scores a document that has this key in its first three lines.
pub fn detect(cursor: &Cursor<'_>, key: &str) -> u8 {
    let begins = cursor.next_text().trim_start().starts_with('{');
    let named = (0..3).filter_map(|ahead| cursor.ahead(ahead)).any(|line| line.text.contains(key));
    if begins && named { 95 } else { 0 }
}

/// The document at the cursor. Reports a missing end as a problem.
pub fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<Value, ImportError> {
    let document = take(cursor)?;
    if let Some(cut) = document.cut {
        b.problem(cut);
    }
    Ok(document.value)
}

/// Reads the document at the cursor and consumes its lines. If it was cut off, keeps all complete elements.
pub fn take(cursor: &mut Cursor<'_>) -> Result<Document, ImportError> {
    let Some(first) = cursor.peek() else {
        return Ok(Document { value: Value::Null, cut: None });
    };
    let rest = cursor.rest().trim_end();
    let mut stream = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
    let parsed = stream.next();
    let offset = stream.byte_offset();
    match parsed {
        Some(Ok(value)) => {
            let lines = rest.get(..offset).unwrap_or_default().matches('\n').count();
            cursor.take_lines(lines + 1);
            Ok(Document { value, cut: None })
        }
        Some(Err(error)) => {
            let problem = place(&first, &error);
            let mended = mended(rest).and_then(|text| serde_json::from_str(&text).ok());
            cursor.take_lines(usize::MAX);
            mended.map(|value| Document { value, cut: Some(problem.clone()) }).ok_or(problem)
        }
        None => {
            cursor.take();
            Ok(Document { value: Value::Null, cut: None })
        }
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

/// The text up to its last complete element, with the open brackets closed.
fn mended(text: &str) -> Option<String> {
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
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::take;
    use crate::text::{Cursor, Text};

    #[test]
    fn a_cut_document_keeps_its_complete_elements() {
        let text = Text::new(b"{\"a\": [1, 2, {\"b\": \"x,y]\", \"c\": 3");
        let document = take(&mut Cursor::new(&text)).expect("the complete elements");
        assert_eq!(document.value.to_string(), r#"{"a":[1,2,{"b":"x,y]"}]}"#);
        let cut = document.cut.expect("a problem");
        assert_eq!((cut.line, cut.found.as_str()), (1, "the end of the file"));
    }

    #[test]
    fn invalid_json_is_reported_with_its_position() {
        let text = Text::new(b"{\"a\" 1}\n");
        let error = take(&mut Cursor::new(&text)).err().expect("an error");
        assert_eq!((error.line, error.column), (1, 6));
        assert!(take(&mut Cursor::new(&Text::new(&b"[".repeat(100_000)))).is_err());
    }
}
