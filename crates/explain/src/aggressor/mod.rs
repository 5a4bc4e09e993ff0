//! Charges the stall time of each cause to the parties that made the calls wait: other processes, the target
//! itself, the device, limits, the kernel, or unknown.

mod charge;
mod evicted;
mod journal;
mod links;
mod places;
pub(crate) mod run_neighbours;
mod spans;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_advice;
#[cfg(test)]
mod tests_costly;
#[cfg(test)]
mod tests_journal;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

pub use charge::{Means, Party, Share, segment};
pub use evicted::Evicted;
pub use links::{Links, ender, is_kernel};
use places::Places;

use super::Evidence;
use super::sums::{add_to, total};
use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::units::{Bytes, Nanos};
use flatwater_recording::{Call, Cause, Recording, Task};

/// A process is named if it answers for at least this share of a cause's stall time. Below that share it is one of
/// many, and its absence would hardly be noticed.
pub const NAMED_SHARE_MIN: f64 = 0.2;
/// At most this many processes are named per finding.
const NAMED_MAX: usize = 4;
/// Causes that are reclaim itself, charged to the processes that took memory.
const RECLAIM: &[Cause] = &[Cause::MemcgReclaim, Cause::DirectReclaim, Cause::ReclaimThrottle, Cause::MemcgOverHigh];
/// At most this many process ids are listed per aggressor.
const PIDS_MAX: usize = 8;

/// A process, or all programs of a cgroup, that made the calls of a finding wait.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Aggressor {
    /// The name of the process.
    pub program: String,
    /// Whether it represents all programs of a cgroup, none of which is charged with enough to be named alone.
    #[serde(skip)]
    pub several: bool,
    /// The process ids, at most eight.
    pub pids: Vec<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Share of the finding's stall time, 0 to 1.
    pub share: f64,
    pub stall_ns: u64,
    /// How it made the calls wait for most of this time.
    pub means: Means,
    /// In the worst single wait: bytes that it had ahead or had dirtied; 0 if unknown, as for neighbours of a run.
    pub bytes: u64,
    /// Whether most of the aggressor's time at the device was for the file system that the calls waited for; absent if
    /// it had no requests there, or if their file system was not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub same_file_system: Option<bool>,
    /// Whether its cgroup is also one of a waiting call, so that a limit on that cgroup would limit the target as
    /// well.
    #[serde(skip)]
    pub in_own_cgroup: bool,
    pub evidence: Vec<Evidence>,
}

impl Aggressor {
    /// An aggressor known from a source other than wait chains; `part` is its share of the stall time and the time
    /// in ns.
    pub(crate) fn by(program: &str, pids: Vec<u32>, part: (f64, u64), means: Means, evidence: Evidence) -> Aggressor {
        Aggressor {
            program: program.to_owned(),
            several: false,
            pids: pids.into_iter().take(PIDS_MAX).collect(),
            cgroup: None,
            share: (part.0 * 1000.0).round() / 1000.0,
            stall_ns: part.1,
            means,
            bytes: 0,
            same_file_system: None,
            in_own_cgroup: false,
            evidence: vec![evidence],
        }
    }
}

/// Shares of a finding's stall time by party; they sum to 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Answerable {
    /// Processes outside the target.
    pub others: f64,
    /// The target's own threads and processes, and their earlier requests.
    pub own: f64,
    /// The device, working on the awaited request.
    pub device: f64,
    /// The device, flushing its cache or discarding.
    pub flush: f64,
    /// A limit on a cgroup's I/O.
    pub limit: f64,
    /// Kernel threads that worked for no known process.
    pub kernel: f64,
    /// Unknown.
    pub unknown: f64,
    /// The parts of the target behind `own`, worst first: a database's checkpointer, another container of the pod.
    /// Excludes the waiting threads' own earlier requests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Member>,
}

/// A part of the target that other parts waited for.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Member {
    /// The process's title (`postgres: checkpointer`), or its `comm` if it has none.
    pub name: String,
    /// Whether it is a thread of the process that waited.
    pub is_thread: bool,
    /// The process ids, at most eight.
    pub pids: Vec<u32>,
    /// Share of the finding's stall time, 0 to 1.
    pub share: f64,
    pub stall_ns: u64,
}

