//! Prints one self-contained page that works offline: text and tables as HTML, and typed JSON from which the bundled
//! script (`web/`) draws charts and slow calls. The page can load nothing: its content security policy allows one
//! script and one style, by hash.

mod calls;
mod chain;
mod chart;
mod element;
mod log;
mod machine;
mod page;
mod payload;
mod plain;
mod sampled;
mod sections;
mod thin;
mod versus;
mod whatif;

use super::{Format, Options, ReportError};
use flatwater_explain::Explanation;
use flatwater_recording::Recording;

pub use payload::Payload;
pub use plain::{PlainPage, PlainTable, plain_page};
pub use versus::{comparison_page, verification_page};
pub use whatif::page as whatif_page;

pub const FORMAT: Format = Format {
    name: "html",
    sentence: "One self-contained page: findings, charts on one time axis, every slow call's timeline.",
    render,
};

fn render(recording: &Recording, explanation: &Explanation, _options: &Options) -> Result<String, ReportError> {
    Ok(page::page(recording, explanation, &payload(recording, explanation)))
}

/// The data for the page's script. Public for the test that compares it with `web/src/payload.ts`.
#[must_use]
pub fn payload(recording: &Recording, explanation: &Explanation) -> Payload {
    let palette = payload::Palette::of(explanation);
    Payload {
        version: 1,
        duration_s: payload::Figure::seconds(recording.header.duration_ns),
        wall_start_ms: wall_start_ms(recording),
        charts: chart::all(recording, explanation, &palette),
        marks: chart::marks(recording),
        calls: calls::calls(recording, &palette),
        causes: palette.names().map(str::to_owned).collect(),
    }
}

fn wall_start_ms(recording: &Recording) -> Option<payload::Figure> {
    let clock = &recording.header.clock;
    let wall_ns = i128::from(clock.start_ns) + i128::from(clock.wall_offset_ns?);
    Some(payload::Figure((wall_ns / 1_000_000) as f64))
}
