//! Groups slow calls by who waited: program, container, thread, operation, file and role.

use std::collections::HashMap;

use serde::Serialize;

use super::cause::CauseId;
use super::role::{Known, Role, by_place, known};
use super::sums::add_to;
use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::{Call, Cause, OpKind, Recording, WatchedProcess};

/// One group of slow calls.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Victim {
    /// The process's name; its thread's name if the process is unknown.
    pub program: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The thread's name with `*` for each number, so that the threads of a pool are one group.
    pub thread: String,
    pub operation: &'static str,
    /// The path with `*` for each number; absent if the file is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<String>,
    pub role: Role,
    /// The reason for this role.
    pub role_why: &'static str,
    pub calls: u64,
    /// Time of these calls, including their return to user space, ns.
    pub stall_ns: u64,
    pub worst_ns: u64,
    /// Start of the longest call.
    pub worst_at_ns: u64,
    /// The cause with most of the time, and its share, 0 to 1.
    pub cause: CauseId,
    pub cause_share: f64,
}

/// The groups, and the group of each call.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    /// Request threads first, then by stall time.
    pub victims: Vec<Victim>,
    /// For each of `Recording::calls` its index in `victims`; empty if calls are not grouped.
    of_call: Vec<Option<usize>>,
}

impl Groups {
    /// The group of a call, given its index in `Recording::calls`.
    #[must_use]
    pub fn of(&self, call: usize) -> Option<&Victim> {
        self.victims.get((*self.of_call.get(call)?)?)
    }

    /// The groups of a recording; none for a scenario, whose workloads are known.
    #[must_use]
    pub fn of_recording(recording: &Recording) -> Groups {
        if recording.header.scenario.is_some() {
            return Groups::default();
        }
        Groups::of_calls(recording)
    }

    /// The groups of all calls that are not of neighbours.
    #[must_use]
    pub fn of_calls(recording: &Recording) -> Groups {
        let processes: HashMap<u32, &WatchedProcess> =
            recording.header.target.processes.iter().map(|process| (process.pid, process)).collect();
        let neighbours = recording.neighbours();
        let mut making = Making::default();
        let mut of_call: Vec<Option<usize>> = Vec::with_capacity(recording.calls.len());
        for call in &recording.calls {
            let ours = !neighbours.contains(call.thread.as_str());
            of_call.push(ours.then(|| making.add(call, &processes)));
        }
        making.done(of_call)
    }
}

/// A cheap key: one combination of thread, operation and file.
type Maker<'a> = (u32, u32, &'a str, OpKind, Option<&'a str>);
/// The key of a group, as in the reports.
type Key = (String, Option<String>, String, OpKind, Option<String>, Role);

#[derive(Default)]
struct Making<'a> {
    by_maker: HashMap<Maker<'a>, usize>,
    by_key: HashMap<Key, usize>,
    sums: Vec<Sums>,
}

struct Sums {
    victim: Victim,
    by_cause_ns: [u64; Cause::ALL.len()],
}

impl<'a> Making<'a> {
    fn add(&mut self, call: &'a Call, processes: &HashMap<u32, &WatchedProcess>) -> usize {
        let maker = (call.pid, call.tid, call.thread.as_str(), call.op, call.file.as_deref());
        let place = match self.by_maker.get(&maker) {
            Some(place) => *place,
            None => {
                let place = self.group(call, processes.get(&call.pid).copied());
                self.by_maker.insert(maker, place);
                place
            }
        };
        self.sums[place].add(call);
        place
    }

    fn group(&mut self, call: &Call, process: Option<&WatchedProcess>) -> usize {
        let program = program(call, process);
        let title = process.and_then(|process| process.title.as_deref());
        let executable = process.and_then(|process| process.executable.as_deref());
        // Elasticsearch has its own process name, but its executable is `java`.
        let names = [Some(program.as_str()), executable].into_iter().flatten();
        let known = names.into_iter().find_map(|name| known(name, title, &call.thread));
        let known = known.unwrap_or_else(|| by_place(call.pid == call.tid));
        let named_as_process = process.is_some_and(|process| process.name == call.thread);
        let thread = match known.label {
            // A number in a program's own name stays: python3, not python*.
            "" if named_as_process => program.clone(),
            "" => pattern(&call.thread),
            label => label.to_owned(),
        };
        let container = process.and_then(|process| process.container.clone());
        let files = call.file.as_deref().map(pattern);
        let key = (program, container, thread, call.op, files, known.role);
        if let Some(place) = self.by_key.get(&key) {
            return *place;
        }
        self.sums.push(Sums::new(&key, known));
        let place = self.sums.len().saturating_sub(1);
        self.by_key.insert(key, place);
        place
    }

