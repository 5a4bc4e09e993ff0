//! Reads tools of bcc, bpftrace and perf-tools that print a row per event or second below a header. Each tool is an
//! entry of `TOOLS`. Columns are found by name, since versions and options change them.

use std::collections::HashSet;

use crate::anchors::{Anchor, DIGITS};
use crate::builder::{Builder, Cell, Track};
use crate::error::ImportError;
use crate::latency_log::PerSecond;
use crate::number::{nanos, number, rounded};
use crate::single_call::single_call;
use crate::text::{Cursor, Line};
use crate::when::{SECOND_NS, When, Zero, clock, stamp};
use crate::{FormatKind, Importer};
use flatwater_recording::schema::{Column, disks, meminfo, slabs, vmstat, workload};
use flatwater_recording::{Basis, Cause, Entity, EventKind, OpKind, Table};

pub const IMPORTER: Importer = Importer {
    name: "bcc-table",
    sentence: "biosnoop, disksnoop, biotop, cachestat, compactsnoop, filetop, oomkill, slabratetop, swapin, syncsnoop, syscount, \
        vfsstat, writeback of bcc and bpftrace; strace -c.",
    kind: FormatKind::TimedRequests,
    anchors: &[
        Anchor::Table(&[
            "LAT(",
            "LATms",
            "TOTAL_usecs",
            "DIRTIES",
            "SYSCALL",
            "usecs/call",
            "ALLOCS",
            "Kbytes",
            "R_Kb",
            "FSYNC/s",
            "Triggered by PID ",
        ]),
        Anchor::Line(&["COUNT", "CALL", "EVENT", "REASON", "DEVICE"]),
        Anchor::Start(DIGITS),
    ],
    detect: |cursor| match cursor.next_text() {
        text if header(text).is_some() || oom_kill(text).is_some() => 91,
        text if is_request(text) && cursor.ahead(1).is_some_and(|line| is_request(line.text)) => 70,
        _ => 0,
    },
    read,
};

/// All words that the header of a tool contains, and the function that reads a row.
struct Tool {
    words: &'static [&'static str],
    row: fn(&Row<'_>, &mut Reading, &mut Builder) -> Option<()>,
}

const TOOLS: &[Tool] = &[
    Tool { words: &["DISK", "T", "BYTES", "LAT(ms)"], row: request },
    Tool { words: &["DISK", "COMM", "PID", "LAT(ms)"], row: request },
    Tool { words: &["TYPE", "DEV", "BLOCK", "BYTES", "LATms"], row: request },
    // disksnoop: all disks together.
    Tool { words: &["TIME(s)", "T", "BYTES", "LAT(ms)"], row: request },
    Tool { words: &["COMM", "PID", "LATms", "FD", "FILE"], row: timed_sync },
    Tool { words: &["HARDIRQ", "TOTAL_usecs"], row: nothing },
    Tool { words: &["SOFTIRQ", "TOTAL_usecs"], row: nothing },
    Tool { words: &["HITS", "MISSES", "DIRTIES"], row: cache },
    Tool { words: &["COMM", "PID", "ORDER", "MODE", "LAT(ms)", "STATUS"], row: compaction },
    Tool { words: &["TIME", "COMM", "PID", "LAT(us)"], row: run_queue },
    Tool { words: &["TIME", "COMM", "TID", "LAT(us)"], row: run_queue },
    Tool { words: &["COMM", "PID", "COUNT"], row: counted },
    Tool { words: &["TIME(s)", "COMM", "CALL"], row: sync },
    Tool { words: &["TIME", "PID", "COMM", "EVENT"], row: sync },
    Tool { words: &["SYSCALL", "COUNT"], row: system_call },
    Tool { words: &["%", "time", "seconds", "usecs/call", "calls", "syscall"], row: system_call },
    Tool { words: &["CACHE", "ALLOCS", "BYTES"], row: slab },
    Tool { words: &["PID", "COMM", "DISK", "I/O", "Kbytes"], row: process_io },
    Tool { words: &["COMM", "READS", "WRITES", "R_Kb", "W_Kb"], row: process_io },
    Tool { words: &["READ/s", "WRITE/s", "FSYNC/s"], row: vfs },
    Tool { words: &["TIME", "DEVICE", "PAGES", "REASON", "ms"], row: nothing },
    Tool { words: &["TIME", "PID", "COMM", "DEVICE"], row: nothing },
];

