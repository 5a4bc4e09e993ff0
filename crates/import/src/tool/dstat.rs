//! Reads dstat, pcp dstat and dool: groups of columns between bars, below a line that names the groups.

use super::interval::Intervals;
use super::scaled;
use crate::anchors::Anchor;
use crate::builder::{Builder, Cell};
use crate::error::ImportError;
use crate::number::rounded;
use crate::sar::columns::Report;
use crate::text::{Cursor, Line};
use crate::when::{SECOND_NS, When, Zero, clock};
use crate::{FormatKind, Importer};
use flatwater_recording::schema::{Column, cpu, meminfo, vmstat};
use flatwater_recording::{Entity, Table};

pub const IMPORTER: Importer = Importer {
    name: "dstat",
    sentence: "dstat, dool and pcp dstat: CPU, disks, requests, paging, memory, swap, load and processes.",
    kind: FormatKind::Averages,
    anchors: &[Anchor::Table(&["usr sys idl", "----total"]), Anchor::Start("-")],
    detect: |cursor| {
        let below = cursor.ahead(1).is_some_and(|line| columns(line.text).is_some());
        if groups(cursor.next_text()).is_some() && below { 93 } else { 0 }
    },
    read,
};

/// The names of groups in `----total-usage---- -dsk/total- ---paging--`.
fn groups(text: &str) -> Option<Vec<&str>> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let ruled = words.iter().all(|word| word.starts_with('-') || word.ends_with('-'));
    (words.len() >= 2 && ruled && text.contains(|c: char| c.is_ascii_alphabetic()))
        .then(|| words.iter().map(|word| word.trim_matches('-')).collect())
}

/// The names of columns in each group.
fn columns(text: &str) -> Option<Vec<Vec<&str>>> {
    let groups: Vec<Vec<&str>> = text.split(['|', ':']).map(|group| group.split_whitespace().collect()).collect();
    let named = groups
        .iter()
        .flatten()
        .all(|word| word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '#' || c.is_ascii_digit()));
    (named
        && groups.iter().any(|group| {
            group.starts_with(&["usr"])
                || group.starts_with(&["read"])
                || group.starts_with(&["used"])
                || group.starts_with(&["run"])
        }))
    .then_some(groups)
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let mut intervals = Intervals::new(b, "dstat", SECOND_NS);
    let (mut titles, mut names): (Vec<&str>, Vec<Vec<&str>>) = (Vec::new(), Vec::new());
    // The first row is a mean since boot.
    let mut first = true;
    while let Some(line) = cursor.peek() {
        if let Some(found) = groups(line.text) {
            titles = found;
        } else if let Some(found) = columns(line.text) {
            names = found;
        } else if !line.is_blank() {
            if names.is_empty() || !line.text.trim_start().starts_with(|c: char| c.is_ascii_digit()) {
                break;
            }
            if !std::mem::take(&mut first)
                && let Err(error) = row(&line, &titles, &names, &mut intervals, b)
            {
                b.problem(error);
            }
        }
        cursor.take();
    }
    intervals.leave(b);
    Ok(())
}

fn row(
    line: &Line<'_>,
    titles: &[&str],
    names: &[Vec<&str>],
    intervals: &mut Intervals,
    b: &mut Builder,
) -> Result<(), ImportError> {
    let values: Vec<Vec<&str>> = line.text.split('|').map(|group| group.split_whitespace().collect()).collect();
    if values.len() != names.len() {
        return Err(ImportError::short(line, format!("{} groups between bars", names.len())));
    }
    let when = values.iter().flatten().find_map(|word| clock(word).filter(|_| word.matches(':').count() == 2));
    intervals.next(b, when.map(|ns| When::new(Zero::Day, ns)), None);
    for (place, (names, words)) in names.iter().zip(&values).enumerate() {
        let title = titles.get(place).copied().unwrap_or_default();
        let pairs: Vec<(&str, f64)> =
            names.iter().zip(words).filter_map(|(name, word)| Some((*name, scaled(word, 1.0)?))).collect();
        group(title, &pairs, intervals, b);
    }
    Ok(())
}

