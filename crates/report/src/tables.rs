//! The results of the workloads as tables, for the terminal and for the page.

use super::numbers::{count, plain, size, time};
use flatwater_recording::outcome::{
    BulkOutcome, CheckpointOutcome, GraphdbOutcome, JournalOutcome, MaildirOutcome, MemoryMoment, SdetOutcome,
    WorkloadOutcome,
};
use flatwater_recording::schema::slabs;
use flatwater_recording::{Recording, Table as SampledTable};

/// A table to print.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    pub title: String,
    /// Lines in the workload's own format, before the rows.
    pub lines: Vec<String>,
    /// (heading, whether the column contains numbers).
    pub columns: Vec<(&'static str, bool)>,
    pub rows: Vec<Vec<String>>,
    /// Conclusions from the rows.
    pub notes: Vec<String>,
}

/// Delays that are printed one by one.
const LINES_MAX: usize = 20;

/// The tables of all workloads of a recording.
pub fn of_workloads(recording: &Recording, outcomes: &[WorkloadOutcome]) -> Vec<Table> {
    let start_ns = recording.header.clock.start_ns;
    outcomes
        .iter()
        .flat_map(|outcome| match outcome {
            WorkloadOutcome::Bulk(bulk) => of_bulk(bulk, start_ns),
            WorkloadOutcome::Checkpoint(checkpoint) => vec![of_checkpoint(checkpoint, start_ns)],
            WorkloadOutcome::Sdet(sdet) => vec![of_sdet(sdet)],
            WorkloadOutcome::Maildir(maildir) => vec![of_maildir(maildir, recording)],
            WorkloadOutcome::Graphdb(graphdb) => vec![of_graphdb(graphdb)],
            WorkloadOutcome::Journal(journal) => of_journal(journal),
        })
        .collect()
}

/// Time since the recording's start.
fn since(at_ns: u64, start_ns: u64) -> String {
    time(at_ns.saturating_sub(start_ns))
}

fn or_dash(value: Option<String>) -> String {
    value.unwrap_or_else(|| "-".to_owned())
}

fn of_bulk(bulk: &BulkOutcome, start_ns: u64) -> Vec<Table> {
    let mut tables = vec![bulk_writers(bulk)];
    if !bulk.memory.is_empty() {
        tables.push(bulk_memory(&bulk.memory, start_ns));
    }
    tables
}

fn bulk_writers(bulk: &BulkOutcome) -> Table {
    let delayed = |pid, ns: u64| format!("{pid} - Delayed {} ms.", ns / 1_000_000);
    let mut lines: Vec<String> =
        bulk.delays.iter().take(LINES_MAX).map(|delay| delayed(delay.pid, delay.delay_ns)).collect();
    if bulk.delays.len() > LINES_MAX {
        lines.push(format!("... and {} more", count((bulk.delays.len() - LINES_MAX) as u64)));
    }
    lines.push(format!("Max write delay: {} ms.", bulk.delay_ns_max / 1_000_000));
    let rows = bulk.writers.iter().map(|writer| {
        let seconds = writer.elapsed_ns as f64 / 1e9;
        let rate = (seconds > 0.0).then(|| format!("{:.1}", writer.bytes as f64 / 1e6 / seconds));
        vec![
            writer.pid.to_string(),
            size(writer.bytes),
            time(writer.elapsed_ns),
            or_dash(rate),
            count(writer.delays),
            time(writer.delay_ns_max),
            time(writer.delay_ns_total),
        ]
    });
    let fairness = |name: &str, index: Option<f64>| match index {
        Some(index) => format!("fairness of {name}: {index:.3} (Jain's index; 1 is even)"),
        None => format!("fairness of {name}: not known"),
    };
    Table {
        title: format!("bulk: calls over {}, and how evenly the writers were treated", time(bulk.threshold_ns)),
        lines,
        columns: vec![
            ("writer", false),
            ("written", true),
            ("elapsed", true),
            ("MB/s", true),
            ("delays", true),
            ("worst", true),
            ("delayed", true),
        ],
        rows: rows.collect(),
        notes: vec![fairness("throughput", bulk.fairness_throughput), fairness("delay", bulk.fairness_delay)],
    }
}

