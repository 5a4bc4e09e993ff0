//! Parts of a paste about which no rule says whether they are well: an idle `vmstat` beside them proves nothing of them.

use super::{Matter, View};
use crate::Evidence;
use crate::facts::Facts;
use flatwater_recording::FormatKind;

/// How much of the lines that were understood are such figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Unjudged {
    pub share: f64,
    lines: u64,
    of: u64,
    formats: Vec<String>,
}

impl Unjudged {
    /// One sentence of it.
    #[must_use]
    pub fn evidence(&self) -> Evidence {
        let text = format!(
            "{} of {} lines ({}) are figures about which no rule says whether they are well",
            self.lines,
            self.of,
            self.formats.join(", ")
        );
        Evidence::new(text, self.share * 100.0, "%")
    }
}

/// The part of the paste that nobody judges; `None` where there is none. A format is judged where its figures have excluded
/// something, or spoken for something.
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
    let of: u64 = import.formats.iter().map(|read| read.lines).sum();
    let parts: Vec<_> = import.formats.iter().filter(|read| !judged(read.kind)).collect();
    let lines: u64 = parts.iter().map(|read| read.lines).sum();
    let mut formats: Vec<String> = parts.iter().map(|read| read.format.clone()).collect();
    formats.dedup();
    // Of a paste that holds nothing else, what was excluded was excluded by these figures.
    (lines > 0 && lines < of).then(|| Unjudged { share: lines as f64 / of as f64, lines, of, formats })
}
