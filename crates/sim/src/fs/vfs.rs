//! File operations over the page cache: what a call does to memory and to the disk.
//!
//! Models: buffered write and append page by page (frame, page cache, buffer_head, dirty limits), read with
//! sequential readahead, read-around for mapped faults, lookups through dentry and inode caches with a metadata block
//! behind each inode, fsync, truncate, unlink. Leaves out: the on-disk layout (a file is contiguous), directory
//! contents, partial-page zeroing.

use crate::Machine;
use crate::block::device::{self, Device, DeviceId};
use crate::fs::inode::{FileKey, InodeId, Place};
use crate::fs::namei;
use crate::kernel::PAGE_BYTES;
use crate::mm::alloc::{self, Want};
use crate::mm::chunk::{ChunkId, NONE, WINDOW_PAGES};
use crate::mm::filemap_add;
use crate::mm::memcontrol;
use crate::mm::memory::Mm;
use crate::mm::readahead;
use crate::mm::slab::{CacheKind, Object};
use crate::sched::site::Site;
use crate::sched::task::Task;
use crate::writeback;
use crate::writeback::dirty_throttle;

impl Mm {
    /// Attaches a buffer_head to a page. A chunk's buffer_heads are in slabs of one zone: a page whose buffer_head is
    /// in another zone moves to a sibling chunk.
    pub fn attach_buffer(&mut self, id: ChunkId, bit: u32, buffer: Object) -> ChunkId {
        let zone = buffer.zone;
        let chunk = *self.chunks.get(id);
        let mut to = id;
        if chunk.buffers != 0 && chunk.buffer_zone != zone {
            self.chunks.take_out(id, bit);
            to = self.chunks.add(chunk.inode, chunk.window, chunk.zone, chunk.lruvec, chunk.sibling);
            self.chunks.get_mut(id).sibling = to;
            self.chunks.set_present(to, bit);
        }
        let own = self.chunks.get_mut(to);
        own.buffers |= bit;
        own.buffer_zone = zone;
        if self.profile.is_6() {
            self.chunks.buffer_slabs.note(to, bit, buffer.slab);
        }
        to
    }
}

/// Brings an inode and its dentry in; reads its metadata block unless the file is new.
pub async fn lookup(m: &Machine, task: &mut Task, key: FileKey, create: bool) -> InodeId {
    task.work(Site::Work, m.costs.lookup_ns);
    let found = m.mm.borrow().inodes.find(key);
    let known = found.filter(|&id| !matches!(m.mm.borrow().inodes.get(id).place, Place::Unused | Place::Cached));
    let id = match known {
        Some(id) => id,
        None => {
            let above = namei::walk(m, task, key).await;
            bring_in(m, task, key, create, above).await
        }
    };
    if known.is_some() && m.profile.is_6() {
        m.mm.borrow_mut().inodes.get_mut(id).referenced = true;
    }
    id
}

/// lookup() of a name without a dentry, with a reference to the dentry of the directory `above`.
pub async fn bring_in(m: &Machine, task: &mut Task, key: FileKey, create: bool, above: InodeId) -> InodeId {
    namei::find(m, task, key, create).await;
    let found = m.mm.borrow().inodes.find(key);
    if let Some(id) = found {
        let dentry = alloc::object(m, task, CacheKind::Dentry, Want::KERNEL).await;
        let mut mm = m.mm.borrow_mut();
        // The inode may have been pruned while the dentry was allocated.
        let inode = mm.inodes.get_mut(id);
        if inode.key == key && matches!(inode.place, Place::Unused | Place::Cached) {
            (inode.dentry, inode.parent) = (dentry, above);
            inode.referenced = !m.profile.is_6();
            mm.inodes.put(id, Place::Dentry);
        } else {
            mm.free_object(CacheKind::Dentry, dentry, task.cpu);
            mm.let_go(above);
        }
        return id;
    }
    metadata(m, task, key, create).await;
    let object = alloc::object(m, task, CacheKind::Inode, Want::KERNEL).await;
    let dentry = alloc::object(m, task, CacheKind::Dentry, Want::KERNEL).await;
    let mut mm = m.mm.borrow_mut();
    if let Some(id) = mm.inodes.find(key) {
        // Another task was faster.
        mm.free_object(CacheKind::Inode, object, task.cpu);
        mm.free_object(CacheKind::Dentry, dentry, task.cpu);
        mm.let_go(above);
        return id;
    }
    let in_cgroup = task.in_cgroup && mm.cgroup.exists();
    let id = mm.inodes.add(key, object, in_cgroup);
    let inode = mm.inodes.get_mut(id);
    (inode.dentry, inode.referenced, inode.parent) = (dentry, !m.profile.is_6(), above);
    mm.inodes.put(id, Place::Dentry);
    id
}

