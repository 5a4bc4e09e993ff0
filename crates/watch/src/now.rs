//! Who waits and who makes them wait, over the last seconds: the table that `flatwater top` shows.

use std::collections::BTreeMap;

use flatwater_recording::printable;
use serde::{Deserialize, Serialize};

use crate::second::{OwnedCall, Second};

/// Slow calls that are alike.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Row {
    /// Who waits: container, unit or cgroup, and program.
    pub cgroup: String,
    pub program: String,
    pub operation: String,
    /// Empty where no request of theirs was seen.
    pub device: String,
    /// What most of the time went to.
    pub cause: String,
    /// Who most of the time is charged to; empty where nobody was seen.
    pub by_cgroup: String,
    pub by_program: String,
    pub calls: u64,
    pub stall_ns: u64,
    /// Of that, what is charged to `by_program`.
    pub by_ns: u64,
    pub worst_ns: u64,
    /// Of `calls` those that have not ended: `worst_ns` has their time so far.
    pub hanging: u64,
}

/// What is known now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Now {
    pub version: u32,
    /// How long the rows reach back.
    pub span_ns: u64,
    pub threshold_ns: u64,
    /// False: no call can be seen, which is not the same as quiet.
    pub calls_seen: bool,
    /// Whether system calls are hooked, so that times are exact.
    pub exact: bool,
    pub own_cpu_ratio: f64,
    pub shed: String,
    pub rows: Vec<Row>,
    /// Rows beyond the most that are told.
    pub rows_left_out: u64,
}

/// The most rows that are told, those with the most stall time first.
const ROWS_MAX: usize = 200;
/// How far back `top` looks.
pub const SPAN_NS: u64 = 10_000_000_000;

type Key = [String; 7];

/// The rows of the seconds that ended within the span.
#[must_use]
pub fn rows<'a>(seconds: impl Iterator<Item = &'a Second>, now_ns: u64) -> (Vec<Row>, u64) {
    let recent: Vec<&Second> = seconds.filter(|second| second.end_ns.saturating_add(SPAN_NS) >= now_ns).collect();
    let mut sums: BTreeMap<Key, Row> = BTreeMap::new();
    let ended = recent.iter().flat_map(|second| &second.calls);
    for owned in ended.chain(recent.last().into_iter().flat_map(|second| &second.under_way)) {
        let row = row_of(owned);
        let Row { cgroup, program, operation, device, cause, by_cgroup, by_program, .. } = row.clone();
        let sum = sums
            .entry([cgroup, program, operation, device, cause, by_cgroup, by_program])
            .or_insert_with(|| Row { calls: 0, stall_ns: 0, by_ns: 0, worst_ns: 0, hanging: 0, ..row.clone() });
        sum.calls += 1;
        sum.stall_ns = sum.stall_ns.saturating_add(row.stall_ns);
        sum.by_ns = sum.by_ns.saturating_add(row.by_ns);
        sum.worst_ns = sum.worst_ns.max(row.worst_ns);
        sum.hanging += row.hanging;
    }
    let mut rows: Vec<Row> = sums.into_values().collect();
    // The keys are in order already, so that rows of the same time keep their places.
    rows.sort_by_key(|row| std::cmp::Reverse(row.stall_ns));
    let left_out = rows.len().saturating_sub(ROWS_MAX) as u64;
    rows.truncate(ROWS_MAX);
    (rows, left_out)
}

