//! Reads the I/O limits of a cgroup: io.max of v2, and the files blkio.throttle.* of v1.

use super::without_path;
use crate::anchors::{Anchor, DIGITS};
use crate::builder::{Builder, Cell};
use crate::error::ImportError;
use crate::number::count;
use crate::text::Cursor;
use crate::{FormatKind, Importer};
use flatwater_recording::schema::{Column, cgroup};
use flatwater_recording::{Entity, Table};

pub const IMPORTER: Importer = Importer {
    name: "io-max",
    sentence: "A cgroup's limits on I/O: io.max, and blkio.throttle.{read,write}_{bps,iops}_device of version 1.",
    kind: FormatKind::Group,
    anchors: &[Anchor::Table(&["wbps=", "wiops=", "rbps=", "riops=", "blkio.throttle."]), Anchor::Start(DIGITS)],
    detect: |cursor| {
        let text = cursor.next_text();
        if limits(text).is_some() || v1(text, "").is_some() { 91 } else { 0 }
    },
    read,
};

const KEYS: &[(&str, Column)] = &[
    ("rbps", cgroup::IO_MAX_READ_BYTES),
    ("wbps", cgroup::IO_MAX_WRITE_BYTES),
    ("riops", cgroup::IO_MAX_READS),
    ("wiops", cgroup::IO_MAX_WRITES),
];
const FILES_V1: &[(&str, Column)] = &[
    ("blkio.throttle.read_bps_device", cgroup::IO_MAX_READ_BYTES),
    ("blkio.throttle.write_bps_device", cgroup::IO_MAX_WRITE_BYTES),
    ("blkio.throttle.read_iops_device", cgroup::IO_MAX_READS),
    ("blkio.throttle.write_iops_device", cgroup::IO_MAX_WRITES),
];

fn is_device(word: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit());
    word.split_once(':').is_some_and(|(major, minor)| digits(major) && digits(minor))
}

/// The limits in a line: path, device, and column and value of each; `max` means unlimited.
type Limits<'a> = (&'a str, &'a str, Vec<(Column, i64)>);

/// Parses `8:0 rbps=max wbps=10485760 riops=max wiops=max`, also after the name or path of the file.
fn limits(text: &str) -> Option<Limits<'_>> {
    let (path, text) = without_path(text.trim());
    let text = text.strip_prefix("io.max").map_or(text, |rest| rest.trim_start_matches([':', ' ', '\t']));
    let mut words = text.split_whitespace();
    let device = words.next().filter(|word| is_device(word))?;
    let mut found = Vec::new();
    let mut known = false;
    for word in words {
        let (key, value) = word.split_once('=')?;
        let (_, column) = KEYS.iter().find(|(name, _)| *name == key)?;
        known = true;
        if value != "max" {
            found.push((*column, count(value)?));
        }
    }
    known.then_some((path, device, found))
}

/// Parses a line `8:0 10485760` of a file of version 1, whose path is on the line or in the command above.
fn v1<'a>(text: &'a str, command: &'a str) -> Option<Limits<'a>> {
    let (path, text) = without_path(text.trim());
    let path = if path.is_empty() { command } else { path };
    let (_, column) = FILES_V1.iter().find(|(name, _)| path.ends_with(name))?;
    let mut words = text.split_whitespace();
    let (device, value) = (words.next()?, count(words.next()?)?);
    (is_device(device) && words.next().is_none()).then_some((path, device, vec![(*column, value)]))
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let place = b.snapshot("io-max");
    let command = b.context().command.clone().unwrap_or_default();
    let names = |word: &&str| word.ends_with("/io.max") || FILES_V1.iter().any(|(name, _)| word.ends_with(name));
    let above = command.split_whitespace().find(names).unwrap_or_default();
    while let Some((path, device, found)) =
        cursor.peek().and_then(|line| limits(line.text).or_else(|| v1(line.text, above)))
    {
        cursor.take();
        let path = if path.is_empty() { above } else { path };
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let folder = folder.strip_prefix("/sys/fs/cgroup").unwrap_or(folder);
        let name = if folder.is_empty() { "/" } else { folder };
        if found.is_empty() {
            b.pass_over();
        }
        // A cgroup may have a limit for each of several devices.
        let entity = Entity::named(&format!("{name} on {device}"));
        let cells: Vec<(Column, Cell)> = found.iter().map(|(column, value)| (*column, Cell::Gauge(*value))).collect();
        b.row(place, Table::Cgroup, &entity, &cells);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::limits;
    use crate::import_texts;
    use flatwater_recording::Table;
    use flatwater_recording::schema::{Column, cgroup};

    fn read(text: &str, column: Column) -> Vec<(String, Option<i64>)> {
        let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        let table = recording.table(Table::Cgroup).expect("a table");
        table.by_entity().map(|(entity, rows)| (entity.name.clone(), rows.last(column))).collect()
    }

    #[test]
    fn limits_of_both_versions_are_read() {
        let text = "# cat /sys/fs/cgroup/jobs/io.max\n8:0 rbps=max wbps=10485760 riops=max wiops=120\n";
        assert_eq!(read(text, cgroup::IO_MAX_WRITE_BYTES), [("/jobs on 8:0".to_owned(), Some(10_485_760))]);
        assert_eq!(read(text, cgroup::IO_MAX_WRITES), [("/jobs on 8:0".to_owned(), Some(120))]);
        let text = "/sys/fs/cgroup/blkio/db/blkio.throttle.read_bps_device:253:0 1048576\n";
        assert_eq!(read(text, cgroup::IO_MAX_READ_BYTES), [("/blkio/db on 253:0".to_owned(), Some(1_048_576))]);
    }

    #[test]
    fn other_lines_are_left() {
        for text in ["8:0 rbytes=1 wbytes=2", "8:0 10485760", "max", "8:0", "8:0 rbps=fast", "a rbps=1"] {
            assert!(limits(text).is_none(), "{text}");
        }
        assert_eq!(limits("8:16 rbps=max wbps=max riops=max wiops=max").map(|found| found.2), Some(Vec::new()));
    }
}
