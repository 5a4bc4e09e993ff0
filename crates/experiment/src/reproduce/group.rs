//! The workloads of a reproduction, from the recorded groups of threads.

use std::collections::{BTreeMap, BTreeSet};

use super::machine::Place;
use super::printable;
use super::words::Classes;
use flatwater_explain::Explanation;
use flatwater_explain::aggressor::Means;
use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::{
    GroupRole, OperationFiles, OperationKind, Operations, OwnerBasis, QueueOwner, Recording, RequestOp, classes_of,
};

const VICTIMS_MAX: usize = 3;
const THREADS_MAX: u64 = 64;
const FILES_MAX: u64 = 256;
const TRANSFER_MAX: u64 = 16 << 20;
const FILE_BYTES_MIN: u64 = 4096;
const MINUTE_NS: u64 = 60_000_000_000;
/// A group with less of the target's operations and time is left out.
const SHARE_MIN: f64 = 0.01;
/// Findings whose aggressors are imitated.
const FINDINGS: usize = 3;
/// Assumed size of the writes of a program of which only dirty pages were seen; the scenario marks it as assumed.
const ASSUMED_WRITE_BYTES: u64 = 64 << 10;

/// The imitation of one group of threads or processes.
#[derive(Clone, Debug, Default)]
pub struct Group {
    pub label: String,
    pub comment: String,
    pub process: bool,
    pub threads: u64,
    pub mix: Classes,
    pub sync: Option<OperationKind>,
    pub sync_every: Classes,
    pub write_bytes: Classes,
    pub read_bytes: Classes,
    pub create_writes: Classes,
    pub read_pause: Classes,
    pub write_pause: Classes,
    pub sync_pause: Classes,
    pub other_pause: Classes,
    pub pass: u64,
    pub pass_pause_ns: u64,
    pub files: u64,
    pub shared: bool,
    pub file_bytes: u64,
    pub grow: bool,
    pub sequential: f64,
    pub direct: bool,
    pub data_sync: bool,
    pub append: bool,
    pub memory_bytes: u64,
}

/// Sums of the rows of one group.
#[derive(Clone, Debug, Default)]
struct Sums {
    ops: BTreeMap<OperationKind, Operations>,
    pauses: BTreeMap<OperationKind, Classes>,
    sizes: BTreeMap<OperationKind, Classes>,
    syncs: Classes,
    pids: BTreeSet<Option<u32>>,
    names: BTreeSet<String>,
    threads: u64,
    direct: u64,
    synced: u64,
    appended: u64,
}

