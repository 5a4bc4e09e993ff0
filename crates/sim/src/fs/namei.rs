//! Directories: their inodes and dentries, and the block of each name.
//!
//! Models: blocks of names in the order of their hashes (reiserfs, 2.6.20: leaves of a directory's items are apart from
//! the leaves of the files' inodes). Their number depends on the number of names. A lookup without a dentry reads one
//! block, create, rename and unlink change it, a listing reads all. A directory has an inode and a dentry like a file;
//! the dentry of a name uses its directory's, so that a directory stays in memory as long as a dentry below it
//! (fs/dcache.c: d_alloc, dput, prune_dcache). Leaves out: internal nodes of the tree, splitting and merging leaves,
//! and the names of directories in directories. Only in profiles with `names_per_block`.

use crate::Machine;
use crate::block::device::DeviceId;
use crate::fs::inode::{FileKey, InodeId, Place};
use crate::fs::vfs::{bring_in, device_page, lookup, metadata};
use crate::mm::chunk::NONE;
use crate::mm::memory::Mm;
use crate::mm::slab::CacheKind;
use crate::sched::site::Site;
use crate::sched::task::Task;
use flatwater_workload::{DirId, FileId};

/// Position of a block of a tree: blocks are scattered, because a split leaf goes where there is room.
pub fn scattered(group: u64, index: u64) -> u64 {
    (group << 20 ^ index).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 35
}

/// Offset of directories' owners: scenarios have fewer workloads.
pub const DIRECTORIES: u32 = 1000;

/// Key of a directory of a workload.
pub fn directory_key(workload: u32, dir: DirId) -> FileKey {
    (workload + DIRECTORIES, dir.0)
}

/// The parent directory of a file or directory.
fn home(m: &Machine, key: FileKey) -> Option<FileKey> {
    m.profile.names_per_block?;
    let recorder = m.recorder.borrow();
    let workload = recorder.workloads.get((key.0 % DIRECTORIES) as usize)?;
    let dir =
        if key.0 < DIRECTORIES { workload.directory(FileId(key.1)) } else { workload.directory_above(DirId(key.1))? };
    Some(directory_key(key.0 % DIRECTORIES, dir))
}

/// Looks up the directories above a name without a dentry, from the top down (fs/namei.c: link_path_walk). Returns the
/// parent, with a reference for the name's dentry.
pub async fn walk(m: &Machine, task: &mut Task, key: FileKey) -> InodeId {
    let mut missing = Vec::new();
    let (mut at, mut above) = (home(m, key), NONE);
    while let Some(dir) = at {
        let known = m.mm.borrow().inodes.find(dir).filter(|&id| m.mm.borrow().has_dentry(id));
        if let Some(id) = known {
            m.mm.borrow_mut().hold(id);
            above = id;
            break;
        }
        missing.push(dir);
        at = home(m, dir);
    }
    for &dir in missing.iter().rev() {
        above = bring_in(m, task, dir, false, above).await;
        m.mm.borrow_mut().hold(above);
    }
    above
}

impl Mm {
    /// Whether the inode has a dentry, on the list or in use.
    fn has_dentry(&self, id: InodeId) -> bool {
        let inode = self.inodes.get(id);
        inode.place == Place::Dentry || (inode.place == Place::Held && inode.pinned_dentry)
    }

    /// dget() of a directory. Its dentry stays on the list until prune_dcache removes it.
    fn hold(&mut self, id: InodeId) {
        let inode = self.inodes.get_mut(id);
        inode.opens += 1;
        // Its dentry was pruned before the walk returned to it.
        if matches!(inode.place, Place::Unused | Place::Cached) {
            self.inodes.put(id, Place::Held);
        }
    }

    /// dput() of a directory: with the last reference its dentry returns to the head of the list.
    pub fn let_go(&mut self, id: InodeId) {
        if id == NONE {
            return;
        }
        let inode = self.inodes.get_mut(id);
        inode.opens = inode.opens.saturating_sub(1);
        if inode.opens == 0 && inode.place == Place::Held {
            self.let_inode_go(id);
        }
    }

    /// iput() of the last reference to an inode: its dentry returns to the list, or the inode itself, unless it has
    /// page cache (fs/inode.c: __inode_add_lru, 5.15 and later).
    pub fn let_inode_go(&mut self, id: InodeId) {
        let held = self.cache_holds(id);
        let inode = self.inodes.get_mut(id);
        let place = match std::mem::take(&mut inode.pinned_dentry) {
            true => Place::Dentry,
            false if held => Place::Cached,
            false => Place::Unused,
        };
        self.inodes.put(id, place);
    }

    /// d_free(), and dput() of the parent.
    pub fn free_dentry(&mut self, id: InodeId, cpu: u16) {
        let inode = self.inodes.get_mut(id);
        let (dentry, above) = (inode.dentry, std::mem::replace(&mut inode.parent, NONE));
        self.free_object(CacheKind::Dentry, dentry, cpu);
        self.let_go(above);
    }

