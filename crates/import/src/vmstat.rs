//! Reads vmstat of all versions: the layout of 1999 (`r b w swpd free ... id`), `-n -t -w -a`, steal and guest columns.
//!
//! The rate columns of the first row are averages since boot, also with `-n` (which only prints the header once); its
//! levels are current. So the first row gives levels, sets every counter to 0, and keeps the averages as a mark.
//!
//! bi and bo are blocks of 1 KiB in all versions: pgpgin and pgpgout of /proc/vmstat (before 2.4 the `page` line of
//! /proc/stat), independent of `-S`. swpd to cache, si and so follow `-S`; their default unit is KiB.

use super::builder::{Builder, Cell, Track};
use super::error::ImportError;
use super::number::{number, rounded};
use super::text::{Cursor, Line, Token};
use super::when::{DAY_NS, SECOND_NS, Zero, clock, iso};
use super::{FormatKind, Importer};
use crate::anchors::{Anchor, DIGITS};
use flatwater_recording::schema::{Column, cpu, meminfo, vmstat};
use flatwater_recording::{Entity, EventKind, Table};

pub const IMPORTER: Importer = Importer {
    name: "vmstat",
    sentence: "vmstat of procps from 1999 on, with and without -n, -t, -w, -a and -S.",
    kind: FormatKind::Averages,
    anchors: &[Anchor::Table(&["procs", "swpd"]), Anchor::Start(DIGITS), Anchor::Common(&[" avm", " swap"])],
    detect,
    read,
};

/// A row: values by column, and the time of `-t`.
struct Row {
    values: Vec<f64>,
    stamp: Option<i64>,
    /// The log omits rows before this one.
    after_hole: bool,
}

fn is_header(text: &str) -> bool {
    let words = || text.split_whitespace();
    let begins = words().next() == Some("r") && words().nth(1) == Some("b");
    begins && ["swpd", "free", "si", "bi"].iter().all(|name| words().any(|word| word == *name))
}

/// Whether this is the line of group names above the header.
fn is_groups(text: &str) -> bool {
    let text = text.trim_start().trim_start_matches("--time--").trim_start().trim_start_matches('-');
    text.starts_with("procs") && text.contains("memory")
}

/// The columns of a row without a header: integers, the last of which sum to 100 %. Since 2.6 a row ends with
/// `us sy id wa`, `st` and `gu`; older ones have `w` and end with `us sy id`. A time may follow.
fn usual(text: &str) -> Option<Vec<&'static str>> {
    const NAMES: [&str; 18] = [
        "r", "b", "swpd", "free", "buff", "cache", "si", "so", "bi", "bo", "in", "cs", "us", "sy", "id", "wa", "st",
        "gu",
    ];
    const OLD: [&str; 16] =
        ["r", "b", "w", "swpd", "free", "buff", "cache", "si", "so", "bi", "bo", "in", "cs", "us", "sy", "id"];
    let words: Vec<&str> = text.split_whitespace().collect();
    let stamped = words.len() > 2 && words.last().is_some_and(|word| word.contains(':'));
    let values = if stamped { words.get(..words.len() - 2)? } else { words.as_slice() };
    let values: Vec<u64> = values.iter().map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let adds_up = |from: usize| {
        let share = values.get(from..).unwrap_or_default().iter().fold(0, |sum: u64, value| sum.saturating_add(*value));
        (99..=101).contains(&share)
    };
    match values.len() {
        16..=18 if adds_up(12) => NAMES.get(..values.len()).map(<[&str]>::to_vec),
        16 if adds_up(13) => Some(OLD.to_vec()),
        _ => None,
    }
}

/// Whether this is a header of BSD, Solaris or macOS, with other columns and units.
fn is_foreign(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let begins = words.next() == Some("r") && words.next() == Some("b");
    begins && (words.clone().any(|word| word == "avm") || words.any(|word| word == "swap"))
}

