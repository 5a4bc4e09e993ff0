//! Fixes: what to do, and the commands that do it and undo it on the recorded machine.

mod against;
mod commands;
mod measured;
mod place;
#[cfg(test)]
mod tests;

pub(crate) use against::against;
pub(crate) use measured::BFQ;
pub use measured::Measured;
pub(crate) use place::Place;

use flatwater_recording::Setup;
use flatwater_recording::knob::Key;
use serde::Serialize;

/// One remedy for a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Fix {
    pub text: String,
    /// The settings to change; empty if the fix is not a change of settings. `flatwater verify --set` takes the
    /// same pairs.
    #[serde(skip_serializing_if = "Setup::is_empty")]
    pub set: Setup,
    /// Commands for a root shell of the recorded machine; empty if no command performs the fix.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
    /// Commands that restore the present state.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub undo: Vec<String>,
    /// The effect of the fix where it was tried; absent if the effect was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<&'static Measured>,
    #[serde(skip)]
    limit: Option<Limit>,
}

/// A limit on what a process may use of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub resource: Resource,
    pub pids: Vec<u32>,
    /// The cgroup that contains nothing but the processes to limit; `None` if they have to be moved to a new one.
    pub cgroup: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    /// Bytes per second written to the device.
    WriteRate(u64),
    /// Half of the memory that the cgroup uses.
    Memory,
    /// A smaller share of busy CPUs.
    Cpu,
}

impl Fix {
    /// A fix without a command, such as a code change or an upgrade.
    #[must_use]
    pub fn advice(text: impl Into<String>) -> Fix {
        Fix {
            text: text.into(),
            set: Setup::default(),
            commands: Vec::new(),
            undo: Vec::new(),
            measured: None,
            limit: None,
        }
    }

    /// A fix by one knob. A value that the knob rejects is left out of `set`; the text keeps it.
    #[must_use]
    pub fn knob(text: impl Into<String>, key: Key, value: &str) -> Fix {
        let mut fix = Fix::advice(text);
        let taken = fix.set.set(key.name(), value);
        // A number derived from a recording may be out of range; a word of ours may not.
        #[cfg(test)]
        assert!(taken.is_ok() || value.parse::<u64>().is_ok(), "{}={value}: {taken:?}", key.name());
        drop(taken);
        fix
    }

    pub(crate) fn limit(text: impl Into<String>, limit: Limit) -> Fix {
        Fix { limit: Some(limit), ..Fix::advice(text) }
    }

    pub(crate) fn measured(self, measured: &'static Measured) -> Fix {
        Fix { measured: Some(measured), ..self }
    }

    /// The fix with its commands; `None` if the recorded machine cannot perform it.
    pub(crate) fn at(mut self, place: &Place<'_>) -> Option<Fix> {
        if !place.offers(&self.set) {
            return None;
        }
        let commands = match &self.limit {
            Some(limit) => commands::of_limit(limit, place),
            None => self.set.iter().filter_map(|(key, value)| commands::of_setting(key, value, place)).collect(),
        };
        self.commands = commands.apply;
        self.undo = commands.undo;
        Some(self)
    }
}
