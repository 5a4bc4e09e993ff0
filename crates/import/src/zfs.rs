//! Reads `zpool status` (failing or slow members, resilver, scrub). arcstat, arc_summary and the files of
//! /proc/spl/kstat are recognized, but they are not evidence of stalls.

use super::builder::Builder;
use super::error::ImportError;
use super::number::{count, number};
use super::text::Cursor;
use super::{FormatKind, Importer, is_of_another};
use crate::anchors::Anchor;
use flatwater_recording::{DeviceTrouble, EventKind};

pub const STATUS: Importer = Importer {
    name: "zpool-status",
    sentence: "zpool status, -s: failing or slow members, running resilvers and scrubs.",
    kind: FormatKind::Unjudged,
    anchors: &[Anchor::Table(&["CKSUM", "pool: "]), Anchor::Line(&["scan: "])],
    detect: |cursor| match cursor.next_text().trim() {
        text if text.starts_with("pool: ") && (1..3).any(|ahead| has(cursor, ahead, "state: ")) => 94,
        text if is_member_header(text.trim()) => 92,
        text if text.starts_with("scan: ") => 85,
        _ => 0,
    },
    read: read_status,
};

pub const ARC: Importer = Importer {
    name: "zfs-arc",
    sentence: "arcstat, arc_summary, /proc/spl/kstat: the cache of ZFS; recognized, but not evidence of stalls.",
    kind: FormatKind::Averages,
    anchors: &[
        Anchor::Table(&["arcsz", "ZFS Subsystem Report", "ARC status:", "ARC Summary:"]),
        Anchor::Common(&["time", " 0x"]),
    ],
    detect: |cursor| match cursor.next_text() {
        text if is_arcstat(text) => 92,
        text if is_kstat(text) && has(cursor, 1, "name ") => 92,
        text if text.starts_with("ZFS Subsystem Report")
            || text.starts_with("ARC status:")
            || text.starts_with("ARC Summary:") =>
        {
            90
        }
        _ => 0,
    },
    read: read_arc,
};

fn has(cursor: &Cursor<'_>, ahead: usize, start: &str) -> bool {
    cursor.ahead(ahead).is_some_and(|line| line.text.trim_start().starts_with(start))
}

/// Whether the line is `NAME  STATE  READ WRITE CKSUM`, followed by SLOW with `-s`.
fn is_member_header(text: &str) -> bool {
    text.starts_with("NAME") && text.split_whitespace().take(5).eq(["NAME", "STATE", "READ", "WRITE", "CKSUM"])
}

/// Parses `sdb  ONLINE  0  3  0  12`: the trouble of the member, if any. `None` if the line is not a member.
fn member(text: &str) -> Option<Option<DeviceTrouble>> {
    const STATES: &[&str] = &["ONLINE", "DEGRADED", "FAULTED", "OFFLINE", "UNAVAIL", "REMOVED", "AVAIL", "INUSE"];
    let words: Vec<&str> = text.split_whitespace().collect();
    let [_, state, rest @ ..] = words.as_slice() else { return None };
    STATES.contains(state).then_some(())?;
    let many = |word: &str| word.trim_end_matches(['K', 'M']).parse::<f64>().ok();
    let counts: Vec<f64> = rest.iter().map_while(|word| many(word)).collect();
    let failed = counts.iter().take(3).sum::<f64>() > 0.0 || ["FAULTED", "UNAVAIL", "REMOVED"].contains(state);
    let slow = counts.get(3).is_some_and(|slow| *slow > 0.0);
    Some(match () {
        () if failed => Some(DeviceTrouble::Error),
        // Requests that took longer than zio_slow_io_ms (30 s).
        () if slow => Some(DeviceTrouble::Timeout),
        () if *state == "DEGRADED" => Some(DeviceTrouble::Array),
        () => None,
    })
}

fn read_status(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    const KEYS: &[&str] = &[
        "pool:", "state:", "status:", "action:", "see:", "scan:", "config:", "errors:", "scrub:", "logs", "cache",
        "spares", "special", "dedup",
    ];
    let place = b.snapshot("zpool-status");
    let mut sentence = false;
    while let Some(line) = cursor.peek() {
        let text = line.text.trim();
        let of_member = member(text);
        let keyed = KEYS.iter().any(|key| text.starts_with(key));
        // Status, action and the progress of a scan continue on further lines.
        let continues = sentence && !line.is_blank() && line.text.starts_with([' ', '\t']);
        let own = keyed || of_member.is_some() || is_member_header(text) || continues || line.is_blank();
        if !own || is_of_another(cursor, &STATUS) {
            break;
        }
        cursor.take();
        sentence = keyed || continues && of_member.is_none();
        let runs = (text.starts_with("scan:") || text.starts_with("scrub:")) && text.contains("in progress");
        let trouble = of_member.flatten().or(runs.then_some(DeviceTrouble::Array));
        match trouble {
            Some(trouble) => {
                let line = format!("zpool: {}", text.split_whitespace().collect::<Vec<_>>().join(" "));
                b.event(place, EventKind::Device { trouble, line });
            }
            None if line.is_blank() => {}
            None => b.pass_over(),
        }
    }
    Ok(())
}

