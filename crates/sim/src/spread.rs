//! Where pages that will be dirtied come from: no zone or node holds more than its part of the dirty limit.
//!
//! Models: mm/page-writeback.c: zone_dirty_ok (3.3 to 4.7), node_dirty_ok (4.8 and later), as get_page_from_freelist asks them
//! for __GFP_WRITE at the low watermark. Leaves out: the quarter more of real-time tasks and of loop devices.

use super::Machine;
use super::kernel::{DirtySpread, Dirtyable};
use super::memory::Mm;
use super::zone::{Zone, totalreserve_pages};

/// The machine's dirty limit, of which each zone or node has a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirtyPart {
    Percent(u64),
    Bytes(u64),
}

impl Machine {
    /// Of what a page that a write() will dirty has to be a part; `None` where the kernel does not ask.
    pub fn dirty_part(&self) -> Option<DirtyPart> {
        if self.profile.dirty_spread == DirtySpread::None {
            return None;
        }
        let knobs = self.knobs.borrow();
        Some(knobs.dirty_bytes.map_or(DirtyPart::Percent(knobs.dirty_ratio), DirtyPart::Bytes))
    }
}

impl Mm {
    /// node_dirtyable_memory, global_dirtyable_memory: free pages without what the kernel keeps back, file pages, and up to 3.13
    /// anonymous ones. So processes that fill most of a machine with swap once raised the limits above all that files had.
    pub fn dirtyable<'a>(&self, zones: impl Iterator<Item = &'a Zone> + Clone) -> u64 {
        let of = |sum: (u64, u64, u64), zone: &Zone| {
            (sum.0 + zone.free, sum.1 + zone.file, sum.2 + totalreserve_pages(std::slice::from_ref(zone)))
        };
        let (free, file, reserve) = zones.clone().fold((0, 0, 0), of);
        free.saturating_sub(reserve) + file + self.dirtyable_anonymous(zones)
    }

    /// mm/vmscan.c: global_reclaimable_pages, 2.6.32: while there is room in swap; global_lru_pages before.
    pub fn dirtyable_anonymous<'a>(&self, zones: impl Iterator<Item = &'a Zone>) -> u64 {
        let counts = match self.profile.dirtyable {
            Dirtyable::AllLists => true,
            Dirtyable::WithSwap => self.swap.free() > 0,
            Dirtyable::Files => false,
        };
        if counts { zones.map(|zone| zone.anonymous).sum() } else { 0 }
    }
}

/// node_dirty_limit, of so many dirtyable pages there and in all.
fn limit(part: DirtyPart, there: u64, all: u64) -> u64 {
    match part {
        DirtyPart::Percent(ratio) => ratio * there / 100,
        DirtyPart::Bytes(bytes) => bytes.div_ceil(4096) * there / (all + 1),
    }
}

impl Mm {
    /// Whether a zone, from 4.8 on its node, may have one more page that will be dirty.
    pub fn dirty_ok(&self, zone: u8, part: DirtyPart) -> bool {
        let asked = &self.zones[usize::from(zone)];
        let by_node = self.profile.dirty_spread == DirtySpread::ByNode;
        let of = |other: &&Zone| if by_node { other.node == asked.node } else { std::ptr::eq(*other, asked) };
        let there = self.zones.iter().filter(of);
        let held: u64 = there.clone().map(|zone| zone.dirty + zone.writeback).sum();
        let all = if matches!(part, DirtyPart::Bytes(_)) { self.dirtyable(self.zones.iter()) } else { 0 };
        held <= limit(part, self.dirtyable(there), all)
    }
}

#[cfg(test)]
mod tests {
    use super::{DirtyPart, limit};
    use crate::build::memory;
    use crate::kernel::find;
    use crate::run;
    use crate::swap::Swap;
    use crate::zone::{Zone, ZoneKind};
    use flatwater_recording::{Entity, Table};
    use flatwater_workload::scenario::Scenario;

    #[test]
    fn a_node_has_its_part_of_the_dirty_limit() {
        let mut zone = Zone::new(0, ZoneKind::Normal, 10_000, 10_000);
        (zone.free, zone.file, zone.anonymous, zone.high) = (1_000, 3_000, 4_000, 200);
        let memory = |kernel: &str, swap| {
            let mut mm = memory(&find(kernel).expect("a profile"), &[1 << 30], 1);
            mm.swap = Swap::new(0, swap);
            mm
        };
        // 1000 - 200 free and 3000 of files.
        let later = memory("linux-3.14", 1000);
        assert_eq!(later.dirtyable([&zone].into_iter()), 3_800);
        assert_eq!(memory("linux-3.13", 1000).dirtyable([&zone].into_iter()), 7_800, "what could be swapped counts");
        assert_eq!(memory("linux-3.13", 0).dirtyable([&zone].into_iter()), 3_800, "there is no swap");
        zone.free = 100;
        assert_eq!(later.dirtyable([&zone].into_iter()), 3_000, "the reserve takes no more than is free");
        assert_eq!(limit(DirtyPart::Percent(40), 3_000, 0), 1_200);
        // vm_dirty_bytes of 1000 pages, a quarter of which is dirtyable here.
        assert_eq!(limit(DirtyPart::Bytes(4_096_000), 3_000, 11_999), 250);
    }

    /// A stream of writes on node 0 of two: pages that came from the other node.
    fn missed(kernel: &str) -> i64 {
        let text = format!(
            "name = 'x'\nsentence = 'X.'\nduration = '4s'\nthreshold = '1s'\nkernel = '{kernel}'\n\
             [machine]\ncpus = 2\nnodes = ['1GiB', '1GiB']\n\
             disk = {{ size = '8GB', write_bps = '20MB', iops = 20000, file_system = 'ext4' }}\n\
             [setup]\n'vm.dirty_ratio' = 20\n\
             [[workload]]\nuse = 'stream'\nbytes = '1MiB'\ndirection = 'write'\nfile_size = '400MiB'\nnode = 0\n"
        );
        let ran =
            run(&Scenario::parse("x", &text).expect("parses")).unwrap_or_else(|error| panic!("{kernel}: {error}")).0;
        let nodes = ran.table(Table::Nodes).expect("nodes");
        let missed = |node| nodes.rows_of(&Entity::on_node(node, "")).and_then(|rows| rows.last("numa_miss"));
        missed(0).expect("node 0") + missed(1).expect("node 1")
    }

    #[test]
    fn what_a_writer_dirties_beyond_its_nodes_part_lies_on_the_other_node() {
        assert_eq!(missed("linux-3.2"), 0, "the node has free memory");
        for kernel in ["linux-3.10", "linux-4.18", "linux-6.1"] {
            assert!(missed(kernel) > 10_000, "{kernel}: {}", missed(kernel));
        }
    }
}