fn bulk_memory(moments: &[MemoryMoment], start_ns: u64) -> Table {
    let level = |bytes: Option<u64>| or_dash(bytes.map(size));
    let rows = moments.iter().map(|moment| {
        vec![
            moment.moment.clone(),
            since(moment.at_ns, start_ns),
            level(moment.free_bytes),
            level(moment.buffers_bytes),
            level(moment.cached_bytes),
            level(moment.dirty_bytes),
            level(moment.writeback_bytes),
        ]
    });
    Table {
        title: "bulk: memory before, at the worst, and after".to_owned(),
        columns: vec![
            ("moment", false),
            ("at", true),
            ("free", true),
            ("buffers", true),
            ("cached", true),
            ("dirty", true),
            ("writeback", true),
        ],
        rows: rows.collect(),
        ..Table::default()
    }
}

fn of_checkpoint(checkpoint: &CheckpointOutcome, start_ns: u64) -> Table {
    let rows = checkpoint.checkpoints.iter().map(|row| {
        let waited = match (&row.waited_for_thread, &row.waited_for_call) {
            (Some(thread), Some(call)) => format!("{thread} in {call}"),
            (Some(thread), None) => thread.clone(),
            (None, _) => "-".to_owned(),
        };
        vec![since(row.at_ns, start_ns), time(row.critical_ns), time(row.flush_ns), size(row.bytes), waited]
    });
    let worst_ns = checkpoint.checkpoints.iter().map(|row| row.critical_ns).max();
    let note = worst_ns.map(|ns| format!("longest wait for critical sections: {}", time(ns)));
    Table {
        title: "checkpoint: waiting for critical sections apart from flushing".to_owned(),
        columns: vec![("at", true), ("critical", true), ("flush", true), ("written", true), ("waited for", false)],
        rows: rows.collect(),
        notes: note.into_iter().collect(),
        ..Table::default()
    }
}

fn of_sdet(sdet: &SdetOutcome) -> Table {
    let rows = sdet.runs.iter().map(|run| {
        vec![run.run.to_string(), time(run.elapsed_ns), count(run.scripts_per_hour.max(0.0).round() as u64)]
    });
    let trend = match sdet.trend_percent_per_run {
        Some(percent) => format!("trend: {percent:+.2} % of the first run for each further run"),
        None => "trend: not known, fewer than three runs".to_owned(),
    };
    Table {
        title: format!("sdet: throughput of {} scripts, run after run", count(u64::from(sdet.scripts))),
        columns: vec![("run", true), ("elapsed", true), ("scripts/hour", true)],
        rows: rows.collect(),
        notes: vec![trend],
        ..Table::default()
    }
}

fn of_maildir(maildir: &MaildirOutcome, recording: &Recording) -> Table {
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let counted = |n: Option<u64>| or_dash(n.map(count));
    let rows = vec![
        row("deliveries", count(maildir.deliveries)),
        row("reads", count(maildir.reads)),
        row("inodes held at the end", counted(maildir.inodes)),
        row("dentries held at the end", counted(maildir.dentries)),
        row("page cache at the end", or_dash(maildir.cached_bytes.map(size))),
        row("stat(), inode cached", or_dash(maildir.stat_hit_ns.map(time))),
        row("stat(), inode reread", or_dash(maildir.stat_miss_ns.map(time))),
    ];
    Table {
        title: "maildir: what the kernel keeps of many small files".to_owned(),
        columns: vec![("", false), ("", true)],
        rows,
        notes: inode_curve(recording).into_iter().collect(),
        ..Table::default()
    }
}

/// The number of inodes over time as a line of block characters; `None` if it was not sampled.
fn inode_curve(recording: &Recording) -> Option<String> {
    let values = inodes_counted(recording).or_else(|| inodes_in_slabs(recording))?;
    let highest = values.iter().copied().max().filter(|highest| *highest > 0)?;
    let cells = values.len().min(40);
    let curve: String = (0..cells)
        .map(|cell| {
            let value = values.get(cell * values.len() / cells).copied().unwrap_or_default().max(0);
            let level = (i128::from(value) * 7 / i128::from(highest)) as u32;
            char::from_u32(0x2581 + level.min(7)).unwrap_or(' ')
        })
        .collect();
    Some(format!("inodes held over time: {curve} at most {}", plain(highest as f64)))
}

