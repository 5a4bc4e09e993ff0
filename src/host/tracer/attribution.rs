//! From what the hooks saw to the parts that tile a call.
//!
//! Every nanosecond gets one cause, and the kind of evidence behind it:
//! - in a bracket (reclaim, a lock, ...): the bracket's cause, unless a sleep's stack knows better; exact.
//! - asleep: what the stack says; exact. Runnable but not running: run-queue or cpu-quota; exact.
//! - on the CPU up to a sample: what the sample's stack says, else `compute`; sampled.
//! - on the CPU otherwise: nothing was in the thread's way as far as the scheduler knows. That is `compute`,
//!   inferred, as long as it is no more than such a call may well take, or lies between two samples that came on
//!   time; past that it is `unexplained`, since a hypervisor could have held the CPU, which must not be blamed on
//!   memory management.

use super::layout::{Stretch, bracket_cause, kind};
use super::stacks::StackTable;
use crate::recording::{Basis, Cause, Part, StackId};

/// More parts than this are joined, the shortest first.
pub const PARTS_MAX: usize = 256;
/// Copying a byte to the page cache takes well under this.
const COPY_NS_PER_BYTE: u64 = 1;

/// What is known about the call beside its stretches.
#[derive(Clone, Copy, Debug)]
pub struct CallFacts {
    pub duration_ns: u64,
    pub bytes: Option<u64>,
    /// See `TraceOptions::plain_cpu_ns`.
    pub plain_cpu_ns: u64,
    /// Time between samples; 0 if none are taken.
    pub sample_period_ns: u64,
}

/// Waits that reclaim brings upon itself (a page under writeback, the device behind it) are reclaim's: the caller
/// asked for memory, not for that page. The part keeps its stack for those who want to know.
fn belongs_to(bracket: Cause, cause: Cause) -> bool {
    let reclaim = matches!(bracket, Cause::DirectReclaim | Cause::MemcgReclaim | Cause::NodeReclaim);
    match cause {
        Cause::PageWriteback
        | Cause::SynchronousRead
        | Cause::DeviceSlow
        | Cause::RequestQueue
        | Cause::PageAllocation
        | Cause::SlabRefill
        | Cause::PageFault => reclaim,
        // A group's reclaim is throttled because of the group's own dirty pages, the machine's because of
        // everybody's: only the latter is a trouble of its own.
        Cause::ReclaimThrottle => bracket == Cause::MemcgReclaim,
        _ => false,
    }
}

struct Named {
    cause: Cause,
    basis: Basis,
    stack: Option<StackId>,
}

fn name(stretch: &Stretch, stacks: &mut StackTable) -> Option<Named> {
    let bracket = bracket_cause(stretch.bracket);
    let exact = |cause, stack| Some(Named { cause, basis: Basis::Exact, stack });
    match stretch.kind {
        kind::ON_CPU => bracket.and_then(|cause| exact(cause, None)),
        kind::SAMPLED => {
            let stack = stacks.id(stretch.stack);
            match bracket {
                Some(cause) => exact(cause, stack),
                None => {
                    let cause = stacks.cause(stretch.stack, None);
                    // A sample without a stack says no more than that the thread ran.
                    let cause = cause.or_else(|| stack.map(|_| Cause::Compute))?;
                    Some(Named { cause, basis: Basis::Sampled, stack })
                }
            }
        }
        kind::ASLEEP => {
            let stack = stacks.id(stretch.stack);
            let told = stacks.cause(stretch.stack, bracket);
            let own = told.filter(|&cause| !bracket.is_some_and(|bracket| belongs_to(bracket, cause)));
            match own.or(bracket) {
                Some(cause) => exact(cause, stack),
                None => exact(Cause::Unexplained, stack),
            }
        }
        kind::WOKEN | kind::PREEMPTED => exact(Cause::RunQueue, stacks.id(stretch.stack)),
        kind::THROTTLED => exact(Cause::CpuQuota, None),
        kind::THROTTLED_LATER => Some(Named { cause: Cause::CpuQuota, basis: Basis::Inferred, stack: None }),
        _ => None,
    }
}

