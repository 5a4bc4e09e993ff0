//! Reads files of a cgroup as people paste them from a container: with the name of the file before each line or before
//! all its values (`memory.events:high 423774`, `memory.events: low 0 high 0 ...`,
//! `memory.max: 1947172864   memory.high: ...`), and lines of cpu.stat, whose keys are unique.

use crate::anchors::Anchor;
use crate::builder::{Builder, Cell};
use crate::error::ImportError;
use crate::number::{count, rounded};
use crate::text::Cursor;
use crate::{FormatKind, Importer};
use flatwater_recording::schema::{Column, cgroup, find};
use flatwater_recording::{Entity, Table};

pub const IMPORTER: Importer = Importer {
    name: "cgroup-files",
    sentence: "Files of a cgroup with their names on the line, also several per line, and cpu.stat; v1 and v2.",
    kind: FormatKind::Group,
    anchors: &[
        Anchor::Table(&[
            "memory.",
            "cpu.stat",
            "cpu.max",
            "cpu.weight",
            "cpu.cfs_",
            "cpuset.cpus",
            "io.stat",
            "io.max",
            "io.weight",
            "pids.max",
            "pids.current",
            "usage_usec",
            "nr_periods",
            "nr_throttled",
            "throttled_",
        ]),
        Anchor::Line(&["user_usec", "system_usec", "nr_bursts", "burst_usec", "core_sched"]),
    ],
    detect: |cursor| match cursor.next_text() {
        text if !text.contains("rbytes=") && pairs(text, "").is_some_and(|pairs| !pairs.is_empty()) => 86,
        _ => 0,
    },
    read,
};

/// Files of a cgroup, and the column of their value. `None`: the file has keys and values, or its value is not kept.
const FILES: &[(&str, Option<Column>)] = &[
    ("memory.current", Some(cgroup::USAGE_BYTES)),
    ("memory.usage_in_bytes", Some(cgroup::USAGE_BYTES)),
    ("memory.max", Some(cgroup::LIMIT_BYTES)),
    ("memory.limit_in_bytes", Some(cgroup::LIMIT_BYTES)),
    ("memory.high", Some(cgroup::HIGH_BYTES)),
    ("memory.soft_limit_in_bytes", Some(cgroup::SOFT_LIMIT_BYTES)),
    ("memory.swap.current", Some(cgroup::SWAP_BYTES)),
    ("memory.peak", Some(cgroup::PEAK_BYTES)),
    ("memory.max_usage_in_bytes", Some(cgroup::PEAK_BYTES)),
    ("memory.failcnt", Some(cgroup::EVENTS_MAX)),
    ("memory.events.local", None),
    ("memory.events", None),
    ("memory.stat", None),
    ("cpu.stat", None),
    ("io.stat", None),
    ("cpu.max", None),
    ("cpu.weight", None),
    ("cpu.cfs_quota_us", None),
    ("cpu.cfs_period_us", None),
    ("cpuset.cpus.effective", None),
    ("io.max", None),
    ("io.weight", None),
    ("pids.max", None),
    ("pids.current", None),
    ("memory.min", None),
    ("memory.low", None),
    ("memory.swap.max", None),
    ("memory.oom.group", None),
];

/// Lines of cpu.stat: key, column, factor from the key's unit to the column's.
const CPU: &[(&str, Column, f64)] = &[
    ("usage_usec", cgroup::CPU_USAGE_NS, 1000.0),
    ("nr_periods", cgroup::CPU_PERIODS, 1.0),
    ("nr_throttled", cgroup::CPU_THROTTLED, 1.0),
    ("throttled_usec", cgroup::CPU_THROTTLED_NS, 1000.0),
    ("throttled_time", cgroup::CPU_THROTTLED_NS, 1.0),
];

/// File, key, value. The key is empty for files with one value.
type Pair<'a> = (&'a str, &'a str, &'a str);

/// The known file that a word names, also with a trailing `:` or `=`.
fn file_of(word: &str) -> Option<&'static str> {
    let word = word.trim_end_matches([':', '=']);
    let base = word.rsplit('/').next().unwrap_or(word);
    FILES.iter().find(|(name, _)| *name == base).map(|(name, _)| *name)
}

/// The column of a file with one value, by the file's name with or without a path.
pub fn cgroup_file(word: &str) -> Option<Column> {
    let base = word.rsplit('/').next().unwrap_or(word);
    FILES.iter().find(|(name, _)| *name == base).and_then(|(_, column)| *column)
}

/// The values of a line. `above` is the file that a line above named. `None` if this is not a line of a cgroup's file.
fn pairs<'a>(text: &'a str, above: &'a str) -> Option<Vec<Pair<'a>>> {
    let text = without_remark(text);
    let mut words = text.split_whitespace().flat_map(split_name).filter(|word| !matches!(*word, "=" | ":")).peekable();
    let first = *words.peek()?;
    let cpu = CPU.iter().any(|(key, ..)| *key == first)
        || matches!(first, "user_usec" | "system_usec" | "nr_bursts" | "burst_usec" | "core_sched.force_idle_usec");
    let named = file_of(first).is_some() && (first.ends_with([':', '=']) || text.split_whitespace().count() <= 2);
    if !(named || cpu || !above.is_empty() && text.starts_with(char::is_whitespace)) {
        return None;
    }
    let (mut file, mut found) = (if cpu { "cpu.stat" } else { above }, Vec::new());
    while let Some(word) = words.next() {
        if let Some(next) = file_of(word) {
            file = next;
            let single = FILES.iter().any(|(name, column)| *name == next && column.is_some());
            if single {
                found.push((file, "", words.next()?));
            }
        } else if matches!(file, "memory.events" | "memory.events.local" | "memory.stat" | "cpu.stat") {
            let value = words.next()?;
            count(value)?;
            found.push((file, word, value));
        } else if !file.is_empty() {
            // A known file whose values are not kept.
            found.push((file, "-", word));
        } else {
            return None;
        }
    }
    Some(found)
}

