//! Prints `free`, in KiB, at the last sample. There are two layouts: the old one with the line `-/+ buffers/cache`
//! (until 2014), and the new one with `available` (procps 3.3.10, Linux 3.14, which first exports MemAvailable).

use super::rows::Readings;
use super::{Format, Options, ReportError, facts};
use flatwater_explain::Explanation;
use flatwater_recording::schema::{Column, meminfo};
use flatwater_recording::{Entity, Recording, Table};

pub const FORMAT: Format =
    Format { name: "free", sentence: "`free` at the end, old or new layout (--table old, new).", render };

#[derive(Default)]
struct Levels {
    total: Option<i64>,
    free: Option<i64>,
    buffers: Option<i64>,
    cached: Option<i64>,
    reclaimable: Option<i64>,
    shared: Option<i64>,
    available: Option<i64>,
    swap_total: Option<i64>,
    swap_free: Option<i64>,
}

fn render(recording: &Recording, _explanation: &Explanation, options: &Options) -> Result<String, ReportError> {
    let levels = read(recording).ok_or_else(|| ReportError::NotEnough {
        format: "free",
        needs: "a reading of /proc/meminfo",
        why: facts::why_missing(&recording.gaps, &["meminfo"]),
    })?;
    match options.table.as_deref() {
        Some("old") => Ok(old(&levels)),
        Some("new") => Ok(new(&levels)),
        None if levels.available.is_none() || before_3_14(recording) => Ok(old(&levels)),
        None => Ok(new(&levels)),
        Some(other) => Err(ReportError::UnknownTable { given: other.to_owned(), known: vec!["old", "new"] }),
    }
}

fn before_3_14(recording: &Recording) -> bool {
    let release = recording.header.machine.kernel.as_deref().unwrap_or("");
    let release = release.strip_prefix("linux-").unwrap_or(release);
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) => (major, minor) < (3, 14),
        _ => false,
    }
}

fn read(recording: &Recording) -> Option<Levels> {
    let series = recording.table(Table::Meminfo)?;
    let rows = series.rows_of(&Entity::default()).or_else(|| series.by_entity().next().map(|(_, rows)| rows))?;
    let kib = |column: Column| Readings::of(&rows, column).at(u64::MAX).map(|bytes| bytes / 1024);
    let memory_kib = recording.header.machine.memory_bytes.and_then(|bytes| i64::try_from(bytes / 1024).ok());
    Some(Levels {
        total: kib(meminfo::MEM_TOTAL_BYTES).or(memory_kib),
        free: kib(meminfo::MEM_FREE_BYTES),
        buffers: kib(meminfo::BUFFERS_BYTES),
        cached: kib(meminfo::CACHED_BYTES),
        reclaimable: kib(meminfo::SRECLAIMABLE_BYTES),
        shared: kib(meminfo::SHMEM_BYTES),
        available: kib(meminfo::MEM_AVAILABLE_BYTES),
        swap_total: kib(meminfo::SWAP_TOTAL_BYTES),
        swap_free: kib(meminfo::SWAP_FREE_BYTES),
    })
}

fn less(from: Option<i64>, parts: &[Option<i64>]) -> Option<i64> {
    parts.iter().try_fold(from?, |rest, part| Some(rest.saturating_sub((*part)?)))
}

fn line(label: &str, label_width: usize, width: usize, cells: &[Option<i64>]) -> String {
    let mut text = format!("{label:<label_width$}");
    for cell in cells {
        let cell = cell.map_or_else(|| "-".to_owned(), |kib| kib.to_string());
        text.push_str(&format!(" {cell:>width$}"));
    }
    text.push('\n');
    text
}

fn old(levels: &Levels) -> String {
    let used = less(levels.total, &[levels.free]);
    let apart = [levels.buffers, levels.cached];
    let without = less(used, &apart);
    let with = less(levels.total, &[without]);
    let mut text = "             total       used       free     shared    buffers     cached\n".to_owned();
    let row = [levels.total, used, levels.free, levels.shared, levels.buffers, levels.cached];
    text.push_str(&line("Mem:", 7, 10, &row));
    text.push_str(&line("-/+ buffers/cache:", 18, 10, &[without, with]));
    let swap_used = less(levels.swap_total, &[levels.swap_free]);
    text.push_str(&line("Swap:", 7, 10, &[levels.swap_total, swap_used, levels.swap_free]));
    text
}

fn new(levels: &Levels) -> String {
    let cache = levels
        .cached
        .map(|cached| [levels.buffers, levels.reclaimable].into_iter().flatten().fold(cached, i64::saturating_add));
    // procps 4 (2022) counts all memory that is not available as used; 3.3.10 to 3.3.17 subtracted free and cache from
    // the total.
    let used = less(levels.total, &[levels.available]).filter(|used| *used >= 0);
    let used = used.or_else(|| less(levels.total, &[levels.free, cache]));
    let mut text = "               total        used        free      shared  buff/cache   available\n".to_owned();
    let row = [levels.total, used, levels.free, levels.shared, cache, levels.available];
    text.push_str(&line("Mem:", 8, 11, &row));
    let swap_used = less(levels.swap_total, &[levels.swap_free]);
    text.push_str(&line("Swap:", 8, 11, &[levels.swap_total, swap_used, levels.swap_free]));
    text
}