/// The block that holds the inode.
pub async fn metadata(m: &Machine, task: &mut Task, key: FileKey, dirty: bool) {
    let (device, page) = (m.place_of_key(key), m.metadata_page(key));
    device_page(m, device, task, page, dirty, !dirty).await;
}

/// A page of the block device's own cache (Buffers in /proc/meminfo); `read` unless a new block replaces the old
/// content.
pub async fn device_page(m: &Machine, on: DeviceId, task: &mut Task, page: u64, dirty: bool, read: bool) {
    let device = m.mm.borrow().block_devices[on.index()];
    let hit = m.mm.borrow().lookup(device, page);
    let (id, bit) = match hit {
        Some((id, bit)) => (m.mm.borrow_mut().touch(id, bit), bit),
        None => {
            if read {
                read_request(m, on, task, (page, 1), Site::MetadataRead).await;
            }
            let was = std::mem::replace(&mut task.no_fs, true);
            if m.mm.borrow().cgroup.exists() {
                memcontrol::charge(m, task, 1).await;
            }
            let frame = alloc::page(m, task, Want::DEVICE).await;
            task.no_fs = was;
            let Some(frame) = frame else {
                m.mm.borrow_mut().uncharge_page(device);
                return;
            };
            let placed = place_device_page(m, device, page, frame, task.cpu);
            // fs/buffer.c: grow_dev_folio. SLAB's buffer_heads of metadata are left out, because the model does not
            // count their slabs.
            let needs_buffer = m.profile.is_6() && m.mm.borrow().lacks_buffer(placed);
            if needs_buffer { filemap_add::attach_buffer(m, task, device, page).await } else { placed }
        }
    };
    if dirty && id != NONE {
        m.mark_dirty(id, bit);
    }
}

/// Puts a page of the block device into the cache; the frame goes back if another task was faster.
fn place_device_page(m: &Machine, device: InodeId, page: u64, frame: u8, cpu: u16) -> (ChunkId, u32) {
    let mut mm = m.mm.borrow_mut();
    if let Some(found) = mm.lookup(device, page) {
        mm.give_frames(frame, cpu, 1);
        mm.uncharge_page(device);
        return found;
    }
    (mm.insert(device, page, frame), 1 << (page % WINDOW_PAGES))
}

/// Reads pages from the disk and waits for them.
pub async fn read_request(m: &Machine, on: DeviceId, task: &mut Task, (position, pages): (u64, u64), site: Site) {
    task.run(m).await;
    m.mm.borrow_mut().events.pgpgin_kib += pages * 4;
    device::perform(m, on, task, (false, position, pages), site).await;
    task.work(Site::Work, m.costs.wakeup_ns);
}

impl Machine {
    pub fn mark_dirty(&self, id: ChunkId, bit: u32) -> bool {
        let mut mm = self.mm.borrow_mut();
        let now = self.clock.now();
        let fresh = mm.set_dirty(id, bit, now);
        let inode = mm.chunks.get(id).inode;
        if fresh && mm.inodes.get(inode).dirty.as_deref().is_some_and(|dirty| dirty.pages == 1) {
            let device = mm.inodes.get(inode).device;
            drop(mm);
            self.device(device).dirty_inodes.borrow_mut().insert(inode);
            self.note_first_dirty(device);
        }
        fresh
    }

    /// Appends a few bytes to a cached page that is already dirty, as nearly every write of a journal does.
    #[inline]
    pub fn append_in_place(&self, task: &mut Task, inode: InodeId, offset: u64, bytes: u64) -> bool {
        let page = offset / PAGE_BYTES;
        if (offset + bytes.max(1) - 1) / PAGE_BYTES != page {
            return false;
        }
        let mut mm = self.mm.borrow_mut();
        let Some((id, bit)) = mm.lookup(inode, page) else { return false };
        let Device { journal, .. } = self.device(mm.inodes.get(inode).device);
        if mm.chunks.get(id).dirty & bit == 0 || journal.borrow().is_blocked() {
            return false;
        }
        let grows = mm.inodes.get_mut(inode).grow(offset + bytes);
        // The page was just written, so it is in the CPU's cache on any node.
        drop(mm);
        let copy_ns = bytes * self.costs.copy_byte_ps / 1000;
        task.work(Site::Work, self.costs.write_base_ns + copy_ns);
        crate::fs::journal::note_change(self, inode, grows);
        true
    }
}

