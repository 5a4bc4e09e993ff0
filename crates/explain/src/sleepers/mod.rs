//! Tasks that a log shows asleep, with one kernel stack each (SysRq-w, hung tasks, /proc/PID/stack, crash): what
//! most of them wait for, and, if they wait for another task, what that task waits for.
//!
//! A stack says where a task is, but not for how long. The evidence is how many tasks sleep in one place, and where
//! the task sleeps that they wait for: a task that waits for a mutex, a commit or the flusher waits for a thread,
//! whose own stack gives the reason.

mod holder;

use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::symbol::{base_name, meaning};
use flatwater_recording::units::Nanos;
use flatwater_recording::{Cause, CauseBasis, DurationBasis, Recording, ReportedBy, SampledTask};

use super::cause::CauseId;
use super::facts::Facts;
use super::precedence::{Candidate, Origin};
use super::server::Server;
use super::sums::{add_to, total};
use super::{Evidence, Finding, trouble};
use holder::{Link, link};

/// A wait for one request that lasts this long is not due to a queue: the last of 1024 requests of 10 ms each
/// completes after 10 s.
const NO_QUEUE_NS: u64 = 30_000_000_000;
/// Frames of every sleep.
const SCHEDULER: &[&str] = &["__schedule", "schedule", "io_schedule", "schedule_timeout", "schedule_preempt_disabled"];

/// Functions by which a task prints its own stack (a warning, lockdep, an OOM kill, a failed allocation). Such a
/// task was running.
const PRINTS: &[&str] = &[
    "dump_stack",
    "dump_stack_lvl",
    "show_stack",
    "print_circular_bug",
    "__warn",
    "warn_slowpath_common",
    "warn_slowpath_fmt",
    "warn_slowpath_null",
    "warn_alloc",
    "warn_alloc_failed",
    "dump_header",
    "oom_kill_process",
];

/// Functions in which a CPU spins until another one releases a lock (kernel/locking).
const SPINS: &[&str] =
    &["queued_spin_lock_slowpath", "native_queued_spin_lock_slowpath", "__pv_queued_spin_lock_slowpath"];

const FUTEX: &[&str] =
    &["futex_wait", "__futex_wait", "futex_wait_queue", "futex_wait_queue_me", "futex_wait_requeue_pi"];

/// The purpose of a kernel thread that others wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Commits a journal, a log or a transaction.
    Commit,
    /// Writes dirty pages back.
    Flusher,
    Other,
}

/// One task, or several with the same name and stack.
#[derive(Debug)]
struct Sleeper<'a> {
    task: &'a SampledTask,
    frames: Vec<&'a str>,
    role: Role,
    cause: Cause,
    frame: &'a str,
}

/// Tasks that wait for the same cause.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    cause: Cause,
    tasks: u64,
    blocked_ns: Option<u64>,
    /// The group's first task in the log, as an index into the sleepers.
    first: usize,
}

/// Adds a candidate for each group of waiting tasks: the reason first, then the waits for it. An existing candidate
/// with the same cause is extended and replaced.
pub fn add(facts: &Facts<'_>, candidates: &mut Vec<Candidate>) {
    let sleepers = sleepers(facts.recording);
    let groups = groups(&sleepers);
    let Some(first) = groups.first() else { return };
    let link = link(&sleepers, first);
    let mut order: Vec<Group> = groups.clone();
    if let Some(link) = &link {
        let behind = order.iter().position(|group| group.cause == link.cause);
        let behind = behind.map_or_else(|| alone(&sleepers, link), |at| order.remove(at));
        order.insert(0, behind);
    }
    let known = total(sleepers.iter().map(|sleeper| u64::from(sleeper.task.count)));
    let all = known.saturating_add(unknown(facts.recording));
    let mut leading = Vec::new();
    for (place, group) in order.iter().enumerate() {
        let named = finding(facts, &sleepers, group, all, candidates);
        let chain = link.as_ref().filter(|_| place == 0).map(|link| chain_evidence(&sleepers, first, link));
        leading.push(named.with(chain));
    }
    // `device-slow` includes the wait for the device.
    let device_slow = leading[0].cause == CauseId::DeviceSlow;
    candidates.retain(|Candidate { finding, .. }| {
        let named = leading.iter().any(|named| named.cause == finding.cause);
        !(named || device_slow && finding.cause == CauseId::DeviceWait)
    });
    let places = leading.into_iter().enumerate();
    candidates.extend(places.map(|(place, finding)| Candidate { finding, origin: Origin::Stacks { place } }));
}

fn frames<'a>(recording: &'a Recording, task: &SampledTask) -> Vec<&'a str> {
    let stack = task.stack.and_then(|id| recording.stack(id));
    stack.map(|stack| stack.frames.iter().map(|frame| base_name(frame)).collect()).unwrap_or_default()
}

