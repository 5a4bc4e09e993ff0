//! Pairs begin and end events of each thread.

use std::collections::HashMap;

use super::line::Event;
use crate::builder::{Builder, Track};
use crate::call_trace::op_of;
use crate::call_trace::tree::{DEEP_CALLS, Node, Stack, segments};
use crate::single_call::single_call;
use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::{Basis, Cause, OpKind};

/// Begin event, end event, and the function that contains both and determines the cause.
const BRACKETS: &[(&str, &str, &str)] = &[
    ("mm_vmscan_direct_reclaim_begin", "mm_vmscan_direct_reclaim_end", "try_to_free_pages"),
    ("mm_vmscan_memcg_reclaim_begin", "mm_vmscan_memcg_reclaim_end", "try_to_free_mem_cgroup_pages"),
    ("mm_vmscan_memcg_softlimit_reclaim_begin", "mm_vmscan_memcg_softlimit_reclaim_end", "mem_cgroup_shrink_node"),
    ("mm_vmscan_node_reclaim_begin", "mm_vmscan_node_reclaim_end", "node_reclaim"),
    ("mm_shrink_slab_start", "mm_shrink_slab_end", "do_shrink_slab"),
    ("mm_compaction_begin", "mm_compaction_end", "compact_zone"),
];

/// The function that waits for a lock, by the flags of `contention_begin` (include/trace/events/lock.h). A mutex first
/// spins.
fn waits_for_lock(flags: &str) -> &'static str {
    let has = |flag: &str| flags.split('|').any(|known| known == flag);
    match () {
        () if has("PERCPU") => "percpu_rwsem_wait",
        () if has("MUTEX") => "__mutex_lock",
        () if has("RT") => "rt_mutex_slowlock",
        () if has("SPIN") => "queued_spin_lock_slowpath",
        () if has("READ") => "rwsem_down_read_slowpath",
        () if has("WRITE") => "rwsem_down_write_slowpath",
        () => "__down_common",
    }
}

/// Events with the duration of a sleep: event, field, ns per unit of the field (us; `pause`: ms), cause.
const SLEEPS: &[(&str, &str, f64, Cause)] = &[
    ("mm_vmscan_throttled", "usec_delayed", 1e3, Cause::ReclaimThrottle),
    ("writeback_congestion_wait", "usec_delayed", 1e3, Cause::ReclaimThrottle),
    ("writeback_wait_iff_congested", "usec_delayed", 1e3, Cause::ReclaimThrottle),
    ("balance_dirty_pages", "pause", 1e6, Cause::DirtyThrottle),
];

#[must_use]
pub fn is_known(name: &str) -> bool {
    BRACKETS.iter().any(|(begin, end, _)| name == *begin || name == *end)
        || matches!(name, "contention_begin" | "contention_end")
        || SLEEPS.iter().any(|(event, ..)| name == *event)
        || name.starts_with("sys_enter")
        || name.starts_with("sys_exit")
        || name.starts_with("block_")
        || name.starts_with("mm_vmscan_")
        || name.starts_with("writeback_")
}

#[derive(Debug, Default)]
pub struct Threads {
    open: HashMap<u32, Thread>,
}

#[derive(Debug, Default)]
struct Thread {
    task: String,
    stack: Stack,
    /// The locks that the thread waits for, by address, and the functions in which it waits.
    locks: Vec<(String, &'static str)>,
}

impl Thread {
    fn begin_wait(&mut self, event: &Event<'_>, at: Option<u64>) {
        let Some(lock) = event.fields.split_whitespace().next() else { return };
        // A mutex that first spins and then sleeps has two begin events and one end event.
        if self.locks.last().is_some_and(|(known, _)| known == lock) || self.locks.len() >= LOCKS_MAX {
            return;
        }
        let flags = event.fields.split_once("flags=").map_or("", |(_, rest)| rest.trim_end_matches(')'));
        let function = waits_for_lock(flags);
        self.locks.push((lock.to_owned(), function));
        self.stack.enter(function, at);
    }

