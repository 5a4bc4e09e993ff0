//! Performs equal appends at once: a journal's records between one page and the next.
//!
//! If the page is cached and dirty, the CPU idle, and no event is due before the last append ends, all appends take the
//! same time and change only sizes and counts, so that the result is that of one append after the other. A test
//! compares with `Options::one_by_one`. After a stall overdue records follow each other without a pause and differ only
//! in their lateness.

use crate::Machine;
use crate::kernel::PAGE_BYTES;
use crate::run::actor::Who;
use crate::run::precursor_steps;
use crate::run::recorder::{Ended, Run};
use crate::sched::task::Task;
use flatwater_workload::{Actor, Appends, Op};

/// Performs as many of the actor's next operations as are equal; false without such operations.
pub fn appends(m: &Machine, who: &Who, actor: &mut Actor, task: &mut Task) -> bool {
    if m.one_by_one || m.old.is_some() {
        return false;
    }
    let Some(next) = actor.stream.appends().filter(|next| next.count > 1) else { return false };
    let count = perform(m, who, &next, task).unwrap_or(0);
    actor.stream.skip(count);
    count > 0
}

fn perform(m: &Machine, who: &Who, next: &Appends, task: &mut Task) -> Option<u64> {
    let (now, due) = (m.clock.now(), who.start_ns + next.at_ns);
    let mut mm = m.mm.borrow_mut();
    let inode = task.last_file.filter(|&id| mm.inodes.is_open(id, (who.workload, next.file.0)))?;
    let offset = mm.inodes.get(inode).size;
    let in_page = (PAGE_BYTES - offset % PAGE_BYTES) / next.bytes;
    if in_page == 0 {
        return None;
    }
    let (id, bit) = mm.lookup(inode, offset / PAGE_BYTES)?;
    if mm.chunks.get(id).dirty & bit == 0 {
        return None;
    }
    let device = mm.inodes.get(inode).device;
    let ns = precursor_steps::append_ns(m, device, inode, next.bytes)?;
    // Appends that take longer than the interval are each late by a different time.
    if ns >= next.interval_ns || !m.cpus.borrow_mut().free_for(task.cpu, task.pinned, task.bound_node, now.max(due), ns)
    {
        return None;
    }
    let op = Op::Append { file: next.file, bytes: next.bytes };
    let from = now.max(due);
    // A late append begins when the one before ended, until one ends before the next is due.
    let (step_ns, catch_up) = match now.checked_sub(due) {
        Some(late_ns) if late_ns > 0 => (ns, late_ns / (next.interval_ns - ns) + 1),
        _ => (next.interval_ns, u64::MAX),
    };
    let first = Ended { op, start_ns: from, end_ns: from + ns, due_ns: Some(due), bytes: next.bytes, measured: true };
    let run = Run { first, step_ns, interval_ns: next.interval_ns };
    let mut recorder = m.recorder.borrow_mut();
    let before_end = who.end_ns.saturating_sub(from).div_ceil(step_ns);
    let count = next
        .count
        .min(in_page)
        .min(catch_up)
        .min(before_end)
        .min(m.clock.undisturbed(from, ns, step_ns))
        .min(recorder.alike_room(&run));
    if count == 0 {
        return None;
    }
    let bytes = count * next.bytes;
    let own = mm.inodes.get_mut(inode);
    (own.size, own.changed) = (offset + bytes, m.device(device).journal.borrow().next_transaction());
    drop(mm);
    precursor_steps::appended(m, inode, offset + bytes);
    m.cpus.borrow_mut().ran(task.cpu, ns, count);
    recorder.ended_alike(who, &run, count);
    m.clock.run_ahead(from + (count - 1) * step_ns + ns);
    Some(count)
}

#[cfg(test)]
mod tests {
    use crate::Options;
    use crate::run_with;
    use flatwater_recording::units::Nanos;
    use flatwater_workload::scenario::Scenario;

    /// A journal alone, with the precursor's helper beside it, with neighbours and a memory cgroup, with syncs and
    /// rolls.
    #[test]
    fn a_recording_is_the_same_whether_appends_are_performed_together_or_one_by_one() {
        let scenarios =
            ["journal-2.6.32", "journal-2.6.32-precursor", "full-cgroup", "journal-neighbours", "journal-durable"];
        let scenarios = scenarios.map(|name| Scenario::load(name).expect(name)).to_vec();
        for mut scenario in scenarios {
            let name = scenario.name.clone();
            let name = name.as_str();
            scenario.duration = scenario.duration.min(Nanos::from_secs(20));
            let run = |one_by_one| {
                let options = Options { one_by_one, ..Options::default() };
                run_with(&scenario, &options, |_| true).expect(name)
            };
            let ((together, truth), (apart, apart_truth)) = (run(false), run(true));
            assert_eq!((truth.operations, apart_truth.batched), (apart_truth.operations, 0), "{name}");
            if name.starts_with("journal-2.6.32") {
                assert!(truth.batched > truth.operations / 2, "{name}: {} of {}", truth.batched, truth.operations);
            }
            assert_eq!(format!("{:?}", together.latency), format!("{:?}", apart.latency), "{name}");
            assert_eq!(format!("{:?}", together.calls), format!("{:?}", apart.calls), "{name}");
            assert_eq!(format!("{:?}", together.series), format!("{:?}", apart.series), "{name}");
            assert_eq!(format!("{:?}", together.outcomes), format!("{:?}", apart.outcomes), "{name}");
            assert_eq!(format!("{:?}", together.events), format!("{:?}", apart.events), "{name}");
        }
    }
}
