//! The lead of a report: who waited, for what, and who made them wait.

use std::fmt;

use serde::Serialize;

use super::Finding;
use super::aggressor::{Aggressor, Links, Means, Member, ender, is_kernel};
use super::cause::{CauseId, lock_names};
use super::facts::Facts;
use super::fix::Party;
use super::role::Role;
use super::server::Server;
use super::victim::{Groups, Victim};
use flatwater_recording::units::{Bytes, Nanos};
use flatwater_recording::{Call, Cause, Request, RequestOp, Task, Wait};

/// Who waited, for what, and who made them wait. Displayed as one sentence, such as `redis-server: 12 write() calls, up to
/// 102 ms, waited for the file's lock that its own thread bio_aof held in fdatasync, whose 9.8 MiB queued behind 412 MiB
/// of dd (pid 812, cgroup /jobs/backup)`, which is also its form in JSON.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Lead {
    /// The program or thread that waited.
    pub who: String,
    pub background: bool,
    pub calls: u64,
    pub operation: &'static str,
    pub worst_ns: u64,
    pub wait: Awaited,
    /// The request at the end of the wait chain.
    pub request: Option<AwaitedRequest>,
    /// `None` if it is not known, or if `wait` names the holder of the lock.
    pub made_by: Option<MadeBy>,
}

/// The object that the worst call waited for.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Awaited {
    Cause(CauseId),
    /// A server, if the file system has no local device.
    Server(&'static str),
    Lock {
        lock: String,
        holder: Option<Holder>,
    },
}

/// The thread that held a lock.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Holder {
    pub name: String,
    pub pid: u32,
    /// Whether it belongs to the target.
    pub own: bool,
    /// The call in which it held the lock.
    pub doing: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AwaitedRequest {
    pub operation: RequestOp,
    /// 0 for a flush, which carries no data.
    pub bytes: u64,
    pub file: Option<String>,
    pub device: String,
    pub below_device: Option<String>,
    /// Whether another thread waited for it, and the call for that thread.
    pub through: bool,
}

/// The party that made the calls wait for most of the time.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum MadeBy {
    Aggressor {
        who: String,
        means: Means,
        bytes: u64,
        /// Whether the calls waited for the CPU themselves, not a thread behind them.
        for_cpu: bool,
    },
    Limit,
    Target(Member),
    NoOther,
}

impl Serialize for Lead {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The lead; `None` if no group of calls lost enough time, or no finding has a measured time.
#[must_use]
pub fn lead(facts: &Facts<'_>, groups: &Groups, findings: &[Finding]) -> Option<Lead> {
    let judged = |victim: &&Victim| facts.enough(victim.stall_ns, victim.worst_ns);
    let victim = groups.victims.iter().find(judged)?;
    let finding = findings.iter().find(|finding| finding.lost_ns.is_some())?;
    let links = Links::of(facts.recording);
    let chain = worst_call(facts, groups, victim).and_then(|call| chain(&links, call));
    Some(Lead {
        who: name(victim, facts.recording.header.scenario.is_some()),
        background: victim.role == Role::Background,
        calls: victim.calls,
        operation: victim.operation,
        worst_ns: victim.worst_ns,
        wait: chain.as_ref().map_or(Awaited::Cause(victim.cause), |chain| chain.awaited(victim.cause)),
        request: chain.as_ref().and_then(Chain::awaited_request),
        made_by: made_by(finding, victim.cause, chain.as_ref()),
    })
}

fn name(victim: &Victim, of_scenario: bool) -> String {
    let program = if victim.program.is_empty() { victim.thread.as_str() } else { victim.program.as_str() };
    // The threads of a scenario's workload are named WORKLOAD-NUMBER.
    if let Some(workload) = program.strip_suffix("-*").filter(|_| of_scenario) {
        return workload.to_owned();
    }
    match (program.is_empty(), victim.thread == program || program.starts_with(&victim.thread)) {
        (true, _) => "an unnamed thread".to_owned(),
        (false, true) => program.to_owned(),
        (false, false) => format!("{program}'s {}", victim.thread),
    }
}

/// The aggressor as printed: `dd (pid 812, cgroup /jobs/backup)`.
#[must_use]
pub fn who(aggressor: &Aggressor) -> String {
    Party::of(aggressor).to_string()
}

/// A part of the target as printed: `its thread bio_aof`, `postgres: checkpointer (pid 77)`, `rustc (3 processes)`.
#[must_use]
pub fn part_of_target(member: &Member) -> String {
    match member.pids.as_slice() {
        _ if member.is_thread => format!("its thread {}", member.name),
        [pid] => format!("{} (pid {pid})", member.name),
        pids => format!("{} ({} processes)", member.name, pids.len()),
    }
}

/// The longest of the group's calls.
fn worst_call<'a>(facts: &Facts<'a>, groups: &Groups, victim: &Victim) -> Option<&'a Call> {
    let calls = facts.recording.calls.iter().enumerate();
    let own = calls.filter(|(place, _)| groups.of(*place).is_some_and(|of| std::ptr::eq(of, victim)));
    own.map(|(_, call)| call).max_by_key(|call| call.duration_ns.saturating_add(call.after_exit_ns))
}

