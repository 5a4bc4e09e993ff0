//! The nodes of the page cache's trees: slab pages that a stream leaves behind.
//!
//! Models: one node of the XArray for 64 pages of a file, made when the first of them is cached. When the last is gone it goes too, unless
//! shadow entries keep it (mm/workingset.c: workingset_update_node): then it is on a list, of which a shrinker takes from the oldest on
//! (`shadow_nodes`), and until then it keeps its inode from the inodes' shrinker (5.15 and later: mapping_shrinkable). Leaves out: the levels
//! above (one node in 65).

use std::collections::VecDeque;

use crate::Machine;
use crate::alloc::{self, Want};
use crate::chunk::WINDOW_PAGES;
use crate::constant::constants;
use crate::inode::{InodeId, KeyMap};
use crate::memory::Mm;
use crate::slab::{CacheKind, Object};
use crate::task::Task;

constants! {
    pub const NODE_PAGES: u64 = kernel(64, "include/linux/xarray.h", "XA_CHUNK_SIZE", "6.1");
}

/// Windows of pages that a node has.
const WINDOWS: u32 = (NODE_PAGES.get() / WINDOW_PAGES) as u32;

#[derive(Clone, Copy, Debug)]
struct Node {
    object: Object,
    /// Which list it is on, as it has shadow entries alone, and since when.
    listed: Option<(usize, u64)>,
}

/// Nodes with shadow entries alone, of a NUMA node and either of a memory cgroup or of none; the oldest first, among them some that
/// are used again.
#[derive(Debug, Default)]
struct List {
    order: VecDeque<(InodeId, u32, u64)>,
    count: u64,
    /// Work that the shrinker owes (`shrinker->nr_deferred`).
    owed: u64,
}

/// The nodes of each file.
#[derive(Debug, Default)]
pub struct Trees {
    files: KeyMap<InodeId, Vec<Option<Node>>>,
    lists: Vec<List>,
    now: u64,
}

/// The list of a NUMA node and, if so, of the cgroup.
pub fn list_of(node: usize, in_cgroup: bool) -> usize {
    2 * node + usize::from(in_cgroup)
}

impl Trees {
    fn node_mut(&mut self, inode: InodeId, place: u32) -> Option<&mut Option<Node>> {
        self.files.get_mut(&inode)?.get_mut(place as usize)
    }

    fn has(&self, inode: InodeId, page: u64) -> bool {
        let node = self.files.get(&inode).and_then(|nodes| nodes.get((page / NODE_PAGES.get()) as usize));
        matches!(node, Some(Some(_)))
    }

    /// Whether the file has any.
    pub fn holds(&self, inode: InodeId) -> bool {
        self.files.get(&inode).is_some_and(|nodes| nodes.iter().any(Option::is_some))
    }

    fn put(&mut self, inode: InodeId, page: u64, object: Object) {
        let nodes = self.files.entry(inode).or_default();
        let place = (page / NODE_PAGES.get()) as usize;
        if nodes.len() <= place {
            nodes.resize(place + 1, None);
        }
        nodes[place] = Some(Node { object, listed: None });
    }

    /// One of its pages is cached: it is on no list any more.
    #[inline]
    pub fn used(&mut self, inode: InodeId, page: u64) {
        let Some(Some(node)) = self.node_mut(inode, (page / NODE_PAGES.get()) as u32) else { return };
        if let Some((list, _)) = node.listed.take() {
            self.lists[list].count -= 1;
        }
    }

    fn list(&mut self, inode: InodeId, place: u32, list: usize) {
        self.now += 1;
        let now = self.now;
        let Some(Some(node)) = self.node_mut(inode, place) else { return };
        if node.listed.is_some() {
            return;
        }
        node.listed = Some((list, now));
        if self.lists.len() <= list {
            self.lists.resize_with(list + 1, List::default);
        }
        self.lists[list].order.push_back((inode, place, now));
        self.lists[list].count += 1;
    }

    /// As if all pages of a file's only node had been evicted.
    #[cfg(test)]
    pub fn list_new(&mut self, inode: InodeId, object: Object) {
        self.put(inode, 0, object);
        self.list(inode, 0, list_of(0, false));
    }

