//! The set-up of a scenario, before its measured part.
//!
//! Models: on 6.x a set-up is performed, and leaves inodes, dentries, metadata, page cache and dirty pages in memory as
//! it would on a host; all actors then begin their measured part at one instant. Leaves out: set-ups of many times the
//! memory (`actor` skips them).

use std::cell::RefCell;
use std::rc::Rc;

use crate::Machine;
use crate::constant::constants;
use crate::kernel::Profile;
use crate::machine::bounds::Bound;
use crate::run::SimError;
use crate::run::actor::{Children, Who, perform};
use crate::run::monitor;
use crate::run::process;
use crate::sched::task::Task;
use flatwater_recording::units::Nanos;
use flatwater_workload::scenario::Scenario;
use flatwater_workload::{Actor, Op};

constants! {
    /// Longest set-up: more than 7 GB on a disk of 1 MB/s is refused.
    const LONGEST_NS: u64 = assumed(7_200_000_000_000, "7 GB at 1 MB/s; who waits for ever fills memory with samples");
    /// A set-up of more than this times the memory is skipped.
    const LARGEST: u64 = assumed(8, "memory is full after the first; more takes a run's time alone");
}

/// Performs the set-up; the measured part begins when all actors have finished theirs.
pub fn all(m: &Rc<Machine>, scenario: &Scenario) -> Result<(), SimError> {
    m.clock.set_end(u64::MAX);
    m.clock.run_while(|| m.preparing.get() > 0 && m.clock.now() < LONGEST_NS.get());
    if m.preparing.get() > 0 {
        return Err(Bound::SetUp(Nanos(LONGEST_NS.get())).of(scenario));
    }
    let start_ns = m.clock.now() + 1;
    m.start_ns.set(start_ns);
    m.clock.set_end(start_ns.saturating_add(scenario.duration.0));
    m.ready.borrow_mut().wake_all(&m.clock);
    let mut changes = scenario.timeline.clone();
    changes.iter_mut().for_each(|change| change.at.0 += start_ns);
    m.clock.spawn(monitor::timeline(m.clone(), changes));
    process::start_others(m, &scenario.machine);
    Ok(())
}

/// Whether the model performs the set-up: on 6.x, unless it writes many times the memory. Memory of the case studies'
/// machines is filled from `model.*`.
pub fn is_due(scenario: &Scenario, profile: &Profile, memory_bytes: u64, seed: u64) -> Result<bool, SimError> {
    let mut bytes = 0_u64;
    for (number, spec) in scenario.workloads.iter().enumerate().filter(|(_, spec)| spec.start.0 == 0) {
        let workload = (spec.entry.build)(&spec.params, seed.wrapping_add(number as u64))?;
        bytes = bytes.saturating_add(workload.footprint().disk_bytes);
    }
    Ok(profile.is_6() && bytes > 0 && bytes <= memory_bytes.saturating_mul(LARGEST.get()))
}

/// Performs an actor's set-up. The measured part begins for all actors at one instant, from which their times count.
/// Also returns the first operation that is not part of the set-up.
pub async fn ahead(m: &Rc<Machine>, who: Who, actor: &mut Actor, task: &mut Task) -> (Who, Option<Op>) {
    // For tasks spawned later the measured part has begun.
    if !m.prepares || m.start_ns.get() > 0 {
        return (who, None);
    }
    let own = Rc::new(RefCell::new(Children::default()));
    let mut next = if who.start_ns == 0 { actor.stream.next(0) } else { None };
    if next == Some(Op::Measure { on: false }) {
        loop {
            next = actor.stream.next(m.clock.now());
            match next {
                None | Some(Op::Measure { on: true }) => break,
                Some(Op::Sleep { ns }) => m.nap(m.clock.now() + ns).await,
                Some(op) => {
                    task.begin();
                    perform(m, task, &who, op, &own).await;
                    task.run(m).await;
                }
            }
        }
    }
    m.preparing.set(m.preparing.get() - 1);
    m.ready.borrow_mut().join(m.clock.current());
    m.clock.park(None).await;
    task.begin();
    let start_ns = m.start_ns.get();
    let who = Who { start_ns: who.start_ns + start_ns, end_ns: who.end_ns.saturating_add(start_ns), ..who };
    (who, next)
}

#[cfg(test)]
mod tests {
    use crate::Options;
    use crate::run_with;
    use flatwater_recording::Table;
    use flatwater_recording::schema::meminfo;
    use flatwater_workload::scenario::Scenario;

    /// MiB free when the measured part begins, and dirty, after a file of such a size was written on a machine of 256
    /// MiB.
    fn begins_with(file_system: &str, file_size: &str) -> [i64; 2] {
        let text = format!(
            "name = 'x'\nsentence = 'X.'\nkernel = 'linux-6.1'\nduration = '1s'\n[machine]\nnodes = ['256MiB']\n\
             disk = {{ file_system = '{file_system}' }}\n\
             [[workload]]\nuse = 'access'\nfile_size = '{file_size}'\npause = '10ms'\n"
        );
        let scenario = Scenario::parse("x", &text).expect("parses");
        let (recording, _) = run_with(&scenario, &Options::default(), |_| true).expect("runs");
        let rows = recording.table(Table::Meminfo).expect("samples");
        [meminfo::MEM_FREE_BYTES, meminfo::DIRTY_BYTES].map(|column| {
            let at = |(at_ns, bytes): (u64, i64)| (at_ns >= recording.header.clock.start_ns).then_some(bytes >> 20);
            rows.by_entity().flat_map(|(_, rows)| rows.values(column)).find_map(at).expect("a sample")
        })
    }

    #[test]
    fn a_set_up_that_does_not_fit_leaves_memory_full() {
        let [small, large] = ["32MiB", "600MiB"].map(|size| begins_with("ext4", size));
        assert!(small[0] > 150 && large[0] < 30, "free: {small:?}, {large:?}");
        assert!(small[1] > 0 && large[1] > 0, "dirty: {small:?}, {large:?}");
    }
}
