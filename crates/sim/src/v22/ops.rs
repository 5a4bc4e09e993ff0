//! The effects of each operation on ext2's metadata, on file data and on both caches.
//!
//! As in 2.2, write() goes to buffers (ext2_file_write) and keeps cached pages in step (update_vm_cache), while read()
//! goes to pages and copies blocks that are in buffers (brw_page). Leaves out: the dentry cache's misses, locks on
//! inodes and directories, the big kernel lock, mmap, locks, fsync's order.

use super::Old;
use super::ext2::{BLOCK_BYTES, DIRECT, PER_INDIRECT};
use super::grant::{free_blocks, free_inode, new_block, new_inode};
use super::io::{bread, cell, change, forget, page, read_blocks, touch};
use crate::Machine;
use crate::kernel::PAGE_BYTES;
use crate::run::actor::Who;
use crate::sched::site::Site;
use crate::sched::task::Task;
use flatwater_workload::{DirId, FileId, Op};

pub fn with<T>(m: &Machine, act: impl FnOnce(&mut Old) -> T) -> T {
    act(&mut cell(m).borrow_mut())
}

/// Performs an operation on files; returns the bytes it moved.
pub async fn perform(m: &Machine, task: &mut Task, who: &Who, op: Op) -> u64 {
    task.work(Site::Work, m.costs.lookup_ns);
    match op {
        Op::Create { file } => {
            create(m, task, who, file).await;
        }
        Op::Append { file, bytes } => {
            let id = open(m, task, who, file).await;
            let from = with(m, |old| old.fs.inodes[id as usize].bytes);
            write(m, task, id, from, bytes).await;
            return bytes;
        }
        Op::Write { file, offset_bytes, bytes } => {
            let id = open(m, task, who, file).await;
            write(m, task, id, offset_bytes, bytes).await;
            return bytes;
        }
        Op::Read { file, offset_bytes, bytes } | Op::Touch { file, offset_bytes, bytes, .. } => {
            let id = open(m, task, who, file).await;
            return read(m, task, id, offset_bytes, bytes).await;
        }
        Op::Open { file, .. } | Op::Stat { file } => {
            open(m, task, who, file).await;
        }
        // The access time.
        Op::Close { file } => with(m, |old| {
            if let Some(&id) = old.fs.files.get(&(who.workload, file.0)) {
                old.fs.dirty.insert(id);
            }
        }),
        Op::Truncate { file, bytes } => {
            let id = open(m, task, who, file).await;
            truncate(m, task, id, bytes).await;
            with(m, |old| old.fs.dirty.insert(id));
        }
        Op::Unlink { file } => unlink(m, task, who, file).await,
        Op::Rename { from, to } => rename(m, task, who, from, to).await,
        Op::Mkdir { dir } => {
            directory(m, task, who, dir).await;
        }
        Op::Rmdir { dir } => {
            // ext2_rmdir(): the inode is freed like a file's.
            let known = with(m, |old| old.fs.dirs.remove(&(who.workload, dir.0)));
            if let Some(id) = known {
                remove(m, task, id).await;
            }
        }
        Op::List { dir } => list(m, task, who, dir).await,
        _ => {}
    }
    0
}

/// ext2_update_inode(): copies the inode to its block of the inode table.
pub async fn write_inode(m: &Machine, task: &mut Task, id: u32) {
    with(m, |old| old.fs.dirty.remove(&id));
    let block = with(m, |old| old.fs.inode_block(id));
    change(m, task, block).await;
}

/// The directory, which the first access creates.
async fn directory(m: &Machine, task: &mut Task, who: &Who, dir: DirId) -> u32 {
    let key = (who.workload, dir.0);
    if let Some(id) = with(m, |old| old.fs.dirs.get(&key).copied()) {
        return id;
    }
    let id = new_inode(m, task, None).await;
    with(m, |old| old.fs.dirs.insert(key, id));
    new_block(m, task, id, |dir, block| dir.blocks.push(block)).await;
    id
}

