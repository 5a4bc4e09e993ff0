//! The victims: the rows of the first table, for text and page, and the lines about who made a finding's calls wait.

use super::numbers::{count, counted, share, time};
use flatwater_explain::{
    Aggressor, Answerable, Explanation, Finding, Focused, Member, Role, Victim, aggressor_name, member_name,
};

/// Columns, and whether each contains numbers.
pub const COLUMNS: &[(&str, bool)] = &[
    ("who waited", false),
    ("call", false),
    ("file", false),
    ("calls", true),
    ("stall", true),
    ("worst", true),
    ("mostly", false),
];

/// `program/thread`, such as `redis-server/bio_aof`; the program alone for the first thread of a process.
pub fn who(victim: &Victim) -> String {
    let (program, thread) = (victim.program.as_str(), victim.thread.as_str());
    // The kernel truncates thread names to 15 bytes.
    let same = !thread.is_empty() && (program == thread || (thread.len() >= 15 && program.starts_with(thread)));
    match (program.is_empty(), thread.is_empty() || same) {
        (true, true) => "not named".to_owned(),
        (true, false) => thread.to_owned(),
        (false, true) => program.to_owned(),
        (false, false) => format!("{program}/{thread}"),
    }
}

/// One row per group. File patterns are cut to their last `file_chars` characters. Background threads have a mark,
/// which `note` explains.
pub fn rows(victims: &[Victim], file_chars: usize) -> Vec<Vec<String>> {
    let row = |victim: &Victim| {
        let container = victim.container.as_ref().map(|name| format!(" in {name}")).unwrap_or_default();
        let background = if victim.role == Role::Background { " *" } else { "" };
        vec![
            format!("{}{background}{container}", who(victim)),
            format!("{}()", victim.operation),
            ending(victim.files.as_deref().unwrap_or("-"), file_chars),
            count(victim.calls),
            time(victim.stall_ns),
            time(victim.worst_ns),
            victim.cause.name().to_owned(),
        ]
    };
    victims.iter().map(row).collect()
}

/// The meaning of the mark; `None` if no group is marked.
pub fn note(victims: &[Victim]) -> Option<&'static str> {
    let any = victims.iter().any(|victim| victim.role == Role::Background);
    any.then_some("* works in the background: no client waits for it")
}

/// The end of a path, with whole components if they fit.
fn ending(path: &str, chars: usize) -> String {
    let length = path.chars().count();
    if length <= chars {
        return path.to_owned();
    }
    let kept: String = path.chars().skip(length - chars).collect();
    match kept.find('/') {
        Some(slash) if slash + 1 < kept.len() => kept[slash + 1..].to_owned(),
        _ => {
            let name = path.rsplit('/').next().unwrap_or(path);
            let short = name.chars().count() + 3 <= chars.max(4);
            if short { name.to_owned() } else { format!("...{}", kept.chars().skip(3).collect::<String>()) }
        }
    }
}

/// Which calls the findings are judged by, in a sentence; `None` if it is every slow call.
pub fn judged_by(explanation: &Explanation) -> Option<String> {
    let focused = explanation.focus.as_ref()?;
    let others = |focused: &Focused| {
        let calls = counted(focused.other_calls, "slow call", "slow calls");
        format!("{calls} of others ({})", time(focused.other_stall_ns))
    };
    let judged = counted(focused.calls, "slow call", "slow calls");
    Some(if focused.given {
        format!("judged by --focus {}: {judged}, without {}", focused.on, others(focused))
    } else {
        format!(
            "findings cover threads that clients wait for: {judged} ({}); excluded: {} (--focus background)",
            time(focused.stall_ns),
            others(focused)
        )
    })
}

/// Such as `the target itself (postgres: checkpointer (pid 77) 41.2 %),`.
fn of_target(to: &Answerable) -> String {
    let member = |member: &Member| format!("{} {}", member_name(member), share(member.share));
    let members: Vec<String> = to.members.iter().map(member).collect();
    if members.is_empty() {
        "the target itself".to_owned()
    } else {
        format!("the target itself ({}),", members.join(", "))
    }
}

/// Who made a finding's calls wait: one line per aggressor, then the rest of the time; empty if nothing is known.
pub fn made_by(finding: &Finding) -> Vec<String> {
    let Some(to) = &finding.answerable else { return Vec::new() };
    let line = |aggressor: &Aggressor| {
        let evidence: Vec<&str> = aggressor.evidence.iter().map(|fact| fact.text.as_str()).collect();
        format!("{}, {}: {}", aggressor_name(aggressor), share(aggressor.share), evidence.join("; "))
    };
    let mut lines: Vec<String> = finding.aggressors.iter().map(line).collect();
    let own = of_target(to);
    let parts = [
        (to.own, own.as_str()),
        (to.device, "the device, working on the awaited request"),
        (to.flush, "flushes of the device's cache"),
        (to.limit, "a limit on the cgroup's I/O"),
        (to.kernel, "kernel threads, on behalf of no known process"),
        (to.unknown, "not known"),
    ];
    let named: f64 = finding.aggressors.iter().map(|aggressor| aggressor.share).sum();
    let others = (to.others - named).max(0.0);
    let rest = parts.into_iter().chain([(others, "many others, each with little")]);
    let rest: Vec<String> =
        rest.filter(|(part, _)| *part >= 0.01).map(|(part, what)| format!("{what} {}", share(part))).collect();
    if finding.aggressors.is_empty() {
        // Unknown time could be another process's.
        let who = if to.unknown + to.kernel >= 0.5 { "not known, for the most part" } else { "no other process" };
        lines.push(format!("{who}: {}", rest.join(", ")));
    } else if !rest.is_empty() {
        lines.push(format!("the rest: {}", rest.join(", ")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::ending;

    #[test]
    fn a_long_path_keeps_its_end() {
        assert_eq!(ending("/var/lib/redis/appendonlydir/a.aof", 20), "appendonlydir/a.aof");
        assert_eq!(ending("/srv/data/pg_wal/*", 12), "pg_wal/*");
        assert_eq!(ending("/data/a.aof", 20), "/data/a.aof");
        assert_eq!(ending("a-file-name-without-any-directory", 12), "...directory");
    }
}
