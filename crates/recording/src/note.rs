//! What a reader has to know before any figure. In JSON a note is its text; a text is read back as `Note::Text`.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::units::Nanos;
use super::{Cause, Losses};

#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// What the workloads prepared took this long, before the recording's start.
    Prepared { ns: u64 },
    /// Virtual time runs unlike a real machine's.
    TimeDistorted,
    /// The tracer lost events.
    Losses(Losses),
    /// A cause that is not blamed, since the machine's own gaps are as long.
    BelowNoise { cause: Cause, worst_ns: u64, noise_ns: u64 },
    /// The writer was killed.
    CutShort,
    /// What nothing but a reader needs to tell from other notes.
    Text(String),
}

impl From<String> for Note {
    fn from(text: String) -> Note {
        Note::Text(text)
    }
}

impl From<&str> for Note {
    fn from(text: &str) -> Note {
        Note::Text(text.to_owned())
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::Prepared { ns } => write!(f, "preparing took {}, before the start and not measured", Nanos(*ns)),
            Note::TimeDistorted => f.write_str(
                "virtual time is distorted (software emulation): compare counters and shares, not milliseconds",
            ),
            Note::Losses(losses) => {
                let each: Vec<String> = losses.each().map(|(n, what)| format!("{n} {what}")).collect();
                write!(f, "events of the tracer: {}", each.join(", "))
            }
            Note::BelowNoise { cause, worst_ns, noise_ns } => write!(
                f,
                "{} of at most {} is below the noise floor: a thread without system calls loses up to {} on this \
                    machine",
                cause.name(),
                Nanos(*worst_ns),
                Nanos(*noise_ns)
            ),
            Note::CutShort => {
                f.write_str("this recording was cut short: up to one second before its end may be missing")
            }
            Note::Text(text) => f.write_str(text),
        }
    }
}

impl Serialize for Note {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Note {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Note, D::Error> {
        String::deserialize(deserializer).map(Note::Text)
    }
}

#[cfg(test)]
mod tests {
    use super::Note;

    #[test]
    fn a_note_is_its_text_in_json() {
        let note = Note::Prepared { ns: 1_500_000_000 };
        let json = serde_json::to_string(&note).expect("a string");
        assert_eq!(json, format!("\"{note}\""));
        let read: Note = serde_json::from_str(&json).expect("a note");
        assert_eq!(read, Note::Text(note.to_string()));
    }
}
