//! The scenario's text, at most 60 lines.

use super::group::Group;
use super::machine::Setup;
use super::printable;
use super::words::{Classes, exact_bytes, rounded};
use crate::proof::has_effect;
use flatwater_explain::{CauseId, Explanation};
use flatwater_recording::{OperationKind, Recording};

const LINES_MAX: usize = 60;
const SECOND_NS: u64 = 1_000_000_000;
const NOTES_MAX: usize = 4;
/// The largest value of the knobs in fixes.
const KNOB_MAX: u64 = 64 << 30;

pub fn text(
    recording: &Recording,
    explanation: &Explanation,
    setup: &Setup,
    victims: &[Group],
    neighbours: &[Group],
    notes: &[String],
) -> String {
    let header = &recording.header;
    let what = plain(&header.target.what);
    let mut lines = vec![format!("# Written by `flatwater reproduce` from a recording of {what}.")];
    lines.extend(notes.iter().take(NOTES_MAX).map(|note| format!("# Note: {}.", printable(note))));
    lines.push("name = \"reproduction\"".to_owned());
    lines.push(format!("sentence = \"Imitates a recording of {what}.\""));
    let seconds = (header.duration_ns / SECOND_NS).clamp(5, 30);
    lines.push(format!("duration = \"{seconds}s\""));
    lines.push(format!("threshold = \"{}\"", rounded(header.threshold_ns.clamp(100_000, SECOND_NS))));
    lines.push("judge = \"lost\"".to_owned());
    lines.push(String::new());
    lines.push("[setup]".to_owned());
    lines.extend(setup.lines.iter().cloned());
    for group in victims.iter().chain(neighbours) {
        lines.push(String::new());
        lines.extend(workload(group));
    }
    for fix in fixes(explanation, setup) {
        let more = [
            "",
            "[[fix]]",
            &format!("name = \"{}\"", fix.name),
            &format!("sentence = \"{}\"", plain(&fix.sentence)),
            &format!("set = {{ {} }}", fix.set),
        ]
        .map(str::to_owned);
        if lines.len() + more.len() <= LINES_MAX {
            lines.extend(more);
        }
    }
    lines.truncate(LINES_MAX);
    lines.join("\n") + "\n"
}

/// Text within a TOML string.
fn plain(text: &str) -> String {
    let text: String = printable(text).chars().filter(|c| !matches!(c, '"' | '\\')).take(80).collect();
    if text.is_empty() { "a program".to_owned() } else { text }
}

fn workload(group: &Group) -> Vec<String> {
    let mut lines = vec![format!("# {}", printable(&group.comment)), "[[workload]]".to_owned()];
    let mut put = |key: &str, value: String| lines.push(format!("{key} = {value}"));
    put("use", "\"observed\"".to_owned());
    put("label", format!("\"{}\"", group.label));
    if group.process {
        put("role", "\"neighbour\"\nprocess = true".to_owned());
    }
    put("threads", group.threads.to_string());
    put("mix", format!("\"{}\"", group.mix.counts_text()));
    let uses = |op: u64| group.mix.iter().any(|(known, _)| known == op);
    if let Some(kind) = group.sync {
        let name = if kind == OperationKind::Fdatasync { "fdatasync" } else { "fsync" };
        put("sync", format!("\"{name}\""));
    }
    let histograms: [(&str, &Classes, fn(&Classes) -> String); 8] = [
        ("sync_every", &group.sync_every, Classes::counts_text),
        ("write_size", &group.write_bytes, Classes::sizes_text),
        ("read_size", &group.read_bytes, Classes::sizes_text),
        ("create_writes", &group.create_writes, Classes::counts_text),
        ("write_pause", &group.write_pause, Classes::times_text),
        ("read_pause", &group.read_pause, Classes::times_text),
        ("sync_pause", &group.sync_pause, Classes::times_text),
        ("other_pause", &group.other_pause, Classes::times_text),
    ];
    for (key, classes, text) in histograms {
        if !classes.is_empty() {
            put(key, format!("\"{}\"", text(classes)));
        }
    }
    if group.pass > 0 {
        put("pass", format!("{}\npass_pause = \"{}\"", group.pass, rounded(group.pass_pause_ns)));
    }
    if uses(9) {
        put("memory", format!("\"{}\"", exact_bytes(group.memory_bytes)));
    }
    if uses(0) || uses(1) || uses(2) || uses(5) {
        put("files", group.files.max(1).to_string());
        put("file_size", format!("\"{}\"", exact_bytes(group.file_bytes)));
        put("sequential", format!("{:.3}", group.sequential));
        for (key, on) in [
            ("shared", group.shared),
            ("grow", group.grow),
            ("direct", group.direct),
            ("data_sync", group.data_sync),
            ("append", group.append),
        ] {
            if on {
                put(key, "true".to_owned());
            }
        }
    }
    lines.iter().flat_map(|line| line.split('\n')).map(str::to_owned).collect()
}

/// A change that could help, as text of a scenario.
struct Named {
    name: String,
    sentence: String,
    set: String,
}

impl Named {
    fn new(name: &str, sentence: String, set: String) -> Named {
        Named { name: name.to_owned(), sentence, set }
    }
}

/// The fixes of the report that the scenario can set, by their numbers in it, then changes of the scenario's own limits.
fn fixes(explanation: &Explanation, setup: &Setup) -> Vec<Named> {
    let mib = |bytes: u64| bytes >> 20;
    let reported = explanation.findings.iter().flat_map(|finding| finding.all_fixes());
    let settings = reported.filter_map(|fix| Some((fix, fix.setting()?)));
    let mut found: Vec<Named> = settings
        .filter(|(_, (key, _))| has_effect(key.name()))
        .map(|(fix, (key, value))| {
            Named::new(&fix.number.to_string(), fix.text.clone(), format!("\"{}\" = \"{}\"", key.name(), plain(value)))
        })
        .collect();
    if let Some(limit) = setup.memory_limit {
        let more = limit.saturating_mul(4).min(KNOB_MAX);
        let set = format!("\"cgroup.memory_limit\" = \"{}MiB\"", mib(more));
        found.push(Named::new("memory", format!("A memory limit of {} MiB.", mib(more)), set));
    }
    if let Some(limit) = setup.dirty_limit {
        let more = limit.saturating_mul(16).min(KNOB_MAX);
        let sentence = format!("A dirty limit of {} MiB for the device.", mib(more));
        found.push(Named::new("dirty", sentence, format!("\"bdi.max_bytes\" = \"{}MiB\"", mib(more).max(1))));
    }
    if let Some(limit) = setup.write_bps {
        let more = limit.saturating_mul(16).min(KNOB_MAX);
        let sentence = format!("A limit of {} MiB/s.", mib(more).max(1));
        found.push(Named::new("rate", sentence, format!("\"cgroup.write_bps\" = \"{more}B\"")));
    }
    let cause = explanation.findings.first().map(|finding| finding.cause);
    if !matches!(cause, Some(CauseId::RunQueue | CauseId::CpuContention)) {
        let other = if setup.file_system == Some("xfs") { "ext4" } else { "xfs" };
        let set = format!("\"mount.file_system\" = \"{other}\", \"mount.size\" = \"1GiB\"");
        found.push(Named::new(other, format!("{other} instead."), set));
    }
    found
}
