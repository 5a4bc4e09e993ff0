//! The result of an import: how much of the text was understood, and which lines were not.

use serde::{Deserialize, Serialize};

/// How much of a log became part of the recording. A conclusion about a log rests only on the understood lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ImportSummary {
    /// Non-blank lines of the text, except lines that are only in `ignored`.
    pub lines: u64,
    /// Lines that an importer accepted: rows, headers, times, prompts.
    pub understood: u64,
    /// Of those, lines of a known log that say nothing about stalls, as most lines of a kernel's log.
    pub passed_over: u64,
    /// How many lines were ignored for each reason: those passed over, and others that are neither understood nor not
    /// understood.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<IgnoredLines>,
    /// Lines that no importer knew, or that did not fit their format, in order; at most `NOT_UNDERSTOOD_MAX` ranges.
    pub not_understood: Vec<LineRange>,
    /// Whether a kernel log in the text contains a memory report (Mem-Info).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub memory_reported: bool,
    /// The formats of each file, in order of appearance.
    pub formats: Vec<FormatRead>,
    /// The lines of each format, so that reports can show a finding in the log; at most `SECTIONS_MAX`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sections: Vec<SectionRead>,
    /// The beginning of the text as it was read, for reports: at most `TEXT_LINES_MAX` lines and `TEXT_BYTES_MAX`
    /// bytes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub text: Vec<SourceLine>,
}

/// Maximum number of sections; later ones are not located.
pub const SECTIONS_MAX: usize = 1000;
/// Maximum number of lines of text to keep.
pub const TEXT_LINES_MAX: usize = 3000;
/// Maximum number of bytes of text to keep.
pub const TEXT_BYTES_MAX: usize = 256 << 10;
/// Maximum number of bytes of one line.
const LINE_BYTES_MAX: usize = 240;

/// Consecutive lines of one file that one importer accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct SectionRead {
    /// Name of the file or of the paste.
    pub file: String,
    /// Name of the format.
    pub format: String,
    /// What the figures are about; absent in recordings of older builds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub about: Option<Vec<About>>,
    /// Counted from 1.
    pub first: u32,
    /// The last line, counted from 1.
    pub last: u32,
}

/// What the figures of a table are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum About {
    /// Requests to devices, and waits for them.
    Devices,
    /// Pages swapped in and out.
    Swap,
    /// Memory and limits of control groups.
    Cgroups,
    /// Caches of kernel objects.
    Slabs,
    /// Scans for pages to free.
    Reclaim,
    /// Free blocks by size, compaction and huge pages.
    Fragmentation,
    /// Use of CPUs, and waits for one.
    Cpus,
    /// Memory of NUMA nodes and zones.
    Nodes,
    /// Dirty pages, and writes to files and journals.
    Writeback,
    /// Processes that the kernel killed.
    Kills,
    /// Settings, stacks and lists of tasks, which hold no times of calls.
    State,
}

/// One line of the text; a long line is cut.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct SourceLine {
    /// Name of the file or of the paste.
    pub file: String,
    /// Counted from 1.
    pub line: u32,
    /// The line itself.
    pub text: String,
}

/// Maximum number of ranges; later lines are only counted, as `lines` minus `understood`.
pub const NOT_UNDERSTOOD_MAX: usize = 1000;

/// Consecutive lines of one file, including blank lines between them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct LineRange {
    /// Name of the file or of the paste.
    pub file: String,
    /// Counted from 1.
    pub first: u32,
    /// Counted from 1; the last line of the range.
    pub last: u32,
    /// The beginning of the first line.
    pub shown: String,
}

/// Lines that were ignored for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct IgnoredLines {
    /// Why they were ignored.
    pub reason: String,
    /// How many they are.
    pub lines: u64,
}

/// One format in one file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct FormatRead {
    /// Name of the file or of the paste.
    pub file: String,
    /// The name in `flatwater import --list`.
    pub format: String,
    /// Lines accepted as this format.
    pub lines: u64,
    /// Whether the format has measurements or settings.
    #[serde(skip_serializing_if = "FormatKind::is_default")]
    pub kind: FormatKind,
}

/// The author of a format's lines, and whether its figures can show that nothing is wrong if no rule finds a problem
/// in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FormatKind {
    /// Operations, events or stacks that rules judge; in recordings of older builds, averages as well.
    #[default]
    Judged,
    /// Averages over an interval, counters, levels and settings. Rules judge them, but a stall shorter than the interval
    /// need not show.
    Averages,
    /// A kernel log.
    KernelLog,
    /// A server's log of slow operations.
    ServerLog,
    /// Timed operations.
    TimedCalls,
    /// Requests timed at a device.
    TimedRequests,
    /// Counters and limits of a control group.
    Group,
    /// The state of a device, which is evidence only if the device has a problem.
    DeviceState,
    /// Figures that can show a problem, but never its absence.
    Unjudged,
}

impl FormatKind {
    /// Whether figures of this kind are about single operations, so that a short stall shows.
    #[must_use]
    pub fn times_operations(self) -> bool {
        matches!(self, FormatKind::Judged | FormatKind::ServerLog | FormatKind::TimedCalls | FormatKind::TimedRequests)
    }

    fn is_default(&self) -> bool {
        *self == FormatKind::default()
    }
}

impl ImportSummary {
    /// Share of lines that were understood, 0 to 1; `None` without lines.
    #[must_use]
    pub fn understood_share(&self) -> Option<f64> {
        (self.lines > 0).then(|| self.understood as f64 / self.lines as f64)
    }

    /// How many lines were ignored.
    #[must_use]
    pub fn ignored_lines(&self) -> u64 {
        self.ignored.iter().fold(0, |sum, each| sum.saturating_add(each.lines))
    }

