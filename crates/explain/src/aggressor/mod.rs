//! Who made them wait: the stall time of each cause, charged to processes, to the device, to limits, or to nobody.

mod charge;
mod evicted;
mod journal;
mod links;
mod places;
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

pub use charge::{Charge, Means, Party, segment};
pub use evicted::Evicted;
pub use links::{Links, ender, is_kernel};
use places::Places;

use super::Evidence;
use flatwater_recording::units::{Bytes, Nanos};
use flatwater_recording::{Call, Cause, Recording, Task};

/// Of a cause's stall time one process must answer for at least so much to be named. Below it, it is one of many, and its
/// absence would hardly be felt.
pub const NAMED_SHARE_MIN: f64 = 0.2;
/// Processes that a finding names.
const NAMED_MAX: usize = 4;
/// Causes that are reclaim itself: whoever took memory answers for them, too.
const RECLAIM: &[Cause] = &[Cause::MemcgReclaim, Cause::DirectReclaim, Cause::ReclaimThrottle, Cause::MemcgOverHigh];
/// Process ids that are listed of one aggressor.
const PIDS_MAX: usize = 8;

/// Recorded times may be damaged: a sum stays at its largest value.
fn add_to(sum: &mut u64, ns: u64) {
    *sum = sum.saturating_add(ns);
}

/// Somebody who made the calls of a finding wait.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Aggressor {
    /// What the process calls itself.
    pub program: String,
    /// It is all programs of its cgroup, none of which did enough to be named by itself.
    #[serde(skip)]
    pub several: bool,
    /// The first eight of its processes.
    pub pids: Vec<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Of the finding's stall time, 0 to 1.
    pub share: f64,
    pub stall_ns: u64,
    /// By which it made most of them wait.
    pub means: Means,
    /// What of its was ahead, or was made dirty, in the worst single wait, bytes; 0 where no bytes are known.
    pub bytes: u64,
    /// Whether most of what it had at the device belongs to the file system that was waited for; absent where it had nothing
    /// there, or nobody recorded to which file system that belongs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub same_file_system: Option<bool>,
    /// It is in a cgroup of those who waited: what bounds that cgroup bounds them, too.
    #[serde(skip)]
    pub in_own_cgroup: bool,
    pub evidence: Vec<Evidence>,
}

impl Aggressor {
    /// Somebody who is known from elsewhere than from wait chains: its part of the stall time as share and ns.
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

/// To whom the stall time of a finding goes, in shares that sum to 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Answerable {
    /// Processes that were not watched.
    pub others: f64,
    /// The target's own threads, processes and earlier requests.
    pub own: f64,
    /// The device, at work on what was waited for.
    pub device: f64,
    /// The device, flushing its cache or discarding.
    pub flush: f64,
    /// A limit on a cgroup's I/O.
    pub limit: f64,
    /// Threads of the kernel, for nobody that is known.
    pub kernel: f64,
    /// Nobody is known.
    pub unknown: f64,
    /// Of `own`, whom of the target the calls waited for, the worst first: a database's checkpointer, another container of the
    /// pod. Without the threads' own earlier requests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Member>,
}

/// A part of the target that other parts of it waited for.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Member {
    /// What it calls itself (`postgres: checkpointer`), else its `comm`.
    pub name: String,
    /// A thread of the very process that waited.
    pub is_thread: bool,
    /// The first eight of its processes.
    pub pids: Vec<u32>,
    /// Of the finding's stall time, 0 to 1.
    pub share: f64,
    pub stall_ns: u64,
}

/// What one process, or several of one name in one cgroup, answers for.
#[derive(Clone, Debug, Default)]
struct Account {
    ns: u64,
    by_means: BTreeMap<Means, u64>,
    pids: BTreeSet<u32>,
    bytes_max: u64,
    files: BTreeMap<String, u64>,
}

/// The same of a part of the target.
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
    /// Behind the target's own requests.
    own_queue_ns: u64,
    others_queue_ns: u64,
    device_ns: u64,
    flush_ns: u64,
    limit_ns: u64,
    kernel_ns: u64,
    unknown_ns: u64,
    /// Of a cause that is no wait for a CPU: what the kernel's threads that worked for the call waited for one.
    served_late_ns: u64,
    /// Of reads: what was read again after it had been evicted.
    again_ns: u64,
}

