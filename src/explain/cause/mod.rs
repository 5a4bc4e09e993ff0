//! The catalogue: one file per cause, each with its mechanism, its signature and its fix.

use super::Finding;
use crate::recording::{Cause, Recording};

/// All that is known about one cause; `flatwater causes NAME` prints it.
#[derive(Clone, Copy)]
pub struct CauseEntry {
    pub name: &'static str,
    /// The time cause of this name, if parts of calls can carry it; counter-only causes have none.
    pub span: Option<Cause>,
    /// One line.
    pub headline: &'static str,
    /// What the kernel does and why the writer pays, with functions, files and versions.
    pub mechanism: &'static str,
    /// Which kernels can show it.
    pub kernels: &'static str,
    /// How it looks in the parts of slow calls; empty if it cannot be seen there.
    pub in_spans: &'static str,
    /// How it looks in counters alone.
    pub in_counters: &'static str,
    /// What speaks against it.
    pub against: &'static str,
    /// What to change.
    pub fix: &'static str,
    /// How to prove that it was this and that the fix helped.
    pub prove: &'static str,
    pub sources: &'static [&'static str],
    /// Looks for it in a recording. Must not panic on any recording.
    pub find: fn(&Recording) -> Option<Finding>,
}

impl std::fmt::Debug for CauseEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CauseEntry").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Every cause there is. Adding one is its file and its line here.
pub const CAUSES: &[CauseEntry] = &[];

#[must_use]
pub fn find(name: &str) -> Option<&'static CauseEntry> {
    CAUSES.iter().find(|entry| entry.name == name)
}
