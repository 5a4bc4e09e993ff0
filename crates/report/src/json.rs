//! Prints the explanation as JSON, as `docs/json.md` documents it: the form is that of `Explanation`.

use super::{Format, Options, ReportError};
use flatwater_explain::Explanation;
use flatwater_recording::{Recording, printable};

pub const FORMAT: Format = Format { name: "json", sentence: "The explanation as JSON, a published contract.", render };

fn render(_recording: &Recording, explanation: &Explanation, _options: &Options) -> Result<String, ReportError> {
    let mut text = escaped(&serde_json::to_string_pretty(explanation).expect("an explanation has string keys only"));
    text.push('\n');
    Ok(text)
}

/// Escapes control characters that a terminal obeys, as JSON escapes, so that nothing is lost. Outside strings only
/// line breaks occur.
fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match u32::from(c) {
            code if printable::is_hostile(c) && c != '\n' => out.push_str(&format!("\\u{code:04x}")),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn terminal_escapes_are_escaped_and_decode_to_the_same_string() {
        let name = "a\u{1b}[2J\u{9b}x\u{202e}gpj\u{7f}";
        let json = escaped(&serde_json::to_string_pretty(&vec![name]).expect("a list"));
        assert!(json.chars().all(|c| c == '\n' || !flatwater_recording::printable::is_hostile(c)), "{json:?}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&json).expect("JSON"), [name]);
    }
}
