//! Writes a scenario, and jobs for fio, that imitate a recording; compares the recording with a run of the scenario.
//!
//! Every number of the recording that becomes a load is bounded here (`Bounds`): a recording may come from anywhere.

pub mod compare;
mod fio;
mod group;
mod machine;
mod scenario;
#[cfg(test)]
mod tests;
mod words;

pub use compare::{AggressorKind, Reproduction, Side, compare};

use flatwater_explain::Explanation;
use flatwater_recording::{GroupRole, Recording, Source};

/// The resources that a reproduction may use on its machine.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Size of the volume: a tenth of the free space.
    pub disk_bytes: u64,
    pub memory_bytes: u64,
    /// The file system of the volume instead of the recorded one.
    pub file_system: Option<String>,
}

/// The files of a reproduction.
#[derive(Clone, Debug)]
pub struct Plan {
    pub scenario: String,
    /// Name and text of each job file for fio.
    pub fio: Vec<(String, String)>,
    /// The operations that are not imitated, or only approximately.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReproducible {
    #[error("it was imported from logs, which list no operations; record the programs with `flatwater record`")]
    Import,
    #[error("it is a run of the scenario '{name}': `flatwater run` performs that again")]
    Scenario { name: String },
    #[error("it lacks the tables of operations: {why}; record again with `flatwater record`")]
    NoOperations { why: String },
    #[error("the target made no operation on files that can be imitated{why}")]
    Nothing { why: String },
    #[error("its volume needs {need} MiB, but a tenth of what is free is {free} MiB; choose another directory with -d")]
    NoRoom { need: u64, free: u64 },
}

/// The plan for a recording.
pub fn plan(recording: &Recording, explanation: &Explanation, bounds: &Bounds) -> Result<Plan, NotReproducible> {
    let header = &recording.header;
    if header.source == Source::Import {
        return Err(NotReproducible::Import);
    }
    if let Some(name) = &header.scenario {
        return Err(NotReproducible::Scenario { name: printable(name) });
    }
    if recording.operations.is_empty() {
        let gap = recording.gaps.iter().find(|gap| gap.what.contains("`flatwater reproduce`"));
        let why = gap.map_or_else(|| "it is of an earlier version, or damaged".to_owned(), |gap| gap.why.clone());
        return Err(NotReproducible::NoOperations { why: printable(&why) });
    }
    let place = machine::place(recording);
    let mut notes = Vec::new();
    let mut victims = group::victims(recording, &place, &mut notes);
    if victims.is_empty() {
        let other = recording.observed_elsewhere();
        return Err(NotReproducible::Nothing { why: other });
    }
    let mut neighbours = group::neighbours(recording, explanation, &place, &mut notes);
    let setup = machine::setup(recording, &place, bounds, &mut notes)?;
    group::fit(&mut victims, &mut neighbours, setup.room_bytes, &mut notes);
    let scenario = scenario::text(recording, explanation, &setup, &victims, &neighbours, &notes);
    let fio = fio::jobs(recording, &victims, &neighbours);
    Ok(Plan { scenario, fio, notes })
}

/// Text of a recording for a file that other programs read: no control characters, bounded.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

trait Elsewhere {
    /// Operations that the target made in other ways, for a message.
    fn observed_elsewhere(&self) -> String;
}

impl Elsewhere for Recording {
    fn observed_elsewhere(&self) -> String {
        let mapped = self.operations.iter().all(|row| row.role != GroupRole::Target);
        if mapped { ": only page faults, io_uring or libaio were seen".to_owned() } else { String::new() }
    }
}
