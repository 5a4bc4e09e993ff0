//! How often a memory cgroup reached a limit, from counters alone.

use super::cause::CauseId;
use super::facts::Facts;
use super::{Evidence, Finding};
use flatwater_recording::Table;
use flatwater_recording::schema::Column;

/// How often a cgroup reached a bound.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitHits {
    pub path: String,
    pub times: i64,
    /// Whether the count is of the recorded time. A single reading counts since the cgroup was created.
    pub while_recorded: bool,
}

impl Facts<'_> {
    /// The cgroup that reached a bound most often; `bound` is the counter of that bound.
    #[must_use]
    pub fn limit_hits_most(&self, bound: Column) -> Option<LimitHits> {
        let table = self.recording.table(Table::Cgroup)?;
        let each = table.by_entity().filter_map(|(entity, rows)| {
            let rise = rows.rise(bound);
            let times = rise.or_else(|| rows.last(bound)).filter(|times| *times > 0)?;
            Some(LimitHits { path: entity.name.clone(), times, while_recorded: rise.is_some() })
        });
        each.max_by_key(|matched| (matched.while_recorded, matched.times))
    }
}

impl LimitHits {
    /// A finding from this count alone; `what` says what happened, as in `reached its limit`.
    #[must_use]
    pub fn finding(&self, cause: CauseId, headline: &str, what: &str) -> Finding {
        let path = if self.path.is_empty() { "the cgroup" } else { &self.path };
        let when = if self.while_recorded { "while it was recorded" } else { "since it was created" };
        let text = format!("{path} {what} {} times {when}", self.times);
        let finding = Finding::inferred(cause, if self.while_recorded { 0.6 } else { 0.4 }, headline);
        let finding = finding.with([Evidence::new(text, self.times as f64, "")]);
        if self.while_recorded {
            return finding;
        }
        finding
            .but([Evidence::statement(
                "a single reading counts since the cgroup was created, which may have been long ago",
            )])
            .settle("read memory.events and memory.pressure of the cgroup twice, a minute apart, while it is slow")
    }
}

#[cfg(test)]
mod tests {
    use crate::cause::{memcg_over_high, memcg_reclaim};
    use crate::testing::{RecordingBuilder, evidence_text};
    use flatwater_recording::{Entity, OpKind, Table};

    fn events(column: &str, values: &[i64]) -> RecordingBuilder {
        RecordingBuilder::new().counters(Table::Cgroup, &Entity::named("/db"), &[(column, values)])
    }

    #[test]
    fn a_reached_limit_is_suspected_and_less_so_from_one_reading() {
        let twice = events("events_max", &[100, 900]).found(&memcg_reclaim::ENTRY).expect("800 times");
        assert!(evidence_text(&twice).contains("/db reached its limit 800 times while"), "{}", evidence_text(&twice));
        let once = events("events_high", &[182_733]).found(&memcg_over_high::ENTRY).expect("some time");
        assert!(once.weight < twice.weight && once.settle.contains("twice") && !once.against.is_empty());
        assert!(events("events_max", &[5, 5]).found(&memcg_reclaim::ENTRY).is_none(), "it does not rise");
    }

    #[test]
    fn fast_calls_contradict_a_reached_limit() {
        let timed = events("events_max", &[100, 900]).bucket("", OpKind::Write, &[2_000; 1000]);
        assert!(timed.found(&memcg_reclaim::ENTRY).is_none());
    }
}
