//! The sections of the page with text and tables: notes, victims, findings, stall time, workload.

use super::element::Html;
use super::log;
use super::payload::Palette;
use crate::numbers::{count, counted, share, time};
use crate::{facts, imported, tables, victims};
use flatwater_explain::fix::Commands;
use flatwater_explain::{CauseId, Evidence, Explanation, Finding, Percentiles};
use flatwater_recording::{Basis, CauseBasis, Header, Recording, Source};

/// Groups of victims in the table, and the longest pattern of their files, in characters.
const VICTIMS_MAX: usize = 40;
const FILE_CHARS: usize = 60;

pub fn notes(html: &mut Html, recording: &Recording, explanation: &Explanation) {
    let notes = facts::notes(&recording.header, explanation);
    let losses = facts::losses(&recording.header, explanation);
    let read = imported::lines(&recording.header);
    if notes.is_empty() && losses.is_empty() && read.is_empty() {
        return;
    }
    html.tag("aside", &[("class", "notes"), ("aria-label", "Notes")], |html| {
        for note in notes {
            html.leaf("p", &[], &note);
        }
        if !read.is_empty() {
            html.tag("ul", &[("class", "read")], |html| {
                read.iter().for_each(|line| html.leaf("li", &[], line));
            });
        }
        if !losses.is_empty() {
            let text: Vec<String> = losses.iter().map(|(what, n)| format!("{} {what}", count(*n))).collect();
            html.leaf("p", &[], &format!("lost while recording: {}", text.join("; ")));
        }
    });
}

/// Adds the answer in a sentence, and the first fix.
pub fn lead(html: &mut Html, explanation: &Explanation) {
    if let Some(lead) = facts::lead(explanation) {
        html.leaf("p", &[("class", "lead")], &lead);
    }
    if let Some(helps) = facts::helps(explanation) {
        html.leaf("p", &[("class", "helps")], &helps);
    }
}

/// Adds the table of victims.
pub fn victims(html: &mut Html, explanation: &Explanation) {
    if explanation.victims.is_empty() {
        return;
    }
    html.tag("section", &[("id", "victims")], |html| {
        html.leaf("h2", &[], "Who waited");
        let shown = explanation.victims.len().min(VICTIMS_MAX);
        let mut rows = victims::rows(&explanation.victims[..shown], FILE_CHARS);
        // The longest column last, so that a narrow screen shows the figures first.
        let mut columns = victims::COLUMNS.to_vec();
        if let Some(file) = columns.iter().position(|(name, _)| *name == "file") {
            let column = columns.remove(file);
            columns.push(column);
            for row in &mut rows {
                let cell = row.remove(file);
                row.push(cell);
            }
        }
        plain_table(html, "Who waited", &columns, &rows);
        if explanation.victims.len() > shown {
            let left = explanation.victims.len() - shown;
            html.leaf("p", &[("class", "about")], &format!("{left} more groups are in --format json."));
        }
        if let Some(note) = victims::note(&explanation.victims[..shown]) {
            html.leaf("p", &[("class", "about")], note);
        }
        if let Some(judged) = victims::judged_by(explanation) {
            html.leaf("p", &[("class", "about")], &judged);
        }
    });
}

pub fn findings(html: &mut Html, recording: &Recording, explanation: &Explanation, palette: &Palette) {
    html.tag("section", &[("id", "findings")], |html| {
        html.leaf("h2", &[], "Findings");
        html.tag("ol", &[("class", "findings")], |html| {
            for finding in &explanation.findings {
                one_finding(html, &recording.header, explanation, finding, palette);
            }
        });
        if explanation.findings.is_empty() {
            html.leaf("p", &[("class", "empty")], "There are no findings, not even quiet.");
        }
    });
}