impl Sums {
    fn add(&mut self, row: &Operations) {
        let sum = self.ops.entry(row.op).or_default();
        for (sum, more) in [
            (&mut sum.count, row.count),
            (&mut sum.bytes, row.bytes),
            (&mut sum.sequential, row.sequential),
            (&mut sum.call_ns, row.call_ns),
            (&mut sum.pauses, row.pauses),
            (&mut sum.pause_ns, row.pause_ns),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.pauses.entry(row.op).or_default().add(&classes_of(&row.pause_classes));
        self.sizes.entry(row.op).or_default().add(&classes_of(&row.size_classes));
        self.syncs.add(&classes_of(&row.sync_classes));
        let first = !self.names.contains(&row.thread) || !self.pids.contains(&row.pid);
        if first {
            // The same in each row of a group.
            for (sum, more) in [
                (&mut self.threads, row.threads),
                (&mut self.direct, row.direct),
                (&mut self.synced, row.synced),
                (&mut self.appended, row.appended),
            ] {
                *sum = sum.saturating_add(more);
            }
        }
        self.pids.insert(row.pid);
        self.names.insert(row.thread.clone());
    }

    fn count(&self, kind: OperationKind) -> u64 {
        self.ops.get(&kind).map_or(0, |row| row.count)
    }

    fn total_ns(&self) -> u64 {
        let of = |row: &Operations| row.call_ns.saturating_add(row.pause_ns);
        self.ops.values().map(of).fold(0, u64::saturating_add)
    }

    fn call_ns(&self) -> u64 {
        self.ops.values().map(|row| row.call_ns).fold(0, u64::saturating_add)
    }

    fn data_sync_kind(&self) -> Option<OperationKind> {
        let kinds = [OperationKind::Fsync, OperationKind::Fdatasync];
        kinds.into_iter().filter(|kind| self.count(*kind) > 0).max_by_key(|kind| self.count(*kind))
    }
}

/// The groups of the target, the busiest first.
pub fn victims(recording: &Recording, place: &Place, notes: &mut Vec<String>) -> Vec<Group> {
    let of_target = |row: &&Operations| row.role == GroupRole::Target && row.file_system == place.number;
    let mut by_group: BTreeMap<(Option<u32>, &str), Sums> = BTreeMap::new();
    for row in recording.operations.iter().filter(of_target) {
        by_group.entry((row.pid, row.thread.as_str())).or_default().add(row);
    }
    // Groups with the same name and the same kinds of operations are one workload with more threads.
    let mut by_kind: BTreeMap<(&str, Option<OperationKind>, bool), Sums> = BTreeMap::new();
    for row in recording.operations.iter().filter(of_target) {
        let Some(own) = by_group.get(&(row.pid, row.thread.as_str())) else { continue };
        let writes = own.count(OperationKind::Write) >= own.count(OperationKind::Read);
        by_kind.entry((row.thread.as_str(), own.data_sync_kind(), writes)).or_default().add(row);
    }
    let mut found: Vec<Sums> = by_kind.into_values().filter(|sums| imitable(sums) > 0).collect();
    for sums in &mut found {
        count_threads(sums, recording.operations.iter().filter(|row| row.role == GroupRole::Target));
    }
    found.sort_short_by_key(|sums| std::cmp::Reverse(sums.call_ns()));
    let total = found.iter().map(Sums::call_ns).fold(0, u64::saturating_add).max(1);
    let enough = |sums: &Sums| sums.call_ns() as f64 >= SHARE_MIN * total as f64;
    let left_out = found.len() - found.iter().take(VICTIMS_MAX).filter(|sums| enough(sums)).count();
    if left_out > 0 {
        notes.push(format!("{left_out} smaller groups of the target's threads are not imitated"));
    }
    let files: Vec<&OperationFiles> = recording
        .operation_files
        .iter()
        .filter(|row| row.role == GroupRole::Target && row.file_system == place.number)
        .collect();
    let kept = found.iter().take(VICTIMS_MAX).filter(|sums| enough(sums)).enumerate();
    kept.map(|(at, sums)| {
        let own: Vec<&OperationFiles> = files.iter().filter(|row| sums.pids.contains(&row.pid)).copied().collect();
        group(sums, &own, recording.header.duration_ns, label("victim", at, sums))
    })
    .collect()
}

/// Threads are counted at their first operation, which may be on another file system.
fn count_threads<'a>(sums: &mut Sums, rows: impl Iterator<Item = &'a Operations>) {
    let mut by_group: BTreeMap<(Option<u32>, &str, &str), u64> = BTreeMap::new();
    for row in rows.filter(|row| sums.names.contains(&row.thread) && sums.pids.contains(&row.pid)) {
        by_group.insert((row.pid, row.thread.as_str(), row.file_system.as_str()), row.threads);
    }
    sums.threads = by_group.into_values().fold(0, u64::saturating_add);
}

/// Operations that the workload can perform.
fn imitable(sums: &Sums) -> u64 {
    let not = [OperationKind::Open, OperationKind::Rename, OperationKind::Resize];
    sums.ops.iter().filter(|(kind, _)| !not.contains(kind)).fold(0, |sum, (_, row)| sum.saturating_add(row.count))
}

