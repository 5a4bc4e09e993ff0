//! The verdict on a pair of a call and a neighbour.

use super::plan::{Load, Operation, described};
use super::statistic::Comparison;

described! {
    /// How far the calls are isolated from the neighbour.
    Verdict {
        Isolated = "isolated", "isolated";
        NotProven = "not-proven", "not proven";
        Degraded = "degraded", "degraded";
        Severe = "severe", "severe";
    }
}

/// Calls that become slower by less than this factor count as isolated.
const DEGRADED_RATIO: f64 = 2.0;
/// The interval of a degraded call excludes this factor.
const DEGRADED_LOW: f64 = 1.25;
const SEVERE_RATIO: f64 = 10.0;
/// The interval of a severe call excludes this factor.
const SEVERE_LOW: f64 = 2.0;
/// A growth below this does not matter: the machine's interrupts and hypervisor cost as much.
const GROWTH_MIN_NS: u64 = 200_000;
const SEVERE_GROWTH_MIN_NS: u64 = 5_000_000;
/// A growth of the slowest calls below this does not matter: they are few, and one interrupt adds as much.
const TAIL_GROWTH_MIN_NS: u64 = 1_000_000;

/// What the neighbour could not reach within its limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// Its dirty pages reached the kernel's limit, or the file system has none.
    pub dirty_limit: bool,
    /// Its reads displaced pages of others.
    pub evicts: bool,
}

/// The verdict, and the reason if it is not proven.
#[must_use]
pub fn judge(
    operation: Operation,
    load: Load,
    found: Option<&Comparison>,
    reach: Reach,
) -> (Verdict, Option<&'static str>) {
    let Some(found) = found else { return (Verdict::NotProven, Some("too few calls were made in the phases")) };
    let verdict = by_figures(found);
    if verdict != Verdict::Isolated {
        let why = if found.ratio.is_none() { "fewer than three rounds fit into the time" } else { WIDE };
        return (verdict, (verdict == Verdict::NotProven).then_some(why));
    }
    let [alone_ns, beside_ns] = found.tail_ns;
    let grew_ns = beside_ns.saturating_sub(alone_ns);
    if grew_ns >= TAIL_GROWTH_MIN_NS && beside_ns as f64 >= DEGRADED_RATIO * alone_ns as f64 {
        return (Verdict::NotProven, Some(TAIL));
    }
    // A bounded neighbour proves isolation only from what it did.
    match (operation, load) {
        (Operation::Append, Load::Dirty) if !reach.dirty_limit => (Verdict::NotProven, Some(DIRTY_LIMIT)),
        (Operation::CachedRead, Load::Cache) if !reach.evicts => (Verdict::NotProven, Some(EVICTS)),
        _ => (Verdict::Isolated, None),
    }
}

const WIDE: &str = "the interval excludes neither isolation nor harm: probe longer, or when the machine is quieter";
const TAIL: &str = "the slowest one in a hundred calls became twice as slow, which too few calls prove: probe again";
const DIRTY_LIMIT: &str = "the neighbour stayed below the limit of dirty pages, at which the kernel pauses writers; \
    --apply lowers it";
const EVICTS: &str =
    "free memory took all pages of the neighbour, so nothing was evicted; --cgroup names a cgroup with a memory limit";

fn by_figures(found: &Comparison) -> Verdict {
    let Some(ratio) = found.ratio else { return Verdict::NotProven };
    let grown = found.growth_ns() >= GROWTH_MIN_NS;
    if found.growth_max_ns() < GROWTH_MIN_NS as f64 || ratio.high < DEGRADED_RATIO {
        Verdict::Isolated
    } else if ratio.value >= SEVERE_RATIO && ratio.low > SEVERE_LOW && found.growth_ns() >= SEVERE_GROWTH_MIN_NS {
        Verdict::Severe
    } else if grown && ratio.value >= DEGRADED_RATIO && ratio.low > DEGRADED_LOW {
        Verdict::Degraded
    } else {
        Verdict::NotProven
    }
}

/// The verdict on all pairs: harm if any was found, isolation only if each pair is isolated.
#[must_use]
pub fn overall(verdicts: impl IntoIterator<Item = Verdict>) -> Verdict {
    verdicts.into_iter().max().unwrap_or(Verdict::NotProven)
}

#[cfg(test)]
mod tests {
    use flatwater_experiment::verdict::Ratio;

    use super::{Reach, Verdict, judge, overall};
    use crate::plan::{Load, Operation};
    use crate::statistic::Comparison;

