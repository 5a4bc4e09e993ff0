//! The sections of the summary.

use super::super::numbers::{count, counted, share, time};
use super::super::{facts, imported, victims};
use super::paint::{Ink, Page};
use super::table::grid;
use flatwater_explain::fix::Commands;
use flatwater_explain::{CauseId, Evidence, Explanation, Finding, Operation};
use flatwater_recording::{Header, Recording};

/// The longest pattern of a victim's files, in characters.
const FILE_CHARS: usize = 10;

/// How many rows of each kind the summary prints. The page and JSON have all.
#[derive(Clone, Copy, Debug)]
pub struct Detail {
    /// Groups of victims.
    pub victims: usize,
    pub operations: usize,
    pub causes: usize,
    pub made_by: usize,
    pub evidence: usize,
    pub against: usize,
    pub stages: usize,
    pub fixes: usize,
    pub notes: usize,
    /// Whether gaps have reasons and remedies, or only names; and the noise floor its parts.
    pub reasons: bool,
}

const ALL: usize = usize::MAX;

const FULL: Detail = Detail {
    victims: 6,
    operations: ALL,
    causes: ALL,
    made_by: ALL,
    evidence: ALL,
    against: ALL,
    stages: ALL,
    fixes: ALL,
    notes: ALL,
    reasons: true,
};

/// From everything to the least.
pub const DETAILS: [Detail; 4] = [
    FULL,
    Detail { evidence: 3, against: 2, stages: 3, fixes: 4, reasons: false, ..FULL },
    Detail {
        victims: 4,
        operations: 6,
        causes: 5,
        evidence: 2,
        against: 1,
        stages: 2,
        fixes: 2,
        notes: 2,
        reasons: false,
        ..FULL
    },
    Detail {
        victims: 3,
        operations: 4,
        causes: 4,
        made_by: 1,
        evidence: 1,
        against: 1,
        stages: 1,
        fixes: 1,
        notes: 1,
        reasons: false,
    },
];

/// Identifiers at least this long, and how much of them is printed, as docker prints them.
const ID_DIGITS_MIN: usize = 32;
const ID_DIGITS: usize = 12;

/// The text with long hexadecimal identifiers shortened: the page, JSON and commands have them whole.
fn short_ids(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len());
        let (id, behind) = rest.split_at(digits);
        if digits >= ID_DIGITS_MIN {
            out.push_str(&id[..ID_DIGITS]);
            out.push_str("...");
        } else {
            out.push_str(id);
        }
        let next = behind.find(|c: char| c.is_ascii_hexdigit()).unwrap_or(behind.len());
        let (between, after) = behind.split_at(next);
        out.push_str(between);
        rest = after;
    }
    out
}

/// The first line: what ran where, with which settings.
pub fn heading(page: &mut Page, header: &Header) {
    page.joined(Ink::Strong, &facts::subject(header));
}

/// The answer in a sentence, and the first fix.
pub fn lead(page: &mut Page, explanation: &Explanation) {
    if let Some(lead) = facts::lead(explanation) {
        page.wrapped("", Some(Ink::Strong), &short_ids(&lead));
    }
    if let Some(helps) = facts::helps(explanation) {
        page.wrapped("", None, &short_ids(&helps));
    }
}

/// Notes that a reader needs before any figure.
pub fn notes(page: &mut Page, header: &Header, explanation: &Explanation, detail: &Detail) {
    let notes = facts::notes(header, explanation);
    for note in notes.iter().take(detail.notes) {
        page.wrapped("note: ", None, note);
    }
    if let Some(omitted) = omitted(notes.len(), detail.notes, ["more note", "more notes"]) {
        page.line(&format!("note: {omitted}: --format html or json"));
    }
}

/// What an import read.
pub fn read(page: &mut Page, header: &Header) {
    for (place, line) in imported::lines(header).iter().enumerate() {
        page.wrapped(if place == 0 { "read: " } else { "      " }, None, line);
    }
}

