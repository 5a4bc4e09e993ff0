//! What help texts, manual pages and docs/command-line.md say about each verb beside its options: the task that it
//! serves, examples, and exit statuses.

mod proving;
mod reading;
#[cfg(test)]
mod tests;

use crate::status::Status;

/// The tasks by which `flatwater --help` groups the verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    Observe,
    Read,
    Prove,
    Prevent,
    Setup,
}

impl Task {
    pub const ALL: [Task; 5] = [Task::Observe, Task::Read, Task::Prove, Task::Prevent, Task::Setup];

    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Task::Observe => "Observe this machine",
            Task::Read => "Read recordings and logs",
            Task::Prove => "Prove a cause or a fix",
            Task::Prevent => "Prevent stalls of a writer",
            Task::Setup => "Set up",
        }
    }
}

/// A verb's page.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    pub verb: &'static str,
    pub task: Task,
    /// (what it does, command).
    pub examples: &'static [(&'static str, &'static str)],
    pub statuses: &'static [Status],
}

const PLAIN: &[Status] = &[Status::Done, Status::Failed, Status::Usage];
const JUDGED: &[Status] = &[Status::Done, Status::Failed, Status::Usage, Status::NotEnough];
const INTERRUPTED: Status = Status::Signal(2);

/// One page a verb, in the order of `flatwater --help`.
pub fn all() -> impl Iterator<Item = &'static Page> {
    reading::PAGES.iter().chain(proving::PAGES)
}

/// The page of a verb; `None` for hidden verbs.
#[must_use]
pub fn of(verb: &str) -> Option<&'static Page> {
    all().find(|page| page.verb == verb)
}