/// Whether the task waits: in uninterruptible sleep, in an unknown state, or spinning in a lock's function when the
/// kernel reported a lockup. Interruptible sleep proves nothing.
fn waits(task: &SampledTask) -> bool {
    let spun =
        task.reported_by == ReportedBy::Lockup && task.frame.as_deref().is_some_and(|frame| SPINS.contains(&frame));
    spun || task.slept() && matches!(task.state, Some('D') | None)
}

fn sleepers(recording: &Recording) -> Vec<Sleeper<'_>> {
    let mut found: Vec<Sleeper<'_>> = Vec::new();
    for task in recording.header.sampled_tasks.iter().filter(|task| waits(task)) {
        let frames = frames(recording, task);
        if frames.iter().any(|frame| PRINTS.contains(frame)) {
            continue;
        }
        // A task in a futex waits for another thread of the program, or is idle.
        if frames.iter().any(|frame| FUTEX.contains(frame)) {
            continue;
        }
        let Some((cause, frame)) = meaning(&frames)
            .and_then(|known| Some((known.cause, *frames.iter().find(|frame| **frame == known.frame)?)))
        else {
            continue;
        };
        // Tasks do not sleep in interrupts: a task that printed this stack was running.
        if cause == Cause::Interrupt {
            continue;
        }
        // The kernel reports a hung task repeatedly.
        let again = |known: &Sleeper<'_>| {
            task.pid.is_some() && known.task.pid == task.pid && known.task.task == task.task && known.cause == cause
        };
        if let Some(known) = found.iter_mut().find(|known| again(known)) {
            if task.blocked_ns > known.task.blocked_ns {
                known.task = task;
            }
            continue;
        }
        let role = role(&frames);
        found.push(Sleeper { task, role, cause, frame, frames });
    }
    found
}

/// The number of sleeping tasks whose stacks have no known cause.
fn unknown(recording: &Recording) -> u64 {
    let asleep = recording.header.sampled_tasks.iter().filter(|task| waits(task));
    let named = |task: &&SampledTask| meaning(&frames(recording, task)).is_some();
    total(asleep.filter(|task| task.stack.is_some() && !named(task)).map(|task| u64::from(task.count)))
}

fn role(frames: &[&str]) -> Role {
    const COMMIT: &[&str] = &[
        "kjournald2",
        "kjournald",
        "xlog_cil_push_work",
        "xfsaild",
        "xfsaild_push",
        "transaction_kthread",
        "txg_sync_thread",
        "gfs2_logd",
    ];
    const FLUSHER: &[&str] = &[
        "wb_workfn",
        "wb_writeback",
        "wb_do_writeback",
        "bdi_writeback_workfn",
        "bdi_writeback_thread",
        "bdi_writeback_task",
        "pdflush",
        "writeback_sb_inodes",
    ];
    let any = |names: &[&str]| frames.iter().any(|frame| names.contains(frame));
    match () {
        () if any(COMMIT) => Role::Commit,
        () if any(FLUSHER) => Role::Flusher,
        () => Role::Other,
    }
}

/// Groups by cause, most tasks first. Among equals, bare waits (a lock, the device, unexplained) come last, and
/// programs come before the kernel threads that serve them.
fn groups(sleepers: &[Sleeper<'_>]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (at, sleeper) in sleepers.iter().enumerate() {
        let (tasks, blocked_ns) = (u64::from(sleeper.task.count.max(1)), sleeper.task.blocked_ns);
        match groups.iter_mut().find(|group| group.cause == sleeper.cause) {
            Some(group) => {
                add_to(&mut group.tasks, tasks);
                group.blocked_ns = group.blocked_ns.max(blocked_ns);
            }
            None => groups.push(Group { cause: sleeper.cause, tasks, blocked_ns, first: at }),
        }
    }
    let bare = |group: &Group| matches!(group.cause, Cause::Lock | Cause::DeviceWait | Cause::Unexplained);
    let of_program =
        |group: &Group| sleepers.iter().any(|sleeper| sleeper.cause == group.cause && sleeper.role == Role::Other);
    groups.sort_short_by_key(|group| (std::cmp::Reverse(group.tasks), bare(group), !of_program(group), group.first));
    groups
}

