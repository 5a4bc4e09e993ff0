//! The verdict on a pair of a call and a neighbour.

use flatwater_recording::named_enum;

use super::plan::{Load, Operation};
use super::statistic::{Comparison, UPPER};

named_enum! {
    /// How far the calls are isolated from the neighbour.
    Verdict, text {
        Isolated => "isolated", "isolated";
        NotProven => "not-proven", "not proven";
        Degraded => "degraded", "degraded";
        Severe => "severe", "severe";
    }
}

/// Calls that become slower by less than this factor count as isolated.
const DEGRADED_RATIO: f64 = 1.5;
/// The interval of a degraded call excludes this factor.
const DEGRADED_LOW: f64 = 1.25;
const SEVERE_RATIO: f64 = 10.0;
/// The interval of a severe call excludes this factor.
const SEVERE_LOW: f64 = 2.0;
/// A growth below this does not matter: the machine's interrupts and hypervisor cost as much.
const GROWTH_MIN_NS: u64 = 200_000;
const SEVERE_GROWTH_MIN_NS: u64 = 5_000_000;
/// Fewer rounds do not prove isolation.
const ISOLATED_ROUNDS_MIN: usize = 4;
/// If the slowest calls became twice as slow and grew by this, isolation is not proven. One interrupt adds as much to
/// one call in a hundred; what adds more than `LONGEST_GROWTH_MIN_NS` to a single call is not the machine's noise.
const TAIL_RATIO: f64 = 2.0;
const TAIL_GROWTH_MIN_NS: u64 = 1_000_000;
const LONGEST_GROWTH_MIN_NS: u64 = 20_000_000;

/// What the neighbour did and reached, as far as isolation depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// It runs in another cgroup, but the io or memory controller does not separate the two.
    pub shares_controller: bool,
    /// Each phase contained a load.
    pub loaded: bool,
    /// It shares a device with the victim, and the device could have taken more than a probe moves.
    pub held: bool,
    /// Its dirty pages reached the kernel's limit, or the file system has none.
    pub dirty_limit: bool,
    /// Its pages displaced pages of others.
    pub evicts: bool,
    /// It shares a journal, or what the file system has in place of one, which fills in minutes.
    pub journal: bool,
}

impl Reach {
    /// What the neighbour did not do, so that unharmed calls prove nothing.
    fn missing(self, operation: Operation, load: Load) -> Option<&'static str> {
        match (operation, load) {
            _ if self.shares_controller => Some(SHARED),
            _ if !self.loaded => Some(NO_LOAD),
            (Operation::Append, Load::Dirty) if !self.dirty_limit => Some(DIRTY_LIMIT),
            (Operation::Append, Load::Cache) | (Operation::CachedRead, Load::Cache | Load::Dirty) if !self.evicts => {
                Some(EVICTS)
            }
            (Operation::Append | Operation::Fsync, Load::SmallFiles) if self.journal => Some(JOURNAL),
            (Operation::Fsync | Operation::Read, Load::Dirty | Load::Cache) if self.held => Some(HELD),
            _ => None,
        }
    }
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
    if found.rounds < ISOLATED_ROUNDS_MIN || found.quantile < UPPER {
        return (Verdict::NotProven, Some(FEW));
    }
    if is_slower(found.tail_ns, TAIL_GROWTH_MIN_NS) || is_slower(found.longest_ns, LONGEST_GROWTH_MIN_NS) {
        return (Verdict::NotProven, Some(TAIL));
    }
    match reach.missing(operation, load) {
        Some(why) => (Verdict::NotProven, Some(why)),
        None => (Verdict::Isolated, None),
    }
}

fn is_slower([alone_ns, beside_ns]: [u64; 2], growth_min_ns: u64) -> bool {
    beside_ns.saturating_sub(alone_ns) >= growth_min_ns && beside_ns as f64 >= TAIL_RATIO * alone_ns as f64
}

const SHARED: &str = "unharmed, but the io or memory controller does not separate the two cgroups (see the notes)";
const WIDE: &str = "the interval excludes neither isolation nor harm: probe longer, or when the machine is quieter";
const FEW: &str = "unharmed, but in too few rounds or calls: give a longer -t, or one kind with --neighbour";
const TAIL: &str = "the slowest calls became twice as slow, which too few calls prove: probe again";
const NO_LOAD: &str = "unharmed, but the neighbour did too little to harm anything";
const HELD: &str = "unharmed, but the device took all that a probe moves (512 MiB/s): faster neighbours were not tried";
const JOURNAL: &str = "unharmed, but a journal fills only in minutes of such a load";
const DIRTY_LIMIT: &str =
    "unharmed, but dirty pages stayed below the limit at which the kernel pauses writers: --apply lowers it";
