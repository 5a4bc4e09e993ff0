//! Inodes and dentries in memory, and which windows of a file are cached.
//!
//! Models: one inode and at most one dentry a file, the dentry LRU with its second chance (DCACHE_REFERENCED), the list
//! of unused inodes, which from 2.6.37 on only the shrinker corrects (I_REFERENCED), the windows of the page cache by
//! file, dirty windows in the order of dirtying. Leaves out: hard links, negative dentries, the hash chains.

use crate::kernel::PAGE_BYTES;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use crate::block::device::DeviceId;
use crate::fs::namei::DIRECTORIES;
use crate::fs::ranges::Ranges;
use crate::linked::{self, Link, Linked, NONE};
use crate::mm::readahead::Ahead;
use crate::mm::slab::Object;

pub type InodeId = u32;

/// Largest size of a file whose fields are stored compactly: a mail server has millions of such files.
const SMALL_BYTES: u64 = 64 << 10;

/// Owner and number of a file. The owner is a workload, its directories (`namei::directory_key`), or one of `owner`.
pub type FileKey = (u32, u64);

/// Owners of inodes that no workload has made.
pub mod owner {
    /// The block devices, and the files that filled the page cache before the run.
    pub const MACHINE: u32 = u32::MAX;
    /// Pages without a file (leaked by truncation), and further block devices.
    pub const NO_FILE: u32 = u32::MAX - 1;
    /// Anonymous memory of processes.
    pub const ANONYMOUS: u32 = u32::MAX - 2;
}

/// Multiplicative hashing: the keys are small integers of our own making, and the order of the map is never used.
#[derive(Default)]
pub struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }
    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(23) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

pub type KeyMap<K, V> = HashMap<K, V, BuildHasherDefault<KeyHasher>>;

/// Boxed, because millions of inodes have one window and should not carry a vector's 24 bytes.
#[derive(Debug, Default)]
#[expect(clippy::box_collection, reason = "halves the size of the common case")]
pub enum Windows {
    #[default]
    None,
    One(u32, u32),
    Many(Box<Vec<u32>>),
}

impl Windows {
    #[inline]
    pub fn get(&self, window: u32) -> u32 {
        match self {
            Windows::None => NONE,
            Windows::One(at, chunk) => {
                if *at == window {
                    *chunk
                } else {
                    NONE
                }
            }
            Windows::Many(all) => all.get(window as usize).copied().unwrap_or(NONE),
        }
    }

    pub fn set(&mut self, window: u32, chunk: u32) {
        match self {
            Windows::None if chunk == NONE => {}
            Windows::None => *self = Windows::One(window, chunk),
            Windows::One(at, held) if *at == window => {
                *held = chunk;
                if chunk == NONE {
                    *self = Windows::None;
                }
            }
            Windows::One(..) if chunk == NONE => {}
            &mut Windows::One(at, held) => {
                *self = Windows::Many(Box::default());
                self.set(at, held);
                self.set(window, chunk);
            }
            Windows::Many(all) => {
                let place = window as usize;
                if place >= all.len() {
                    all.resize(place + 1, NONE);
                }
                all[place] = chunk;
            }
        }
    }

