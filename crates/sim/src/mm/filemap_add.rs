//! New pages of the page cache: one by one, or as a large folio.
//!
//! Models: add_to_page_cache with a frame, a tree node and a buffer_head for each page, the charge to a memory cgroup,
//! large folios of writes (xfs 6.6, ext4 6.16) and of readahead (xfs 5.18, ext4 6.16). Leaves out: which frames are
//! contiguous.

use crate::Machine;
use crate::fs::inode::InodeId;
use crate::mm::alloc::{self, Want};
use crate::mm::chunk::{ChunkId, NONE, WINDOW_PAGES};
use crate::mm::memcontrol;
use crate::mm::slab::CacheKind;
use crate::mm::xarray;
use crate::mm::xarray::NODE_PAGES;
use crate::sched::site::Site;
use crate::sched::task::Task;

/// Adds a page of the file to the cache, with a buffer_head if `buffers`.
pub async fn page(m: &Machine, task: &mut Task, inode: InodeId, page: u64, buffers: bool) -> (ChunkId, u32) {
    let charged = m.mm.borrow().inodes.get(inode).in_cgroup;
    if charged {
        memcontrol::charge(m, task, 1).await;
    }
    place(m, task, inode, page, Folio { buffers, head: true, order: 0, tail_ns: 0 }).await
}

/// mm/readahead.c: page_cache_ra_order, ra_alloc_folio: adds the first folio of [page, to). It is smaller if its
/// alignment or the end of the window does not allow the order, or if one of the pages is cached. Returns its end.
pub async fn ahead_folio(m: &Machine, task: &mut Task, inode: InodeId, (page, to): (u64, u64), most: u32) -> u64 {
    let missing = |end: u64| (page..end).all(|page| m.mm.borrow().lookup(inode, page).is_none());
    let mut order = if page == 0 { most } else { most.min(page.trailing_zeros()) };
    while order > 0 && (page + (1 << order) > to || !missing(page + (1 << order))) {
        order -= 1;
    }
    fill_folio(m, task, inode, page, order, false).await
}

/// mm/filemap.c: __filemap_get_folio, 6.18: adds the largest folio of a write that its alignment allows, charged as a
/// whole, or a smaller one if the charge fails. Returns its end.
pub async fn folio(m: &Machine, task: &mut Task, inode: InodeId, page: u64, last: u64) -> u64 {
    let missing = |end: u64| (page..end).all(|page| m.mm.borrow().lookup(inode, page).is_none());
    let mut order = (last - page + 1).ilog2();
    if page > 0 {
        order = order.min(page.trailing_zeros());
    }
    while order > 0 && !missing(page + (1 << order)) {
        order -= 1;
    }
    fill_folio(m, task, inode, page, order, true).await
}

/// Charges a folio, or a smaller one if that fails, and adds its pages.
async fn fill_folio(m: &Machine, task: &mut Task, inode: InodeId, page: u64, mut order: u32, writes: bool) -> u64 {
    // Folios of readahead have no buffer_heads.
    let (buffers, tail_ns) = if writes { (true, m.costs.folio_page_ns) } else { (false, m.costs.ahead_page_ns) };
    let charged = m.mm.borrow().inodes.get(inode).in_cgroup;
    while charged && !memcontrol::charge(m, task, 1 << order).await {
        order -= 1;
    }
    let end = page + (1 << order);
    for page in page..end {
        let head = page % (1 << order) == 0;
        place(m, task, inode, page, Folio { buffers, head, order, tail_ns }).await;
        if task.pending_ns() > m.costs.burst_ns {
            task.run(m).await;
        }
    }
    end
}

/// How to add a page of a folio.
#[derive(Clone, Copy)]
struct Folio {
    buffers: bool,
    /// The page is the folio's first, which has the cost of an allocation.
    head: bool,
    order: u32,
    /// CPU time of each further page.
    tail_ns: u64,
}

/// Takes a frame for a page that has been charged.
async fn place(m: &Machine, task: &mut Task, inode: InodeId, page: u64, folio: Folio) -> (ChunkId, u32) {
    let Folio { buffers, head, order, tail_ns } = folio;
    let bit = 1 << (page % WINDOW_PAGES);
    // lib/xarray.c: an entry of 64 pages uses a slot one level up, without a node.
    if order < NODE_PAGES.get().ilog2() {
        xarray::grow(m, task, inode, page).await;
    }
    if head {
        task.work(Site::Work, m.costs.alloc_page_ns);
    }
    let Some(frame) = alloc::frame(m, task, Want::USER).await else {
        m.mm.borrow_mut().uncharge_page(inode);
        return (NONE, 0);
    };
    task.work(Site::Work, if head { m.costs.add_to_cache_ns } else { tail_ns });
    let needs_node = m.mm.borrow().needs_node(inode, page);
    if needs_node {
        add_node(m, task, inode).await;
    }
    let id = {
        let mut mm = m.mm.borrow_mut();
        if let Some(found) = mm.lookup(inode, page) {
            mm.give_frames(frame, task.cpu, 1);
            mm.uncharge_page(inode);
            return found;
        }
        let id = mm.insert(inode, page, frame);
        mm.chunks.get_mut(id).order = order as u8;
        id
    };
    if buffers { attach_buffer(m, task, inode, page).await } else { (id, bit) }
}

/// fs/buffer.c: __block_write_begin, block_page_mkwrite: gives a page its buffer_heads at its first write. Returns the
/// page's chunk and bit.
pub async fn buffer_of(
    m: &Machine,
    task: &mut Task,
    inode: InodeId,
    page: u64,
    found: (ChunkId, u32),
) -> (ChunkId, u32) {
    let lacks = m.mm.borrow().lacks_buffer(found);
    if lacks { attach_buffer(m, task, inode, page).await } else { found }
}

/// Allocates the buffer_head of a cached page (create_empty_buffers). Returns the page's chunk and bit.
pub async fn attach_buffer(m: &Machine, task: &mut Task, inode: InodeId, page: u64) -> (ChunkId, u32) {
    let buffer = alloc::object(m, task, CacheKind::BufferHead, Want::NOFS).await;
    let mut mm = m.mm.borrow_mut();
    // Allocation may have slept: the page may have been moved, or reclaimed.
    match mm.lookup(inode, page) {
        Some((id, bit)) if mm.chunks.get(id).buffers & bit == 0 => (mm.attach_buffer(id, bit, buffer), bit),
        Some(found) => {
            mm.free_object(CacheKind::BufferHead, buffer, task.cpu);
            found
        }
        None => {
            mm.free_object(CacheKind::BufferHead, buffer, task.cpu);
            (NONE, 0)
        }
    }
}

/// radix_tree_preload before add_to_page_cache: the tree's first node, in lowmem.
async fn add_node(m: &Machine, task: &mut Task, inode: InodeId) {
    let node = alloc::object(m, task, CacheKind::RadixNode, Want::KERNEL).await;
    let mut mm = m.mm.borrow_mut();
    let slot = &mut mm.inodes.get_mut(inode).node;
    if slot.is_none() {
        *slot = Some(node);
    } else {
        // Another reader of the file was faster.
        mm.free_object(CacheKind::RadixNode, node, task.cpu);
    }
}
