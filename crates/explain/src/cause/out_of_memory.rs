//! out-of-memory: the kernel killed a process because reclaim could not free enough memory.

use super::{CauseEntry, CauseId};
use crate::facts::Facts;
use crate::{Evidence, Finding, Fix};
use flatwater_recording::schema::{Column, cgroup, vmstat};
use flatwater_recording::units::Bytes;
use flatwater_recording::{Cause, Event, EventKind, Note, Recording, Source, Table};

pub const ENTRY: CauseEntry = CauseEntry {
    name: "out-of-memory",
    span: None,
    headline: "memory ran out and the kernel killed a process",
    mechanism: "When reclaim and compaction have failed repeatedly, __alloc_pages_may_oom (mm/page_alloc.c) picks \
        a victim (mm/oom_kill.c: out_of_memory); a memory cgroup at its limit does so for itself \
        (mem_cgroup_out_of_memory). Before the kill every allocating thread spends long in reclaim, so that an OOM \
        kill is the end of a stall, not its beginning. On 32-bit kernels it can happen with gigabytes of high \
        memory free (lowmem-exhausted).",
    kernels: "All.",
    in_spans: "direct-reclaim or memcg-reclaim of seconds before it.",
    in_counters: "Kernel log: 'Out of memory: Killed process', 'invoked oom-killer', 'Memory cgroup out of \
        memory'; oom_kill in /proc/vmstat (4.13) and memory.events.",
    against: "A process that ended by itself, or was killed by a user or a supervisor.",
    fix: "Find what grew: the table in the report (rss, swapents) names the largest. A limit for it (memory \
        cgroup), more memory, or swap. For a cgroup: raise its limit.",
    prove: "With the limit raised, or a limit on the culprit, the kills stop.",
    sources: &[
        "mm/oom_kill.c: out_of_memory",
        "mm/memcontrol.c: mem_cgroup_out_of_memory",
        "Documentation/admin-guide/cgroup-v2.rst: memory.oom.group",
    ],
    find,
};

const NOTES_MAX: usize = 3;

struct Kill<'a> {
    at_ns: u64,
    in_cgroup: bool,
    line: &'a str,
    /// Pid and name of the process, if it was recorded.
    watched: Option<(u32, &'a str)>,
}

/// The kills that the kernel reported. In a host recording, whose kernel log covers the whole machine: kills of
/// recorded processes, and all kills if recorded calls had to reclaim.
fn kills<'a>(facts: &Facts<'a>) -> Vec<Kill<'a>> {
    let of_machine = is_of_machine(facts);
    let kill = |event: &'a Event| match &event.kind {
        EventKind::OutOfMemory { in_cgroup, line } => {
            let watched = event.kind.killed().filter(|(pid, _)| of_machine && is_watched(facts.recording, *pid));
            Some(Kill { at_ns: event.at_ns, in_cgroup: *in_cgroup, line, watched })
        }
        _ => None,
    };
    let concerns = |kill: &Kill<'_>| !of_machine || kill.watched.is_some() || reclaimed(facts);
    facts.recording.events.iter().filter_map(kill).filter(concerns).collect()
}

/// Notes about recorded processes that were killed: such a program did not stall, it ended.
pub fn notes<'a>(facts: &Facts<'a>) -> impl Iterator<Item = Note> + use<'a> {
    let ours = kills(facts).into_iter().filter_map(|kill| Some((kill.watched?, kill.in_cgroup)));
    ours.take(NOTES_MAX).map(|((pid, name), in_cgroup)| {
        let limit = if in_cgroup { "at the limit of a memory cgroup" } else { "and names no cgroup's limit" };
        Note::Text(format!("the kernel's OOM killer killed {name} (pid {pid}), {limit}: see out-of-memory"))
    })
}

/// Whether a recorded process was killed.
#[must_use]
pub fn killed_recorded(facts: &Facts<'_>) -> bool {
    kills(facts).iter().any(|kill| kill.watched.is_some())
}

/// Whether the kernel log covers the whole machine and the calls are those of some processes. The user chose the
/// lines of an imported log.
fn is_of_machine(facts: &Facts<'_>) -> bool {
    facts.recording.header.source != Source::Import && facts.timed()
}

/// Whether this process was recorded. A process that lived too briefly to be listed may have had slow calls.
fn is_watched(recording: &Recording, pid: u32) -> bool {
    let target = &recording.header.target;
    target.pids.contains(&pid)
        || target.processes.iter().any(|process| process.pid == pid)
        || recording.calls.iter().any(|call| call.pid == pid)
}

