//! Confidence is a frequency: of the findings that claim 0.7 for imported logs, seven in ten are right.
//!
//! Finders give a raw figure, the finding's weight, which orders the findings; [`assign`] alone sets the confidence. For a
//! log, the printed figure is the frequency with which
//! leading findings of the same class and raw range were right, in the half of the corpus (tests/corpus) for which
//! no rules were written: (right + 1) / (of + 2), after Laplace, less one standard error, because few logs were
//! counted. A class without a row takes the frequency of all classes. `make score-logs` prints the counts of both
//! halves, a test compares them with this table, and docs/score.md shows for both halves how often claims were
//! right.
//!
//! Recordings of programs have their own table (`RECORDED`), counted from real programs beside an injected
//! neighbour: one row for each run in tests/programs/results.csv, which `make programs` writes. A test compares the
//! table with that file.

use super::Finding;
use super::cause::CauseId;
use super::finding::NO_CONFIDENCE;
use flatwater_recording::{CauseBasis, DurationBasis, Source};

/// The kind of evidence that a finding rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Calls that the tool that wrote the log timed and traced itself.
    Traced,
    /// Kernel stacks that were sampled once.
    Stacks,
    /// The one function in which a thread slept, as an ordinary user can read it.
    Channels,
    /// Reports printed by the kernel: OOM kills, failed allocations.
    Reports,
    /// Counters and levels.
    Counters,
    /// Figures that exclude trouble.
    Quiet,
    /// The finding makes no claim.
    Abstains,
}

/// Raw figures of at least this are high.
const HIGH: f64 = 0.6;

/// One row: of `of` held-out logs whose first finding was of this class and range, `right` were right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub class: Class,
    pub high: bool,
    pub right: u32,
    pub of: u32,
}

const fn row(class: Class, high: bool, right: u32, of: u32) -> Row {
    Row { class, high, right, of }
}

/// Counted on 2026-11-25 with `make score-logs`. Few held-out logs of timed operations are quiet, so `Quiet` has no row.
pub const TABLE: &[Row] = &[
    row(Class::Stacks, true, 33, 38),
    row(Class::Stacks, false, 5, 10),
    row(Class::Reports, true, 7, 8),
    row(Class::Counters, true, 18, 20),
    row(Class::Counters, false, 10, 13),
];

/// (class, right, of): first findings of recorded programs, and how many named the injected cause; counted from
/// tests/programs/results.csv. Raw figures are not distinguished, because they predict nothing beyond the class.
pub const RECORDED: &[(Class, u32, u32)] = &[(Class::Traced, 131, 143), (Class::Stacks, 16, 19)];

/// (right, of): recordings without privileges that named the cause that root named for the same program and neighbour
/// (`programs.py --without-privileges`), before findings abstained.
const WITHOUT_PRIVILEGES: (u32, u32) = (13, 22);

/// The confidence of a finding of this class in a recording; the frequency of all classes if the class has no row.
#[must_use]
pub fn recorded(class: Class) -> f64 {
    let known = match class {
        Class::Channels => Some(WITHOUT_PRIVILEGES),
        _ => RECORDED.iter().find(|row| row.0 == class).map(|row| (row.1, row.2)),
    };
    let all = || {
        RECORDED.iter().fold((0_u32, 0_u32), |(right, of), row| (right.saturating_add(row.1), of.saturating_add(row.2)))
    };
    let (right, of) = known.unwrap_or_else(all);
    ((f64::from(right) + 1.0) / (f64::from(of) + 2.0) * 100.0).round() / 100.0
}

/// The class of this finding.
#[must_use]
pub fn class(finding: &Finding) -> Class {
    match (finding.cause, finding.cause_basis, finding.duration_basis) {
        (CauseId::NotEnough | CauseId::NotObserved | CauseId::Unexplained, ..) => Class::Abstains,
        (CauseId::Quiet, ..) => Class::Quiet,
        (CauseId::OutOfMemory, ..) => Class::Reports,
        (_, CauseBasis::Bracketed, DurationBasis::Measured) => Class::Traced,
        (_, CauseBasis::Stack | CauseBasis::Elimination, _) => Class::Stacks,
        (_, CauseBasis::Channel, _) => Class::Channels,
        _ => Class::Counters,
    }
}

