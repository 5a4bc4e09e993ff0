//! tools/timed.py and tools/budgets.py: the times and the memory of a build from scratch are recorded and printed.

use std::fs;
use std::path::Path;
use std::process::Command;

/// A build of two processes that hold 200 MiB each, together for several samples of timed.py.
const BUILD: &str = r#"hold() { python3 -c '
import os, sys, time
block = bytearray(200 << 20)
open("holds" + sys.argv[1], "w").close()
while not (os.path.exists("holds1") and os.path.exists("holds2")): time.sleep(0.02)
time.sleep(2)' $1; }; hold 1 & hold 2; wait"#;

fn tool(name: &str) -> Command {
    let mut command = Command::new("python3");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools").join(name));
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

fn build(directory: &Path, shell: &str) -> Option<i32> {
    let arguments = ["build", "target/release", "bash", "-c", shell];
    tool("timed.py").args(arguments).current_dir(directory).status().expect("python3 runs").code()
}

fn recorded(directory: &Path) -> Option<serde_json::Value> {
    let text = fs::read_to_string(directory.join("target/build-times.json")).ok()?;
    Some(serde_json::from_str(&text).expect("JSON"))
}

#[test]
fn a_build_from_scratch_records_its_times_and_the_memory_of_one_and_of_all_processes() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::create_dir(directory.path().join("target")).expect("created");
    assert_eq!(build(directory.path(), BUILD), Some(0));
    let first = recorded(directory.path()).expect("recorded");
    let figure = |name: &str| first[name].as_f64().unwrap_or_else(|| panic!("no {name}: {first}"));
    assert!(figure("wall_s") >= 2.0 && figure("cpu_s") > 0.0, "{first}");
    assert!((200.0..390.0).contains(&figure("process_mib")), "one process: {first}");
    assert!(figure("all_mib") >= 400.0, "both processes: {first}");

    // A build that only updates says nothing about a build from scratch.
    fs::create_dir(directory.path().join("target/release")).expect("created");
    assert_eq!(build(directory.path(), "true"), Some(0));
    assert_eq!(recorded(directory.path()), Some(first));
}

#[test]
fn a_build_that_fails_keeps_its_status_and_records_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::create_dir(directory.path().join("target")).expect("created");
    assert_eq!(build(directory.path(), "exit 7"), Some(7));
    assert_eq!(recorded(directory.path()), None);
}

#[test]
fn budgets_print_what_the_builds_used_or_that_it_was_not_measured() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("target")).expect("created");
    fs::create_dir(at("tests")).expect("created");
    fs::write(at("tests/style-words.txt"), "anyword\n").expect("written");
    for page in ["README.md", "ARCHITECTURE.md", "SECURITY.md", "CHANGELOG.md"] {
        fs::write(at(page), "").expect("written");
    }
    let used = r#"{"wall_s": 90, "cpu_s": 120, "process_mib": 1536, "all_mib": 2560}"#;
    fs::write(at("target/demo-times.json"), used).expect("written");
    let stage = used.replace('{', r#"[{"stage": "build", "passed": false, "#) + "]";
    fs::write(at("target/test-times.json"), stage).expect("written");
    let git = Command::new("git").args(["init", "-q"]).current_dir(directory.path()).status().expect("git runs");
    assert!(git.success());
    let output = tool("budgets.py").current_dir(directory.path()).output().expect("python3 runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let line = |name: &str| {
        let found = text.lines().find(|line| line.starts_with(name) && !line.contains("budget"));
        found.unwrap_or_else(|| panic!("no {name}: {text}{}", String::from_utf8_lossy(&output.stderr)))
    };
    let memory = "1.5   min, 2.0 min CPU, 1.5 GiB in the largest process, 2.5 GiB in all";
    assert!(line("build of `make demo`").ends_with(memory), "{text}");
    assert!(line("`make test`, build").ends_with(&format!("{memory}, FAILED")), "{text}");
    assert!(line("build of `make build`").ends_with("not measured"), "{text}");
}
