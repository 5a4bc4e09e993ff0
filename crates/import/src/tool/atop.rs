//! Reads atop and PCP's `pcp atop`: the lines of resources, `CPU | sys 3% | user 9% | ...`. Fields and their order
//! differ between versions, so fields are read by name.
//!
//! Counts are per interval, or per second if they end in `/s`; percentages of the CPU sum to 100 times the number of
//! CPUs. `avio` is ignored: it is busy time per request, and both are printed as well.

use std::collections::HashSet;

use super::interval::Intervals;
use super::scaled;
use crate::anchors::Anchor;
use crate::builder::{Builder, Cell};
use crate::error::ImportError;
use crate::number::{leading, number, rounded};
use crate::sar::columns::Report;
use crate::text::{Cursor, Line};
use crate::when::{SECOND_NS, When, Zero, clock, date};
use crate::{FormatKind, Importer};
use flatwater_recording::schema::{Column, meminfo, vmstat};
use flatwater_recording::{Entity, Table};

pub const IMPORTER: Importer = Importer {
    name: "atop",
    sentence: "atop 1.x to 2.x and pcp atop: CPU, MEM, SWP, PAG, PSI, DSK, LVM and MDD lines.",
    kind: FormatKind::Averages,
    anchors: &[Anchor::Table(&["ATOP"]), Anchor::Common(&["|"])],
    detect: |cursor| match cursor.next_text() {
        text if header(text).is_some() => 95,
        text if label(text).is_some() => 90,
        _ => 0,
    },
    read,
};

const LABELS: &[&str] = &[
    "PRC", "CPU", "cpu", "CPL", "GPU", "MEM", "SWP", "PAG", "PSI", "LVM", "MDD", "DSK", "NFM", "NFC", "NFS", "NET",
    "IFB", "NUM", "NUC", "LLC", "KSM",
];

/// The label of a line of fields between bars.
fn label(text: &str) -> Option<&'static str> {
    let (first, rest) = text.trim_start().split_once('|')?;
    let label = LABELS.iter().find(|label| **label == first.trim())?;
    rest.contains('|').then_some(label)
}

/// End and length of the interval in `ATOP - host   2020/01/02  10:20:30   ------   10s elapsed`.
fn header(text: &str) -> Option<(Option<When>, Option<i64>)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    (*words.first()? == "ATOP").then_some(())?;
    let day = words.iter().find_map(|word| date(word));
    let time = words.iter().find_map(|word| clock(word));
    let when = match (day, time) {
        (Some(day), Some(time)) => Some(When::new(Zero::Epoch, day * 86_400 * SECOND_NS + time)),
        (None, Some(time)) => Some(When::new(Zero::Day, time)),
        _ => None,
    };
    let at = words.iter().position(|word| *word == "elapsed").filter(|at| *at > 0);
    let elapsed = at.and_then(|at| words.get(at - 1)).and_then(|word| elapsed_ns(word));
    Some((when, elapsed))
}

/// Parses `10s`, `1m0s` or `2h3m4s`.
fn elapsed_ns(text: &str) -> Option<i64> {
    let (mut rest, mut seconds) = (text, 0_i64);
    while !rest.is_empty() {
        let (value, after) = leading(rest)?;
        let unit = after.chars().next()?;
        let factor = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            _ => return None,
        };
        seconds = seconds.checked_add(i64::try_from(value).ok()?.checked_mul(factor)?)?;
        rest = after.get(1..)?;
    }
    seconds.checked_mul(SECOND_NS).filter(|ns| *ns > 0)
}

/// The fields of a line: name, and value with its unit.
fn fields(text: &str) -> Vec<(&str, &str)> {
    let cells = text.split('|').skip(1).map(str::trim).filter(|cell| !cell.is_empty());
    cells
        .map(|cell| cell.split_once(char::is_whitespace).map_or((cell, ""), |(name, value)| (name, value.trim())))
        .collect()
}