/// Whether the line is `    time  read  miss  miss%  dmis  dm%  pmis  pm%  mmis  mm%  arcsz     c`.
fn is_arcstat(text: &str) -> bool {
    if !text.trim_start().starts_with("time") {
        return false;
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    words.first() == Some(&"time")
        && !words.iter().any(|word| word.starts_with(|c: char| c.is_ascii_digit()))
        && words.contains(&"read")
        && (words.contains(&"arcsz") || words.contains(&"size") && words.contains(&"c"))
}

/// Whether the line is `6 1 0x01 91 4368 6329068452 55247022853839`, the first line of a kstat file.
fn is_kstat(text: &str) -> bool {
    if !text.starts_with(|c: char| c.is_ascii_digit()) || !text.contains(" 0x") {
        return false;
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    words.len() == 7
        && words.get(2).is_some_and(|word| word.starts_with("0x"))
        && words.iter().filter(|word| count(word).is_some()).count() >= 6
}

fn read_arc(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    // What was seen above: a report of arc_summary, the head of a kstat file, a header of arcstat and its columns.
    let (mut report, mut kstat, mut columns) = (false, false, 0);
    while let Some(line) = cursor.peek() {
        let text = line.text.trim();
        report |= text.starts_with("ZFS Subsystem Report") || text.starts_with("ARC ");
        let words: Vec<&str> = text.split_whitespace().collect();
        kstat |= is_kstat(text);
        if is_arcstat(text) {
            columns = words.len();
        }
        let pair =
            kstat && matches!(words.as_slice(), [_, kind, value] if count(kind).is_some() && number(value).is_some());
        let figure = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
        let row = words.len() == columns
            && words.first().is_some_and(|word| word.matches(':').count() == 2)
            && words.iter().all(figure);
        let own = is_arcstat(text)
            || is_kstat(text)
            || pair
            || row
            || kstat && text.starts_with("name ")
            || report && (text.contains(':') || text.starts_with('-'));
        if !(own || line.is_blank()) || !(row || line.is_blank()) && is_of_another(cursor, &ARC) {
            break;
        }
        cursor.take();
        if !line.is_blank() {
            b.pass_over();
        }
    }
    b.note(
        "statistics of ZFS's cache only show whether reads hit; zpool iostat -l and /proc/spl/kstat/zfs/POOL/txgs show waits",
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::import_texts;
    use flatwater_recording::{DeviceTrouble, EventKind};

    fn troubles(text: &str) -> Vec<DeviceTrouble> {
        let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        let read = recording.header.import.as_ref().expect("a log");
        assert_eq!(read.not_understood, [], "{read:?}");
        let of = |kind: &EventKind| match kind {
            EventKind::Device { trouble, .. } => Some(*trouble),
            _ => None,
        };
        recording.events.iter().filter_map(|event| of(&event.kind)).collect()
    }

    #[test]
    fn failing_and_slow_members_are_events() {
        let text = "  pool: tank\n state: ONLINE\nstatus: One or more devices has experienced an unrecoverable error.  An\n\tattempt was made to correct the error.\n  scan: resilver in progress since Sun Mar  3 10:00:00 2024\n\t1.02T scanned at 512M/s\nconfig:\n\n\tNAME        STATE     READ WRITE CKSUM  SLOW\n\ttank        ONLINE       0     0     0     -\n\t  mirror-0  ONLINE       0     0     0     -\n\t    sda     ONLINE       0     0     0     0\n\t    sdb     ONLINE       0     0     0    17\n\t    sdc     ONLINE       0     3     0     0\n\nerrors: No known data errors\n";
        assert_eq!(troubles(text), [DeviceTrouble::Array, DeviceTrouble::Timeout, DeviceTrouble::Error]);
    }

    #[test]
    fn cache_statistics_are_known_and_yield_no_event() {
        let text = "6 1 0x01 91 4368 6329068452 55247022853839\nname                            type data\nhits                            4    297557532\nmisses                          4    41666862\nmemory_throttle_count           4    0\n\n    time  read  miss  miss%  dmis  dm%  pmis  pm%  mmis  mm%  arcsz     c\n16:00:01    12     0      0     0    0     0    0     0    0   3.9G  4.0G\n\nprocs -----------memory---------- ---swap-- -----io---- -system-- ----cpu----\n r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa\n 2  0 152388 226112  11092 1087072    0    2     1     1    0    1 47 22 27  1\n";
        assert_eq!(troubles(text), []);
    }
}
