//! Builds wait chains: from the sleeps of a slow call to the threads that ended them, and to what those threads waited
//! for at that time.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::identity::Identities;
use super::layout::{PF_IO_WORKER, PF_KTHREAD, SleepRecord, WaitTask, record};
use super::ledger::Ledger;
use crate::tracer::calls;
use crate::tracer::layout::text;
use crate::tracer::stacks::StackTable;
use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::{Call, StackId, Wait, WakerBasis, WakerKind};

/// Maximum links of one call, and depth of a chain.
const LINKS_MAX: usize = 48;
const DEPTH_MAX: u32 = 6;
/// Follow at most this many sleeps of one waker, the longest ones.
const SIDE_BY_SIDE_MAX: usize = 4;

/// Functions that show that the waker was in an interrupt or softirq. These interrupt any thread, so the interrupted
/// thread is not the waker.
const INTERRUPT_FRAMES: &[&str] = &[
    "common_interrupt",
    "asm_common_interrupt",
    "__common_interrupt",
    "handle_irq_event",
    "__handle_irq_event_percpu",
    "handle_edge_irq",
    "gic_handle_irq",
    "el1_interrupt",
    "el0_interrupt",
    "el1h_64_irq",
    "do_IRQ",
    "sysvec_apic_timer_interrupt",
    "__sysvec_apic_timer_interrupt",
    "sysvec_call_function_single",
    "asm_sysvec_apic_timer_interrupt",
    "__flush_smp_call_function_queue",
    "sysvec_reschedule_ipi",
];
const SOFTIRQ_FRAMES: &[&str] = &["__do_softirq", "handle_softirqs", "do_softirq", "irq_exit_rcu", "run_ksoftirqd"];
const TIMER_FRAMES: &[&str] =
    &["hrtimer_wakeup", "process_timeout", "__hrtimer_run_queues", "call_timer_fn", "run_timer_softirq"];
const COMPLETION_FRAMES: &[&str] = &[
    "blk_mq_complete_request",
    "blk_mq_end_request",
    "blk_update_request",
    "bio_endio",
    "blk_complete_reqs",
    "blk_done_softirq",
    "blk_mq_end_request_batch",
];
/// The data from which chains are built.
pub struct Chains<'a> {
    pub ledger: &'a Ledger,
    pub names: &'a mut Identities,
    pub stacks: &'a mut StackTable,
}

/// The links of one call, and the requests at their ends.
#[derive(Debug, Default)]
pub struct CallChain {
    pub links: Vec<Wait>,
    /// Sequence number of each request, and the time from which it was waited for.
    pub requests: BTreeMap<u64, u64>,
}

impl CallChain {
    fn leads_to(&mut self, request: Option<u64>, since_ns: u64) {
        if let Some(sequence) = request {
            let since = self.requests.entry(sequence).or_insert(since_ns);
            *since = since_ns.min(*since);
        }
    }
}

/// A sleep to record, and its depth in the chain.
struct Step {
    sleep: Rc<SleepRecord>,
    depth: u32,
}

