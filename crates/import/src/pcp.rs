//! Reads pmrep and pmval of Performance Co-Pilot. pmrep shortens names (`kernel.all.cpu.wait.total` is
//! `k.a.c.wait.total`) and prints units below them. Values are rates or levels.

use super::builder::{Builder, Cell};
use super::error::ImportError;
use super::number::{number, rounded};
use super::text::{Cursor, Line};
use super::tool::Intervals;
use super::when::{SECOND_NS, When, Zero, clock};
use super::{FormatKind, Importer, is_of_another};
use crate::anchors::Anchor;
use flatwater_recording::schema::{Column, cpu, disks, meminfo, vmstat};
use flatwater_recording::{ColumnKind, Entity};

pub const IMPORTER: Importer = Importer {
    name: "pmrep",
    sentence: "pmrep and pmval of PCP: kernel.all.*, mem.*, swap.*, disk.*.",
    kind: FormatKind::Averages,
    anchors: &[
        Anchor::Table(&["metric:", "kernel.all", "mem.util", "disk.all", "disk.dev"]),
        Anchor::Start("kmsdnphfT"),
    ],
    detect: |cursor| match cursor.next_text() {
        text if text.trim_start().starts_with("metric:") && text.contains('.') => 94,
        text if names(text).is_some() => 93,
        _ => 0,
    },
    read,
};

/// Metric, column, and factor from the metric's unit to the column's. Rates are per second.
const METRICS: &[(&str, Column, f64)] = &[
    ("kernel.all.runnable", cpu::PROCS_RUNNING, 1.0),
    ("kernel.all.blocked", cpu::PROCS_BLOCKED, 1.0),
    ("mem.util.free", meminfo::MEM_FREE_BYTES, 1024.0),
    ("mem.util.available", meminfo::MEM_AVAILABLE_BYTES, 1024.0),
    ("mem.util.cached", meminfo::CACHED_BYTES, 1024.0),
    ("mem.util.bufmem", meminfo::BUFFERS_BYTES, 1024.0),
    ("mem.util.dirty", meminfo::DIRTY_BYTES, 1024.0),
    ("mem.util.writeback", meminfo::WRITEBACK_BYTES, 1024.0),
    ("mem.util.slab", meminfo::SLAB_BYTES, 1024.0),
    ("mem.physmem", meminfo::MEM_TOTAL_BYTES, 1024.0),
    ("swap.pagesin", vmstat::PSWPIN, 1.0),
    ("swap.pagesout", vmstat::PSWPOUT, 1.0),
    ("mem.vmstat.pswpin", vmstat::PSWPIN, 1.0),
    ("mem.vmstat.pswpout", vmstat::PSWPOUT, 1.0),
    ("mem.vmstat.pgpgin", vmstat::PGPGIN, 1.0),
    ("mem.vmstat.pgpgout", vmstat::PGPGOUT, 1.0),
    ("mem.vmstat.pgmajfault", vmstat::PGMAJFAULT, 1.0),
    ("disk.all.read", disks::READS, 1.0),
    ("disk.all.write", disks::WRITES, 1.0),
    ("disk.all.total", disks::REQUESTS, 1.0),
    ("disk.all.read_bytes", disks::READ_BYTES, 1024.0),
    ("disk.all.write_bytes", disks::WRITE_BYTES, 1024.0),
    ("disk.all.aveq", disks::QUEUE_NS, 1e6),
    ("disk.all.avactive", disks::IO_NS, 1e6),
    ("disk.dev.read", disks::READS, 1.0),
    ("disk.dev.write", disks::WRITES, 1.0),
    ("disk.dev.total", disks::REQUESTS, 1.0),
    ("disk.dev.avg_qlen", disks::QUEUE_NS, 1e9),
    ("disk.dev.util", disks::IO_NS, 1e7),
];

/// Maximum lines of instances and units below a header.
const HEADS_MAX: u32 = 3;

/// Lines that pmval prints above its values, besides the metric.
const PMVAL: &[&str] = &["host:", "semantics:", "units:", "samples:", "interval:", "archive:", "start:", "end:"];