    /// How many lines an importer used: understood and not passed over.
    #[must_use]
    pub fn used_lines(&self) -> u64 {
        self.understood.saturating_sub(self.passed_over)
    }

    /// How many lines were not understood. With the used and the ignored lines these are all non-blank lines.
    #[must_use]
    pub fn not_understood_lines(&self) -> u64 {
        self.lines.saturating_sub(self.understood)
    }

    /// Counts lines that were ignored.
    pub fn ignore(&mut self, reason: &str, lines: u64) {
        if lines == 0 {
            return;
        }
        match self.ignored.iter_mut().find(|known| known.reason == reason) {
            Some(known) => known.lines += lines,
            None => self.ignored.push(IgnoredLines { reason: reason.to_owned(), lines }),
        }
    }

    /// Marks lines as passed over that were counted as understood.
    pub fn pass_over(&mut self, reason: &str, lines: u64) {
        self.passed_over += lines;
        self.ignore(reason, lines);
    }

    /// Counts lines that were understood.
    pub fn understand(&mut self, file: &str, format: Option<(&str, FormatKind)>, lines: u64) {
        self.lines += lines;
        self.understood += lines;
        let Some((format, kind)) = format else { return };
        match self.formats.iter_mut().rev().find(|known| known.file == file && known.format == format) {
            Some(known) => known.lines += lines,
            None => self.formats.push(FormatRead { file: file.to_owned(), format: format.to_owned(), lines, kind }),
        }
    }

    /// Counts one line that was not understood. It extends the last range if only blank lines lie between;
    /// `blank_from` is the first blank line, or the line itself.
    pub fn miss(&mut self, file: &str, line: u32, blank_from: u32, shown: &str) {
        self.lines += 1;
        self.not_understood_line(file, line, blank_from, shown);
    }

    /// Counts further lines that were not understood.
    pub fn miss_more(&mut self, lines: u64) {
        self.lines += lines;
    }

    /// Takes back further lines that were counted as understood.
    pub fn stumble_more(&mut self, lines: u64) {
        self.understood = self.understood.saturating_sub(lines);
    }

    /// Where a format stood.
    pub fn locate(&mut self, file: &str, (format, about): (&str, &[About]), (first, last): (u32, u32)) {
        if self.sections.len() < SECTIONS_MAX {
            let (file, format) = (file.to_owned(), format.to_owned());
            self.sections.push(SectionRead { file, format, about: Some(about.to_vec()), first, last });
        }
    }

    /// Keeps one line of the text if there is room. `kept_bytes` is the number of bytes kept so far; returns the new
    /// number.
    #[must_use]
    pub fn keep(&mut self, file: &str, line: u32, text: &str, kept_bytes: usize) -> usize {
        let end = text.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= LINE_BYTES_MAX).last();
        let shown = text.get(..end.unwrap_or(0)).unwrap_or_default();
        if self.text.len() >= TEXT_LINES_MAX || kept_bytes + shown.len() > TEXT_BYTES_MAX {
            return TEXT_BYTES_MAX;
        }
        self.text.push(SourceLine { file: file.to_owned(), line, text: shown.to_owned() });
        kept_bytes + shown.len()
    }

    /// Reverses the count of one understood line: an importer accepted the line but could not parse it.
    pub fn stumble(&mut self, file: &str, line: u32, shown: &str) {
        self.understood = self.understood.saturating_sub(1);
        self.not_understood_line(file, line, line, shown);
    }

    fn not_understood_line(&mut self, file: &str, line: u32, blank_from: u32, shown: &str) {
        if let Some(last) = self.not_understood.last_mut().filter(|last| last.file == file)
            && (last.last.saturating_add(1) == blank_from || last.last == line)
        {
            last.last = line;
        } else if self.not_understood.len() < NOT_UNDERSTOOD_MAX {
            let range = LineRange { file: file.to_owned(), first: line, last: line, shown: shown.to_owned() };
            self.not_understood.push(range);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FormatKind, ImportSummary};

    #[test]
    fn the_kept_text_stays_within_its_limits() {
        let mut summary = ImportSummary::default();
        let mut kept = 0;
        for line in 1..=5000 {
            kept = summary.keep("f", line, &"\u{e9}".repeat(200), kept);
        }
        assert!(summary.text.len() <= super::TEXT_LINES_MAX);
        assert!(summary.text.iter().map(|line| line.text.len()).sum::<usize>() <= super::TEXT_BYTES_MAX);
        assert_eq!(summary.text[0].text.chars().count(), 120, "cut at a character boundary");
    }

    #[test]
    fn lines_are_counted_once_and_ranges_grow() {
        let mut summary = ImportSummary::default();
        assert_eq!(summary.understood_share(), None, "no lines, no share");
        summary.understand("f", Some(("vmstat", FormatKind::Judged)), 3);
        summary.miss("f", 4, 4, "hello");
        summary.miss("f", 6, 5, "world");
        summary.miss("f", 9, 9, "again");
        summary.stumble("f", 2, "r b swpd");
        assert_eq!((summary.lines, summary.understood), (6, 2));
        let ranges: Vec<(u32, u32)> = summary.not_understood.iter().map(|range| (range.first, range.last)).collect();
        assert_eq!(ranges, [(4, 6), (9, 9), (2, 2)]);
        assert_eq!(summary.formats[0].lines, 3);
        summary.pass_over("not about stalls", 1);
        summary.ignore("separators", 2);
        summary.ignore("separators", 3);
        let parts = (summary.used_lines(), summary.not_understood_lines(), summary.ignored_lines());
        assert_eq!(parts, (1, 4, 6), "{summary:?}");
        assert_eq!(summary.understood_share(), Some(2.0 / 6.0), "separators do not count");
    }
}