const EVICTS: &str = "unharmed, but free memory took all pages of the neighbour, so that nothing was evicted: \
    --cgroup names a cgroup with a memory limit";

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

    /// A neighbour that reached everything.
    const ALL: Reach =
        Reach { shares_controller: false, loaded: true, held: false, dirty_limit: true, evicts: true, journal: false };

    fn found(alone_ns: u64, ratio: Option<(f64, f64, f64)>) -> Comparison {
        let value = ratio.map_or(1.0, |(value, _, _)| value);
        Comparison {
            quantile: 0.95,
            tail_ns: [alone_ns, alone_ns],
            longest_ns: [alone_ns, alone_ns],
            alone_ns,
            beside_ns: (alone_ns as f64 * value) as u64,
            ratio: ratio.map(|(value, low, high)| Ratio { value, low, high }),
            rounds: 6,
            alone_calls: 1000,
            beside_calls: 1000,
        }
    }

    fn verdict(alone_ns: u64, value: f64, low: f64, high: f64) -> Verdict {
        judge(Operation::Fsync, Load::Dirty, Some(&found(alone_ns, Some((value, low, high)))), ALL).0
    }

    #[test]
    fn ratio_interval_and_growth_decide() {
        const MS: u64 = 1_000_000;
        assert_eq!(verdict(2 * MS, 1.1, 0.9, 1.4), Verdict::Isolated);
        assert_eq!(verdict(2 * MS, 1.4, 1.3, 1.6), Verdict::NotProven, "the interval allows a factor of 1.6");
        assert_eq!(verdict(2 * MS, 1.6, 1.3, 1.9), Verdict::Degraded);
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
        let of = |found: Comparison| judge(Operation::Fsync, Load::Dirty, Some(&found), ALL).0;
        let tail = |beside_ns| of(Comparison { tail_ns: [2_000_000, beside_ns], ..quiet.clone() });
        assert_eq!([tail(2_900_000), tail(9_000_000)], [Verdict::Isolated, Verdict::NotProven]);
        let longest = |beside_ns| of(Comparison { longest_ns: [9_000_000, beside_ns], ..quiet.clone() });
        assert_eq!([longest(28_000_000), longest(400_000_000)], [Verdict::Isolated, Verdict::NotProven]);
    }

    #[test]
    fn a_verdict_without_calls_or_rounds_is_not_proven() {
        let none = judge(Operation::Read, Load::Cache, None, ALL);
        assert!(none.0 == Verdict::NotProven && none.1.is_some());
        let few = judge(Operation::Read, Load::Cache, Some(&found(1_000, None)), ALL);
        assert!(few.0 == Verdict::NotProven && few.1.is_some());
    }

    #[test]
    fn few_rounds_or_calls_prove_harm_but_not_isolation() {
        let quiet = found(2_000_000, Some((1.0, 0.9, 1.1)));
        let harmed = found(2_000_000, Some((9.0, 4.0, 20.0)));
        let of = |found: &Comparison| judge(Operation::Fsync, Load::Dirty, Some(found), ALL).0;
        for change in [|found: &mut Comparison| found.rounds = 3, |found: &mut Comparison| found.quantile = 0.9] {
            let (mut quiet, mut harmed) = (quiet.clone(), harmed.clone());
            change(&mut quiet);
            change(&mut harmed);
            assert_eq!([of(&quiet), of(&harmed)], [Verdict::NotProven, Verdict::Degraded]);
        }
        assert_eq!(of(&quiet), Verdict::Isolated);
    }

    #[test]
    fn isolation_needs_what_the_neighbour_reached() {
        let quiet = found(10_000, Some((1.0, 0.8, 1.2)));
        let (append, fsync, read, cached) =
            (Operation::Append, Operation::Fsync, Operation::Read, Operation::CachedRead);
        let (idle, held) = (Reach { loaded: false, ..ALL }, Reach { held: true, ..ALL });
        let (below, fits) = (Reach { dirty_limit: false, ..ALL }, Reach { evicts: false, ..ALL });
        let journal = Reach { journal: true, ..ALL };
        for (operation, load, reach, isolated) in [
            (append, Load::Dirty, below, false),
            (fsync, Load::Dirty, below, true),
            (append, Load::Cache, fits, false),
            (cached, Load::Cache, fits, false),
            (cached, Load::Dirty, fits, false),
            (cached, Load::Fsync, fits, true),
            (read, Load::Cache, fits, true),
            (fsync, Load::Dirty, held, false),
            (read, Load::Cache, held, false),
            (append, Load::SmallFiles, journal, false),
            (fsync, Load::SmallFiles, journal, false),
            (read, Load::SmallFiles, journal, true),
            (append, Load::Fsync, journal, true),
        ] {
            let (verdict, why) = judge(operation, load, Some(&quiet), reach);
            assert_eq!((verdict == Verdict::Isolated, why.is_none()), (isolated, isolated), "{operation:?} {load:?}");
        }
        for (operation, load) in Operation::ALL.iter().flat_map(|call| Load::ALL.iter().map(move |load| (*call, *load)))
        {
            assert_eq!(judge(operation, load, Some(&quiet), idle).0, Verdict::NotProven);
            assert_eq!(judge(operation, load, Some(&quiet), ALL).0, Verdict::Isolated);
            let shared = Reach { shares_controller: true, ..ALL };
            assert_eq!(judge(operation, load, Some(&quiet), shared).0, Verdict::NotProven);
            assert_eq!(judge(operation, load, Some(&quiet), Reach::default()).0, Verdict::NotProven);
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