/// The table of victims; threads that clients wait for come first.
pub fn victims(page: &mut Page, explanation: &Explanation, detail: &Detail) {
    let shown = explanation.victims.len().min(detail.victims);
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

pub fn operations(page: &mut Page, explanation: &Explanation, detail: &Detail) {
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
    let all: Vec<&Operation> =
        explanation.operations.iter().filter(|operation| operation.thread.is_empty() || !any_whole).collect();
    // The operations with the longest calls, in the order of the list.
    let mut longest: Vec<u64> = all.iter().map(|operation| operation.from_start.max_ns).collect();
    longest.sort_unstable_by(|a, b| b.cmp(a));
    let least_ns = longest.get(detail.operations.saturating_sub(1)).copied().unwrap_or_default();
    let shown = all.iter().filter(|operation| operation.from_start.max_ns >= least_ns).take(detail.operations);
    for operation in shown {
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
    if let Some(omitted) = omitted(all.len(), detail.operations, ["more operation", "more operations"]) {
        page.line(&format!("  {omitted}: --format html or json"));
    }
    if let Some(partly) = partly {
        page.wrapped("", None, &partly);
    }
}

pub fn slow(page: &mut Page, recording: &Recording, explanation: &Explanation, detail: &Detail) {
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
    for cause in slow.causes.iter().take(detail.causes) {
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
    if let Some(omitted) = omitted(slow.causes.len(), detail.causes, ["more cause", "more causes"]) {
        page.line(&format!("           {omitted}: --format html or json"));
    }
}

pub fn findings(page: &mut Page, header: &Header, explanation: &Explanation, detail: &Detail) {
    for (number, finding) in explanation.findings.iter().enumerate() {
        let ink = if finding.cause == CauseId::Quiet { Ink::Good } else { Ink::Strong };
        let lead = format!("{}. ", number + 1);
        page.wrapped(&lead, Some(ink), &format!("{}: {}", finding.cause, finding.headline));
        one_finding(page, header, explanation, finding, detail);
    }
}

fn one_finding(page: &mut Page, header: &Header, explanation: &Explanation, finding: &Finding, detail: &Detail) {
    let texts = |facts: &[Evidence]| facts.iter().map(facts::fact_text).collect::<Vec<String>>();
    let stages: Vec<String> = finding.stages.iter().map(|stage| facts::stage(explanation, stage)).collect();
    let mut omitted = Vec::new();
    omitted.extend(rows(page, "made by", &victims::made_by(finding), detail.made_by, ["party", "parties"]));
    omitted.extend(rows(page, "evidence", &texts(&finding.evidence), detail.evidence, ["fact", "facts"]));
    if !finding.log_lines.is_empty() {
        labelled(page, "log lines", &imported::places(finding));
    }
    omitted.extend(rows(page, "stages", &stages, detail.stages, ["stage", "stages"]));
    omitted.extend(rows(page, "against", &texts(&finding.against), detail.against, ["fact against", "facts against"]));
    omitted.extend(fixes(page, finding, detail.fixes));
    if !omitted.is_empty() {
        labelled(page, "more", &format!("{}: --format html or json", omitted.join(", ")));
    }
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

/// The fixes of the finding and its stages, by the numbers that `flatwater verify` takes, and the commands of the
/// first. Returns what is omitted.
fn fixes(page: &mut Page, finding: &Finding, most: usize) -> Option<String> {
    let mut commands = false;
    for (place, fix) in finding.all_fixes().take(most).enumerate() {
        let label = format!("{} {}", if place == 0 { "fix" } else { "or" }, fix.number);
        labelled(page, &label, &short_ids(&facts::fix_text(fix)));
        let Commands { apply, undo, .. } = fix.commands();
        if place > 0 {
            commands |= !apply.is_empty();
            continue;
        }
        // Not wrapped: a reader pastes these lines into a shell.
        for command in &apply {
            page.line(&format!("{:14}  {command}", ""));
        }
        for (place, command) in undo.iter().enumerate() {
            page.line(&format!("{:14}{}{command}", "", if place == 0 { "undo: " } else { "      " }));
        }
    }
    let all = finding.all_fixes().count();
    omitted(all, most, ["fix", "fixes"]).or_else(|| commands.then(|| "commands of the other fixes".to_owned()))
}

/// Rows with a label before the first. Returns what is omitted.
fn rows(page: &mut Page, label: &str, rows: &[String], most: usize, what: [&str; 2]) -> Option<String> {
    for (place, row) in rows.iter().take(most).enumerate() {
        labelled(page, if place == 0 { label } else { "" }, &short_ids(row));
    }
    omitted(rows.len(), most, what)
}

/// The rows that a list of at most `most` rows omits, such as `3 facts`.
fn omitted(all: usize, most: usize, [one, many]: [&str; 2]) -> Option<String> {
    (all > most).then(|| counted((all - most) as u64, one, many))
}

fn labelled(page: &mut Page, label: &str, text: &str) {
    let lead = format!("   {label:<11}");
    page.wrapped(&lead, None, text);
}

pub fn floor_and_cost(page: &mut Page, header: &Header, explanation: &Explanation, detail: &Detail) {
    let cost = facts::own_cost(explanation);
    if !detail.reasons {
        let floor = facts::floor_ns(header).map(|ns| format!("noise floor {}", time(ns)));
        let cost = Some(format!("own cost {cost}")).filter(|_| !cost.is_empty());
        let both: Vec<String> = floor.into_iter().chain(cost).collect();
        page.wrapped("", None, &both.join("; "));
        return;
    }
    page.line("");
    if let Some(floor) = facts::noise_text(header) {
        page.wrapped("noise floor   ", None, &floor);
    }
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

pub fn gaps(page: &mut Page, explanation: &Explanation, detail: &Detail) {
    if !detail.reasons && explanation.gaps.len() > 1 {
        let names: Vec<&str> = explanation.gaps.iter().map(|gap| gap.what.as_str()).collect();
        let text = format!("{} (why, and what to do: --format html or json)", names.join("; "));
        page.wrapped("not seen      ", None, &text);
        return;
    }
    for (place, gap) in explanation.gaps.iter().enumerate() {
        let lead = if place == 0 { "not seen      " } else { "              " };
        let remedy = if gap.remedy.is_empty() { String::new() } else { format!(" -> {}", gap.remedy) };
        page.wrapped(lead, None, &format!("{}: {}{remedy}", gap.what, gap.why));
    }
}

#[cfg(test)]
mod tests {
    use super::short_ids;

    #[test]
    fn long_identifiers_are_shortened_and_other_text_is_not() {
        let id = "8f3b0c".repeat(10);
        assert_eq!(
            short_ids(&format!("dd (pid 812, cgroup /docker/{id})")),
            "dd (pid 812, cgroup /docker/8f3b0c8f3b0c...)"
        );
        for text in ["", "deadbeef", "4 of 4 calls, caf\u{e9} 12.5 ms", "0123456789abcdef0123456789abcde"] {
            assert_eq!(short_ids(text), text);
        }
    }
}
