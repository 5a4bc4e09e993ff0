//! The nodes of the page cache's trees: slab pages that a stream leaves behind.
//!
//! Models: one node of the XArray for 64 pages of a file, allocated when the first of them is cached. The node is freed
//! with the last page, unless shadow entries keep it (mm/workingset.c: workingset_update_node); as long as a file has a
//! node, the inodes' shrinker leaves its inode alone (5.15 and later: mapping_shrinkable). Leaves out: the levels above
//! (one node in 65), and the shrinker of nodes with shadow entries alone.

use crate::Machine;
use crate::constant::constants;
use crate::fs::inode::{InodeId, KeyMap};
use crate::mm::alloc::{self, Want};
use crate::mm::chunk::WINDOW_PAGES;
use crate::mm::memory::Mm;
use crate::mm::slab::{CacheKind, Object};
use crate::sched::task::Task;

constants! {
    pub const NODE_PAGES: u64 = kernel(64, "include/linux/xarray.h", "XA_CHUNK_SIZE", "6.1");
}

/// Windows of pages that a node has.
const WINDOWS: u32 = (NODE_PAGES.get() / WINDOW_PAGES) as u32;

/// The nodes of each file.
#[derive(Debug, Default)]
pub struct Trees(KeyMap<InodeId, Vec<Option<Object>>>);

impl Trees {
    fn has(&self, inode: InodeId, page: u64) -> bool {
        let node = self.0.get(&inode).and_then(|nodes| nodes.get((page / NODE_PAGES.get()) as usize));
        matches!(node, Some(Some(_)))
    }

    /// Whether the file has a node.
    pub fn holds(&self, inode: InodeId) -> bool {
        self.0.get(&inode).is_some_and(|nodes| nodes.iter().any(Option::is_some))
    }

    fn put(&mut self, inode: InodeId, page: u64, object: Object) {
        let nodes = self.0.entry(inode).or_default();
        let place = (page / NODE_PAGES.get()) as usize;
        if nodes.len() <= place {
            nodes.resize(place + 1, None);
        }
        nodes[place] = Some(object);
    }

    fn take(&mut self, inode: InodeId, place: u32) -> Option<Object> {
        self.0.get_mut(&inode)?.get_mut(place as usize)?.take()
    }
}

impl Mm {
    /// Frees the nodes of a deleted file.
    pub fn free_tree(&mut self, inode: InodeId, cpu: u16) {
        for node in self.trees.0.remove(&inode).unwrap_or_default().into_iter().flatten() {
            self.free_object(CacheKind::RadixNode, node, cpu);
        }
    }

    /// mm/workingset.c: workingset_update_node; lib/xarray.c: xas_delete_node: pages of a window are gone. A node
    /// without pages and shadow entries is freed.
    pub fn update_node(&mut self, inode: InodeId, window: u32, cpu: u16) {
        let place = window / WINDOWS;
        if !self.trees.has(inode, u64::from(place) * NODE_PAGES.get()) {
            return;
        }
        let windows = place * WINDOWS..(place + 1) * WINDOWS;
        if windows.clone().any(|window| self.has_pages(inode, window)) || self.shadows.any(inode, windows) {
            return;
        }
        if let Some(node) = self.trees.take(inode, place) {
            self.free_object(CacheKind::RadixNode, node, cpu);
        }
    }
}

/// Allocates the node for a page that will be cached, if it does not exist. A file of one page has no node: the entry
/// is in the root (lib/xarray.c: xas_create).
pub async fn grow(m: &Machine, task: &mut Task, inode: InodeId, page: u64) {
    if !m.profile.is_6() || page == 0 || m.mm.borrow().trees.has(inode, page) {
        return;
    }
    let key = m.mm.borrow().inodes.get(inode).key;
    let node = alloc::object(m, task, CacheKind::RadixNode, Want::NOFS).await;
    let mut mm = m.mm.borrow_mut();
    // Allocation may have slept: another thread made it, or the file is gone.
    if mm.inodes.get(inode).key != key || mm.trees.has(inode, page) {
        mm.free_object(CacheKind::RadixNode, node, task.cpu);
    } else {
        mm.trees.put(inode, page, node);
    }
}

#[cfg(test)]
mod tests {
    use super::Trees;
    use crate::kernel::find;
    use crate::machine::build;
    use crate::mm::slab::{CacheKind, Object};

    /// XA_CHUNK_SIZE: pages 64 to 127 share a node, which another file does not use.
    #[test]
    fn a_node_is_of_64_pages_of_one_file() {
        let mut trees = Trees::default();
        trees.put(7, 70, Object { zone: 1, slab: 5 });
        assert_eq!([63, 64, 127, 128].map(|page| trees.has(7, page)), [false, true, true, false]);
        assert!(!trees.has(8, 70) && trees.holds(7) && !trees.holds(8));
    }

    /// workingset_update_node: evicted pages leave shadow entries, which keep the node, and with it the inode from the
    /// shrinker; of truncated ones nothing is left.
    #[test]
    fn a_node_goes_with_its_last_page_unless_shadow_entries_keep_it() {
        let mut mm = build::memory(&find("linux-6.1").expect("a profile"), &[64 << 20], 1);
        let [evicted, truncated] = [1, 2].map(|file| {
            let inode = mm.inodes.add((0, file), Object::default(), false);
            let node = build::add_object(&mut mm, CacheKind::RadixNode, 1).expect("memory");
            mm.trees.put(inode, 1, node);
            for page in 0..6 {
                mm.take_frames(1, 0, 0);
                mm.insert(inode, page, 1);
            }
            inode
        });
        let (id, _) = mm.lookup(evicted, 0).expect("cached");
        mm.evict(id, 0b11_1111, 0);
        assert!(mm.cache_holds(evicted) && mm.inodes.get(evicted).pages == 0);
        mm.invalidate(truncated, 0, true, 0);
        assert_eq!((mm.trees.holds(truncated), mm.cache_holds(truncated)), (false, false));
        assert_eq!(mm.cache(CacheKind::RadixNode).used(), 1);
    }
}
