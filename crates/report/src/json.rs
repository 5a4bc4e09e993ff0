//! JSON: the explanation as `docs/json.md` publishes it. The contract is the shape of `Explanation` itself.

use super::{Format, Options, ReportError};
use flatwater_explain::Explanation;
use flatwater_recording::Recording;

pub const FORMAT: Format = Format { name: "json", sentence: "The explanation as JSON, a published contract.", render };

fn render(_recording: &Recording, explanation: &Explanation, _options: &Options) -> Result<String, ReportError> {
    let mut text = serde_json::to_string_pretty(explanation).expect("an explanation has string keys only");
    text.push('\n');
    Ok(text)
}