fn reclaimed(facts: &Facts<'_>) -> bool {
    [Cause::DirectReclaim, Cause::MemcgReclaim].into_iter().any(|cause| facts.significant(cause).is_some())
}

/// Whether oom_kill of /proc/vmstat rose and concerns us. It counts kills in every memory cgroup of the machine, so
/// if calls were timed, they must have reclaimed as well.
fn counted_and_near(facts: &Facts<'_>) -> bool {
    let rose = facts.vmstat_rate(vmstat::OOM_KILL).mean().unwrap_or(0.0) > 0.0;
    rose && (reclaimed(facts) || !facts.timed())
}

/// What filled the cgroup of a report: anonymous memory, which without swap only a kill frees, or page cache that
/// could not be written fast enough.
fn filled_by(facts: &Facts<'_>) -> Option<Evidence> {
    let table = facts.recording.table(Table::Cgroup)?;
    let full = table.by_entity().find_map(|(entity, rows)| {
        let (usage, limit) = (rows.last(cgroup::USAGE_BYTES)?, rows.last(cgroup::LIMIT_BYTES)?);
        (limit > 0 && usage >= (limit / 100).saturating_mul(97)).then(|| (entity.name.clone(), rows, limit))
    });
    let (name, rows, limit) = full?;
    let of = |columns: [Column; 3]| {
        columns.into_iter().find_map(|column| rows.last(column)).map(|bytes| bytes.max(0) as u64)
    };
    let mut parts = Vec::new();
    for (what, columns) in [
        ("anonymous", [cgroup::ANON, cgroup::TOTAL_RSS, cgroup::RSS]),
        ("page cache", [cgroup::FILE, cgroup::TOTAL_CACHE, cgroup::CACHE]),
        ("dirty", [cgroup::FILE_DIRTY, cgroup::TOTAL_DIRTY, cgroup::DIRTY]),
        ("under writeback", [cgroup::FILE_WRITEBACK, cgroup::TOTAL_WRITEBACK, cgroup::WRITEBACK]),
    ] {
        parts.extend(of(columns).filter(|bytes| *bytes > 0).map(|bytes| format!("{} {what}", Bytes(bytes))));
    }
    let text = format!("{name} was at its limit of {}: {}", Bytes(limit.max(0) as u64), parts.join(", "));
    (!parts.is_empty()).then(|| Evidence::new(text, limit as f64, "bytes"))
}

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let kills = kills(facts);
    let counted = counted_and_near(facts);
    let of_cgroup = facts.recording.table(Table::Cgroup).and_then(|table| {
        table
            .by_entity()
            .find(|(_, rows)| rows.rise(cgroup::EVENTS_OOM_KILL).is_some_and(|rise| rise > 0))
            .map(|(entity, _)| entity.name.clone())
    });
    if kills.is_empty() && !counted && of_cgroup.is_none() {
        return None;
    }
    let in_group = of_cgroup.is_some() || kills.iter().any(|kill| kill.in_cgroup);
    let headline = headline(&kills, in_group);
    let known = !kills.is_empty() || of_cgroup.is_some();
    // A kill of another process says little about a program that still runs.
    let ours = of_cgroup.is_some() || !is_of_machine(facts) || kills.iter().any(|kill| kill.watched.is_some());
    let mut finding = Finding::inferred(CauseId::OutOfMemory, if known && ours { 0.95 } else { 0.5 }, headline);
    if known && !ours {
        finding.against.push(Evidence::statement("none of the recorded processes was killed"));
    } else if !known {
        finding.headline = "a process was killed for lack of memory somewhere on this machine".to_owned();
        finding.evidence.push(Evidence::statement("oom_kill in /proc/vmstat rose"));
        let text = "the counter is the machine's: it counts kills in any memory cgroup, this program's or another's";
        finding.against.push(Evidence::statement(text));
    }
    for kill in kills.iter().take(3) {
        finding.evidence.push(Evidence::statement(kill.line.chars().take(200).collect::<String>()).at(kill.at_ns));
    }
    if kills.len() > 3 {
        finding.evidence.push(Evidence::new(format!("{} such lines in all", kills.len()), kills.len() as f64, ""));
    }
    finding.evidence.extend(filled_by(facts));
    finding.evidence.extend(of_cgroup.map(|path| Evidence::statement(format!("oom_kill of {path} rose"))));
    let fix = if in_group {
        "raise the cgroup's limit, or bound what grows in it"
    } else {
        "bound what grew (a memory cgroup with a limit), or give the machine more memory or swap"
    };
    Some(finding.fix(Fix::advice(fix)).settle(
        "the report's table of processes names the largest; record its memory (pidstat -r) until the next time",
    ))
}