/// The time charged to one process, or to several with the same name and cgroup.
#[derive(Clone, Debug, Default)]
struct Account {
    ns: u64,
    by_means: BTreeMap<Means, u64>,
    pids: BTreeSet<u32>,
    bytes_max: u64,
    files: BTreeMap<String, u64>,
}

/// The time charged to one part of the target.
#[derive(Clone, Debug, Default)]
struct OwnPart {
    ns: u64,
    pids: BTreeSet<u32>,
}

/// The stall time of one cause.
#[derive(Clone, Debug, Default)]
struct Sums {
    total_ns: u64,
    others: BTreeMap<(String, Option<String>), Account>,
    own: BTreeMap<(bool, String), OwnPart>,
    own_ns: u64,
    /// Queued behind the target's own requests.
    own_queue_ns: u64,
    others_queue_ns: u64,
    device_ns: u64,
    flush_ns: u64,
    limit_ns: u64,
    kernel_ns: u64,
    unknown_ns: u64,
    /// For causes other than `run-queue`: time in which kernel threads that worked for the call waited for a CPU.
    served_late_ns: u64,
    /// For reads: time of reading again pages that had been evicted.
    again_ns: u64,
}

/// Time of the judged calls at devices, over all causes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceTime {
    /// Queued behind requests of others and of the target.
    pub queued_ns: u64,
    pub queued_others_ns: u64,
    /// From issue to completion of the awaited request.
    pub device_ns: u64,
    pub flush_ns: u64,
    /// Held back by a limit.
    pub limit_ns: u64,
}

/// The charges of the judged calls, by cause.
#[derive(Clone, Debug, Default)]
pub struct Charges {
    by_cause: BTreeMap<Cause, Sums>,
    /// Waits for a CPU by threads that worked for the calls.
    served_late: Sums,
    /// Reads of pages that had been evicted.
    again: Sums,
    places: Places,
    /// The cgroups of the threads that waited.
    own_cgroups: BTreeSet<String>,
    /// The bound on examined rows was reached, so that some charges are unknown.
    pub cut: bool,
}

impl Charges {
    /// Charges the calls for which `keeps` returns true; empty if the recording has no wait chains.
    #[must_use]
    pub fn of(recording: &Recording, keeps: impl Fn(usize) -> bool) -> Charges {
        let mut charges = Charges::default();
        let followed = !recording.waits.is_empty() || !recording.cpu_owners.is_empty();
        if !followed && recording.dirtiers.is_empty() && recording.memory_users.is_empty() {
            return charges;
        }
        let links = Links::of(recording);
        charges.places = Places::of(recording);
        for (_, call) in recording.calls.iter().enumerate().filter(|(place, _)| keeps(*place)) {
            charges.add(&links, call);
        }
        charges.cut = links.is_spent();
        charges
    }

    fn add(&mut self, links: &Links<'_>, call: &Call) {
        if let Some(own) = links.own_cgroup(call).filter(|own| !self.own_cgroups.contains(*own)) {
            self.own_cgroups.insert(own.to_owned());
        }
        for (place, segment) in call.segments.iter().enumerate() {
            let sums = self.by_cause.entry(segment.cause).or_default();
            add_to(&mut sums.total_ns, segment.ns);
            let (late, again) = (&mut self.served_late, &mut self.again);
            for share in charge::segment(links, call, place) {
                sums.add(links, call, &share);
                match (share.means, segment.cause) {
                    (Means::Cpu, Cause::RunQueue) => {}
                    (Means::Cpu, _) => {
                        add_to(&mut sums.served_late_ns, share.ns);
                        add_to(&mut late.total_ns, share.ns);
                        late.add(links, call, &share);
                    }
                    (Means::Memory, cause) if !RECLAIM.contains(&cause) => {
                        add_to(&mut sums.again_ns, share.ns);
                        add_to(&mut again.total_ns, share.ns);
                        again.add(links, call, &share);
                    }
                    _ => {}
                }
            }
        }
    }