/// Looks up a metric as pmrep prints it: in full, or with only the initials of all parts but the last. The inner `None`
/// is a metric that is not used.
fn metric(name: &str) -> Option<Option<(Column, f64)>> {
    let parts: Vec<&str> = name.split('.').collect();
    (parts.len() >= 3
        && parts.iter().all(|part| !part.is_empty() && part.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')))
    .then_some(())?;
    let fits = |known: &str| {
        let whole: Vec<&str> = known.split('.').collect();
        whole.len() == parts.len()
            && whole
                .iter()
                .zip(&parts)
                .all(|(whole, part)| whole == part || (part.len() == 1 && whole.starts_with(part)))
            && whole.last() == parts.last()
    };
    let known = METRICS.iter().find(|(known, ..)| fits(known)).map(|(_, column, unit)| (*column, *unit));
    let root =
        ["k", "m", "s", "d", "kernel", "mem", "swap", "disk", "network", "n", "proc", "p", "hinv", "h", "filesys", "f"];
    (known.is_some() || parts.first().is_some_and(|first| root.contains(first))).then_some(known)
}

/// The columns of a pmrep header: only metrics, at least one of them used here.
fn names(text: &str) -> Option<Vec<Option<(Column, f64)>>> {
    let words = text.split_whitespace().filter(|word| *word != "Time");
    let found: Option<Vec<Option<(Column, f64)>>> = words.map(metric).collect();
    found.filter(|found| found.iter().any(Option::is_some))
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let mut intervals = Intervals::new(b, "pmrep", SECOND_NS);
    let mut columns: Vec<Option<(Column, f64)>> = Vec::new();
    let mut instances: Vec<String> = Vec::new();
    let mut of_pmval = None;
    // Lines of words below a header, above its first row: instances and units.
    let mut heads = 0;
    while let Some(line) = cursor.peek() {
        let text = line.text.trim();
        if let Some(name) = text.strip_prefix("metric:") {
            (of_pmval, heads) = (metric(name.trim()).flatten(), HEADS_MAX);
        } else if let Some(found) = names(text) {
            (columns, of_pmval, instances) = (found, None, Vec::new());
            heads = HEADS_MAX;
        } else if let Some(values) =
            values(&line).filter(|(_, values)| of_pmval.is_some() || values.len() <= columns.len())
        {
            heads = 0;
            intervals.next(b, values.0, None);
            for (at, value) in values.1.iter().enumerate() {
                let column = of_pmval.or_else(|| columns.get(at).copied().flatten());
                let (Some((column, unit)), Some(value)) = (column, value) else { continue };
                let name = instances.get(at).map_or("", String::as_str);
                let entity = match (column.table, name) {
                    (flatwater_recording::Table::Cpu, _) => Entity::named("all"),
                    (flatwater_recording::Table::Disks, "" | "N/A") => Entity::named("all"),
                    (flatwater_recording::Table::Disks, name) => Entity::named(name),
                    _ => Entity::default(),
                };
                let cell = match column.kind {
                    ColumnKind::Gauge => Cell::Gauge(rounded(value * unit)),
                    ColumnKind::Counter => Cell::Rise(value.max(0.0) * unit * intervals.seconds()),
                };
                intervals.row(b, column.table, &entity, &[(column, cell)]);
            }
        } else if heads > 0
            && is_words(text)
            && (of_pmval.is_some() || text.split_whitespace().count() <= columns.len() + 1)
            && !is_of_another(cursor, &IMPORTER)
        {
            heads -= 1;
            // Instances, or units such as `ms/s` and `Kbyte`.
            let units = text
                .split_whitespace()
                .any(|word| word.contains('/') || matches!(word, "Kbyte" | "util" | "none" | "count" | "byte"));
            if !units {
                instances = text.split_whitespace().filter(|word| *word != "Time").map(str::to_owned).collect();
            }
        } else if !(text.is_empty() || PMVAL.iter().any(|key| text.starts_with(key))) {
            break;
        }
        cursor.take();
    }
    intervals.leave(b);
    Ok(())
}

/// A row of values, which may include `N/A` and `?`, with its time if it has one.
fn values(line: &Line<'_>) -> Option<(Option<When>, Vec<Option<f64>>)> {
    let words = line.words();
    let time = words.first().and_then(|word| clock(word)).map(|ns| When::new(Zero::Day, ns));
    let rest = words.get(usize::from(time.is_some())..)?;
    let one = |word: &&str| if matches!(*word, "N/A" | "?") { Some(None) } else { number(word).map(Some) };
    let found: Option<Vec<Option<f64>>> = rest.iter().map(one).collect();
    found.filter(|found| !found.is_empty()).map(|found| (time, found))
}

fn is_words(text: &str) -> bool {
    !text.is_empty()
        && text.len() < 2000
        && text.split_whitespace().all(|word| number(word).is_none() && !word.ends_with(['.', ',', ':', '?', '!']))
        && text.split_whitespace().count() <= 64
}

#[cfg(test)]
mod tests {
    use super::{metric, names};
    use crate::import_texts;
    use flatwater_recording::schema::{disks, meminfo};
    use flatwater_recording::{Entity, Table};

    #[test]
    fn full_and_short_metric_names_are_known() {
        assert!(metric("mem.util.dirty").flatten().is_some() && metric("m.u.dirty").flatten().is_some());
        assert_eq!(metric("k.a.c.wait.total"), Some(None), "a metric that is not used");
        assert!(metric("example.org.").is_none() && metric("a.b").is_none());
        assert!(names("k.a.c.wait.total  d.a.total  m.u.dirty").is_some());
        assert!(names("see www.example.com for more").is_none());
    }

    #[test]
    fn pmrep_and_pmval_are_read() {
        let text = "  d.a.total  m.u.dirty\n    count/s      Kbyte\n        N/A     120340\n    230.020     180200\n    228.980     190220\n";
        let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        let rows = recording.table(Table::Disks).and_then(|table| table.rows_of(&Entity::named("all"))).expect("disks");
        assert_eq!(rows.rise(disks::REQUESTS), Some(459));
        let (_, rows) = recording.table(Table::Meminfo).expect("memory").by_entity().next().expect("one");
        assert_eq!(rows.last(meminfo::DIRTY_BYTES), Some(190_220 * 1024));
        let text = "metric:    disk.dev.avg_qlen\nhost:      db1\nunits:     count\nsamples:   all\n\n  sda  sdb\n 20.5  0.1\n 30.5  0.1\n";
        let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        let rows = recording.table(Table::Disks).and_then(|table| table.rows_of(&Entity::named("sda"))).expect("sda");
        assert_eq!(rows.rise(disks::QUEUE_NS), Some(51_000_000_000));
    }
}