async fn home(m: &Machine, task: &mut Task, who: &Who, file: FileId) -> u32 {
    let dir = m.recorder.borrow().workloads[who.workload as usize].directory(file);
    directory(m, task, who, dir).await
}

async fn create(m: &Machine, task: &mut Task, who: &Who, file: FileId) -> u32 {
    let dir = home(m, task, who, file).await;
    if with(m, |old| old.fs.needs_entry_block(dir)) {
        new_block(m, task, dir, |dir, block| dir.blocks.push(block)).await;
    }
    let id = new_inode(m, task, Some(dir)).await;
    with(m, |old| old.fs.files.insert((who.workload, file.0), id));
    let entry = with(m, |old| {
        let entries = &mut old.fs.inodes[dir as usize].entries;
        *entries += 1;
        let last = *entries - 1;
        old.fs.entry_block(dir, last)
    });
    if let Some(block) = entry {
        change(m, task, block).await;
    }
    id
}

/// The inode of the name: ext2_find_entry reads the directory, ext2_read_inode the inode table.
async fn open(m: &Machine, task: &mut Task, who: &Who, file: FileId) -> u32 {
    let Some(id) = with(m, |old| old.fs.files.get(&(who.workload, file.0)).copied()) else {
        return create(m, task, who, file).await;
    };
    let (block, dir) = with(m, |old| (old.fs.inode_block(id), old.fs.inodes[id as usize].parent));
    touch(m, task, block).await;
    let entry = with(m, |old| old.fs.entry_block(dir, id as usize % old.fs.inodes[dir as usize].entries.max(1)));
    if let Some(entry) = entry {
        touch(m, task, entry).await;
    }
    id
}

async fn write(m: &Machine, task: &mut Task, id: u32, offset: u64, bytes: u64) {
    task.work(Site::Work, m.costs.write_base_ns + bytes * m.costs.copy_byte_ps / 1000);
    let (first, end) = (offset / BLOCK_BYTES.get(), (offset + bytes).div_ceil(BLOCK_BYTES.get()));
    let have = with(m, |old| old.fs.inodes[id as usize].blocks.len() as u64);
    for index in have.min(first)..end {
        let known = with(m, |old| old.fs.inodes[id as usize].blocks.get(index as usize).copied());
        match known {
            Some(block) => change(m, task, block).await,
            None => new_data_block(m, task, id, index as usize).await,
        }
    }
    with(m, |old| {
        let inode = &mut old.fs.inodes[id as usize];
        inode.bytes = inode.bytes.max(offset + bytes);
    });
}

async fn new_data_block(m: &Machine, task: &mut Task, id: u32, index: usize) {
    if index >= DIRECT {
        let level = (index - DIRECT) / PER_INDIRECT;
        let known = with(m, |old| old.fs.inodes[id as usize].indirect.get(level).copied());
        match known {
            Some(block) => change(m, task, block).await,
            None => new_block(m, task, id, |inode, block| inode.indirect.push(block)).await,
        }
    }
    new_block(m, task, id, |inode, block| inode.blocks.push(block)).await;
}

/// Reads the missing pages at once: files of this age are not longer than the read ahead.
async fn read(m: &Machine, task: &mut Task, id: u32, offset: u64, bytes: u64) -> u64 {
    let size = with(m, |old| old.fs.inodes[id as usize].bytes);
    let end = (offset + bytes).min(size);
    let moved = end.saturating_sub(offset);
    task.work(Site::Work, m.costs.read_base_ns + moved * m.costs.copy_byte_ps / 1000);
    let (mut missing, mut pages) = (Vec::new(), Vec::new());
    for index in offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES) {
        if with(m, |old| old.memory.lookup(id, index as u32)) {
            continue;
        }
        let blocks = index as usize * 4..index as usize * 4 + 4;
        if blocks.end > DIRECT {
            let level = (blocks.end - 1 - DIRECT) / PER_INDIRECT;
            let indirect = with(m, |old| old.fs.inodes[id as usize].indirect.get(level).copied());
            if let Some(indirect) = indirect {
                touch(m, task, indirect).await;
            }
        }
        pages.push((index as u32, page(m, task).await));
        with(m, |old| {
            for place in blocks {
                let Some(&block) = old.fs.inodes[id as usize].blocks.get(place) else { continue };
                match old.buffers.find(block) {
                    Some(buffer) => {
                        let known = old.buffers.all[buffer as usize].uptodate;
                        old.buffers.brelse(buffer);
                        if !known {
                            missing.push(block);
                        }
                    }
                    None => missing.push(block),
                }
            }
        });
    }
    read_blocks(m, task, &missing).await;
    with(m, |old| pages.iter().for_each(|&(index, frame)| old.memory.insert(id, index, frame)));
    moved
}

