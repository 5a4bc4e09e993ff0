//! The commands of a report's fixes, run as printed by tests/programs/printed.py.

use std::process::Command;

/// Runs Python with `printed` imported; returns what it printed.
fn python(script: &str) -> String {
    let place = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/programs");
    let ran = Command::new("python3").args(["-B", "-c", script]).current_dir(place).output().expect("python3 starts");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).expect("UTF-8")
}

/// An undo that failed was silent, and one that took too long skipped the others.
#[test]
fn every_command_of_an_undo_runs_and_every_error_is_reported() {
    let script = r#"
import printed
fix = {"commands": ["echo 7", "exit 3"], "undo": ["echo OLD > /dev/full", "sleep 9", "echo OLD >&2; false"]}
ran = []
def run(line):
    ran.append(line)
    return printed.shell(line, 0.5)
try:
    with printed.applied(fix, run) as errors:
        raise ValueError("the measurement failed")
except ValueError:
    pass
print(ran)
print("\n".join(errors))
"#;
    let output = python(script);
    assert!(
        output.starts_with("['echo 7', 'exit 3', 'echo 7 > /dev/full', 'sleep 9', 'echo 7 >&2; false']"),
        "{output}"
    );
    for error in [
        "not applied: exit 3: exit status 3",
        "not undone: echo 7 > /dev/full: ",
        "not undone: sleep 9: not finished after 0.5 s",
        "not undone: echo 7 >&2; false: 7",
    ] {
        assert!(output.lines().any(|line| line.starts_with(error)), "{error} in {output}");
    }
}