/// Whether a raw figure is in the upper range.
#[must_use]
pub fn is_high(raw: f64) -> bool {
    raw >= HIGH
}

/// The confidence for a raw figure of this class in a log; the frequency of all claims of this range if the corpus has
/// too few such findings. So a log's report never prints a finder's own estimate.
#[must_use]
pub fn of(class: Class, raw: f64) -> f64 {
    let known = TABLE.iter().find(|row| row.class == class && row.high == is_high(raw));
    let (right, of) = known.map_or_else(|| all(is_high(raw)), |row| (row.right, row.of));
    let share = (f64::from(right) + 1.0) / (f64::from(of) + 2.0);
    let error = (share * (1.0 - share) / (f64::from(of) + 3.0)).sqrt();
    ((share - error) * 100.0).round() / 100.0
}

/// (right, of) over all classes.
fn all(high: bool) -> (u32, u32) {
    let rows = TABLE.iter().filter(|row| row.high == high);
    rows.fold((0_u32, 0_u32), |(right, of), row| (right.saturating_add(row.right), of.saturating_add(row.of)))
}

/// Sets the confidence of a finding, from its class, its weight and the source of the recording. `RECORDED` counts runs
/// on hosts only: neither the model's recordings nor those of guests in distorted time. It counts neither `quiet` nor
/// findings from counters alone. A class that nothing counts keeps the finder's estimate.
pub fn assign(finding: &mut Finding, source: Source) {
    let class = class(finding);
    finding.confidence = match (source, class) {
        (Source::Import, Class::Traced | Class::Stacks | Class::Reports | Class::Counters | Class::Quiet) => {
            of(class, finding.weight)
        }
        (Source::Import, Class::Abstains) => NO_CONFIDENCE,
        (Source::Host, Class::Traced | Class::Stacks | Class::Channels) => recorded(class),
        _ => finding.weight,
    };
}

#[cfg(test)]
mod tests {
    use super::{Class, RECORDED, TABLE, of, recorded};
    use std::collections::BTreeMap;

    /// One line for each run: program, neighbour, run, whether the neighbour was felt, the first finding's cause
    /// and class, whether cause and aggressor were right, and the aggressor named.
    const RUNS: &str = include_str!("../../../tests/programs/results.csv");

    #[test]
    fn the_table_of_recordings_matches_results_csv() {
        let mut counted: BTreeMap<String, (u32, u32)> = BTreeMap::new();
        let mut lines = RUNS.lines();
        let columns: Vec<&str> = lines.next().expect("a heading").split(',').collect();
        let place = |name: &str| columns.iter().position(|column| *column == name).expect("a column");
        let (felt, class, right) = (place("asked"), place("class"), place("cause_right"));
        for line in lines {
            let cells: Vec<&str> = line.split(',').collect();
            if cells[felt] == "1" && ["Traced", "Stacks"].contains(&cells[class]) {
                let count = counted.entry(cells[class].to_owned()).or_default();
                *count = (count.0 + u32::from(cells[right] == "1"), count.1 + 1);
            }
        }
        let ours: BTreeMap<String, (u32, u32)> =
            RECORDED.iter().map(|(class, right, of)| (format!("{class:?}"), (*right, *of))).collect();
        assert_eq!(ours, counted);
        assert!([Class::Traced, Class::Stacks].iter().all(|class| (0.01..1.0).contains(&recorded(*class))));
    }

    #[test]
    fn raw_figures_are_never_printed() {
        for class in [Class::Traced, Class::Stacks, Class::Reports, Class::Counters, Class::Quiet] {
            for (low, high) in [(0.0, 0.59), (0.6, 1.0)] {
                assert_eq!(of(class, low), of(class, high), "{class:?}: within a range only the table speaks");
            }
        }
    }

    #[test]
    fn rows_are_unique_and_none_claims_certainty() {
        for (at, row) in TABLE.iter().enumerate() {
            let again = |other: &super::Row| (other.class, other.high) == (row.class, row.high);
            assert!(!TABLE[at + 1..].iter().any(again), "{row:?}");
            assert!(row.right <= row.of, "{row:?}");
        }
        let all = [Class::Traced, Class::Stacks, Class::Reports, Class::Counters, Class::Quiet];
        for class in all {
            assert!(of(class, 0.98) < 1.0 && of(class, 0.98) > 0.0, "{class:?}");
        }
    }
}
