//! The form of messages: wrong inputs of every verb give one line that names the wrong thing and says what to do, without
//! texts of the operating system or of libraries that a user cannot read.

use std::path::Path;
use std::process::{Command, Stdio};

use clap::builder::ValueParser;

const LENGTH_MAX: usize = 600;
/// What must not appear: numbers of errors, names of handles, Rust's words for errors.
const LEAKS: &[&str] = &[
    "os error",
    "/proc/self/fd",
    "entity not found",
    "invalid digit",
    "unexpected end of file",
    "stream did not contain",
    "Some(",
    "None",
    "Err(",
];

fn flatwater(arguments: &[&str], directory: &Path) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flatwater"));
    let output =
        command.args(arguments).current_dir(directory).stdin(Stdio::null()).output().expect("the command runs");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The fault of a message; `None` if its form is right.
fn fault(message: &str) -> Option<String> {
    let lines: Vec<&str> = message.lines().collect();
    let [line] = lines.as_slice() else { return Some(format!("{} lines", lines.len())) };
    if !line.starts_with("flatwater: ") {
        return Some("does not begin with the program's name".to_owned());
    }
    if line.chars().count() > LENGTH_MAX {
        return Some(format!("{} characters", line.chars().count()));
    }
    if let Some(leak) = LEAKS.iter().find(|leak| line.contains(*leak)) {
        return Some(format!("contains '{leak}'"));
    }
    let mut parts: Vec<&str> = line.split([':', ';']).map(str::trim).filter(|part| part.len() > 8).collect();
    let count = parts.len();
    parts.sort_unstable();
    parts.dedup();
    (parts.len() < count).then(|| "says one thing twice".to_owned())
}

#[test]
fn the_form_of_messages_is_judged() {
    assert_eq!(fault("flatwater: cannot open /x: Permission denied; give another file\n"), None);
    for wrong in [
        "flatwater: cannot open /x: Permission denied (os error 13)\n",
        "flatwater: cannot open /x: Permission denied: Permission denied\n",
        "flatwater: cannot write /proc/self/fd/4/x\n",
        "flatwater: one\ntwo\n",
        "error: no name\n",
        "",
    ] {
        assert!(fault(wrong).is_some(), "{wrong}");
    }
}

/// The commands with values that are parsed: the words before the option, the option, its name in messages.
fn parsed_options(command: &clap::Command, before: &[&str], found: &mut Vec<(Vec<String>, String)>) {
    let free = [ValueParser::string().type_id(), ValueParser::path_buf().type_id(), ValueParser::os_string().type_id()];
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help") {
        let words = [before, &[verb.get_name()]].concat();
        for option in verb.get_arguments().filter(|option| option.get_action().takes_values()) {
            let is_free =
                free.contains(&option.get_value_parser().type_id()) && option.get_possible_values().is_empty();
            if is_free || option.is_hide_set() {
                continue;
            }
            let id = option.get_id().as_str().to_uppercase();
            let (given, name) = match option.get_long() {
                Some(long) => (format!("--{long}=="), format!("--{long}")),
                None if option.is_required_set() => ("=".to_owned(), format!("<{id}>")),
                None => ("=".to_owned(), format!("[{id}]")),
            };
            found.push((words.iter().map(|&word| word.to_owned()).chain([given]).collect(), name));
        }
        parsed_options(verb, &words, found);
    }
}