/// ext2_truncate(): the indirect block is read, every block beyond the end freed and its buffer forgotten.
async fn truncate(m: &Machine, task: &mut Task, id: u32, bytes: u64) {
    let (keep, pages) = (bytes.div_ceil(BLOCK_BYTES.get()) as usize, bytes.div_ceil(PAGE_BYTES) as u32);
    let had = with(m, |old| old.fs.inodes[id as usize].blocks.len());
    if had <= keep {
        return;
    }
    let gone = with(m, |old| old.memory.truncate(id, pages, had.div_ceil(4) as u32));
    task.work(Site::Work, gone * m.costs.free_page_ns);
    let levels = keep.saturating_sub(DIRECT).div_ceil(PER_INDIRECT);
    let indirect = with(m, |old| {
        let inode = &mut old.fs.inodes[id as usize];
        inode.indirect.split_off(levels.min(inode.indirect.len()))
    });
    for &block in &indirect {
        let held = bread(m, task, block).await;
        with(m, |old| old.buffers.brelse(held));
    }
    free_blocks(m, task, id).await;
    let blocks = with(m, |old| {
        let inode = &mut old.fs.inodes[id as usize];
        inode.bytes = inode.bytes.min(bytes);
        inode.blocks.split_off(keep.min(inode.blocks.len()))
    });
    task.work(Site::Work, (blocks.len() + indirect.len()) as u64 * m.costs.slab_object_ns * 4);
    blocks.iter().chain(&indirect).for_each(|&block| forget(m, block));
}

async fn unlink(m: &Machine, task: &mut Task, who: &Who, file: FileId) {
    let Some(id) = with(m, |old| old.fs.files.remove(&(who.workload, file.0))) else { return };
    drop_entry(m, task, id).await;
    remove(m, task, id).await;
}

async fn drop_entry(m: &Machine, task: &mut Task, id: u32) {
    let entry = with(m, |old| {
        let dir = old.fs.inodes[id as usize].parent;
        let entries = &mut old.fs.inodes[dir as usize].entries;
        *entries = entries.saturating_sub(1);
        let last = *entries;
        old.fs.entry_block(dir, last)
    });
    if let Some(block) = entry {
        change(m, task, block).await;
    }
}

/// ext2_delete_inode()
async fn remove(m: &Machine, task: &mut Task, id: u32) {
    truncate(m, task, id, 0).await;
    write_inode(m, task, id).await;
    free_inode(m, task, id).await;
}

async fn rename(m: &Machine, task: &mut Task, who: &Who, from: FileId, to: FileId) {
    let moved = open(m, task, who, from).await;
    let replaced = with(m, |old| {
        old.fs.files.remove(&(who.workload, from.0));
        old.fs.files.insert((who.workload, to.0), moved)
    });
    match replaced {
        Some(replaced) => {
            drop_entry(m, task, replaced).await;
            remove(m, task, replaced).await;
        }
        None => {
            with(m, |old| old.fs.dirty.insert(moved));
        }
    }
}

async fn list(m: &Machine, task: &mut Task, who: &Who, dir: DirId) {
    let id = directory(m, task, who, dir).await;
    let blocks = with(m, |old| old.fs.inodes[id as usize].blocks.clone());
    for block in blocks {
        touch(m, task, block).await;
    }
}
