//! Drops lines of long logs that no importer can use, before any importer sees them.
//!
//! A gigabyte of syslog contains a few lines about stalls. A line is dropped if it is prose (or a log's time followed
//! by prose), contains no word that an importer looks for, and is not near a line with such a word. Rows of figures and
//! lines without letters stay. Only long files are skimmed; a paste is read whole. Once the recording is full, rows
//! that it could not keep are dropped as well.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind, Input};

use super::{app, kernel_log};

/// Shorter chunks are not skimmed.
pub const CHUNK_BYTES_MIN: usize = 4 << 20;
/// Lines kept before and after a line with a strong word: they belong to the same report or table.
const BEFORE: usize = 8;
const AFTER: usize = 48;
/// Minimum share of letters after a time: with fewer the line may be a row of a table and is kept.
const LETTERS_MIN: f64 = 0.35;
/// Minimum words and share of letters of a line of prose without a time.
const WORDS_MIN: usize = 5;
const PROSE_LETTERS_MIN: f64 = 0.7;

/// Words that identify tables and other formats, apart from the words of `kernel_log` and `app`.
const WORDS: &[&str] = &[
    // Headers and keys of tables.
    "procs",
    "swpd",
    "pgpg",
    "kbmem",
    "kbswp",
    "kbdirty",
    "%user",
    "%usr",
    "%util",
    "%iowait",
    "%vmeff",
    "%Cpu",
    "Cpu(s)",
    "avg-cpu",
    "Device",
    "operations     bandwidth",
    // NFS, Ceph, ZFS, Kubernetes, ioping.
    "rpc bklog",
    "avg exe",
    "retrans",
    "per-op statistics",
    "with fstype nfs",
    "latency(ms)",
    "HEALTH_",
    "slow ops",
    "are blocked > ",
    ": request=",
    "CKSUM",
    "in progress since",
    "arcsz",
    "total_wait",
    "CPU(cores)",
    "usecs/op",
    "allocation deadlock",
    "OOMKilling",
    "low on resource",
    "LAST SEEN",
    "load average",
    "buffers",
    "buff/cache",
    "Mem:",
    "Swap:",
    "MemTotal",
    "MemFree",
    " kB",
    "Dirty:",
    "Writeback:",
    "slabinfo",
    "OBJS",
    "some avg",
    "full avg",
    "nr_",
    "pgscan",
    "pgsteal",
    "pgmaj",
    "pswp",
    "compact_",
    "thp_",
    "numa_",
    "workingset_",
    "allocstall",
    "zone_reclaim",
    "zone ",
    "kswapd",
    "dirty_",
    "vm.",
    "memory.",
    "limit_in_bytes",
    "usage_in_bytes",
    "inactive_file",
    "throttled",
    "nr_periods",
    "io.stat",
    "rbytes=",
    "Name:",
    "WCHAN",
    "wchan",
    " STAT ",
    "%CPU",
    "COMMAND",
    "COMM ",
    "PRIO",
    "Total DISK",
    "ATOP",
    "CPU |",
    "DSK |",
    "PSI",
    "ZZZZ",
    "#<---",
    "----total",
    "usr sys idl",
    "node_",
    "numactl",
    "Node ",
    "distances",
    "Personalities",
    "resync",
    "recovery",
    "blocks [",
    "SMART",
    "Smart Log",
    "critical_warning",
    "Reallocated",
    "Critical Warning",
    "OOMKilled",
    "CONTAINER ID",
    "MEM USAGE",
    // Tracers and benchmarks.
    "Tracing",
    "Attaching",
    "usecs",
    "msecs",
    "nsecs",
    "|@",
    "|*",
    "LAT(",
    "TIME ",
    "clat",
    " lat ",
    "lat_ns",
    "iops",
    "IOPS",
    "resumed>",
    ") = ",
    "<0.",
    "contended",
    "wait max",
    "Wait max",
    "Samples:",
    "Overhead",
    "le=\"",
    "sched_switch",
    "vmscan",
    "writeback",
    "block_rq",
    "funcgraph",
    " us |",
    " us  |",
    "Value     Percentile",
    "Interval",
    // Servers.
    "[Times:",
    "GC(",
    "[GC",
    "[Full GC",
    "Pause",
    "threads were stopped",
    "safepoint",
    "checkpoint",
    "restartpoint",
    "Delayed",
    "write delay",
    "** Compaction",
    "** DB Stats",
    "Uptime(secs)",
    "Cumulative",
    "Stalling",
    "Stopping",
    "interval stall",
    "latency",
    "Latency",
    "onstat",
    "Critical Sections",
];

