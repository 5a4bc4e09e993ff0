//! Prints folded stacks for flame graph tools, rooted at the cause, with nanoseconds.

use std::collections::BTreeMap;

use super::numbers::clean;
use super::{Format, Options, ReportError};
use flatwater_explain::Explanation;
use flatwater_recording::{Cause, Recording, StackId};

pub const FORMAT: Format =
    Format { name: "folded", sentence: "Kernel stacks of the stall time, rooted at the cause, in ns.", render };

fn render(recording: &Recording, _explanation: &Explanation, _options: &Options) -> Result<String, ReportError> {
    let mut sums: BTreeMap<(&'static str, Option<StackId>), u64> = BTreeMap::new();
    for segment in recording.calls.iter().flat_map(|call| &call.segments) {
        let sum = sums.entry((segment.cause.name(), segment.stack)).or_default();
        *sum = sum.saturating_add(segment.ns);
    }
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    let after_ns = recording.calls.iter().fold(0_u64, |sum, call| sum.saturating_add(call.after_exit_ns));
    if after_ns > 0 {
        lines.insert(format!("{};[after the call's return]", Cause::MemcgOverHigh.name()).replace(' ', "_"), after_ns);
    }
    for ((cause, stack), ns) in sums {
        let line = lines.entry(folded(recording, cause, stack)).or_default();
        *line = line.saturating_add(ns);
    }
    Ok(lines.iter().map(|(line, ns)| format!("{line} {ns}\n")).collect())
}

/// The outermost frame first, as the tools expect; recordings have the innermost first.
fn folded(recording: &Recording, cause: &str, stack: Option<StackId>) -> String {
    let frames = stack.and_then(|id| recording.stack(id)).map(|stack| stack.frames.as_slice()).unwrap_or_default();
    let mut line = cause.to_owned();
    if frames.is_empty() {
        line.push_str(";[no stack]");
    }
    for frame in frames.iter().rev() {
        line.push(';');
        // `;` separates frames and the last blank separates the number, so a symbol must contain neither.
        line.push_str(&clean(frame).replace([';', ' '], "_"));
    }
    line
}
