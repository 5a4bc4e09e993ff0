//! Opens the pages in headless Chromium (`web/test/browser.mjs` lists the checks).

use std::path::Path;
use std::process::Command;

use crate::report::pages;

/// Needs node, npm and Chromium, which `make test` installs. `cargo test -- --skip in_a_browser` skips the test on
/// machines that cannot have them.
#[test]
fn pages_work_in_a_browser() {
    let web = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/report/web"));
    if !web.join("node_modules/playwright-core").exists() {
        let options = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"];
        let done = Command::new("npm").args(options).current_dir(web).status();
        let done = done.expect("npm runs: install nodejs and npm (tools/setup.sh test)");
        assert!(done.success(), "npm ci in {}", web.display());
    }
    let folder = pages::written();
    let done = Command::new("node").arg("test/browser.mjs").arg(&folder).current_dir(web).output();
    let done = done.expect("node runs: install nodejs (tools/setup.sh test)");
    let message = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{message}");
    assert!(message.contains("checks passed"), "{message}");
}
