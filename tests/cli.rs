//! The command line: help texts, invalid arguments, exit statuses, short runs, signals and kill -9.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use needs::{Need, skip, unprivileged_command};

fn flatwater(arguments: &[&str], directory: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flatwater"))
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .expect("the command runs")
}

fn output_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
}

/// An empty directory, so that a test can check which files a command leaves.
fn empty() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

#[test]
fn every_verb_explains_itself() {
    let command = flatwater::command();
    let names: Vec<String> =
        command.get_subcommands().filter(|verb| !verb.is_hide_set()).map(|verb| verb.get_name().to_owned()).collect();
    assert!(names.len() >= 12, "{names:?}");
    for name in &names {
        let output = flatwater(&[name, "--help"], Path::new("."));
        assert!(output.status.success(), "{name}");
        let help = output_text(&output);
        assert!(help.contains("Usage: flatwater") && help.lines().all(|line| line.chars().count() <= 80), "{help}");
    }
    let listed = output_text(&flatwater(&["--help"], Path::new(".")));
    let first = listed.split("Usage").next().unwrap_or_default().trim();
    assert_eq!(first, "Finds slow file calls, shows where their time went, names the cause and proves\nthe fix");
}

#[test]
fn invalid_arguments_are_refused_with_a_hint() {
    let directory = empty();
    let cases: &[(&[&str], i32, &str)] = &[
        (&["run", "jurnal"], 2, "did you mean 'journal'?"),
        (&["run", "--set", "vm.swapiness=10"], 2, "vm.swappiness"),
        (&["run", "--set", "journal.bytes=0"], 2, "a size from 1 B"),
        (&["run", "-t", "soon"], 2, "such as 200us or 30s"),
        (&["run", "-t", "0s"], 2, "measures nothing"),
        (&["run", "-t", "-5s"], 2, "such as 200us or 30s"),
        (&["run", "-t", "1s", "--cpu", "1023"], 1, "give one of these with --cpu"),
        (&["record", "--", "/nonexistent/command"], 1, "cannot run '/nonexistent/command': No such file"),
        (&["run", "--format", "yaml"], 2, "possible values: text"),
        (&["run", "-d", "/nonexistent", "-t", "1s"], 1, "/nonexistent"),
        (&["run", "-d", "/proc", "-t", "1s"], 1, "/proc"),
        (&["explain", "/nonexistent"], 1, "/nonexistent"),
        (&["record"], 2, "nothing to record"),
        (&["record", "-p", "1", "-t", "0s"], 2, "shows nothing"),
        (&["watch", "-c", "/nonexistent"], 1, "cannot open /nonexistent: No such file or directory\n"),
        (&["record", "-p", "4194999"], 1, "4194999"),
        (&["report", "/", "--format", "csv"], 1, "recording"),
    ];
    for (arguments, status, hint) in cases {
        let output = flatwater(arguments, directory.path());
        assert_eq!(output.status.code(), Some(*status), "{arguments:?}: {}", output_text(&output));
        assert!(output_text(&output).contains(hint), "{arguments:?} does not say '{hint}': {}", output_text(&output));
    }
    let left: Vec<_> = std::fs::read_dir(directory.path()).expect("readable").flatten().collect();
    assert!(left.is_empty(), "a refused command leaves no files: {left:?}");
}

#[test]
fn a_run_ends_with_a_summary_a_recording_and_a_page() {
    let directory = empty();
    let output = flatwater(&["run", "-t", "2s", "-o", "rec", "--format", "json"], directory.path());
    assert!(output.status.success(), "{}", output_text(&output));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON on standard output alone");
    assert_eq!((json["flatwater"].as_u64(), json["kind"].as_str()), (Some(1), Some("explanation")));
    let write = json["operations"].as_array().and_then(|all| all.iter().find(|one| one["name"] == "write"));
    let count = write.and_then(|one| one["count"].as_u64()).expect("writes were timed");
    // Open loop: 5000 writes a second are due on any machine. The last ones may be under way at the end.
    assert!((9_000..=10_000).contains(&count), "{count} writes in 2 s");
    assert!(write.is_some_and(|one| one["from_due"]["p50_ns"].as_u64() >= one["p50_ns"].as_u64()));
    let page = std::fs::read_to_string(directory.path().join("rec/report.html")).expect("the page");
    // Text may contain addresses (SVG's namespace is one), but no attribute may load one.
    let fetches = ["src=\"http", "href=\"http", "url(http", "@import"];
    assert!(page.contains("<html") && !fetches.iter().any(|place| page.contains(place)), "self-contained");
    let names = |left: std::fs::ReadDir| left.flatten().map(|entry| entry.file_name()).collect::<Vec<_>>();
    let left = names(std::fs::read_dir(directory.path()).expect("readable"));
    assert_eq!(left, ["rec"], "the scenario removes its files");
    let again = flatwater(&["explain", "rec"], directory.path());
    assert!(again.status.success() && output_text(&again).contains("journal on host"), "{}", output_text(&again));
}

