//! Drops lines of long logs that no importer can use, before any importer sees them.
//!
//! A gigabyte of syslog contains a few lines about stalls. A line is dropped if it is prose (or a log's time followed
//! by prose), contains no anchor of an importer, and is not near a line with a table's or a report's anchor. Rows of
//! figures and lines without letters stay. Only long files are skimmed; a paste is read whole. Once the recording is
//! full, rows that it could not keep are dropped as well.

use super::anchors::{Found, KEPT};

/// Shorter chunks are not skimmed.
pub const CHUNK_BYTES_MIN: usize = 4 << 20;
/// Lines kept before and after a line with `Anchor::Table`: they belong to the same report or table.
const BEFORE: usize = 8;
const AFTER: usize = 48;
/// Minimum share of letters after a time: with fewer the line may be a row of a table and is kept.
const LETTERS_MIN: f64 = 0.35;
/// Minimum words and share of letters of a line of prose without a time.
const WORDS_MIN: usize = 5;
const PROSE_LETTERS_MIN: f64 = 0.7;

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
    let ends: Vec<usize> = memchr::memchr_iter(b'\n', bytes).map(|at| at + 1).collect();
    let whole = ends.last().is_some_and(|end| *end == bytes.len());
    let lines = ends.len() + usize::from(!whole);
    let marks = marks(bytes, &ends, lines, wanted)?;
    let next_line = first.saturating_add(u32::try_from(ends.len()).unwrap_or(u32::MAX));
    let mut kept = Skimmed { next: next_line, ..Skimmed::default() };
    let table_from = |line: usize| {
        let below = marks.get(line..).unwrap_or_default().iter().position(|mark| *mark == Mark::Table);
        below.map_or(usize::MAX, |lines| line + lines)
    };
    // Number of following lines that are kept because of a table or report above, and the next such line.
    let (mut after, mut next_table, mut start) = (0, table_from(0), 0);
    for (line, mark) in marks.iter().enumerate() {
        let end = ends.get(line).copied().unwrap_or(bytes.len());
        let text = bytes.get(start..end).unwrap_or_default();
        start = end;
        if next_table < line {
            next_table = table_from(line);
        }
        let near = after > 0 || line + BEFORE >= next_table;
        after = if *mark == Mark::Table { AFTER } else { after.saturating_sub(1) };
        if near || wanted == For::All && (*mark == Mark::Line || !is_ordinary(text)) {
            kept.keep(text, first, line);
        } else {
            kept.drop(text, first, line);
        }
    }
    (kept.numbers.len() < lines).then_some(kept)
}

/// The strongest anchor of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    None,
    Line,
    Table,
}

fn marks(bytes: &[u8], ends: &[usize], lines: usize, wanted: For) -> Option<Vec<Mark>> {
    let mut marks = vec![Mark::None; lines];
    let mut line = 0;
    for (at, Found { table, report, line: own, .. }) in KEPT.as_ref()?.all_in(bytes) {
        // No anchor contains a line end, so the lines of anchors ordered by their ends are in order.
        while ends.get(line).is_some_and(|end| *end <= at) {
            line += 1;
        }
        let new = match wanted {
            For::All if table => Mark::Table,
            For::All if own => Mark::Line,
            For::Reports if table && report => Mark::Table,
            _ => continue,
        };
        if let Some(mark) = marks.get_mut(line).filter(|mark| **mark != Mark::Table) {
            *mark = new;
        }
    }
    Some(marks)
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
    use super::{AFTER, BEFORE, For, is_ordinary, skim};

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
    fn lines_around_a_report_are_kept_with_their_numbers() {
        let line = "Nov 22 10:11:12 db1 sshd[12]: session opened for user deploy by root\n";
        let report = "Nov 22 10:11:12 db1 kernel: INFO: task db:4711 blocked for more than 120 seconds.\n";
        let text = format!("{}{report}{}", line.repeat(500), line.repeat(500));
        let left = skim(text.as_bytes(), 11, For::All).expect("most lines are dropped");
        assert_eq!(left.numbers.len(), BEFORE + 1 + AFTER);
        assert_eq!((left.numbers[0], left.next), (11 + 500 - BEFORE as u32, 11 + 1001));
        assert_eq!(left.dropped as usize, 1001 - BEFORE - 1 - AFTER);
        assert_eq!(left.first_dropped.map(|(number, _)| number), Some(11));
        let lines: Vec<&str> = std::str::from_utf8(&left.bytes).expect("text").lines().collect();
        assert_eq!(lines[BEFORE], report.trim_end());
        assert!(skim(report.as_bytes(), 1, For::All).is_none(), "nothing to drop");
        // `Anchor::Line` keeps its own line only, and a full recording drops that line too.
        let weak = "Nov 22 10:11:12 db1 mysqld[9]: InnoDB: page_cleaner: 1000ms intended loop took 5223ms.\n";
        let text = format!("{}{weak}{}", line.repeat(50), line.repeat(50));
        assert_eq!(skim(text.as_bytes(), 1, For::All).expect("dropped").numbers, [51]);
        assert_eq!(skim(text.as_bytes(), 1, For::Reports).expect("dropped").numbers, Vec::<u32>::new());
        let rows = "1 0 0 500000 40000 900000\n".repeat(100);
        assert!(skim(rows.as_bytes(), 1, For::All).is_none());
        assert_eq!(skim(rows.as_bytes(), 1, For::Reports).expect("dropped").dropped, 100);
        assert!(skim(b"", 1, For::All).is_none());
    }

    #[test]
    fn a_line_with_anchors_of_both_kinds_does_not_hide_the_lines_after_it() {
        let line = "Nov 22 10:11:12 db1 sshd[12]: session opened for user deploy by root\n";
        let both = "Nov 22 10:11:12 db1 mysqld[9]: InnoDB: page_cleaner took 5223ms during a checkpoint.\n";
        let weak = "Nov 22 10:11:12 db1 mysqld[9]: InnoDB: page_cleaner: 1000ms intended loop took 5223ms.\n";
        let text = format!("{both}{}{weak}{}{weak}", line.repeat(100), line.repeat(100));
        let kept = skim(text.as_bytes(), 1, For::All).expect("dropped").numbers;
        assert!(kept.contains(&102) && kept.contains(&203), "{kept:?}");
    }
}