    /// The aggressors of a cause, worst first, and the shares by party; `None` if no party is known.
    #[must_use]
    pub fn of_cause(&self, cause: Cause) -> Option<(Vec<Aggressor>, Answerable)> {
        self.placed(self.by_cause.get(&cause)?.answer())
    }

    /// Adds the aggressors' file systems and cgroups, if known.
    fn placed(&self, mut answer: Option<(Vec<Aggressor>, Answerable)>) -> Option<(Vec<Aggressor>, Answerable)> {
        for aggressor in answer.iter_mut().flat_map(|(aggressors, _)| aggressors) {
            aggressor.in_own_cgroup = aggressor.cgroup.as_ref().is_some_and(|path| self.own_cgroups.contains(path));
            let Aggressor { program, cgroup, .. } = &*aggressor;
            aggressor.same_file_system = match cgroup {
                Some(path) if aggressor.several => self.places.shared_by_all_of(path),
                _ => self.places.shared(program, cgroup.as_deref()),
            };
        }
        answer
    }

    /// The cgroup of the threads that waited, if all were in the same one.
    #[must_use]
    pub fn only_own_cgroup(&self) -> Option<&str> {
        let mut paths = self.own_cgroups.iter();
        paths.next().filter(|_| paths.next().is_none()).map(String::as_str)
    }

    /// Who occupied the CPUs that the calls' threads, and kernel threads serving them, waited for.
    #[must_use]
    pub fn at_cpus(&self) -> Option<(Vec<Aggressor>, Answerable)> {
        let mut all = self.by_cause.get(&Cause::RunQueue).cloned().unwrap_or_default();
        all.absorb(&self.served_late);
        self.placed(all.answer())
    }

    /// Who took the memory for which pages were evicted that had to be read again.
    #[must_use]
    pub fn of_evictions(&self) -> Option<(Vec<Aggressor>, Answerable)> {
        self.placed(self.again.answer())
    }

    /// Time in which calls waited for kernel threads that waited for a CPU, ns.
    #[must_use]
    pub fn total_served_late_ns(&self) -> u64 {
        self.served_late.total_ns
    }

    /// Time in which calls waited to read pages again that a full cgroup had evicted, ns.
    #[must_use]
    pub fn total_again_ns(&self) -> u64 {
        self.again.total_ns
    }

    /// The parties of all causes whose time went to devices.
    #[must_use]
    pub fn at_devices(&self) -> Option<(Vec<Aggressor>, Answerable)> {
        let causes: BTreeSet<Cause> = self.device_causes().collect();
        let mut all = Sums::default();
        for (_, sums) in self.by_cause.iter().filter(|(cause, _)| causes.contains(*cause)) {
            all.absorb(&sums.at_device());
        }
        self.placed(all.answer())
    }

    /// The time at devices, by what it was spent on.
    #[must_use]
    pub fn device_time(&self) -> DeviceTime {
        let mut time = DeviceTime::default();
        for sums in self.by_cause.values() {
            add_to(&mut time.queued_ns, sums.others_queue_ns.saturating_add(sums.own_queue_ns));
            add_to(&mut time.queued_others_ns, sums.others_queue_ns);
            add_to(&mut time.device_ns, sums.device_ns);
            add_to(&mut time.flush_ns, sums.flush_ns);
            add_to(&mut time.limit_ns, sums.limit_ns);
        }
        time
    }

    /// Causes that spent at least half of their time at devices.
    pub fn device_causes(&self) -> impl Iterator<Item = Cause> + '_ {
        let at_device = |sums: &Sums| {
            let queued_ns = [sums.others_queue_ns, sums.own_queue_ns];
            let served_ns = [sums.device_ns, sums.flush_ns, sums.limit_ns, sums.served_late_ns, sums.again_ns];
            total(queued_ns.into_iter().chain(served_ns))
        };
        self.by_cause
            .iter()
            .filter(move |(_, sums)| at_device(sums) >= sums.total_ns.max(1).div_ceil(2))
            .map(|(cause, _)| *cause)
    }
}

