//! Reads nmon's files (`nmon -f`): a line of names for each kind, then values for `T0001`, whose time is in a ZZZZ
//! line.

use std::collections::HashMap;

use super::interval::Intervals;
use crate::anchors::Anchor;
use crate::builder::{Builder, Cell};
use crate::error::ImportError;
use crate::number::{number, rounded};
use crate::sar::columns::Report;
use crate::text::Cursor;
use crate::when::{DAY_NS, SECOND_NS, When, Zero, clock, days, month};
use crate::{FormatKind, Importer};
use flatwater_recording::schema::{Column, meminfo, vmstat};
use flatwater_recording::{Entity, Table};

pub const IMPORTER: Importer = Importer {
    name: "nmon",
    sentence: "nmon's files: CPU_ALL, MEM, VM, DISKBUSY, DISKREAD, DISKWRITE, DISKXFER, PROC.",
    kind: FormatKind::Averages,
    anchors: &[
        Anchor::Table(&[
            "CPU_ALL,",
            "ZZZZ,",
            "AAA,",
            "BBBP,",
            "DISKBUSY,",
            "DISKREAD,",
            "DISKWRITE,",
            "DISKXFER,",
            "PROC,",
        ]),
        Anchor::Line(&["MEM,", "VM,"]),
    ],
    detect: |cursor| if is_line(cursor.next_text()) { 90 } else { 0 },
    read,
};

const KINDS: &[&str] =
    &["CPU_ALL", "MEM", "VM", "DISKBUSY", "DISKREAD", "DISKWRITE", "DISKXFER", "PROC", "ZZZZ", "AAA", "BBBP"];

fn is_line(text: &str) -> bool {
    let mut fields = text.split(',');
    fields.next().is_some_and(|kind| KINDS.contains(&kind)) && fields.next().is_some()
}

/// Parses `ZZZZ,T0001,10:00:00,22-NOV-2026`.
fn stamp(fields: &[&str]) -> Option<When> {
    let time = clock(fields.get(2)?)?;
    let mut day = fields.get(3)?.split('-');
    let (number, name, year) = (day.next()?.parse().ok()?, day.next()?, day.next()?.parse().ok()?);
    Some(When::new(Zero::Epoch, days(year, month(name)?, number)? * DAY_NS + time))
}

const MEMORY: &[(&str, Column)] = &[
    ("memtotal", meminfo::MEM_TOTAL_BYTES),
    ("memfree", meminfo::MEM_FREE_BYTES),
    ("cached", meminfo::CACHED_BYTES),
    ("buffers", meminfo::BUFFERS_BYTES),
    ("inactive", meminfo::INACTIVE_BYTES),
    ("active", meminfo::ACTIVE_BYTES),
    ("swaptotal", meminfo::SWAP_TOTAL_BYTES),
    ("swapfree", meminfo::SWAP_FREE_BYTES),
    ("swapcached", meminfo::SWAP_CACHED_BYTES),
];

/// Columns of VM: counts within the interval, with the names of /proc/vmstat.
const PAGING: &[(&str, Column)] = &[
    ("pgpgin", vmstat::PGPGIN),
    ("pgpgout", vmstat::PGPGOUT),
    ("pswpin", vmstat::PSWPIN),
    ("pswpout", vmstat::PSWPOUT),
    ("pgmajfault", vmstat::PGMAJFAULT),
    ("allocstall", vmstat::ALLOCSTALL),
    ("pgsteal_normal", vmstat::PGSTEAL),
];

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let mut intervals: Option<Intervals> = None;
    let mut names: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut last: Option<When> = None;
    while let Some(line) = cursor.peek().filter(|line| line.is_blank() || line.text.contains(',')) {
        let fields: Vec<&str> = line.text.split(',').map(str::trim).collect();
        let kind = fields.first().copied().unwrap_or_default();
        let valued = fields.get(1).is_some_and(|field| {
            field.starts_with('T') && field.len() >= 5 && field.as_bytes().iter().skip(1).all(u8::is_ascii_digit)
        });
        let known = KINDS.contains(&kind);
        if !(known || valued || kind.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || "_".contains(c))) {
            break;
        }
        cursor.take();
        if kind == "ZZZZ" {
            let when = stamp(&fields);
            let step = when.zip(last).map(|(when, last)| when.ns.saturating_sub(last.ns));
            let moment = when.or(b.context().moment);
            intervals.get_or_insert_with(|| Intervals::at(b, "nmon", SECOND_NS, moment)).next(b, when, step);
            last = when.or(last);
        } else if known && valued {
            let columns = names.get(kind).map(Vec::as_slice).unwrap_or_default();
            let values: Vec<(&str, f64)> = (columns.iter().zip(fields.iter().skip(2)))
                .filter_map(|(name, value)| Some((*name, number(value)?)))
                .collect();
            let intervals = intervals.get_or_insert_with(|| Intervals::new(b, "nmon", SECOND_NS));
            tell(kind, &values, intervals, b);
        } else if known {
            names.insert(kind, fields.iter().skip(2).copied().collect());
        } else {
            b.pass_over();
        }
    }
    Ok(())
}

fn tell(kind: &str, values: &[(&str, f64)], intervals: &mut Intervals, b: &mut Builder) {
    let named = |columns: &[(&str, Column)], cell: &dyn Fn(f64) -> Cell| -> Vec<(Column, Cell)> {
        let of = |name: &str| values.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        columns
            .iter()
            .filter_map(|(name, column)| Some((*column, cell(of(name).filter(|value| *value >= 0.0)?))))
            .collect()
    };
    match kind {
        "CPU_ALL" => {
            let known =
                [("User%", "user"), ("Sys%", "system"), ("Wait%", "iowait"), ("Idle%", "idle"), ("Steal%", "steal")];
            let of = |name: &str| values.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
            let shares: Vec<(&str, f64)> = known.iter().filter_map(|(nmon, name)| Some((*name, of(nmon)?))).collect();
            intervals.report(b, Report::Cpu, &Entity::named("all"), &shares);
        }
        // MB of 2^20 bytes.
        "MEM" => {
            let cells = named(MEMORY, &|value| Cell::Gauge(rounded(value * 1_048_576.0)));
            intervals.row(b, Table::Meminfo, &Entity::default(), &cells);
        }
        "VM" => {
            let cells = named(PAGING, &Cell::Rise);
            intervals.row(b, Table::Vmstat, &Entity::default(), &cells);
        }
        "PROC" => {
            let names = [("Runnable", "runq-sz"), ("Blocked", "blocked")];
            let of = |name: &str| values.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
            let queue: Vec<(&str, f64)> = names.iter().filter_map(|(nmon, name)| Some((*name, of(nmon)?))).collect();
            intervals.report(b, Report::Queue, &Entity::named("all"), &queue);
        }
        "DISKBUSY" | "DISKREAD" | "DISKWRITE" | "DISKXFER" => {
            let column = match kind {
                "DISKBUSY" => "util",
                "DISKREAD" => "rkB",
                "DISKWRITE" => "wkB",
                _ => "tps",
            };
            for (device, value) in values {
                intervals.report(b, Report::Disk, &Entity::named(device), &[(column, *value)]);
            }
        }
        _ => {}
    }
}
