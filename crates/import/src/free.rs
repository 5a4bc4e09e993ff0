//! Reads free: the old table with `-/+ buffers/cache`, the new one with `buff/cache` and `available`, `-w`, `-l`, `-t`,
//! `-h`.

use super::builder::{Builder, Cell};
use super::error::ImportError;
use super::number::{number, size};
use super::text::{Cursor, Line, Token};
use super::{FormatKind, Importer};
use crate::anchors::Anchor;
use flatwater_recording::schema::{Column, meminfo};
use flatwater_recording::{Entity, Table};

pub const IMPORTER: Importer = Importer {
    name: "free",
    sentence: "free, old (-/+ buffers/cache) and new (buff/cache), in any unit, once or with -s.",
    kind: FormatKind::Averages,
    anchors: &[Anchor::Table(&["buffers", "buff/cache"]), Anchor::Below(&["Swap:"]), Anchor::Common(&["total"])],
    detect,
    read,
};

fn is_header(text: &str) -> bool {
    let mut words = text.split_whitespace();
    words.next() == Some("total") && words.next() == Some("used") && words.next() == Some("free")
}

/// Whether this is a header in another language: three to seven words above `Label:` with at least six numbers, and a
/// row of swap.
fn is_translated(cursor: &Cursor<'_>) -> bool {
    let labelled = |line: Line<'_>, numbers: usize| {
        let mut words = line.text.split_whitespace();
        words.next().is_some_and(|label| label.ends_with(':') && label.len() > 1)
            && words.clone().count() >= numbers
            && words.all(|word| size(word, 1.0).is_some())
    };
    let words = || cursor.next_text().split_whitespace();
    let header =
        (3..=7).contains(&words().count()) && words().all(|word| !word.ends_with(':') && number(word).is_none());
    let swap = |line: &Line<'_>| line.text.trim_start().starts_with("Swap:");
    let below: Vec<Line<'_>> = (1..4).filter_map(|ahead| cursor.ahead(ahead)).collect();
    header && below.first().is_some_and(|line| labelled(*line, 6)) && below.iter().any(swap)
}

fn detect(cursor: &Cursor<'_>) -> u8 {
    let below = cursor.ahead(1).is_some_and(|line| line.text.trim_start().starts_with("Mem:"));
    match is_header(cursor.next_text()) {
        true if below => 95,
        true => 40,
        false if is_translated(cursor) => 80,
        false => 0,
    }
}

/// The rows of one table: label, line, cells.
type Rows<'a> = Vec<(&'a str, Line<'a>, Vec<Token<'a>>)>;

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let Some(header) = cursor.take() else { return Ok(()) };
    // Translations keep the order of columns; the old table has buffers and cached, and a second row.
    let old = (1..4).filter_map(|ahead| cursor.ahead(ahead)).any(|line| line.text.starts_with("-/+"));
    let english = is_header(header.text);
    let columns = match english {
        true => header.words(),
        false if old => vec!["total", "used", "free", "shared", "buffers", "cached"],
        false => vec!["total", "used", "free", "shared", "buff/cache", "available"],
    };
    let mut rows: Rows<'_> = Vec::new();
    while let Some(line) = cursor.peek() {
        let Some((label, values)) = split(&line, rows.is_empty() && !english) else { break };
        if rows.iter().any(|(known, _, _)| *known == label) {
            break;
        }
        cursor.take();
        rows.push((label, line, values));
    }
    if !rows.iter().any(|(label, _, _)| *label == "Mem") {
        return Err(ImportError::line(&cursor.peek().unwrap_or(header), "a row that begins with 'Mem:'"));
    }
    let unit = unit(b, &rows);
    let mut cells = Vec::new();
    for (label, line, values) in &rows {
        if let Err(error) = push(&mut cells, label, line, values, &columns, unit) {
            b.problem(error);
        }
    }
    if let Some(&(_, Cell::Gauge(total))) = cells.iter().find(|(column, _)| *column == meminfo::MEM_TOTAL_BYTES) {
        b.machine.memory_bytes = b.machine.memory_bytes.or(u64::try_from(total).ok());
    }
    if let Some(&(_, Cell::Gauge(total))) = cells.iter().find(|(column, _)| *column == meminfo::SWAP_TOTAL_BYTES) {
        b.machine.swap_bytes = b.machine.swap_bytes.or(u64::try_from(total).ok());
    }
    let place = b.snapshot("free");
    b.row(place, Table::Meminfo, &Entity::default(), &cells);
    Ok(())
}