fn row_of(owned: &OwnedCall) -> Row {
    let cause = owned.call.by_cause().into_iter().max_by_key(|(_, ns)| *ns);
    let by = owned.aggressors.first();
    let clean = |name: &str| printable::line(name).into_owned();
    Row {
        cgroup: clean(owned.owner.name()),
        program: clean(&owned.owner.program),
        operation: owned.call.op.name().to_owned(),
        device: owned.device.as_deref().map(clean).unwrap_or_default(),
        cause: cause.map_or_else(String::new, |(cause, _)| cause.name().to_owned()),
        by_cgroup: by.map_or_else(String::new, |share| clean(share.who.name())),
        by_program: by.map_or_else(String::new, |share| clean(&share.who.program)),
        calls: 1,
        // What has hung for an hour has stalled within the span for no longer than that.
        stall_ns: if owned.call.still_under_way { owned.call.duration_ns.min(SPAN_NS) } else { owned.call.duration_ns },
        by_ns: by.map_or(0, |share| share.ns),
        worst_ns: owned.call.duration_ns,
        hanging: u64::from(owned.call.still_under_way),
    }
}

#[cfg(test)]
mod tests {
    use super::{ROWS_MAX, SPAN_NS, rows};
    use crate::aggressor::Share;
    use crate::owner::Owner;
    use crate::second::{OwnedCall, Second};
    use crate::sight::tests::call;

    const MS: u64 = 1_000_000;

    fn of(program: &str, ms: u64, by: &[(&str, u64)]) -> OwnedCall {
        let named = |program: &str| Owner { program: program.into(), ..Owner::default() };
        let share = |(name, ms): &(&str, u64)| Share { who: named(name), ns: ms * MS };
        let aggressors = by.iter().map(share).collect();
        OwnedCall { aggressors, ..OwnedCall::new(call(0, ms * MS), named(program)) }
    }

    #[test]
    fn calls_that_are_alike_are_one_row_and_the_worst_comes_first() {
        let calls = vec![of("pg", 20, &[("dd", 15)]), of("pg", 60, &[("dd", 50), ("cp", 5)]), of("sh", 7, &[])];
        let second = Second { end_ns: 50, calls, ..Second::default() };
        let (rows, left_out) = rows([&second].into_iter(), 60);
        assert_eq!((rows.len(), left_out), (2, 0));
        let first = &rows[0];
        assert_eq!((first.program.as_str(), first.by_program.as_str(), first.calls), ("pg", "dd", 2));
        assert_eq!((first.stall_ns, first.by_ns, first.worst_ns), (80 * MS, 65 * MS, 60 * MS));
    }

    #[test]
    fn what_hangs_is_shown_once_with_its_time_so_far() {
        let hanging = |at_s: u64| {
            let mut owned = of("mail", at_s * 1_000, &[]);
            owned.call.still_under_way = true;
            Second { end_ns: at_s * 1_000 * MS, under_way: vec![owned], ..Second::default() }
        };
        let seconds: Vec<Second> = (3_590..3_600).map(hanging).collect();
        let (rows, _) = rows(seconds.iter(), 3_599_000 * MS);
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].calls, rows[0].hanging, rows[0].stall_ns), (1, 1, SPAN_NS));
        assert_eq!(rows[0].worst_ns, 3_599_000 * MS);
    }

    #[test]
    fn what_is_older_than_the_span_is_gone_and_names_cannot_move_a_cursor() {
        let old = Second { end_ns: 1, calls: vec![of("old", 20, &[])], ..Second::default() };
        let new = Second { end_ns: SPAN_NS * 2, calls: vec![of("\u{1b}[2Jevil", 20, &[])], ..Second::default() };
        let (rows, _) = rows([&old, &new].into_iter(), SPAN_NS * 2);
        assert_eq!(rows.len(), 1);
        assert!(rows[0].program.contains("evil") && !rows[0].program.contains('\u{1b}'), "{rows:?}");
    }

    #[test]
    fn there_are_never_more_rows_than_a_screen_can_use() {
        let calls = (0..500).map(|at| of(&format!("p{at}"), at + 1, &[])).collect();
        let second = Second { end_ns: 50, calls, ..Second::default() };
        let (rows, left_out) = rows([&second].into_iter(), 60);
        assert_eq!((rows.len(), left_out), (ROWS_MAX, 300));
    }
}
