//! Reads blktrace: the lines of blkparse, and btt's table of all devices. The latency of a request is the time from its
//! queueing (Q, G or I) to its completion (C).

use std::collections::{HashMap, HashSet};

use super::builder::{Builder, Cell};
use super::error::ImportError;
use super::latency_log::{Counting, PerSecond};
use super::number::{count, nanos, number};
use super::text::{Cursor, Line};
use super::when::SECOND_NS;
use super::{FormatKind, Importer};
use crate::anchors::{Anchor, DIGITS};
use flatwater_recording::schema::{Column, disks};
use flatwater_recording::{Entity, OpKind, Table};

pub const BLKPARSE: Importer = Importer {
    name: "blkparse",
    sentence: "Events of blktrace, as blkparse prints them.",
    kind: FormatKind::Judged,
    anchors: &[Anchor::Start(DIGITS)],
    detect: |cursor| if event(cursor.next_text()).is_some() { 88 } else { 0 },
    read: read_events,
};

pub const BTT: Importer = Importer {
    name: "btt",
    sentence: "btt's table of blktrace: Q2G, I2D, D2C, Q2C.",
    kind: FormatKind::Judged,
    anchors: &[
        Anchor::Table(&["All Devices"]),
        Anchor::Line(&["Q2Q", "Q2G", "G2I", "Q2I", "Q2M", "I2D", "M2D", "Q2D", "D2C", "Q2C"]),
    ],
    detect: |cursor| match cursor.next_text() {
        text if text.contains("All Devices") && text.contains("====") => 90,
        text if phase(text).is_some() => 85,
        _ => 0,
    },
    read: read_btt,
};

struct Event<'a> {
    device: &'a str,
    at_ns: i64,
    action: &'a str,
    kind: &'a str,
    sector: i64,
    sectors: i64,
}

/// `  8,0    1        1     0.000000000   697  D   W 223490 + 8 [kjournald]`.
fn event(text: &str) -> Option<Event<'_>> {
    let mut words = text.split_whitespace();
    let device = words.next()?;
    let (major, minor) = device.split_once(',')?;
    let digits = |word: &str| !word.is_empty() && word.bytes().all(|c| c.is_ascii_digit());
    (digits(major) && digits(minor)).then_some(())?;
    (digits(words.next()?) && digits(words.next()?)).then_some(())?;
    let seconds = number(words.next()?).filter(|seconds| (0.0..1e9).contains(seconds))?;
    words.next()?.parse::<u32>().ok()?;
    let (action, kind) = (words.next()?, words.next()?);
    (action.len() <= 2 && kind.bytes().all(|c| c.is_ascii_uppercase())).then_some(())?;
    let sector = count(words.next()?)?;
    let sectors = words.next().filter(|word| *word == "+").and_then(|_| count(words.next()?)).unwrap_or(0);
    Some(Event { device, at_ns: (seconds * SECOND_NS as f64) as i64, action, kind, sector, sectors })
}

/// Maximum open requests. If the trace begins in the middle, completions without an issue are ignored.
const OPEN_MAX: usize = 65_536;

fn read_events(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let (track, origin) = b.origin("blkparse");
    let mut latency = PerSecond::new(track);
    // By device and sector: the times of queueing and of issue.
    let mut open: HashMap<(String, i64), (i64, Option<i64>)> = HashMap::new();
    let mut begun: HashSet<String> = HashSet::new();
    while let Some(line) = cursor.peek() {
        let Some(event) = event(line.text) else { break };
        cursor.take();
        let key = (event.device.to_owned(), event.sector);
        match event.action {
            "Q" | "G" | "I" | "D" if open.len() >= OPEN_MAX && !open.contains_key(&key) => {
                b.overflow("open requests of blkparse");
            }
            "Q" | "G" | "I" => {
                open.entry(key).or_insert((event.at_ns, None));
            }
            "D" => {
                open.entry(key).or_insert((event.at_ns, None)).1 = Some(event.at_ns);
            }
            "C" => {
                let Some((queued, issued)) = open.remove(&key) else { continue };
                let op = if event.kind.contains('W') { OpKind::Write } else { OpKind::Read };
                let bytes = u64::try_from(event.sectors.max(0)).unwrap_or(0).saturating_mul(512);
                let at_device = event.at_ns.saturating_sub(issued.unwrap_or(queued)).max(0);
                let whole = event.at_ns.saturating_sub(queued).max(0);
                let second = origin.saturating_add(event.at_ns).div_euclid(SECOND_NS);
                latency.add(b, second, event.device, op, whole.unsigned_abs(), bytes);
                let times =
                    [(disks::REQUESTS, 1.0), (disks::REQUEST_NS, whole as f64), (disks::QUEUE_NS, whole as f64)];
                let entity = Entity::named(event.device);
                if begun.insert(key.0) {
                    let zeros: Vec<(Column, Cell)> =
                        times.iter().map(|(column, _)| (*column, Cell::Rise(0.0))).collect();
                    b.row((track, origin), Table::Disks, &entity, &zeros);
                }
                let at = second.saturating_add(1).saturating_mul(SECOND_NS);
                let cells: Vec<(Column, Cell)> =
                    times.iter().map(|(column, value)| (*column, Cell::Rise(*value))).collect();
                b.row((track, at), Table::Disks, &entity, &cells);
                if whole > at_device.saturating_mul(4) && whole > SECOND_NS / 100 {
                    b.note("requests waited much longer before issue (Q or G to D) than at the device (D to C)");
                }
            }
            _ => {}
        }
    }
    latency.flush(b);
    Ok(())
}