    /// The first window after the last used one.
    pub fn end(&self) -> u32 {
        match self {
            Windows::None => 0,
            Windows::One(at, _) => at + 1,
            Windows::Many(all) => all.len() as u32,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// Not evictable: open, or the block device itself.
    #[default]
    Held,
    /// In use by its dentry.
    Dentry,
    /// Without a dentry: `inode_unused`.
    Unused,
    /// Without a dentry, and not on the list of unused inodes because it has page cache (5.15 and later).
    Cached,
    /// The slot is free.
    Gone,
}

#[derive(Debug, Default)]
pub struct Dirty {
    pub windows: VecDeque<u32>,
    pub since_ns: u64,
    pub pages: u64,
}

#[derive(Debug, Default)]
pub struct Inode {
    pub key: FileKey,
    pub windows: Windows,
    pub pages: u32,
    /// How often it is open; for a directory the dentries and path walks that use it.
    pub opens: u32,
    pub size: u64,
    pub ahead: Ahead,
    pub dirty: Option<Box<Dirty>>,
    pub place: Place,
    pub referenced: bool,
    pub mapped: bool,
    /// Unlinked: its last pages are freed when their writeback ends.
    pub dead: bool,
    /// Open with a dentry, which returns to the list of evictable dentries at the close.
    pub pinned_dentry: bool,
    pub in_cgroup: bool,
    /// Its pages under writeback.
    pub under_writeback: u32,
    /// The transaction of the last change, and that of the last change of size or blocks, each plus one.
    pub changed: [u32; 2],
    /// Second of the last update of the access time, and whether it was written since it was read.
    pub read_s: u32,
    pub written_since_read: bool,
    /// A process's memory (`anonymous`): no file, no slab object.
    pub anonymous: bool,
    /// Its device.
    pub device: DeviceId,
    pub object: Object,
    /// Its dentry object: on the list of dentries, or in use (`pinned_dentry`).
    pub dentry: Object,
    /// The parent directory, which its dentry uses; `NONE` without a model of directories.
    pub parent: InodeId,
    /// Its radix tree node.
    pub node: Option<Object>,
    /// The inode became unused while it was on the list of inodes (I_REFERENCED, 2.6.37 and later).
    unused_again: bool,
    /// Its places on the dentry list and the inode list, and whether it is on them.
    links: [Link; 2],
    on: [bool; 2],
}

impl Linked for Inode {
    fn link(&mut self, which: usize) -> &mut Link {
        &mut self.links[which]
    }
}

/// The lists that the shrinkers scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    Dentries,
    Inodes,
}

impl Inode {
    /// Sets the size to at least `bytes`; returns whether that changed it.
    #[inline]
    pub fn grow(&mut self, bytes: u64) -> bool {
        let grows = bytes > self.size;
        self.size = self.size.max(bytes);
        grows
    }
}

#[derive(Debug, Default)]
pub struct Inodes {
    all: Vec<Inode>,
    free: Vec<InodeId>,
    by_key: KeyMap<FileKey, InodeId>,
    lists: [linked::List; 2],
    /// Inodes in use stay on the list until the shrinker removes them (fs/inode.c: inode_lru_isolate, 2.6.37 and
    /// later).
    pub lazy: bool,
    /// An inode begins with a second chance (iput_final, up to 4.14).
    pub new_are_referenced: bool,
    /// The device of each workload's files, if the machine has several.
    pub homes: Vec<DeviceId>,
    /// Number of names in each directory, with a model of directories.
    pub names: KeyMap<FileKey, u32>,
    /// Sizes of files that a skipped set-up left on the disk, except small files.
    made: KeyMap<FileKey, u64>,
    /// Allocated and unwritten pages of files, which read as zeros without a request (unwritten extents).
    unwritten: KeyMap<FileKey, Ranges>,
}

impl Inodes {
    /// Notes a write of a skipped set-up; small files are not noted.
    pub fn made(&mut self, key: FileKey, end: u64) {
        if end > SMALL_BYTES {
            let size = self.made.entry(key).or_default();
            *size = end.max(*size);
        }
    }

    /// Notes a range that fallocate() has allocated, in bytes.
    pub fn preallocated(&mut self, key: FileKey, from: u64, to: u64) {
        if to > from {
            self.unwritten.entry(key).or_default().insert(from / PAGE_BYTES, to.div_ceil(PAGE_BYTES));
        }
    }

    /// Marks pages as written; true if some were unwritten.
    pub fn convert(&mut self, id: InodeId, from: u64, to: u64) -> bool {
        if self.unwritten.is_empty() {
            return false;
        }
        let key = self.get(id).key;
        let Some(ranges) = self.unwritten.get_mut(&key) else { return false };
        let converts = !ranges.within(from, to).is_empty();
        ranges.remove(from, to);
        if ranges.is_empty() {
            self.unwritten.remove(&key);
        }
        converts
    }

    /// The parts of [from, to) not backed by a written block.
    #[must_use]
    pub fn hollow(&self, id: InodeId, from: u64, to: u64) -> Vec<(u64, u64)> {
        if self.unwritten.is_empty() {
            return Vec::new();
        }
        self.unwritten.get(&self.get(id).key).map_or_else(Vec::new, |ranges| ranges.within(from, to))
    }

    #[inline]
    pub fn find(&self, key: FileKey) -> Option<InodeId> {
        self.by_key.get(&key).copied()
    }

