//! What copying to and from the page cache takes, by the node that the page lies in.
//!
//! Models: memory of another node that takes as much longer as the firmware's distance says, the caller's own memory on its own
//! node. Leaves out: the links' bandwidth, caches.

use super::Machine;
use super::build::Shape;
use super::constant::constants;
use super::task::Task;
use flatwater_workload::scenario::MachineSpec;

constants! {
    /// Of a node to itself; another's is relative to it.
    const LOCAL_DISTANCE: u64 = kernel(10, "include/linux/topology.h", "LOCAL_DISTANCE (ACPI's SLIT)", "2.6.32");
}

/// What an access to another node's memory takes, in percent of one to the own: what was measured, else the nodes' distance.
pub fn remote_percent(machine: &MachineSpec, shape: &Shape) -> u64 {
    let measured = machine.speed.and_then(|speed| speed.remote_percent);
    measured.unwrap_or(shape.distance * 100 / LOCAL_DISTANCE.get()).max(100)
}

impl Machine {
    /// CPU time of copying so many bytes between the caller's memory and a page of a zone.
    pub fn copy_ns(&self, task: &Task, zone: u8, bytes: u64) -> u64 {
        let there = self.mm.borrow().zones[usize::from(zone)].node;
        let ns = bytes * self.costs.copy_byte_ps / 1000;
        if there == task.node { ns } else { half_remote(ns, self.remote_percent) }
    }

    /// Clearing a page of a zone, or each page of a huge one.
    pub fn clear_ns(&self, task: &Task, zone: u8, huge: bool) -> u64 {
        let there = self.mm.borrow().zones[usize::from(zone)].node;
        let ns = if huge { self.costs.zero_huge_page_ns() } else { self.costs.zero_page_ns() };
        if there == task.node { ns } else { ns * self.remote_percent / 100 }
    }

    /// What copying takes longer if the caller's memory is that of a zone and the page is local.
    pub fn far_copy_ns(&self, task: &Task, zone: u8, bytes: u64) -> u64 {
        self.copy_ns(task, zone, bytes) - bytes * self.costs.copy_byte_ps / 1000
    }
}

/// Of a copy one end is remote: half of its accesses.
fn half_remote(ns: u64, remote_percent: u64) -> u64 {
    ns * (100 + remote_percent) / 200
}

#[cfg(test)]
mod tests {
    use super::{half_remote, remote_percent};
    use crate::{build, kernel};
    use flatwater_workload::scenario::Scenario;

    #[test]
    fn one_end_of_a_copy_is_remote_and_takes_as_much_longer_as_the_distance_says() {
        let text = "name = 'x'\nsentence = 'X.'\nduration = '1s'\nthreshold = '1ms'\nkernel = 'linux-6.1'\n\
                    [machine]\ncpus = 2\nnodes = ['1GiB', '1GiB']\ndistance = 21\n[[workload]]\nuse = 'journal'\n";
        let mut scenario = Scenario::parse("x", text).expect("parses");
        let shape = build::shape(&scenario.machine, &kernel::find("linux-6.1").expect("a profile"));
        assert_eq!(remote_percent(&scenario.machine, &shape), 210);
        assert_eq!(half_remote(1000, 210), 1550);
        scenario.set("machine.speed=remote_percent=100").expect("known");
        assert_eq!(remote_percent(&scenario.machine, &shape), 100);
        assert_eq!(half_remote(1000, 100), 1000);
    }
}