impl Chains<'_> {
    /// Builds the chains of a call: each sleep in order of time, followed by its waker's sleeps.
    pub fn of_call(&mut self, call: &Call, sleeps: &[Rc<SleepRecord>]) -> CallChain {
        let mut chain = CallChain::default();
        let mut followed = BTreeSet::new();
        for sleep in sleeps {
            let step = Step { sleep: Rc::clone(sleep), depth: 0 };
            self.follow(call, &step, &mut chain, &mut followed);
        }
        chain
    }

    fn follow(&mut self, call: &Call, step: &Step, chain: &mut CallChain, followed: &mut BTreeSet<(u32, u64)>) {
        let sleep = &step.sleep;
        if chain.links.len() >= LINKS_MAX || !followed.insert((sleep.sleeper.tid, sleep.start_ns)) {
            return;
        }
        let link = self.link(call, step);
        chain.leads_to(link.request, sleep.start_ns);
        let (kind, waker) = (link.waker_kind, link.waker.as_ref().map(|task| task.tid));
        let holder = link.lock_holder.as_ref().map(|task| task.tid);
        let at = chain.links.len();
        chain.links.push(link);
        if step.depth >= DEPTH_MAX {
            return;
        }
        let mut next = waker.filter(|_| kind == WakerKind::Task || kind == WakerKind::Device);
        if next.is_none() || next == Some(sleep.sleeper.tid) {
            next = holder;
        }
        let Some(next) = next.filter(|&tid| tid != 0 && tid != sleep.sleeper.tid) else { return };
        let mut overlapping = self.ledger.sleeps(next, sleep.start_ns, sleep.end_ns);
        let overlap =
            |other: &SleepRecord| other.end_ns.min(sleep.end_ns).saturating_sub(other.start_ns.max(sleep.start_ns));
        let slept: u64 = overlapping.iter().map(|other| overlap(other)).sum();
        if let Some(link) = chain.links.get_mut(at) {
            link.waker_ran_ns = Some(sleep.duration_ns().saturating_sub(slept));
        }
        if let Some(by) = self.idle_until(sleep) {
            self.handed_over(call, step, by, chain);
        }
        overlapping.sort_short_by_key(|other| std::cmp::Reverse(overlap(other)));
        overlapping.truncate(SIDE_BY_SIDE_MAX);
        overlapping.sort_short_by_key(|other| other.start_ns);
        for other in overlapping {
            self.follow(call, &Step { sleep: other, depth: step.depth + 1 }, chain, followed);
        }
    }

    fn link(&mut self, call: &Call, step: &Step) -> Wait {
        let sleep = &step.sleep;
        let (stack, waker_stack) =
            (self.stacks.of_addresses(sleep.frames()), self.stacks.of_addresses(sleep.waker_frames()));
        let (waker_kind, request) = self.kind(sleep, waker_stack);
        let interrupted = matches!(waker_kind, WakerKind::Timer | WakerKind::Interrupt | WakerKind::SoftIrq);
        let by_interrupt = interrupted || waker_kind == WakerKind::Device && self.in_interrupt(waker_stack);
        let waker = (!by_interrupt && sleep.waker.tid != 0).then(|| self.names.task(&sleep.waker, sleep.end_ns));
        let holder = (sleep.lock != 0 && sleep.holder_tid != 0).then(|| {
            let comm = text(&sleep.holder_comm);
            self.names.named(sleep.holder_tid, sleep.holder_tgid, &comm)
        });
        let basis = match (&waker, request, &holder) {
            (_, Some(_), _) if sleep.kind == record::UNDER_WAY => WakerBasis::OwnRequest,
            (_, Some(_), _) => WakerBasis::Completion,
            (Some(_), ..) => WakerBasis::Wakeup,
            (None, None, Some(_)) => WakerBasis::LockOwner,
            (None, None, None) if interrupted => WakerBasis::Wakeup,
            (None, None, None) => WakerBasis::Nothing,
        };
        Wait {
            call_tid: call.tid,
            call_start_ns: call.start_ns,
            depth: step.depth,
            sleeper: self.names.task(&sleep.sleeper, sleep.end_ns),
            sleeper_doing: self.doing(&sleep.sleeper),
            sleeper_file: file(&sleep.sleeper),
            start_ns: sleep.start_ns,
            duration_ns: sleep.duration_ns(),
            stack,
            waker_kind,
            waker_doing: waker.as_ref().and_then(|_| self.doing(&sleep.waker)),
            waker_file: waker.as_ref().and_then(|_| file(&sleep.waker)),
            waker,
            waker_stack,
            waker_ran_ns: None,
            lock_holder: holder,
            lock: (sleep.lock != 0).then(|| lock_name(sleep.lock_flags).to_owned()),
            request,
            inode: Some(sleep.awaited_inode).filter(|&inode| inode != 0),
            basis,
        }
    }

    /// What ended the sleep, and the request whose completion ended it.
    fn kind(&self, sleep: &SleepRecord, waker_stack: Option<StackId>) -> (WakerKind, Option<u64>) {
        if sleep.kind == record::UNDER_WAY && sleep.request != 0 {
            return (WakerKind::Device, Some(sleep.request));
        }
        let completes = self.holds(waker_stack, COMPLETION_FRAMES);
        if sleep.request != 0 && (completes || self.in_interrupt(waker_stack)) {
            return (WakerKind::Device, Some(sleep.request));
        }
        // A kernel worker that continues after a completion (the end of a direct write, for example) wakes the sleeper
        // on behalf of the request.
        if sleep.request != 0 && sleep.waker.flags & PF_KTHREAD != 0 {
            return (WakerKind::Device, Some(sleep.request));
        }
        if self.holds(waker_stack, TIMER_FRAMES) {
            return (WakerKind::Timer, None);
        }
        if self.holds(waker_stack, INTERRUPT_FRAMES) {
            return (if completes { WakerKind::Device } else { WakerKind::Interrupt }, None);
        }
        if self.holds(waker_stack, SOFTIRQ_FRAMES) {
            return (if completes { WakerKind::Device } else { WakerKind::SoftIrq }, None);
        }
        let kind = if sleep.waker.tid == 0 { WakerKind::Unknown } else { WakerKind::Task };
        (kind, Some(sleep.waker_request).filter(|&request| request != 0 && kind == WakerKind::Task && completes))
    }

    fn holds(&self, stack: Option<StackId>, functions: &[&str]) -> bool {
        let frames = stack.map_or(&[][..], |stack| self.stacks.functions(stack));
        frames.iter().any(|frame| functions.contains(&frame.split('.').next().unwrap_or_default()))
    }

    fn in_interrupt(&self, stack: Option<StackId>) -> bool {
        self.holds(stack, INTERRUPT_FRAMES) || self.holds(stack, SOFTIRQ_FRAMES)
    }

    /// For a kernel thread that was idle when the sleep began: who gave it work, and when.
    fn idle_until(&self, sleep: &SleepRecord) -> Option<(u32, u64)> {
        let within = sleep.start_ns < sleep.waker_since_ns && sleep.waker_since_ns < sleep.end_ns;
        (sleep.waker.flags & PF_KTHREAD != 0 && within && sleep.waker_by_tid != 0)
            .then_some((sleep.waker_by_tid, sleep.waker_since_ns))
    }

    /// Adds the link that shows that a kernel thread was idle until it got its work, so that the call waited for the
    /// thread that gave the work.
    fn handed_over(&mut self, call: &Call, step: &Step, (by, at_ns): (u32, u64), chain: &mut CallChain) {
        let sleep = &step.sleep;
        if by == sleep.sleeper.tid || chain.links.len() >= LINKS_MAX {
            return;
        }
        let comm = text(&sleep.waker_by_comm);
        chain.links.push(Wait {
            call_tid: call.tid,
            call_start_ns: call.start_ns,
            depth: step.depth + 1,
            sleeper: self.names.task(&sleep.waker, sleep.end_ns),
            sleeper_doing: Some("idle".to_owned()),
            start_ns: sleep.start_ns,
            duration_ns: at_ns - sleep.start_ns,
            waker_kind: WakerKind::Task,
            waker: Some(self.names.by_thread(by, &comm)),
            request: Some(sleep.waker_request).filter(|&request| request != 0),
            basis: WakerBasis::Wakeup,
            ..Wait::default()
        });
        chain.leads_to(Some(sleep.waker_request).filter(|&request| request != 0), sleep.start_ns);
    }

    /// The activity of a thread: the function of a kworker, an io_uring worker, a page fault, or a system call.
    fn doing(&self, task: &WaitTask) -> Option<String> {
        if task.function != 0 {
            return self.stacks.symbol(task.function).map(str::to_owned);
        }
        if task.flags & PF_IO_WORKER != 0 {
            return Some("io_uring worker".to_owned());
        }
        if task.flags & PF_KTHREAD != 0 {
            return None;
        }
        match task.call {
            number if number < 0 => Some("page fault".to_owned()),
            number => calls::name_of(number).map(str::to_owned),
        }
    }
}

fn file(task: &WaitTask) -> Option<String> {
    Some(text(&task.file)).filter(|name| !name.is_empty())
}

/// include/trace/events/lock.h: LCB_F_READ 2, WRITE 4, RT 8, PERCPU 16, MUTEX 32.
fn lock_name(flags: u32) -> &'static str {
    match flags {
        flags if flags & 32 != 0 => "mutex",
        flags if flags & 16 != 0 => "percpu rwsem",
        flags if flags & 2 != 0 => "rwsem read",
        flags if flags & 4 != 0 => "rwsem write",
        flags if flags & 8 != 0 => "rt_mutex",
        _ => "lock",
    }
}