/// The parts of a call, and how many stretches had to be joined because they were too many.
pub fn parts(stretches: &[Stretch], facts: &CallFacts, stacks: &mut StackTable) -> (Vec<Part>, u64) {
    let mut parts: Vec<Part> = Vec::new();
    let mut at = 0;
    let left = plain_cpu_left(stretches, facts);
    let running = |ns: u64| {
        // Short stretches between sleeps are the call's own work, whatever else it suffers from.
        let between_samples = facts.sample_period_ns + facts.sample_period_ns / 2;
        if left || ns <= between_samples.max(facts.plain_cpu_ns / 4) {
            Named { cause: Cause::Compute, basis: Basis::Inferred, stack: None }
        } else {
            Named { cause: Cause::Unexplained, basis: Basis::Inferred, stack: None }
        }
    };
    let push = |parts: &mut Vec<Part>, at: &mut u64, ns: u64, named: Named, count: u32| {
        let ns = ns.min(facts.duration_ns - *at);
        if ns > 0 {
            join(parts, Part { offset_ns: *at, ns, cause: named.cause, basis: named.basis, stack: named.stack, count });
            *at += ns;
        }
    };
    for stretch in stretches {
        let count = u32::from(stretch.count.max(1));
        match name(stretch, stacks) {
            Some(named) if named.basis == Basis::Sampled => {
                // A sample speaks for one period. More than that without one means that the timer could not
                // fire: interrupts off, or the whole CPU away.
                let spoken = sampled_ns(stretch.ns, facts.sample_period_ns);
                push(&mut parts, &mut at, stretch.ns - spoken, running(stretch.ns - spoken), 1);
                push(&mut parts, &mut at, spoken, named, count);
            }
            Some(named) => push(&mut parts, &mut at, stretch.ns, named, count),
            None => push(&mut parts, &mut at, stretch.ns, running(stretch.ns), count),
        }
    }
    let rest = facts.duration_ns - at;
    push(&mut parts, &mut at, rest, running(rest), 1);
    let joined = shorten(&mut parts);
    (parts, joined)
}

fn sampled_ns(ns: u64, period_ns: u64) -> u64 {
    if period_ns > 0 && ns > 2 * period_ns { period_ns } else { ns }
}

/// Whether all the time on the CPU that nothing names is no more than the call may well need.
fn plain_cpu_left(stretches: &[Stretch], facts: &CallFacts) -> bool {
    let seen: u64 = stretches.iter().map(|stretch| stretch.ns).sum();
    let plain: u64 = stretches
        .iter()
        .filter(|stretch| stretch.kind == kind::ON_CPU && bracket_cause(stretch.bracket).is_none())
        .map(|stretch| stretch.ns)
        .sum();
    let tail = facts.duration_ns.saturating_sub(seen);
    let copy = facts.bytes.unwrap_or(0).min(1 << 30) * COPY_NS_PER_BYTE;
    plain.saturating_add(tail) <= facts.plain_cpu_ns.saturating_add(copy)
}

/// Appends, or lengthens the last part if it says the same.
fn join(parts: &mut Vec<Part>, part: Part) {
    if let Some(last) = parts.last_mut()
        && (last.cause, last.basis, last.stack) == (part.cause, part.basis, part.stack)
    {
        last.ns += part.ns;
        last.count = last.count.saturating_add(part.count);
        return;
    }
    parts.push(part);
}

/// Brings the parts down to `PARTS_MAX`: first those that differ in their stack only, which loses no cause; then
/// ever longer parts give themselves up to the part before. Returns how many were lost that way.
fn shorten(parts: &mut Vec<Part>) -> u64 {
    if parts.len() <= PARTS_MAX {
        return 0;
    }
    let alike = |last: &Part, part: &Part| (last.cause, last.basis) == (part.cause, part.basis);
    merge(parts, |last, part| alike(last, part));
    let before = parts.len();
    let mut limit_ns = 1_000;
    while parts.len() > PARTS_MAX {
        merge(parts, |last, part| part.ns < limit_ns || alike(last, part));
        limit_ns *= 2;
    }
    (before - parts.len()) as u64
}

/// Adds each part that `joins` the one before to it; the longer of two alike keeps its stack.
fn merge(parts: &mut Vec<Part>, joins: impl Fn(&Part, &Part) -> bool) {
    let mut kept: Vec<Part> = Vec::with_capacity(parts.len());
    for part in parts.drain(..) {
        match kept.last_mut() {
            Some(last) if joins(last, &part) => {
                if part.ns > last.ns && part.cause == last.cause {
                    last.stack = part.stack;
                }
                last.ns += part.ns;
                last.count = last.count.saturating_add(part.count);
            }
            _ => kept.push(part),
        }
    }
    *parts = kept;
}
