//! The nodes of the page cache's trees: slab pages that a stream leaves behind.
//!
//! Models: one node of the XArray for 64 pages of a file, made when the first of them is cached and kept by the shadow
//! entries after the last is gone (mm/workingset.c: workingset_eviction, 6.1) until the inode goes. Leaves out: the
//! levels above (one node in 65), the shrinker of shadow nodes, which asks for nothing while nodes are fewer than an
//! eighth of the node's pages (count_shadow_nodes).

use crate::Machine;
use crate::alloc::{self, Want};
use crate::constant::constants;
use crate::inode::{InodeId, KeyMap};
use crate::memory::Mm;
use crate::slab::{CacheKind, Object};
use crate::task::Task;

constants! {
    pub const NODE_PAGES: u64 = kernel(64, "include/linux/xarray.h", "XA_CHUNK_SIZE", "6.1");
}

/// For each file, in which slab the node of each 64 pages lies.
#[derive(Debug, Default)]
pub struct Trees(KeyMap<InodeId, Vec<Option<Object>>>);

impl Trees {
    fn has(&self, inode: InodeId, page: u64) -> bool {
        let node = self.0.get(&inode).and_then(|nodes| nodes.get((page / NODE_PAGES.get()) as usize));
        matches!(node, Some(Some(_)))
    }

    fn put(&mut self, inode: InodeId, page: u64, node: Object) {
        let nodes = self.0.entry(inode).or_default();
        let place = (page / NODE_PAGES.get()) as usize;
        if nodes.len() <= place {
            nodes.resize(place + 1, None);
        }
        nodes[place] = Some(node);
    }
}

impl Mm {
    /// The nodes of a file that is no more.
    pub fn free_tree(&mut self, inode: InodeId, cpu: u16) {
        for node in self.trees.0.remove(&inode).unwrap_or_default().into_iter().flatten() {
            self.free_object(CacheKind::RadixNode, node, cpu);
        }
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
    use super::Trees;
    use crate::slab::Object;

    /// XA_CHUNK_SIZE: pages 64 to 127 share a node, which is no other file's.
    #[test]
    fn a_node_is_of_64_pages_of_one_file() {
        let mut trees = Trees::default();
        trees.put(7, 70, Object { zone: 1, slab: 5 });
        assert_eq!([63, 64, 127, 128].map(|page| trees.has(7, page)), [false, true, true, false]);
        assert!(!trees.has(8, 70));
    }
}
