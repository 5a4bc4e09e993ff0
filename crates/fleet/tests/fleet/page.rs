//! Tests of the page of a fleet.

use flatwater_fleet::compact::{self, compact};
use flatwater_fleet::{Fleet, push, report};

use crate::{day, facts, made, options};

#[tokio::test(flavor = "multi_thread")]
async fn the_page_shows_every_host_and_hours_without_observation() {
    let folder = tempfile::tempdir().expect("a folder");
    let (fleet, truth) = made(folder.path(), &options(50, 24, true)).await;
    let page = report::page(&fleet, &facts(&fleet, day(0, 24)).await, None);
    assert!(page.contains("50 hosts in") && page.contains("host-00049"), "{}", &page[..2_000]);
    assert!(page.contains(&format!("{} of {} host-hours were not observed", truth.hours_not_observed, 50 * 24)));
    assert!(!page.contains("{{"), "every mark is replaced");
    assert!(page.contains("<polygon") && page.contains("page-writeback"));
}

/// HTML that a host pushed could run script in the reader's browser.
#[tokio::test(flavor = "multi_thread")]
async fn a_recording_is_named_and_its_html_is_not_linked() {
    let (folder, host) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let recording = host.path().join("flatwater-20261120-000000-stall");
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/recordings-3c238a6/host");
    crate::crash::copy_tree(fixture.as_ref(), &recording);
    std::fs::write(recording.join("report.html"), "<script>alert(1)</script>").expect("written");
    let fleet = Fleet::directory(folder.path().to_owned()).expect("a directory");
    let options = push::Options { recordings: true, bandwidth: None };
    push::push(&fleet, std::slice::from_ref(&recording), &options).await.expect("pushed");
    compact(&fleet, &compact::Options::default()).await.expect("compacted");
    let hour = fleet.hours("v=1/table=summary", None).await.expect("listed").first().and_then(|hour| hour.start);
    let from = hour.expect("an hour");
    let range =
        flatwater_fleet::time::Range { from, to: flatwater_recording::summary::HourStart::of_hours(from.hours() + 24) };
    let page = report::page(&fleet, &facts(&fleet, range).await, None);
    assert!(page.contains("<code>v=1/recordings/") && page.contains("flatwater explain DIRECTORY"), "named");
    assert!(!page.contains("href") && !page.contains("report.html"), "not linked");
}