    fn done(self, of_call: Vec<Option<usize>>) -> Groups {
        let victims: Vec<Victim> = self.sums.into_iter().map(Sums::done).collect();
        let mut order: Vec<usize> = (0..victims.len()).collect();
        order.sort_short_by_key(|&place| (victims[place].role, std::cmp::Reverse(victims[place].stall_ns)));
        let mut moved = vec![0; victims.len()];
        for (new, &old) in order.iter().enumerate() {
            moved[old] = new;
        }
        Groups {
            victims: order.iter().map(|&place| victims[place].clone()).collect(),
            of_call: of_call.into_iter().map(|place| place.map(|place| moved[place])).collect(),
        }
    }
}

impl Sums {
    fn new(key: &Key, known: Known) -> Sums {
        let (program, container, thread, op, files, role) = key.clone();
        let victim = Victim {
            program,
            container,
            thread,
            operation: op.name(),
            files,
            role,
            role_why: known.why,
            calls: 0,
            stall_ns: 0,
            worst_ns: 0,
            worst_at_ns: 0,
            cause: CauseId::Unexplained,
            cause_share: 0.0,
        };
        Sums { victim, by_cause_ns: [0; Cause::ALL.len()] }
    }

    fn add(&mut self, call: &Call) {
        let ns = call.duration_ns.saturating_add(call.after_exit_ns);
        let victim = &mut self.victim;
        add_to(&mut victim.calls, 1);
        victim.stall_ns = victim.stall_ns.saturating_add(ns);
        if ns > victim.worst_ns {
            (victim.worst_ns, victim.worst_at_ns) = (ns, call.start_ns);
        }
        let over_high = (Cause::MemcgOverHigh, call.after_exit_ns);
        let segments = call.segments.iter().map(|segment| (segment.cause, segment.ns.min(call.duration_ns)));
        for (cause, ns) in segments.chain([over_high]) {
            let sum = &mut self.by_cause_ns[cause as usize];
            *sum = sum.saturating_add(ns);
        }
    }

    fn done(mut self) -> Victim {
        let most = Cause::ALL.iter().zip(&self.by_cause_ns).max_by_key(|(_, ns)| **ns);
        if let Some((cause, ns)) = most.filter(|(_, ns)| **ns > 0) {
            self.victim.cause = (*cause).into();
            self.victim.cause_share = (*ns as f64 / self.victim.stall_ns.max(1) as f64).min(1.0);
        }
        self.victim
    }
}

/// The process's name; the executable's name if the process's name is its first 15 bytes (the kernel keeps no more),
/// but not otherwise (redis-server is a link to redis-check-rdb). The thread's name if the process was not listed (it
/// ended between two scans); empty if a log names no thread.
fn program(call: &Call, process: Option<&WatchedProcess>) -> String {
    let Some(process) = process else { return pattern(&call.thread) };
    let whole = process.executable.as_ref().filter(|name| process.name.is_empty() || name.starts_with(&process.name));
    whole.unwrap_or(&process.name).clone()
}

/// The shortest run of hexadecimal digits, at least one of them decimal, that counts as a number. Shorter runs may
/// be words (`cafe`).
const HEX_DIGITS_MIN: usize = 8;

/// The name with `*` for each number: `base/16384/2619` -> `base/*/*`, `000000010000000A000000FE` -> `*`.
#[must_use]
pub fn pattern(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let hex = run(rest, |c| c.is_ascii_hexdigit());
        let digits = run(rest, |c| c.is_ascii_digit());
        let has_digit = rest.get(..hex).is_some_and(|text| text.contains(|c: char| c.is_ascii_digit()));
        let number = if hex >= HEX_DIGITS_MIN && has_digit { hex } else { digits };
        let taken = if number > 0 { number } else { first.len_utf8() };
        if number > 0 && !out.ends_with('*') {
            out.push('*');
        } else if number == 0 {
            out.push(first);
        }
        rest = rest.get(taken..).unwrap_or_default();
    }
    out
}