    #[inline]
    pub fn get(&self, id: InodeId) -> &Inode {
        &self.all[id as usize]
    }

    #[inline]
    pub fn get_mut(&mut self, id: InodeId) -> &mut Inode {
        &mut self.all[id as usize]
    }

    /// Whether the inode is that file, open and with its name.
    #[inline]
    pub fn is_open(&self, id: InodeId, key: FileKey) -> bool {
        let inode = &self.all[id as usize];
        inode.key == key && matches!(inode.place, Place::Held | Place::Dentry) && inode.opens > 0 && !inode.dead
    }

    pub fn there(&self) -> impl Iterator<Item = &Inode> {
        self.all.iter().filter(|inode| inode.place != Place::Gone)
    }

    /// Whether the slot holds a file.
    pub fn is_there(&self, id: InodeId) -> bool {
        self.get(id).place != Place::Gone
    }

    /// Its page cache is empty: the shrinker may free it (mm/vmscan.c: __remove_mapping, 5.15 and later).
    #[inline]
    pub fn uncached(&mut self, id: InodeId) {
        let inode = self.get(id);
        if inode.place == Place::Cached {
            self.get_mut(id).place = Place::Unused;
            if !self.get(id).on[List::Inodes as usize] {
                self.push(id, List::Inodes);
            }
        }
    }

    pub fn with_dentry(&self) -> u64 {
        self.lists[List::Dentries as usize].len
    }

    /// Inodes on their list, with a lazy list including some in use.
    pub fn unused(&self) -> u64 {
        self.lists[List::Inodes as usize].len
    }

    /// The device of a file or directory.
    #[inline]
    #[must_use]
    pub fn home(&self, key: FileKey) -> DeviceId {
        self.homes.get((key.0 % DIRECTORIES) as usize).copied().unwrap_or_default()
    }

    pub fn add(&mut self, key: FileKey, object: Object, in_cgroup: bool) -> InodeId {
        let (size, device) = (self.made.get(&key).copied().unwrap_or(0), self.home(key));
        let inode = Inode { key, size, in_cgroup, device, object, parent: NONE, ..Inode::default() };
        let id = match self.free.pop() {
            Some(id) => {
                self.all[id as usize] = inode;
                id
            }
            None => {
                self.all.push(inode);
                (self.all.len() - 1) as InodeId
            }
        };
        self.by_key.insert(key, id);
        id
    }

    /// Forgets an inode without pages.
    pub fn remove(&mut self, id: InodeId) {
        self.put(id, Place::Gone);
        let key = self.get(id).key;
        // An unlinked file's number may be in use again by now.
        if self.by_key.get(&key) == Some(&id) {
            self.by_key.remove(&key);
        }
        self.free.push(id);
    }

    /// Removes an unlinked name; the inode remains until its last user has closed it.
    pub fn forget_name(&mut self, id: InodeId) {
        let key = self.get(id).key;
        if self.by_key.get(&key) == Some(&id) {
            self.by_key.remove(&key);
        }
    }

    pub fn rename(&mut self, id: InodeId, to: FileKey) {
        self.forget_name(id);
        self.get_mut(id).key = to;
        self.by_key.insert(to, id);
    }

    fn take_off(&mut self, id: InodeId, list: List) {
        if std::mem::take(&mut self.get_mut(id).on[list as usize]) {
            self.lists[list as usize].remove(&mut self.all, list as usize, id);
        }
    }

    fn push(&mut self, id: InodeId, list: List) {
        self.get_mut(id).on[list as usize] = true;
        self.lists[list as usize].push_head(&mut self.all, list as usize, id);
    }

    /// Moves an inode to its new place, at the head of that list.
    pub fn put(&mut self, id: InodeId, place: Place) {
        let old = std::mem::replace(&mut self.get_mut(id).place, place);
        if old == Place::Dentry {
            self.take_off(id, List::Dentries);
        }
        if place == Place::Dentry {
            self.push(id, List::Dentries);
        }
        let listed = self.get(id).on[List::Inodes as usize];
        match place {
            // fs/inode.c: __inode_add_lru: an inode on the list gets another round.
            Place::Unused if listed && self.lazy => self.get_mut(id).unused_again = true,
            Place::Unused => {
                self.take_off(id, List::Inodes);
                self.push(id, List::Inodes);
                self.get_mut(id).unused_again = self.lazy && self.new_are_referenced;
            }
            Place::Gone => self.take_off(id, List::Inodes),
            Place::Held | Place::Dentry | Place::Cached if !self.lazy => self.take_off(id, List::Inodes),
            Place::Held | Place::Dentry | Place::Cached => {}
        }
    }