/// generic_file_buffered_write.
pub async fn write(m: &Machine, task: &mut Task, inode: InodeId, offset: u64, bytes: u64) {
    task.work(Site::Work, m.costs.write_base_ns);
    let device = m.place_of(inode);
    let file_system = &m.device(device).file_system;
    crate::fs::journal::touch(m, device, task).await;
    let (first, last) = (offset / PAGE_BYTES, (offset + bytes.max(1) - 1) / PAGE_BYTES);
    let mut grows = m.mm.borrow().inodes.get(inode).size == 0;
    // The pages of a folio that this call has added do not count as accessed twice.
    let mut folio_end = first;
    for page in first..=last {
        let from = offset.max(page * PAGE_BYTES);
        let part = (offset + bytes).min((page + 1) * PAGE_BYTES) - from;
        let hit = m.mm.borrow().lookup(inode, page);
        let (id, bit) = match hit {
            Some((mut id, bit)) => {
                // mm/filemap.c: generic_perform_write copies page by page, since 6.16 (ext4) and 6.6 (xfs) folio by
                // folio; a window's pages represent a folio.
                let steps = page > first && page >= folio_end;
                if steps && (!file_system.large_folios || page % WINDOW_PAGES == 0) {
                    task.work(Site::Work, m.costs.write_step_ns);
                }
                let mut mm = m.mm.borrow_mut();
                // mm/filemap.c: generic_perform_write, up to 4.6, marks the page accessed at each write, which
                // activates it at the second; but not while the page is still in the CPU's pagevec, like the last page
                // of an append.
                if !m.profile.is_6() && page >= folio_end && page * PAGE_BYTES + PAGE_BYTES < mm.inodes.get(inode).size
                {
                    id = mm.touch(id, bit);
                }
                (id, bit)
            }
            None => {
                let size = m.mm.borrow().inodes.get(inode).size;
                if part < PAGE_BYTES && page * PAGE_BYTES < size {
                    let position = m.position(inode, page, false);
                    read_request(m, device, task, (position, 1), Site::ReadWait).await;
                }
                if file_system.large_folios {
                    folio_end = filemap_add::folio(m, task, inode, page, last).await;
                    m.mm.borrow().lookup(inode, page).unwrap_or((NONE, 0))
                } else {
                    filemap_add::page(m, task, inode, page, true).await
                }
            }
        };
        task.work(Site::Work, part * m.costs.copy_byte_ps / 1000);
        if id == NONE || m.mm.borrow().chunks.get(id).present & bit == 0 {
            continue;
        }
        grows |= m.mm.borrow_mut().inodes.get_mut(inode).grow(from + part);
        let (id, bit) = filemap_add::buffer_of(m, task, inode, page, (id, bit)).await;
        if id == NONE {
            continue;
        }
        let fresh = m.mark_dirty(id, bit);
        if fresh {
            crate::fs::journal::note_data(m, inode, 1);
        }
        if fresh && dirty_throttle::due(m, device, task) {
            task.run(m).await;
            dirty_throttle::balance(m, device, task).await;
        }
        if task.pending_ns() > m.costs.burst_ns {
            task.run(m).await;
        }
    }
    // fs/ext4/extents.c: ext4_convert_unwritten_extents, ext4_update_inode_fsync_trans (i_datasync_tid);
    // fs/xfs/xfs_iomap.c: xfs_iomap_write_unwritten logs the inode's core: fdatasync has to wait for the log then.
    let converts = m.mm.borrow_mut().inodes.convert(inode, first, last + 1) && file_system.has_extents();
    crate::fs::journal::note_change(m, inode, grows || converts);
    m.mm.borrow_mut().inodes.get_mut(inode).written_since_read = true;
}

/// Waits until the writeback of a page has ended.
pub async fn wait_page(m: &Machine, task: &mut Task, inode: InodeId, page: u64, site: Site) {
    loop {
        let busy = {
            let mm = m.mm.borrow();
            mm.lookup(inode, page).is_some_and(|(id, bit)| mm.chunks.get(id).writeback & bit != 0)
        };
        if !busy {
            return;
        }
        // The page may be written while the task works, so check again before the task sleeps.
        if task.pending_ns() > 0 {
            task.run(m).await;
            continue;
        }
        writeback::wait_for_pages(m, task, site).await;
    }
}