    /// d_move(): the dentry, if there is one, gets another parent.
    pub fn move_dentry(&mut self, id: InodeId, above: InodeId) {
        let left =
            if self.has_dentry(id) { std::mem::replace(&mut self.inodes.get_mut(id).parent, above) } else { above };
        self.let_go(left);
    }
}

fn blocks(m: &Machine, dir: FileKey) -> u64 {
    let names = m.mm.borrow().inodes.names.get(&dir).map_or(0, |&names| u64::from(names));
    names.div_ceil(m.profile.names_per_block.map_or(1, |constant| constant.get())).max(1)
}

fn block(dir: FileKey, index: u64) -> u64 {
    let group = (dir.1 ^ u64::from(dir.0) << 44).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 30;
    scattered(group, index | 1 << 19)
}

/// The directory's block with the name, by its hash.
fn place(m: &Machine, dir: FileKey, file: FileKey) -> u64 {
    let hash = (file.1 ^ 0x5bd1_e995).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    block(dir, hash % blocks(m, dir))
}

/// Looks for a name without a dentry.
pub async fn find(m: &Machine, task: &mut Task, file: FileKey, create: bool) {
    if file.0 >= DIRECTORIES {
        return;
    }
    if let Some(dir) = home(m, file) {
        if create {
            m.name_made(file);
            put_size(m, task, dir).await;
        }
        device_page(m, m.place_of_key(file), task, place(m, dir, file), create, true).await;
    }
}

/// Adds or removes a name.
pub async fn change(m: &Machine, task: &mut Task, file: FileKey, made: bool) {
    if let Some(dir) = home(m, file) {
        if made {
            m.name_made(file);
        } else if let Some(names) = m.mm.borrow_mut().inodes.names.get_mut(&dir) {
            *names = names.saturating_sub(1);
        }
        device_page(m, m.place_of_key(file), task, place(m, dir, file), true, true).await;
        put_size(m, task, dir).await;
    }
}

/// The size and times of the directory itself (fs/reiserfs/namei.c: reiserfs_add_entry, reiserfs_update_sd, 2.6.20).
async fn put_size(m: &Machine, task: &mut Task, dir: FileKey) {
    device_page(m, m.place_of_key(dir), task, m.metadata_page(dir), true, true).await;
}

/// readdir() of the whole directory; without a model of directories it reads the block of the directory's inode.
pub async fn list(m: &Machine, task: &mut Task, dir: FileKey) {
    task.work(Site::Work, m.costs.lookup_ns * 4);
    if m.profile.names_per_block.is_none() {
        return metadata(m, task, dir, false).await;
    }
    lookup(m, task, dir, false).await;
    for index in 0..blocks(m, dir) {
        device_page(m, m.place_of_key(dir), task, block(dir, index), false, true).await;
    }
}

impl Machine {
    /// The device of a workload's files and directories.
    pub(crate) fn place_of_key(&self, key: FileKey) -> DeviceId {
        self.mm.borrow().inodes.home(key)
    }

    /// Counts a new name in the file's directory.
    pub(crate) fn name_made(&self, file: FileKey) {
        if let Some(dir) = home(self, file) {
            *self.mm.borrow_mut().inodes.names.entry(dir).or_insert(0) += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{DIRECTORIES, InodeId, Mm, NONE, Place};
    use crate::fs::inode::FileKey;
    use crate::kernel;
    use crate::machine::build;
    use crate::mm::slab::CacheKind;

    /// An inode with a dentry below `parent`, as a lookup leaves it.
    fn named(mm: &mut Mm, key: FileKey, parent: InodeId) -> InodeId {
        let [object, dentry] =
            [CacheKind::Inode, CacheKind::Dentry].map(|kind| build::add_object(mm, kind, 1).expect("room"));
        let id = mm.inodes.add(key, object, false);
        let inode = mm.inodes.get_mut(id);
        (inode.dentry, inode.parent) = (dentry, parent);
        mm.inodes.put(id, Place::Dentry);
        if parent != NONE {
            mm.hold(parent);
        }
        id
    }

    #[test]
    fn a_directory_stays_as_long_as_a_dentry_below_it() {
        let profile = kernel::find("linux-2.6.20-pae").expect("a profile");
        let mut mm = build::memory(&profile, &[1536 << 20], 1);
        let (one, other) = (named(&mut mm, (DIRECTORIES, 1), NONE), named(&mut mm, (DIRECTORIES, 2), NONE));
        let (first, second) = (named(&mut mm, (0, 1), one), named(&mut mm, (0, 2), one));
        assert!(mm.keeps_dentry(one) && mm.inodes.get(one).place == Place::Held, "off the list while it is held");
        assert!(!mm.keeps_dentry(other), "nothing lies below the other");
        mm.free_dentry(first, 0);
        assert_eq!(mm.inodes.get(one).place, Place::Held);
        mm.hold(other);
        mm.move_dentry(second, other);
        assert_eq!(mm.inodes.get(one).place, Place::Dentry, "the last one has gone elsewhere");
        assert!(
            mm.inodes.get(one).referenced && mm.keeps_dentry(other),
            "one more round for it; the other is held now"
        );
    }
}