fn detect(cursor: &Cursor<'_>) -> u8 {
    let text = cursor.next_text();
    match () {
        () if is_header(text) => 95,
        () if is_groups(text) && cursor.ahead(1).is_some_and(|line| is_header(line.text)) => 95,
        // The header is missing below the group names.
        () if is_groups(text) && cursor.ahead(1).is_some_and(|line| usual(line.text).is_some()) => 90,
        () if usual(text).is_some() && cursor.ahead(1).is_some_and(|line| usual(line.text).is_some()) => 35,
        () if is_foreign(text) => 60,
        () => 0,
    }
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let Some(first) = cursor.peek() else { return Ok(()) };
    if is_groups(first.text) || is_header(first.text) || is_foreign(first.text) {
        cursor.take();
    }
    let header = match cursor.peek().filter(|line| is_groups(first.text) && is_header(line.text)) {
        Some(header) => cursor.take().unwrap_or(header),
        None => first,
    };
    if is_foreign(header.text) {
        return Err(ImportError::line(
            &header,
            "the columns of vmstat on Linux: this is from another operating system",
        ));
    }
    // With `-t` the header ends with the name of the zone, `UTC`.
    let mut columns: Vec<&str> = header.tokens().map(|token| token.text).take_while(|name| is_column(name)).collect();
    if let Some(usual) = cursor.peek().and_then(|line| usual(line.text)).filter(|_| columns.len() < 10) {
        b.gap(
            "the names of vmstat's columns",
            "the header is missing: the columns are assumed from their number",
            "paste the header with the rows",
        );
        columns = usual;
    }
    let mut rows = Vec::new();
    let mut hole = false;
    while let Some(line) = cursor.peek() {
        if let Some(lines) = cursor.lines_of_break().filter(|lines| continues(cursor.ahead(*lines), &header)) {
            cursor.take_lines(lines);
            hole = true;
            continue;
        }
        if is_groups(line.text) || is_header(line.text) && line.text == header.text {
            cursor.take();
            continue;
        }
        if !line.text.trim_start().starts_with(|c: char| c.is_ascii_digit()) {
            break;
        }
        cursor.take();
        match row(&line, &columns) {
            Ok(row) => rows.push(Row { after_hole: std::mem::take(&mut hole), ..row }),
            Err(error) => b.problem(error),
        }
    }
    if rows.is_empty() {
        return Err(ImportError::line(&header, "a header with at least one row under it"));
    }
    emit(b, &columns, &rows);
    Ok(())
}

/// Whether this line, after a break, continues the table, with or without a header.
fn continues(line: Option<Line<'_>>, header: &Line<'_>) -> bool {
    let Some(line) = line else { return false };
    let row =
        line.tokens().count() >= header.tokens().count() && line.tokens().all(|token| number(token.text).is_some());
    row || is_groups(line.text) || line.words() == header.words()
}

fn is_column(name: &str) -> bool {
    meaning(name).is_some() || matches!(name, "gu" | "w")
}

fn row(line: &Line<'_>, columns: &[&str]) -> Result<Row, ImportError> {
    let mut tokens: Vec<Token<'_>> = line.tokens().collect();
    // ExaWatcher and other collectors put the time before the row; the time is dropped.
    let clocked = tokens.first().is_some_and(|first| first.text.contains(':') && clock(first.text).is_some());
    if clocked && tokens.len() == columns.len() + 1 {
        tokens.remove(0);
    }
    let mut values = Vec::with_capacity(columns.len());
    for (place, name) in columns.iter().enumerate() {
        let Some(token) = tokens.get(place) else {
            return Err(ImportError::short(line, format!("{} columns, of which '{name}' is missing", columns.len())));
        };
        let value = number(token.text).filter(|value| *value >= 0.0);
        values.push(value.ok_or_else(|| ImportError::at(line, *token, format!("a number for '{name}'")))?);
    }
    let stamp = match tokens.get(columns.len()..).unwrap_or_default() {
        [] => None,
        [day, time, ..] => iso(&format!("{} {}", day.text, time.text)).map(|when| when.ns),
        [extra] => {
            return Err(ImportError::at(line, *extra, format!("{} columns or a date and a time", columns.len())));
        }
    };
    Ok(Row { values, stamp, after_hole: false })
}

