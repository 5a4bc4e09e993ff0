//! The page of a fleet.

use flatwater_fleet::report;

use crate::{day, facts, made, options};

#[tokio::test(flavor = "multi_thread")]
async fn the_page_shows_every_host_and_tells_grey_from_white() {
    let folder = tempfile::tempdir().expect("a folder");
    let (fleet, truth) = made(folder.path(), &options(50, 24, true)).await;
    let page = report::page(&fleet, &facts(&fleet, day(0, 24)).await, None);
    assert!(page.contains("50 hosts in") && page.contains("host-00049"), "{}", &page[..2_000]);
    assert!(page.contains(&format!("{} of {} host-hours were not observed", truth.hours_not_observed, 50 * 24)));
    assert!(!page.contains("{{"), "every mark is filled");
    assert!(page.contains("<polygon") && page.contains("page-writeback"));
}
