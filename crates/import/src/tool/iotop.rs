//! Reads iotop in batch mode (`-b`, `-o`, `-P`, `-a`): reads, writes and I/O wait of each program.

use super::interval::Intervals;
use super::scaled;
use crate::anchors::Anchor;
use crate::builder::{Builder, Cell};
use crate::error::ImportError;
use crate::number::number;
use crate::text::{Cursor, Line};
use crate::when::{SECOND_NS, When, Zero, clock};
use crate::{FormatKind, Importer};
use flatwater_recording::schema::workload;
use flatwater_recording::{Entity, Table};

pub const IMPORTER: Importer = Importer {
    name: "iotop",
    sentence: "iotop -b: reads, writes and percentage of I/O wait of each program.",
    kind: FormatKind::Averages,
    anchors: &[Anchor::Table(&["DISK READ"])],
    detect: |cursor| match cursor.next_text() {
        text if is_total(text) || is_header(text) => 94,
        _ => 0,
    },
    read,
};

/// Whether the line is `Total DISK READ :  0.00 B/s | Total DISK WRITE :  455.14 K/s` or `Actual DISK READ: ...`; `-t`
/// puts a time before it.
fn is_total(text: &str) -> bool {
    (text.contains("Total DISK READ") || text.contains("Actual DISK READ") || text.contains("Current DISK READ"))
        && text.contains("DISK WRITE")
}

fn is_header(text: &str) -> bool {
    text.contains("DISK READ") && text.contains("DISK WRITE") && text.contains("PRIO") && text.contains("COMMAND")
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let mut intervals = Intervals::new(b, "iotop", SECOND_NS);
    let accumulated =
        b.context().command.as_deref().is_some_and(|command| command.split_whitespace().any(|word| word == "-a"));
    if accumulated {
        b.note("iotop -a sums from its start: bytes and percentages of the last report cover the whole time");
    }
    let mut begun = false;
    while let Some(line) = cursor.peek() {
        let text = line.text;
        if text.contains("Total DISK READ") && is_total(text) {
            let time = text.split_whitespace().next().and_then(clock).map(|ns| When::new(Zero::Day, ns));
            intervals.next(b, time, None);
            begun = true;
        } else if let Some(row) = row(&line) {
            if !begun {
                intervals.next(b, None, None);
                begun = true;
            }
            let seconds = intervals.seconds();
            let entity = Entity::named(&format!("pid {} ({})", row.pid, row.command));
            let mut cells = vec![
                (workload::READ_BYTES, Cell::Rise(row.read * seconds)),
                (workload::WRITE_BYTES, Cell::Rise(row.written * seconds)),
            ];
            // Delay accounting, in percent of the interval. Kernels since 4.19 print `?unavailable?` unless it is
            // enabled.
            cells.extend(row.io.map(|share| (workload::IO_DELAY_NS, Cell::Rise(share * 1e7 * seconds))));
            cells.extend(row.swap_in.map(|share| (workload::SWAP_IN_DELAY_NS, Cell::Rise(share * 1e7 * seconds))));
            intervals.row(b, Table::Workload, &entity, &cells);
        } else if !(is_total(text) || is_header(text) || line.is_blank() || is_wrapped_command(text)) {
            break;
        }
        cursor.take();
    }
    intervals.leave(b);
    Ok(())
}

struct Row<'a> {
    pid: &'a str,
    read: f64,
    written: f64,
    swap_in: Option<f64>,
    io: Option<f64>,
    command: &'a str,
}

/// Parses `9842 be/4 root  0.00 B/s  227.57 K/s  0.00 % 99.99 % agent`; `-t` puts a time before it.
fn row<'a>(line: &Line<'a>) -> Option<Row<'a>> {
    let mut words = line.words();
    if words.first().is_some_and(|word| clock(word).is_some()) {
        words.remove(0);
    }
    let priority =
        words.iter().position(|word| ["be/", "rt/", "idle", "?dif", "?sys"].iter().any(|p| word.starts_with(p)))?;
    let pid = words.get(priority.checked_sub(1)?)?;
    pid.bytes().all(|c| c.is_ascii_digit()).then_some(())?;
    // The name of a user may contain blanks: the first number with a unit is the read rate.
    let rate = |at: usize| {
        let unit = words.get(at + 1)?.trim_end_matches("/s");
        scaled(&format!("{}{unit}", words.get(at)?), 1.0).filter(|_| matches!(unit, "B" | "K" | "M" | "G" | "T"))
    };
    let first = (priority + 1..words.len()).find(|at| rate(*at).is_some())?;
    let share = |at: usize| (words.get(at + 1) == Some(&"%")).then(|| number(words.get(at)?))?;
    let shares = first + 4;
    let (swap_in, io) = (share(shares), share(shares + 2));
    let behind = if io.is_some() { shares + 4 } else { shares + 1 };
    let command = words.get(behind).copied().unwrap_or_default().trim_matches(['[', ']']);
    Some(Row { pid, read: rate(first)?, written: rate(first + 2)?, swap_in, io, command })
}

/// Whether the line is only the command of a row, which a mail program broke.
fn is_wrapped_command(text: &str) -> bool {
    let text = text.trim();
    text.starts_with('[') && text.ends_with(']') && !text.contains(' ')
}

#[cfg(test)]
mod tests {
    use crate::import_texts;
    use flatwater_recording::Table;
    use flatwater_recording::schema::workload;

    #[test]
    fn rows_without_command_or_delays_are_read_too() {
        let text = "Total DISK READ :       0.00 B/s | Total DISK WRITE :     455.14 K/s\n\
            Actual DISK READ:       0.00 B/s | Actual DISK WRITE:     227.57 K/s\n\
            \x20 TID  PRIO  USER     DISK READ  DISK WRITE  SWAPIN      IO    COMMAND\n\
            \x209842 be/4 root        0.00 B/s  227.57 K/s  0.00 % 99.99 % agent\n\
            \x20 882 be/4 some user   1.50 M/s 1604.78 K/s  0.00 % 98.60 %\n[btrfs-transacti]\n\
            \x20 901 be/4 root        0.00 B/s    0.00 B/s ?unavailable?  kworker\n";
        let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        let table = recording.table(Table::Workload).expect("a table");
        let rows: Vec<(String, Option<i64>, Option<i64>)> = table
            .by_entity()
            .map(|(entity, rows)| {
                (entity.name.clone(), rows.rise(workload::WRITE_BYTES), rows.rise(workload::IO_DELAY_NS))
            })
            .collect();
        assert_eq!(rows.len(), 3, "{rows:?}");
        assert_eq!(rows[0], ("pid 9842 (agent)".to_owned(), Some(233_032), Some(999_900_000)));
        assert_eq!((rows[1].2, rows[2].2), (Some(986_000_000), None));
    }
}
