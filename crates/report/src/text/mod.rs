//! Prints the summary for a terminal, 80 columns wide: latencies, findings with fixes, gaps.

mod paint;
mod sections;
mod table;

use super::{Format, Options, ReportError, facts, tables};
use flatwater_explain::Explanation;
use flatwater_recording::Recording;
use paint::Page;
pub use paint::{hanging, wrap as wrapped};

pub const FORMAT: Format =
    Format { name: "text", sentence: "The summary for a terminal: latencies, causes, findings, gaps.", render };

fn render(recording: &Recording, explanation: &Explanation, options: &Options) -> Result<String, ReportError> {
    let mut page = Page::new(options.width, options.colour);
    sections::heading(&mut page, &recording.header);
    sections::lead(&mut page, explanation);
    let notes_first = facts::notes_first(&recording.header);
    if notes_first {
        sections::notes(&mut page, &recording.header, explanation);
    }
    sections::read(&mut page, &recording.header);
    sections::victims(&mut page, explanation);
    sections::operations(&mut page, explanation);
    sections::slow(&mut page, recording, explanation);
    sections::findings(&mut page, &recording.header, explanation);
    for outcome in tables::of_workloads(recording, &explanation.workload) {
        table::print(&mut page, &outcome);
    }
    sections::floor_and_cost(&mut page, &recording.header, explanation);
    sections::losses(&mut page, &recording.header, explanation);
    sections::gaps(&mut page, explanation);
    if !notes_first {
        sections::notes(&mut page, &recording.header, explanation);
    }
    Ok(page.finish())
}