/// Removes a remark after the values: `nr_throttled 89  <- of 120`, `memory.max 1073741824  # 1 GiB`.
pub fn without_remark(text: &str) -> &str {
    const ARROWS: &[&str] = &[" #", " //", "←", "<-", "⟵", "→", "-->"];
    let at = ARROWS.iter().filter_map(|arrow| text.find(arrow)).filter(|at| *at > 0).min();
    at.and_then(|at| text.get(..at)).unwrap_or(text).trim_end()
}

/// Splits `memory.events:low` into two words.
fn split_name(word: &str) -> impl Iterator<Item = &str> {
    let at = word.find(':').filter(|at| *at + 1 < word.len() && file_of(word.get(..*at).unwrap_or_default()).is_some());
    let (first, rest) = at.and_then(|at| word.split_at_checked(at + 1)).unwrap_or((word, ""));
    [first, rest].into_iter().filter(|word| !word.is_empty())
}

fn cell((file, key, value): Pair<'_>) -> Option<(String, Cell)> {
    let value = count(value).filter(|value| *value < i64::MAX - (1 << 20))?;
    let typed = |column: Column, value: i64| Some((column.name.to_owned(), Cell::of(column.kind, value)));
    match file {
        "cpu.stat" => {
            let (_, column, factor) = CPU.iter().find(|(known, ..)| *known == key)?;
            typed(*column, rounded(value as f64 * factor))
        }
        "memory.events" | "memory.events.local" => typed(find(Table::Cgroup, &format!("events_{key}"))?, value),
        "memory.stat" => typed(find(Table::Cgroup, key)?, value),
        _ => typed(FILES.iter().find(|(name, _)| *name == file)?.1?, value),
    }
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let place = b.snapshot("cgroup-files");
    let path = b
        .context()
        .command
        .as_deref()
        .and_then(|command| command.split_whitespace().find(|word| word.contains("/cgroup/")));
    let name =
        path.map_or_else(String::new, |path| path.rsplit_once('/').map_or(path, |(folder, _)| folder).to_owned());
    let name = name.strip_prefix("/sys/fs/cgroup").unwrap_or(&name).to_owned();
    let mut cells: Vec<(String, Cell)> = Vec::new();
    let mut above = "";
    while let Some(line) = cursor.peek() {
        // `io_stat` reads io.stat.
        if line.text.contains("rbytes=") {
            break;
        }
        let Some(found) = pairs(line.text, above).filter(|found| !found.is_empty()) else { break };
        above = found.last().map_or("", |(file, ..)| *file);
        let news: Vec<(String, Cell)> = found.iter().filter_map(|pair| cell(*pair)).collect();
        // A repeated key begins the next snapshot. memory.events.local repeats memory.events if the cgroup has no
        // children.
        let local = found.iter().any(|(file, ..)| *file == "memory.events.local");
        if !local && news.iter().any(|(name, _)| cells.iter().any(|(known, _)| known == name)) {
            break;
        }
        if news.is_empty() {
            b.pass_over();
        }
        cells.extend(news.into_iter().filter(|(name, _)| !local || !name.starts_with("events_")));
        cursor.take();
    }
    b.row(place, Table::Cgroup, &Entity::named(if name.is_empty() { "/" } else { &name }), &cells);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::import_texts;
    use flatwater_recording::Table;
    use flatwater_recording::schema::cgroup;

    #[test]
    fn names_on_the_line_and_several_files_per_line_are_read() {
        let text = "memory.max: 1000000   memory.high: 900000   memory.current: 800000\nmemory.events: low 0 high 12 max 3 oom 0\ncpu.stat: usage_usec 100  user_usec 60\n          nr_periods 9  nr_throttled 4  throttled_usec 77\nio.stat: 254:0 rbytes=1 wbytes=2\n";
        let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        let (_, rows) = recording.table(Table::Cgroup).expect("a table").by_entity().next().expect("a cgroup");
        let last = |column| rows.last(column);
        assert_eq!((last(cgroup::LIMIT_BYTES), last(cgroup::EVENTS_HIGH)), (Some(1_000_000), Some(12)));
        assert_eq!((last(cgroup::CPU_THROTTLED), last(cgroup::CPU_THROTTLED_NS)), (Some(4), Some(77_000)));
        let text = "nr_periods     120   ← of 100 ms\nnr_throttled   89    ← 74%!\nthrottled_time 8900000000  # ns\n";
        let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        let (_, rows) = recording.table(Table::Cgroup).expect("a table").by_entity().next().expect("a cgroup");
        assert_eq!((rows.last(cgroup::CPU_PERIODS), rows.last(cgroup::CPU_THROTTLED)), (Some(120), Some(89)));
        let text =
            "memory.current:800000\nmemory.events:low 0\nmemory.events:high 423774\nmemory.events.local:high 9\n";
        let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        let (_, rows) = recording.table(Table::Cgroup).expect("a table").by_entity().next().expect("a cgroup");
        assert_eq!(rows.last(cgroup::EVENTS_HIGH), Some(423_774));
    }
}