fn group(title: &str, pairs: &[(&str, f64)], intervals: &mut Intervals, b: &mut Builder) {
    let of = |name: &str| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    let seconds = intervals.seconds();
    let all = Entity::named("all");
    if of("usr").is_some() {
        let cpu: Vec<(&str, f64)> = [
            ("usr", "user"),
            ("sys", "system"),
            ("idl", "idle"),
            ("wai", "iowait"),
            ("stl", "steal"),
            ("hiq", "irq"),
            ("siq", "soft"),
        ]
        .iter()
        .filter_map(|(name, known)| Some((*known, of(name)?)))
        .collect();
        intervals.report(b, Report::Cpu, &all, &cpu);
    } else if let (Some(read), Some(written)) = (of("read"), of("writ")) {
        let (kind, device) = title.split_once('/').unwrap_or((title, "total"));
        let device = Entity::named(if device == "total" { "all" } else { device });
        let values = if kind == "io" {
            [("r", read), ("w", written)]
        } else {
            [("rkB", read / 1024.0), ("wkB", written / 1024.0)]
        };
        intervals.report(b, Report::Disk, &device, &values);
    } else if let (Some(read), Some(written)) = (of("in"), of("out")) {
        // Bytes per second; the kernel counts pages.
        let page_bytes = b.machine.page_size_bytes() as f64;
        let pages = |bytes: f64| Cell::Rise(bytes * seconds / page_bytes);
        intervals.row(
            b,
            Table::Vmstat,
            &Entity::default(),
            &[(vmstat::PSWPIN, pages(read)), (vmstat::PSWPOUT, pages(written))],
        );
    } else if let (Some(interrupts), Some(switches)) = (of("int"), of("csw")) {
        intervals.row(
            b,
            Table::Cpu,
            &all,
            &[(cpu::INTR, Cell::Rise(interrupts * seconds)), (cpu::CTXT, Cell::Rise(switches * seconds))],
        );
    } else if let (Some(runs), Some(blocked)) = (of("run"), of("blk")) {
        intervals.report(b, Report::Queue, &all, &[("runq-sz", runs), ("blocked", blocked)]);
    } else if let (Some(one), Some(five)) = (of("1m"), of("5m")) {
        intervals.report(
            b,
            Report::Queue,
            &all,
            &[("ldavg-1", one), ("ldavg-5", five), ("ldavg-15", of("15m").unwrap_or(five))],
        );
    } else if let (Some(used), Some(free)) = (of("used"), of("free")) {
        let swap = title.contains("swap");
        let mut cells: Vec<(Column, Cell)> = vec![if swap {
            (meminfo::SWAP_FREE_BYTES, Cell::Gauge(rounded(free)))
        } else {
            (meminfo::MEM_FREE_BYTES, Cell::Gauge(rounded(free)))
        }];
        if swap {
            cells.push((meminfo::SWAP_USED_BYTES, Cell::Gauge(rounded(used))));
        }
        cells.extend(of("buff").or(of("buf")).map(|value| (meminfo::BUFFERS_BYTES, Cell::Gauge(rounded(value)))));
        cells.extend(of("cach").map(|value| (meminfo::CACHED_BYTES, Cell::Gauge(rounded(value)))));
        intervals.row(b, Table::Meminfo, &Entity::default(), &cells);
    }
}

#[cfg(test)]
mod tests {
    use super::{columns, groups};

    #[test]
    fn groups_and_columns_above_the_rows_parse() {
        assert_eq!(
            groups("----total-usage---- -dsk/total- ---paging--"),
            Some(vec!["total-usage", "dsk/total", "paging"])
        );
        assert_eq!(columns("usr sys idl wai stl| read  writ|  in   out ").map(|groups| groups.len()), Some(3));
        assert!(groups("-- text --").is_none() || columns("1 2 3").is_none());
    }
}
