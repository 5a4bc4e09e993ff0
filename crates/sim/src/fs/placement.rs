//! Where files are on a disk: how far its arm has to go, and which requests are merged.
//!
//! Models: a directory has a block group, and its files follow each other from there on (find_group_other, find_goal in
//! fs/ext3: the parent's group first, then the next one with room; ext4 and xfs do the same with flex groups and
//! allocation groups). A file that existed before the run is contiguous. With delayed allocation the dirty pages of a
//! written file get one extent and a preallocation behind it; otherwise the file gets a reservation window, so files
//! that grow at the same time interleave.
//!
//! On ext4 directories decide little. A large file goes behind the last large file (s_mb_last_group). Small files go
//! into a flex group, which the directories below one parent share (find_group_orlov), one behind the other in the
//! order of writing. The reason is a locality group (up to 5.17, and since 6.0) or, for files that are already closed
//! when their pages are written (up to 5.17), a search that begins at the flex group's second block group
//! (ext4_inode_to_goal_block) and takes the first free blocks. Leaves out: reuse of freed blocks, fragmentation by age,
//! indirect blocks; a locality group per CPU (all CPUs share one); the maximum number of directories in a flex group;
//! 5.18 and 5.19, whose search takes any group (mb_optimize_scan). Directories of small files that existed before the
//! run are spread as on other file systems.

use crate::kernel::PAGE_BYTES;
use std::collections::{BTreeMap, HashMap};

use crate::Machine;
use crate::constant::constants;
use crate::fs::file_system::Kind;
use crate::fs::inode::{FileKey, InodeId};

constants! {
    const GROUP_PAGES: u64 = kernel(32_768, "include/linux/ext3_fs.h", "EXT3_BLOCKS_PER_GROUP (8 * 4096)", "2.6.32");
    /// Blocks that a growing file reserves at once, and with delayed allocation at most.
    const WINDOW_PAGES: u64 = kernel(1024, "include/linux/ext3_fs.h", "EXT3_MAX_RESERVE_BLOCKS (1027)", "2.6.32");
    /// Largest size of a small file, blocks.
    const STREAM_PAGES: u64 = kernel(16, "fs/ext4/mballoc.h", "MB_DEFAULT_STREAM_THRESHOLD", "2.6.32");
    /// Blocks that a locality group allocates at once for small files.
    const GROUP_PREALLOC_PAGES: u64 = kernel(512, "fs/ext4/mballoc.h", "MB_DEFAULT_GROUP_PREALLOC", "2.6.32");
    const NORMAL_PAGES: u64 = kernel(2048, "fs/ext4/mballoc.c", "ext4_mb_normalize_request (8 MiB)", "2.6.32");
}

/// Position of consecutive pages on the disk, and their number.
#[derive(Clone, Copy, Debug)]
struct Extent {
    start: u64,
    pages: u64,
}

/// A part of the disk in which extents are allocated one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Region {
    /// The block group of a workload's directory.
    Directory(u32, u64),
    /// Small files of a workload, on ext4.
    FlexGroup(u32),
    /// Large files, on ext4.
    Stream,
}

#[derive(Debug, Default)]
pub struct Placement {
    /// By file and first page.
    files: HashMap<FileKey, BTreeMap<u64, Extent>>,
    /// The first free page of each region.
    next: HashMap<Region, u64>,
    /// The unused blocks of the locality group.
    group: Option<Extent>,
}

/// A page of a file, and the extent to allocate if the page has no block.
#[derive(Clone, Copy, Debug)]
struct Piece {
    key: FileKey,
    page: u64,
    /// End of the extent to allocate, in pages of the file.
    end: u64,
    region: Region,
}

impl Placement {
    /// Position on a disk of `disk_pages`; allocates an extent if the page has no block.
    fn position(&mut self, Piece { key, page, end, region }: Piece, disk_pages: u64) -> u64 {
        let file = self.files.entry(key).or_default();
        if let Some((first, extent)) = file.range(..=page).next_back()
            && page < first + extent.pages
        {
            return extent.start + (page - first);
        }
        let end = file.range(page..).next().map_or(end, |(&first, _)| first.min(end)).max(page + 1);
        let pages = end - page;
        let start = match region {
            Region::FlexGroup(_) => self.take_of_group(region, pages, disk_pages),
            Region::Directory(..) | Region::Stream => self.take(region, pages, disk_pages),
        };
        self.files.entry(key).or_default().insert(page, Extent { start, pages });
        start
    }

