//! The walk through page tables when generations age, and the Bloom filter that tells it where to go.
//!
//! Models: that page tables are walked which the last walk, or reclaim since then (`lru_gen_look_around`), found dense with accessed entries, and
//! all of them where there is no filter yet; so that reclaim meets the others' pages with the accessed bit still set, and keeps them. Leaves out:
//! false positives of the filter, whether the owner has run since (`should_skip_mm`).

use std::collections::{BTreeMap, BTreeSet};

use crate::chunk::{Chunk, WINDOW_PAGES};
use crate::constant::constants;

constants! {
    const PTRS_PER_PTE: u64 = kernel(512, "arch/x86/include/asm/pgtable_64_types.h", "PTRS_PER_PTE", "6.12");
    /// Of so many entries one is accessed where a table is dense.
    const DENSE: u32 = kernel(8, "mm/vmscan.c", "suitable_to_scan (cache_line_size() / sizeof(pte_t))", "6.12");
}

/// One page table: a file, and which 2 MiB of it.
type Table = (u32, u64);

fn table(chunk: &Chunk) -> Table {
    (chunk.inode, u64::from(chunk.window) * WINDOW_PAGES / PTRS_PER_PTE.get())
}

fn dense(young: u32, all: u32) -> bool {
    young * DENSE.get() >= all
}

/// What a lruvec's walks know.
#[derive(Clone, Debug, Default)]
pub struct Walk {
    /// Tables for the next walk; all, while there has been none.
    filter: Option<BTreeSet<Table>>,
    /// Of each table that this walk goes through: accessed entries, and all that map a page.
    seen: BTreeMap<Table, (u32, u32)>,
}

impl Walk {
    /// mm/vmscan.c: walk_pmd_range, walk_pte_range, 6.12: whether this walk clears the accessed bits of a chunk's pages.
    pub fn goes_through(&mut self, chunk: &Chunk) -> bool {
        let mapped = chunk.mapped & chunk.present;
        if mapped == 0 || self.filter.as_ref().is_some_and(|filter| !filter.contains(&table(chunk))) {
            return false;
        }
        let (young, all) = self.seen.entry(table(chunk)).or_default();
        *young += (mapped & chunk.referenced).count_ones();
        *all += mapped.count_ones();
        true
    }

    /// mm/vmscan.c: lru_gen_look_around, 6.12: reclaim met accessed pages.
    pub fn look_around(&mut self, chunk: &Chunk) {
        let mapped = chunk.mapped & chunk.present;
        if let Some(filter) = self.filter.as_mut().filter(|_| {
            let young = (mapped & chunk.referenced).count_ones();
            young > 0 && dense(young, mapped.count_ones())
        }) {
            filter.insert(table(chunk));
        }
    }

    /// mm/vmscan.c: update_bloom_filter, reset_bloom_filter: the walk is over.
    pub fn end(&mut self) {
        let seen = std::mem::take(&mut self.seen).into_iter();
        self.filter = Some(seen.filter(|(_, (young, all))| dense(*young, *all)).map(|(table, _)| table).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::Walk;
    use crate::chunk::Chunk;

    /// Pages of a window that are mapped, and those of them whose accessed bits are set.
    fn chunk(window: u32, mapped: u32, referenced: u32) -> Chunk {
        Chunk { inode: 3, window, present: u32::MAX, mapped, referenced, ..Chunk::default() }
    }

    /// 16 windows have a table: one accessed entry of eight makes it dense.
    #[test]
    fn a_walk_goes_where_the_last_one_found_accessed_pages_or_reclaim_met_some() {
        let mut walk = Walk::default();
        let all = [chunk(0, 0xff, 1), chunk(16, 0xff, 0), chunk(17, 0xff, 1), chunk(32, 0xff, 0), chunk(48, 0, 0)];
        assert_eq!(all.map(|chunk| walk.goes_through(&chunk)), [true, true, true, true, false], "the first time");
        walk.end();
        // The second has one of sixteen.
        assert_eq!(all.map(|chunk| walk.goes_through(&chunk)), [true, false, false, false, false]);
        walk.look_around(&chunk(33, 0xff, 3));
        walk.look_around(&chunk(17, 0xffff, 1));
        walk.end();
        assert_eq!(all.map(|chunk| walk.goes_through(&chunk)), [true, false, false, false, false], "the filter is new");
        walk.look_around(&chunk(33, 0xff, 3));
        assert_eq!(all.map(|chunk| walk.goes_through(&chunk)), [true, false, false, true, false]);
    }
}