impl Sums {
    fn add(&mut self, links: &Links<'_>, call: &Call, share: &Share<'_>) {
        let Share { party, means, ns, bytes, file } = *share;
        match party {
            Party::Other(task) => {
                let unnamed = task.is_only_a_cgroup();
                let name = if unnamed { Task::SOME_PROGRAM.to_owned() } else { task.name.clone() };
                let account = self.others.entry((name, task.cgroup.clone())).or_default();
                add_to(&mut account.ns, ns);
                add_to(account.by_means.entry(means).or_default(), ns);
                account.pids.extend((!unnamed).then_some(task.pid));
                account.bytes_max = account.bytes_max.max(bytes);
                if let Some(file) = file {
                    add_to(account.files.entry(file.to_owned()).or_default(), ns);
                }
                if matches!(means, Means::Queue | Means::Beside | Means::Cache) {
                    add_to(&mut self.others_queue_ns, ns);
                }
            }
            Party::Own(task) => {
                add_to(&mut self.own_ns, ns);
                if matches!(means, Means::Queue | Means::Beside) {
                    add_to(&mut self.own_queue_ns, ns);
                }
                let is_thread = task.pid == call.pid;
                // Requests of the calling thread, or of the calling process if the thread is unknown, do not count as
                // another part of the target.
                if task.is_only_a_cgroup() || is_thread && (task.tid == 0 || task.tid == call.tid) {
                    return;
                }
                let title = links.title(task.pid).filter(|_| !is_thread);
                let part = self.own.entry((is_thread, title.unwrap_or(&task.name).to_owned())).or_default();
                add_to(&mut part.ns, ns);
                part.pids.insert(task.pid);
            }
            Party::Device => add_to(&mut self.device_ns, ns),
            Party::Flush => add_to(&mut self.flush_ns, ns),
            Party::Limit(_) => add_to(&mut self.limit_ns, ns),
            Party::Kernel(_) => add_to(&mut self.kernel_ns, ns),
            Party::Unknown => add_to(&mut self.unknown_ns, ns),
        }
    }

    /// A copy without the time that the device did not cause: waits of aggressors' threads for a CPU, and repeated
    /// reads.
    fn at_device(&self) -> Sums {
        let mut left = self.clone();
        let elsewhere = [Means::Cpu, Means::Memory];
        let taken = |account: &mut Account| -> u64 {
            let ns = elsewhere.iter().filter_map(|means| account.by_means.remove(means)).fold(0, u64::saturating_add);
            account.ns = account.ns.saturating_sub(ns);
            ns
        };
        let of_others: u64 = left.others.values_mut().map(taken).fold(0, u64::saturating_add);
        left.others.retain(|_, account| account.ns > 0);
        let elsewhere_ns = self.served_late_ns.saturating_add(self.again_ns);
        left.total_ns = left.total_ns.saturating_sub(elsewhere_ns);
        // The rest belongs to the target, the kernel or unknown, whose times are not recorded by means.
        let mut rest_ns = elsewhere_ns.saturating_sub(of_others);
        for part in [&mut left.unknown_ns, &mut left.own_ns, &mut left.kernel_ns] {
            let ns = rest_ns.min(*part);
            *part = part.saturating_sub(ns);
            rest_ns = rest_ns.saturating_sub(ns);
        }
        left
    }

    fn absorb(&mut self, other: &Sums) {
        add_to(&mut self.total_ns, other.total_ns);
        for (key, from) in &other.others {
            self.others.entry(key.clone()).or_default().absorb(from);
        }
        for (key, from) in &other.own {
            let part = self.own.entry(key.clone()).or_default();
            add_to(&mut part.ns, from.ns);
            part.pids.extend(&from.pids);
        }
        add_to(&mut self.own_ns, other.own_ns);
        add_to(&mut self.own_queue_ns, other.own_queue_ns);
        add_to(&mut self.others_queue_ns, other.others_queue_ns);
        add_to(&mut self.device_ns, other.device_ns);
        add_to(&mut self.flush_ns, other.flush_ns);
        add_to(&mut self.limit_ns, other.limit_ns);
        add_to(&mut self.kernel_ns, other.kernel_ns);
        add_to(&mut self.unknown_ns, other.unknown_ns);
        add_to(&mut self.served_late_ns, other.served_late_ns);
        add_to(&mut self.again_ns, other.again_ns);
    }