/// A count within the interval: `8002/s` is a rate, `47` is a count. Narrow fields may contain `1e5` or `12K`.
fn counted(value: &str, seconds: f64) -> Option<f64> {
    match value.strip_suffix("/s") {
        Some(rate) => Some(number(rate).or_else(|| scaled(rate, 1.0))? * seconds),
        None => number(value).or_else(|| scaled(value, 1.0)),
    }
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let mut intervals = Intervals::new(b, "atop", 10 * SECOND_NS);
    let mut seen: HashSet<String> = HashSet::new();
    let mut stamped = false;
    while let Some(line) = cursor.peek() {
        let text = line.text;
        if let Some((when, elapsed)) = header(text) {
            if let (Some(when), false) = (when, stamped) {
                intervals = Intervals::at(b, "atop", elapsed.unwrap_or(10 * SECOND_NS), Some(when));
            }
            stamped |= when.is_some();
            intervals.next(b, when, elapsed);
            seen = HashSet::from(["header".to_owned()]);
        } else if let Some(label) = label(text) {
            let fields = fields(text);
            // A repeated device or label begins the next interval.
            let name = fields.first().filter(|(_, value)| value.is_empty()).map_or("", |(name, _)| name);
            let key = format!("{label} {name}");
            if seen.is_empty() || (label != "cpu" && label != "NET" && seen.contains(&key)) {
                intervals.next(b, None, None);
                seen.clear();
            }
            seen.insert(key);
            if let Err(error) = resource(&line, label, &fields, &mut intervals, b) {
                b.problem(error);
            }
        } else if !line.is_blank() {
            break;
        }
        cursor.take();
    }
    if !stamped {
        b.gap(
            "interval of atop",
            "no header states the interval: 10 s are assumed, atop's default",
            "include the line ATOP - ... elapsed",
        );
    }
    intervals.leave(b);
    Ok(())
}

fn resource(
    line: &Line<'_>,
    label: &str,
    fields: &[(&str, &str)],
    intervals: &mut Intervals,
    b: &mut Builder,
) -> Result<(), ImportError> {
    let of = |name: &str| fields.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    let percent = |name: &str| of(name).and_then(|value| number(value.trim_end_matches('%')));
    let seconds = intervals.seconds();
    match label {
        "CPU" => {
            let names = [
                ("sys", "system"),
                ("user", "user"),
                ("irq", "irq"),
                ("idle", "idle"),
                ("wait", "iowait"),
                ("steal", "steal"),
            ];
            let values: Vec<(&str, f64)> =
                names.iter().filter_map(|(atop, name)| Some((*name, percent(atop)?))).collect();
            // The sum of all CPUs: divided to get the mean of one CPU.
            let cpus = (values.iter().map(|(_, value)| value).sum::<f64>() / 100.0).round().max(1.0);
            if values.len() < 3 {
                return Err(ImportError::line(line, "sys, user and idle in percent"));
            }
            b.machine.cpus = b.machine.cpus.or(Some(cpus as u32));
            let shares: Vec<(&str, f64)> = values.iter().map(|(name, value)| (*name, value / cpus)).collect();
            intervals.report(b, Report::Cpu, &Entity::named("all"), &shares);
        }
        "CPL" => {
            let names = [("avg1", "ldavg-1"), ("avg5", "ldavg-5"), ("avg15", "ldavg-15")];
            let values: Vec<(&str, f64)> =
                names.iter().filter_map(|(atop, name)| Some((*name, of(atop).and_then(number)?))).collect();
            intervals.report(b, Report::Queue, &Entity::named("all"), &values);
        }
        "MEM" => levels(MEMORY, fields, intervals, b),
        "SWP" => levels(SWAP, fields, intervals, b),
        "PAG" => {
            let cells: Vec<(Column, Cell)> = PAGING
                .iter()
                .filter_map(|(name, column)| Some((*column, Cell::Rise(counted(of(name)?, seconds)?))))
                .collect();
            intervals.row(b, Table::Vmstat, &Entity::default(), &cells);
        }
        "PSI" => {
            for (name, some, full) in
                [("cpu", "cpusome", ""), ("memory", "memsome", "memfull"), ("io", "iosome", "iofull")]
            {
                let values: Vec<(&str, f64)> = [("some", some), ("full", full)]
                    .iter()
                    .filter_map(|(kind, key)| Some((*kind, percent(key)?)))
                    .collect();
                intervals.report(b, Report::Pressure(name), &Entity::named(name), &values);
            }
        }
        "DSK" | "LVM" | "MDD" => device(line, fields, intervals, b)?,
        _ => {}
    }
    Ok(())
}