/// do_generic_file_read.
pub async fn read(m: &Machine, task: &mut Task, inode: InodeId, offset: u64, bytes: u64) {
    task.work(Site::Work, m.costs.read_base_ns);
    crate::fs::file_system::note_read(m, task, inode).await;
    let end = offset + bytes.max(1);
    read_on(m, task, inode, (offset, end), end).await;
}

/// Reads the bytes [offset, end) page by page, with readahead at misses and marked pages. The call reads at least up to
/// `last`.
pub async fn read_on(m: &Machine, task: &mut Task, inode: InodeId, (offset, end): (u64, u64), last: u64) {
    let mut at = offset;
    while at < end {
        let page = at / PAGE_BYTES;
        let part = ((page + 1) * PAGE_BYTES).min(end) - at;
        let hit = m.mm.borrow().lookup(inode, page);
        let Some((id, bit)) = hit else {
            readahead::miss(m, task, inode, page, (last - 1) / PAGE_BYTES).await;
            continue;
        };
        readahead::hit(m, task, inode, page, (id, bit), (last - 1) / PAGE_BYTES).await;
        // The page may have been reclaimed while the task waited for the read.
        if m.mm.borrow().lookup(inode, page) != Some((id, bit)) {
            continue;
        }
        m.mm.borrow_mut().touch(id, bit);
        task.work(Site::Work, part * m.costs.copy_byte_ps / 1000);
        if task.pending_ns() > m.costs.burst_ns {
            task.run(m).await;
        }
        at += part;
    }
}

/// Adds the missing pages of [from, to) to the cache: one read for each range with blocks, zeros elsewhere.
pub async fn fetch(m: &Machine, task: &mut Task, inode: InodeId, (from, to): (u64, u64), order: u32, site: Site) {
    add_missing(m, task, inode, (from, to), order).await;
    for part in parts(m, inode, (from, to)) {
        if part.reads {
            let position = m.position(inode, part.from, false);
            read_request(m, m.place_of(inode), task, (position, part.to - part.from), site).await;
        } else {
            task.work(Site::Work, (part.to - part.from) * m.costs.zero_page_ns());
        }
    }
}

/// Pages of a file that are all read from the disk, or are all without blocks and filled with zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub from: u64,
    pub to: u64,
    pub reads: bool,
}

/// fs/ext4/readpage.c: ext4_mpage_readpages, 6.1: divides [from, to) into parts that are read and parts that are not.
pub fn parts(m: &Machine, inode: InodeId, (from, to): (u64, u64)) -> Vec<Part> {
    let hollow = m.mm.borrow().inodes.hollow(inode, from, to);
    let mut at = from;
    let mut parts = Vec::new();
    for (start, end) in hollow.into_iter().chain([(to, to)]) {
        let both = [Part { from: at, to: start, reads: true }, Part { from: start, to: end, reads: false }];
        parts.extend(both.into_iter().filter(|part| part.from < part.to));
        at = end;
    }
    parts
}

/// Frames for the pages of [from, to) that are not cached, in folios of up to `order` for readahead.
pub async fn add_missing(m: &Machine, task: &mut Task, inode: InodeId, (from, to): (u64, u64), order: u32) {
    let mut page = from;
    while page < to {
        let missing = m.mm.borrow().lookup(inode, page).is_none();
        page = match missing {
            true if order > 0 => filemap_add::ahead_folio(m, task, inode, (page, to), order).await,
            true => {
                filemap_add::page(m, task, inode, page, false).await;
                page + 1
            }
            false => page + 1,
        };
        if task.pending_ns() > m.costs.burst_ns {
            task.run(m).await;
        }
    }
}

/// Waits until the file has no page under writeback; writes its dirty pages first.
pub async fn sync(m: &Machine, task: &mut Task, inode: InodeId, data_only: bool) {
    task.syncs = true;
    loop {
        let wrote = writeback::write_pages(m, task, inode, u64::MAX, Site::GetRequestWait).await;
        if wrote == 0 {
            break;
        }
    }
    task.syncs = false;
    loop {
        task.run(m).await;
        if !m.file_under_writeback(inode) {
            break;
        }
        writeback::wait_for_pages(m, task, Site::SyncWait).await;
    }
    crate::fs::file_system::sync_metadata(m, task, inode, data_only).await;
}