    fn answer(&self) -> Option<(Vec<Aggressor>, Answerable)> {
        // Without a known party, nothing is answered, not even that no other process is to blame.
        if self.total_ns == 0 || self.unknown_ns >= self.total_ns {
            return None;
        }
        let share = |ns: u64| ns as f64 / self.total_ns as f64;
        let all = self.joined_by_name();
        let mut others: Vec<_> = all.iter().filter(|(_, account)| share(account.ns) >= NAMED_SHARE_MIN).collect();
        others.sort_short_by_key(|(_, account)| std::cmp::Reverse(account.ns));
        let mut named: Vec<Aggressor> =
            others.into_iter().take(NAMED_MAX).map(|(key, account)| account.named(key, share(account.ns))).collect();
        if named.is_empty() {
            named.extend(
                self.by_cgroup()
                    .map(|(key, account)| Aggressor { several: true, ..account.named(&key, share(account.ns)) }),
            );
        }
        let answerable = Answerable {
            others: share(self.others.values().map(|account| account.ns).fold(0, u64::saturating_add)),
            own: share(self.own_ns),
            device: share(self.device_ns),
            flush: share(self.flush_ns),
            limit: share(self.limit_ns),
            kernel: share(self.kernel_ns),
            unknown: share(self.unknown_ns),
            members: self.members(),
        };
        Some((named, answerable))
    }

    /// The accounts of other processes, with two kinds joined. An account without a cgroup (its process ended
    /// before the cgroup was read) joins the account of the same name if that name occurs in one cgroup only, as
    /// with the runs of a script's command. An account of a cgroup without a program joins the cgroup's only
    /// program.
    fn joined_by_name(&self) -> BTreeMap<(String, Option<String>), Account> {
        let mut all = self.others.clone();
        // The only program of each cgroup; `None` if there are several.
        let mut only_of: BTreeMap<Option<&str>, Option<&String>> = BTreeMap::new();
        for (name, cgroup) in self.others.keys().filter(|(name, _)| name != Task::SOME_PROGRAM) {
            only_of.entry(cgroup.as_deref()).and_modify(|only| *only = None).or_insert(Some(name));
        }
        for key in self.others.keys().filter(|(name, _)| name == Task::SOME_PROGRAM) {
            let Some(only) = only_of.get(&key.1.as_deref()).copied().flatten() else { continue };
            if let Some(account) = all.remove(key) {
                all.entry((only.clone(), key.1.clone())).or_default().absorb(&account);
            }
        }
        let lost: Vec<(String, Option<String>)> = all.keys().filter(|(_, cgroup)| cgroup.is_none()).cloned().collect();
        for key in lost {
            // Keys are sorted: an account without a cgroup precedes those of the same name with one.
            let mut known = all.range(&key..).map(|(other, _)| other).skip(1).take_while(|(name, _)| *name == key.0);
            let (Some(only), None) = (known.next().cloned(), known.next()) else { continue };
            if let Some(account) = all.remove(&key) {
                all.entry(only).or_default().absorb(&account);
            }
        }
        all
    }

    /// The parts of the target that the calls waited for longest.
    fn members(&self) -> Vec<Member> {
        // `at_device` may have reduced `own_ns`: no part has more than that.
        let share = |ns: u64| ns.min(self.own_ns) as f64 / self.total_ns as f64;
        let mut parts: Vec<_> = self.own.iter().filter(|(_, part)| share(part.ns) >= NAMED_SHARE_MIN).collect();
        parts.sort_short_by_key(|(_, part)| std::cmp::Reverse(part.ns));
        let member = |((is_thread, name), part): (&(bool, String), &OwnPart)| Member {
            name: name.clone(),
            is_thread: *is_thread,
            pids: part.pids.iter().copied().take(PIDS_MAX).collect(),
            share: (share(part.ns) * 1000.0).round() / 1000.0,
            stall_ns: part.ns.min(self.own_ns),
        };
        parts.into_iter().take(NAMED_MAX).map(member).collect()
    }

