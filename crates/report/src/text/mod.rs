//! Prints the summary for a terminal, 80 columns wide: latencies, findings with fixes, gaps.

mod paint;
mod sections;
mod table;

use super::{Format, Options, ReportError, facts, tables};
use flatwater_explain::Explanation;
use flatwater_recording::Recording;
use paint::Page;
pub use paint::{hanging, wrap as wrapped};
use sections::{DETAILS, Detail};

pub const FORMAT: Format =
    Format { name: "text", sentence: "The summary for a terminal: latencies, causes, findings, gaps.", render };

/// Lines of a report of one cause without the workload's own tables, and lines that each further cause may add.
const LINES: usize = 40;
const LINES_MORE: usize = 20;

/// The summary with as much detail as fits.
fn render(recording: &Recording, explanation: &Explanation, options: &Options) -> Result<String, ReportError> {
    let tables = tables::of_workloads(recording, &explanation.workload);
    let mut printed = Page::new(options.width, options.colour);
    tables.iter().for_each(|table| table::print(&mut printed, table));
    let printed = printed.finish();
    let further = explanation.findings.len().saturating_sub(1);
    let room = LINES + LINES_MORE * further + printed.lines().count();
    let mut text = String::new();
    for detail in &DETAILS {
        text = page(recording, explanation, options, &printed, detail);
        if text.lines().count() <= room {
            break;
        }
    }
    Ok(text)
}

fn page(recording: &Recording, explanation: &Explanation, options: &Options, tables: &str, detail: &Detail) -> String {
    let mut page = Page::new(options.width, options.colour);
    sections::heading(&mut page, &recording.header);
    sections::lead(&mut page, explanation);
    let notes_first = facts::notes_first(&recording.header);
    if notes_first {
        sections::notes(&mut page, &recording.header, explanation, detail);
    }
    sections::read(&mut page, &recording.header);
    sections::victims(&mut page, explanation, detail);
    sections::operations(&mut page, explanation, detail);
    sections::slow(&mut page, recording, explanation, detail);
    sections::findings(&mut page, &recording.header, explanation, detail);
    page.add(tables);
    sections::floor_and_cost(&mut page, &recording.header, explanation, detail);
    sections::losses(&mut page, &recording.header, explanation);
    sections::gaps(&mut page, explanation, detail);
    if !notes_first {
        sections::notes(&mut page, &recording.header, explanation, detail);
    }
    page.finish()
}
