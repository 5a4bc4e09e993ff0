//! Compares the page's data with the TypeScript types that describe it.

use std::collections::{BTreeMap, BTreeSet};

use flatwater_recording::{Cause, Recording, ReportedBy, SampledTask, Series, SeriesColumn};
use flatwater_report::{self as report, Options, html};
use serde_json::Value;

use crate::common::fixture::{self, explained::explanation};

const TYPES: &str = include_str!("../../crates/report/web/src/payload.ts");

/// The fields of each interface.
fn interfaces() -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut inside = None;
    for line in TYPES.lines() {
        if let Some(name) = line.strip_prefix("export interface ") {
            inside = Some(name.trim_end_matches(" {").to_owned());
        } else if line == "}" {
            inside = None;
        } else if let (Some(name), Some((field, _))) = (&inside, line.trim().split_once(':')) {
            found.entry(name.clone()).or_default().insert(field.to_owned());
        }
    }
    found
}

fn keys(value: &Value) -> BTreeSet<String> {
    value.as_object().expect("an object").keys().cloned().collect()
}

#[test]
fn rust_and_typescript_agree_on_every_field() {
    let recording = fixture::full_cgroup();
    let page = serde_json::to_value(html::payload(&recording, &explanation(&recording))).expect("serializable data");
    let chart = &page["charts"][0];
    let shapes = [
        ("Payload", &page),
        ("Chart", chart),
        ("Line", &chart["lines"][0]),
        ("Level", &chart["levels"][0]),
        ("Mark", &page["marks"][0]),
        ("Calls", &page["calls"]),
        ("CallRow", &page["calls"]["rows"][0]),
    ];
    let typed = interfaces();
    assert_eq!(typed.len(), shapes.len(), "every interface is compared: {:?}", typed.keys());
    for (name, value) in shapes {
        assert_eq!(typed.get(name), Some(&keys(value)), "{name}");
    }
    assert_eq!(page["calls"]["rows"][0]["parts"][0].as_array().map(Vec::len), Some(6), "PartRow");
    for chart in page["charts"].as_array().expect("charts") {
        let words = chart["lines"].as_array().expect("lines").iter().map(|line| &line["look"]);
        for word in words.chain([&chart["unit"], &chart["scale"]]) {
            assert!(TYPES.contains(&word.to_string()), "{word} is a word of payload.ts");
        }
    }
}

#[test]
fn every_line_is_as_long_as_its_time_axis() {
    for recording in [fixture::full_cgroup(), fixture::one_hour(), fixture::imported()] {
        let payload = html::payload(&recording, &explanation(&recording));
        let charts = serde_json::to_value(&payload.charts).expect("serializable data");
        for chart in charts.as_array().expect("charts") {
            let instants = chart["t"].as_array().expect("t");
            let rising = instants.windows(2).all(|pair| pair[0].as_f64() < pair[1].as_f64());
            assert!(rising, "{}: time rises", chart["id"]);
            assert!(instants.len() <= 3_001, "{}: {} points", chart["id"], instants.len());
            for line in chart["lines"].as_array().expect("lines") {
                assert_eq!(
                    line["y"].as_array().map(Vec::len),
                    Some(instants.len()),
                    "{} {}",
                    chart["id"],
                    line["name"]
                );
            }
            let drawn = chart["lines"].as_array().is_some_and(|lines| !lines.is_empty());
            let in_words = chart["missing"].is_string() || chart["zero"].is_string();
            assert_ne!(drawn, in_words, "{}: a chart or a sentence", chart["id"]);
        }
    }
}