fn label(role: &str, at: usize, sums: &Sums) -> String {
    named(role, at, sums.names.iter().next().map_or("", String::as_str))
}

/// A label of plain characters: it becomes part of a path and of a thread's name.
fn named(role: &str, at: usize, name: &str) -> String {
    let plain: String = name.chars().filter(|c| c.is_ascii_alphanumeric()).take(8).collect();
    let number = if at == 0 { String::new() } else { format!("{}", at + 1) };
    if plain.is_empty() { format!("{role}{number}") } else { format!("{plain}{number}") }
}

fn group(sums: &Sums, files: &[&OperationFiles], duration_ns: u64, label: String) -> Group {
    let total_ns = sums.total_ns();
    let threads = total_ns.saturating_add(duration_ns / 2).checked_div(duration_ns.max(1)).unwrap_or(1);
    let threads = threads.clamp(1, THREADS_MAX);
    let mut group = Group { label, threads, ..Group::default() };
    group.sync = sums.data_sync_kind();
    let (writes, reads) = (sums.count(OperationKind::Write), sums.count(OperationKind::Read));
    let syncs = [OperationKind::Fsync, OperationKind::Fdatasync].map(|kind| sums.count(kind)).iter().sum::<u64>();
    let creates = sums.count(OperationKind::Create);
    // Writes belong to the created files if there are few for each.
    let into_created = creates >= 16 && writes / creates.max(1) < 64;
    let mut mix = vec![(0, reads), (4, sums.count(OperationKind::Syncfs))];
    if into_created {
        let unlinks = sums.count(OperationKind::Unlink).min(creates);
        mix.extend([(5, creates), (7, unlinks)]);
        group.create_writes.add(&[((writes / creates.max(1)).max(1), 1)]);
    } else {
        mix.push((1, writes));
    }
    sync_distance(sums, writes, syncs, into_created, &mut mix, &mut group);
    group.mix.add(&mix.into_iter().filter(|(_, count)| *count > 0).collect::<Vec<_>>());
    sizes(sums, &mut group);
    group.read_pause = pauses(sums, &[OperationKind::Read]);
    group.write_pause = pauses(sums, &[OperationKind::Write]);
    group.sync_pause = pauses(sums, &[OperationKind::Fsync, OperationKind::Fdatasync, OperationKind::Syncfs]);
    group.other_pause = pauses(sums, &[OperationKind::Create, OperationKind::Unlink]);
    let moved = reads.saturating_add(writes).max(1);
    let in_order =
        [OperationKind::Read, OperationKind::Write].map(|kind| sums.ops.get(&kind).map_or(0, |row| row.sequential));
    group.sequential =
        (in_order.iter().fold(0, |sum: u64, more| sum.saturating_add(*more)) as f64 / moved as f64).min(1.0);
    group.direct = sums.direct > moved / 2;
    group.data_sync = sums.synced > writes / 2 && writes > 0;
    group.append = sums.appended > writes / 2 && writes > 0;
    file_use(sums, files, &mut group);
    passes(sums, duration_ns, &mut group);
    let names: Vec<String> = sums.names.iter().take(6).map(|name| printable(name)).collect();
    group.comment = format!("{}: {} operations of {} threads", names.join(", "), imitable(sums), sums.threads);
    group
}

/// How many writes are between two syncs; syncs without writes before them are operations of the mix.
fn sync_distance(sums: &Sums, writes: u64, syncs: u64, created: bool, mix: &mut Vec<(u64, u64)>, group: &mut Group) {
    if syncs == 0 {
        return;
    }
    let mut distances = sums.syncs.clone();
    let without = distances.remove(0);
    if writes == 0 || created || distances.is_empty() || without > syncs / 2 {
        // Another thread writes the files.
        mix.push((2, syncs));
        return;
    }
    let mean = (writes as f64 / (syncs - without).max(1) as f64).round().max(1.0) as u64;
    let most = distances.iter().map(|(_, count)| count).max().unwrap_or(0);
    group.sync_every = if most >= distances.count() / 10 * 8 {
        let mut classes = Classes::default();
        classes.add(&[(mean, 1)]);
        classes
    } else {
        distances.map(1 << 20, |lowest| (lowest + lowest / 2).max(1))
    };
}