fn headline(kills: &[Kill<'_>], in_group: bool) -> String {
    match (kills.iter().find_map(|kill| kill.watched), in_group) {
        (Some((pid, name)), true) => {
            format!("a memory cgroup ran out of memory and the kernel killed {name} (pid {pid}), which was recorded")
        }
        (Some((pid, name)), false) => {
            format!("the kernel found no memory and killed {name} (pid {pid}), which was recorded")
        }
        (None, true) => "a memory cgroup ran out of memory and the kernel killed a process in it".to_owned(),
        (None, false) => ENTRY.headline.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{CauseId, ENTRY};
    use crate::testing::RecordingBuilder;
    use flatwater_recording::{Cause, Entity, OpKind, Table};

    #[test]
    fn a_kill_in_the_log_is_found_with_its_limit() {
        let global = RecordingBuilder::new()
            .report("Out of memory: Killed process 4711 (java) total-vm:9000000kB")
            .found(&ENTRY)
            .expect("kill");
        let group = RecordingBuilder::new()
            .report("Memory cgroup out of memory: Killed process 12 (fio)")
            .found(&ENTRY)
            .expect("kill");
        assert!(!global.headline.contains("cgroup") && group.headline.contains("cgroup"));
        assert!(RecordingBuilder::new().report("Killed by signal 15").found(&ENTRY).is_none());
    }

    #[test]
    fn a_kill_of_another_process_concerns_only_calls_that_reclaim() {
        let line = "Memory cgroup out of memory: Killed process 4711 (java) total-vm:9000000kB";
        let timed = |cause| RecordingBuilder::new().slow(OpKind::Write, &[(cause, 40.0)]).report(line);
        assert!(timed(Cause::JournalCommit).found(&ENTRY).is_none(), "another cgroup's");
        let near = timed(Cause::MemcgReclaim).found(&ENTRY).expect("it reclaimed");
        assert!(near.weight <= 0.5 && !near.against.is_empty(), "{near:?}");
        let ours = || timed(Cause::JournalCommit).edit(|recording| recording.header.target.pids.push(4711));
        assert_eq!(ours().explained().findings[0].cause, CauseId::OutOfMemory, "whatever its calls waited for");
        let noted = |line: &str| {
            let builder = RecordingBuilder::new().slow(OpKind::Write, &[(Cause::JournalCommit, 40.0)]).report(line);
            let builder = builder.edit(|recording| recording.header.target.pids.push(4711));
            builder.explained().notes.iter().map(ToString::to_string).collect::<Vec<_>>().join("|")
        };
        assert!(noted(line).contains("at the limit of a memory cgroup"), "{}", noted(line));
        let bound = noted("Out of memory: Killed process 4711 (java) total-vm:9000000kB");
        assert!(bound.contains("names no cgroup's limit"), "a cpuset or a zone may have been full: {bound}");
        let ours = ours().found(&ENTRY).expect("it was recorded");
        assert!(
            ours.weight >= 0.95 && ours.headline.contains("killed java (pid 4711), which was recorded"),
            "{ours:?}"
        );
    }

    #[test]
    fn a_kill_elsewhere_on_the_machine_is_not_ours() {
        let killed =
            || RecordingBuilder::new().counters(Table::Vmstat, &Entity::default(), &[("oom_kill", &[0, 0, 1, 2])]);
        let alone = killed().found(&ENTRY).expect("a log of counters");
        assert!(alone.weight <= 0.5 && !alone.against.is_empty());
        let timed = killed().bucket("", OpKind::Write, &[2_000; 100]);
        assert!(timed.found(&ENTRY).is_none(), "our calls were timed and fast");
        let blocked = killed().slow(OpKind::Write, &[(Cause::JournalCommit, 400.0)]);
        assert!(blocked.found(&ENTRY).is_none(), "slow, but not for memory");
        let reclaiming = killed().slow(OpKind::Write, &[(Cause::MemcgReclaim, 400.0)]);
        assert!(reclaiming.found(&ENTRY).is_some());
    }
}
