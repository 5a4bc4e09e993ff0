//! The sentence at the top of a report: who waited, for what, and who made them wait.

use super::Finding;
use super::aggressor::{Aggressor, Links, Means, Member, ender, is_kernel};
use super::cause::{CauseId, lock_names};
use super::facts::Facts;
use super::role::Role;
use super::server::Server;
use super::victim::{Groups, Victim};
use flatwater_recording::units::{Bytes, Nanos};
use flatwater_recording::{Call, Cause, Request, Task, Wait};

/// Builds the sentence, such as `redis-server: 12 write() calls, up to 102 ms, waited for the file's lock that its
/// own thread bio_aof held in fdatasync, whose 9.8 MiB queued behind 412 MiB of dd (pid 812, cgroup /jobs/backup)`.
/// `None` if no group of calls lost enough time, or no finding has a measured time.
#[must_use]
pub fn sentence(facts: &Facts<'_>, groups: &Groups, findings: &[Finding]) -> Option<String> {
    let judged = |victim: &&Victim| facts.enough(victim.stall_ns, victim.worst_ns);
    let victim = groups.victims.iter().find(judged)?;
    let finding = findings.iter().find(|finding| finding.lost_ns.is_some())?;
    let calls = if victim.calls == 1 { "call" } else { "calls" };
    let who = if victim.role == Role::Background { format!("{} (background)", name(victim)) } else { name(victim) };
    let begin = format!("{who}: {} {}() {calls}, up to {},", victim.calls, victim.operation, Nanos(victim.worst_ns));
    let links = Links::of(facts.recording);
    let call = worst_call(facts, groups, victim);
    let chain = call.and_then(|call| chain(&links, call));
    let waited = match &chain {
        Some(chain) => chain.waited(victim.cause),
        None => phrase(victim.cause),
    };
    Some(format!("{begin} {waited}{}", blamed(finding, victim.cause, chain.as_ref())))
}

fn name(victim: &Victim) -> String {
    let program = if victim.program.is_empty() { victim.thread.as_str() } else { victim.program.as_str() };
    match (program.is_empty(), victim.thread == program || program.starts_with(&victim.thread)) {
        (true, _) => "an unnamed thread".to_owned(),
        (false, true) => program.to_owned(),
        (false, false) => format!("{program}'s {}", victim.thread),
    }
}

/// The aggressor as printed: `dd (pid 812, cgroup /jobs/backup)`.
#[must_use]
pub fn who(aggressor: &Aggressor) -> String {
    let pids = match aggressor.pids.as_slice() {
        [] => String::new(),
        [pid] => format!("pid {pid}"),
        pids => format!("{} processes", pids.len()),
    };
    let cgroup = aggressor.cgroup.as_ref().map(|path| format!("cgroup {path}"));
    let about: Vec<String> = [pids].into_iter().chain(cgroup).filter(|text| !text.is_empty()).collect();
    if about.is_empty() { aggressor.program.clone() } else { format!("{} ({})", aggressor.program, about.join(", ")) }
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
    fn waited(&self, cause: CauseId) -> String {
        let mut text = match (cause == CauseId::Lock, self.holder) {
            (true, Some((task, own))) => {
                let lock = self.lock.or(self.first.lock.as_deref()).unwrap_or("a lock");
                let holder = if own {
                    format!("its own thread {}", task.name)
                } else {
                    format!("{} (pid {})", task.name, task.pid)
                };
                let doing = self.first.waker_doing.as_ref().map(|doing| format!(" in {doing}")).unwrap_or_default();
                format!("waited for {lock} that {holder} held{doing}")
            }
            (true, None) => format!("waited for {}", self.lock.or(self.first.lock.as_deref()).unwrap_or("a lock")),
            (false, _) => match self.server.filter(|_| cause == CauseId::DeviceWait) {
                Some(server) => format!("waited for {}", server.name()),
                None => phrase(cause),
            },
        };
        if let Some((request, through)) = self.request {
            let whose = if through { "which waited for" } else { "blocked by" };
            let file = request.file.as_ref().map(|file| format!(" of {file}")).unwrap_or_default();
            // A flush has no data of its own.
            let bytes = if request.bytes > 0 { format!(" of {}", Bytes(request.bytes)) } else { String::new() };
            let below = request.below_device.as_ref().map(|disk| format!(" (above {disk})")).unwrap_or_default();
            text.push_str(&format!(", {whose} a {}{bytes}{file} on {}{below}", request.op.name(), request.device));
        }
        text
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

/// The end of the sentence: who made the calls wait, or that no other process did.
fn blamed(finding: &Finding, cause: CauseId, chain: Option<&Chain<'_>>) -> String {
    let Some(answerable) = &finding.answerable else { return String::new() };
    let Some(worst) = finding.aggressors.first() else {
        let known = answerable.unknown + answerable.kernel < 0.5;
        return match answerable.members.first() {
            _ if !known => String::new(),
            _ if answerable.limit >= 0.5 => "; a limit on its cgroup's I/O held it back".to_owned(),
            Some(member) if member.is_thread => format!("; its own thread {} made it wait", member.name),
            Some(member) => format!("; {}, which is part of the target, made it wait", part_of_target(member)),
            None => "; no other process made it wait".to_owned(),
        };
    };
    let bytes = if worst.bytes > 0 { format!("{} of ", Bytes(worst.bytes)) } else { String::new() };
    let who = who(worst);
    match worst.means {
        Means::Queue => format!(", queued behind {bytes}{who}"),
        Means::Beside => format!(", beside {bytes}{who} at the device"),
        Means::Cache => format!(", with {bytes}{who} in the device's cache"),
        Means::Data => format!(", which wrote {bytes}{who}"),
        Means::Lock if chain.is_some_and(|chain| chain.holder.is_some_and(|(_, own)| !own)) => String::new(),
        Means::Lock => format!("; {who} held the lock"),
        Means::DirtyPages => format!(", with {bytes}{who} among them"),
        Means::Memory => format!("; {who} took the memory"),
        Means::DroppedCache => format!("; {who} dropped the page cache"),
        Means::Journal => format!(", full of the changes of {who}"),
        Means::Running => format!("; {who} ran in that time"),
        Means::Cpu if cause == CauseId::RunQueue => format!(" on which {who} ran"),
        Means::Cpu => format!("; {who} had the CPU that the kernel's threads behind it waited for"),
    }
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