const MEMORY: &[(&str, Column)] = &[
    ("tot", meminfo::MEM_TOTAL_BYTES),
    ("free", meminfo::MEM_FREE_BYTES),
    ("avail", meminfo::MEM_AVAILABLE_BYTES),
    ("cache", meminfo::CACHED_BYTES),
    ("buff", meminfo::BUFFERS_BYTES),
    ("dirty", meminfo::DIRTY_BYTES),
    ("slab", meminfo::SLAB_BYTES),
    ("slrec", meminfo::SRECLAIMABLE_BYTES),
    ("shmem", meminfo::SHMEM_BYTES),
    ("pgtab", meminfo::PAGE_TABLES_BYTES),
];

const SWAP: &[(&str, Column)] = &[
    ("tot", meminfo::SWAP_TOTAL_BYTES),
    ("free", meminfo::SWAP_FREE_BYTES),
    ("swcac", meminfo::SWAP_CACHED_BYTES),
    ("vmcom", meminfo::COMMITTED_AS_BYTES),
    ("vmlim", meminfo::COMMIT_LIMIT_BYTES),
];

const PAGING: &[(&str, Column)] = &[
    ("scan", vmstat::PGSCAN),
    ("steal", vmstat::PGSTEAL),
    ("stall", vmstat::ALLOCSTALL),
    ("compact", vmstat::COMPACT_STALL),
    ("swin", vmstat::PSWPIN),
    ("swout", vmstat::PSWPOUT),
    ("oomkill", vmstat::OOM_KILL),
];

fn levels(names: &[(&str, Column)], fields: &[(&str, &str)], intervals: &mut Intervals, b: &mut Builder) {
    let value =
        |name: &str| fields.iter().find(|(known, _)| *known == name).and_then(|(_, value)| scaled(value, 1024.0));
    let cells: Vec<(Column, Cell)> =
        names.iter().filter_map(|(name, column)| Some((*column, Cell::Gauge(rounded(value(name)?))))).collect();
    intervals.row(b, Table::Meminfo, &Entity::default(), &cells);
}

/// Reads `DSK | sda | busy 84% | read 0/s | write 1845/s | MBr/s 0.0 | MBw/s 7.2 | avq 1.49 | avio 0.45 ms`.
fn device(
    line: &Line<'_>,
    fields: &[(&str, &str)],
    intervals: &mut Intervals,
    b: &mut Builder,
) -> Result<(), ImportError> {
    let Some((name, "")) = fields.first() else {
        return Err(ImportError::line(line, "the device's name after the label"));
    };
    let of = |name: &str| fields.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    let seconds = intervals.seconds();
    let rate = |key: &str| of(key).and_then(|value| counted(value, seconds)).map(|count| count / seconds);
    let (reads, writes) = (rate("read"), rate("write"));
    let mut values: Vec<(&str, f64)> = Vec::new();
    values.extend(reads.map(|value| ("r", value)));
    values.extend(writes.map(|value| ("w", value)));
    values.extend(of("busy").and_then(|value| number(value.trim_end_matches('%'))).map(|value| ("util", value)));
    values.extend(of("avq").and_then(number).map(|value| ("aqu-sz", value)));
    // MiB per second; versions before 2.0 only print the size of a request, in KiB.
    let megabytes = |key: &str| of(key).and_then(number).map(|value| value * 1024.0);
    let by_size = |key: &str, rate: Option<f64>| Some(of(key).and_then(number)? * rate?);
    values.extend(megabytes("MBr/s").or_else(|| by_size("KiB/r", reads)).map(|value| ("rkB", value)));
    values.extend(megabytes("MBw/s").or_else(|| by_size("KiB/w", writes)).map(|value| ("wkB", value)));
    intervals.report(b, Report::Disk, &Entity::named(name), &values);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{counted, elapsed_ns, header, label};

    #[test]
    fn headers_labels_and_values_parse() {
        let (when, elapsed) = header("ATOP - db1   2026/11/22  10:20:30   ------   1m10s elapsed").expect("a header");
        assert!(when.is_some());
        assert_eq!(elapsed, Some(70_000_000_000));
        assert_eq!(elapsed_ns("10x"), None);
        assert_eq!((label("DSK |  sda | busy 0% |"), label("| a | b |")), (Some("DSK"), None));
        assert_eq!((counted("8002/s", 10.0), counted("47", 10.0)), (Some(80_020.0), Some(47.0)));
    }
}
