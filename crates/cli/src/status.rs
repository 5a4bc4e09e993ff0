//! The exit status of each verb.

use std::process::{ExitCode, ExitStatus};

use flatwater_experiment::verdict::Verdict;
use flatwater_explain::{Conclusion, Explanation};

/// How a command ended. Help texts, manual pages and docs/command-line.md list these from [`Status::meaning`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Done,
    Failed,
    Usage,
    NotProven,
    /// Of a probe: neither isolation nor harm.
    Unproven,
    NotEnough,
    StallFound,
    /// A probe's neighbour harms some calls.
    Harmed,
    /// Signal n ended the command early: 128 + n, as in shells.
    Signal(i32),
    /// The status of a command that flatwater started.
    Command(u8),
}

impl Status {
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Status::Done => 0,
            Status::Failed => 1,
            Status::Usage => 2,
            Status::NotProven | Status::Unproven => 3,
            Status::NotEnough => 4,
            Status::StallFound | Status::Harmed => 10,
            Status::Signal(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
            Status::Command(code) => code,
        }
    }

    /// The code as help texts print it.
    #[must_use]
    pub fn label(self) -> String {
        match self {
            Status::Signal(_) => "128+n".to_owned(),
            Status::Command(_) => "other".to_owned(),
            status => status.code().to_string(),
        }
    }

    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Status::Done => "done; also if the reader of the output closed the pipe (`| head`)",
            Status::Failed => "failed: the message says what, and what to do",
            Status::Usage => "a mistake on the command line, in a scenario or in a configuration",
            Status::NotProven => {
                "it is not proven that B is better (also if B is proven worse); `reproduce`: not reproduced"
            }
            Status::Unproven => "neither isolation nor harm is proven",
            Status::NotEnough => "too little was observed for a conclusion",
            Status::Harmed => "a neighbour harms some calls: a pair is degraded or severe",
            Status::StallFound => "with --exit-code: a stall was found",
            Status::Signal(_) => "signal n ended the command early: 130 after Ctrl-C, 143 after SIGTERM",
            Status::Command(_) => "the status of CMD, if CMD failed",
        }
    }

    /// Whether too little was observed, for scripts that take 0 for quiet.
    #[must_use]
    pub fn of(explanation: &Explanation) -> Status {
        match explanation.conclusion {
            Conclusion::NotObserved | Conclusion::NotEnough => Status::NotEnough,
            _ => Status::Done,
        }
    }

    /// As [`Status::of`], and [`Status::StallFound`] if there is a finding.
    #[must_use]
    pub fn of_findings(explanation: &Explanation) -> Status {
        match explanation.conclusion {
            Conclusion::Findings => Status::StallFound,
            _ => Status::of(explanation),
        }
    }

    /// `judged`: whether there was enough data to judge.
    #[must_use]
    pub fn of_verdict(verdict: Verdict, judged: bool) -> Status {
        match verdict {
            Verdict::Better => Status::Done,
            Verdict::NotProven if !judged => Status::NotEnough,
            Verdict::NotProven | Verdict::Worse => Status::NotProven,
        }
    }

    /// The status of a command that failed; `None` for one that succeeded.
    #[must_use]
    pub fn of_command(ended: ExitStatus) -> Option<Status> {
        use std::os::unix::process::ExitStatusExt;
        match (ended.code(), ended.signal()) {
            (Some(0), _) => None,
            (Some(code), _) => Some(Status::Command(u8::try_from(code).unwrap_or(1))),
            (None, Some(signal)) => Some(Status::Signal(signal)),
            (None, None) => Some(Status::Failed),
        }
    }
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> ExitCode {
        ExitCode::from(status.code())
    }
}

#[cfg(test)]
mod tests {
    use super::Status;
    use flatwater_experiment::verdict::Verdict;

    #[test]
    fn each_status_has_one_meaning() {
        let all =
            [Status::Done, Status::Failed, Status::Usage, Status::NotProven, Status::NotEnough, Status::StallFound];
        assert_eq!(all.map(Status::code), [0, 1, 2, 3, 4, 10]);
        assert_eq!(Status::Signal(2).code(), 130);
        assert_eq!(Status::Signal(i32::MAX - 200).code(), u8::MAX);
    }

    /// 4 also stood for "worse".
    #[test]
    fn worse_is_not_proven_and_too_little_data_is_not_enough() {
        assert_eq!(Status::of_verdict(Verdict::Worse, true), Status::NotProven);
        assert_eq!(Status::of_verdict(Verdict::NotProven, true), Status::NotProven);
        assert_eq!(Status::of_verdict(Verdict::NotProven, false), Status::NotEnough);
        assert_eq!(Status::of_verdict(Verdict::Better, true), Status::Done);
    }
}
