//! The exact output of each format.

use flatwater_recording::Recording;
use flatwater_report::{self as report, Options, ReportError};

use crate::common::fixture::{self, explained::explanation};

fn printed(format: &str, recording: &Recording, options: &Options) -> String {
    report::render(format, recording, &explanation(recording), options).expect("the format can render this recording")
}

fn keep(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../golden/report");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

fn table(name: &str) -> Options {
    Options { table: Some(name.to_owned()), ..Options::default() }
}

#[test]
fn text_of_a_full_cgroup() {
    keep("full-cgroup.txt", &printed("text", &fixture::full_cgroup(), &Options::default()));
}

#[test]
fn text_of_victims_and_aggressors() {
    let recording = fixture::chains::who_waited();
    let explained = flatwater_explain::explain(&recording);
    let text = report::render("text", &recording, &explained, &Options::default()).expect("text");
    let flowing = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "redis-server: 12 write() calls, up to 95 ms, waited for i_rwsem of the file that its own thread bio_aof held in \
         fdatasync",
        "queued behind 34 MiB of dd (pid 812, cgroup /jobs/backup)",
        "made by dd (pid 812, cgroup /jobs/backup), 93.2 %: for 755 ms",
        "12 slow calls of others (1.05 s)",
    ] {
        assert!(flowing.contains(part), "'{part}' is not in: {text}");
    }
    let json = report::render("json", &recording, &explained, &Options::default()).expect("JSON");
    for part in ["\"victims\"", "\"aggressors\"", "\"answerable\"", "\"lead\"", "\"focus\""] {
        assert!(json.contains(part), "{part}");
    }
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
    }
}

#[test]
fn the_report_of_a_scenario_begins_with_the_workload_that_waited() {
    let recording = fixture::full_cgroup();
    let explained = flatwater_explain::explain(&recording);
    let text = report::render("text", &recording, &explained, &Options::default()).expect("text");
    let flowing = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flowing.contains("reclaimed memory because their cgroup is full"), "{text}");
    let place = text.lines().position(|line| line.starts_with("journal: 33 write() calls, up to 40.6 ms"));
    assert_eq!(place, Some(2), "{text}");
    assert!(explained.victims.is_empty(), "a scenario has no table of victims");
}

/// However much evidence there is, a report of one cause fits 40 lines, and says what it omits.
#[test]
fn text_of_one_cause_fits_forty_lines() {
    let recording = fixture::chains::who_waited();
    let mut explained = flatwater_explain::explain(&recording);
    explained.findings.truncate(1);
    let text = |explained: &flatwater_explain::Explanation| {
        report::render("text", &recording, explained, &Options::default()).expect("text")
    };
    let fits = |text: &str| assert!(text.lines().count() <= 40, "{} lines:\n{text}", text.lines().count());
    fits(&text(&explained));
    let cgroup = format!("/kubepods.slice/{}", "8f3b0c".repeat(11));
    for finding in &mut explained.findings {
        let (first, aggressor) = (finding.evidence[0].clone(), finding.aggressors[0].clone());
        finding.evidence.extend(vec![first.clone(); 9]);
        finding.against.extend(vec![first; 9]);
        finding.aggressors.extend(vec![aggressor; 5]);
        finding.aggressors.iter_mut().for_each(|aggressor| aggressor.cgroup = Some(cgroup.clone()));
    }
    for number in 0..9 {
        explained.gaps.push(flatwater_recording::Gap::new(
            format!("table {number}"),
            "a reason ".repeat(20),
            "a remedy",
        ));
        explained.notes.push(format!("note {number}, {}", "which is long ".repeat(9)).as_str().into());
    }
    let long = text(&explained);
    fits(&long);
    for omitted in [
        "10 facts",
        "6 parties",
        "9 facts against",
        "8 more notes",
        "table 8",
        "cgroup /kubepods.slice/8f3b0c8f3b0c...",
    ] {
        assert!(long.contains(omitted), "'{omitted}' is not in: {long}");
    }
}

#[test]
fn text_fits_eighty_columns() {
    let mut recording = fixture::full_cgroup();
    recording.outcomes = all_outcomes();
    for line in printed("text", &recording, &Options::default()).lines() {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
    }
}

#[test]
fn text_of_every_workload_table() {
    let mut recording = fixture::quiet();
    recording.outcomes = all_outcomes();
    keep("workloads.txt", &printed("text", &recording, &Options::default()));
}