/// A group for a holder whose cause no other task shares.
fn alone(sleepers: &[Sleeper<'_>], link: &Link) -> Group {
    let task = sleepers[link.holder].task;
    Group { cause: link.cause, tasks: u64::from(task.count), blocked_ns: task.blocked_ns, first: link.holder }
}

/// The finding of a group: the one found from timed calls, if any, otherwise a new one; in both cases with the
/// evidence of the stacks.
fn finding(facts: &Facts<'_>, sleepers: &[Sleeper<'_>], group: &Group, all: u64, known: &[Candidate]) -> Finding {
    let hung = group.blocked_ns >= Some(NO_QUEUE_NS);
    let trouble = trouble::of_devices(facts);
    // A task that reads one block waits for one request as well. If the log reports device trouble, that explains
    // it.
    let stuck = match group.cause {
        Cause::DeviceWait => hung || trouble.is_some(),
        Cause::SynchronousRead => hung && trouble.is_some(),
        _ => false,
    };
    let cause = if stuck { Cause::DeviceSlow } else { group.cause };
    let cause = CauseId::from(cause);
    let sleeper = &sleepers[group.first];
    let share = group.tasks as f64 / all.max(1) as f64;
    let known = known.iter().map(|known| &known.finding).find(|known| known.cause == cause);
    let mut finding = known.cloned().unwrap_or_else(|| {
        let mut bare = Finding::inferred(cause, 0.0, cause.entry().headline);
        bare.cause_basis = CauseBasis::Stack;
        bare.duration_basis = DurationBasis::Inferred;
        bare
    });
    finding.weight = weight(share, all, sleeper);
    finding.evidence.insert(0, tasks_evidence(group, sleeper, all));
    if stuck {
        finding.headline = if hung {
            "the device does not complete requests: tasks wait for single ones".to_owned()
        } else {
            "tasks wait for a device, and the kernel reports trouble with one".to_owned()
        };
        finding.cause_basis = CauseBasis::Elimination;
        let waited = group.blocked_ns.map(|ns| {
            let text = format!(
                "a task was blocked for {} where it waits for a request: queues are seldom that long",
                Nanos(ns)
            );
            Evidence::new(text, ns as f64, "ns")
        });
        finding.evidence.extend(waited.filter(|_| hung));
    }
    let server = Server::of(&sleeper.frames).filter(|_| matches!(cause, CauseId::DeviceSlow | CauseId::DeviceWait));
    if let Some(server) = server {
        finding.headline = format!("tasks wait for an answer from {}", server.name());
    }
    if matches!(cause, CauseId::DeviceSlow | CauseId::RequestQueue | CauseId::PageWriteback | CauseId::JournalCommit) {
        finding.evidence.extend(trouble);
    }
    finding.settle(server.map_or(
        "the stacks of all blocked tasks twice, a minute apart (`echo w > /proc/sysrq-trigger`): which tasks are in \
         the same function both times; and `iostat -x 1` for the device",
        Server::settle,
    ))
}

/// Grows with the share of the tasks in this group. A single stack may show just a moment.
fn weight(share: f64, all: u64, sleeper: &Sleeper<'_>) -> f64 {
    let hung = sleeper.task.blocked_ns.is_some();
    let base = match (hung, all) {
        (true, _) | (false, 3..) => 0.75,
        (false, _) => 0.6,
    };
    ((base * (0.6 + 0.4 * share)) * 100.0_f64).round() / 100.0
}

fn tasks_evidence(group: &Group, sleeper: &Sleeper<'_>, all: u64) -> Evidence {
    let task = sleeper.task;
    let name = match (task.task.as_str(), task.pid) {
        ("", None) => String::new(),
        ("", Some(pid)) => format!(", such as task {pid}"),
        (name, None) => format!(", such as {name}"),
        (name, Some(pid)) => format!(", such as {name}({pid})"),
    };
    let waited = group.blocked_ns.map(|ns| format!(", for {} and more", Nanos(ns))).unwrap_or_default();
    let text = format!("{} of {all} sleeping tasks wait there{name}{waited}: {}", group.tasks, shown(&sleeper.frames));
    let mut evidence = Evidence::new(text, group.tasks as f64, "tasks");
    evidence.at_ns = task.at_ns;
    evidence
}

fn chain_evidence(sleepers: &[Sleeper<'_>], waiters: &Group, link: &Link) -> Evidence {
    let holder = sleepers[link.holder].task;
    let name = if holder.task.is_empty() { "another task" } else { &holder.task };
    let wait = if link.named { "wait" } else { "may wait" };
    let text = format!("tasks in {} {wait} for {name}: {}", waiters.cause.name(), link.because);
    Evidence::new(text, waiters.tasks as f64, "tasks")
}

/// The six innermost frames outside the scheduler, innermost first.
fn shown(frames: &[&str]) -> String {
    let outside = frames.iter().filter(|frame| !SCHEDULER.contains(frame)).take(6).copied();
    outside.collect::<Vec<_>>().join(" < ")
}

#[cfg(test)]
mod tests;
