//! Reads the head of htop as text: meters of memory and swap, load averages. `processes` reads the list below.
//!
//! The bars of CPUs are passed over: a setting that the text does not show decides whether they include I/O wait.

use super::interval::Intervals;
use super::scaled;
use crate::anchors::Anchor;
use crate::builder::{Builder, Cell};
use crate::error::ImportError;
use crate::number::{number, rounded};
use crate::sar::columns::Report;
use crate::text::Cursor;
use crate::when::SECOND_NS;
use crate::{FormatKind, Importer};
use flatwater_recording::schema::meminfo;
use flatwater_recording::{Entity, Table};

pub const IMPORTER: Importer = Importer {
    name: "htop",
    sentence: "The head of htop: memory and swap in use, load averages.",
    kind: FormatKind::Averages,
    anchors: &[Anchor::Line(&["Mem["]), Anchor::Start("CA0123456789")],
    detect: |cursor| match cursor.next_text() {
        text if meter(text, "Mem").is_some() => 92,
        text if is_cpu(text) => 86,
        _ => 0,
    },
    read,
};

/// Used and total bytes of `Mem[|||||||||2.91G/7.76G]`.
fn meter(text: &str, name: &str) -> Option<(i64, i64)> {
    let (_, rest) = text.split_once(name)?;
    let inner = rest.strip_prefix('[')?.split(']').next()?;
    let (used, total) = inner.trim_start_matches(['|', '#', '*', ' ']).trim().split_once('/')?;
    Some((rounded(scaled(used, 1.0)?), rounded(scaled(total, 1.0)?)))
}

/// Whether the line is `  1[||||||    35.2%]   Tasks: 95, 240 thr; 2 running` or `CPU[||   4.0%]`.
fn is_cpu(text: &str) -> bool {
    let Some((name, rest)) = text.trim_start().split_once('[') else { return false };
    let name = name.trim();
    let named = name == "CPU" || name == "Avg" || (!name.is_empty() && name.bytes().all(|c| c.is_ascii_digit()));
    named
        && rest.split(']').next().is_some_and(|inner| {
            let inner = inner.trim_start_matches(['|', '#', '*', ' ']);
            inner.strip_suffix('%').is_some_and(|share| number(share.trim()).is_some())
        })
}

fn loads(text: &str) -> Option<[f64; 3]> {
    let (_, rest) = text.split_once("Load average:")?;
    let mut values = rest.split_whitespace().map_while(number);
    Some([values.next()?, values.next()?, values.next()?])
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let mut intervals = Intervals::new(b, "htop", SECOND_NS);
    intervals.next(b, None, None);
    while let Some(line) = cursor.peek() {
        let text = line.text;
        let (memory, swap, load) = (meter(text, "Mem"), meter(text, "Swp"), loads(text));
        let head = ["Tasks:", "Uptime:", "Load average:"].iter().any(|word| text.contains(word));
        if memory.is_none() && swap.is_none() && !head && !is_cpu(text) {
            break;
        }
        cursor.take();
        // htop's used memory excludes the cache, so everything else is available.
        if let Some((used, total)) = memory {
            let cells = [
                (meminfo::MEM_TOTAL_BYTES, Cell::Gauge(total)),
                (meminfo::MEM_AVAILABLE_BYTES, Cell::Gauge((total - used).max(0))),
            ];
            intervals.row(b, Table::Meminfo, &Entity::default(), &cells);
        }
        if let Some((used, total)) = swap {
            let cells = [
                (meminfo::SWAP_TOTAL_BYTES, Cell::Gauge(total)),
                (meminfo::SWAP_FREE_BYTES, Cell::Gauge((total - used).max(0))),
            ];
            intervals.row(b, Table::Meminfo, &Entity::default(), &cells);
        }
        match load {
            Some([one, five, fifteen]) => {
                let values = [("ldavg-1", one), ("ldavg-5", five), ("ldavg-15", fifteen)];
                intervals.report(b, Report::Queue, &Entity::named("all"), &values);
            }
            None if memory.is_none() && swap.is_none() => b.pass_over(),
            None => {}
        }
    }
    intervals.leave(b);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{is_cpu, meter};
    use crate::import_texts;
    use flatwater_recording::Table;
    use flatwater_recording::schema::{cpu, meminfo};

    #[test]
    fn meters_are_distinguished_from_other_brackets() {
        assert_eq!(meter("  Mem[|||||||||512M/2.00G]   Uptime: 12 days", "Mem"), Some((1 << 29, 1 << 31)));
        assert!(is_cpu("    0[||||||   35.2%]   Tasks: 95, 240 thr") && !is_cpu("[   12.3] usb 1-1: 4%"));
        assert!(!is_cpu("Call Trace: [schedule+969/1504]"));
    }

    #[test]
    fn memory_swap_and_load_of_the_head_are_read() {
        let text = "    0[||||      35.2%]   Tasks: 95, 240 thr; 2 running\n    1[||         4.1%]   Load average: 8.02 7.45 6.33\n  Mem[||||||||512M/2.00G]   Uptime: 12 days, 03:22:11\n  Swp[|       128M/1.00G]\n\n    PID USER      PRI  NI  VIRT   RES   SHR S CPU% MEM%   TIME+  Command\n   1234 mysql      20   0 3412M 1890M 12044 D 12.0 23.8  8h12:33 /usr/sbin/mysqld\n";
        let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        let (_, rows) = recording.table(Table::Meminfo).expect("memory").by_entity().next().expect("a row");
        assert_eq!(rows.last(meminfo::MEM_AVAILABLE_BYTES), Some(3 << 29));
        assert_eq!(rows.last(meminfo::SWAP_FREE_BYTES), Some((1 << 30) - (128 << 20)));
        let (_, rows) = recording.table(Table::Cpu).expect("load").by_entity().next().expect("a row");
        assert_eq!(rows.last(cpu::LOAD1_CENTI), Some(802));
        assert_eq!(recording.header.sampled_tasks.len(), 1, "the task in state D");
    }
}
