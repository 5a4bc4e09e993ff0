//! Parts of a paste about which no rule says whether they are well: an idle `vmstat` beside them proves nothing of them.

use super::{Matter, View};
use crate::Evidence;
use crate::facts::Facts;

/// Formats whose figures show trouble where a rule finds it, and nothing where none does.
const FORMATS: &[&str] = &[
    "slabtop",
    "slabinfo",
    "buddyinfo",
    "numactl",
    "numastat",
    "zoneinfo",
    "proc-vmstat",
    "vmstat-modes",
    "cgroup",
    "cgroup-files",
    "docker-stats",
    "container-state",
    "kubectl-top",
    "kube-events",
    "application-log",
    "bcc-table",
    "cpu-profile",
    "zpool-status",
    "ceph-health",
    "mdstat",
    "smart",
    "perf-lock",
    "informix",
    "postgresql",
    "redis-latency",
    "rocksdb-log",
];

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
    let judged = |format: &str| match format {
        "cgroup" | "cgroup-files" | "docker-stats" => about(Matter::Cgroup),
        // Requests that were timed at a device.
        "bcc-table" => about(Matter::Calls) || super::of_requests(facts.recording).is_some(),
        "application-log" | "postgresql" | "redis-latency" | "perf-lock" => about(Matter::Calls),
        "smart" | "mdstat" | "ceph-health" => view.suspicious.iter().any(|shown| shown.matter == Matter::Device),
        _ => false,
    };
    let of: u64 = import.formats.iter().map(|read| read.lines).sum();
    let parts = import.formats.iter().filter(|read| FORMATS.contains(&read.format.as_str()) && !judged(&read.format));
    let parts: Vec<_> = parts.collect();
    let lines: u64 = parts.iter().map(|read| read.lines).sum();
    let mut formats: Vec<String> = parts.iter().map(|read| read.format.clone()).collect();
    formats.dedup();
    // Of a paste that holds nothing else, what was excluded was excluded by these figures.
    (lines > 0 && lines < of).then(|| Unjudged { share: lines as f64 / of as f64, lines, of, formats })
}
