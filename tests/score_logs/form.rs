//! Checks the rules of the corpus: each log is listed once, has a source and contains output of tools only.

use std::collections::BTreeSet;
use std::path::Path;

use crate::score_logs::corpus::{self, Kind, Log};

const LOGS_MIN: usize = 120;
const CONTROLS_MIN: usize = 25;

/// Beginnings of sentences that people write but tools do not print.
const PROSE: &[&str] = &[
    "Hi ",
    "Hi,",
    "Hello",
    "Dear ",
    "Thanks",
    "Thank you",
    "Please ",
    "Regards",
    "Cheers",
    "I ",
    "I'm ",
    "I've ",
    "We ",
    "Note that",
    "However",
    "Also, ",
    "When ",
    "Here ",
    "So ",
    "And ",
    "But ",
    "Signed-off-by",
    "Reported-by",
    "Fixes:",
    "Cc:",
    "diff --git",
    "+++ ",
    "--- ",
];

/// All breaches of the rules, with file and line, or the name of the log.
pub fn breaches(logs: &[Log]) -> Vec<String> {
    let mut found = counts(logs);
    for log in logs {
        entry(log, &mut found);
        for (file, path) in log.files.iter().zip(log.paths()) {
            match std::fs::read_to_string(&path) {
                Ok(text) => content(file, &text, &mut found),
                Err(error) => found.push(format!("{}: {file}: {error}", log.name)),
            }
        }
    }
    unlisted(logs, &mut found);
    found
}

fn counts(logs: &[Log]) -> Vec<String> {
    let mut found = Vec::new();
    let controls = logs.iter().filter(|log| log.is_control()).count();
    if logs.len() < LOGS_MIN {
        found.push(format!("{} logs, fewer than {LOGS_MIN}", logs.len()));
    }
    if controls < CONTROLS_MIN {
        found.push(format!("{controls} controls, fewer than {CONTROLS_MIN}"));
    }
    let names: BTreeSet<&str> = logs.iter().map(|log| log.name.as_str()).collect();
    if names.len() != logs.len() {
        found.push("a name is used twice".to_owned());
    }
    found
}

fn entry(log: &Log, found: &mut Vec<String>) {
    let word = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    let known = |cause: &str| flatwater_explain::cause::find(cause).is_some() || cause == "not-enough";
    let mut say = |what: String| found.push(format!("{}: {what}", log.name));
    if !word(&log.name) {
        say("the name has characters other than letters, digits and hyphens".to_owned());
    }
    let cause_known = match log.kind() {
        Kind::Other => word(log.cause.trim_start_matches("other:")),
        _ => known(&log.cause),
    };
    if !cause_known {
        say(format!("unknown cause {}", log.cause));
    }
    for cause in log.also.iter().filter(|cause| !known(cause) || **cause == log.cause) {
        say(format!("also {cause}: unknown, or the cause itself"));
    }
    if log.files.is_empty() || log.formats.is_empty() || !log.formats.iter().all(|format| word(format)) {
        say("files or formats are missing".to_owned());
    }
    if log.source.len() < 8 {
        say("no source".to_owned());
    }
    if !log.confirmed.ends_with('.') || log.confirmed.len() < 20 {
        say("`confirmed` is not a sentence that says who confirmed the cause".to_owned());
    }
    if log.notes.len() > 200 {
        say("the notes are longer than 200 bytes".to_owned());
    }
}

fn content(file: &str, text: &str, found: &mut Vec<String>) {
    if text.trim().is_empty() || text.len() > 64 << 10 {
        found.push(format!("{file}: empty, or over 64 KiB"));
    }
    for (at, line) in text.lines().enumerate() {
        let bare = line.trim_start_matches(['>', ' ', '\t']);
        if PROSE.iter().any(|start| bare.starts_with(start)) {
            found.push(format!("{file}:{}: prose: {line}", at + 1));
        }
        if mail_address(bare) {
            found.push(format!("{file}:{}: an address: {line}", at + 1));
        }
    }
}

/// `user@host.tld`, but not systemd's `user@1000.service`.
fn mail_address(line: &str) -> bool {
    line.split(|letter: char| !(letter.is_ascii_alphanumeric() || "@._-".contains(letter))).any(|word| {
        let Some((user, host)) = word.split_once('@') else { return false };
        let end = host.rsplit('.').next().unwrap_or_default();
        !user.is_empty()
            && host.contains('.')
            && end != "service"
            && end.len() >= 2
            && end.bytes().all(|byte| byte.is_ascii_alphabetic())
    })
}

fn unlisted(logs: &[Log], found: &mut Vec<String>) {
    let listed: BTreeSet<&str> = logs.iter().flat_map(|log| log.files.iter().map(String::as_str)).collect();
    let root = corpus::folder().join("logs");
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(&folder).expect("tests/corpus/logs").flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path);
            } else if !listed.contains(relative(&path, &root).as_str()) {
                found.push(format!("{}: no entry lists this file", relative(&path, &root)));
            }
        }
    }
}

fn relative(path: &Path, root: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

#[test]
fn mail_addresses_are_distinguished_from_units() {
    assert!(mail_address("from user@example.org to"));
    assert!(!mail_address("/user.slice/user@1000.service/app.slice"));
    assert!(!mail_address("[user@host ~]$ uname -r"));
}
