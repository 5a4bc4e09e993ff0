//! JSON inside logs: found at the cursor, read even if its end is missing.

use serde_json::Value;

use super::builder::Builder;
use super::error::ImportError;
use super::text::{Cursor, Line};

/// One document, and whether its end was missing and had to be supplied.
pub struct Document {
    pub value: Value,
    pub cut: Option<ImportError>,
}

/// How surely a document that begins at the cursor is the one with this key in its first lines.
pub fn detect(cursor: &Cursor<'_>, key: &str) -> u8 {
    let begins = cursor.next_text().trim_start().starts_with('{');
    let named = (0..3).filter_map(|ahead| cursor.ahead(ahead)).any(|line| line.text.contains(key));
    if begins && named { 95 } else { 0 }
}

/// The document at the cursor; that its end was missing is a problem of the import.
pub fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<Value, ImportError> {
    let document = take(cursor)?;
    if let Some(cut) = document.cut {
        b.problem(cut);
    }
    Ok(document.value)
}

/// Reads the document at the cursor and takes its lines. Of one that was cut off, all complete elements are kept.
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

/// The text up to its last complete element, with the brackets that are open closed.
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
            // Before a comma an element is complete.
            ',' => safe = Some((at, open.clone())),
            _ => {}
        }
        // Deeper than serde_json reads.
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
    fn a_cut_document_keeps_what_was_complete() {
        let text = Text::new(b"{\"a\": [1, 2, {\"b\": \"x,y]\", \"c\": 3");
        let document = take(&mut Cursor::new(&text)).expect("mended");
        assert_eq!(document.value.to_string(), r#"{"a":[1,2,{"b":"x,y]"}]}"#);
        let cut = document.cut.expect("a problem");
        assert_eq!((cut.line, cut.found.as_str()), (1, "the end of the file"));
    }

    #[test]
    fn what_is_no_json_has_a_place() {
        let text = Text::new(b"{\"a\" 1}\n");
        let error = take(&mut Cursor::new(&text)).err().expect("an error");
        assert_eq!((error.line, error.column), (1, 6));
        assert!(take(&mut Cursor::new(&Text::new(&b"[".repeat(100_000)))).is_err());
    }
}
