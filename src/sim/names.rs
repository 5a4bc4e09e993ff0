//! Directories: which block a name lies in.
//!
//! Models: blocks of names in the order of their hashes (reiserfs, 2.6.20: a directory's items lie in leaves of their own,
//! apart from those with its files' inodes), how many there are by the number of names, the one that a lookup without a
//! dentry reads, that create, rename and unlink change, and that listing reads them all. Leaves out: internal nodes of the
//! tree, directories' own inodes and dentries, the split and the merge of leaves. Only in profiles with `names_per_block`.

use super::Machine;
use super::inode::FileKey;
use super::site::Site;
use super::task::Task;
use super::vfs::{device_page, metadata};
use crate::workload::FileId;

/// Blocks of one tree lie wherever there was room when they were split off: each in a window of its own.
pub fn scattered(group: u64, index: u64) -> u64 {
    (group << 20 ^ index).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 35
}

/// The file's directory, under a key that no file has.
fn home(m: &Machine, file: FileKey) -> Option<FileKey> {
    m.profile.names_per_block?;
    let recorder = m.recorder.borrow();
    let dir = recorder.workloads.get(file.0 as usize)?.directory(FileId(file.1));
    Some((file.0 + 1000, dir.0))
}

fn blocks(m: &Machine, dir: FileKey) -> u64 {
    let names = m.mm.borrow().inodes.names.get(&dir).map_or(0, |&names| u64::from(names));
    names.div_ceil(m.profile.names_per_block.unwrap_or(1)).max(1)
}

fn block(dir: FileKey, index: u64) -> u64 {
    let group = (dir.1 ^ u64::from(dir.0) << 44).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 30;
    scattered(group, index | 1 << 19)
}

/// Which of the directory's blocks the name lies in: its hash says.
fn place(m: &Machine, dir: FileKey, file: FileKey) -> u64 {
    let hash = (file.1 ^ 0x5bd1_e995).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    block(dir, hash % blocks(m, dir))
}

/// Looks for a name that no dentry knows.
pub async fn find(m: &Machine, task: &mut Task, file: FileKey, create: bool) {
    if let Some(dir) = home(m, file) {
        if create {
            m.name_made(file);
        }
        device_page(m, task, place(m, dir, file), create, true).await;
    }
}

/// Puts a name in or takes it out.
pub async fn change(m: &Machine, task: &mut Task, file: FileKey, made: bool) {
    if let Some(dir) = home(m, file) {
        if made {
            m.name_made(file);
        } else if let Some(names) = m.mm.borrow_mut().inodes.names.get_mut(&dir) {
            *names = names.saturating_sub(1);
        }
        device_page(m, task, place(m, dir, file), true, true).await;
    }
}

/// readdir() to the end; where directories are not modelled, the block that holds the directory's inode.
pub async fn list(m: &Machine, task: &mut Task, dir: FileKey) {
    task.work(Site::Work, m.costs.lookup_ns * 4);
    if m.profile.names_per_block.is_none() {
        return metadata(m, task, dir, false).await;
    }
    for index in 0..blocks(m, dir) {
        device_page(m, task, block(dir, index), false, true).await;
    }
}

impl Machine {
    /// A name more in the file's directory.
    pub(super) fn name_made(&self, file: FileKey) {
        if let Some(dir) = home(self, file) {
            *self.mm.borrow_mut().inodes.names.entry(dir).or_insert(0) += 1;
        }
    }
}
