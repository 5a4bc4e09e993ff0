//! The imported log, as far as the recording contains it: with line numbers, the lines of each finding marked, and the
//! lines that were not understood in grey.

use super::element::Html;
use flatwater_explain::{Explanation, Finding, LogLines};
use flatwater_recording::{ImportSummary, Recording, SourceLine};

/// Lines shown on either side of a marked one; others are folded away if the log is long.
const AROUND: u32 = 3;
/// A log of at most this many lines is shown in full.
const WHOLE: usize = 400;

pub fn is_kept(recording: &Recording) -> bool {
    recording.header.import.as_ref().is_some_and(|import| !import.text.is_empty())
}

/// Adds links from a finding to its lines.
pub fn places(html: &mut Html, finding: &Finding) {
    if finding.log_lines.is_empty() {
        return;
    }
    html.leaf("dt", &[], "Log lines");
    html.tag("dd", &[("class", "log-places")], |html| {
        for (place, lines) in finding.log_lines.iter().take(12).enumerate() {
            html.text(if place == 0 { "" } else { ", " });
            let label = match lines.first == lines.last {
                true => format!("{}:{}", lines.file, lines.first),
                false => format!("{}:{}-{}", lines.file, lines.first, lines.last),
            };
            html.leaf("a", &[("href", &format!("#{}", anchor(&lines.file, lines.first)))], &label);
        }
        if finding.log_lines.len() > 12 {
            html.text(&format!(" and {} more", finding.log_lines.len() - 12));
        }
    });
}

/// An element id for a line. It contains a hash of the file's name instead of the name.
fn anchor(file: &str, line: u32) -> String {
    let hash = file.bytes().fold(5381_u32, |hash, byte| hash.wrapping_mul(33) ^ u32::from(byte));
    format!("log-{hash:x}-{line}")
}

/// Numbers of the findings that refer to this line.
fn marks(line: &SourceLine, explanation: &Explanation) -> Vec<usize> {
    let holds = |lines: &LogLines| lines.file == line.file && (lines.first..=lines.last).contains(&line.line);
    let each = explanation.findings.iter().enumerate();
    each.filter(|(_, finding)| finding.log_lines.iter().any(holds)).map(|(at, _)| at + 1).collect()
}

fn is_missed(line: &SourceLine, import: &ImportSummary) -> bool {
    let blank = line.text.trim().is_empty();
    let holds = import
        .not_understood
        .iter()
        .any(|range| range.file == line.file && (range.first..=range.last).contains(&line.line));
    !blank && holds
}

pub fn section(html: &mut Html, recording: &Recording, explanation: &Explanation) {
    let Some(import) = recording.header.import.as_ref().filter(|import| !import.text.is_empty()) else { return };
    html.tag("section", &[("id", "log")], |html| {
        html.leaf("h2", &[], "The log");
        html.leaf("p", &[("class", "about")], &about(import));
        let marked: Vec<Vec<usize>> = import.text.iter().map(|line| marks(line, explanation)).collect();
        let shown = near(import, &marked);
        html.tag("div", &[("class", "scroll")], |html| {
            html.tag("pre", &[("class", "log"), ("tabindex", "0")], |html| {
                let (mut file, mut folded) = ("", 0_usize);
                for (at, line) in import.text.iter().enumerate() {
                    if !shown[at] {
                        folded += 1;
                        continue;
                    }
                    if folded > 0 {
                        html.text(&format!("      ... {folded} lines\n"));
                        folded = 0;
                    }
                    if line.file != file {
                        html.leaf("strong", &[], &line.file);
                        file = &line.file;
                    }
                    one_line(html, line, &marked[at], is_missed(line, import));
                }
                if folded > 0 {
                    html.text(&format!("      ... {folded} lines\n"));
                }
            });
        });
    });
}

fn about(import: &ImportSummary) -> String {
    let cut = import.lines > import.text.len() as u64;
    let whole = if cut { format!("The first {} lines. ", import.text.len()) } else { String::new() };
    format!("{whole}Marked lines have the number of the finding that uses them; grey lines were not understood.")
}

/// Which lines to show: all of a short log, else the first 20 and those near a marked line.
fn near(import: &ImportSummary, marked: &[Vec<usize>]) -> Vec<bool> {
    let mut shown = vec![import.text.len() <= WHOLE; import.text.len()];
    for (at, marks) in marked.iter().enumerate() {
        if at < 20 {
            shown[at] = true;
        }
        if !marks.is_empty() {
            let from = at.saturating_sub(AROUND as usize);
            let to = (at + AROUND as usize + 1).min(shown.len());
            shown[from..to].iter_mut().for_each(|one| *one = true);
        }
    }
    shown
}

fn one_line(html: &mut Html, line: &SourceLine, marks: &[usize], missed: bool) {
    let numbers: Vec<String> = marks.iter().map(ToString::to_string).collect();
    let number = format!("{:>5} {:<3} ", line.line, numbers.join(","));
    let id = anchor(&line.file, line.line);
    let class = if missed { "missed" } else { "" };
    html.open("span", &[("id", &id), ("class", class)]);
    html.text(&number);
    if marks.is_empty() {
        html.text(&line.text);
    } else {
        html.open("mark", &[]);
        html.text(&line.text);
        html.raw("</mark>");
    }
    html.raw("</span>\n");
}