/// The meaning of a column.
#[derive(Clone, Copy)]
enum Meaning {
    Level(Column),
    /// Memory, in the unit of `-S`.
    Memory(Column),
    PerSecond(Column),
    /// Memory per second; converted to pages.
    Swap(Column),
    /// Percentage of the time of all CPUs.
    Time(Column),
}

fn meaning(name: &str) -> Option<Meaning> {
    Some(match name {
        "r" => Meaning::Level(cpu::PROCS_RUNNING),
        "b" => Meaning::Level(cpu::PROCS_BLOCKED),
        "swpd" => Meaning::Memory(meminfo::SWAP_USED_BYTES),
        "free" => Meaning::Memory(meminfo::MEM_FREE_BYTES),
        "buff" => Meaning::Memory(meminfo::BUFFERS_BYTES),
        "cache" => Meaning::Memory(meminfo::CACHED_BYTES),
        "inact" => Meaning::Memory(meminfo::INACTIVE_BYTES),
        "active" => Meaning::Memory(meminfo::ACTIVE_BYTES),
        "si" => Meaning::Swap(vmstat::PSWPIN),
        "so" => Meaning::Swap(vmstat::PSWPOUT),
        "bi" => Meaning::PerSecond(vmstat::PGPGIN),
        "bo" => Meaning::PerSecond(vmstat::PGPGOUT),
        "in" => Meaning::PerSecond(cpu::INTR),
        "cs" => Meaning::PerSecond(cpu::CTXT),
        "us" => Meaning::Time(cpu::USER_NS),
        "sy" => Meaning::Time(cpu::SYSTEM_NS),
        "id" => Meaning::Time(cpu::IDLE_NS),
        "wa" => Meaning::Time(cpu::IOWAIT_NS),
        "st" => Meaning::Time(cpu::STEAL_NS),
        _ => return None,
    })
}

/// Bytes per unit of the memory columns. The log does not state the unit, but values in KiB are whole pages, so
/// multiples of 4.
fn memory_unit(b: &mut Builder, columns: &[&str], rows: &[Row]) -> f64 {
    if let Some(unit) = b.context().command.as_deref().and_then(unit_of_command) {
        return unit;
    }
    let of = |wanted: fn(&str) -> bool| {
        let values = rows.iter().flat_map(|row| columns.iter().zip(&row.values));
        values.filter(move |(name, _)| wanted(name)).map(|(_, value)| *value)
    };
    let memory = || of(|name| matches!(meaning(name), Some(Meaning::Memory(_))));
    if memory().all(|value| value % 4.0 == 0.0) {
        return 1024.0;
    }
    // vmstat without `wa` is older than -S: values that are not multiples of 4 were edited.
    if !columns.contains(&"wa") {
        return 1024.0;
    }
    // No machine has less than 16 MiB, and buffers of 5 GiB are rare, so small values are MiB; -S k (1000 bytes) keeps
    // the values large.
    let largest = memory().fold(0.0, f64::max);
    let few_buffers = of(|name| name == "buff").fold(0.0, f64::max) < 5_000.0;
    let megabytes = largest < 16_384.0 || (largest < 4_000_000.0 && few_buffers);
    let (unit, name) = if megabytes { (1_048_576.0, "MiB (-S M)") } else { (1000.0, "1000 bytes (-S k)") };
    let why = format!("the memory columns are not multiples of 4 KiB, so {name} is assumed");
    b.gap("unit of vmstat", why, "keep the command line in the log");
    unit
}

fn unit_of_command(command: &str) -> Option<f64> {
    let mut words = command.split_whitespace().skip_while(|word| !word.ends_with("vmstat")).skip(1);
    let letter = loop {
        match words.next()? {
            "-S" | "--unit" => break words.next()?,
            word => {
                if let Some(letter) = word.strip_prefix("-S").or(word.strip_prefix("--unit=")) {
                    break letter;
                }
            }
        }
    };
    Some(match letter {
        "k" => 1e3,
        "K" => 1024.0,
        "m" => 1e6,
        "M" => 1_048_576.0,
        _ => return None,
    })
}