/// biosnoop's columns, for rows without a header (selected by `grep`).
const BIOSNOOP: &[&str] = &["TIME(s)", "COMM", "PID", "DISK", "T", "SECTOR", "BYTES", "LAT(ms)"];

/// Whether the line is a row of biosnoop: `4.338511000    fio       17553  sdb     W  0         4096       0.27`.
fn is_request(text: &str) -> bool {
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return false;
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    let [time, .., pid, disk, kind, sector, bytes, latency] = words.as_slice() else { return false };
    let figures = [pid, sector, bytes].iter().all(|word| word.bytes().all(|c| c.is_ascii_digit()));
    let fractions = [time, latency].iter().all(|word| word.contains('.') && number(word).is_some());
    figures
        && fractions
        && words.len() <= 10
        && matches!(*kind, "R" | "W" | "RA" | "WS" | "WM" | "RM" | "FF" | "WFS")
        && disk.starts_with(|c: char| c.is_ascii_lowercase())
}

fn header(text: &str) -> Option<(&'static Tool, Vec<&str>)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let plain = words.len() >= 2 && words.iter().all(|word| number(word).is_none());
    let tool = TOOLS.iter().find(|tool| tool.words.iter().all(|word| words.contains(word))).filter(|_| plain)?;
    // strace prints `% time`, two words, above one column.
    Some((tool, words.into_iter().filter(|word| *word != "%" && *word != "(us)").collect()))
}

/// A row below its header. Only COMM may contain blanks.
struct Row<'a> {
    columns: &'a [&'a str],
    words: Vec<&'a str>,
    wide: usize,
    extra: usize,
}

impl<'a> Row<'a> {
    fn of(line: &Line<'a>, columns: &'a [&'a str]) -> Option<Row<'a>> {
        let words = line.words();
        let wide = columns.iter().position(|name| *name == "COMM").unwrap_or(columns.len());
        // The errors column of strace -c is blank if there was no error.
        let blank = columns.contains(&"errors") && words.len() + 1 == columns.len();
        let extra = if blank { 0 } else { words.len().checked_sub(columns.len())? };
        (extra == 0 || wide < columns.len()).then_some(Row { columns, words, wide, extra })
    }

    fn text(&self, name: &str) -> Option<&'a str> {
        let at = self.columns.iter().position(|column| *column == name)?;
        let at = if at > self.wide { at + self.extra } else { at };
        // The last column is the last word even if a column before it is blank.
        let last = self.columns.last() == Some(&name);
        if last { self.words.last().copied() } else { self.words.get(at).copied() }
    }

    fn value(&self, name: &str) -> Option<f64> {
        number(self.text(name)?.trim_end_matches('%'))
    }

    fn comm(&self) -> String {
        self.words.get(self.wide..=self.wide + self.extra).unwrap_or_default().join(" ")
    }
}

/// State of the current table.
struct Reading {
    track: Track,
    origin: i64,
    /// End of the last row.
    at: i64,
    /// Counters that already have a zero row.
    begun: HashSet<String>,
    latency: PerSecond,
}

impl Reading {
    /// The end of the row's event: from its time column, else 1 ms after the last row.
    fn time(&mut self, row: &Row<'_>) -> i64 {
        let seconds = row
            .value("TIME(s)")
            .or_else(|| row.value("ENDs"))
            .map(|seconds| self.origin.saturating_add((seconds * SECOND_NS as f64) as i64));
        let millis = row.value("TIME(ms)").map(|ms| self.origin.saturating_add((ms * 1e6) as i64));
        let ns = seconds
            .or(millis)
            .or_else(|| row.text("TIME").and_then(clock))
            .or_else(|| row.text("TIME(s)").and_then(clock));
        self.at = ns.unwrap_or(self.at.saturating_add(1_000_000));
        self.at
    }