/// The page of a log has charts of the log's counters and the tasks that it lists, and no empty sections.
#[test]
fn the_page_of_a_log_has_no_empty_sections() {
    let mut log = fixture::imported();
    let payload = html::payload(&log, &explanation(&log));
    assert!(!payload.charts.is_empty() && payload.charts.iter().all(|chart| chart.missing.is_none()));
    let page = |recording: &Recording| {
        report::render("html", recording, &explanation(recording), &Options::default()).expect("a page")
    };
    let body = page(&log);
    assert!(body.contains("id=\"chart-board\"") && !body.contains("id=\"call-table\""), "no call is in the log");
    assert!(!body.contains("No operation was timed") && !body.contains("id=\"tasks\""));
    // A log with stacks only has no series, so the page shows the tasks instead of charts.
    log.series.clear();
    let mut task = SampledTask::new(ReportedBy::HungTask);
    task.task = "jbd2/sda1-8".to_owned();
    (task.pid, task.state, task.blocked_ns) = (Some(702), Some('D'), Some(122_000_000_000));
    task.cause = Some(Cause::JournalCommit);
    task.frame = Some("jbd2_journal_commit_transaction".to_owned());
    log.header.sampled_tasks = vec![task];
    let body = page(&log);
    assert!(!body.contains("id=\"chart-board\"") && body.contains("jbd2/sda1-8:702"), "tasks instead of charts");
    assert!(body.contains("journal-commit") && body.contains("jbd2_journal_commit_transaction"));
}

#[test]
fn the_page_of_one_hour_is_small_and_counts_omitted_calls() {
    let recording = fixture::one_hour();
    let payload = html::payload(&recording, &explanation(&recording));
    assert_eq!(payload.calls.total, 12_000);
    assert_eq!(payload.calls.rows.len() as u64 + payload.calls.left_out, 12_000);
    let shortest_kept = payload.calls.rows.iter().map(|row| row.ns + row.after_exit_ns).min();
    assert!(shortest_kept >= payload.calls.left_out_ns_max, "the longest calls are kept");
    let page = report::render("html", &recording, &explanation(&recording), &Options::default()).expect("a page");
    assert!(page.len() < 4 << 20, "{} bytes", page.len());
}

/// Recordings may come from anywhere: extreme numbers and inconsistent columns must not panic.
#[test]
fn no_recording_makes_a_format_panic() {
    let explained = flatwater_explain::explain(&fixture::full_cgroup());
    for recording in [extreme(), torn(), Recording::default(), fixture::hostile()] {
        for format in report::FORMATS {
            for table in [None, Some("calls"), Some("latency"), Some("zones"), Some("old")] {
                let options = Options { table: table.map(str::to_owned), ..Options::default() };
                if let Err(refused) = (format.render)(&recording, &explained, &options) {
                    assert!(!refused.to_string().is_empty(), "{}", format.name);
                }
            }
        }
    }
}

fn extreme() -> Recording {
    let mut recording = fixture::full_cgroup();
    recording.header.duration_ns = u64::MAX;
    recording.header.clock.wall_offset_ns = Some(i64::MIN);
    recording.header.machine.page_bytes = Some(u64::MAX);
    for (place, call) in recording.calls.iter_mut().enumerate() {
        call.start_ns = if place % 2 == 0 { u64::MAX } else { 0 };
        call.duration_ns = u64::MAX;
        call.due_ns = Some(u64::MAX);
        for segment in &mut call.segments {
            (segment.offset_ns, segment.ns) = (u64::MAX, u64::MAX);
        }
    }
    for series in &mut recording.series {
        for column in &mut series.columns {
            let extremes = (0..column.values().len()).map(|row| Some(if row % 2 == 0 { i64::MAX } else { i64::MIN }));
            *column = SeriesColumn::new(column.name.clone(), column.kind, extremes);
        }
    }
    recording
}

/// Columns shorter than their table, a missing entity, and instants out of order.
fn torn() -> Recording {
    let mut recording = fixture::full_cgroup();
    for series in &mut recording.series {
        let (mut at_ns, mut owners) = (series.at_ns().to_vec(), series.owners().to_vec());
        at_ns.reverse();
        owners.iter_mut().step_by(3).for_each(|owner| *owner = u16::MAX);
        let short = |column: &SeriesColumn| {
            let values: Vec<_> = column.values().iter().take(7).collect();
            SeriesColumn::new(column.name.clone(), column.kind, values)
        };
        let columns = series.columns.iter().map(short).collect();
        *series = Series::from_parts(series.table, series.entities().to_vec(), at_ns, owners, columns);
    }
    recording.stacks.clear();
    recording.latency.iter_mut().for_each(|bucket| bucket.width_ns = 0);
    recording
}
