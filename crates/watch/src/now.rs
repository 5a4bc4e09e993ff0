//! The table of `flatwater top`: victims and aggressors of the last seconds.

use std::collections::BTreeMap;

use flatwater_recording::printable;
use flatwater_recording::short_sort::ShortSort;
use serde::{Deserialize, Serialize};

use crate::second::{OwnedCall, Second};

/// Slow calls with the same victim, operation, device, cause and aggressor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Row {
    /// The victim's container, unit or cgroup.
    pub cgroup: String,
    pub program: String,
    pub operation: String,
    /// Empty if no request of the calls was observed.
    pub device: String,
    /// The cause of most of the time.
    pub cause: String,
    /// The aggressor that is charged with most of the time; empty if none was observed.
    pub by_cgroup: String,
    pub by_program: String,
    pub calls: u64,
    pub stall_ns: u64,
    /// The part of `stall_ns` that is charged to `by_program`.
    pub by_ns: u64,
    pub worst_ns: u64,
    /// The calls under way among `calls`; for these `worst_ns` is the time so far.
    pub hanging: u64,
}

/// The answer to `/now`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Now {
    pub version: u32,
    /// The time that the rows cover.
    pub span_ns: u64,
    pub threshold_ns: u64,
    /// Whether calls are observed. If not, an empty table does not mean quiet.
    pub calls_seen: bool,
    /// Whether system calls are hooked, so that times are exact.
    pub exact: bool,
    pub own_cpu_ratio: f64,
    pub shed: String,
    pub rows: Vec<Row>,
    /// Rows beyond `ROWS_MAX`.
    pub rows_left_out: u64,
}

/// Maximum number of rows in the answer, those with the most stall time first.
const ROWS_MAX: usize = 200;
/// How far back `top` looks.
pub const SPAN_NS: u64 = 10_000_000_000;

type Key = [String; 7];

/// The rows of seconds that ended within the span, and the number of rows left out.
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
    // The map orders rows by key, and the sort is stable: rows with equal times keep their order.
    rows.sort_short_by_key(|row| std::cmp::Reverse(row.stall_ns));
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
        // A call that has hung for an hour lost at most the span within the span.
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
    fn similar_calls_are_one_row_and_the_most_stall_time_comes_first() {
        let calls = vec![of("pg", 20, &[("dd", 15)]), of("pg", 60, &[("dd", 50), ("cp", 5)]), of("sh", 7, &[])];
        let second = Second { end_ns: 50, calls, ..Second::default() };
        let (rows, left_out) = rows([&second].into_iter(), 60);
        assert_eq!((rows.len(), left_out), (2, 0));
        let first = &rows[0];
        assert_eq!((first.program.as_str(), first.by_program.as_str(), first.calls), ("pg", "dd", 2));
        assert_eq!((first.stall_ns, first.by_ns, first.worst_ns), (80 * MS, 65 * MS, 60 * MS));
    }

    #[test]
    fn a_call_under_way_is_shown_once_with_its_time_so_far() {
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
    fn calls_older_than_the_span_are_dropped_and_names_cannot_move_a_cursor() {
        let old = Second { end_ns: 1, calls: vec![of("old", 20, &[])], ..Second::default() };
        let new = Second { end_ns: SPAN_NS * 2, calls: vec![of("\u{1b}[2Jevil", 20, &[])], ..Second::default() };
        let (rows, _) = rows([&old, &new].into_iter(), SPAN_NS * 2);
        assert_eq!(rows.len(), 1);
        assert!(rows[0].program.contains("evil") && !rows[0].program.contains('\u{1b}'), "{rows:?}");
    }

    #[test]
    fn the_number_of_rows_is_limited() {
        let calls = (0..500).map(|at| of(&format!("p{at}"), at + 1, &[])).collect();
        let second = Second { end_ns: 50, calls, ..Second::default() };
        let (rows, left_out) = rows([&second].into_iter(), 60);
        assert_eq!((rows.len(), left_out), (ROWS_MAX, 300));
    }
}