/// Builds a DFA: one lookup per byte, at the cost of a few megabytes.
fn automaton(words: impl Iterator<Item = &'static str>) -> Option<AhoCorasick> {
    AhoCorasick::builder().kind(Some(AhoCorasickKind::DFA)).build(words).ok()
}

/// Words of reports and tables: the lines around them belong to them.
static STRONG: LazyLock<Option<AhoCorasick>> =
    LazyLock::new(|| automaton(WORDS.iter().copied().chain(kernel_log::words())));
/// Words whose lines are complete by themselves: device errors, servers' messages.
static WEAK: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| automaton(kernel_log::line_words().chain(app::words())));
/// The words of kernel reports alone: a full recording still takes these.
static REPORTS: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| automaton(kernel_log::words()));

/// Why an importer may want a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tells {
    Nothing,
    /// Mostly figures.
    Figures,
    /// The line contains a word of a format, or begins as a format does.
    Words,
}

/// Why an importer may want this line, if the lines before it are unknown.
#[must_use]
pub fn tells(line: &str) -> Tells {
    let digits = line.bytes().filter(u8::is_ascii_digit).count();
    // `//` and `/*` begin comments, not paths.
    let path = line.strip_prefix('/').is_some_and(|rest| !rest.starts_with(['/', '*', ' ']));
    let worded = path
        || line.starts_with(['$', '['])
        || STRONG.as_ref().is_none_or(|words| words.is_match(line))
        || WEAK.as_ref().is_none_or(|words| words.is_match(line));
    match () {
        () if worded => Tells::Words,
        () if digits * 3 >= line.len() => Tells::Figures,
        () => Tells::Nothing,
    }
}

/// Whether any importer may want this line.
#[must_use]
pub fn may_tell(line: &str) -> bool {
    tells(line) != Tells::Nothing
}

/// What to keep of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// Every line that an importer may read.
    All,
    /// Only reports of the kernel: the recording has no room for more rows and calls.
    Reports,
}

/// The lines of a chunk that were kept.
#[derive(Debug, Default)]
pub struct Skimmed {
    /// The kept lines with their line ends.
    pub bytes: Vec<u8>,
    /// The number of each kept line.
    pub numbers: Vec<u32>,
    /// The number of the first line of the next chunk.
    pub next: u32,
    /// How many non-blank lines were dropped, and the number and text of the first one.
    pub dropped: u64,
    pub first_dropped: Option<(u32, String)>,
}

/// Drops lines that no importer can use from a chunk whose first line has the number `first`. `None` if no line is
/// dropped.
#[must_use]
pub fn skim(bytes: &[u8], first: u32, wanted: For) -> Option<Skimmed> {
    let strong = if wanted == For::All { STRONG.as_ref()? } else { REPORTS.as_ref()? };
    let weak = WEAK.as_ref().filter(|_| wanted == For::All);
    let ends: Vec<usize> = memchr::memchr_iter(b'\n', bytes).map(|at| at + 1).collect();
    let whole = ends.last().is_some_and(|end| *end == bytes.len());
    let lines = ends.len() + usize::from(!whole);
    let span = |line: usize| {
        let start = line.checked_sub(1).map_or(0, |above| ends.get(above).copied().unwrap_or(bytes.len()));
        bytes.get(start..ends.get(line).copied().unwrap_or(bytes.len())).unwrap_or_default()
    };
    // The first line from `line` on that contains one of the words.
    let next = |words: &AhoCorasick, line: usize| {
        let from = line.checked_sub(1).map_or(0, |above| ends.get(above).copied().unwrap_or(bytes.len()));
        let found = words.find(Input::new(bytes).range(from..))?;
        Some(ends.partition_point(|end| *end <= found.start()))
    };
    let next_line = first.saturating_add(u32::try_from(ends.len()).unwrap_or(u32::MAX));
    let mut kept = Skimmed { next: next_line, ..Skimmed::default() };
    let (mut next_strong, mut next_weak) = (next(strong, 0), weak.and_then(|weak| next(weak, 0)));
    // One past the last line of the current report.
    let mut until = 0;
    for line in 0..lines {
        let text = span(line);
        let (has_strong, has_weak) = (next_strong == Some(line), next_weak == Some(line));
        if has_strong {
            (until, next_strong) = (line + 1 + AFTER, next(strong, line + 1));
        }
        if has_weak {
            next_weak = weak.and_then(|weak| next(weak, line + 1));
        }
        let near = line < until || next_strong.is_some_and(|strong| line + BEFORE >= strong);
        if has_weak || near || wanted == For::All && !is_ordinary(text) {
            kept.keep(text, first, line);
        } else {
            kept.drop(text, first, line);
        }
    }
    (kept.numbers.len() < lines).then_some(kept)
}