    /// The cgroup charged with the most time, if that is enough to be named. A build, for example, runs many
    /// short-lived compilers, none of which is charged with much.
    fn by_cgroup(&self) -> Option<((String, Option<String>), Account)> {
        let mut groups: BTreeMap<&str, Vec<(&String, &Account)>> = BTreeMap::new();
        for ((program, cgroup), account) in &self.others {
            if let Some(path) = cgroup.as_deref().filter(|path| *path != "/") {
                groups.entry(path).or_default().push((program, account));
            }
        }
        let ns = |members: &[(&String, &Account)]| {
            members.iter().map(|(_, account)| account.ns).fold(0, u64::saturating_add)
        };
        let (path, members) = groups.into_iter().max_by_key(|(_, members)| ns(members))?;
        if (ns(&members) as f64) < NAMED_SHARE_MIN * self.total_ns as f64 {
            return None;
        }
        let most = members.iter().max_by_key(|(_, account)| account.ns)?.0;
        let more = members.len().saturating_sub(1);
        let program = if more == 0 { most.clone() } else { format!("{most} and {more} more programs") };
        let mut together = Account::default();
        members.iter().for_each(|(_, account)| together.absorb(account));
        Some(((program, Some(path.to_owned())), together))
    }
}

impl Account {
    fn absorb(&mut self, from: &Account) {
        add_to(&mut self.ns, from.ns);
        self.pids.extend(&from.pids);
        self.bytes_max = self.bytes_max.max(from.bytes_max);
        for (means, ns) in &from.by_means {
            add_to(self.by_means.entry(*means).or_default(), *ns);
        }
        for (file, ns) in &from.files {
            add_to(self.files.entry(file.clone()).or_default(), *ns);
        }
    }

    /// ` (up to 32 MiB at once, mostly of backup.img)`, or nothing.
    fn amount(&self) -> String {
        let bytes = (self.bytes_max > 0).then(|| format!("up to {} at once", Bytes(self.bytes_max)));
        let most = self.files.iter().max_by_key(|(_, ns)| **ns).map(|(file, _)| format!("mostly of {file}"));
        let known: Vec<String> = bytes.into_iter().chain(most).collect();
        if known.is_empty() { String::new() } else { format!(" ({})", known.join(", ")) }
    }

    fn named(&self, (program, cgroup): &(String, Option<String>), share: f64) -> Aggressor {
        let means = self.by_means.iter().max_by_key(|(_, ns)| **ns).map_or(Means::Running, |(means, _)| *means);
        let mut by_time: Vec<(&Means, &u64)> = self.by_means.iter().collect();
        by_time.sort_short_by_key(|(_, ns)| std::cmp::Reverse(**ns));
        let mut amount = self.amount();
        let evidence = by_time.into_iter().map(|(means, ns)| {
            // The amount is known for the account as a whole: it is printed with the means that took longest.
            let of = std::mem::take(&mut amount);
            let what = match means {
                Means::Queue => format!("its requests{of} were ahead in the device's queue"),
                Means::Beside => format!("the device worked on its requests{of} at the same time"),
                Means::Cache => format!("its data{of} was in the device's cache, which was flushed"),
                Means::Data => format!("the device worked on its data{of}, which was waited for"),
                Means::Lock => "it held the lock".to_owned(),
                Means::Running => "it ran, or waited for a CPU, before it ended the wait".to_owned(),
                Means::DirtyPages => format!("it dirtied pages{of} in that time"),
                Means::Memory => format!("it took memory{of}"),
                Means::DroppedCache => "pages were read again that it had dropped from the page cache".to_owned(),
                Means::Journal => "the journal wrote what it had changed in the file system".to_owned(),
                Means::Cpu => "it ran on the CPU that was waited for".to_owned(),
            };
            Evidence::new(format!("for {} {what}", Nanos(*ns)), *ns as f64, "ns")
        });
        Aggressor {
            program: program.clone(),
            several: false,
            pids: self.pids.iter().copied().take(PIDS_MAX).collect(),
            cgroup: cgroup.clone().filter(|path| path != "/"),
            share: (share * 1000.0).round() / 1000.0,
            stall_ns: self.ns,
            means,
            bytes: self.bytes_max,
            same_file_system: None,
            in_own_cgroup: false,
            evidence: evidence.collect(),
        }
    }
}