#[test]
fn text_of_counters_alone_with_losses_and_notes() {
    let mut recording = fixture::imported();
    recording.header.losses.lost = 12;
    recording.header.losses.unbalanced = 1;
    recording.header.time_distorted = true;
    recording.header.notes.push("ran without root: no kernel stacks".into());
    keep("imported.txt", &printed("text", &recording, &Options::default()));
}

#[test]
fn colour_changes_nothing_but_colour() {
    let recording = fixture::full_cgroup();
    let plain = printed("text", &recording, &Options::default());
    let coloured = printed("text", &recording, &Options { colour: true, ..Options::default() });
    assert!(!plain.contains('\u{1b}'), "no escapes by default");
    let mut stripped = coloured.clone();
    for code in ["\u{1b}[1m", "\u{1b}[2m", "\u{1b}[1;31m", "\u{1b}[1;32m", "\u{1b}[0m"] {
        stripped = stripped.replace(code, "");
    }
    assert_ne!(plain, coloured);
    assert_eq!(plain, stripped);
}

#[test]
fn terminal_escapes_in_names_are_not_printed() {
    let text = printed("text", &fixture::hostile(), &Options::default());
    assert!(!text.contains('\u{1b}'));
    assert!(text.contains("document.title"), "the name itself is shown");
}

#[test]
fn json_is_the_published_contract() {
    let mut recording = fixture::full_cgroup();
    recording.outcomes.push(fixture::outcomes::bulk());
    keep("full-cgroup.json", &printed("json", &recording, &Options::default()));
}

#[test]
fn sar_and_vmstat_rows() {
    keep("full-cgroup.sar", &printed("sar", &fixture::full_cgroup(), &Options::default()));
    keep("full-cgroup.vmstat", &printed("vmstat", &fixture::full_cgroup(), &Options::default()));
    keep("imported.vmstat", &printed("vmstat", &fixture::imported(), &Options::default()));
}

#[test]
fn both_layouts_of_free() {
    let recording = fixture::full_cgroup();
    let both = printed("free", &recording, &table("new")) + "\n" + &printed("free", &recording, &table("old"));
    keep("full-cgroup.free", &both);
}

#[test]
fn folded_stacks_sum_to_the_lost_time() {
    let recording = fixture::full_cgroup();
    let text = printed("folded", &recording, &Options::default());
    let sum: u64 = text.lines().filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum();
    let after_ns: u64 = recording.calls.iter().map(|call| call.after_exit_ns).sum();
    assert_eq!(sum, recording.lost_ns() + after_ns);
    keep("full-cgroup.folded", &text);
}

#[test]
fn csv_of_every_table_is_rectangular() {
    let recording = fixture::full_cgroup();
    for name in
        ["latency", "calls", "parts", "stacks", "events", "gaps", "setup", "hooks", "zones", "vmstat", "pressure"]
    {
        let text = printed("csv", &recording, &table(name));
        let widths: std::collections::BTreeSet<usize> = text.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(widths.len(), 1, "{name}: {widths:?}");
        assert!(text.lines().count() > 1, "{name} has rows");
    }
    let calls = printed("csv", &recording, &table("calls"));
    keep("calls.csv", &calls.lines().take(4).collect::<Vec<_>>().join("\n"));
}

#[test]
fn unsupported_formats_name_the_supported_ones() {
    let recording = fixture::imported();
    let refuse = |format: &str, options: &Options| {
        report::render(format, &recording, &explanation(&recording), options).expect_err("refused").to_string()
    };
    let errors = [
        refuse("yaml", &Options::default()),
        refuse("csv", &Options::default()),
        refuse("csv", &table("zone")),
        refuse("csv", &table("zones")),
        refuse("free", &Options::default()),
    ];
    keep("errors.txt", &errors.join("\n"));
    assert!(matches!(
        report::render("sar", &Recording::default(), &explanation(&recording), &Options::default()),
        Err(ReportError::NotEnough { .. })
    ));
}

fn all_outcomes() -> Vec<flatwater_recording::outcome::WorkloadOutcome> {
    use fixture::outcomes::{bulk, checkpoint, graphdb, journal, maildir, sdet};
    vec![bulk(), checkpoint(), sdet(), maildir(), graphdb(), journal()]
}
