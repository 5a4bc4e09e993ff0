//! Reads the head of top in batch mode, and of uptime. `processes` reads the list below.

use super::interval::Intervals;
use super::scaled;
use crate::anchors::Anchor;
use crate::builder::{Builder, Cell};
use crate::error::ImportError;
use crate::number::{number, rounded};
use crate::sar::columns::Report;
use crate::text::Cursor;
use crate::when::{SECOND_NS, When, Zero, clock};
use crate::{FormatKind, Importer};
use flatwater_recording::schema::{Column, meminfo};
use flatwater_recording::{Entity, Table};

pub const IMPORTER: Importer = Importer {
    name: "top",
    sentence: "The head of top and uptime: load, CPU, memory and swap; processes of top in state D.",
    kind: FormatKind::Averages,
    anchors: &[
        Anchor::Table(&["top - ", "%Cpu", "Cpu", "Tasks:", "Threads:", "load average"]),
        Anchor::Line(&[
            "Mem:", "Swap:", "KiB Mem", "MiB Mem", "GiB Mem", "KiB Swap", "MiB Swap", "GiB Swap", "Mem :", "Swap :",
        ]),
    ],
    detect: |cursor| match cursor.next_text().trim_start() {
        text if text.starts_with("top - ") => 90,
        text if is_cpu(text) || is_tasks(text) || memory(text).is_some() => 75,
        text if load(text).is_some() => 60,
        _ => 0,
    },
    read,
};

/// Whether the line is `Tasks: 123 total, 1 running, ...` or `Threads: ...`.
fn is_tasks(text: &str) -> bool {
    ["Tasks:", "Threads:"].iter().any(|start| text.starts_with(start))
        && text.contains(" total")
        && text.contains("running")
}

/// Whether the line is `%Cpu(s):  1.2 us, ...`, `Cpu(s):  1.2%us, ...` or `%Cpu0  : ...`.
fn is_cpu(text: &str) -> bool {
    (text.starts_with("%Cpu") || text.starts_with("Cpu")) && text.contains(':') && text.contains("id")
}

/// Parses `load average: 0.10, 0.20, 0.30` and `load averages: 2.091 2.048 1.947`, with the time before it.
fn load(text: &str) -> Option<(Option<i64>, [f64; 3])> {
    let (before, rest) = text.split_once("load average")?;
    let rest = rest.trim_start_matches('s').strip_prefix(':')?;
    let mut values = rest.split([',', ' ']).filter(|word| !word.is_empty()).filter_map(number);
    let loads = [values.next()?, values.next()?, values.next()?];
    Some((before.split_whitespace().find_map(|word| clock(word).filter(|_| word.matches(':').count() == 2)), loads))
}

/// Parses `KiB Mem : 16384 total, 512 free, ...`, `MiB Swap: ...` or `Mem:  16384k total, ...`: whether it is swap, and
/// pairs of bytes and name.
fn memory(text: &str) -> Option<(bool, Vec<(f64, &str)>)> {
    let (head, rest) = text.split_once(':')?;
    let mut words = head.split_whitespace();
    let (first, second) = (words.next()?, words.next());
    let (bare, kind) = match (first, second) {
        ("KiB", Some(kind)) => (1024.0, kind),
        ("MiB", Some(kind)) => (1_048_576.0, kind),
        ("GiB", Some(kind)) => (1_073_741_824.0, kind),
        (kind, None) => (1024.0, kind),
        _ => return None,
    };
    let swap = match kind {
        "Mem" => false,
        "Swap" => true,
        _ => return None,
    };
    let words: Vec<&str> = rest.split_whitespace().collect();
    let found: Vec<(f64, &str)> = words
        .windows(2)
        .filter_map(|pair| {
            let name = pair.get(1)?.trim_end_matches([',', '.']);
            name.starts_with(|c: char| c.is_ascii_alphabetic())
                .then(|| Some((scaled(pair.first()?.trim_end_matches('+'), bare)?, name)))?
        })
        .collect();
    found.iter().any(|(_, name)| *name == "total").then_some((swap, found))
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let mut intervals = Intervals::new(b, "top", SECOND_NS);
    let mut begun = false;
    let (mut whole, mut each) = (false, Vec::new());
    while let Some(line) = cursor.peek() {
        let text = line.text.trim_start();
        if let Some((time, [one, five, fifteen])) = load(text) {
            intervals.next(b, time.map(|ns| When::new(Zero::Day, ns)), None);
            begun = true;
            let values = [("ldavg-1", one), ("ldavg-5", five), ("ldavg-15", fifteen)];
            intervals.report(b, Report::Queue, &Entity::named("all"), &values);
        } else if is_cpu(text) {
            if !begun {
                intervals.next(b, None, None);
                begun = true;
            }
            // With `1`, top prints a line for each CPU instead of one for all.
            if text.starts_with("%Cpu(s)") || text.starts_with("Cpu(s)") {
                let values = shares(text);
                intervals.report(b, Report::Cpu, &Entity::named("all"), &values);
                whole = true;
            } else {
                let values = shares(text);
                if let Some(cpu) = number_of(text) {
                    intervals.report(b, Report::Cpu, &Entity::named(cpu), &values);
                }
                each.push(values);
            }
        } else if let Some((swap, values)) = memory(text) {
            let cells: Vec<(Column, Cell)> = values
                .iter()
                .filter_map(|(value, name)| Some((level(swap, name)?, Cell::Gauge(rounded(*value)))))
                .collect();
            intervals.row(b, Table::Meminfo, &Entity::default(), &cells);
        } else if !(is_tasks(text) || line.is_blank()) {
            break;
        }
        cursor.take();
        if line.is_blank() {
            break;
        }
    }
    if !whole && !each.is_empty() {
        intervals.report(b, Report::Cpu, &Entity::named("all"), &mean(&each));
    }
    intervals.leave(b);
    Ok(())
}