/// Adds the figures that a reader needs first.
pub fn key_figures(html: &mut Html, recording: &Recording, explanation: &Explanation) {
    let slow = &explanation.slow;
    let returned = explanation.operations.iter().filter(|op| op.thread.is_empty()).map(|op| op.from_start.max_ns);
    let slow_only = explanation.partly_timed.iter().flat_map(|partly| &partly.slow_only).map(|slow| slow.max_ns);
    let worst = returned.chain(slow_only).chain((slow.still_under_way > 0).then_some(slow.under_way_ns_max)).max();
    let mut figures: Vec<(String, String)> = Vec::new();
    if recording.latency.is_empty() && slow.calls == 0 {
        figures.push(("not seen".to_owned(), "calls one by one".to_owned()));
    } else {
        let total = &explanation.total;
        let of = if total.stall_ns == slow.lost_ns { String::new() } else { format!(" of {}", total.of) };
        figures.push((count(total.calls), format!("slow calls{of} (over {})", time(slow.threshold_ns))));
        figures.push((time(total.stall_ns), format!("stall time{of}")));
    }
    figures.extend(facts::under_way(slow).map(|_| {
        (count(slow.still_under_way), format!("still under way (longest so far {})", time(slow.under_way_ns_max)))
    }));
    figures.extend(worst.map(|ns| (time(ns), "worst call".to_owned())));
    figures.extend(explanation.total.named_share.map(|named| (share(named), "of this stall time is named".to_owned())));
    figures.extend(facts::floor_ns(&recording.header).map(|ns| (time(ns), "the machine's noise floor".to_owned())));
    // A log without timed calls has no key figures.
    if recording.header.source == Source::Import && recording.latency.is_empty() && slow.calls == 0 {
        return;
    }
    html.tag("dl", &[("class", "key-figures")], |html| {
        for (figure, what) in figures {
            html.tag("div", &[], |html| {
                html.leaf("dt", &[], &what);
                html.leaf("dd", &[], &figure);
            });
        }
    });
}

fn one_finding(html: &mut Html, header: &Header, explanation: &Explanation, finding: &Finding, palette: &Palette) {
    let quiet = finding.cause == CauseId::Quiet;
    let class = if quiet { "finding quiet" } else { "finding" };
    html.tag("li", &[("class", class)], |html| {
        html.tag("h3", &[], |html| {
            let lost = explanation.slow.causes.iter().any(|share| share.cause == finding.cause);
            let colour = if lost { palette.class(finding.cause.name()) } else { "kn" };
            html.leaf("span", &[("class", &format!("cause {colour}"))], finding.cause.name());
            html.text(" ");
            html.leaf("span", &[("class", "headline")], &finding.headline);
        });
        html.leaf("p", &[("class", "basis")], &how_known(explanation, finding));
        html.tag("dl", &[("class", "case")], |html| {
            let made_by = victims::made_by(finding);
            if !made_by.is_empty() {
                pair(html, "Made by", |html| {
                    html.tag("ul", &[], |html| {
                        for line in &made_by {
                            html.leaf("li", &[], line);
                        }
                    });
                });
            }
            evidence_list(html, "Evidence", &finding.evidence, header);
            log::places(html, finding);
            evidence_list(html, "Against", &finding.against, header);
            fixes(html, finding);
            if !finding.settle.is_empty() {
                pair(html, "Settle", |html| html.text(&finding.settle));
            }
            if let Some(command) = facts::prove_command(header, &finding.fixes) {
                pair(html, "Prove it", |html| html.leaf("code", &[("class", "command")], &command));
            }
        });
        stages(html, explanation, finding, header);
        mechanism(html, finding);
    });
}

/// Adds the other causes with the same answer.
fn stages(html: &mut Html, explanation: &Explanation, finding: &Finding, header: &Header) {
    for stage in &finding.stages {
        html.tag("details", &[("class", "stage")], |html| {
            html.leaf("summary", &[], &facts::stage(explanation, stage));
            html.tag("dl", &[("class", "case")], |html| evidence_list(html, "Evidence", &stage.evidence, header));
        });
    }
}

/// Such as `60.6 % of the lost time · 361 ms · measured`, with the confidence if it is inferred.
fn how_known(explanation: &Explanation, finding: &Finding) -> String {
    let mut parts = Vec::new();
    if let Some(lost_ns) = finding.lost_ns.filter(|ns| *ns > 0) {
        parts.extend(finding.share.map(|of| format!("{} of the {}", share(of), facts::total(explanation))));
        parts.push(time(lost_ns));
    }
    parts.push(match finding.basis {
        Basis::Exact => match finding.cause_basis {
            CauseBasis::Bracketed => "measured, and bracketed by kernel events".to_owned(),
            CauseBasis::Stack => "measured; the cause by kernel stacks".to_owned(),
            basis => format!("measured; the cause {}", basis.name()),
        },
        Basis::Sampled if finding.cause_basis == CauseBasis::Channel => {
            "sampled: from the function that the thread slept in".to_owned()
        }
        Basis::Sampled => "sampled: from kernel stacks".to_owned(),
        Basis::Inferred if finding.confidence.is_nan() => "nothing is claimed".to_owned(),
        Basis::Inferred => format!("inferred from counters, confidence {:.0} %", finding.confidence * 100.0),
    });
    if finding.cause == CauseId::Quiet { String::new() } else { parts.join(" · ") }
}

