//! One self-contained page.
use super::{Format, Options, ReportError};
use crate::explain::Explanation;
use crate::recording::Recording;

pub const FORMAT: Format = Format { name: "html", sentence: "One self-contained page that works offline.", render };

fn render(_recording: &Recording, _explanation: &Explanation, _options: &Options) -> Result<String, ReportError> {
    Ok(include_str!(concat!(env!("OUT_DIR"), "/report.csp")).to_owned())
}
