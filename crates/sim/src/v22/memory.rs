//! Memory of 2.2: mem_map, the page cache, free pages with one set of limits, and the clock of shrink_mmap over it all.
//!
//! Granularity: one frame. Leaves out: zones (DMA), swap and processes' pages as candidates (swap_out finds none),
//! shared memory, orders above 0, the slab caches, the dentry cache's share.

use super::buffers::Buffers;
use crate::fs::inode::KeyMap;
use crate::kernel::BufferCache;
use crate::kernel::PAGE_BYTES;
use crate::run::invariant::Broken;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    Free,
    /// Used by the kernel, by processes, or being read.
    Taken,
    /// Holds the four buffers of this slot.
    Buffers(u32),
    Cache {
        inode: u32,
        index: u32,
        referenced: bool,
    },
}

#[derive(Debug)]
pub struct Memory {
    pub map: Vec<Page>,
    free: Vec<u32>,
    cache: KeyMap<(u32, u32), u32>,
    clock: usize,
    /// freepages.min, .low and .high.
    pub limits: [u64; 3],
    pub rules: BufferCache,
    /// Candidates that reclaim has scanned since they were last charged, and in total.
    pub scanned: u64,
    pub scanned_ever: u64,
    pub freed_ever: u64,
    pub wants_bdflush: bool,
}

impl Memory {
    pub fn new(frames: u64, rules: BufferCache) -> Memory {
        // mm/page_alloc.c, free_area_init(): i = pages >> 7, at least 10, at most 256; low 2 x, high 3 x.
        let min = (frames >> rules.freepages_shift.get()).clamp(rules.freepages_min.get(), rules.freepages_max.get());
        let kernel = rules.kernel_bytes.get() / PAGE_BYTES;
        let mut map = vec![Page::Free; frames as usize];
        map.iter_mut().take(kernel as usize).for_each(|page| *page = Page::Taken);
        let free = (kernel.min(frames) as u32..frames as u32).rev().collect();
        let limits = [min, 2 * min, 3 * min];
        let (cache, clock) = (KeyMap::default(), 0);
        let [scanned, scanned_ever, freed_ever] = [0; 3];
        Memory { map, free, cache, clock, limits, rules, scanned, scanned_ever, freed_ever, wants_bdflush: false }
    }

    pub fn free_pages(&self) -> u64 {
        self.free.len() as u64
    }

    pub fn cached_pages(&self) -> u64 {
        self.cache.len() as u64
    }

    /// __get_free_pages(): at or below min the caller frees until high, or until reclaim finds nothing.
    pub fn take(&mut self, buffers: &mut Buffers) -> Option<u32> {
        if self.free_pages() <= self.limits[0] {
            while self.free_pages() < self.limits[2] && self.try_to_free_pages(buffers) > 0 {}
        }
        let frame = self.free.pop()?;
        self.map[frame as usize] = Page::Taken;
        Some(frame)
    }

    pub fn give(&mut self, frame: u32) {
        self.map[frame as usize] = Page::Free;
        self.free.push(frame);
    }

    /// do_try_to_free_pages(): from priority 6 down to 0 until 32 pages are free.
    pub fn try_to_free_pages(&mut self, buffers: &mut Buffers) -> u64 {
        let mut freed = 0;
        for priority in (0..=self.rules.priority.get() as u32).rev() {
            while self.shrink_mmap(priority, buffers) {
                freed += 1;
                if freed == self.rules.swap_cluster_max.get() {
                    return freed;
                }
            }
        }
        freed
    }

    /// shrink_mmap(): scans up to `num_physpages >> priority` candidates from where it stopped and frees one page.
    fn shrink_mmap(&mut self, priority: u32, buffers: &mut Buffers) -> bool {
        let frames = self.map.len();
        let floor = |percent: u64| frames as u64 * percent / 100;
        let mut left = frames >> priority;
        let mut steps = frames;
        while left > 0 && steps > 0 {
            steps -= 1;
            let frame = self.clock;
            self.clock = (self.clock + 1) % frames;
            self.scanned += 1;
            self.scanned_ever += 1;
            let freed = match self.map[frame] {
                // Pages without other references are candidates; others are skipped.
                Page::Free | Page::Taken => continue,
                // touch_buffer() does nothing on i386: a buffer's page has no second chance.
                Page::Buffers(slot) => {
                    let may = buffers.pages > floor(self.rules.buffermem_min_percent.get());
                    let freed = may && buffers.try_to_free(slot);
                    self.wants_bdflush |= may && !freed;
                    freed
                }
                Page::Cache { inode, index, referenced: true } => {
                    self.map[frame] = Page::Cache { inode, index, referenced: false };
                    false
                }
                Page::Cache { inode, index, .. } => {
                    let may = self.cached_pages() > floor(self.rules.pagecache_min_percent.get());
                    may && self.cache.remove(&(inode, index)).is_some()
                }
            };
            left -= 1;
            if freed {
                self.give(frame as u32);
                self.freed_ever += 1;
                return true;
            }
        }
        false
    }