fn pair(html: &mut Html, name: &str, inside: impl FnOnce(&mut Html)) {
    html.leaf("dt", &[], name);
    html.tag("dd", &[], inside);
}

fn evidence_list(html: &mut Html, name: &str, evidence: &[Evidence], header: &Header) {
    if evidence.is_empty() {
        return;
    }
    pair(html, name, |html| {
        html.tag("ul", &[], |html| {
            for fact in evidence {
                html.tag("li", &[], |html| {
                    html.text(&facts::fact_text(fact));
                    if let Some(at_ns) = fact.at_ns {
                        let since_ns = at_ns.saturating_sub(header.clock.start_ns);
                        let seconds = format!("{:.3}", since_ns as f64 / 1e9);
                        html.text(" ");
                        // The script turns this into a button that shows the moment in the charts.
                        let label = format!("at {}", time(since_ns));
                        html.leaf("span", &[("class", "moment"), ("data-t", &seconds)], &label);
                    }
                });
            }
        });
    });
}

fn fixes(html: &mut Html, finding: &Finding) {
    if finding.all_fixes().next().is_none() {
        return;
    }
    pair(html, "Fix", |html| {
        html.tag("ol", &[], |html| {
            for fix in finding.all_fixes() {
                html.tag("li", &[("value", &fix.number.to_string())], |html| {
                    html.text(&facts::fix_text(fix));
                    let Commands { apply, undo, .. } = fix.commands();
                    if !apply.is_empty() {
                        html.leaf("pre", &[("class", "commands"), ("tabindex", "0")], &apply.join("\n"));
                    }
                    if !undo.is_empty() {
                        html.text("Undo:");
                        html.leaf("pre", &[("class", "commands"), ("tabindex", "0")], &undo.join("\n"));
                    }
                });
            }
        });
    });
}

/// Adds the catalogue's description of the mechanism, folded.
fn mechanism(html: &mut Html, finding: &Finding) {
    let entry = finding.cause.entry();
    if entry.mechanism.is_empty() || finding.cause == CauseId::Quiet {
        return;
    }
    html.tag("details", &[("class", "mechanism")], |html| {
        html.leaf("summary", &[], "What the kernel does here");
        html.leaf("p", &[], entry.mechanism);
        if !entry.fix.is_empty() {
            html.leaf("p", &[], entry.fix);
        }
    });
}

fn time_title(explanation: &Explanation) -> &'static str {
    if explanation.slow.causes.is_empty() { "Latencies" } else { "Where the time went" }
}

pub fn where_time_went(html: &mut Html, recording: &Recording, explanation: &Explanation, palette: &Palette) {
    html.tag("section", &[("id", "time")], |html| {
        html.leaf("h2", &[], time_title(explanation));
        if let Some(sums) = facts::sums_all(explanation) {
            html.leaf("p", &[("class", "about")], &sums);
        }
        if !explanation.slow.causes.is_empty() {
            bar(html, explanation, palette);
            causes(html, explanation, palette);
        }
        operations(html, recording, explanation);
    });
}

/// Adds a bar of all stall time by cause. It uses SVG attributes, because the page's policy forbids style attributes.
fn bar(html: &mut Html, explanation: &Explanation, palette: &Palette) {
    let parts: Vec<String> =
        explanation.slow.causes.iter().map(|cause| format!("{} {}", cause.cause, share(cause.share))).collect();
    let label = parts.join(", ");
    html.tag(
        "svg",
        &[("class", "bar"), ("role", "img"), ("aria-label", &label), ("width", "100%"), ("height", "18")],
        |html| {
            let mut at = 0.0;
            for cause in &explanation.slow.causes {
                let width = cause.share.clamp(0.0, 1.0) * 100.0;
                let (x, shown) = (format!("{at:.3}%"), format!("{width:.3}%"));
                let class = palette.class(cause.cause.name());
                html.tag("rect", &[("class", class), ("x", &x), ("width", &shown), ("height", "18")], |html| {
                    html.leaf("title", &[], &format!("{} {}", cause.cause, share(cause.share)));
                });
                at += width;
            }
        },
    );
}

fn causes(html: &mut Html, explanation: &Explanation, palette: &Palette) {
    let columns =
        [("cause", false), ("share", true), ("lost", true), ("calls", true), ("worst", true), ("basis", false)];
    scrolled(html, "Stall time by cause", |html| {
        heading(html, &columns);
        html.tag("tbody", &[], |html| {
            for cause in &explanation.slow.causes {
                html.tag("tr", &[], |html| {
                    html.tag("th", &[("scope", "row")], |html| {
                        let class = format!("cause {}", palette.class(cause.cause.name()));
                        html.leaf("span", &[("class", &class)], cause.cause.name());
                    });
                    for cell in [share(cause.share), time(cause.lost_ns), count(cause.calls), time(cause.worst_ns)] {
                        html.leaf("td", &[("class", "n")], &cell);
                    }
                    html.leaf("td", &[], &facts::how_known(cause.duration_basis, cause.cause_basis));
                });
            }
        });
    });
}

