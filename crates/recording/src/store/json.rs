//! The JSON files of a recording: header.json, outcomes.json, sealed.json.
//!
//! A value in memory can take a hundred times the bytes of the JSON text (`{}` is a whole struct), so both a file's
//! size and its number of values are limited before the file is parsed. The writer keeps the same limits.

use std::io::{self, Read};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::files;

/// Maximum size of a JSON file in bytes.
pub(super) const BYTES_MAX: usize = 4 << 20;
/// Maximum number of values in one JSON file: elements of arrays, and keys and values of objects.
pub(super) const VALUES_MAX: usize = 250_000;

/// Reads the text of a JSON file, within both limits.
pub(super) fn read_text(path: &Path) -> io::Result<Vec<u8>> {
    let (file, bytes) = files::open(path, BYTES_MAX as u64)?;
    let mut text = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
    // The file may grow while it is read.
    file.take(BYTES_MAX as u64).read_to_end(&mut text)?;
    check_values(&text)?;
    Ok(text)
}

pub(super) fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(text)
}

/// Replaces the file atomically. A value that the reader would refuse is an error.
pub(super) fn replace(path: &Path, value: &impl Serialize, durable: bool) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(value).map_err(io::Error::other)?;
    if text.len() >= BYTES_MAX {
        text = serde_json::to_vec(value).map_err(io::Error::other)?;
    }
    text.push(b'\n');
    if text.len() > BYTES_MAX {
        return Err(too_large(format!("it would have {} bytes, over the limit of {BYTES_MAX}", text.len())));
    }
    check_values(&text)?;
    files::replace(path, &text, durable)
}

fn check_values(text: &[u8]) -> io::Result<()> {
    let values = values(text);
    if values > VALUES_MAX {
        return Err(too_large(format!("it has {values} values, over the limit of {VALUES_MAX}")));
    }
    Ok(())
}

fn too_large(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, why)
}

/// An upper bound of the number of values: the number of separators outside strings.
fn values(text: &[u8]) -> usize {
    let (mut in_string, mut escaped, mut values) = (false, false, 0);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b',' | b':' | b'[' | b'{' if !in_string => values += 1,
            _ => {}
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{BYTES_MAX, VALUES_MAX, replace, values};
    use crate::{Gap, Header, Recording, write_whole};

    fn recording_with(dir: &Path, file: &str, text: &str) -> Recording {
        let gaps = vec![Gap::new("one", "two", "three")];
        write_whole(dir, &Recording { header: Header::default(), gaps, ..Recording::default() }).expect("written");
        fs::write(dir.join(file), text).expect("written");
        Recording::open(dir).expect("opens")
    }

    fn has_gap(recording: &Recording, what: &str, why: &str) -> bool {
        recording.gaps.iter().any(|gap| gap.what == what && gap.why.contains(why))
    }

    #[test]
    fn the_trigger_of_an_earlier_recording_is_read_from_its_first_note() {
        let place = tempfile::tempdir().expect("a directory");
        let read = |header: &str| {
            let dir = place.path().join(header.len().to_string());
            recording_with(&dir, "header.json", header).header.trigger
        };
        assert_eq!(read(r#"{"notes":["set off by stall: a write took long"]}"#).as_deref(), Some("stall"));
        assert_eq!(read(r#"{"notes":["ran without root"],"trigger":"psi"}"#).as_deref(), Some("psi"));
        assert_eq!(read(r#"{"notes":["ran without root","set off by stall: x"]}"#), None);
    }

    #[test]
    fn separators_within_strings_are_not_values() {
        assert_eq!(values(br#"{"a,[{:\\\"":[1,2],"b":{}}"#), 7);
    }

    #[test]
    fn a_json_file_of_more_than_four_mib_is_a_gap() {
        let place = tempfile::tempdir().expect("a directory");
        for file in ["header.json", "outcomes.json", "sealed.json"] {
            let text = format!("{{\"written_by\":\"{}\"}}", "x".repeat(BYTES_MAX));
            let read = recording_with(&place.path().join(file), file, &text);
            assert!(has_gap(&read, file, "over the limit of 4194304"), "{file}: {:?}", read.gaps);
            assert!(read.header.written_by.len() < BYTES_MAX);
        }
    }

    #[test]
    fn a_json_file_of_a_million_small_values_is_a_gap() {
        let place = tempfile::tempdir().expect("a directory");
        let many = "{},".repeat(1_000_000);
        let header = format!("{{\"target\":{{\"processes\":[{}]}}}}", many.trim_end_matches(','));
        let read = recording_with(&place.path().join("h"), "header.json", &header);
        assert!(read.header.target.processes.is_empty(), "{} processes", read.header.target.processes.len());
        assert!(has_gap(&read, "header.json", "values, over the limit"), "{:?}", read.gaps);

        let names: Vec<String> = (0..VALUES_MAX).map(|name| format!("\"{name:x}\":{{}}")).collect();
        let sealed = format!("{{\"format_version\":1,\"tables\":{{{}}}}}", names.join(","));
        assert!(sealed.len() < BYTES_MAX);
        let read = recording_with(&place.path().join("s"), "sealed.json", &sealed);
        assert!(has_gap(&read, "sealed.json", "values, over the limit"), "{:?}", read.gaps);
    }

    #[test]
    fn many_unknown_tables_and_columns_are_one_gap() {
        let place = tempfile::tempdir().expect("a directory");
        let names: Vec<String> = (0..50_000).map(|name| format!("\"{name:x}\":{{}}")).collect();
        let sealed = format!("{{\"format_version\":1,\"tables\":{{{}}}}}", names.join(","));
        let read = recording_with(&place.path().join("s"), "sealed.json", &sealed);
        assert!(read.gaps.len() < 40, "{} gaps", read.gaps.len());
        assert!(read.gaps.iter().any(|gap| gap.what.contains("more tables")), "{:?}", read.gaps);
    }

    #[test]
    fn values_beyond_the_readers_limits_are_not_written() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("header.json");
        let refused = replace(&path, &vec![0; VALUES_MAX + 1], false).expect_err("too many");
        assert!(refused.to_string().contains("over the limit"), "{refused}");
        assert!(!path.exists());
        replace(&path, &vec![0; VALUES_MAX - 1], false).expect("within the limit");
    }
}