    /// Allocates the next pages of a region.
    fn take(&mut self, region: Region, pages: u64, disk_pages: u64) -> u64 {
        // The first quarter holds metadata.
        let (first, room) = (disk_pages / 4, (disk_pages / 2).max(1));
        let next = self.next.entry(region).or_insert_with(|| region.begins() % room);
        let start = first + *next;
        *next = (*next + pages) % room;
        start
    }

    /// fs/ext4/mballoc.c: ext4_mb_new_group_pa, ext4_mb_use_group_pa: a locality group without enough blocks allocates
    /// more near the file that needs them.
    fn take_of_group(&mut self, region: Region, pages: u64, disk_pages: u64) -> u64 {
        let mut group = match self.group.filter(|group| group.pages >= pages) {
            Some(group) => group,
            None => {
                let taken = GROUP_PREALLOC_PAGES.get().max(pages);
                Extent { start: self.take(region, taken, disk_pages), pages: taken }
            }
        };
        let start = group.start;
        (group.start, group.pages) = (group.start + pages, group.pages - pages);
        self.group = Some(group);
        start
    }
}

impl Region {
    fn begins(self) -> u64 {
        match self {
            Region::Directory(workload, directory) => scattered(workload, directory),
            Region::FlexGroup(workload) => scattered(workload, 0),
            // A file system that has just been mounted has no last group.
            Region::Stream => 0,
        }
    }
}

/// find_group_orlov: directories are spread over the groups.
fn scattered(workload: u32, directory: u64) -> u64 {
    let group = (u64::from(workload) << 48 ^ directory).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    group / GROUP_PAGES.get() * GROUP_PAGES.get()
}

/// The properties of a file and an access that decide about the allocation.
#[derive(Clone, Copy, Debug)]
struct Asked {
    kind: Kind,
    delays_allocation: bool,
    writes: bool,
    closed: bool,
    size_pages: u64,
}

/// The extent to allocate for a page without a block, and its region. fs/ext4/mballoc.c: ext4_mb_group_or_file,
/// ext4_mb_normalize_request.
fn piece(key: FileKey, page: u64, asked: Asked) -> Piece {
    let Asked { kind, delays_allocation, writes, closed, size_pages } = asked;
    let (ext4, small) = (kind == Kind::Ext4, size_pages <= STREAM_PAGES.get());
    let region = match (ext4, small) {
        (true, true) if writes && delays_allocation => Region::FlexGroup(key.0),
        (true, false) => Region::Stream,
        _ => Region::Directory(key.0, key.1 >> 32),
    };
    let end = match (writes, delays_allocation) {
        (false, _) => size_pages,
        // EXT4_MB_HINT_NOPREALLOC: no preallocation for a closed file, which will not grow.
        (true, true) if ext4 && (small || closed) => size_pages,
        (true, true) => size_pages.max(page + size_pages.next_power_of_two().min(NORMAL_PAGES.get())),
        (true, false) => (page / WINDOW_PAGES.get() + 1) * WINDOW_PAGES.get(),
    };
    Piece { key, page, end, region }
}

impl Machine {
    /// The position of a file's page on the disk.
    pub(crate) fn position(&self, inode: InodeId, page: u64, writes: bool) -> u64 {
        let (key, size_pages, closed, device) = {
            let mm = self.mm.borrow();
            if mm.is_block_device(inode) {
                return page;
            }
            let own = mm.inodes.get(inode);
            (own.key, own.size.div_ceil(PAGE_BYTES), own.opens == 0, self.device(own.device))
        };
        let pages = device.block.borrow().pages();
        let (kind, delays_allocation) = (device.file_system.kind, device.file_system.delays_allocation);
        let asked = Asked { kind, delays_allocation, writes, closed, size_pages: size_pages.max(page + 1) };
        device.placement.borrow_mut().position(piece(key, page, asked), pages)
    }
}

#[cfg(test)]
mod tests {
    use super::{Asked, Kind, Piece, Placement, Region, piece};

