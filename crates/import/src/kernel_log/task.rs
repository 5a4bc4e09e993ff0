//! Parses lines that name a task above its stack: of SysRq-w and -t, the hung-task report, crash, and files below
//! /proc.

use crate::number::leading;
use flatwater_recording::ReportedBy;

/// A task and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    pub name: String,
    pub pid: Option<u32>,
    pub state: Option<char>,
    pub reported_by: ReportedBy,
    /// Number of tasks with the following stack; scripts that sort stacks print it.
    pub count: u32,
}

impl Task {
    fn new(reported_by: ReportedBy, name: &str, pid: Option<u32>, state: Option<char>) -> Task {
        Task { name: name.to_owned(), pid, state, reported_by, count: 1 }
    }
}

/// The task that a line names.
#[must_use]
pub fn task(message: &str) -> Option<Task> {
    let text = message.trim();
    if text.len() > 400 {
        return None;
    }
    of_state(text).or_else(|| of_crash(text)).or_else(|| of_columns(text)).or_else(|| of_hits(text))
}

fn number_after(text: &str, key: &str) -> Option<u32> {
    let (_, rest) = text.split_once(key)?;
    u32::try_from(leading(rest.trim_start())?.0).ok()
}

/// Parses `task:kworker/u8:1 state:D stack:    0 pid:  123 ppid:     2 flags:0x00004000` (kernel/sched/core.c:
/// sched_show_task, since 5.9; later kernels changed the order).
fn of_state(text: &str) -> Option<Task> {
    let rest = text.strip_prefix("task:")?;
    let (name, rest) = rest.split_once(" state:")?;
    let state = rest.trim_start().chars().next()?;
    Some(Task::new(ReportedBy::TaskList, name.trim(), number_after(rest, " pid:"), Some(state)))
}

/// Parses `java          D 0000000000000001     0  1234      1 0x00000080` (until 5.8),
/// `pdflush  D ffff810012 0 183 23 184 182 (L-TLB)` (until 2.6.18) or `kswapd0   D c1234567  0  4  1` (2.4): a name,
/// the state, and only numbers after it.
fn of_columns(text: &str) -> Option<Task> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let states = ["R", "S", "D", "T", "t", "Z", "X", "I", "W", "K", "P"];
    let at = words.iter().position(|word| states.contains(word)).filter(|at| (1..=3).contains(at))?;
    let rest = words.get(at + 1..)?;
    let state = words.get(at)?.chars().next();
    let numeric = |word: &&&str| {
        let word = word.trim_start_matches("0x");
        !word.is_empty() && word.bytes().all(|c| c.is_ascii_hexdigit())
    };
    let plain: Vec<&&str> = rest.iter().filter(|word| !matches!(**word, "running" | "task" | "current")).collect();
    let numbers = plain.iter().take_while(|word| numeric(word)).count();
    let ends = plain.get(numbers).is_none_or(|word| word.starts_with('('));
    let marked =
        rest.iter().any(|word| word.starts_with("0x") || (word.len() >= 8 && word.starts_with(['f', 'c', '0'])))
            || rest.last().is_some_and(|word| word.ends_with("TLB)"));
    (numbers >= 3 && ends && marked).then_some(())?;
    // An address of the stack or the free stack comes first, then pid and parent; old kernels print siblings after
    // them.
    let decimal: Vec<u64> = (plain.iter().take(numbers))
        .filter(|word| !word.starts_with("0x") && word.len() < 8)
        .filter_map(|word| word.parse().ok())
        .collect();
    let pid = decimal.get(1).or(decimal.first()).and_then(|pid| u32::try_from(*pid).ok());
    Some(Task::new(ReportedBy::TaskList, &words.get(..at)?.join(" "), pid, state))
}

/// Parses `PID: 140316  TASK: ffff882101dbeaa0  CPU: 20  COMMAND: "oracle"`, also after `[0 00:01:02.345] [UN]` of
/// `ps -m`.
fn of_crash(text: &str) -> Option<Task> {
    let at = text.find("PID: ").filter(|_| text.contains("TASK: ") && text.contains("COMMAND: "))?;
    let (before, rest) = text.split_at_checked(at)?;
    let name = rest.split_once("COMMAND: ")?.1.trim().trim_matches('"');
    let state = match before.rsplit_once('[').map(|(_, state)| state.trim_end_matches([']', ' '])) {
        Some("UN") => Some('D'),
        Some("IN") => Some('S'),
        Some("RU") => Some('R'),
        _ => None,
    };
    Some(Task::new(ReportedBy::Crash, name, number_after(rest, "PID:"), state))
}

/// Parses `214 hits state D, R comms dd`, output of a script that counts equal stacks.
fn of_hits(text: &str) -> Option<Task> {
    let (count, rest) = leading(text)?;
    let rest = rest.trim_start().strip_prefix("hits")?;
    let state = rest.split_once("state ").and_then(|(_, rest)| rest.chars().next());
    let name = rest.split_once("comms ").map_or("", |(_, rest)| rest.trim());
    let task = Task::new(ReportedBy::BareFrames, name, None, state);
    Some(Task { count: u32::try_from(count).ok().filter(|count| *count > 0)?, ..task })
}