/// `-/+ buffers/cache: 2885520 9410404` -> label and values.
fn split<'a>(line: &Line<'a>, translated: bool) -> Option<(&'a str, Vec<Token<'a>>)> {
    let (label, _) = line.text.split_once(':')?;
    // busybox without the cached column omits the word too.
    let label = if label.starts_with("-/+") { "-/+ buffers/cache" } else { label.trim() };
    let label = if translated { "Mem" } else { label };
    let known = ["Mem", "Swap", "-/+ buffers/cache", "Low", "High", "Total", "Comm"];
    let label = known.into_iter().find(|name| *name == label)?;
    let values = line.tokens().skip_while(|token| !token.text.ends_with(':')).skip(1).collect();
    Some((label, values))
}

/// Bytes of one unit, if the numbers have no suffix. free prints whole pages in KiB, so multiples of 4.
fn unit(b: &mut Builder, rows: &Rows<'_>) -> f64 {
    if let Some(unit) = b.context().command.as_deref().and_then(unit_of_command) {
        return unit;
    }
    let numbers: Vec<f64> =
        rows.iter().flat_map(|(_, _, values)| values).filter_map(|token| number(token.text)).map(f64::abs).collect();
    let largest = numbers.iter().copied().fold(0.0, f64::max);
    let multiple = |of: f64| numbers.iter().all(|value| value % of == 0.0);
    let (unit, name) = match () {
        () if multiple(4096.0) && largest >= 4.0 * 1024.0 * 1024.0 * 1024.0 => (1.0, "bytes (-b)"),
        () if multiple(4.0) && largest >= 16_384.0 => return 1024.0,
        // Other sums in KiB occur where the kernel reserves part of a page; only small totals are MiB or GiB.
        () if largest >= 4_194_304.0 => return 1024.0,
        () if largest >= 200.0 => (1_048_576.0, "MiB (-m)"),
        () => (1_073_741_824.0, "GiB (-g)"),
    };
    if largest > 0.0 {
        b.gap("unit of free", format!("the table does not state the unit: {name} is assumed from its numbers"), "");
    }
    unit
}

fn unit_of_command(command: &str) -> Option<f64> {
    let mut words = command.split_whitespace().skip_while(|word| !word.ends_with("free"));
    words.next()?;
    let mut unit = 1024.0;
    for word in words {
        unit = match word {
            "--bytes" => 1.0,
            "--kibi" | "--kilo" => 1024.0,
            "--mebi" | "--mega" => 1_048_576.0,
            "--gibi" | "--giga" => 1_073_741_824.0,
            _ if word.starts_with('-') && !word.starts_with("--") => match word.chars().find(|c| "bkmg".contains(*c)) {
                Some('b') => 1.0,
                Some('m') => 1_048_576.0,
                Some('g') => 1_073_741_824.0,
                _ => unit,
            },
            _ => unit,
        };
    }
    Some(unit)
}

fn push(
    cells: &mut Vec<(Column, Cell)>,
    label: &str,
    line: &Line<'_>,
    values: &[Token<'_>],
    columns: &[&str],
    unit: f64,
) -> Result<(), ImportError> {
    // The second row of the old table has its own two columns.
    let own = ["used", "free"];
    let columns: &[&str] = if label == "-/+ buffers/cache" { &own } else { columns };
    if values.is_empty() {
        return Err(ImportError::short(line, format!("numbers after '{label}:'")));
    }
    for (column, token) in columns.iter().zip(values) {
        let bytes =
            size(token.text, unit).ok_or_else(|| ImportError::at(line, *token, format!("a size for '{column}'")))?;
        let name = match (label, *column) {
            ("Mem", "total") => meminfo::MEM_TOTAL_BYTES,
            ("Mem", "used") => meminfo::MEM_USED_BYTES,
            ("Mem", "free") => meminfo::MEM_FREE_BYTES,
            ("Mem", "shared") => meminfo::SHMEM_BYTES,
            ("Mem", "buffers") => meminfo::BUFFERS_BYTES,
            // With `-w` this is only Cached; since procps 3.3.10 it includes reclaimable slab.
            ("Mem", "cached" | "cache") => meminfo::CACHED_BYTES,
            ("Mem", "buff/cache") => meminfo::BUFFERS_CACHED_BYTES,
            ("Mem", "available") => meminfo::MEM_AVAILABLE_BYTES,
            ("-/+ buffers/cache", "used") => meminfo::USED_MINUS_CACHE_BYTES,
            ("-/+ buffers/cache", "free") => meminfo::FREE_PLUS_CACHE_BYTES,
            ("Swap", "total") => meminfo::SWAP_TOTAL_BYTES,
            ("Swap", "used") => meminfo::SWAP_USED_BYTES,
            ("Swap", "free") => meminfo::SWAP_FREE_BYTES,
            ("Low", "total") => meminfo::LOW_TOTAL_BYTES,
            ("Low", "free") => meminfo::LOW_FREE_BYTES,
            ("High", "total") => meminfo::HIGH_TOTAL_BYTES,
            ("High", "free") => meminfo::HIGH_FREE_BYTES,
            _ => continue,
        };
        cells.push((name, Cell::Gauge(bytes)));
    }
    Ok(())
}