/// Seconds between rows, from a command such as `vmstat -n 5 100`.
fn interval_of_command(command: &str) -> Option<i64> {
    let words = command.split_whitespace().skip_while(|word| !word.ends_with("vmstat")).skip(1);
    let seconds: i64 = words.filter_map(|word| word.parse().ok()).next()?;
    (1..=86_400).contains(&seconds).then_some(seconds)
}

fn emit(b: &mut Builder, columns: &[&str], rows: &[Row]) {
    let unit = memory_unit(b, columns, rows);
    let stamped = rows.iter().all(|row| row.stamp.is_some());
    let interval = b.context().command.as_deref().and_then(interval_of_command);
    if !stamped && interval.is_none() && rows.len() > 1 {
        let why = "the rows carry no time and the log no command line: one second between rows is assumed";
        b.gap("interval of vmstat", why, "run vmstat with -t");
    }
    let step = interval.unwrap_or(1) * SECOND_NS;
    let (track, mut last) = if stamped {
        (b.track("vmstat", Zero::Epoch), None)
    } else {
        let (track, at) = b.origin("vmstat");
        first_row(b, (track, at), columns, rows, unit);
        (track, Some(at))
    };
    let skip = usize::from(!stamped);
    if rows.iter().any(|row| row.after_hole) {
        b.gap(
            "some rows of vmstat",
            "the log omits them ('...'): the rows after the hole directly follow those before it",
            "",
        );
    }
    for row in rows.iter().skip(skip) {
        let at = row.stamp.filter(|_| stamped).unwrap_or(last.unwrap_or(0).saturating_add(step));
        let passed = last.map(|last| at.saturating_sub(last)).filter(|passed| (1..DAY_NS).contains(passed));
        match passed {
            Some(passed) => push(b, (track, at), columns, row, unit, passed),
            None => {
                first_row(b, (track, at), columns, std::slice::from_ref(row), unit);
            }
        }
        last = Some(at);
    }
}

/// Writes the first row: levels, counters of 0, and a mark with its averages.
fn first_row(b: &mut Builder, place: (Track, i64), columns: &[&str], rows: &[Row], unit: f64) {
    let Some(row) = rows.first() else { return };
    push(b, place, columns, row, unit, 0);
    let averages: Vec<String> = columns
        .iter()
        .zip(&row.values)
        .filter(|(name, _)| !matches!(meaning(name), Some(Meaning::Level(..) | Meaning::Memory(_)) | None))
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    let text =
        format!("vmstat's first row: averages since boot, so only its levels are used ({})", averages.join(", "));
    b.event(place, EventKind::Mark(text));
}

fn push(b: &mut Builder, place: (Track, i64), columns: &[&str], row: &Row, unit: f64, passed_ns: i64) {
    let seconds = passed_ns as f64 / 1e9;
    let page_bytes = b.machine.page_size_bytes() as f64;
    let mut cells: [Vec<(Column, Cell)>; 3] = Default::default();
    let [cpu, memory, vmstat] = &mut cells;
    for (name, &value) in columns.iter().zip(&row.values) {
        match meaning(name) {
            Some(Meaning::Level(column)) => cpu.push((column, Cell::Gauge(rounded(value)))),
            Some(Meaning::Memory(column)) => memory.push((column, Cell::Gauge(rounded(value * unit)))),
            Some(Meaning::PerSecond(column)) if column.table == Table::Cpu => {
                cpu.push((column, Cell::Rise(value * seconds)));
            }
            Some(Meaning::PerSecond(column)) => vmstat.push((column, Cell::Rise(value * seconds))),
            Some(Meaning::Swap(column)) => vmstat.push((column, Cell::Rise(value * unit / page_bytes * seconds))),
            Some(Meaning::Time(column)) => cpu.push((column, Cell::Rise(value / 100.0 * passed_ns as f64))),
            None => {}
        }
    }
    let [cpu, memory, vmstat] = &cells;
    b.row(place, Table::Cpu, &Entity::named("all"), cpu);
    b.row(place, Table::Meminfo, &Entity::default(), memory);
    b.row(place, Table::Vmstat, &Entity::default(), vmstat);
}