    fn take(&mut self, inode: InodeId, place: u32) -> Option<Object> {
        let node = self.node_mut(inode, place)?.take()?;
        if let Some((list, _)) = node.listed {
            self.lists[list].count -= 1;
        }
        Some(node.object)
    }

    /// Nodes with shadow entries alone.
    pub fn shadow_nodes(&self, list: usize) -> u64 {
        self.lists.get(list).map_or(0, |list| list.count)
    }

    pub fn owed(&self, list: usize) -> u64 {
        self.lists.get(list).map_or(0, |list| list.owed)
    }

    pub fn owe(&mut self, list: usize, owed: u64) {
        if let Some(list) = self.lists.get_mut(list) {
            list.owed = owed;
        }
    }

    /// The one that has been on the list for longest.
    fn oldest(&mut self, list: usize) -> Option<(InodeId, u32)> {
        while let Some((inode, place, since)) = self.lists.get_mut(list)?.order.pop_front() {
            let node = self.node_mut(inode, place).and_then(|node| *node);
            if node.is_some_and(|node| node.listed == Some((list, since))) {
                return Some((inode, place));
            }
        }
        None
    }
}

impl Mm {
    /// The nodes of a file that is no more.
    pub fn free_tree(&mut self, inode: InodeId, cpu: u16) {
        for place in 0..self.trees.files.get(&inode).map_or(0, Vec::len) as u32 {
            if let Some(node) = self.trees.take(inode, place) {
                self.free_object(CacheKind::RadixNode, node, cpu);
            }
        }
        self.trees.files.remove(&inode);
    }

    /// mm/workingset.c: workingset_update_node; lib/xarray.c: xas_delete_node: pages of a window went. What has only shadow entries is listed,
    /// what has nothing goes.
    pub fn update_node(&mut self, inode: InodeId, window: u32, cpu: u16) {
        let place = window / WINDOWS;
        if !self.trees.has(inode, u64::from(place) * NODE_PAGES.get()) {
            return;
        }
        let windows = place * WINDOWS..(place + 1) * WINDOWS;
        if windows.clone().any(|window| self.has_pages(inode, window)) {
            return;
        }
        let of = self.inodes.get(inode);
        let in_cgroup = of.in_cgroup;
        if self.shadows.any(inode, windows) {
            let Some(Some(node)) = self.trees.node_mut(inode, place) else { return };
            let list = list_of(self.zones[usize::from(node.object.zone)].node, in_cgroup);
            self.trees.list(inode, place, list);
        } else if let Some(node) = self.trees.take(inode, place) {
            self.free_object(CacheKind::RadixNode, node, cpu);
        }
    }

    /// mm/workingset.c: scan_shadow_nodes, shadow_lru_isolate: nodes go with what they remember, from the oldest on; their inodes may be for
    /// the shrinker then. How many went.
    pub fn drop_shadow_nodes(&mut self, list: usize, most: u64, cpu: u16) -> u64 {
        for dropped in 0..most {
            let Some((inode, place)) = self.trees.oldest(list) else { return dropped };
            self.shadows.forget_windows(inode, place * WINDOWS..(place + 1) * WINDOWS);
            if let Some(node) = self.trees.take(inode, place) {
                self.free_object(CacheKind::RadixNode, node, cpu);
            }
            self.note_uncached(inode);
        }
        most
    }
}

/// A page is about to be cached: its node, where there is none yet. A file of one page has none (lib/xarray.c:
/// xas_create): the entry stands in the root.
pub async fn grow(m: &Machine, task: &mut Task, inode: InodeId, page: u64) {
    if !m.profile.tree_nodes || page == 0 || m.mm.borrow().trees.has(inode, page) {
        return;
    }
    let key = m.mm.borrow().inodes.get(inode).key;
    let node = alloc::object(m, task, CacheKind::RadixNode, Want::NOFS).await;
    let mut mm = m.mm.borrow_mut();
    // Allocation may have slept: somebody else made it, or the file is gone.
    if mm.inodes.get(inode).key != key || mm.trees.has(inode, page) {
        mm.free_object(CacheKind::RadixNode, node, task.cpu);
    } else {
        mm.trees.put(inode, page, node);
    }
}

