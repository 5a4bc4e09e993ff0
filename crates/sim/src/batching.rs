//! Appends that nothing can tell apart, performed at once: a journal's records between one page and the next.
//!
//! Nothing is left out. Where the page is there and dirty, the CPU idle and nothing else due before the last of them is over,
//! each takes the same time and changes nothing but sizes and counts, so that the sums are those of one after the other
//! (`Options::one_by_one` performs them so; a test compares the recordings). After a stall the records that came due meanwhile
//! follow each other without a pause: they differ in nothing but how late each is.

use super::Machine;
use super::actor::Who;
use super::ahead;
use super::recorder::{Ended, Run};
use super::task::Task;
use flatwater_workload::{Actor, Appends, Op};

const PAGE: u64 = 4096;

/// Performs as many of what the actor does next as are alike; false if that is none.
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
    let in_page = (PAGE - offset % PAGE) / next.bytes;
    if in_page == 0 {
        return None;
    }
    let (id, bit) = mm.lookup(inode, offset / PAGE)?;
    if mm.chunks.get(id).dirty & bit == 0 {
        return None;
    }
    let device = mm.inodes.get(inode).device;
    let ns = ahead::append_ns(m, device, inode, next.bytes)?;
    // One that takes as long as the interval is over when the next is due: from then on each is late in another way.
    if ns >= next.interval_ns || !m.cpus.borrow_mut().free_for(task.cpu, task.pinned, task.bound_node, now.max(due), ns)
    {
        return None;
    }
    let op = Op::Append { file: next.file, bytes: next.bytes };
    let from = now.max(due);
    // Late ones begin where the one before ended, until one is over before the next is due.
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
    ahead::appended(m, inode, offset + bytes);
    m.cpus.borrow_mut().ran_alike(task.cpu, ns, count);
    recorder.ended_alike(who, &run, count);
    m.clock.run_ahead(from + (count - 1) * step_ns + ns);
    Some(count)
}

#[cfg(test)]
mod tests {
    use crate::{Options, run_with};
    use flatwater_recording::units::Nanos;
    use flatwater_workload::scenario::Scenario;

    /// A journal alone, with the precursor's helper beside it, with neighbours and a memory cgroup, with syncs and rolls.
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
            assert_eq!((truth.operations, apart_truth.alike), (apart_truth.operations, 0), "{name}");
            if name.starts_with("journal-2.6.32") {
                assert!(truth.alike > truth.operations / 2, "{name}: {} of {}", truth.alike, truth.operations);
            }
            assert_eq!(format!("{:?}", together.latency), format!("{:?}", apart.latency), "{name}");
            assert_eq!(format!("{:?}", together.calls), format!("{:?}", apart.calls), "{name}");
            assert_eq!(format!("{:?}", together.series), format!("{:?}", apart.series), "{name}");
            assert_eq!(format!("{:?}", together.outcomes), format!("{:?}", apart.outcomes), "{name}");
            assert_eq!(format!("{:?}", together.events), format!("{:?}", apart.events), "{name}");
        }
    }
}