    pub fn tail(&self, list: List) -> Option<InodeId> {
        let tail = self.lists[list as usize].tail;
        (tail != NONE).then_some(tail)
    }

    /// fs/inode.c: inode_lru_isolate: whether the inode at the tail stays. In use or with page cache (5.15 and later)
    /// it leaves the list; referenced it moves to the head.
    pub fn keeps_unused(&mut self, id: InodeId, cached: bool) -> bool {
        if self.get(id).place != Place::Unused || cached {
            self.take_off(id, List::Inodes);
            let inode = self.get_mut(id);
            if inode.place == Place::Unused {
                inode.place = Place::Cached;
            }
            return true;
        }
        if !std::mem::take(&mut self.get_mut(id).unused_again) {
            return false;
        }
        self.take_off(id, List::Inodes);
        self.push(id, List::Inodes);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{Inodes, List, Place};
    use crate::mm::slab::Object;

    /// An inode that is used again keeps its place on the list until the shrinker scans it; I_REFERENCED marks it once
    /// it is unused again.
    #[test]
    fn a_lazy_lru_keeps_reused_inodes_until_the_shrinker_scans_them() {
        let mut inodes = Inodes { lazy: true, ..Inodes::default() };
        let [one, two, three] = [1, 2, 3].map(|file| inodes.add((0, file), Object::default(), false));
        for id in [one, two, three] {
            inodes.put(id, Place::Unused);
        }
        // The first is in use, the second was in use, a page keeps the third.
        inodes.put(one, Place::Dentry);
        inodes.put(two, Place::Dentry);
        inodes.put(two, Place::Unused);
        assert_eq!((inodes.unused(), inodes.tail(List::Inodes)), (3, Some(one)));
        assert!(inodes.keeps_unused(one, false) && inodes.unused() == 2, "in use: off the list");
        assert!(inodes.keeps_unused(two, false) && inodes.tail(List::Inodes) == Some(three), "once more round");
        assert!(inodes.keeps_unused(three, true) && inodes.get(three).place == Place::Cached);
        assert!(!inodes.keeps_unused(two, false), "the second time it goes");
        // Its last page gone, the third is on the list again.
        inodes.uncached(three);
        assert_eq!((inodes.get(three).place, inodes.unused()), (Place::Unused, 2));
    }

    #[test]
    fn up_to_2_6_36_an_inode_that_is_used_again_leaves_the_list_at_once() {
        let mut inodes = Inodes::default();
        let one = inodes.add((0, 1), Object::default(), false);
        inodes.put(one, Place::Unused);
        inodes.put(one, Place::Dentry);
        assert_eq!((inodes.unused(), inodes.with_dentry()), (0, 1));
        inodes.put(one, Place::Unused);
        assert_eq!((inodes.unused(), inodes.with_dentry()), (1, 0));
        assert!(!inodes.keeps_unused(one, false));
    }

    #[test]
    fn the_first_write_of_an_allocated_page_converts_it_and_the_next_one_does_not() {
        let mut inodes = Inodes::default();
        let file = inodes.add((0, 7), Object::default(), false);
        assert!(!inodes.convert(file, 0, 1), "nothing was allocated");
        // Bytes up to 10 000 are three pages.
        inodes.preallocated((0, 7), 0, 10_000);
        let converts: Vec<bool> =
            [(1, 2), (1, 2), (0, 3), (0, 3), (3, 4)].map(|(from, to)| inodes.convert(file, from, to)).into();
        assert_eq!(converts, [true, false, true, false, false]);
        inodes.preallocated((0, 7), 0, 40_960);
        assert_eq!(inodes.hollow(file, 2, 12), [(2, 10)]);
        inodes.convert(file, 4, 6);
        assert_eq!(inodes.hollow(file, 2, 12), [(2, 4), (6, 10)], "what was written is read from the disk");
    }
}