    #[test]
    fn files_of_a_directory_follow_each_other_and_those_that_grow_together_interleave() {
        let (mut placed, disk) = (Placement::default(), 1 << 26);
        let at = |placed: &mut Placement, file: u64, page: u64, end: u64| {
            placed.position(Piece { key: (0, file), page, end, region: Region::Directory(0, file >> 32) }, disk)
        };
        let first = at(&mut placed, 0, 0, 5000);
        assert_eq!(at(&mut placed, 0, 4999, 5000) - first, 4999, "in one piece");
        assert_eq!(at(&mut placed, 1, 0, 10) - first, 5000, "and the next file behind it");
        let (a, b) = (at(&mut placed, 2, 0, 1024), at(&mut placed, 3, 0, 1024));
        let (more, rest) = (at(&mut placed, 2, 1024, 2048), at(&mut placed, 2, 1023, 1024));
        assert_eq!((b - a, more - b, rest - a), (1024, 1024, 1023));
        let (tail, small) = (at(&mut placed, 3, 1024, 1034), at(&mut placed, 4, 0, 10));
        assert_eq!(
            (small - tail, at(&mut placed, 3, 1034, 1040) - small),
            (10, 10),
            "what grows does not lie on what is behind"
        );
        let elsewhere = at(&mut placed, 1 << 32, 0, 10);
        assert!(elsewhere.abs_diff(first) > 32_768, "another directory is in another group");
    }

    /// 512 blocks at once: 42 files of 12 are 504, and the next one begins with the next 512, behind the first 512
    /// unless another file has taken those blocks.
    #[test]
    fn small_files_of_ext4_follow_each_other_whatever_their_directories() {
        let (mut placed, disk) = (Placement::default(), 1 << 26);
        let region = Region::FlexGroup(0);
        let mut at = |file: u64| placed.position(Piece { key: (0, file << 32), page: 0, end: 12, region }, disk);
        let all: Vec<u64> = (0..44).map(&mut at).collect();
        assert!((1..42).all(|file| all[file] == all[0] + 12 * file as u64), "{all:?}");
        assert!(all[42] == all[0] + 512 && all[43] == all[42] + 12, "{all:?}");
        assert_eq!(at(3), all[3], "placed once");
    }

    #[test]
    fn large_files_of_ext4_follow_each_other_whosever_they_are() {
        let (mut placed, disk) = (Placement::default(), 1 << 26);
        let mut at = |workload: u32, page: u64, end: u64| {
            placed.position(Piece { key: (workload, 0), page, end, region: Region::Stream }, disk)
        };
        let first = at(0, 0, 2048);
        assert_eq!([at(1, 0, 2048), at(0, 2048, 4096)], [first + 2048, first + 4096]);
    }

    /// 16 blocks are small (MB_DEFAULT_STREAM_THRESHOLD); 17 are allocated as 32 (ext4_mb_normalize_request), unless
    /// the file is closed.
    #[test]
    fn ext4_places_by_size_and_other_file_systems_by_directory() {
        let written = Asked { kind: Kind::Ext4, delays_allocation: true, writes: true, closed: false, size_pages: 16 };
        let of = |asked: Asked| {
            let piece = piece((7, 3 << 32), 0, asked);
            (piece.region, piece.end)
        };
        let (flex, directory) = (Region::FlexGroup(7), Region::Directory(7, 3));
        assert_eq!(of(written), (flex, 16));
        assert_eq!(of(Asked { size_pages: 17, ..written }), (Region::Stream, 32));
        assert_eq!(of(Asked { size_pages: 17, closed: true, ..written }), (Region::Stream, 17));
        assert_eq!(of(Asked { writes: false, ..written }), (directory, 16), "it existed before the run");
        assert_eq!(of(Asked { writes: false, size_pages: 17, ..written }), (Region::Stream, 17));
        assert_eq!(of(Asked { delays_allocation: false, ..written }), (directory, 1024), "nodelalloc");
        assert_eq!(of(Asked { kind: Kind::Xfs, size_pages: 17, ..written }), (directory, 32));
        assert_eq!(
            of(Asked { kind: Kind::Ext3, delays_allocation: false, size_pages: 17, ..written }),
            (directory, 1024)
        );
    }
}