/// The thread in `cat /proc/31872/task/31873/stack`.
#[must_use]
pub fn pid_of_path(command: &str) -> Option<u32> {
    let (_, rest) = command.split_once("/proc/")?;
    let (pid, rest) = leading(rest)?;
    let thread = rest.strip_prefix("/task/").and_then(leading).map_or(pid, |(thread, _)| thread);
    u32::try_from(thread).ok()
}

/// The task and pid in `3 locks held by kworker/u8:1/123:`.
#[must_use]
pub fn holder(text: &str) -> Option<(&str, u32)> {
    let (count, rest) = leading(text.trim())?;
    let rest = rest.trim_start().strip_prefix("lock")?.trim_start_matches('s').trim_start().strip_prefix("held by ")?;
    let (name, pid) = rest.trim_end_matches(['.', ':', ' ']).rsplit_once('/')?;
    (count > 0).then_some((name, leading(pid)?.0.try_into().ok()?))
}

/// The lock in ` #0: ffff888003a4 (&type->s_umount_key#43){++++}-{3:3}, at: iterate_supers+0x89/0x1a0`.
#[must_use]
pub fn held_lock(text: &str) -> Option<&str> {
    let (number, rest) = text.trim().strip_prefix('#')?.split_once(':')?;
    number.bytes().all(|c| c.is_ascii_digit()).then_some(())?;
    let end = rest.find("){").or_else(|| rest.find(", at:"))?;
    let inner = rest.get(rest.find('(')? + 1..end)?;
    (!inner.is_empty()).then_some(inner)
}

/// Lock and owner (`mutex`, `b:2`) in `INFO: task a:1 is blocked on a mutex likely owned by task b:2.`, since 6.15.
#[must_use]
pub fn likely_owner(text: &str) -> Option<(&str, &str)> {
    let (_, rest) = text.split_once(" blocked on a")?;
    let (lock, owner) = rest.split_once(" likely ")?;
    let (_, owner) = owner.split_once(" by task ")?;
    Some((lock.trim_start_matches('n').trim(), owner.split_whitespace().next()?.trim_end_matches(['.', ','])))
}

#[cfg(test)]
mod tests {
    use super::{held_lock, holder, likely_owner, pid_of_path, task};
    use flatwater_recording::ReportedBy;

    #[test]
    fn task_lines_of_all_kernels_parse() {
        for (line, name, pid, state) in [
            ("task:kworker/u8:1 state:D stack:    0 pid:  123 ppid:     2 flags:0x00004000", "kworker/u8:1", 123, 'D'),
            (
                "task:java            state:D stack:0     pid:77    tgid:70    ppid:1      task_flags:0x400040 flags:0x0",
                "java",
                77,
                'D',
            ),
            ("java          D 0000000000000001     0  1234      1 0x00000080", "java", 1234, 'D'),
            ("kworker/3:2     D    0  1234      2 0x80000000", "kworker/3:2", 1234, 'D'),
            ("pdflush       D ffff81012fb4e7a0     0   183     23           184   182 (L-TLB)", "pdflush", 183, 'D'),
            ("dd            R  running task        0  4242   4000 0x00000008", "dd", 4242, 'R'),
            ("PID: 140316 TASK: ffff882101dbeaa0 CPU: 20 COMMAND: \"oracle\"", "oracle", 140_316, ' '),
            (
                "[0 00:02:41.173] [UN]  PID: 91  TASK: ffff8820530e6ae0  CPU: 22  COMMAND: \"kswapd0\"",
                "kswapd0",
                91,
                'D',
            ),
        ] {
            let found = task(line).unwrap_or_else(|| panic!("no task: {line}"));
            assert_eq!((found.name.as_str(), found.pid), (name, Some(pid)), "{line}");
            assert_eq!(found.state.unwrap_or(' '), state, "{line}");
        }
        let hits = task("214 hits state D, R comms dd").expect("a count");
        assert_eq!((hits.count, hits.reported_by), (214, ReportedBy::BareFrames));
        for line in ["", "D", "a D b", "total 12 D 3", "Mem: 1 2 3", "R 1 2 3", "sda D 1 2 3", "0 hits"] {
            assert_eq!(task(line), None, "{line}");
        }
    }

    #[test]
    fn paths_below_proc_and_lists_of_locks_name_their_task() {
        assert_eq!(pid_of_path("cat /proc/31872/task/31873/stack"), Some(31_873));
        assert_eq!(pid_of_path("cat /proc/12/stack"), Some(12));
        assert_eq!(pid_of_path("cat /proc/meminfo"), None);
        assert_eq!(holder("2 locks held by kworker/u8:1/123:"), Some(("kworker/u8:1", 123)));
        assert_eq!(holder("1 lock held by sync/77."), Some(("sync", 77)));
        let lock = " #0: ffff888003a41 (&type->s_umount_key#43){++++}-{3:3}, at: iterate_supers+0x89/0x1a0";
        assert_eq!(held_lock(lock), Some("&type->s_umount_key#43"));
        let wait = "INFO: task a:1 is blocked on a mutex likely owned by task b:2.";
        assert_eq!(likely_owner(wait), Some(("mutex", "b:2")));
    }
}