/// Every option of every verb that takes a number, a size, a time or a word of a list.
#[test]
fn a_wrong_value_of_any_option_is_refused_in_one_line_that_names_the_option() {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut options, mut wrong) = (Vec::new(), Vec::new());
    parsed_options(&flatwater::command(), &[], &mut options);
    for (words, name) in &options {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (code, message) = flatwater(&words, directory.path());
        let named = message.contains(name) && message.contains(&format!("flatwater {}", words[0]));
        let other = || (!named || code != Some(2)).then(|| format!("status {code:?}, or {name} is not named"));
        if let Some(fault) = fault(&message).or_else(other) {
            wrong.push(format!("{}: {fault}: {message}", words.join(" ")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(options.len() >= 40, "only {} options were tried", options.len());
}

const RECORDING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/recordings-3c238a6/host");

/// (arguments, status, part of the message). The part says what to do.
const WRONG: &[(&[&str], i32, &str)] = &[
    (&["run", "nothing-like-this"], 2, "`flatwater scenarios` lists"),
    (&["run", "/etc/passwd"], 2, "/etc/passwd"),
    (&["run", "-t", "1s", "-o", "/dev/full"], 1, "give another with -o"),
    (&["run", "-t", "1s", "-o", "/proc/x"], 1, "give another with -o"),
    (&["run", "journal", "--kernel", "/x"], 2, "needs --on vm"),
    (&["record", "--group", "no-such-group", "--", "true"], 2, "no-such-group"),
    (&["record", "--user", "no-such-user", "--", "true"], 2, "`getent passwd` lists"),
    (&["record", "--cgroup", "/no-such-cgroup"], 1, "give a directory under /sys/fs/cgroup"),
    (&["record", "--program", "no-such-program"], 1, "give the name of the executable"),
    (&["record", "--btf", "/nonexistent", "--", "true"], 1, "pahole"),
    (&["record", "--unit", "no-such.service"], 1, "systemctl status"),
    (&["record", "-t", "1s"], 2, "nothing to record: give -p PID"),
    (&["record", "--format", "perfetto", "--", "true"], 2, "`flatwater report RECORDING --format perfetto"),
    (&["watch", "-c", "/nonexistent"], 1, "cannot open /nonexistent: No such file or directory"),
    (&["watch", "-c", "/etc/passwd"], 2, "/etc/passwd"),
    (&["watch", "dump", "-c", "watch.toml"], 1, "start it, or give its configuration with -c"),
    (&["guard", "list", "-c", "watch.toml"], 1, "start it, or give its configuration with -c"),
    (&["guard", "show", "x"], 2, "expected a whole number"),
    (&["guard", "release"], 2, "<ID>"),
    (&["top", "--socket", "/nonexistent/socket"], 2, "/nonexistent/socket"),
    (&["check", "--btf", "/nonexistent"], 1, "pahole"),
    (&["explain", "/nonexistent"], 1, "give the output directory of a run"),
    (&["explain", RECORDING, "--focus", "op="], 2, "give for example"),
    (&["explain"], 2, "`flatwater explain --help`"),
    (&["import", "/nonexistent"], 1, "/nonexistent"),
    (&["import", "/"], 1, "pipe its content"),
    (&["import", "/etc/passwd"], 1, "`flatwater import --list`"),
    (&["report", RECORDING, "--format", "csv"], 2, "name it with --table"),
    (&["report", RECORDING, "--format", "csv", "--table", "x"], 2, "choose one of"),
    (&["report", RECORDING, "--format", "perfetto"], 2, "give a file with -o"),
    (&["report", RECORDING, "-o", "/dev/full"], 1, "/dev/full"),
    (&["report", RECORDING, "-o", "/nonexistent/x"], 1, "/nonexistent"),
    (&["report", RECORDING, "--chart", "nothing"], 2, "give calls, TABLE:COLUMN"),
    (&["report", RECORDING, "--format", "nothing"], 2, "possible values: text, json"),
    (&["summary", RECORDING, "-o", "/dev/full"], 1, "/dev/full"),
    (&["summary", "/nonexistent"], 1, "give the output directory of a run"),
    (&["causes", "jurnal-commit"], 2, "did you mean 'journal-commit'?"),
    (&["compare", "/nonexistent", RECORDING], 1, "give the output directory of a run"),
    (&["compare", RECORDING, RECORDING, "--judge", "fdatasnyc.p99"], 2, "did you mean 'fdatasync'?"),
    (&["compare", RECORDING], 2, "<B>"),
    (&["verify", "full-cgroup"], 2, "give --fix NAME or --set"),
    (&["verify", "full-cgroup", "--fix", "x"], 2, "it has limit"),
    (&["verify", "full-cgroup", "--fix", "limit", "--judge", "x"], 2, "[OPERATION.]FIGURE"),
    (&["scenarios", "nothing"], 2, "`flatwater scenarios` lists"),
    (&["whatif", "journal", "--sweep", "x"], 2, "give KEY=FROM..TO"),
    (&["whatif", "journal", "--sweep", "vm.swapiness=1,2"], 2, "vm.swappiness"),
    (&["whatif", "journal", "--sweep", "vm.swappiness=1,2", "--goal", "write"], 2, "[OPERATION.]QUANTILE"),
    (&["whatif", "journal"], 2, "--sweep"),
    (&["probe", "/nonexistent"], 2, "give an existing directory"),
    (&["probe", "-t", "5s"], 2, "10 to 60 s"),
    (&["reproduce", "/nonexistent", "-o", "x"], 1, "give the output directory of a run"),
    (&["vm", "kernel", "--kernel", "/nonexistent"], 1, "use --kernel PATH"),
    (&["precursor", "-p", "2147483647", "-f", "x"], 1, "it must exist"),
    (&["precursor", "--leftovers", "--shm", "/nonexistent"], 1, "--shm"),
    (&["precursor"], 2, "--pid"),
    (&["restore", "--nothing"], 2, "`flatwater restore --help`"),
    (&["completions", "nothing"], 2, "possible values: bash"),
    (&["completions", "bash", "-o", "x"], 2, "redirect the output"),
    (&["nothing"], 2, "`flatwater --help`"),
];

#[test]
fn wrong_inputs_of_every_verb_give_one_line_that_says_what_to_do() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("watch.toml"), "[metrics]\nsocket = \"/nonexistent/socket\"\n")
        .expect("written");
    let mut wrong = Vec::new();
    for (arguments, status, part) in WRONG {
        let (code, message) = flatwater(arguments, directory.path());
        let other = || {
            (code != Some(*status) || !message.contains(part))
                .then(|| format!("status {code:?}, wanted {status}, '{part}'"))
        };
        if let Some(fault) = fault(&message).or_else(other) {
            wrong.push(format!("{}: {fault}: {message}", arguments.join(" ")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let tried: Vec<&str> = WRONG.iter().map(|(arguments, ..)| arguments[0]).collect();
    for verb in flatwater::command().get_subcommands().filter(|verb| !verb.is_hide_set()) {
        assert!(tried.contains(&verb.get_name()), "no wrong input of {} is tried", verb.get_name());
    }
}

/// A full file system: the message named /proc/self/fd/4/header.json, twice.
#[test]
fn a_recording_that_cannot_be_written_is_named_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("vmstat.txt");
    std::fs::write(&log, VMSTAT).expect("written");
    // No file may grow beyond one block of 512 bytes.
    let script = format!("ulimit -f 1; exec {} import vmstat.txt -o rec", env!("CARGO_BIN_EXE_flatwater"));
    let mut command = Command::new("sh");
    let output = command.args(["-c", &format!("trap '' XFSZ; {script}")]).current_dir(directory.path()).output();
    let output = output.expect("sh runs");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    let message: String =
        message.lines().filter(|line| line.starts_with("flatwater: ")).map(|line| format!("{line}\n")).collect();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert_eq!(fault(&message), None, "{message}");
    assert!(message.contains("/rec/"), "{message}");
}

const VMSTAT: &str = "procs -----------memory---------- ---swap-- -----io---- -system-- ------cpu-----
 r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st
 1  0      0 812345  12345 456789    0    0     1     2   50   90  1  1 98  0  0
 0  0      0 812000  12345 456799    0    0     0     4   51   91  1  1 98  0  0
 0  0      0 811900  12345 456809    0    0     0     4   52   92  1  1 98  0  0
";