fn run(text: &str, of: impl Fn(char) -> bool) -> usize {
    text.find(|c: char| !of(c)).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::{Groups, pattern};
    use crate::CauseId;
    use crate::role::Role;
    use crate::testing::RecordingBuilder;
    use flatwater_recording::{Cause, OpKind, WatchedProcess};

    /// Redis: the main thread (tid 7, the default of `RecordingBuilder`) and its helper.
    fn redis() -> RecordingBuilder {
        let builder = RecordingBuilder::new()
            .slow_by("bio_aof", OpKind::Fdatasync, &[(Cause::PageWriteback, 900.0)])
            .slow_by("bio_aof", OpKind::Fdatasync, &[(Cause::PageWriteback, 300.0)])
            .slow_by("redis-server", OpKind::Write, &[(Cause::Lock, 102.0), (Cause::RunQueue, 1.0)]);
        builder.edit(|recording| {
            let mut process = WatchedProcess::new(7, 1, "redis-server");
            // On Debian, redis-server is a link.
            process.executable = Some("redis-check-rdb".to_owned());
            process.container = Some("container 8f3b0c1d2e4f".to_owned());
            recording.header.target.processes.push(process);
            recording.calls[0].tid = 9;
            recording.calls[1].tid = 9;
            recording.calls[0].file = Some("/data/appendonly.aof.1.incr.aof".to_owned());
            recording.calls[1].file = Some("/data/appendonly.aof.2.incr.aof".to_owned());
        })
    }

    #[test]
    fn request_threads_come_before_background_threads() {
        let groups = Groups::of_recording(&redis().done());
        let listed: Vec<_> =
            groups.victims.iter().map(|v| (v.thread.as_str(), v.role, v.calls, v.stall_ns / 1_000_000)).collect();
        assert_eq!(listed, [("redis-server", Role::Request, 1, 103), ("bio_aof", Role::Background, 2, 1200)]);
        let (main, aof) = (&groups.victims[0], &groups.victims[1]);
        assert_eq!(main.program, "redis-server");
        assert_eq!((main.cause, (main.cause_share * 100.0).round()), (CauseId::Lock, 99.0));
        assert_eq!(aof.files.as_deref(), Some("/data/appendonly.aof.*.incr.aof"), "two files of one pattern");
        assert_eq!(aof.container.as_deref(), Some("container 8f3b0c1d2e4f"));
        assert_eq!(groups.of(0).map(|victim| victim.thread.as_str()), Some("bio_aof"));
        assert_eq!(groups.of(2).map(|victim| victim.thread.as_str()), Some("redis-server"));
    }

    #[test]
    fn a_number_in_a_programs_own_name_stays() {
        let builder =
            RecordingBuilder::new().slow_by("python3", OpKind::Write, &[(Cause::RunQueue, 40.0)]).edit(|recording| {
                let mut process = WatchedProcess::new(7, 1, "python3");
                process.executable = Some("python3.11".to_owned());
                recording.header.target.processes.push(process);
            });
        let groups = Groups::of_recording(&builder.done());
        assert_eq!(
            (groups.victims[0].program.as_str(), groups.victims[0].thread.as_str()),
            ("python3.11", "python3.11")
        );
    }

    #[test]
    fn numbers_in_names_are_one_pattern() {
        for (name, expected) in [
            ("base/16384/2619", "base/*/*"),
            ("pg_wal/000000010000000A000000FE", "pg_wal/*"),
            ("pool-3-thread-12", "pool-*-thread-*"),
            ("/data/cafe.log", "/data/cafe.log"),
            ("0a1b2c3d4e5f.sst", "*.sst"),
            ("défaut7", "défaut*"),
            ("", ""),
        ] {
            assert_eq!(pattern(name), expected);
        }
    }

    #[test]
    fn neighbours_and_scenarios_are_not_grouped() {
        let recording = RecordingBuilder::new()
            .slow_by("stream", OpKind::Write, &[(Cause::DirtyThrottle, 900.0)])
            .neighbour("stream");
        assert_eq!(Groups::of_recording(&recording.done()).victims, []);
        let own = redis().edit(|recording| recording.header.scenario = Some("journal".to_owned()));
        assert_eq!(Groups::of_recording(&own.done()).victims, []);
    }
}
