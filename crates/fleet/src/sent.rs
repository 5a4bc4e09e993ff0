//! A list beside the recordings of the objects that were pushed to each store, so that objects which a compactor has
//! removed are not sent again. Best effort: without the list objects are sent twice, and still counted once.
//!
//! Another user may own the directory and put any file and name there. So the list is used only if it is this user's
//! file, and each name in it is encoded as one word.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;

use flatwater_safefs::{Dir, Limited, Refusal};

/// The name of the list.
pub const NAME: &str = ".flatwater-pushed";
/// Maximum size of the list, enough for a hundred years of hours. A larger list is removed.
const BYTES_MAX: u64 = 64 << 20;

/// The objects that were pushed from one directory to one store.
#[derive(Debug)]
pub struct Sent<'a> {
    dir: &'a Dir,
    known: BTreeSet<String>,
    to: String,
}

impl Sent<'_> {
    /// Reads the list of a directory; `to` is the store, as it is shown.
    pub fn read<'a>(dir: &'a Dir, to: &str) -> Sent<'a> {
        let mut text = Vec::new();
        let whole = dir.read(NAME).map(|file| Limited::new(file, BYTES_MAX).read_to_end(&mut text));
        if matches!(whole, Ok(Ok(false))) {
            text.clear();
            let _ = dir.remove(NAME);
        }
        let known = String::from_utf8_lossy(&text).lines().map(str::to_owned).collect();
        Sent { dir, known, to: word(to) }
    }

    fn line(&self, what: &str, name: &str) -> String {
        format!("{}\t{what}\t{}", self.to, word(name))
    }

    /// `what` is `summary` or `recording`.
    pub fn has(&self, what: &str, name: &str) -> bool {
        self.known.contains(&self.line(what, name))
    }

    pub fn add(&self, what: &str, name: &str) {
        let opened = match self.dir.append(NAME) {
            Err(refusal) if refusal.is_missing() => self.dir.create(NAME),
            opened => opened,
        };
        let line = self.line(what, name) + "\n";
        let _ = opened.and_then(|mut file| {
            let written = file.write_all(line.as_bytes());
            written.map_err(|source| Refusal::Io { action: "write", path: self.dir.path().join(NAME), source })
        });
    }
}

/// Encodes text as one word of visible ASCII: everything else becomes %XX.
fn word(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && byte != b'%' {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{NAME, Sent, word};
    use flatwater_safefs::Dir;

    #[test]
    fn a_name_is_one_word_whatever_is_in_it() {
        assert_eq!(word("flatwater-2026-11-22"), "flatwater-2026-11-22");
        assert_eq!(word("a\n* * * * * root sh\t%\u{202e}"), "a%0A*%20*%20*%20*%20*%20root%20sh%09%25%E2%80%AE");
        // Long names stay different.
        assert_ne!(word(&("x".repeat(300) + "1")), word(&("x".repeat(300) + "2")));
    }

    #[test]
    fn an_entry_counts_only_for_its_store() {
        let place = tempfile::tempdir().expect("a directory");
        let dir = Dir::open(place.path()).expect("opened");
        Sent::read(&dir, "s3://one").add("summary", "a\nb");
        Sent::read(&dir, "s3://one").add("recording", "c");
        let sent = Sent::read(&dir, "s3://one");
        assert!(sent.has("summary", "a\nb") && sent.has("recording", "c") && !sent.has("summary", "c"));
        assert!(!Sent::read(&dir, "s3://other").has("recording", "c"));
        assert_eq!(std::fs::read_to_string(place.path().join(NAME)).expect("text").lines().count(), 2);
    }
}
