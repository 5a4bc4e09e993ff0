//! Notes: remarks that a reader needs before any figure. In JSON a note is its text, and reading JSON gives
//! `Note::Text`.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::units::Nanos;
use super::{Cause, Losses};

/// Something that a reader of the recording should know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each variant describes its fields")]
pub enum Note {
    /// The workloads' preparation took this long, before the start of the recording.
    Prepared { ns: u64 },
    /// Virtual time differs from that of a real machine.
    TimeDistorted,
    /// The tracer lost events.
    Losses(Losses),
    /// The cause is not blamed, because the machine's own noise is as long.
    BelowNoise { cause: Cause, worst_ns: u64, noise_ns: u64 },
    /// The writer was killed before the recording was complete.
    CutShort,
    /// A note that no code needs to distinguish from others.
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
            Note::Prepared { ns } => write!(f, "preparation took {} before the start and was not measured", Nanos(*ns)),
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
    fn a_note_is_serialized_as_its_text() {
        let note = Note::Prepared { ns: 1_500_000_000 };
        let json = serde_json::to_string(&note).expect("a string");
        assert_eq!(json, format!("\"{note}\""));
        let read: Note = serde_json::from_str(&json).expect("a note");
        assert_eq!(read, Note::Text(note.to_string()));
    }
}
