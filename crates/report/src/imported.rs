//! How much of a log the import understood, for the top of a report: the findings use only the understood lines.

use std::fmt::Write as _;

use flatwater_explain::Finding;
use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::{Header, ImportSummary};

/// Ranges of lines listed one by one that were not understood.
const SHOWN: usize = 5;
/// Places in the log that a finding lists.
const PLACES: usize = 8;

/// The understood share of the lines, and the first ranges that were not understood; empty unless the recording was
/// imported.
#[must_use]
pub fn lines(header: &Header) -> Vec<String> {
    let Some(import) = &header.import else { return Vec::new() };
    let mut lines: Vec<String> = understood(import).into_iter().collect();
    let missed = import.not_understood.iter().take(SHOWN).map(|range| {
        let place = match range.first == range.last {
            true => format!("line {}", range.first),
            false => format!("lines {} to {}", range.first, range.last),
        };
        format!("not understood: {place} of {}: '{}'", range.file, range.shown)
    });
    lines.extend(missed);
    if let Some(more) = import.not_understood.len().checked_sub(SHOWN + 1) {
        lines.push(format!("not understood: {} further ranges of lines", more + 1));
    }
    lines.extend(ignored(import));
    lines
}

/// How many lines were ignored for each reason, the most frequent first.
fn ignored(import: &ImportSummary) -> Option<String> {
    let mut reasons: Vec<(u64, &str)> = import.ignored.iter().map(|each| (each.lines, each.reason.as_str())).collect();
    reasons.sort_short_by_key(|(lines, _)| std::cmp::Reverse(*lines));
    let listed = |(lines, reason): &(u64, &str)| {
        format!("{lines} {} because {reason}", if *lines == 1 { "line" } else { "lines" })
    };
    let listed: Vec<String> = reasons.iter().map(listed).collect();
    (!listed.is_empty()).then(|| format!("ignored: {}", listed.join("; ")))
}

/// The places of a finding's lines in the log, such as `dmesg.txt:12-30, 44`; at most `PLACES` of them.
#[must_use]
pub fn places(finding: &Finding) -> String {
    let mut text = String::new();
    let mut file = "";
    for lines in finding.log_lines.iter().take(PLACES) {
        text.push_str(if text.is_empty() { "" } else { ", " });
        if lines.file != file {
            let _ = write!(text, "{}:", lines.file);
            file = &lines.file;
        }
        let _ = match lines.first == lines.last {
            true => write!(text, "{}", lines.first),
            false => write!(text, "{}-{}", lines.first, lines.last),
        };
    }
    if let Some(more) = finding.log_lines.len().checked_sub(PLACES + 1) {
        let _ = write!(text, " and {} more places", more + 1);
    }
    text
}

fn understood(import: &ImportSummary) -> Option<String> {
    let share = import.understood_share()?;
    let formats: Vec<String> =
        import.formats.iter().map(|read| format!("{} ({} lines)", read.format, read.lines)).collect();
    let formats = if formats.is_empty() { String::new() } else { format!(": {}", formats.join(", ")) };
    Some(format!("{} of {} lines understood ({:.0} %){formats}", import.understood, import.lines, share * 100.0))
}

#[cfg(test)]
mod tests {
    use super::lines;
    use flatwater_recording::{FormatKind, Header, ImportSummary};

    #[test]
    fn understood_and_other_lines_are_listed() {
        let mut import = ImportSummary::default();
        import.understand("dmesg.txt", Some(("kernel-log", FormatKind::KernelLog)), 8);
        import.miss("dmesg.txt", 9, 9, "Hello");
        import.miss("dmesg.txt", 10, 10, "there");
        let header = Header { import: Some(import), ..Header::default() };
        let shown = lines(&header);
        assert_eq!(shown[0], "8 of 10 lines understood (80 %): kernel-log (8 lines)");
        assert_eq!(shown[1], "not understood: lines 9 to 10 of dmesg.txt: 'Hello'");
        assert_eq!(shown.len(), 2);
        assert_eq!(lines(&Header::default()), Vec::<String>::new(), "a recording was not read from text");
    }

    #[test]
    fn ignored_lines_are_listed_with_their_reasons() {
        let mut import = ImportSummary::default();
        import.ignore("they are separators and status lines of tools", 1);
        import.ignore("they are sentences around the log", 12);
        let header = Header { import: Some(import), ..Header::default() };
        let expected = "ignored: 12 lines because they are sentences around the log; 1 line because they are separators \
            and status lines of tools";
        assert_eq!(lines(&header), [expected]);
    }
}