/// `D2C  0.000041231  0.001123212  0.082312321  23412`: name, mean and maximum in seconds, number of requests.
fn phase(text: &str) -> Option<(&str, f64, f64, u64)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [name, least, mean, longest, number_of] = words.as_slice() else { return None };
    let known = ["Q2Q", "Q2G", "G2I", "Q2I", "Q2M", "I2D", "M2D", "Q2D", "D2C", "Q2C"].contains(name);
    number(least).filter(|_| known)?;
    Some((*name, number(mean)?, number(longest)?, count(number_of)?.try_into().ok()?))
}

fn read_btt(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let place = b.snapshot("btt");
    let mut phases: Vec<(&str, f64)> = Vec::new();
    while let Some(line) = cursor.peek() {
        if let Some((name, mean, longest, times)) = phase(line.text) {
            phases.push((name, mean));
            // From queueing to completion: the time that the submitter waits.
            if name == "Q2C" && times > 0 {
                let mut counting = Counting::default();
                counting.add(nanos(longest.max(0.0), 1e9), 1);
                counting.add(nanos(mean.max(0.0), 1e9), times - 1);
                counting.push(b, place, 0, OpKind::Other, "block I/O", 0);
            }
        } else if !is_ornament(&line) {
            break;
        }
        cursor.take();
    }
    let of = |name: &str| phases.iter().find(|(known, _)| *known == name).map_or(0.0, |(_, mean)| *mean);
    let (waits, device) = (of("Q2G") + of("G2I") + of("I2D") + of("Q2D"), of("D2C"));
    if waits > 4.0 * device && waits > 0.005 {
        b.note("requests waited much longer before issue (Q or G to D) than at the device (D to C)");
    }
    Ok(())
}

fn is_ornament(line: &Line<'_>) -> bool {
    let text = line.text.trim();
    text.is_empty()
        || text.starts_with("===")
        || text.starts_with("---")
        || text.starts_with("ALL ") && text.contains("AVG")
        || text == "ALL           MIN           AVG           MAX           N"
}

#[cfg(test)]
mod tests {
    use crate::import_texts;
    use flatwater_recording::schema::disks;
    use flatwater_recording::{OpKind, Table};

    #[test]
    fn a_requests_latency_is_from_queueing_to_completion() {
        let text = "  8,0    1        1     0.000000000   697  G   W 223490 + 8 [kjournald]\n\
            \x20 8,0    1        3     0.000035697   697  D   W 223490 + 8 [kjournald]\n\
            \x20 8,0    1        4     0.105212345     0  C   W 223490 + 8 [0]\n\
            \x20 8,0    1        5     0.200000000     0  C   W 999 + 8 [0]\n";
        let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        assert_eq!(recording.latency.len(), 1);
        assert_eq!((recording.latency[0].op, recording.latency[0].worst_from_start_ns), (OpKind::Write, 105_212_345));
        let (_, rows) = recording.table(Table::Disks).expect("a table").by_entity().next().expect("a device");
        assert_eq!(rows.rise(disks::REQUESTS), Some(1));
    }

    #[test]
    fn btt_separates_queue_time_from_device_time() {
        let text = "==================== All Devices ====================\n\n            ALL           MIN           AVG           MAX           N\n--------------- -------------\nI2D               0.000000321   0.112301232   0.942312321       23412\nD2C               0.000041231   0.001123212   0.082312321       23412\nQ2C               0.000050123   0.113426132   0.942912321       23412\n";
        let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        assert_eq!(recording.latency.first().map(|bucket| bucket.worst_from_start_ns), Some(942_912_321));
        assert!(
            recording.header.notes.iter().any(|note| note.to_string().contains("before issue")),
            "{:?}",
            recording.header.notes
        );
    }
}