/// Where the device-bound time of the judged calls went, all causes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceTime {
    /// Behind requests of others, and of the target's own.
    pub queued_ns: u64,
    pub queued_others_ns: u64,
    /// From issue to completion of what was waited for.
    pub device_ns: u64,
    pub flush_ns: u64,
    /// Held back by a limit.
    pub limit_ns: u64,
}

/// Charges of the judged calls, by cause.
#[derive(Clone, Debug, Default)]
pub struct Charges {
    by_cause: BTreeMap<Cause, Sums>,
    /// Waits for a CPU of those that worked for the calls.
    served_late: Sums,
    /// Reads of pages that had been evicted.
    again: Sums,
    places: Places,
    /// The groups of those who waited.
    own_cgroups: BTreeSet<String>,
    /// Not all rows that say who made calls wait were looked at.
    pub cut: bool,
}

impl Charges {
    /// Nothing where the recording holds no wait chains.
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
            charge::segment(links, call, place, |charge| {
                sums.add(links, call, &charge);
                match (charge.means, segment.cause) {
                    (Means::Cpu, Cause::RunQueue) => {}
                    (Means::Cpu, _) => {
                        add_to(&mut sums.served_late_ns, charge.ns);
                        add_to(&mut late.total_ns, charge.ns);
                        late.add(links, call, &charge);
                    }
                    (Means::Memory, cause) if !RECLAIM.contains(&cause) => {
                        add_to(&mut sums.again_ns, charge.ns);
                        add_to(&mut again.total_ns, charge.ns);
                        again.add(links, call, &charge);
                    }
                    _ => {}
                }
            });
        }
    }

    /// The aggressors of a cause, the worst first; `None` where nothing is known of who made it wait.
    #[must_use]
    pub fn of_cause(&self, cause: Cause) -> Option<(Vec<Aggressor>, Answerable)> {
        self.placed(self.by_cause.get(&cause)?.answer())
    }

    /// With what is known of the file systems that the aggressors use.
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

    /// Who had the CPUs: that the calls' threads waited for, and that the kernel's threads waited for which served them.
    #[must_use]
    pub fn at_cpus(&self) -> Option<(Vec<Aggressor>, Answerable)> {
        let mut all = self.by_cause.get(&Cause::RunQueue).cloned().unwrap_or_default();
        all.absorb(&self.served_late);
        self.placed(all.answer())
    }

    /// Who took the memory from which pages were evicted that had to be read again.
    #[must_use]
    pub fn of_evictions(&self) -> Option<(Vec<Aggressor>, Answerable)> {
        self.placed(self.again.answer())
    }

    /// What the kernel's threads waited for a CPU while calls waited for them.
    #[must_use]
    pub fn total_served_late_ns(&self) -> u64 {
        self.served_late.total_ns
    }

    /// What calls waited for reads of pages that had been evicted from a full cgroup.
    #[must_use]
    pub fn total_again_ns(&self) -> u64 {
        self.again.total_ns
    }

    /// Of all causes whose time went to devices.
    #[must_use]
    pub fn at_devices(&self) -> Option<(Vec<Aggressor>, Answerable)> {
        let causes: BTreeSet<Cause> = self.device_causes().collect();
        let mut all = Sums::default();
        for (_, sums) in self.by_cause.iter().filter(|(cause, _)| causes.contains(*cause)) {
            all.absorb(&sums.at_device());
        }
        self.placed(all.answer())
    }

    /// Where the time at devices went.
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

    /// Causes at least half of whose time went to devices.
    pub fn device_causes(&self) -> impl Iterator<Item = Cause> + '_ {
        let at_device = |sums: &Sums| {
            let queued_ns = sums.others_queue_ns + sums.own_queue_ns;
            queued_ns + sums.device_ns + sums.flush_ns + sums.limit_ns + sums.served_late_ns + sums.again_ns
        };
        self.by_cause
            .iter()
            .filter(move |(_, sums)| 2 * at_device(sums) >= sums.total_ns.max(1))
            .map(|(cause, _)| *cause)
    }
}