fn sizes(sums: &Sums, group: &mut Group) {
    let of = |kind| {
        let classes = sums.sizes.get(&kind).cloned().unwrap_or_default();
        classes.map(TRANSFER_MAX, |lowest| lowest.max(1))
    };
    (group.read_bytes, group.write_bytes) = (of(OperationKind::Read), of(OperationKind::Write));
}

/// The pauses before these operations, scaled so that their mean is the recorded one: the workload draws uniformly
/// within a class.
fn pauses(sums: &Sums, kinds: &[OperationKind]) -> Classes {
    let (mut classes, mut ns, mut count) = (Classes::default(), 0_u64, 0_u64);
    for kind in kinds {
        if let (Some(row), Some(own)) = (sums.ops.get(kind), sums.pauses.get(kind)) {
            classes.add(&own.iter().collect::<Vec<_>>());
            ns = ns.saturating_add(row.pause_ns);
            count = count.saturating_add(row.pauses);
        }
    }
    let drawn = classes.mean() * 1.5;
    let scale = if drawn > 0.0 { (ns as f64 / count.max(1) as f64 / drawn).clamp(0.5, 2.0) } else { 1.0 };
    classes.map(MINUTE_NS / 2, |lowest| (lowest as f64 * scale) as u64)
}

fn file_use(sums: &Sums, files: &[&OperationFiles], group: &mut Group) {
    let writes = sums.count(OperationKind::Write);
    let useful: Vec<&&OperationFiles> = files
        .iter()
        .filter(|row| if writes > 0 { row.written == Some(true) } else { row.written == Some(false) })
        .collect();
    let sum = |of: fn(&OperationFiles) -> u64| useful.iter().map(|row| of(row)).fold(0, u64::saturating_add);
    // Processes of one program mostly use the same files.
    let pids = sums.pids.len().max(1) as u64;
    let count = (sum(|row| row.files) / pids).clamp(1, FILES_MAX);
    group.shared = count < group.threads;
    group.files = if group.shared { count } else { (count / group.threads).max(1) };
    let mean = sum(|row| row.bytes) / sum(|row| row.files).max(1);
    let written = sums.ops.get(&OperationKind::Write).map_or(0, |row| row.bytes);
    let grown = sum(|row| row.bytes).saturating_sub(sum(|row| row.first_bytes));
    group.grow = writes > 0 && !group.direct && grown > 0 && written / 2 <= grown;
    group.file_bytes = mean;
}

/// Short-lived processes: the time between them, of which nothing is recorded.
fn passes(sums: &Sums, duration_ns: u64, group: &mut Group) {
    let idle_ns = group.threads.saturating_mul(duration_ns).saturating_sub(sums.total_ns());
    let operations = imitable(sums);
    if sums.threads > group.threads.saturating_mul(2) && idle_ns > duration_ns / 10 {
        group.pass = (operations / sums.threads).max(1);
        group.pass_pause_ns = (idle_ns / sums.threads).min(MINUTE_NS);
    }
}

