//! The shrinker of the page cache's tree nodes that have nothing but shadow entries, 4.16 and later.
//!
//! Models: that more of them than an eighth of the pages on the LRU lists are too many (`count_shadow_nodes`), and that from 4.20 on half of
//! those go at each call whatever its priority, as they cost no I/O to make (`do_shrink_slab`, shrinkers without seeks). Every kernel is taken
//! for one with memory cgroups, as distributions have it: without them, and outside of any, all memory counts. Leaves out: the shrinker of 3.15
//! to 4.15, which leaves a sixteenth of memory; that nodes are freed a grace period later.

use super::node::Share;
use super::tree::list_of;
use crate::Machine;
use crate::constant::constants;
use crate::kernel::ShadowNodes;
use crate::memory::Mm;
use crate::site::Site;
use crate::task::Task;

constants! {
    const BATCH: u64 = kernel(128, "mm/vmscan.c", "SHRINK_BATCH", "6.1");
    const SEEKS: u64 = kernel(2, "include/linux/shrinker.h", "DEFAULT_SEEKS", "4.18");
    /// For how many pages of memory there may be a node.
    const PAGES_OF_NODE: u64 = kernel(8, "mm/workingset.c", "count_shadow_nodes (1 << (XA_CHUNK_SHIFT - 3))", "6.1");
}

impl Mm {
    /// mm/workingset.c: count_shadow_nodes.
    fn too_many_nodes(&self, node: usize, in_cgroup: bool) -> u64 {
        let with_anonymous = self.profile.shadow_nodes == ShadowNodes::OfAll;
        let own = self.zones.iter().find(|zone| zone.node == node).map(|zone| (zone.lruvec, zone.anonymous_lruvec));
        let lruvecs = match own {
            _ if in_cgroup => [self.cgroup.lruvecs.get(node).copied(), None],
            Some((files, anonymous)) => [Some(files), Some(anonymous).filter(|it| with_anonymous && *it != files)],
            None => [None; 2],
        };
        let of = |lruvec: u8| self.chunks.lruvecs[usize::from(lruvec)].pages.iter().sum::<u64>();
        let objects = if in_cgroup && with_anonymous { self.cgroup.object_pages() } else { 0 };
        let pages = lruvecs.into_iter().flatten().map(of).sum::<u64>() + objects;
        self.trees.shadow_nodes(list_of(node, in_cgroup)).saturating_sub(pages / PAGES_OF_NODE.get())
    }
}

/// mm/vmscan.c: do_shrink_slab, for one NUMA node and the cgroup or none.
pub async fn shrink(m: &Machine, task: &mut Task, share: Share, (node, in_cgroup): (usize, bool)) {
    let rule = m.profile.shadow_nodes;
    let list = list_of(node, in_cgroup);
    if rule == ShadowNodes::Kept {
        return;
    }
    let freeable = m.mm.borrow().too_many_nodes(node, in_cgroup);
    if freeable == 0 {
        return;
    }
    let delta = match rule {
        ShadowNodes::OfAll => freeable / 2,
        _ => (freeable >> share.priority) * 4 / SEEKS.get(),
    };
    let owed = m.mm.borrow().trees.owed(list);
    let mut left = ((owed >> share.priority) + delta).min(2 * freeable);
    let mut scanned = 0;
    while left >= BATCH.get() || (left >= freeable && left > 0) {
        let batch = left.min(BATCH.get());
        let dropped = m.mm.borrow_mut().drop_shadow_nodes(list, batch, task.cpu);
        m.mm.borrow_mut().events.slabs_scanned += batch;
        let site = if share.site == Site::NodeReclaim { Site::NodeReclaim } else { Site::ShrinkSlab };
        task.work(site, dropped * m.costs.slab_object_ns);
        (scanned, left) = (scanned + batch, left - batch);
    }
    m.mm.borrow_mut().trees.owe(list, (owed + delta).saturating_sub(scanned).min(2 * freeable));
    if task.pending_ns() > m.costs.burst_ns {
        task.run(m).await;
    }
}

#[cfg(test)]
mod tests {
    use crate::build;
    use crate::kernel::find;
    use crate::slab::Object;

    /// 160 pages on the lists: there may be 20 nodes with shadow entries alone (count_shadow_nodes); of 4.18 pages of files count alone.
    #[test]
    fn a_node_for_eight_pages_on_the_lists_is_not_too_many() {
        for (kernel, too_many) in [("linux-6.1", 30 - 20), ("linux-4.18", 30 - 8)] {
            let mut mm = build::memory(&find(kernel).expect("a profile"), &[64 << 20], 1);
            (0..30).for_each(|file| mm.trees.list_new(file, Object::default()));
            let zone = mm.zones[1].clone();
            mm.chunks.lruvecs[usize::from(zone.lruvec)].pages = [40, 24];
            mm.chunks.lruvecs[usize::from(zone.anonymous_lruvec)].pages = [96, 0];
            assert_eq!((mm.too_many_nodes(0, false), mm.too_many_nodes(0, true)), (too_many, 0), "{kernel}");
        }
    }
}
