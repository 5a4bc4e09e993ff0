//! Reads `zpool iostat -w`: latency histograms of the requests of a pool or member, since its import or for an
//! interval.
//!
//! `disk_wait` is the time at the device; `total_wait` includes ZFS's queues, where asynchronous writes wait on
//! purpose.

use super::builder::{Builder, Track};
use super::error::ImportError;
use super::latency_log::Counting;
use super::number::{nanos, number};
use super::text::Cursor;
use super::{FormatKind, Importer};
use crate::anchors::Anchor;
use flatwater_recording::OpKind;

pub const IMPORTER: Importer = Importer {
    name: "zpool-latency",
    sentence: "zpool iostat -w: latency histograms of the requests of a ZFS pool.",
    kind: FormatKind::Judged,
    anchors: &[Anchor::Table(&["total_wait"])],
    detect: |cursor| if title(cursor.next_text()).is_some() { 93 } else { 0 },
    read,
};

/// The pool or member in `tank  total_wait  disk_wait  syncq_wait  asyncq_wait`. Until 2.0 the queues were called
/// sync_queue.
fn title(text: &str) -> Option<&str> {
    let mut words = text.split_whitespace();
    let name = words.next()?;
    (words.next() == Some("total_wait") && words.next() == Some("disk_wait")).then_some(name)
}

/// Whether the line is `latency  read  write  read  write ...`, or the rule below it.
fn is_rest_of_header(text: &str) -> bool {
    let text = text.trim();
    text.starts_with("latency ") && text.contains("read") || text.starts_with("---")
}

/// Parses a count with a decimal suffix: `6.11K`, `1.2M`.
fn many(text: &str) -> Option<u64> {
    let (digits, factor) = match text.as_bytes().last()? {
        b'K' => (text.strip_suffix('K')?, 1e3),
        b'M' => (text.strip_suffix('M')?, 1e6),
        b'G' => (text.strip_suffix('G')?, 1e9),
        _ => (text, 1.0),
    };
    number(digits).filter(|value| *value >= 0.0).map(|value| (value * factor).round().min(1e15) as u64)
}

/// Parses `33ms  0  12  0  9 ...`: upper bound in ns, reads and writes with that disk_wait. `-p` prints full counts.
fn row(text: &str) -> Option<(u64, u64, u64)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (upper, rest) = words.split_first()?;
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let ns = units.iter().find_map(|(unit, ns)| Some(nanos(number(upper.strip_suffix(unit)?)?, *ns)))?;
    let counts: Vec<u64> = rest.iter().map_while(|word| if *word == "-" { Some(0) } else { many(word) }).collect();
    let all = counts.len() == rest.len() && counts.len() >= 4;
    let (reads, writes) = (counts.get(2).copied()?, counts.get(3).copied()?);
    all.then_some((ns, reads, writes))
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let (mut name, mut reads, mut writes) = (String::new(), Counting::default(), Counting::default());
    let place = b.snapshot("zpool-latency");
    while let Some(line) = cursor.peek() {
        if let Some(next) = title(line.text) {
            push(b, place, &name, (std::mem::take(&mut reads), std::mem::take(&mut writes)));
            next.clone_into(&mut name);
        } else if let Some((ns, read, written)) = row(line.text) {
            if read > 0 {
                reads.add(ns, read);
            }
            if written > 0 {
                writes.add(ns, written);
            }
        } else if !is_rest_of_header(line.text) && !line.is_blank() {
            break;
        }
        cursor.take();
    }
    push(b, place, &name, (reads, writes));
    b.note(
        "zpool iostat -w: latencies at the disks (disk_wait), rounded up to the bound of their class; without an interval \
        they cover the time since the pool was imported",
    );
    Ok(())
}

fn push(b: &mut Builder, place: (Track, i64), name: &str, (reads, writes): (Counting, Counting)) {
    // These are requests, not calls: the log does not show which calls waited for them.
    reads.push(b, place, 0, OpKind::Other, &format!("{name} reads at the disk"), 0);
    writes.push(b, place, 0, OpKind::Other, &format!("{name} writes at the disk"), 0);
}

#[cfg(test)]
mod tests {
    use super::{many, row, title};
    use crate::import_texts;

    #[test]
    fn upper_bounds_and_suffixed_counts_parse() {
        assert_eq!((many("6.11K"), many("12"), many("1.5M"), many("x")), (Some(6110), Some(12), Some(1_500_000), None));
        assert_eq!(row("33ms    0     0      4    210     0      0      0      0      0"), Some((33_000_000, 4, 210)));
        assert_eq!(row("1s  1 2"), None);
        assert_eq!(title("data1        total_wait     disk_wait    sync_queue    async_queue"), Some("data1"));
        assert_eq!(title("              capacity     operations     bandwidth    total_wait     disk_wait"), None);
    }

    #[test]
    fn a_pools_disks_become_two_histograms() {
        let text = "# zpool iostat -y data1 -w 5\n\ndata1        total_wait     disk_wait    sync_queue    async_queue\nlatency      read  write   read  write   read  write   read  write  scrub\n----------  -----  -----  -----  -----  -----  -----  -----  -----  -----\n1us             0      0      0      0      0      0    548      0      0\n16ms            3    100      3    200      0      0      0      0      0\n67ms            0     40      0     12      0      0      0      0      0\n-------------------------------------------------------------------------\n";
        let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        let all: Vec<(&str, u64, usize)> = recording
            .latency
            .iter()
            .map(|row| (row.thread.as_str(), row.worst_from_start_ns, row.from_start.unpack().len() as usize))
            .collect();
        assert!(all.contains(&("data1 reads at the disk", 16_000_000, 3)), "{all:?}");
        assert!(all.contains(&("data1 writes at the disk", 67_000_000, 212)), "{all:?}");
    }
}
