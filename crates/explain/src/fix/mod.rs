//! Fixes: what to change, and the commands that do it and undo it on the recorded machine.
//!
//! A cause or an aggressor gives an [`Action`]; `exists` turns it into the [`Step`]s of the recorded machine, or into
//! advice, and `commands` prints the steps.

mod action;
mod against;
mod commands;
mod exists;
mod measured;
mod place;
mod step;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_machine;
mod text;

pub use action::{Action, Change, Party, Resource};
pub(crate) use against::against;
pub use commands::Commands;
use exists::How;
pub use measured::Measured;
pub(crate) use measured::bfq;
pub(crate) use place::Place;
pub use step::{Amount, Figure, Group, MountOption, Step, SysFile};

use flatwater_recording::Setup;
use flatwater_recording::knob::{self, Key};
use serde::ser::{Serialize, SerializeStruct, Serializer};

/// One remedy for a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fix {
    /// The number in the explanation, from 1, which `flatwater verify REC --fix N` takes; 0 outside of an explanation.
    pub number: usize,
    pub text: String,
    pub action: Action,
    /// The changes on the recorded machine; empty if no command performs the fix.
    pub steps: Vec<Step>,
    /// What the fix changed where it was tried; absent if its effect was not measured.
    pub measured: Option<&'static Measured>,
}

impl Fix {
    /// A fix without a command, such as a code change or an upgrade.
    #[must_use]
    pub fn advice(text: impl Into<String>) -> Fix {
        Fix { number: 0, text: text.into(), action: Action::Advice, steps: Vec::new(), measured: None }
    }

    /// A fix by one knob; advice if the knob rejects the value, which the text keeps.
    #[must_use]
    pub fn knob(text: impl Into<String>, key: Key, value: &str) -> Fix {
        let parsed = knob::find(key.name()).and_then(|knob| knob.parse(value));
        // A number derived from a recording may be out of range; a word of ours may not.
        #[cfg(test)]
        assert!(parsed.is_ok() || value.parse::<u64>().is_ok(), "{}={value}: {parsed:?}", key.name());
        let action = parsed.map_or(Action::Advice, |value| Action::Set { key, value });
        Fix { action, ..Fix::advice(text) }
    }

    /// A fix against a party.
    pub(crate) fn against(action: Action) -> Fix {
        Fix { text: text::of(&action), action, ..Fix::advice("") }
    }

    pub(crate) fn measured(self, measured: Option<&'static Measured>) -> Fix {
        Fix { measured, ..self }
    }

    /// The knob that the fix sets, and its value in the kernel's spelling.
    #[must_use]
    pub fn setting(&self) -> Option<(Key, &str)> {
        match &self.action {
            Action::Set { key, value } => Some((*key, value)),
            _ => None,
        }
    }

    /// The setting as a setup of one knob; empty if the fix is not a knob.
    #[must_use]
    pub fn set(&self) -> Setup {
        let mut set = Setup::default();
        if let Some((key, value)) = self.setting() {
            set.observe(key.name(), value);
        }
        set
    }

    /// The commands for a root shell of the recorded machine.
    #[must_use]
    pub fn commands(&self) -> Commands {
        commands::of(&self.steps)
    }

    /// Whether both make the same change. Advice is the same only if its text is.
    #[must_use]
    pub fn is_same(&self, other: &Fix) -> bool {
        self.action == other.action && (self.action != Action::Advice || self.text == other.text)
    }

    /// The fix with its steps; `None` if the recorded machine cannot perform it.
    pub(crate) fn at(self, place: &Place<'_>) -> Option<Fix> {
        Some(match exists::how(&self.action, place)? {
            How::Steps(steps) => Fix { steps, ..self },
            How::Advice(suffix) => Fix::advice(self.text + &suffix),
        })
    }
}

impl Serialize for Fix {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Commands { apply, undo } = self.commands();
        let set = self.set();
        let mut fields = serializer.serialize_struct("Fix", 6)?;
        match self.number {
            0 => fields.skip_field("number")?,
            number => fields.serialize_field("number", &number)?,
        }
        fields.serialize_field("text", &self.text)?;
        if !set.is_empty() {
            fields.serialize_field("set", &set)?;
        }
        for (name, commands) in [("commands", &apply), ("undo", &undo)] {
            if !commands.is_empty() {
                fields.serialize_field(name, commands)?;
            }
        }
        if let Some(measured) = self.measured {
            fields.serialize_field("measured", measured)?;
        }
        fields.end()
    }
}
