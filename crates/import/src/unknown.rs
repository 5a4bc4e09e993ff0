//! Handles lines that no importer knows. Prompts, commands and paths announce the lines below them; sentences are
//! ignored.

use super::builder::{Builder, Ignored};
use super::text::{Line, shown};
use super::{Unknown, settings};

/// Remembers prompts, ignores separators and prose, and counts all other lines as not understood.
pub fn unknown_line(line: Line<'_>, blank_from: u32, builder: &mut Builder, unknown: &mut Unknown) {
    if let Some(command) = prompt(line.text) {
        builder.understood_line(&line);
        builder.context_mut().command = Some(command.to_owned());
        return;
    }
    if settings::by_command(line.text, builder) {
        builder.understood_line(&line);
        return;
    }
    // head, tail and grep print the path of the file above its lines.
    if let Some(command) = of_proc(line.text).or_else(|| typed(line.text)) {
        builder.understood_line(&line);
        builder.context_mut().command = Some(command);
        return;
    }
    let path = line.text.trim().trim_start_matches("==>").trim_end_matches("<==").trim().trim_end_matches(':');
    if path.starts_with('/') && !path.contains(char::is_whitespace) {
        builder.understood_line(&line);
        builder.context_mut().command = Some(format!("cat {path}"));
        return;
    }
    // Status lines: trace-cmd and perf print the number of CPUs first; bcc and bpftrace announce what they do and echo
    // the key that ended them; journalctl says where the journal begins and where the machine rebooted.
    let status = [
        "-- Logs begin",
        "-- Journal begins",
        "-- Reboot --",
        "-- Boot ",
        "-- No entries",
        "cpus=",
        "^C",
        "Tracing ",
        "Attaching ",
        "Sampling ",
        "Counting ",
        "Reading load",
    ]
    .iter()
    .any(|start| line.text.trim_start().starts_with(start));
    if line.text.chars().all(|c| !c.is_alphanumeric()) || status {
        builder.ignore(Ignored::Status, u64::from(line.lines));
        return;
    }
    if is_prose(line.text) {
        builder.ignore(Ignored::Prose, u64::from(line.lines));
        unknown.run = unknown.run.saturating_add(1);
        return;
    }
    builder.missed_line(&line, blank_from);
    unknown.run = unknown.run.saturating_add(1);
    unknown.lines += 1;
    unknown.first.get_or_insert_with(|| (line.number, shown(line.text)));
}

/// Whether the line is a sentence that a person wrote around the log: words without figures.
fn is_prose(text: &str) -> bool {
    let letters = text.chars().filter(|c| c.is_alphabetic()).count();
    let written = text.chars().filter(|c| !c.is_whitespace()).count();
    text.split_whitespace().count() >= 5
        && !text.contains(|c: char| c.is_ascii_digit() || "=<>|_/[]{}".contains(c))
        && letters * 10 >= written * 9
}

/// `/proc/4350/comm = xfs_io` or `/proc/4350/stack : ...`: the process whose stack follows.
fn of_proc(text: &str) -> Option<String> {
    let path = text.trim().strip_prefix("/proc/")?.split([' ', ':', '=']).next()?;
    let (pid, file) = path.split_once('/')?;
    let known = ["comm", "stack", "wchan", "status", "cmdline"].contains(&file);
    (known && pid.bytes().all(|c| c.is_ascii_digit())).then(|| format!("cat /proc/{pid}/stack"))
}

/// A command without a prompt, alone on its line.
fn typed(text: &str) -> Option<String> {
    const TOOLS: &[&str] = &[
        "cat",
        "iostat",
        "vmstat",
        "sar",
        "free",
        "top",
        "ps",
        "dmesg",
        "uptime",
        "grep",
        "numactl",
        "numastat",
        "slabtop",
        "atop",
        "mpstat",
        "pidstat",
        "collectl",
        "dstat",
        "perf",
        "strace",
        "bpftrace",
        "fio",
        "sysctl",
        "uname",
        "df",
        "lsblk",
        "mount",
        "sudo",
        "journalctl",
        "kubectl",
        "docker",
        "nproc",
    ];
    let text = text.trim().trim_start_matches(['$', '#', '%']).trim_start();
    let mut words = text.split_whitespace();
    let first = words.next()?;
    let options = words.clone().all(|word| {
        word.starts_with(['-', '/', '|', '\'', '"', '>'])
            || word.bytes().all(|c| c.is_ascii_alphanumeric() || b"._-/=:,".contains(&c))
    });
    let argued = text.contains(" -") || text.contains(" /") || words.clone().count() <= 2;
    (TOOLS.contains(&first) && options && argued && words.count() <= 12).then(|| text.to_owned())
}

/// The command after a shell prompt: `$ vmstat 5`, `root@db:~# free -m`, `[me@host dir]$ sar -B`.
pub fn prompt(text: &str) -> Option<&str> {
    let text = text.trim();
    let at = text.find(['$', '#', '%'])?;
    let (before, after) = text.split_at_checked(at)?;
    let command = after.get(1..)?.strip_prefix(' ')?.trim();
    let before = before.trim();
    let shell = before.is_empty()
        || before.contains('@')
        || before.ends_with(['~', ']', '/', ':'])
        || ["sh-", "bash-"].iter().any(|shell| before.starts_with(shell));
    (shell && !command.is_empty()).then_some(command)
}

#[cfg(test)]
mod tests {
    use super::super::text::is_break;
    use super::{is_prose, of_proc, prompt, typed};

    #[test]
    fn prompts_and_breaks() {
        assert_eq!(prompt("$ vmstat 5"), Some("vmstat 5"));
        assert_eq!(prompt("root@db1:~# free -m"), Some("free -m"));
        assert_eq!(prompt("[me@host dir]$ sar -B 5"), Some("sar -B 5"));
        assert_eq!(prompt("100% of cases"), None);
        assert_eq!(typed("$numactl --hardware").as_deref(), Some("numactl --hardware"));
        assert_eq!(typed("cat /proc/buddyinfo").as_deref(), Some("cat /proc/buddyinfo"));
        assert_eq!(typed("top of the page, he wrote"), None);
        assert_eq!(of_proc("/proc/4350/comm = xfs_io").as_deref(), Some("cat /proc/4350/stack"));
        for text in ["...", "[...]", "…..", "<snip>", "--- ... ---"] {
            assert!(is_break(text), "{text}");
        }
        assert!(!is_break("a..."));
        assert!(is_prose("our shop has been slow since last week, without a known cause"));
        assert!(
            !is_prose("Device rrqm/s wrqm/s r/s w/s rkB/s") && !is_prose("total used free") && !is_prose("a b c d 1")
        );
    }
}