    fn rise(&mut self, b: &mut Builder, table: Table, entity: &Entity, cells: &[(Column, f64)]) {
        let key = format!("{} {}", table.name(), entity.name);
        if self.begun.insert(key) {
            let zeros: Vec<(Column, Cell)> = cells.iter().map(|(column, _)| (*column, Cell::Rise(0.0))).collect();
            b.row((self.track, self.at.saturating_sub(SECOND_NS)), table, entity, &zeros);
        }
        let cells: Vec<(Column, Cell)> = cells.iter().map(|(column, value)| (*column, Cell::Rise(*value))).collect();
        b.row((self.track, self.at), table, entity, &cells);
    }
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let mut table: Option<(&'static Tool, Vec<&str>, Reading)> = None;
    let mut stamped = b.context().moment;
    while let Some(line) = cursor.peek() {
        if let (None, true, Some(tool)) = (&table, is_request(line.text), TOOLS.first()) {
            table = Some((tool, BIOSNOOP.to_vec(), begin(BIOSNOOP, stamped, b)));
        }
        if let Some((tool, columns)) = header(line.text) {
            // The header of the next second, or of another tool.
            let state = match table.take() {
                Some((before, _, mut state)) if std::ptr::eq(before, tool) => {
                    state.at = state.at.max(state.origin).saturating_add(if stamped.is_some() { 0 } else { SECOND_NS });
                    state
                }
                Some((_, _, mut state)) => {
                    state.latency.flush(b);
                    begin(&columns, stamped, b)
                }
                None => begin(&columns, stamped, b),
            };
            table = Some((tool, columns, state));
        } else if let Some(kill) = oom_kill(line.text) {
            let when = line.text.split_whitespace().next().and_then(clock).map(|ns| When::new(Zero::Day, ns));
            let when = when.or(stamped).unwrap_or(When::new(Zero::Start, 0));
            let track = b.shared_track("bcc-table-oom", when.zero);
            b.event((track, when.ns), EventKind::report(kill));
        } else if let (Some(moment), Some((_, _, state))) = (stamp(line.text), &mut table) {
            stamped = Some(moment);
            state.at = state.at.max(moment.ns);
        } else if !(line.is_blank()
            || line.text.starts_with("Tracing")
            || line.text.starts_with("Detaching")
            || line.text.starts_with("---")
            || line.text.starts_with('[') && line.text.ends_with(']'))
        {
            let Some((tool, columns, state)) = &mut table else { break };
            let Some(row) = Row::of(&line, columns) else { break };
            if !row.words.iter().any(|word| number(word.trim_end_matches('%')).is_some() || clock(word).is_some()) {
                break;
            }
            if (tool.row)(&row, state, b).is_none() {
                b.problem(ImportError::line(&line, format!("values for {}", columns.join(" "))));
            }
        }
        cursor.take();
    }
    if let Some((_, _, mut state)) = table {
        state.latency.flush(b);
    }
    Ok(())
}

fn begin(columns: &[&str], stamped: Option<When>, b: &mut Builder) -> Reading {
    let clocked = columns.contains(&"TIME");
    let moment = stamped.unwrap_or(When::new(if clocked { Zero::Day } else { Zero::Start }, 0));
    let track = b.track("bcc-table", moment.zero);
    let origin = moment.ns;
    Reading { track, origin, at: origin, begun: HashSet::new(), latency: PerSecond::new(track) }
}

/// biosnoop: a request, from issue to completion.
fn request(row: &Row<'_>, table: &mut Reading, b: &mut Builder) -> Option<()> {
    let ms = row.value("LAT(ms)").or_else(|| row.value("LATms"));
    let ns = nanos(ms.filter(|ms| *ms >= 0.0)?, 1e6);
    let end = table.time(row);
    let op = match row.text("T").or_else(|| row.text("TYPE")) {
        Some(kind) if kind.starts_with('R') => OpKind::Read,
        Some(kind) if kind.starts_with('W') => OpKind::Write,
        _ => OpKind::Other,
    };
    let bytes = row.value("BYTES").map_or(0, |bytes| bytes.clamp(0.0, 1e15) as u64);
    let device = row.text("DISK").or_else(|| row.text("DEV"));
    let (device, op) = device.map_or(("block I/O", OpKind::Other), |device| (device, op));
    table.latency.add(b, end.div_euclid(SECOND_NS), device, op, ns, bytes);
    Some(())
}

/// fsyncsnoop of perf-tools: each fsync() with its duration.
fn timed_sync(row: &Row<'_>, table: &mut Reading, b: &mut Builder) -> Option<()> {
    let ns = nanos(row.value("LATms").filter(|ms| *ms >= 0.0)?, 1e6);
    let end = table.time(row);
    table.latency.add(b, end.div_euclid(SECOND_NS), &row.comm(), OpKind::Fsync, ns, 0);
    Some(())
}

/// cachestat: hits, misses and dirtied pages of the page cache in one second.
fn cache(row: &Row<'_>, table: &mut Reading, b: &mut Builder) -> Option<()> {
    table.at = table.at.saturating_add(SECOND_NS);
    let counts =
        [(workload::CACHE_HITS, "HITS"), (workload::CACHE_MISSES, "MISSES"), (workload::CACHE_DIRTIED, "DIRTIES")];
    let cells: Vec<(Column, f64)> =
        counts.iter().filter_map(|(column, name)| Some((*column, row.value(name)?))).collect();
    (cells.len() == counts.len()).then_some(())?;
    table.rise(b, Table::Workload, &Entity::named("page cache"), &cells);
    let mib = |name: &str| row.value(name).map(|value| Cell::Gauge(rounded(value * 1_048_576.0)));
    let levels: Vec<(Column, Cell)> = [
        (meminfo::BUFFERS_BYTES, mib("BUFFERS_MB")),
        (meminfo::CACHED_BYTES, mib("CACHED_MB").or_else(|| mib("CACHE_MB"))),
    ]
    .into_iter()
    .filter_map(|(column, cell)| Some((column, cell?)))
    .collect();
    b.row((table.track, table.at), Table::Meminfo, &Entity::default(), &levels);
    Some(())
}

/// compactsnoop: a direct compaction, measured.
fn compaction(row: &Row<'_>, table: &mut Reading, b: &mut Builder) -> Option<()> {
    let ns = nanos(row.value("LAT(ms)").filter(|ms| *ms >= 0.0)?, 1e6);
    let pid = row.value("PID").map_or(0, |pid| pid.clamp(0.0, 4e9) as u32);
    let end = table.time(row).saturating_add(i64::try_from(ns).unwrap_or(0));
    table.at = end;
    let call = single_call(pid, &row.comm(), OpKind::Other, ns, Cause::Compaction, Basis::Exact);
    b.call((table.track, end.saturating_sub(i64::try_from(ns).unwrap_or(0))), call);
    Some(())
}

/// runqslower: how long a runnable task waited for a CPU.
fn run_queue(row: &Row<'_>, table: &mut Reading, b: &mut Builder) -> Option<()> {
    let ns = nanos(row.value("LAT(us)").filter(|us| *us >= 0.0)?, 1e3);
    let pid = row.value("PID").or_else(|| row.value("TID")).map_or(0, |pid| pid.clamp(0.0, 4e9) as u32);
    let end = table.time(row);
    let call = single_call(pid, &row.comm(), OpKind::Other, ns, Cause::RunQueue, Basis::Exact);
    b.call((table.track, end.saturating_sub(i64::try_from(ns).unwrap_or(0))), call);
    Some(())
}

/// swapin, and syscount -P: a count for each program.
fn counted(row: &Row<'_>, table: &mut Reading, b: &mut Builder) -> Option<()> {
    let (pid, count) = (row.text("PID")?, row.value("COUNT")?);
    let entity = Entity::named(&format!("pid {pid} ({})", row.comm()));
    // syscount prints the pid first.
    if row.columns.first() == Some(&"PID") {
        table.rise(b, Table::Workload, &entity, &[(workload::SYSTEM_CALLS, count)]);
    } else {
        table.rise(b, Table::Workload, &entity, &[(workload::SWAP_INS, count)]);
        table.rise(b, Table::Vmstat, &Entity::default(), &[(vmstat::PSWPIN, count)]);
    }
    Some(())
}

/// syncsnoop: one call of sync(), fsync() or similar.
fn sync(row: &Row<'_>, table: &mut Reading, b: &mut Builder) -> Option<()> {
    table.time(row);
    table.rise(b, Table::Workload, &Entity::named(&row.comm()), &[(workload::SYNC_CALLS, 1.0)]);
    Some(())
}

/// syscount, strace -c: calls by kind, and their time if it was measured.
fn system_call(row: &Row<'_>, table: &mut Reading, b: &mut Builder) -> Option<()> {
    let name = row.text("SYSCALL").or_else(|| row.text("syscall"))?;
    if name == "total" {
        return Some(());
    }
    let count = row.value("COUNT").or_else(|| row.value("calls"))?;
    let ns = row.value("TIME").map(|us| us * 1e3).or_else(|| row.value("seconds").map(|seconds| seconds * 1e9));
    let mut cells = vec![(workload::SYSTEM_CALLS, count)];
    cells.extend(ns.map(|ns| (workload::SYSTEM_CALL_NS, ns)));
    table.rise(b, Table::Workload, &Entity::named(&format!("{name}()")), &cells);
    Some(())
}

/// slabratetop: objects allocated in one interval.
fn slab(row: &Row<'_>, table: &mut Reading, b: &mut Builder) -> Option<()> {
    let cells = [(slabs::ALLOCATIONS, row.value("ALLOCS")?), (slabs::ALLOCATED_BYTES, row.value("BYTES")?)];
    table.rise(b, Table::Slabs, &Entity::named(row.text("CACHE")?), &cells);
    Some(())
}

/// biotop, filetop: bytes that each program read and wrote.
fn process_io(row: &Row<'_>, table: &mut Reading, b: &mut Builder) -> Option<()> {
    let entity = Entity::named(&format!("pid {} ({})", row.text("PID").or_else(|| row.text("TID"))?, row.comm()));
    let kib = |name: &str| row.value(name).map(|value| value * 1024.0);
    let written = row.text("D") == Some("W");
    let read = kib("R_Kb").or_else(|| kib("Kbytes").filter(|_| !written));
    let wrote = kib("W_Kb").or_else(|| kib("Kbytes").filter(|_| written));
    let cells: Vec<(Column, f64)> = [(workload::READ_BYTES, read), (workload::WRITE_BYTES, wrote)]
        .into_iter()
        .filter_map(|(column, value)| Some((column, value?)))
        .collect();
    table.rise(b, Table::Workload, &entity, &cells);
    // biotop: the number of requests and their mean duration.
    if let (Some(disk), Some(requests), Some(each_ms)) = (row.text("DISK"), row.value("I/O"), row.value("AVGms")) {
        let cells = [(disks::REQUESTS, requests), (disks::REQUEST_NS, requests * each_ms * 1e6)];
        table.rise(b, Table::Disks, &Entity::named(disk), &cells);
    }
    Some(())
}

/// vfsstat: calls of the virtual file system in one second.
fn vfs(row: &Row<'_>, table: &mut Reading, b: &mut Builder) -> Option<()> {
    table.at = row
        .text("TIME")
        .and_then(|text| clock(text.trim_end_matches(':')))
        .unwrap_or(table.at.saturating_add(SECOND_NS));
    table.rise(b, Table::Workload, &Entity::named("all"), &[(workload::SYNC_CALLS, row.value("FSYNC/s")?)]);
    Some(())
}

/// A table that is recognized but contains nothing about stalls.
fn nothing(_: &Row<'_>, _: &mut Reading, b: &mut Builder) -> Option<()> {
    b.pass_over();
    Some(())
}

/// Parses `21:03:39 Triggered by PID 3297 ("ntpd"), OOM kill of PID 22516 ("perl"), 3850642 pages, loadavg: 0.99 ...`.
fn oom_kill(text: &str) -> Option<String> {
    let at = text.find("Triggered by PID ")?;
    let kill = text.get(at..)?;
    kill.contains("OOM kill of PID ").then(|| format!("Out of memory: {kill}"))
}

#[cfg(test)]
mod tests {
    use super::header;
    use crate::import_texts;
    use flatwater_recording::schema::workload;
    use flatwater_recording::{Cause, Table};