impl Skimmed {
    fn keep(&mut self, text: &[u8], first: u32, line: usize) {
        self.bytes.extend_from_slice(text);
        self.numbers.push(first.saturating_add(u32::try_from(line).unwrap_or(u32::MAX)));
    }

    fn drop(&mut self, text: &[u8], first: u32, line: usize) {
        if text.trim_ascii().is_empty() {
            return;
        }
        self.dropped += 1;
        self.first_dropped.get_or_insert_with(|| {
            (
                first.saturating_add(u32::try_from(line).unwrap_or(u32::MAX)),
                super::text::shown(&String::from_utf8_lossy(text)),
            )
        });
    }
}

fn is_ordinary(line: &[u8]) -> bool {
    match after_time(line) {
        Some(b"") => false,
        Some(rest) => letters(rest) >= LETTERS_MIN && rest.iter().take(24).any(u8::is_ascii_alphabetic),
        None => is_prose(line),
    }
}

fn letters(text: &[u8]) -> f64 {
    let letters = text.iter().filter(|byte| byte.is_ascii_alphabetic() || **byte >= 0x80).count();
    letters as f64 / text.len().max(1) as f64
}

fn is_prose(line: &[u8]) -> bool {
    let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    line.first().is_some_and(u8::is_ascii_alphabetic)
        && letters(line) >= PROSE_LETTERS_MIN
        && !line.iter().any(|byte| matches!(byte, b'=' | b'_' | b'|' | b'$' | b'#'))
        && words.take(WORDS_MIN).count() >= WORDS_MIN
}

/// The text after the time at the beginning of a log's line.
fn after_time(line: &[u8]) -> Option<&[u8]> {
    let line = line.trim_ascii();
    // One JSON object a line.
    if line.starts_with(b"{\"") {
        return line.get(2..);
    }
    let line = level(line).unwrap_or(line);
    let digits =
        |text: &[u8], at: std::ops::Range<usize>| text.get(at).is_some_and(|part| part.iter().all(u8::is_ascii_digit));
    // `Nov 22 10:11:12`, `[  123.456789]`, `I1122 10:11:12.1`, `2026-11-22T10:11:12`, `2026/11/22 10:11:12`.
    if line.len() > 16 && line.get(..3)?.iter().all(u8::is_ascii_alphabetic) && line.get(3) == Some(&b' ') {
        return (digits(line, 7..9) && line.get(9) == Some(&b':') && digits(line, 13..15))
            .then(|| line.get(15..))
            .flatten();
    }
    if let Some(inner) = line.strip_prefix(b"[")
        && inner.trim_ascii_start().first().is_some_and(u8::is_ascii_digit)
    {
        let end = memchr::memchr(b']', inner.get(..inner.len().min(40))?)?;
        return inner.get(end + 1..);
    }
    if matches!(line.first(), Some(b'I' | b'W' | b'E' | b'F')) && digits(line, 1..5) && digits(line, 6..8) {
        return line.get(14..);
    }
    let dated =
        digits(line, 0..4) && matches!(line.get(4), Some(b'-' | b'/')) && digits(line, 5..7) && digits(line, 8..10);
    (dated && digits(line, 11..13) && line.get(13) == Some(&b':')).then(|| line.get(19..)).flatten()
}

/// Removes a syslog level such as `<6>`.
fn level(line: &[u8]) -> Option<&[u8]> {
    let inner = line.strip_prefix(b"<")?;
    let end = memchr::memchr(b'>', inner.get(..inner.len().min(4))?)?;
    inner.get(end + 1..)
}

#[cfg(test)]
mod tests {
    use super::{AFTER, BEFORE, For, is_ordinary, may_tell, skim};

