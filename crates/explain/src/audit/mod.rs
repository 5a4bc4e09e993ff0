//! The audit of a host's settings for `flatwater check`: settings that can cause stalls, the proposed values, and
//! what the counters since boot say. It changes nothing.
//!
//! The snapshot is a `Recording` with one row in each table, so that its counters are totals since boot.

mod io;
mod memory;

use flatwater_recording::knob::Key;
use flatwater_recording::short_sort::ShortSort;
use serde::Serialize;

use super::{CauseId, Evidence, Fix};
use flatwater_recording::schema::{Column, meminfo, vmstat};
use flatwater_recording::{Entity, Recording, Table};

/// How serious the advice is, most serious first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weight {
    /// The counters since boot show that the setting has hurt.
    Hurts,
    /// The setting can cause a stall that has not been observed yet.
    Invites,
    /// Relevant for a latency-critical writer only.
    Hint,
}

/// Advice to change one setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// The knob's key, or the name of a file that no knob covers.
    pub setting: String,
    /// The present value.
    pub old: String,
    /// The proposed value; empty if only the user can choose.
    pub proposed: String,
    pub weight: Weight,
    /// The cause in the catalogue to which the setting leads.
    pub cause: CauseId,
    pub why: String,
    pub evidence: Vec<Evidence>,
    pub fix: Fix,
}

impl Advice {
    fn knob(snapshot: &Snapshot<'_>, key: Key, proposed: &str, cause: CauseId, why: impl Into<String>) -> Advice {
        let why = why.into();
        Advice {
            setting: key.name().to_owned(),
            old: snapshot.recording.header.setup.get(key.name()).unwrap_or("unknown").to_owned(),
            proposed: proposed.to_owned(),
            weight: Weight::Invites,
            cause,
            fix: Fix::knob(why.clone(), key, proposed),
            why,
            evidence: Vec::new(),
        }
    }

    fn with(mut self, evidence: impl IntoIterator<Item = Evidence>) -> Advice {
        self.evidence.extend(evidence);
        self
    }

    fn weight(self, weight: Weight) -> Advice {
        Advice { weight, ..self }
    }
}

/// The snapshot, with the queries that the rules share.
#[derive(Clone, Copy, Debug)]
struct Snapshot<'a> {
    recording: &'a Recording,
}

impl Snapshot<'_> {
    fn knob(&self, key: &str) -> Option<i64> {
        self.recording.header.setup.number(key)
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.recording.header.setup.get(key)
    }

    /// The total of a counter of /proc/vmstat since boot.
    fn vmstat(&self, column: Column) -> Option<i64> {
        self.recording.table(Table::Vmstat)?.rows_of(&Entity::default())?.last(column)
    }

    /// The total of allocstall since boot: since 4.10 the sum of the per-zone counters.
    fn allocstall(&self) -> Option<i64> {
        let table = self.recording.table(Table::Vmstat)?;
        let rows = table.rows_of(&Entity::default())?;
        let parts = table.columns.iter().filter(|column| vmstat::ALLOCSTALL.covers(&column.name));
        let known: Vec<i64> = parts.filter_map(|column| rows.last(&column.name)).collect();
        (!known.is_empty()).then(|| known.into_iter().fold(0, i64::saturating_add))
    }

    fn memory_bytes(&self) -> Option<f64> {
        let header = self.recording.header.machine.memory_bytes.map(|bytes| bytes as f64);
        header.or_else(|| {
            Some(self.recording.table(Table::Meminfo)?.rows_of(&Entity::default())?.last(meminfo::MEM_TOTAL_BYTES)?
                as f64)
        })
    }
}

/// All advice about this snapshot, most serious first.
#[must_use]
pub fn audit(recording: &Recording) -> Vec<Advice> {
    let snapshot = Snapshot { recording };
    let rules: [fn(&Snapshot<'_>) -> Vec<Advice>; 9] = [
        memory::zone_reclaim,
        memory::watermarks,
        memory::vfs_cache_pressure,
        memory::huge_pages,
        memory::swap,
        memory::cgroups,
        io::dirty_limits,
        io::flusher,
        io::scheduler,
    ];
    let mut advice: Vec<Advice> = rules.into_iter().flat_map(|rule| rule(&snapshot)).collect();
    advice.sort_short_by_key(|advice| advice.weight);
    advice
}

#[cfg(test)]
mod tests;