fn operations(html: &mut Html, recording: &Recording, explanation: &Explanation) {
    let partly = facts::partly_timed(explanation);
    if let Some(partly) = &partly {
        html.leaf("p", &[("class", "note")], partly);
    }
    if explanation.operations.is_empty() {
        let why = facts::why_missing(&recording.gaps, &["latency", "call"]);
        html.leaf("p", &[("class", "empty")], &format!("No operation was timed: {why}."));
        return;
    }
    let columns = [
        ("call", false),
        ("count", true),
        ("p50", true),
        ("p99", true),
        ("p99.9", true),
        ("p99.99", true),
        ("worst", true),
    ];
    let title = match partly {
        None => "Latency of every call, slow or not",
        Some(_) => "Latency of every call, slow or not, while every call was timed",
    };
    scrolled(html, title, |html| {
        heading(html, &columns);
        html.tag("tbody", &[], |html| {
            for operation in &explanation.operations {
                let by = if operation.thread.is_empty() { String::new() } else { format!(" {}", operation.thread) };
                let name = format!("{}(){by}", operation.name);
                percentiles(html, &name, &count(operation.count), &operation.from_start, "");
                if let Some(from_due) = &operation.from_due {
                    percentiles(html, "scheduled", "", from_due, "due");
                }
            }
        });
    });
}

fn percentiles(html: &mut Html, name: &str, calls: &str, figures: &Percentiles, class: &str) {
    html.tag("tr", &[("class", class)], |html| {
        html.leaf("th", &[("scope", "row")], name);
        html.leaf("td", &[("class", "n")], calls);
        let Percentiles { p50_ns, p99_ns, p999_ns, p9999_ns, max_ns } = *figures;
        for ns in [p50_ns, p99_ns, p999_ns, p9999_ns, max_ns] {
            html.leaf("td", &[("class", "n")], &time(ns));
        }
    });
}

pub fn workload(html: &mut Html, recording: &Recording, explanation: &Explanation) {
    let tables = tables::of_workloads(recording, &explanation.workload);
    if tables.is_empty() {
        return;
    }
    html.tag("section", &[("id", "workload")], |html| {
        html.leaf("h2", &[], "What the workload saw");
        for table in tables {
            html.leaf("h3", &[], &table.title);
            if !table.lines.is_empty() {
                html.leaf("pre", &[("class", "log"), ("tabindex", "0")], &table.lines.join("\n"));
            }
            if !table.rows.is_empty() {
                plain_table(html, &table.title, &table.columns, &table.rows);
            }
            for note in &table.notes {
                html.leaf("p", &[("class", "note")], note);
            }
        }
    });
}

/// A table that scrolls horizontally on a screen narrower than the table.
pub fn scrolled(html: &mut Html, label: &str, inside: impl FnOnce(&mut Html)) {
    let attributes = [("class", "scroll"), ("tabindex", "0"), ("role", "region"), ("aria-label", label)];
    html.tag("div", &attributes, |html| html.tag("table", &[], inside));
}

pub fn heading(html: &mut Html, columns: &[(&str, bool)]) {
    if columns.iter().all(|(name, _)| name.is_empty()) {
        return;
    }
    html.tag("thead", &[], |html| {
        html.tag("tr", &[], |html| {
            for (name, right) in columns {
                html.leaf("th", &[("scope", "col"), ("class", if *right { "n" } else { "" })], name);
            }
        });
    });
}

pub fn plain_table(html: &mut Html, label: &str, columns: &[(&str, bool)], rows: &[Vec<String>]) {
    scrolled(html, label, |html| {
        heading(html, columns);
        html.tag("tbody", &[], |html| {
            for row in rows {
                html.tag("tr", &[], |html| {
                    for (cell, (_, right)) in row.iter().zip(columns) {
                        html.leaf("td", &[("class", if *right { "n" } else { "" })], cell);
                    }
                });
            }
        });
    });
}

/// `3 things were not seen`, with the number of gaps.
pub fn gap_count(explanation: &Explanation) -> String {
    counted(explanation.gaps.len() as u64, "thing was not seen", "things were not seen")
}