/// The processes that the explanation names, with the others on the same file system.
pub fn neighbours(
    recording: &Recording,
    explanation: &Explanation,
    place: &Place,
    notes: &mut Vec<String>,
) -> Vec<Group> {
    let named: Vec<&flatwater_explain::Aggressor> =
        explanation.findings.iter().take(FINDINGS).flat_map(|finding| &finding.aggressors).collect();
    if named.is_empty() {
        return Vec::new();
    }
    let programs: BTreeSet<&str> = named.iter().map(|aggressor| aggressor.program.as_str()).collect();
    let mut sums = Sums::default();
    let theirs = || recording.operations.iter().filter(|row| row.role == GroupRole::Neighbour);
    let here = |row: &&Operations| row.file_system == place.number;
    if theirs().any(|row| here(&row)) {
        theirs().filter(here).for_each(|row| sums.add(row));
    } else {
        theirs().filter(|row| programs.contains(row.thread.as_str())).for_each(|row| sums.add(row));
    }
    count_threads(&mut sums, theirs());
    let mut groups = Vec::new();
    if imitable(&sums) > 0 {
        let files: Vec<&OperationFiles> = recording
            .operation_files
            .iter()
            .filter(|row| row.role == GroupRole::Neighbour && row.file_system == place.number)
            .collect();
        let first = named
            .iter()
            .find(|aggressor| sums.names.contains(&aggressor.program))
            .map_or("", |aggressor| aggressor.program.as_str());
        let mut group = group(&sums, &files, recording.header.duration_ns, named_label(first, &groups));
        if files.iter().any(|row| row.shared == Some(true)) {
            notes.push("the neighbour used a file of the target; the imitation uses other files".to_owned());
        }
        group.process = true;
        groups.push(group);
    }
    let of_first = explanation.findings.iter().take(1).flat_map(|finding| &finding.aggressors);
    for aggressor in of_first {
        if groups.len() >= 2 || sums.names.contains(&aggressor.program) {
            continue;
        }
        let found = match aggressor.means {
            Means::Cpu | Means::Running => computing(recording, aggressor),
            Means::Memory => memory(recording, aggressor),
            _ => by_requests(recording, aggressor),
        };
        if let Some(mut group) = found.filter(|group| groups.iter().all(|known: &Group| known.label != group.label)) {
            group.label = named_label(&aggressor.program, &groups);
            group.process = true;
            notes.push(group.comment.clone());
            groups.push(group);
        }
    }
    if groups.is_empty() {
        notes.push(format!("nothing is known of the operations of {}", printable(&named[0].program)));
    }
    groups
}

fn named_label(program: &str, groups: &[Group]) -> String {
    format!("by-{}", named("neighbour", groups.len(), program))
}

/// A process that kept CPUs busy.
fn computing(recording: &Recording, aggressor: &flatwater_explain::Aggressor) -> Option<Group> {
    let rows = recording.cpu_owners.iter().filter_map(|row| row.owner.as_ref());
    let pids: BTreeSet<u32> = rows.filter(|task| task.name == aggressor.program).map(|task| task.pid).collect();
    let mut group = Group { threads: (pids.len() as u64).clamp(1, THREADS_MAX), ..Group::default() };
    group.mix.add(&[(8, 1)]);
    group.comment = format!("{}: computes, as seen while the target waited for a CPU", printable(&aggressor.program));
    Some(group)
}

/// A process that took memory.
fn memory(recording: &Recording, aggressor: &flatwater_explain::Aggressor) -> Option<Group> {
    let own = recording.memory_users.iter().filter(|row| row.owner.name == aggressor.program);
    let page = recording.header.machine.page_size_bytes();
    let (mut resident, mut allocated) = (0, 0_u64);
    let mut pids = BTreeSet::new();
    for row in own {
        resident = resident.max(row.resident_pages.unwrap_or(0));
        allocated = allocated.saturating_add(row.allocated_pages.unwrap_or(0));
        pids.insert(row.owner.pid);
    }
    if allocated == 0 {
        return None;
    }
    let threads = (pids.len() as u64).clamp(1, 8);
    let memory_bytes = resident.saturating_mul(page).clamp(1 << 20, 256 << 20);
    let rounds = allocated.saturating_mul(page) / threads / memory_bytes;
    let mut group = Group { threads, memory_bytes, ..Group::default() };
    group.mix.add(&[(9, 1)]);
    let pause_ns = recording.header.duration_ns / rounds.max(1);
    group.other_pause.add(&[((pause_ns / 2).min(MINUTE_NS / 2), 1)]);
    group.comment = format!("{}: fills memory again and again, as its page faults show", printable(&aggressor.program));
    Some(group)
}