    fn end_wait(&mut self, event: &Event<'_>, at: Option<u64>) -> Option<Node> {
        let lock = event.fields.split_whitespace().next()?;
        let place = self.locks.iter().rposition(|(known, _)| known == lock)?;
        let (_, function) = self.locks.drain(place..).next()?;
        self.stack.leave(Some(function), at, None)
    }
}

/// Maximum locks that one thread waits for at a time.
const LOCKS_MAX: usize = 64;

/// Maximum number of threads; further ones are ignored.
const THREADS_MAX: usize = 100_000;

impl Threads {
    pub fn event(&mut self, event: &Event<'_>, track: Track, b: &mut Builder) {
        if self.open.len() >= THREADS_MAX && !self.open.contains_key(&event.tid) {
            b.overflow("events of further threads");
            return;
        }
        let thread = self.open.entry(event.tid).or_default();
        event.task.clone_into(&mut thread.task);
        let at = u64::try_from(event.at_ns).ok();
        if let Some(syscall) = event.name.strip_prefix("sys_enter_") {
            // A thread is in one system call at a time. If a call is open, its exit was lost; the call is dropped.
            (thread.stack, thread.locks) = (Stack::default(), Vec::new());
            thread.stack.enter(&format!("sys_{syscall}"), at);
            return;
        }
        if let Some(syscall) = event.name.strip_prefix("sys_exit_") {
            let root = thread.stack.leave(Some(&format!("sys_{syscall}")), at, None);
            Self::push(root, thread, event.tid, track, b);
            return;
        }
        if let Some((begin, _, function)) =
            BRACKETS.iter().find(|(begin, end, _)| event.name == *begin || event.name == *end)
        {
            if event.name == *begin {
                thread.stack.enter(function, at);
            } else {
                let root = thread.stack.leave(Some(function), at, None);
                Self::push(root, thread, event.tid, track, b);
            }
            return;
        }
        if event.name == "contention_begin" {
            thread.begin_wait(event, at);
        } else if event.name == "contention_end" {
            let root = thread.end_wait(event, at);
            Self::push(root, thread, event.tid, track, b);
        }
        for (name, field, unit_ns, cause) in SLEEPS.iter().filter(|(name, ..)| event.name == *name) {
            let Some(ns) = event.number(field).map(|value| (value * unit_ns) as u64).filter(|ns| *ns > 0) else {
                continue;
            };
            // balance_dirty_pages precedes the sleep, the other events follow it.
            let before = if *name == "balance_dirty_pages" { 0 } else { i64::try_from(ns).unwrap_or(0) };
            let call =
                single_call(event.tid, event.task, sleeper(&thread.stack), ns.min(1 << 62), *cause, Basis::Exact);
            b.call((track, event.at_ns.saturating_sub(before)), call);
        }
    }

    fn push(root: Option<Node>, thread: &mut Thread, tid: u32, track: Track, b: &mut Builder) {
        b.overflow_by(DEEP_CALLS, thread.stack.take_dropped());
        let Some(root) = root.filter(|root| root.ns > 0) else { return };
        let op = if root.name.starts_with("sys_") { op_of(&root.name) } else { OpKind::Other };
        let at = i64::try_from(root.start_ns.unwrap_or(0)).unwrap_or(0);
        let mut call = single_call(tid, &thread.task, op, root.ns, Cause::Unexplained, Basis::Exact);
        call.segments = segments(&root, b);
        call.damaged = thread.stack.damaged;
        b.call((track, at), call);
    }

    /// Closes the calls that have no end in the log.
    pub fn finish(self, track: Track, b: &mut Builder) {
        let mut open: Vec<(u32, Thread)> =
            self.open.into_iter().filter(|(_, thread)| !thread.stack.is_empty()).collect();
        open.sort_short_by_key(|(tid, _)| *tid);
        for (tid, mut thread) in open {
            let root = thread.stack.cut();
            Self::push(root, &mut thread, tid, track, b);
            let what = format!("the end of a bracket of {}", thread.task);
            b.gap(what, "the log ends, or was cut, inside it", "");
        }
    }
}

/// The operation of a throttled thread: without a system call in the trace a write, since only writers are throttled on
/// dirty pages.
fn sleeper(stack: &Stack) -> OpKind {
    stack.outermost().map_or(OpKind::Write, op_of)
}
