//! Parts of a log that no rule judges. An idle `vmstat` beside them says nothing about them.

use super::{Matter, View};
use crate::Evidence;
use crate::facts::Facts;
use crate::sums::total;
use flatwater_recording::FormatKind;

/// The lines that were understood but not judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Unjudged {
    pub share: f64,
    lines: u64,
    of: u64,
    formats: Vec<String>,
}

impl Unjudged {
    /// This as one sentence.
    #[must_use]
    pub fn evidence(&self) -> Evidence {
        let text = format!(
            "{} of {} lines ({}) are figures that no rule judges",
            self.lines,
            self.of,
            self.formats.join(", ")
        );
        Evidence::new(text, self.share * 100.0, "%")
    }
}

/// The lines that no rule judges; `None` if rules judge all lines. A format counts as judged if its figures excluded or
/// suggested something.
#[must_use]
pub fn unjudged(facts: &Facts<'_>, view: &View) -> Option<Unjudged> {
    let import = facts.recording.header.import.as_ref()?;
    let about = |matter: Matter| view.excluded.iter().chain(&view.suspicious).any(|shown| shown.matter == matter);
    let judged = |kind: FormatKind| match kind {
        FormatKind::Group => about(Matter::Cgroup),
        FormatKind::TimedRequests => about(Matter::Calls) || super::of_requests(facts.recording).is_some(),
        FormatKind::ServerLog | FormatKind::TimedCalls => about(Matter::Calls),
        FormatKind::DeviceState => view.suspicious.iter().any(|shown| shown.matter == Matter::Device),
        FormatKind::Unjudged => false,
        _ => true,
    };
    let of = total(import.formats.iter().map(|read| read.lines));
    let parts: Vec<_> = import.formats.iter().filter(|read| !judged(read.kind)).collect();
    let lines = total(parts.iter().map(|read| read.lines));
    let mut formats: Vec<String> = parts.iter().map(|read| read.format.clone()).collect();
    formats.dedup();
    // If the log contains nothing else, the exclusions came from these figures.
    (lines > 0 && lines < of).then(|| Unjudged { share: lines as f64 / of as f64, lines, of, formats })
}
