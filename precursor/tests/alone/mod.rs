//! Runs a test alone in a process: one that changes signal handlers or descriptors, or forks.
//!
//! cargo-nextest gives each test its own process; `cargo test` runs all tests of this program in one.

use std::process::Command;

const VARIABLE: &str = "PRECURSOR_ALONE";

/// True in the process that runs only this test. Elsewhere starts that process, checks that the test passed there, and
/// returns false.
pub fn alone(test: &str) -> bool {
    if std::env::var_os(VARIABLE).is_some_and(|value| value == test) {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(VARIABLE, test);
    let done = command.output().unwrap();
    let output = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    println!("{output}");
    assert!(done.status.success() && output.contains("1 passed"), "{test}: {:?}", done.status);
    false
}