#[cfg(test)]
mod tests {
    use super::{Trees, list_of};
    use crate::alloc::Want;
    use crate::build;
    use crate::inode::InodeId;
    use crate::kernel::find;
    use crate::memory::Mm;
    use crate::slab::{CacheKind, Object};

    /// XA_CHUNK_SIZE: pages 64 to 127 share a node, which is no other file's.
    #[test]
    fn a_node_is_of_64_pages_of_one_file() {
        let mut trees = Trees::default();
        trees.put(7, 70, Object { zone: 1, slab: 5 });
        assert_eq!([63, 64, 127, 128].map(|page| trees.has(7, page)), [false, true, true, false]);
        assert!(!trees.has(8, 70) && trees.holds(7) && !trees.holds(8));
    }

    /// list_lru: what is used again leaves the list, and comes to its end when it has shadow entries alone once more.
    #[test]
    fn nodes_with_shadow_entries_alone_are_listed_in_the_order_of_becoming_so() {
        let (mut trees, list) = (Trees::default(), list_of(1, false));
        for file in [7, 8, 9] {
            trees.put(file, 1, Object::default());
            trees.list(file, 0, list);
        }
        // What is listed already keeps its place.
        trees.list(8, 0, list);
        trees.used(7, 3);
        assert_eq!([0, 1, 2, 3].map(|list| trees.shadow_nodes(list)), [0, 0, 2, 0]);
        trees.list(7, 0, list);
        let all: Vec<_> = std::iter::from_fn(|| trees.oldest(list)).collect();
        assert_eq!(all, [(8, 0), (9, 0), (7, 0)]);
        assert!(trees.take(8, 0).is_some() && trees.take(8, 0).is_none());
        assert_eq!(trees.shadow_nodes(list), 2);
    }

    /// A node of one NUMA node with two files of 6 pages, each in one node of the tree.
    fn cached() -> (Mm, [InodeId; 2]) {
        let mut mm = build::memory(&find("linux-6.1").expect("a profile"), &[64 << 20], 1);
        let inodes = [1, 2].map(|file| {
            let inode = mm.inodes.add((0, file), Object::default(), false);
            let node = build::add_object(&mut mm, CacheKind::RadixNode, 1).expect("memory");
            mm.trees.put(inode, 1, node);
            for page in 0..6 {
                mm.take_frame(1, 0, Want::USER);
                mm.insert(inode, page, 1);
            }
            inode
        });
        (mm, inodes)
    }

    fn nodes(mm: &Mm) -> u64 {
        mm.cache(CacheKind::RadixNode).used()
    }

    /// workingset_update_node: evicted pages leave shadow entries, which keep the node, and with it the inode from the shrinker; of truncated ones
    /// nothing is left.
    #[test]
    fn a_node_goes_with_its_last_page_unless_shadow_entries_keep_it() {
        let (mut mm, [evicted, truncated]) = cached();
        let (id, _) = mm.lookup(evicted, 0).expect("cached");
        mm.evict(id, 0b11111, 0);
        assert_eq!(mm.trees.shadow_nodes(0), 0, "a page is left");
        mm.evict(id, 0b100000, 0);
        assert_eq!((nodes(&mm), mm.trees.shadow_nodes(0)), (2, 1));
        assert!(mm.cache_holds(evicted) && mm.inodes.get(evicted).pages == 0);
        mm.invalidate(truncated, 0, true, 0);
        assert_eq!((nodes(&mm), mm.trees.holds(truncated), mm.cache_holds(truncated)), (1, false, false));
        // A page that comes back takes the node off the list, and the shrinker finds none.
        mm.take_frame(1, 0, Want::USER);
        mm.insert(evicted, 2, 1);
        assert_eq!((mm.drop_shadow_nodes(0, 9, 0), nodes(&mm)), (0, 1));
        let (id, bit) = mm.lookup(evicted, 2).expect("cached");
        mm.evict(id, bit, 0);
        // shadow_lru_isolate: what it remembered goes with it.
        assert_eq!((mm.drop_shadow_nodes(0, 9, 0), nodes(&mm), mm.cache_holds(evicted)), (1, 0, false));
        let before = mm.events.workingset_refault;
        assert!(!mm.refaults(evicted, 2, false) && mm.events.workingset_refault == before);
    }
}