    fn found(alone_ns: u64, ratio: Option<(f64, f64, f64)>) -> Comparison {
        let value = ratio.map_or(1.0, |(value, _, _)| value);
        Comparison {
            quantile: 0.95,
            tail_ns: [alone_ns, alone_ns],
            alone_ns,
            beside_ns: (alone_ns as f64 * value) as u64,
            ratio: ratio.map(|(value, low, high)| Ratio { value, low, high }),
            rounds: 6,
            alone_calls: 1000,
            beside_calls: 1000,
        }
    }

    fn verdict(alone_ns: u64, value: f64, low: f64, high: f64) -> Verdict {
        judge(Operation::Fsync, Load::Dirty, Some(&found(alone_ns, Some((value, low, high)))), Reach::default()).0
    }

    #[test]
    fn ratio_interval_and_growth_decide() {
        const MS: u64 = 1_000_000;
        assert_eq!(verdict(2 * MS, 1.1, 0.9, 1.4), Verdict::Isolated);
        assert_eq!(verdict(2 * MS, 1.1, 0.5, 2.4), Verdict::NotProven, "the interval allows a factor of 2.4");
        assert_eq!(verdict(2 * MS, 3.0, 1.5, 6.0), Verdict::Degraded);
        assert_eq!(verdict(2 * MS, 3.0, 1.0, 9.0), Verdict::NotProven, "the interval allows no harm");
        assert_eq!(verdict(2 * MS, 30.0, 5.0, 180.0), Verdict::Severe);
        assert_eq!(verdict(2 * MS, 30.0, 1.5, 600.0), Verdict::Degraded, "severe is not proven");
        assert_eq!(verdict(10_000, 8.0, 4.0, 16.0), Verdict::Isolated, "less than 0.2 ms slower");
        assert_eq!(verdict(10_000, 60.0, 20.0, 180.0), Verdict::Degraded, "less than 5 ms slower");
    }

    #[test]
    fn calls_whose_slowest_became_slower_are_not_proven_to_be_isolated() {
        let quiet = found(2_000_000, Some((1.0, 0.8, 1.2)));
        let tail = |beside_ns| Comparison { tail_ns: [2_000_000, beside_ns], ..quiet.clone() };
        let of = |beside_ns| judge(Operation::Fsync, Load::Dirty, Some(&tail(beside_ns)), Reach::default()).0;
        assert_eq!([of(2_900_000), of(9_000_000)], [Verdict::Isolated, Verdict::NotProven]);
    }

    #[test]
    fn a_verdict_without_calls_or_rounds_is_not_proven() {
        let none = judge(Operation::Read, Load::Cache, None, Reach::default());
        assert!(none.0 == Verdict::NotProven && none.1.is_some());
        let few = judge(Operation::Read, Load::Cache, Some(&found(1_000, None)), Reach::default());
        assert!(few.0 == Verdict::NotProven && few.1.is_some());
    }

    #[test]
    fn isolation_needs_a_neighbour_that_reached_the_limit() {
        let quiet = found(10_000, Some((1.0, 0.8, 1.2)));
        for (operation, load, reach, wanted) in [
            (Operation::Append, Load::Dirty, Reach::default(), Verdict::NotProven),
            (Operation::Append, Load::Dirty, Reach { dirty_limit: true, evicts: false }, Verdict::Isolated),
            (Operation::Append, Load::Fsync, Reach::default(), Verdict::Isolated),
            (Operation::CachedRead, Load::Cache, Reach::default(), Verdict::NotProven),
            (Operation::CachedRead, Load::Cache, Reach { dirty_limit: false, evicts: true }, Verdict::Isolated),
            (Operation::Read, Load::Cache, Reach::default(), Verdict::Isolated),
        ] {
            let (verdict, why) = judge(operation, load, Some(&quiet), reach);
            assert_eq!((verdict, why.is_some()), (wanted, wanted == Verdict::NotProven), "{operation:?} {load:?}");
        }
    }

    #[test]
    fn harm_outweighs_what_is_not_proven_and_that_isolation() {
        assert_eq!(overall([Verdict::Isolated, Verdict::Isolated]), Verdict::Isolated);
        assert_eq!(overall([Verdict::Isolated, Verdict::NotProven]), Verdict::NotProven);
        assert_eq!(overall([Verdict::Degraded, Verdict::NotProven]), Verdict::Degraded);
        assert_eq!(overall([Verdict::Severe, Verdict::Degraded]), Verdict::Severe);
        assert_eq!(overall([]), Verdict::NotProven);
    }
}