/// A kernel without a model is refused with the names of those that have one.
#[test]
fn a_kernel_without_a_model_is_refused_by_name() {
    let directory = empty();
    let ran = flatwater(&["run", "journal", "--on", "sim", "--set", "kernel=linux-5.5", "-t", "1s"], directory.path());
    let error = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(!ran.status.success() && error.contains("linux-2.6.32") && error.contains("linux-6.18"), "{error}");
    let listed = output_text(&flatwater(&["scenarios", "--kernels"], directory.path()));
    assert!(listed.contains("linux-6.12: "), "{listed}");
    let absent = "6.4: mm: handle page faults under per-VMA locks";
    assert!(
        listed.split("Changes that the model does not have:").nth(1).is_some_and(|known| known.contains(absent)),
        "{listed}"
    );
}

/// Runs the copy of the command in this directory as a user who may not attach hooks. `None` without root.
fn run_unprivileged(arguments: &[&str], directory: &Path) -> Option<Output> {
    if !rustix::process::geteuid().is_root() {
        skip(Need::Root, "as an unprivileged user", "needs root to become another user");
        return None;
    }
    let mut command = unprivileged_command(directory.join("flatwater"));
    Some(command.args(arguments).current_dir(directory).stdin(Stdio::null()).output().expect("the command runs"))
}

/// A directory writable by all users with a copy of the command: uid 65534 may not be able to read the build's
/// directory.
fn unprivileged_directory() -> tempfile::TempDir {
    let directory = empty();
    std::fs::copy(env!("CARGO_BIN_EXE_flatwater"), directory.path().join("flatwater")).expect("copy");
    for path in [directory.path().to_owned(), directory.path().join("flatwater")] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(path, mode).expect("chmod");
    }
    directory
}

#[test]
fn without_root_a_run_measures_and_reports_what_is_missing() {
    let directory = unprivileged_directory();
    let Some(output) = run_unprivileged(&["run", "-t", "2s", "-o", "rec"], directory.path()) else { return };
    assert!(output.status.success(), "{}", output_text(&output));
    let text = output_text(&output);
    let top = text.split("write()").next().unwrap_or_default();
    assert!(top.contains("ran without kernel tracing") && top.contains("run as root"), "{text}");
    let recording = flatwater_recording::read(&directory.path().join("rec")).expect("a recording");
    let counted = recording.table(flatwater_recording::Table::Workload).expect("a table of the threads");
    assert!(counted.by_entity().any(|(_, rows)| rows.rise("cpu_ns").is_some_and(|ns| ns > 0)), "{counted:?}");
}

#[test]
fn without_root_slow_calls_of_a_command_are_looked_for() {
    let directory = unprivileged_directory();
    let arguments = ["record", "-o", "rec", "--", "sh", "-c", "for i in 1 2 3 4; do sleep 0.5; done"];
    let Some(output) = run_unprivileged(&arguments, directory.path()) else { return };
    // Without observed calls the status is 4, not 0, which scripts take for quiet.
    assert_eq!(output.status.code(), Some(4), "{}", output_text(&output));
    assert!(output_text(&output).contains("not-observed"), "{}", output_text(&output));
    assert!(output_text(&output).contains("no slow call was seen"), "{}", output_text(&output));
    let recording = flatwater_recording::read(&directory.path().join("rec")).expect("a recording");
    let counted = recording.table(flatwater_recording::Table::Workload).expect("a table of the command");
    assert!(counted.entities().iter().any(|entity| entity.name.starts_with("sh(")), "{:?}", counted.entities());
    assert!(recording.table(flatwater_recording::Table::Vmstat).is_some());
}

#[test]
fn without_root_check_names_the_remedy() {
    let directory = unprivileged_directory();
    let Some(output) = run_unprivileged(&["check"], directory.path()) else { return };
    assert!(output.status.success(), "{}", output_text(&output));
    let printed = output_text(&output);
    assert!(printed.lines().all(|line| line.chars().count() <= 80), "{printed}");
    let joined = printed.split_whitespace().collect::<Vec<&str>>().join(" ");
    assert!(joined.contains("-> run as root, or: setcap cap_bpf"), "{printed}");
}
