//! Reads vmstat's other tables: `-s` (totals since boot), `-d` (disks) and `-m` (slab caches). Repeated outputs become
//! counters.

use super::builder::{Builder, Cell};
use super::error::ImportError;
use super::number::{count, leading};
use super::text::{Cursor, Line, Token};
use super::{FormatKind, Importer, is_of_another};
use crate::anchors::Anchor;
use flatwater_recording::schema::{Column, cpu, disks, meminfo, slabs, vmstat};
use flatwater_recording::{Entity, Table};

pub const IMPORTER: Importer = Importer {
    name: "vmstat-modes",
    sentence: "vmstat -s, -d and -m.",
    kind: FormatKind::Unjudged,
    anchors: &[Anchor::Table(&["total memory", "disk-"]), Anchor::Common(&["Cache", " reads"])],
    detect: |cursor| {
        let text = cursor.next_text();
        let below = cursor.ahead(1).map_or("", |line| line.text);
        let cell_below = below.split_whitespace().nth(1).is_some_and(|word| count(word).is_some());
        match mode(text) {
            Some(Mode::Totals) => 90,
            Some(Mode::Disks) if is_disk_names(below) || cell_below => 92,
            Some(Mode::Slabs) if cell_below => 92,
            _ => 0,
        }
    },
    read,
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Totals,
    Disks,
    Slabs,
}

fn mode(text: &str) -> Option<Mode> {
    match text.split_whitespace().collect::<Vec<_>>().as_slice() {
        [number, _, "total", "memory"] | [number, "total", "memory"] if count(number).is_some() => Some(Mode::Totals),
        [first, rest @ ..] if first.trim_end_matches('-') == "disk" && rest.iter().any(|w| w.contains("reads")) => {
            Some(Mode::Disks)
        }
        ["Cache", "Num", "Total", "Size", ..] => Some(Mode::Slabs),
        _ => None,
    }
}

fn is_disk_names(text: &str) -> bool {
    text.split_whitespace().take(3).eq(["total", "merged", "sectors"])
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let Some(mode) = cursor.peek().and_then(|line| mode(line.text)) else { return Ok(()) };
    if mode == Mode::Totals {
        return totals(cursor, b);
    }
    let first = cursor.take();
    let mut rows = 0;
    while let Some(line) = cursor.peek() {
        let numbers = line.tokens().skip(1).take_while(|token| count(token.text).is_some()).count();
        if !is_disk_names(line.text) && self::mode(line.text) != Some(mode) {
            // A row that was cut is a problem; a line of another shape ends the table.
            let plain = line.tokens().skip(1).count() == numbers;
            if numbers == 0 || !plain && numbers < 3 || numbers < 3 && is_of_another(cursor, &IMPORTER) {
                break;
            }
            rows += 1;
            let read = if mode == Mode::Disks { disk(&line) } else { slab(&line) };
            let (table, what) =
                if mode == Mode::Disks { (Table::Disks, "vmstat -d") } else { (Table::Slabs, "vmstat -m") };
            match read {
                Ok((name, cells)) => {
                    let place = b.snapshot_of(what, name);
                    b.row(place, table, &Entity::named(name), &cells);
                }
                Err(error) => b.problem(error),
            }
        }
        cursor.take();
    }
    match first {
        Some(first) if rows == 0 => Err(ImportError::line(&first, "a header with at least one row under it")),
        _ => Ok(()),
    }
}

type Row<'a> = Result<(&'a str, Vec<(Column, Cell)>), ImportError>;

fn numbers<'a, const N: usize>(line: &Line<'a>, names: [&str; N]) -> Result<(&'a str, [i64; N]), ImportError> {
    let tokens: Vec<Token<'a>> = line.tokens().collect();
    let mut values = [0; N];
    for (place, (name, value)) in names.iter().zip(&mut values).enumerate() {
        let Some(token) = tokens.get(place + 1) else { return Err(ImportError::short(line, format!("'{name}'"))) };
        let read = count(token.text);
        *value = read.ok_or_else(|| ImportError::at(line, *token, format!("a number for '{name}'")))?;
    }
    Ok((tokens.first().map_or("", |token| token.text), values))
}

/// Reads `vmstat -d`: requests, merged requests, sectors of 512 bytes and ms, of reads and of writes; requests in
/// flight, seconds with any.
fn disk<'a>(line: &Line<'a>) -> Row<'a> {
    let names = ["reads", "merged", "sectors", "ms", "writes", "merged", "sectors", "ms", "cur", "sec"];
    let (name, [reads, _, read_sectors, read_ms, writes, _, write_sectors, write_ms, current, seconds]) =
        numbers(line, names)?;
    let counter = |value: i64, factor: i64| Cell::Counter(value.saturating_mul(factor));
    let cells = vec![
        (disks::READS, counter(reads, 1)),
        (disks::READ_BYTES, counter(read_sectors, 512)),
        (disks::READ_NS, counter(read_ms, 1_000_000)),
        (disks::WRITES, counter(writes, 1)),
        (disks::WRITE_BYTES, counter(write_sectors, 512)),
        (disks::WRITE_NS, counter(write_ms, 1_000_000)),
        (disks::IN_FLIGHT, Cell::Gauge(current)),
        (disks::IO_NS, counter(seconds, 1_000_000_000)),
    ];
    Ok((name, cells))
}