    /// Whether the page is cached; marks a cached page referenced.
    pub fn lookup(&mut self, inode: u32, index: u32) -> bool {
        let Some(&frame) = self.cache.get(&(inode, index)) else { return false };
        self.map[frame as usize] = Page::Cache { inode, index, referenced: true };
        true
    }

    pub fn insert(&mut self, inode: u32, index: u32, frame: u32) {
        if self.cache.contains_key(&(inode, index)) {
            return self.give(frame);
        }
        self.map[frame as usize] = Page::Cache { inode, index, referenced: true };
        self.cache.insert((inode, index), frame);
    }

    /// truncate_inode_pages(); returns the number of freed pages.
    pub fn truncate(&mut self, inode: u32, from: u32, to: u32) -> u64 {
        let gone: Vec<u32> = (from..to).filter_map(|index| self.cache.remove(&(inode, index))).collect();
        gone.iter().for_each(|&frame| self.give(frame));
        gone.len() as u64
    }

    /// Checks that every frame is free, cached and in the index, a buffer page, or taken.
    pub fn check(&self, buffers: &Buffers) -> Result<(), Broken> {
        let count = |wanted: fn(&Page) -> bool| self.map.iter().filter(|page| wanted(page)).count() as u64;
        let found = [
            count(|page| matches!(page, Page::Free)),
            count(|page| matches!(page, Page::Cache { .. })),
            count(|page| matches!(page, Page::Buffers(_))),
        ];
        let kept = [self.free_pages(), self.cached_pages(), buffers.pages];
        if found == kept {
            Ok(())
        } else {
            Err(Broken::Frames(format!("free, cached, buffer pages: {found:?} in mem_map, {kept:?} kept")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Memory, Page};
    use crate::kernel;
    use crate::v22::buffers::Buffers;

    fn memory(frames: u64) -> Memory {
        Memory::new(frames, kernel::find("linux-2.2.5").expect("a profile").buffer_cache.expect("of 2.2"))
    }

    /// free_area_init: pages >> 7, at least 10 and at most 256; low is twice as much, high three times.
    #[test]
    fn the_limits_of_free_pages_follow_memory() {
        assert_eq!(memory(8_192).limits, [64, 128, 192]);
        assert_eq!((memory(1_000).limits[0], memory(1 << 20).limits[0]), (10, 256));
    }

    /// __get_free_pages at freepages.min: 32 pages a time until freepages.high; a referenced page gets a second chance.
    #[test]
    fn who_finds_no_more_than_min_free_pages_frees_up_to_high() {
        let (mut memory, mut buffers) = (memory(8_192), Buffers::default());
        let mut index = 0;
        while memory.free_pages() > memory.limits[0] {
            let frame = memory.take(&mut buffers).expect("free");
            memory.insert(1, index, frame);
            index += 1;
        }
        let cached = memory.cached_pages();
        memory.take(&mut buffers).expect("freed");
        // From 64 in steps of 32 to 192, minus the allocated page.
        assert_eq!((memory.free_pages(), cached - memory.cached_pages()), (191, 128));
        assert!(
            memory.map.iter().any(|page| matches!(page, Page::Cache { referenced: false, .. })),
            "the clock has passed"
        );
        memory.check(&buffers).expect("no frame is lost");
    }

    #[test]
    fn nothing_is_taken_of_a_page_cache_of_2_percent_of_memory() {
        let (mut memory, mut buffers) = (memory(8_192), Buffers::default());
        for index in 0..163 {
            let frame = memory.take(&mut buffers).expect("free");
            memory.insert(1, index, frame);
        }
        // The minimum is 8192 * 2 / 100 = 163.
        assert_eq!((memory.try_to_free_pages(&mut buffers), memory.cached_pages()), (0, 163));
    }
}
