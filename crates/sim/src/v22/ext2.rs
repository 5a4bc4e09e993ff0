//! Allocation in ext2 of 2.2: block groups with bitmaps and inode tables, first free block of the group.
//!
//! Granularity: one block of 1 KiB, one inode of 128 bytes. Leaves out: preallocation, double indirect blocks (files
//! over 268 KiB get more single ones), the superblock's and group descriptors' writes, fragments, link counts, names
//! longer than 8 bytes.

use crate::constant::constants;
use std::collections::BTreeSet;

use crate::fs::inode::{FileKey, KeyMap};

constants! {
    pub const BLOCK_BYTES: u64 = assumed(1024, "mke2fs' choice for a partition of 1 GiB; bi and bo count such blocks");
    const GROUP_BLOCKS: u32 = kernel(8192, "include/linux/ext2_fs.h", "8 * EXT2_BLOCK_SIZE", "2.2.1");
    const GROUP_INODES: u32 = assumed(2048, "mke2fs' choice: an inode for each 4 KiB");
    const INODES_PER_BLOCK: u32 = kernel(8, "include/linux/ext2_fs.h", "EXT2_INODES_PER_BLOCK (128 bytes)", "2.2.1");
}
/// Superblock copy, two bitmaps, inode table.
const FIRST_DATA: u32 = 3 + GROUP_INODES.get() / INODES_PER_BLOCK.get();
pub const DIRECT: usize = 12;
pub const PER_INDIRECT: usize = 256;
/// rec_len of a name of 8 bytes.
const ENTRIES_PER_BLOCK: usize = 64;

#[derive(Clone, Debug, Default)]
pub struct Inode {
    pub blocks: Vec<u32>,
    pub indirect: Vec<u32>,
    pub bytes: u64,
    pub group: u32,
    pub place: u32,
    pub entries: usize,
    /// The directory that contains its name.
    pub parent: u32,
}

#[derive(Clone, Debug)]
struct Group {
    blocks: Vec<bool>,
    inodes: Vec<bool>,
    first: u32,
}

#[derive(Debug)]
pub struct Ext2 {
    groups: Vec<Option<Group>>,
    pub inodes: Vec<Inode>,
    spare: Vec<u32>,
    pub files: KeyMap<FileKey, u32>,
    pub dirs: KeyMap<FileKey, u32>,
    next_group: u32,
    /// Inodes that differ from their block of the inode table (s_dirty).
    pub dirty: BTreeSet<u32>,
}

impl Ext2 {
    pub fn new(disk_bytes: u64) -> Ext2 {
        // Block numbers are 32 bits wide, as on disk.
        let groups = (disk_bytes / BLOCK_BYTES.get() / u64::from(GROUP_BLOCKS.get())).clamp(4, 65_536) as usize;
        let (files, dirs) = (KeyMap::default(), KeyMap::default());
        Ext2 {
            groups: vec![None; groups],
            inodes: Vec::new(),
            spare: Vec::new(),
            files,
            dirs,
            next_group: 0,
            dirty: BTreeSet::new(),
        }
    }

    fn base(group: u32) -> u32 {
        group * GROUP_BLOCKS.get()
    }

    pub fn block_bitmap(&self, inode: u32) -> u32 {
        Ext2::base(self.inodes[inode as usize].group) + 1
    }

    pub fn inode_bitmap(&self, inode: u32) -> u32 {
        Ext2::base(self.inodes[inode as usize].group) + 2
    }

    pub fn inode_block(&self, inode: u32) -> u32 {
        let Inode { group, place, .. } = self.inodes[inode as usize];
        Ext2::base(group) + 3 + place / INODES_PER_BLOCK.get()
    }

    fn group(&mut self, group: u32) -> &mut Group {
        self.groups[group as usize].get_or_insert_with(|| Group {
            blocks: vec![false; GROUP_BLOCKS.get() as usize],
            inodes: vec![false; GROUP_INODES.get() as usize],
            first: FIRST_DATA,
        })
    }

    /// ext2_new_inode(): a file in its directory's group, a directory in the next group.
    pub fn new_inode(&mut self, parent: Option<u32>, is_dir: bool) -> u32 {
        let count = self.groups.len() as u32;
        let wanted = match parent {
            Some(parent) if !is_dir => self.inodes[parent as usize].group,
            _ => {
                self.next_group = (self.next_group + 1) % count;
                self.next_group
            }
        };
        let found = (0..count).map(|step| (wanted + step) % count).find_map(|group| {
            let place = self.group(group).inodes.iter().position(|used| !used)?;
            self.group(group).inodes[place] = true;
            Some((group, place as u32))
        });
        let (group, place) = found.unwrap_or((wanted, 0));
        let inode = Inode { group, place, parent: parent.unwrap_or(0), ..Inode::default() };
        match self.spare.pop() {
            Some(id) => {
                self.inodes[id as usize] = inode;
                id
            }
            None => {
                self.inodes.push(inode);
                self.inodes.len() as u32 - 1
            }
        }
    }

    /// ext2_new_block(): the first free block of the inode's group, else of the groups after it.
    pub fn new_block(&mut self, inode: u32) -> Option<u32> {
        let (count, wanted) = (self.groups.len() as u32, self.inodes[inode as usize].group);
        (0..count).map(|step| (wanted + step) % count).find_map(|number| {
            let group = self.group(number);
            let from = group.first as usize;
            let place = from + group.blocks.get(from..)?.iter().position(|used| !used)?;
            group.blocks[place] = true;
            group.first = place as u32 + 1;
            Some(Ext2::base(number) + place as u32)
        })
    }

    pub fn free_block(&mut self, block: u32) {
        let (number, place) = (block / GROUP_BLOCKS.get(), block % GROUP_BLOCKS.get());
        let group = self.group(number);
        group.blocks[place as usize] = false;
        group.first = group.first.min(place);
    }

    /// Frees the slot in the inode table and returns the inode.
    pub fn free_inode(&mut self, id: u32) -> Inode {
        let inode = std::mem::take(&mut self.inodes[id as usize]);
        self.dirty.remove(&id);
        self.group(inode.group).inodes[inode.place as usize] = false;
        self.spare.push(id);
        inode
    }

    /// The directory's block that holds its n-th entry, if it has one.
    pub fn entry_block(&self, dir: u32, entry: usize) -> Option<u32> {
        self.inodes[dir as usize].blocks.get(entry / ENTRIES_PER_BLOCK).copied()
    }

    pub fn needs_entry_block(&self, dir: u32) -> bool {
        let dir = &self.inodes[dir as usize];
        dir.entries >= dir.blocks.len() * ENTRIES_PER_BLOCK
    }
}