/// The longest sleep of a call, and the waits that it depended on.
struct Chain<'a> {
    first: &'a Wait,
    /// The lock, named by the kernel function that takes it.
    lock: Option<&'static str>,
    /// The server that the call waited for, if its file system has no local device.
    server: Option<Server>,
    /// The lock's holder or the thread that ended the sleep, and whether it belongs to the target.
    holder: Option<(&'a Task, bool)>,
    /// The request at the end of the chain, and whether another thread waited for it.
    request: Option<(&'a Request, bool)>,
}

fn chain<'a>(links: &Links<'a>, call: &Call) -> Option<Chain<'a>> {
    let first = links.sleeps(call).max_by_key(|wait| wait.duration_ns)?;
    let lock = links.stack(first).and_then(lock_names::of_stack).map(|name| name.lock);
    let holder = first.lock_holder.as_ref().or_else(|| ender(first)).filter(|task| !is_kernel(task));
    let mut at = first;
    let mut request = links.request(at);
    let mut through = false;
    while request.is_none() {
        let Some(next) =
            links.behind(call, at).max_by_key(|wait| wait.duration_ns).filter(|next| next.depth > at.depth)
        else {
            break;
        };
        (at, through) = (next, true);
        request = links.request(at);
    }
    Some(Chain {
        first,
        lock,
        server: links.stack(first).and_then(|stack| Server::of(&stack.frames)),
        holder: holder.map(|task| (task, links.is_own(call, task))),
        request: request.map(|request| (request, through)),
    })
}

impl Chain<'_> {
    fn awaited(&self, cause: CauseId) -> Awaited {
        match cause {
            CauseId::Lock => Awaited::Lock {
                lock: self.lock.or(self.first.lock.as_deref()).unwrap_or("a lock").to_owned(),
                holder: self.holder.map(|(task, own)| Holder {
                    name: task.name.clone(),
                    pid: task.pid,
                    own,
                    doing: self.first.waker_doing.clone(),
                }),
            },
            CauseId::DeviceWait => self.server.map_or(Awaited::Cause(cause), |server| Awaited::Server(server.name())),
            _ => Awaited::Cause(cause),
        }
    }

    fn awaited_request(&self) -> Option<AwaitedRequest> {
        let (request, through) = self.request?;
        Some(AwaitedRequest {
            operation: request.op,
            bytes: request.bytes,
            file: request.file.clone(),
            device: request.device.clone(),
            below_device: request.below_device.clone(),
            through,
        })
    }
}

fn made_by(finding: &Finding, cause: CauseId, chain: Option<&Chain<'_>>) -> Option<MadeBy> {
    let answerable = finding.answerable.as_ref()?;
    let Some(worst) = finding.aggressors.first() else {
        let known = answerable.unknown + answerable.kernel < 0.5;
        return match answerable.members.first() {
            _ if !known => None,
            _ if answerable.limit >= 0.5 => Some(MadeBy::Limit),
            Some(member) => Some(MadeBy::Target(member.clone())),
            None => Some(MadeBy::NoOther),
        };
    };
    let holder_is_named = chain.is_some_and(|chain| chain.holder.is_some_and(|(_, own)| !own));
    if worst.means == Means::Lock && holder_is_named {
        return None;
    }
    let for_cpu = cause == CauseId::RunQueue;
    Some(MadeBy::Aggressor { who: who(worst), means: worst.means, bytes: worst.bytes, for_cpu })
}

impl fmt::Display for Lead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let background = if self.background { " (background)" } else { "" };
        let calls = if self.calls == 1 { "call" } else { "calls" };
        let (who, operation, worst) = (&self.who, &self.operation, Nanos(self.worst_ns));
        write!(f, "{who}{background}: {} {operation}() {calls}, up to {worst}, {}", self.calls, self.wait)?;
        if let Some(request) = &self.request {
            write!(f, "{request}")?;
        }
        self.made_by.as_ref().map_or(Ok(()), |party| write!(f, "{party}"))
    }
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Awaited::Cause(cause) => f.write_str(&phrase(*cause)),
            Awaited::Server(name) => write!(f, "waited for {name}"),
            Awaited::Lock { lock, holder: None } => write!(f, "waited for {lock}"),
            Awaited::Lock { lock, holder: Some(holder) } => write!(f, "waited for {lock} that {holder}"),
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.own {
            true => write!(f, "its own thread {} held", self.name)?,
            false => write!(f, "{} (pid {}) held", self.name, self.pid)?,
        }
        self.doing.as_ref().map_or(Ok(()), |doing| write!(f, " in {doing}"))
    }
}

