//! The sections of the summary.

use super::super::numbers::{count, counted, share, time};
use super::super::{facts, imported, victims};
use super::paint::{Ink, Page};
use super::table::grid;
use flatwater_explain::fix::Commands;
use flatwater_explain::{CauseId, Evidence, Explanation, Finding};
use flatwater_recording::{Header, Recording};

/// Groups of victims in the table, and the longest pattern of their files, in characters.
const VICTIMS_MAX: usize = 6;
const FILE_CHARS: usize = 10;

/// The first line: what ran where, with which settings.
pub fn heading(page: &mut Page, header: &Header) {
    page.joined(Ink::Strong, &facts::subject(header));
}

/// The sentence about the victims and what made them wait.
pub fn lead(page: &mut Page, explanation: &Explanation) {
    if let Some(lead) = &explanation.lead {
        page.wrapped("", Some(Ink::Strong), &lead.to_string());
    }
}

/// Notes that a reader needs before any figure.
pub fn notes(page: &mut Page, header: &Header, explanation: &Explanation) {
    for note in facts::notes(header, explanation) {
        page.wrapped("note: ", None, &note);
    }
}

/// What an import read.
pub fn read(page: &mut Page, header: &Header) {
    for (place, line) in imported::lines(header).iter().enumerate() {
        page.wrapped(if place == 0 { "read: " } else { "      " }, None, line);
    }
}

/// The table of victims; threads that clients wait for come first.
pub fn victims(page: &mut Page, explanation: &Explanation) {
    let shown = explanation.victims.len().min(VICTIMS_MAX);
    if shown == 0 {
        return;
    }
    // A terminal has no room for the column `stall`; the page and JSON have it.
    let mut columns = victims::COLUMNS.to_vec();
    columns.retain(|(name, _)| *name != "stall");
    let mut rows = victims::rows(&explanation.victims, FILE_CHARS);
    rows.truncate(shown);
    for row in &mut rows {
        let cells = std::mem::take(row).into_iter().zip(victims::COLUMNS);
        *row = cells.filter(|(_, (name, _))| *name != "stall").map(|(cell, _)| cell).collect();
    }
    grid(page, &columns, &rows);
    if explanation.victims.len() > shown {
        page.line(&format!("  ... and {} more groups: --format json", explanation.victims.len() - shown));
    }
    if let Some(note) = victims::note(&explanation.victims[..shown]) {
        page.line(&format!("  {note}"));
    }
    if let Some(judged) = victims::judged_by(explanation) {
        page.wrapped("", None, &judged);
    }
    page.line("");
}

pub fn operations(page: &mut Page, explanation: &Explanation) {
    let partly = facts::partly_timed(explanation);
    if explanation.operations.is_empty() {
        match partly {
            Some(partly) => page.wrapped("", None, &partly),
            None => page.line("no operation was timed"),
        }
        return;
    }
    let mut rows = Vec::new();
    // The page and JSON also have the threads that are counted separately (neighbours, one of many writers).
    let any_whole = explanation.operations.iter().any(|operation| operation.thread.is_empty());
    for operation in explanation.operations.iter().filter(|operation| operation.thread.is_empty() || !any_whole) {
        let figures = |p: &flatwater_explain::Percentiles| {
            [p.p50_ns, p.p99_ns, p.p999_ns, p.p9999_ns, p.max_ns].map(time).to_vec()
        };
        let mut row = vec![format!("{}()", operation.name), count(operation.count)];
        row.extend(figures(&operation.from_start));
        rows.push(row);
        if let Some(from_due) = &operation.from_due {
            let mut row = vec!["  scheduled".to_owned(), String::new()];
            row.extend(figures(from_due));
            rows.push(row);
        }
    }
    let columns =
        [("", false), ("count", true), ("p50", true), ("p99", true), ("p99.9", true), ("p99.99", true), ("max", true)];
    grid(page, &columns, &rows);
    if let Some(partly) = partly {
        page.wrapped("", None, &partly);
    }
}

