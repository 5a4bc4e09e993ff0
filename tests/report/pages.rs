//! Writes the pages that the browser test opens.

use std::fs;
use std::path::PathBuf;

use flatwater_recording::Recording;
use flatwater_report::{self as report, Options};

use crate::common::fixture::{self, explained::explanation};

pub fn page(recording: &Recording) -> String {
    report::render("html", recording, &explanation(recording), &Options::default()).expect("a page")
}

/// Writes each page as `NAME.html` and returns their directory.
pub fn written() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("report-pages");
    fs::create_dir_all(&folder).expect("a directory");
    let mut workloads = fixture::quiet();
    {
        use fixture::outcomes::{bulk, checkpoint, graphdb, journal, maildir, sdet};
        workloads.outcomes = vec![bulk(), checkpoint(), sdet(), maildir(), graphdb(), journal()];
    }
    let all = [
        ("full-cgroup", fixture::full_cgroup()),
        ("one-hour", fixture::one_hour()),
        ("quiet", workloads),
        ("imported", fixture::imported()),
        ("hostile", fixture::hostile()),
        ("long", fixture::named(&"kubepods_burstable_pod8f3b0c_".repeat(12))),
        ("empty", Recording::default()),
    ];
    for (name, recording) in all {
        fs::write(folder.join(format!("{name}.html")), page(&recording)).expect("the page can be written");
    }
    // Wait chains come from explain itself, so this page has no hand-made explanation.
    let chains = fixture::chains::who_waited();
    let explained = flatwater_explain::explain(&chains);
    let page = report::render("html", &chains, &explained, &Options::default()).expect("a page");
    fs::write(folder.join("who-waited.html"), page).expect("the page can be written");
    let figure = flatwater_experiment::judge::Judge::P99;
    let compared = flatwater_experiment::compare::compare(&fixture::hostile(), &fixture::full_cgroup(), figure);
    let page = report::html::comparison_page(&compared, ["before", "after"]);
    fs::write(folder.join("compared.html"), page).expect("the page can be written");
    folder
}