impl fmt::Display for AwaitedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = if self.through { "which waited for" } else { "blocked by" };
        let file = self.file.as_ref().map(|file| format!(" of {file}")).unwrap_or_default();
        let bytes = if self.bytes > 0 { format!(" of {}", Bytes(self.bytes)) } else { String::new() };
        let below = self.below_device.as_ref().map(|disk| format!(" (above {disk})")).unwrap_or_default();
        write!(f, ", {whose} a {}{bytes}{file} on {}{below}", self.operation.name(), self.device)
    }
}

impl fmt::Display for MadeBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MadeBy::Limit => f.write_str("; a limit on its cgroup's I/O held it back"),
            MadeBy::Target(member) if member.is_thread => write!(f, "; its own thread {} made it wait", member.name),
            MadeBy::Target(member) => {
                write!(f, "; {}, which is part of the target, made it wait", part_of_target(member))
            }
            MadeBy::NoOther => f.write_str("; no other process made it wait"),
            MadeBy::Aggressor { who, means, bytes, for_cpu } => {
                let bytes = if *bytes > 0 { format!("{} of ", Bytes(*bytes)) } else { String::new() };
                match means {
                    Means::Queue => write!(f, ", queued behind {bytes}{who}"),
                    Means::Beside => write!(f, ", beside {bytes}{who} at the device"),
                    Means::Cache => write!(f, ", with {bytes}{who} in the device's cache"),
                    Means::Data => write!(f, ", which wrote {bytes}{who}"),
                    Means::Lock => write!(f, "; {who} held the lock"),
                    Means::DirtyPages => write!(f, ", with {bytes}{who} among them"),
                    Means::Memory => write!(f, "; {who} took the memory"),
                    Means::DroppedCache => write!(f, "; {who} dropped the page cache"),
                    Means::Journal => write!(f, ", full of the changes of {who}"),
                    Means::Running => write!(f, "; {who} ran in that time"),
                    Means::Cpu if *for_cpu => write!(f, " on which {who} ran"),
                    Means::Cpu => write!(f, "; {who} had the CPU that the kernel's threads behind it waited for"),
                }
            }
        }
    }
}

/// Predicates of the sentence, by cause.
const PHRASES: &[(Cause, &str)] = &[
    (Cause::DirectReclaim, "reclaimed memory"),
    (Cause::MemcgReclaim, "reclaimed memory because their cgroup is full"),
    (Cause::NodeReclaim, "reclaimed memory of their NUMA node"),
    (Cause::ReclaimThrottle, "were paused because reclaim makes no progress"),
    (Cause::Compaction, "compacted memory for a larger page"),
    (Cause::Shrinker, "freed the kernel's caches"),
    (Cause::DirtyThrottle, "were paused because too many pages are dirty"),
    (Cause::JournalCommit, "waited for the journal to commit"),
    (Cause::JournalBuffer, "waited for a block of metadata that the journal was writing"),
    (Cause::JournalFull, "waited for room in the journal"),
    (Cause::PageWriteback, "waited for pages to be written"),
    (Cause::StablePage, "waited to change a page that was being written"),
    (Cause::BlockAllocation, "allocated blocks of the file system"),
    (Cause::SynchronousRead, "waited for a read from the device"),
    (Cause::RequestQueue, "waited for a free request of the device's queue"),
    (Cause::DeviceSlow, "waited for the device"),
    (Cause::DeviceWait, "waited for the device"),
    (Cause::Lock, "waited for a lock"),
    (Cause::SlabRefill, "filled the kernel's caches"),
    (Cause::PageAllocation, "allocated pages"),
    (Cause::PageFault, "handled page faults"),
    (Cause::SwapIn, "waited for pages from swap"),
    (Cause::MemcgOverHigh, "were paused because their cgroup is over memory.high"),
    (Cause::FsFreeze, "waited for a frozen file system"),
    (Cause::CpuQuota, "were held back by their cgroup's CPU quota"),
    (Cause::RunQueue, "waited for a CPU"),
    (Cause::Steal, "lost the CPU to the hypervisor"),
    (Cause::Interrupt, "were interrupted"),
    (Cause::Compute, "computed"),
    (Cause::WorkerQueue, "were queued for a worker of io_uring"),
    (Cause::CompletionWait, "were complete and not collected by their program"),
    (Cause::CompletionWork, "were done by the device and not completed by the kernel"),
    (Cause::Unexplained, "waited for an unknown reason"),
];

fn phrase(cause: CauseId) -> String {
    let known = PHRASES.iter().find(|(one, _)| cause.span() == Some(*one));
    known.map_or_else(|| format!("lost the time to {cause}"), |(_, phrase)| (*phrase).to_owned())
}

#[cfg(test)]
mod tests {
    use super::phrase;
    use flatwater_recording::Cause;

    #[test]
    fn every_cause_has_a_phrase() {
        let silent: Vec<&str> = Cause::ALL
            .iter()
            .filter(|cause| phrase((**cause).into()).starts_with("lost the time"))
            .map(|cause| cause.name())
            .collect();
        assert!(silent.is_empty(), "{silent:?}");
    }
}
