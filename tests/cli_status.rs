//! The exit status of each verb (crates/cli/src/status.rs), old option names, and signals.

use std::path::Path;
use std::process::{Command, Output, Stdio};

const RECORDINGS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/recordings-3c238a6");

fn flatwater(arguments: &[&str], directory: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flatwater"));
    command.args(arguments).current_dir(directory).stdin(Stdio::null()).output().expect("the command runs")
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
}

#[test]
fn each_verb_ends_with_its_documented_status() {
    let directory = tempfile::tempdir().expect("a directory");
    let log = "procs -----------memory---------- ---swap-- -----io---- -system-- ------cpu-----
 r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st
 1  0      0 812345  12345 456789    0    0     1     2   50   90  1  1 98  0  0
";
    std::fs::write(directory.path().join("moment.txt"), log).expect("written");
    let config = "[metrics]\nsocket = \"/nonexistent/socket\"\n";
    std::fs::write(directory.path().join("watch.toml"), config).expect("written");
    let (host, sim) = (format!("{RECORDINGS}/host"), format!("{RECORDINGS}/sim"));
    let (host, sim) = (host.as_str(), sim.as_str());
    let cases: &[(&[&str], i32)] = &[
        (&["--help"], 0),
        (&["--version"], 0),
        (&[], 2),
        (&["check"], 0),
        (&["explain", sim], 0),
        (&["explain", "--exit-code", sim], 10),
        (&["explain", "moment.txt"], 4),
        (&["explain", "--exit-code", "moment.txt"], 4),
        (&["explain", "/nonexistent"], 1),
        (&["import", "moment.txt"], 4),
        (&["import", "--list"], 0),
        (&["import", "/nonexistent"], 1),
        (&["report", sim], 0),
        (&["report", "/nonexistent"], 1),
        (&["summary", sim, "-o", "sim.parquet"], 0),
        (&["causes"], 0),
        (&["causes", "nothing"], 2),
        (&["compare", sim, sim], 3),
        (&["compare", host, "/nonexistent"], 1),
        (&["compare", sim, sim, "--judge", "x"], 2),
        (&["verify", "full-cgroup"], 2),
        (&["run", "journal-2.6.32"], 2),
        (&["run", "journal", "--on", "sim", "-t", "2s", "-o", "model"], 0),
        (&["scenarios"], 0),
        (&["whatif", "journal", "--sweep", "x"], 2),
        (&["reproduce", "/nonexistent", "-o", "x"], 1),
        (&["probe", "/nonexistent"], 2),
        (&["vm", "kernel", "--kernel", "/nonexistent"], 1),
        (&["precursor", "--leftovers"], 0),
        (&["precursor", "-p", "2147483647", "-f", "x"], 1),
        (&["watch", "--check"], 0),
        (&["guard", "list", "-c", "watch.toml"], 1),
        (&["top", "--socket", "/nonexistent"], 2),
        (&["completions", "man"], 0),
        (&["restore", "--nothing"], 2),
    ];
    for (arguments, status) in cases {
        let output = flatwater(arguments, directory.path());
        assert_eq!(output.status.code(), Some(*status), "{arguments:?}: {}", printed(&output));
    }
    let verbs: Vec<&str> = cases.iter().filter_map(|(arguments, _)| arguments.first().copied()).collect();
    let command = flatwater::command();
    let names = command.get_subcommands().filter(|verb| !verb.is_hide_set()).map(clap::Command::get_name);
    // The next test records.
    for name in names.filter(|name| *name != "record") {
        assert!(verbs.contains(&name), "no status of {name} is tried");
    }
}

/// The status of the command was printed and dropped.
#[test]
fn record_passes_the_commands_status_on() {
    let directory = tempfile::tempdir().expect("a directory");
    for (script, status) in [("exit 7", 7), ("kill -TERM $$", 143)] {
        let output = flatwater(&["record", "--", "sh", "-c", script], directory.path());
        assert_eq!(output.status.code(), Some(status), "{script}: {}", printed(&output));
    }
}

/// The shell of a script starts background jobs with SIGINT ignored: `kill -INT` never ended `record`.
#[test]
fn an_interrupt_from_a_script_ends_a_recording() {
    let directory = tempfile::tempdir().expect("a directory");
    let script = "\"$1\" record -o rec -- sh -c 'echo $$ >child; touch begun; exec sleep 90' & pid=$!
        for i in $(seq 300); do [ -e begun ] && break; sleep 0.1; done
        kill -INT $pid; wait $pid; echo \"status $?\"; kill $(cat child); true";
    let mut command = Command::new("timeout");
    command.args(["100", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_flatwater")]).current_dir(directory.path());
    let output = command.stdin(Stdio::null()).output().expect("sh runs");
    let text = printed(&output);
    // The recording has no planned length, so that a signal is its normal end; half a second may be too little to judge.
    assert!(text.contains("status 0") || text.contains("status 4"), "{text}");
    assert!(directory.path().join("rec/header.json").exists(), "{text}");
}

#[test]
fn old_names_of_options_work_and_are_reported_in_one_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let sim = format!("{RECORDINGS}/sim");
    let new = flatwater(&["explain", &sim, "--format", "json"], directory.path());
    assert!(new.status.success() && new.stderr.is_empty(), "{}", printed(&new));
    for old in [&["-O", "json"][..], &["-Ojson"], &["--output", "json"], &["--output=json"]] {
        let output = flatwater(&[&["explain", &sim], old].concat(), directory.path());
        assert_eq!(output.stdout, new.stdout, "{old:?}");
        let warning = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(warning.lines().count() == 1 && warning.contains("is now --format"), "{old:?}: {warning}");
    }
    let output = flatwater(&["summary", &sim, "--to", "sim.parquet"], directory.path());
    assert!(printed(&output).contains("--to is now --out") && directory.path().join("sim.parquet").exists());
    // Words of a recorded command are its own.
    let output = flatwater(&["vm", "exec", "--machine", "nothing", "--", "x", "-O"], directory.path());
    assert!(!printed(&output).contains("is now"), "{}", printed(&output));
    let help = printed(&flatwater(&["explain", "--help"], directory.path()));
    assert!(!help.contains("-O") && !help.contains("--output"), "{help}");
}

#[test]
fn help_is_grouped_by_task_and_short_help_is_shorter() {
    let directory = tempfile::tempdir().expect("a directory");
    let help = printed(&flatwater(&["--help"], directory.path()));
    let titles =
        ["Observe this machine:", "Read recordings and logs:", "Prove a cause or a fix:", "Prevent stalls", "Set up:"];
    let places: Vec<usize> =
        titles.iter().map(|title| help.find(title).unwrap_or_else(|| panic!("{title}: {help}"))).collect();
    assert!(places.is_sorted() && help.contains("Exit status:") && help.contains("Examples:"), "{help}");
    for verb in flatwater::command().get_subcommands().filter(|verb| !verb.is_hide_set()) {
        let name = verb.get_name();
        let [long, short] = ["--help", "-h"].map(|option| printed(&flatwater(&[name, option], directory.path())));
        assert!(long.matches("\n    $ ").count() >= 2 && long.contains("Exit status:"), "{long}");
        assert!(!short.contains("Exit status:") && short.lines().count() < long.lines().count(), "{short}");
        assert!(short.contains(&format!("flatwater {name} --help")), "{short}");
        for line in long.lines().chain(short.lines()) {
            assert!(line.chars().count() <= 80, "{name}: {line}");
        }
    }
}