pub fn slow(page: &mut Page, recording: &Recording, explanation: &Explanation) {
    let slow = &explanation.slow;
    let over = format!("slow (over {})", time(slow.threshold_ns));
    if slow.calls == 0 {
        let why = if !facts::calls_were_seen(recording) {
            "unknown, calls were not seen one by one"
        } else if recording.latency.is_empty() {
            "none, no timed call was made"
        } else {
            "none"
        };
        page.line(&format!("{over}: {why}"));
        return;
    }
    let named = slow.named_share.map(|named| format!(", {} named", share(named))).unwrap_or_default();
    let calls = counted(slow.calls, "call", "calls");
    let headline = format!("{over}: {calls}, {} lost{named}", time(slow.lost_ns));
    let headline = page.paint(Ink::Strong, &headline);
    page.line(&headline);
    if let Some(sums) = facts::sums_all(explanation) {
        page.wrapped("          ", None, &sums);
    }
    if let Some(under_way) = facts::under_way(slow) {
        page.line(&format!("          {under_way}"));
    }
    let longest = slow.causes.iter().map(|cause| cause.cause.name().len()).max().unwrap_or_default();
    let most = slow.causes.iter().map(|cause| count(cause.calls).len()).max().unwrap_or_default();
    for cause in &slow.causes {
        let part = format!("{:>9}", share(cause.share));
        let part = page.paint(if cause.share >= 0.5 { Ink::Alarm } else { Ink::Strong }, &part);
        let calls = if cause.calls == 1 { "call " } else { "calls" };
        let line = format!(
            "{part}  {:<longest$}  {:>most$} {calls}   worst {:<8}  {}",
            cause.cause,
            count(cause.calls),
            time(cause.worst_ns),
            facts::how_known(cause.duration_basis, cause.cause_basis),
        );
        page.line(&line);
    }
}

pub fn findings(page: &mut Page, header: &Header, explanation: &Explanation) {
    for (number, finding) in explanation.findings.iter().enumerate() {
        let ink = if finding.cause == CauseId::Quiet { Ink::Good } else { Ink::Strong };
        let lead = format!("{}. ", number + 1);
        page.wrapped(&lead, Some(ink), &format!("{}: {}", finding.cause, finding.headline));
        one_finding(page, header, explanation, finding);
    }
}

fn one_finding(page: &mut Page, header: &Header, explanation: &Explanation, finding: &Finding) {
    for (place, line) in victims::made_by(finding).iter().enumerate() {
        labelled(page, if place == 0 { "made by" } else { "" }, line);
    }
    evidence_lines(page, "evidence", &finding.evidence);
    if !finding.log_lines.is_empty() {
        labelled(page, "log lines", &imported::places(finding));
    }
    for (place, stage) in finding.stages.iter().enumerate() {
        labelled(page, if place == 0 { "stages" } else { "" }, &facts::stage(explanation, stage));
    }
    evidence_lines(page, "against", &finding.against);
    fixes(page, finding);
    if !finding.settle.is_empty() {
        labelled(page, "settle", &finding.settle);
    }
    if finding.basis != flatwater_recording::Basis::Exact && !finding.confidence.is_nan() {
        let known = facts::how_known(finding.duration_basis, finding.cause_basis);
        labelled(page, "basis", &format!("{known}, confidence {:.0} %", finding.confidence * 100.0));
    }
    if let Some(command) = facts::prove_command(header, &finding.fixes) {
        labelled(page, "prove it", &command);
    }
}

/// The fixes of the finding and its stages, by the numbers that `flatwater verify` takes.
fn fixes(page: &mut Page, finding: &Finding) {
    for (place, fix) in finding.all_fixes().enumerate() {
        let label = format!("{} {}", if place == 0 { "fix" } else { "or" }, fix.number);
        labelled(page, &label, &facts::fix_text(fix));
        let Commands { apply, undo, .. } = fix.commands();
        // Not wrapped: a reader pastes these lines into a shell.
        for command in &apply {
            page.line(&format!("{:14}  {command}", ""));
        }
        for (place, command) in undo.iter().enumerate() {
            page.line(&format!("{:14}{}{command}", "", if place == 0 { "undo: " } else { "      " }));
        }
    }
}

fn evidence_lines(page: &mut Page, label: &str, evidence: &[Evidence]) {
    for (place, fact) in evidence.iter().enumerate() {
        labelled(page, if place == 0 { label } else { "" }, &facts::fact_text(fact));
    }
}

fn labelled(page: &mut Page, label: &str, text: &str) {
    let lead = format!("   {label:<11}");
    page.wrapped(&lead, None, text);
}

pub fn floor_and_cost(page: &mut Page, header: &Header, explanation: &Explanation) {
    page.line("");
    if let Some(floor) = facts::noise_text(header) {
        page.wrapped("noise floor   ", None, &floor);
    }
    let cost = facts::own_cost(explanation);
    if !cost.is_empty() {
        page.wrapped("own cost      ", None, &cost);
    }
}

pub fn losses(page: &mut Page, header: &Header, explanation: &Explanation) {
    let parts = facts::losses(header, explanation);
    if !parts.is_empty() {
        let text: Vec<String> = parts.iter().map(|(what, n)| format!("{} {what}", count(*n))).collect();
        page.wrapped("lost          ", None, &text.join("; "));
    }
}

pub fn gaps(page: &mut Page, explanation: &Explanation) {
    for (place, gap) in explanation.gaps.iter().enumerate() {
        let lead = if place == 0 { "not seen      " } else { "              " };
        let remedy = if gap.remedy.is_empty() { String::new() } else { format!(" -> {}", gap.remedy) };
        page.wrapped(lead, None, &format!("{}: {}{remedy}", gap.what, gap.why));
    }
}
