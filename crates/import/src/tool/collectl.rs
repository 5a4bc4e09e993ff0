//! Reads the brief lines of collectl and `pcp collectl`: a row for each interval below
//! `#cpu sys inter  ctxsw KBRead ...`.

use super::interval::Intervals;
use super::scaled;
use crate::anchors::Anchor;
use crate::builder::{Builder, Cell};
use crate::error::ImportError;
use crate::number::rounded;
use crate::sar::columns::Report;
use crate::text::{Cursor, Line};
use crate::when::{DAY_NS, SECOND_NS, When, Zero, clock, date};
use crate::{FormatKind, Importer};
use flatwater_recording::schema::{Column, cpu, meminfo};
use flatwater_recording::{Entity, Table};

pub const IMPORTER: Importer = Importer {
    name: "collectl",
    sentence: "collectl's brief lines (CPU, disks, memory), with and without times.",
    kind: FormatKind::Averages,
    anchors: &[Anchor::Start("#"), Anchor::Table(&["<--"])],
    detect: |cursor| match cursor.next_text() {
        text if columns(text).is_some() => 92,
        text if is_groups(text) => 92,
        _ => 0,
    },
    read,
};

/// Whether the line is `#<--------CPU--------><----------Disks----------->`.
fn is_groups(text: &str) -> bool {
    text.starts_with('#') && text.contains("<--") && text.contains("-->")
}

/// The names of the columns, below the groups; `cpu`, `KBRead` or `Free` identify collectl.
fn columns(text: &str) -> Option<Vec<&str>> {
    let words: Vec<&str> = text.trim().strip_prefix('#')?.split_whitespace().collect();
    let known = ["cpu", "KBRead", "Free"].iter().any(|name| words.contains(name)) && words.len() >= 4;
    (known && words.iter().all(|word| word.starts_with(|c: char| c.is_ascii_alphabetic()))).then_some(words)
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let mut intervals = Intervals::new(b, "collectl", SECOND_NS);
    let mut names: Vec<&str> = Vec::new();
    let mut timed = b.context().moment.is_some();
    while let Some(line) = cursor.peek() {
        if let Some(found) = columns(line.text) {
            names = found;
        } else if !(is_groups(line.text)
            || line.is_blank()
            || line.text.starts_with("### RECORD")
            || line.text.starts_with("waiting for"))
        {
            if names.is_empty() || !line.text.trim_start().starts_with(|c: char| c.is_ascii_digit()) {
                break;
            }
            timed |= names.contains(&"Time");
            if let Err(error) = row(&line, &names, &mut intervals, b) {
                b.problem(error);
            }
        }
        cursor.take();
    }
    if !timed {
        b.gap(
            "interval of collectl",
            "the rows have no times: one second between them is assumed, collectl's default",
            "collectl -oT",
        );
    }
    intervals.leave(b);
    Ok(())
}

const MEMORY: &[(&str, Column)] = &[
    ("Free", meminfo::MEM_FREE_BYTES),
    ("Buff", meminfo::BUFFERS_BYTES),
    ("Cach", meminfo::CACHED_BYTES),
    ("Inac", meminfo::INACTIVE_BYTES),
    ("Slab", meminfo::SLAB_BYTES),
    ("Map", meminfo::MAPPED_BYTES),
];

fn row(line: &Line<'_>, names: &[&str], intervals: &mut Intervals, b: &mut Builder) -> Result<(), ImportError> {
    let words: Vec<&str> = line.words();
    if words.len() < names.len() {
        return Err(ImportError::short(line, format!("{} values", names.len())));
    }
    let text = |name: &str| names.iter().position(|known| *known == name).and_then(|at| words.get(at)).copied();
    let value = |name: &str| text(name).and_then(|text| scaled(text, 1.0));
    let day = text("Date").and_then(date);
    let when = text("Time").and_then(clock).map(|ns| match day {
        Some(day) => When::new(Zero::Epoch, day * DAY_NS + ns),
        None => When::new(Zero::Day, ns),
    });
    intervals.next(b, when, None);
    if let (Some(busy), Some(system)) = (value("cpu"), value("sys")) {
        // `cpu` is the time that is neither idle nor iowait; the line does not separate these two.
        let values = [("system", system), ("user", (busy - system).max(0.0)), ("idle", (100.0 - busy).max(0.0))];
        intervals.report(b, Report::Cpu, &Entity::named("all"), &values);
        b.gap("time in which CPUs waited for I/O", "collectl's brief lines count it as idle", "collectl -sC, vmstat 1");
    }
    let switches = value("ctxsw").map(|value| (cpu::CTXT, Cell::Rise(value * intervals.seconds())));
    let switches: Vec<(Column, Cell)> = switches.into_iter().collect();
    intervals.row(b, Table::Cpu, &Entity::named("all"), &switches);
    let disks: Vec<(&str, f64)> = [("KBRead", "rkB"), ("Reads", "r"), ("KBWrit", "wkB"), ("Writes", "w")]
        .iter()
        .filter_map(|(name, known)| Some((*known, value(name)?)))
        .collect();
    if !disks.is_empty() {
        intervals.report(b, Report::Disk, &Entity::named("all"), &disks);
    }
    let memory = |name: &str| text(name).and_then(|text| scaled(text, 1024.0));
    let cells: Vec<(Column, Cell)> =
        MEMORY.iter().filter_map(|(name, column)| Some((*column, Cell::Gauge(rounded(memory(name)?))))).collect();
    intervals.row(b, Table::Meminfo, &Entity::default(), &cells);
    Ok(())
}