/// Reads `vmstat -m`: objects in use, objects, bytes per object. `Pages` means objects per slab in some versions and is
/// ignored.
fn slab<'a>(line: &Line<'a>) -> Row<'a> {
    let (name, [active, total, bytes]) = numbers(line, ["Num", "Total", "Size"])?;
    let cells = vec![
        (slabs::ACTIVE_OBJS, Cell::Gauge(active)),
        (slabs::NUM_OBJS, Cell::Gauge(total)),
        (slabs::OBJSIZE_BYTES, Cell::Gauge(bytes)),
    ];
    Ok((name, cells))
}

fn totals(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let mut cells: [Vec<(Column, Cell)>; 3] = Default::default();
    while let Some(line) = cursor.peek() {
        let Some((value, rest)) = leading(line.text.trim()) else { break };
        let again = mode(line.text) == Some(Mode::Totals) && cells.iter().any(|cells| !cells.is_empty());
        if again || !rest.starts_with(' ') {
            break;
        }
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        // The unit of -S is before the name; no name begins with a word of one letter.
        let (unit, name) = match rest.trim().split_once(' ') {
            Some((unit, name)) if unit.len() == 1 => (unit, name.trim()),
            _ => ("", rest.trim()),
        };
        let found = total(name, value, unit);
        if found.is_none() && !UNUSED.iter().any(|known| name.starts_with(known)) {
            break;
        }
        cursor.take();
        if let Some((column, cell)) = found {
            let place = [Table::Meminfo, Table::Cpu, Table::Vmstat].iter().position(|known| *known == column.table);
            if let Some(cells) = place.and_then(|place| cells.get_mut(place)) {
                cells.push((column, cell));
            }
        }
    }
    let place = b.snapshot("vmstat -s");
    let [memory, cpu, vmstat] = &cells;
    b.row(place, Table::Meminfo, &Entity::default(), memory);
    b.row(place, Table::Cpu, &Entity::named("all"), cpu);
    b.row(place, Table::Vmstat, &Entity::default(), vmstat);
    Ok(())
}

/// Totals of `vmstat -s` that are not imported.
const UNUSED: &[&str] = &["non-nice guest cpu ticks", "nice guest cpu ticks", "boot time", "pages ", "guest "];

fn total(name: &str, value: i64, unit: &str) -> Option<(Column, Cell)> {
    let factor = match unit {
        "k" => 1000,
        "m" => 1_000_000,
        "M" => 1 << 20,
        _ => 1024,
    };
    let memory = match name {
        "total memory" => Some(meminfo::MEM_TOTAL_BYTES),
        "used memory" => Some(meminfo::MEM_USED_BYTES),
        "active memory" => Some(meminfo::ACTIVE_BYTES),
        "inactive memory" => Some(meminfo::INACTIVE_BYTES),
        "free memory" => Some(meminfo::MEM_FREE_BYTES),
        "buffer memory" => Some(meminfo::BUFFERS_BYTES),
        // vmstat's name for the page cache.
        "swap cache" => Some(meminfo::CACHED_BYTES),
        "total swap" => Some(meminfo::SWAP_TOTAL_BYTES),
        "used swap" => Some(meminfo::SWAP_USED_BYTES),
        "free swap" => Some(meminfo::SWAP_FREE_BYTES),
        _ => None,
    };
    if let Some(column) = memory {
        return Some((column, Cell::Gauge(value.saturating_mul(factor))));
    }
    let (column, times) = match name {
        // Ticks of 1/100 s.
        "non-nice user cpu ticks" => (cpu::USER_NS, 10_000_000),
        "nice user cpu ticks" => (cpu::NICE_NS, 10_000_000),
        "system cpu ticks" => (cpu::SYSTEM_NS, 10_000_000),
        "idle cpu ticks" => (cpu::IDLE_NS, 10_000_000),
        "IO-wait cpu ticks" => (cpu::IOWAIT_NS, 10_000_000),
        "IRQ cpu ticks" => (cpu::IRQ_NS, 10_000_000),
        "softirq cpu ticks" => (cpu::SOFTIRQ_NS, 10_000_000),
        "stolen cpu ticks" => (cpu::STEAL_NS, 10_000_000),
        "interrupts" => (cpu::INTR, 1),
        "CPU context switches" => (cpu::CTXT, 1),
        "forks" => (cpu::PROCESSES, 1),
        // KiB in all versions; procps 4 prints `K paged in`.
        "pages paged in" | "paged in" => (vmstat::PGPGIN, 1),
        "pages paged out" | "paged out" => (vmstat::PGPGOUT, 1),
        "pages swapped in" => (vmstat::PSWPIN, 1),
        "pages swapped out" => (vmstat::PSWPOUT, 1),
        _ => return None,
    };
    Some((column, Cell::Counter(value.saturating_mul(times))))
}
