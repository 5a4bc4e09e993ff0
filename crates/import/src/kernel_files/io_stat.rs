//! Reads io.stat of a cgroup: a line for each device. Bytes and requests only show usage; waits are shown by the keys
//! of controllers: `cost.wait` and `cost.indelay` (blk-iocost), `use_delay` and `delay_nsec` (blk-iolatency).

use std::collections::HashSet;

use super::without_path;
use crate::anchors::Anchor;
use crate::builder::{Builder, Cell};
use crate::error::ImportError;
use crate::number::count;
use crate::text::Cursor;
use crate::{FormatKind, Importer};
use flatwater_recording::schema::{Column, cgroup};
use flatwater_recording::{Entity, Table};

pub const IMPORTER: Importer = Importer {
    name: "io-stat",
    sentence: "A cgroup's io.stat: bytes and requests by device, and delays by blk-iocost and blk-iolatency.",
    kind: FormatKind::Unjudged,
    anchors: &[Anchor::Table(&["rbytes="])],
    detect: |cursor| if line(cursor.next_text()).is_some() { 92 } else { 0 },
    read,
};

/// Key, column, factor from the key's unit to the column's. `cost.wait` is in us: block/blk-iocost.c, ioc_pd_stat().
const KEYS: &[(&str, Column, i64)] = &[
    ("rbytes", cgroup::IO_READ_BYTES, 1),
    ("wbytes", cgroup::IO_WRITE_BYTES, 1),
    ("rios", cgroup::IO_READS, 1),
    ("wios", cgroup::IO_WRITES, 1),
    ("cost.usage", cgroup::IO_COST_USAGE_NS, 1000),
    ("cost.wait", cgroup::IO_COST_WAIT_NS, 1000),
    ("cost.indelay", cgroup::IO_COST_INDELAY_NS, 1000),
    ("use_delay", cgroup::IO_USE_DELAY, 1),
];

/// Parses a line `8:0 rbytes=1 wbytes=2 ...`, also after the name or path of the file,
/// and with several devices (5.16 to 5.18 printed devices without values on the same line).
fn line(text: &str) -> Option<Line<'_>> {
    let (path, text) = without_path(text.trim());
    let text = text.strip_prefix("io.stat").map_or(text, |rest| rest.trim_start_matches([':', ' ', '\t']));
    let is_device = |word: &str| {
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit());
        word.split_once(':').is_some_and(|(major, minor)| digits(major) && digits(minor))
    };
    let device = text.split_whitespace().take_while(|word| is_device(word)).last()?;
    let words = text.split_whitespace().skip_while(|word| is_device(word));
    let pairs: Option<Vec<(&str, &str)>> = words.map(|word| word.split_once('=')).collect();
    let pairs = pairs.filter(|pairs| pairs.iter().any(|(key, _)| *key == "rbytes"))?;
    Some(Line { path, device, pairs })
}

struct Line<'a> {
    /// May be empty.
    path: &'a str,
    device: &'a str,
    pairs: Vec<(&'a str, &'a str)>,
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let place = b.snapshot("io-stat");
    let command = b.context().command.clone().unwrap_or_default();
    let mut group = command.split_whitespace().find(|word| word.ends_with("/io.stat")).unwrap_or_default().to_owned();
    let mut sums: Vec<(Column, i64)> = Vec::new();
    let mut devices: HashSet<&str> = HashSet::new();
    while let Some(Line { path, device, pairs }) = cursor.peek().and_then(|next| line(next.text)) {
        if !path.is_empty() && path != group {
            // Another cgroup begins (`grep . */io.stat`).
            if !sums.is_empty() {
                break;
            }
            path.clone_into(&mut group);
        }
        // The file has each device once: another snapshot begins.
        if !devices.insert(device) {
            break;
        }
        cursor.take();
        for (key, value) in pairs {
            let known = KEYS.iter().find(|(name, ..)| *name == key);
            let Some(((_, column, factor), value)) = known.zip(count(value)) else { continue };
            let value = value.saturating_mul(*factor);
            match sums.iter_mut().find(|(known, _)| known.name == column.name) {
                Some((_, sum)) => *sum = sum.saturating_add(value),
                None => sums.push((*column, value)),
            }
        }
    }
    let folder = group.rsplit_once('/').map_or("", |(folder, _)| folder);
    let name = folder.strip_prefix("/sys/fs/cgroup").unwrap_or(folder);
    let cells: Vec<(Column, Cell)> =
        sums.into_iter().map(|(column, value)| (column, Cell::of(column.kind, value))).collect();
    b.row(place, Table::Cgroup, &Entity::named(if name.is_empty() { "/" } else { name }), &cells);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::import_texts;
    use flatwater_recording::Table;
    use flatwater_recording::schema::cgroup;

    #[test]
    fn values_of_devices_are_added_and_controllers_are_read() {
        let text = "$ cat /sys/fs/cgroup/db/io.stat\n8:16 rbytes=4096 wbytes=1000 rios=1 wios=2 dbytes=0 dios=0 cost.usage=50 cost.wait=7000000 cost.indebt=0 cost.indelay=3\n\
            9:0 8:0 rbytes=96 wbytes=24 rios=1 wios=1 dbytes=0 dios=0 use_delay=12 delay_nsec=0 depth=1 avg_lat=11526 win=800\n";
        let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        let (entity, rows) = recording.table(Table::Cgroup).expect("a table").by_entity().next().expect("a group");
        assert_eq!(entity.name, "/db");
        assert_eq!((rows.last(cgroup::IO_WRITE_BYTES), rows.last(cgroup::IO_READS)), (Some(1024), Some(2)));
        assert_eq!(rows.last(cgroup::IO_COST_WAIT_NS), Some(7_000_000_000));
        assert_eq!(rows.last(cgroup::IO_USE_DELAY), Some(12));
    }
}