/// The number in `%Cpu3  :  1.0 us, ...`.
fn number_of(text: &str) -> Option<&str> {
    let name = text.split(':').next()?.trim().trim_start_matches('%').strip_prefix("Cpu")?;
    (!name.is_empty() && name.bytes().all(|c| c.is_ascii_digit())).then_some(name)
}

/// The mean of the lines of single CPUs. A screen may show only some of the CPUs.
fn mean(each: &[Vec<(&'static str, f64)>]) -> Vec<(&'static str, f64)> {
    let mut sums: Vec<(&'static str, f64)> = Vec::new();
    for (name, value) in each.iter().flatten() {
        match sums.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum += value,
            None => sums.push((name, *value)),
        }
    }
    sums.iter().map(|(name, sum)| (*name, sum / each.len() as f64)).collect()
}

/// Parses `1.2 us,  3.4 sy` and `1.2%us,  3.4%sy`, with sysstat's names.
fn shares(text: &str) -> Vec<(&'static str, f64)> {
    let names = [
        ("us", "user"),
        ("sy", "system"),
        ("ni", "nice"),
        ("id", "idle"),
        ("wa", "iowait"),
        ("hi", "irq"),
        ("si", "soft"),
        ("st", "steal"),
    ];
    let fields = text.split_once(':').map_or("", |(_, rest)| rest);
    let spaced = fields.replace('%', " ");
    let words: Vec<&str> = spaced.split([',', ' ']).filter(|word| !word.is_empty()).collect();
    let pairs = words.windows(2).filter_map(|pair| {
        let name = names.iter().find(|(name, _)| pair.get(1) == Some(name))?;
        Some((name.1, number(pair.first()?)?))
    });
    pairs.collect()
}

fn level(swap: bool, name: &str) -> Option<Column> {
    Some(match (swap, name) {
        (false, "total") => meminfo::MEM_TOTAL_BYTES,
        (false, "free") => meminfo::MEM_FREE_BYTES,
        (false, "buff/cache") => meminfo::BUFFERS_CACHED_BYTES,
        (false, "buffers") => meminfo::BUFFERS_BYTES,
        (false | true, "cached") => meminfo::CACHED_BYTES,
        (_, "avail") => meminfo::MEM_AVAILABLE_BYTES,
        (true, "total") => meminfo::SWAP_TOTAL_BYTES,
        (true, "free") => meminfo::SWAP_FREE_BYTES,
        (true, "used") => meminfo::SWAP_USED_BYTES,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::{load, memory, shares};
    use crate::import_texts;
    use flatwater_recording::Table;
    use flatwater_recording::schema::cpu;

    #[test]
    fn lines_of_single_cpus_are_averaged() {
        let screen = "top - 12:02:15 up 6 days,  8:05,  1 user,  load average: 0.66, 0.72, 0.59\n\
            %Cpu0  :  0.0 us,  2.0 sy,  0.0 ni, 36.0 id, 62.0 wa,  0.0 hi,  0.0 si,  0.0 st\n\
            %Cpu1  :  0.0 us,  0.0 sy,  0.0 ni, 86.0 id, 14.0 wa,  0.0 hi,  0.0 si,  0.0 st\n";
        let recording = import_texts(&[("f".to_owned(), screen.into())]).expect("read").recording;
        let (entity, rows) = recording.table(Table::Cpu).expect("a table").by_entity().next().expect("a row");
        let wait = rows.rise(cpu::IOWAIT_NS).expect("two readings") as f64 / 1e9;
        assert!(entity.name == "all" && (wait - 0.38).abs() < 0.001, "{wait}");
    }

    #[test]
    fn lines_of_old_and_new_versions_parse() {
        assert_eq!(
            load("top - 10:20:30 up 1 day,  load average: 0.10, 0.20, 0.30").map(|found| found.1),
            Some([0.1, 0.2, 0.3])
        );
        assert_eq!(load("21:29:17 load averages: 2.091 2.048 1.947").map(|found| found.1), Some([2.091, 2.048, 1.947]));
        assert_eq!(shares("%Cpu(s):  1.2 us,  3.4 sy, 95.4 id"), [("user", 1.2), ("system", 3.4), ("idle", 95.4)]);
        assert_eq!(shares("Cpu(s):  1.2%us,  3.4%sy, 95.4%id"), [("user", 1.2), ("system", 3.4), ("idle", 95.4)]);
        let (swap, values) = memory("KiB Mem :  16384 total,   512 free,  128 used, 64 buff/cache").expect("memory");
        assert!(!swap);
        assert_eq!(values.first(), Some(&(16_777_216.0, "total")));
        assert!(memory("Mem:  1 2 3").is_none());
    }
}