/// Inodes as a workload or an imported log counted them.
fn inodes_counted(recording: &Recording) -> Option<Vec<i64>> {
    let series = recording.table(SampledTable::Workload)?;
    let column = series.columns.iter().map(|column| column.name.as_str()).find(|name| name.contains("inode"))?;
    Some(series.by_entity().flat_map(|(_, rows)| rows.values(column).map(|(_, value)| value)).collect())
}

/// Inodes summed over the caches of file systems, at each reading of slabinfo; `None` with fewer than three readings.
fn inodes_in_slabs(recording: &Recording) -> Option<Vec<i64>> {
    let slabs = recording.table(SampledTable::Slabs)?;
    let mut at: std::collections::BTreeMap<u64, i64> = std::collections::BTreeMap::new();
    for (_, rows) in slabs.by_entity().filter(|(cache, _)| cache.name.ends_with("inode_cache")) {
        for (ns, count) in rows.values(slabs::ACTIVE_OBJS) {
            let sum = at.entry(ns).or_default();
            *sum = sum.saturating_add(count);
        }
    }
    let begin_ns = recording.header.clock.start_ns;
    let values: Vec<i64> = at.into_iter().filter(|(ns, _)| *ns >= begin_ns).map(|(_, count)| count).collect();
    (values.len() > 2).then_some(values)
}

fn of_graphdb(graphdb: &GraphdbOutcome) -> Table {
    Table {
        title: "graphdb: reads through the mapping".to_owned(),
        columns: vec![("reads", true), ("read", true), ("remaps", true), ("worst read", true)],
        rows: vec![vec![
            count(graphdb.reads),
            size(graphdb.read_bytes),
            count(graphdb.remaps),
            time(graphdb.read_ns_max),
        ]],
        ..Table::default()
    }
}

fn of_journal(journal: &JournalOutcome) -> Vec<Table> {
    let mut tables: Vec<Table> = journal_writers(journal).into_iter().collect();
    // The precursor has a table only if it was used, or as the only table.
    if !journal.precursor_mode.is_empty() || tables.is_empty() {
        tables.push(journal_precursor(journal));
    }
    tables
}

/// Writers with a row of their own.
const WRITERS_MAX: usize = 16;

fn journal_writers(journal: &JournalOutcome) -> Option<Table> {
    let synced = journal.writers.iter().any(|writer| writer.syncs > 0);
    let rows = journal.writers.iter().take(WRITERS_MAX).map(|writer| {
        let mut row = vec![
            writer.thread.clone(),
            count(writer.appends),
            size(writer.bytes),
            count(writer.files),
            time(writer.append_ns_max),
            count(writer.behind),
            time(writer.behind_ns_max),
        ];
        if synced {
            row.extend([count(writer.syncs), time(writer.sync_ns_max)]);
        }
        row
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let behind = journal.writers.iter().map(|writer| writer.behind).fold(0, u64::saturating_add);
    let furthest_ns = journal.writers.iter().map(|writer| writer.behind_ns_max).max()?;
    let share = 100.0 * behind as f64 / journal.appends.max(1) as f64;
    let mut notes = vec![format!(
        "{} of {} records ({share:.2} %) were written only after the next one was due; furthest behind {}",
        count(behind),
        count(journal.appends),
        time(furthest_ns)
    )];
    if journal.writers.len() > WRITERS_MAX {
        notes.push(format!("the first {WRITERS_MAX} of {} writers are shown", journal.writers.len()));
    }
    let mut columns = vec![
        ("writer", false),
        ("records", true),
        ("written", true),
        ("files", true),
        ("worst", true),
        ("late", true),
        ("by up to", true),
    ];
    if synced {
        columns.extend([("syncs", true), ("worst", true)]);
    }
    let title = format!("journal: a record every {} from each writer", time(journal.interval_ns));
    Some(Table { title, columns, rows, notes, ..Table::default() })
}

fn journal_precursor(journal: &JournalOutcome) -> Table {
    let mode = if journal.precursor_mode.is_empty() { "off" } else { &journal.precursor_mode };
    Table {
        title: "journal: appends and the precursor beside them".to_owned(),
        columns: vec![
            ("appends", true),
            ("written", true),
            ("precursor", false),
            ("late windows", true),
            ("waits", true),
        ],
        rows: vec![vec![
            count(journal.appends),
            size(journal.bytes),
            mode.to_owned(),
            count(journal.late_windows),
            count(journal.waits),
        ]],
        ..Table::default()
    }
}