    #[test]
    fn prose_with_and_without_a_time_is_ordinary_and_figures_are_not() {
        for line in [
            "Nov 22 10:11:12 db1 sshd[12]: Accepted publickey for deploy from 10.1.2.3 port 22 ssh2",
            "<6>[   12.345678] input: Power Button as /devices/LNXSYSTM:00",
            "2026-11-22T10:11:12.123Z INFO server: request served for client 7",
            "I1122 10:11:12.123456 1 controller.go:12] synced the endpoint",
            "{\"level\":\"info\",\"msg\":\"published local member\"}",
            "the quick brown fox jumps over the lazy dog",
        ] {
            assert!(is_ordinary(line.as_bytes()), "{line}");
        }
        for line in [
            "",
            "Nov 22 10:11:12",
            "Nov 22 10:11:12 1 0 0 500000 40000 900000 0 0 10 200 100 200 1 1 98 0 0",
            "2026-11-22 10:11:12 sda 0.00 1.00 2.00 3.00 4.00 5.00 6.00",
            " 1  0      0 500000  40000 900000    0    0    10   200  100  200  1  1 98  0  0",
            "vm.dirty_ratio = 20",
            "start_this_handle",
            "[<ffffffff81234567>] io_schedule",
        ] {
            assert!(!is_ordinary(line.as_bytes()), "{line}");
        }
    }

    #[test]
    fn source_code_has_no_words_of_formats_and_tables_have() {
        for line in
            ["    let x = foo(bar, 12);", "}", "int main(void) {", "the quick brown fox", "// a comment", "/* so */"]
        {
            assert!(!may_tell(line), "{line}");
        }
        for line in [
            "r b swpd free buff cache",
            "sda 0.00 1.00 2.00 3.00",
            "MemTotal: 12 kB",
            "/proc/vmstat",
            "[<ffffffff81>] x",
        ] {
            assert!(may_tell(line), "{line}");
        }
    }

    #[test]
    fn lines_around_a_report_are_kept_with_their_numbers() {
        let line = "Nov 22 10:11:12 db1 sshd[12]: session opened for user deploy by root\n";
        let told = "Nov 22 10:11:12 db1 kernel: INFO: task db:4711 blocked for more than 120 seconds.\n";
        let text = format!("{}{told}{}", line.repeat(500), line.repeat(500));
        let left = skim(text.as_bytes(), 11, For::All).expect("most of it is dropped");
        assert_eq!(left.numbers.len(), BEFORE + 1 + AFTER);
        assert_eq!((left.numbers[0], left.next), (11 + 500 - BEFORE as u32, 11 + 1001));
        assert_eq!(left.dropped as usize, 1001 - BEFORE - 1 - AFTER);
        assert_eq!(left.first_dropped.map(|(number, _)| number), Some(11));
        let lines: Vec<&str> = std::str::from_utf8(&left.bytes).expect("text").lines().collect();
        assert_eq!(lines[BEFORE], told.trim_end());
        assert!(skim(told.as_bytes(), 1, For::All).is_none(), "nothing to drop");
        // A weak word keeps its own line only, and a full recording drops that line too.
        let said = "Nov 22 10:11:12 db1 mysqld[9]: InnoDB: page_cleaner: 1000ms intended loop took 5223ms.\n";
        let text = format!("{}{said}{}", line.repeat(50), line.repeat(50));
        assert_eq!(skim(text.as_bytes(), 1, For::All).expect("dropped").numbers, [51]);
        assert_eq!(skim(text.as_bytes(), 1, For::Reports).expect("dropped").numbers, Vec::<u32>::new());
        let rows = "1 0 0 500000 40000 900000\n".repeat(100);
        assert!(skim(rows.as_bytes(), 1, For::All).is_none());
        assert_eq!(skim(rows.as_bytes(), 1, For::Reports).expect("dropped").dropped, 100);
        assert!(skim(b"", 1, For::All).is_none());
    }

    #[test]
    fn a_line_with_a_strong_and_a_weak_word_does_not_hide_the_weak_lines_after_it() {
        let line = "Nov 22 10:11:12 db1 sshd[12]: session opened for user deploy by root\n";
        let both = "Nov 22 10:11:12 db1 mysqld[9]: InnoDB: page_cleaner took 5223ms during a checkpoint.\n";
        let weak = "Nov 22 10:11:12 db1 mysqld[9]: InnoDB: page_cleaner: 1000ms intended loop took 5223ms.\n";
        let text = format!("{both}{}{weak}{}{weak}", line.repeat(100), line.repeat(100));
        let kept = skim(text.as_bytes(), 1, For::All).expect("dropped").numbers;
        assert!(kept.contains(&102) && kept.contains(&203), "{kept:?}");
    }
}