impl Sums {
    fn add(&mut self, links: &Links<'_>, call: &Call, charge: &Charge<'_>) {
        let Charge { party, means, ns, bytes, file } = *charge;
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
                // The thread's own requests, and its process's where the thread is not known, accuse nobody else.
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

    /// Without what was no matter of the device: its threads' waits for a CPU, and reads that were made again.
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
        let elsewhere_ns = self.served_late_ns + self.again_ns;
        left.total_ns = left.total_ns.saturating_sub(elsewhere_ns);
        // What is not of others is of the target itself, of the kernel, or of nobody: the parts are not kept apart by means.
        let mut rest_ns = elsewhere_ns.saturating_sub(of_others);
        for part in [&mut left.unknown_ns, &mut left.own_ns, &mut left.kernel_ns] {
            let ns = rest_ns.min(*part);
            *part -= ns;
            rest_ns -= ns;
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
        // A cause of which nobody is known at all has no answer, not even that nobody else was to blame.
        if self.total_ns == 0 || self.unknown_ns >= self.total_ns {
            return None;
        }
        let share = |ns: u64| ns as f64 / self.total_ns as f64;
        let all = self.joined_by_name();
        let mut others: Vec<_> = all.iter().filter(|(_, account)| share(account.ns) >= NAMED_SHARE_MIN).collect();
        others.sort_by_key(|(_, account)| std::cmp::Reverse(account.ns));
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

    /// The accounts of others. A process that ended before its cgroup was read has an account without a cgroup: it joins the
    /// account of its name where all accounts of that name are of one cgroup, as the runs of a script's command are. What only a
    /// cgroup is charged for joins the account of the cgroup's only program.
    fn joined_by_name(&self) -> BTreeMap<(String, Option<String>), Account> {
        let mut all = self.others.clone();
        // The only program of each cgroup; `None` where there are several.
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
            // In the order of the keys an account without a cgroup comes before those of its name that have one.
            let mut known = all.range(&key..).map(|(other, _)| other).skip(1).take_while(|(name, _)| *name == key.0);
            let (Some(only), None) = (known.next().cloned(), known.next()) else { continue };
            if let Some(account) = all.remove(&key) {
                all.entry(only).or_default().absorb(&account);
            }
        }
        all
    }

    /// Those of the target that it waited for longest.
    fn members(&self) -> Vec<Member> {
        // Charges that were taken away since were of the target's, too: nobody answers for more than all of it.
        let share = |ns: u64| ns.min(self.own_ns) as f64 / self.total_ns as f64;
        let mut parts: Vec<_> = self.own.iter().filter(|(_, part)| share(part.ns) >= NAMED_SHARE_MIN).collect();
        parts.sort_by_key(|(_, part)| std::cmp::Reverse(part.ns));
        let member = |((is_thread, name), part): (&(bool, String), &OwnPart)| Member {
            name: name.clone(),
            is_thread: *is_thread,
            pids: part.pids.iter().copied().take(PIDS_MAX).collect(),
            share: (share(part.ns) * 1000.0).round() / 1000.0,
            stall_ns: part.ns.min(self.own_ns),
        };
        parts.into_iter().take(NAMED_MAX).map(member).collect()
    }

    /// Where no process did much, a cgroup may have: a build is many compilers, each short-lived. The one that answers for the
    /// most, if that is enough to be named.
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
        let more = members.len() - 1;
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
        by_time.sort_by_key(|(_, ns)| std::cmp::Reverse(**ns));
        let mut amount = self.amount();
        let evidence = by_time.into_iter().map(|(means, ns)| {
            // It is the account's: what took longest says it, and nothing after it.
            let of = std::mem::take(&mut amount);
            let what = match means {
                Means::Queue => format!("its requests{of} were ahead in the device's queue"),
                Means::Beside => format!("the device worked on its requests{of} at the same time"),
                Means::Cache => format!("its data{of} was in the device's cache, which was flushed"),
                Means::Data => format!("the device worked on its data{of}, which was waited for"),
                Means::Lock => "it held the lock".to_owned(),
                Means::Running => "it ran, or waited for a CPU, before it ended the wait".to_owned(),
                Means::DirtyPages => format!("it dirtied pages{of} meanwhile"),
                Means::Memory => format!("it took memory{of}"),
                Means::DroppedCache => "what it had dropped from the page cache was read again".to_owned(),
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