    #[test]
    fn headers_of_tools_are_recognized() {
        for text in [
            "TIME(s)     COMM           PID    DISK    T SECTOR     BYTES   LAT(ms)",
            "    HITS   MISSES  DIRTIES HITRATIO   BUFFERS_MB  CACHED_MB",
            "COMM             PID    COUNT",
            "% time     seconds  usecs/call     calls    errors syscall",
            "COMM             PID    TYPE DEV      BLOCK        BYTES     LATms",
            "COMM             PID     LATms   FD RVAL FILE",
            "CACHE                            ALLOCS      BYTES",
        ] {
            assert!(header(text).is_some(), "{text}");
        }
        assert!(header("PID COMM CPU").is_none());
    }

    #[test]
    fn rows_of_biosnoop_without_header_are_read() {
        let rows = "0.000000000    fio  17553  sdb     R  0         4096       0.23\n4.338511000    fio  17553  sdb     W  0         4096       80.27\n";
        let recording = import_texts(&[("f".to_owned(), rows.into())]).expect("rows").recording;
        assert_eq!(recording.latency.len(), 2);
    }

    #[test]
    fn rows_become_calls_and_counters() {
        let import = |text: &str| import_texts(&[("f".to_owned(), text.into())]).expect(text).recording;
        let recording = import(
            "COMM PID NODE ZONE ORDER MODE LAT(ms) STATUS\nweb worker 12 0 ZONE_NORMAL 9 SYNC 113.975 complete\n",
        );
        let call = recording.calls.first().expect("a call");
        assert_eq!((call.thread.as_str(), call.duration_ns), ("web worker", 113_975_000));
        assert_eq!(call.segments[0].cause, Cause::Compaction);
        let recording =
            import("HITS MISSES DIRTIES HITRATIO BUFFERS_MB CACHED_MB\n1 10 0 9.0% 5 191\n2 20 0 9.0% 5 238\n");
        let table = recording.table(Table::Workload).expect("a table");
        let (_, rows) = table.by_entity().next().expect("the page cache");
        assert_eq!(rows.rise(workload::CACHE_MISSES), Some(30));
        let recording =
            import("% time seconds usecs/call calls errors syscall\n------ ----\n 90.0 1.5 1500 1000 fsync\n");
        let (_, rows) = recording.table(Table::Workload).expect("a table").by_entity().next().expect("fsync");
        assert_eq!(rows.rise(workload::SYSTEM_CALL_NS), Some(1_500_000_000));
    }
}