/// A process of which only requests or dirty pages were seen.
fn by_requests(recording: &Recording, aggressor: &flatwater_explain::Aggressor) -> Option<Group> {
    let is_its = |row: &&QueueOwner| row.owner.as_ref().is_some_and(|task| task.name == aggressor.program);
    let mut sums: BTreeMap<(bool, bool), (u64, u64, u64)> = BTreeMap::new();
    for row in recording.queue_owners.iter().filter(is_its) {
        if !matches!(row.op, RequestOp::Read | RequestOp::Write) {
            continue;
        }
        let sum = sums.entry((row.op == RequestOp::Read, row.owner_basis == OwnerBasis::Submitter)).or_default();
        sum.0 = sum.0.saturating_add(row.requests);
        sum.1 = sum.1.saturating_add(row.bytes);
        sum.2 = sum.2.saturating_add(row.queue_ns).saturating_add(row.device_ns);
    }
    let ((reads, direct), (requests, bytes, ns)) = sums.into_iter().max_by_key(|(_, sum)| sum.1)?;
    let mean = (bytes / requests.max(1)).clamp(512, TRANSFER_MAX);
    let mut group = Group { direct, file_bytes: 256 << 20, files: 1, ..Group::default() };
    // By Little's law: requests under way at one time.
    let depth = ns.checked_div(recording.header.duration_ns).unwrap_or(1);
    group.threads = if direct { depth.clamp(1, 16) } else { 1 };
    let size = if direct { mean } else { ASSUMED_WRITE_BYTES };
    if reads {
        group.mix.add(&[(0, 1)]);
        group.read_bytes.add(&[(size, 1)]);
        group.sequential = 1.0;
    } else {
        group.mix.add(&[(1, 1)]);
        group.write_bytes.add(&[(size, 1)]);
        group.sequential = if direct { 0.0 } else { 1.0 };
    }
    let assumed = if direct { "" } else { "; writes of 64 KiB are assumed" };
    group.comment = format!("{}: only its requests to the device were seen{assumed}", printable(&aggressor.program));
    Some(group)
}

/// Shrinks files until all fit into the volume.
pub fn fit(victims: &mut [Group], neighbours: &mut [Group], room_bytes: u64, notes: &mut Vec<String>) {
    let mut all: Vec<&mut Group> = victims.iter_mut().chain(neighbours).collect();
    let count = all.len().max(1) as u64;
    let mut shrunk = false;
    for group in &mut all {
        let largest = [&group.write_bytes, &group.read_bytes].into_iter().flat_map(Classes::iter).map(|(size, _)| size);
        let largest = largest.max().unwrap_or(0).max(FILE_BYTES_MIN);
        let sets = if group.shared { 1 } else { group.threads };
        let share = room_bytes / count;
        while group.files > 1 && share / (sets * group.files) < largest {
            group.files /= 2;
        }
        let room = share / (sets * group.files.max(1));
        if room < largest {
            let limit = room.max(FILE_BYTES_MIN);
            group.write_bytes = group.write_bytes.map(limit, |size| size);
            group.read_bytes = group.read_bytes.map(limit, |size| size);
            shrunk = true;
        }
        // A file that grows needs room for some syncs before it begins again.
        let wanted = if group.grow { group.file_bytes.max(32 << 20) } else { group.file_bytes };
        let wanted = wanted.max(largest);
        shrunk |= wanted > room;
        group.file_bytes = wanted.min(room).max(FILE_BYTES_MIN) / 4096 * 4096;
    }
    if shrunk {
        notes.push("files are smaller than the recorded ones, to fit into a tenth of what is free here".to_owned());
    }
}
