//! The grammar of `--judge` and `--goal`: `[OPERATION.]FIGURE`, such as `fdatasync.p99`, `lost` or `journal-commit`.

use serde::Serialize;

use crate::judge::Judge;
use flatwater_recording::knob::nearest;
use flatwater_recording::{Cause, OpKind};

/// A figure, and the operation that it is computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// `None`: the operation that stalled longest.
    pub operation: Option<OpKind>,
    pub judge: Judge,
}

/// Serializes as the name.
impl Serialize for Figure {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name())
    }
}

impl From<Judge> for Figure {
    fn from(judge: Judge) -> Figure {
        Figure { operation: None, judge }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FigureError {
    #[error(
        "'{given}' is not a figure{hint}: give [OPERATION.]FIGURE, such as fdatasync.p99, with one of {known}, or a \
         cause's name (`flatwater causes` lists them)"
    )]
    Unknown { given: String, hint: String, known: String },
    #[error("'{given}': a cause's stall time is that of all operations together; give {cause} alone")]
    CauseOfOperation { given: String, cause: &'static str },
}

impl Figure {
    /// Parses `fdatasync.p99`, `p99.9`, `write.p9999` (the digits behind `0.`), `worst` or `max`, `lost`, `rate` or a
    /// cause's name.
    pub fn parse(given: &str) -> Result<Figure, FigureError> {
        let (operation, rest) = split(given.trim());
        let judge = Judge::find(rest).ok_or_else(|| unknown(given))?;
        match (operation, judge) {
            (Some(_), Judge::Cause(cause)) => {
                Err(FigureError::CauseOfOperation { given: given.to_owned(), cause: cause.name() })
            }
            _ => Ok(Figure { operation, judge }),
        }
    }

    #[must_use]
    pub fn name(self) -> String {
        match self.operation {
            Some(operation) => format!("{}.{}", operation.name(), self.judge.name()),
            None => self.judge.name().to_owned(),
        }
    }
}

fn unknown(given: &str) -> FigureError {
    let known = Judge::NAMED.iter().map(|judge| judge.name()).collect::<Vec<&str>>().join(", ");
    let operation = given.split_once('.').map(|(operation, _)| operation);
    let names = OpKind::ALL.iter().map(|operation| operation.name());
    let hint = match operation.filter(|operation| OpKind::from_name(operation).is_none()) {
        Some(operation) if Judge::find(given.split_once('.').map_or("", |(_, rest)| rest)).is_some() => {
            let near = nearest(operation, names).map(|near| format!(" (did you mean '{near}'?)")).unwrap_or_default();
            format!(", because '{operation}' is not an operation{near}")
        }
        _ => {
            let causes = Cause::ALL.iter().map(|cause| cause.name());
            let near = nearest(given, causes.chain(Judge::NAMED.iter().map(|judge| judge.name())));
            near.map(|near| format!(" (did you mean '{near}'?)")).unwrap_or_default()
        }
    };
    FigureError::Unknown { given: given.to_owned(), hint, known }
}

/// The operation before the first dot, if it is one, and the rest. `p99.9` has no operation.
pub(crate) fn split(given: &str) -> (Option<OpKind>, &str) {
    let parts = given.split_once('.').and_then(|(operation, rest)| Some((OpKind::from_name(operation)?, rest)));
    parts.map_or((None, given), |(operation, rest)| (Some(operation), rest))
}

/// `p99`, `p99.9` in percent, or `p9999`: the digits behind `0.`.
pub(crate) fn quantile(given: &str) -> Option<f64> {
    let digits = given.strip_prefix('p').filter(|digits| digits.starts_with(|first: char| first.is_ascii_digit()))?;
    let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let quantile = match digits.split_once('.') {
        Some((whole, part)) if all_digits(whole) && all_digits(part) => digits.parse::<f64>().ok()? / 100.0,
        None if all_digits(digits) && (2..=6).contains(&digits.len()) && digits != "100" => {
            f64::from(digits.parse::<u32>().ok()?) / 10f64.powi(i32::try_from(digits.len()).ok()?)
        }
        _ => return None,
    };
    (quantile > 0.0 && quantile < 1.0).then_some(quantile)
}

#[cfg(test)]
mod tests {
    use super::{Figure, quantile};
    use crate::judge::Judge;
    use crate::whatif::Goal;
    use flatwater_recording::{Cause, OpKind};

    fn of(operation: OpKind, judge: Judge) -> Result<Figure, super::FigureError> {
        Ok(Figure { operation: Some(operation), judge })
    }

    #[test]
    fn a_figure_has_an_optional_operation() {
        assert_eq!(Figure::parse("fdatasync.p99"), of(OpKind::Fdatasync, Judge::P99));
        assert_eq!(Figure::parse("write.p99.9"), of(OpKind::Write, Judge::P999));
        assert_eq!(Figure::parse("write.p9999"), of(OpKind::Write, Judge::P9999));
        assert_eq!(Figure::parse("page-fault.max"), of(OpKind::PageFault, Judge::Worst));
        assert_eq!(Figure::parse("p99.9"), Ok(Judge::P999.into()));
        assert_eq!(Figure::parse("lost"), Ok(Judge::Lost.into()));
        assert_eq!(Figure::parse("journal-commit"), Ok(Judge::Cause(Cause::JournalCommit).into()));
        for name in ["fdatasync.p99", "p99.9", "write.p99.99", "lost", "journal-commit"] {
            assert_eq!(Figure::parse(name).map(Figure::name).as_deref(), Ok(name));
        }
    }

    #[test]
    fn wrong_figures_are_refused_with_the_nearest_name() {
        for (given, hint) in [
            ("fdatasnyc.p99", "did you mean 'fdatasync'?"),
            ("jornal-commit", "did you mean 'journal-commit'?"),
            ("write", "[OPERATION.]FIGURE"),
            ("write.p98", "p99.9"),
            ("write.journal-commit", "give journal-commit alone"),
            ("", "[OPERATION.]FIGURE"),
            ("p100", "p99"),
            (".p99", "not an operation"),
        ] {
            let error = Figure::parse(given).expect_err(given).to_string();
            assert!(error.contains(hint) && !error.contains('\n'), "{given}: {error}");
        }
    }

    /// `--judge` and `--goal` had two grammars.
    #[test]
    fn a_goal_and_a_figure_have_one_grammar() {
        for text in ["fdatasync.p99", "write.p9999", "write.p99.99", "read.max", "read.worst", "page-fault.p50"] {
            let (figure, goal) = (Figure::parse(text).expect(text), Goal::parse(text).expect(text));
            assert_eq!(figure.operation, Some(goal.operation), "{text}");
            assert!(figure.judge.quantile().unwrap_or(1.0) - goal.quantile < 1e-12, "{text}");
        }
    }

    #[test]
    fn quantiles_are_percents_or_digits() {
        let near = |given, wanted: f64| quantile(given).is_some_and(|found| (found - wanted).abs() < 1e-12);
        assert!(near("p99", 0.99) && near("p99.9", 0.999) && near("p999", 0.999) && near("p50", 0.5));
        for wrong in ["p", "p5", "p100", "p100.0", "p0.0", "p9x", "p99.", "p.9", "99", "p9999999"] {
            assert_eq!(quantile(wrong), None, "{wrong}");
        }
    }
}
