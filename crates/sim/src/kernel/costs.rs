//! CPU times of a kernel's work with their origins, and the numbers for one machine.

use super::PAGE_BYTES;
use crate::constant::{Constant, Entry};
use crate::mm::reclaim::Scanned;
use flatwater_workload::Op;

/// Declares the table of a profile, the numbers of a machine, and functions over all fields.
macro_rules! costs {
    ($($(#[$doc:meta])* $name:ident: $scales:literal,)+) => {
        /// CPU times in ns of one machine.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Costs { $($(#[$doc])* pub $name: u64,)+ }

        /// CPU times in ns of a kernel on the reference CPU, with their origins.
        #[derive(Clone, Copy, Debug)]
        pub struct CostTable { $($(#[$doc])* pub $name: Constant<u64>,)+ }

        impl CostTable {
            #[must_use]
            pub fn values(&self) -> Costs {
                Costs { $($name: self.$name.get(),)+ }
            }

            #[must_use]
            pub fn entries(&self) -> Vec<Entry> {
                vec![$(Entry {
                    module: "costs",
                    name: stringify!($name),
                    value: self.$name.get(),
                    provenance: self.$name.provenance(),
                },)+]
            }
        }

        impl Costs {
            /// Scales the CPU's times by `to / of`.
            pub(crate) fn at_ratio(&self, to: u64, of: u64) -> Costs {
                let scale = |ns: u64, scales: bool| if scales { ns * to / of.max(1) } else { ns };
                Costs { $($name: scale(self.$name, $scales),)+ }
            }
        }
    };
}

// `true`: scales with the CPU's speed.
costs! {
    /// A write() of no bytes.
    write_base_ns: true,
    /// Each further page (or large folio) that a write() overwrites: write_begin, write_end and the check of the dirty
    /// limits, without copying.
    write_step_ns: true,
    read_base_ns: true,
    /// Copying one byte, ps.
    copy_byte_ps: true,
    /// Clearing a page of 4 KiB, and 4 KiB of a huge page, in percent of the time to copy it.
    clear_percent: false,
    clear_huge_percent: false,
    alloc_page_ns: true,
    add_to_cache_ns: true,
    /// Each further page of a large folio, instead of `alloc_page_ns` and `add_to_cache_ns`.
    folio_page_ns: true,
    /// Each further page of a folio of readahead, which has no buffer_heads.
    ahead_page_ns: true,
    /// Freeing each page of a large folio, in addition to `free_page_ns` for the folio.
    free_folio_page_ns: true,
    slab_object_ns: true,
    /// Moving one object between a slab and the CPU's array, under the list lock.
    slab_step_ns: true,
    cache_grow_ns: true,
    /// Visiting one slab on a list in s_show().
    slab_walk_ns: true,
    /// Scanning one page in shrink_page_list, lists and locks included.
    scan_page_ns: true,
    /// Scanning a mapped page.
    scan_mapped_ns: true,
    /// Scanning a referenced mapped page: the walk to its entries (folio_referenced), and putting it back on the list.
    keep_mapped_ns: true,
    /// Freeing a mapped page, in addition to `free_page_ns`: try_to_unmap, and isolating it.
    reclaim_mapped_ns: true,
/// Skipping a page in isolate_lru_folios.
    pass_page_ns: true,
    free_page_ns: true,
    /// Freeing the buffer_heads of a reclaimed page, in addition (try_to_free_buffers).
    drop_buffers_ns: true,
    prune_object_ns: true,
    lookup_ns: true,
/// Operations on names, without the lookup.
    stat_ns: true,
    open_ns: true,
    close_ns: true,
    create_ns: true,
    rename_ns: true,
    unlink_ns: true,
    /// A directory of 50 names.
    list_ns: true,
    /// A fault without a read, without the entries that it makes.
    minor_fault_ns: true,
    /// An entry of a page table, for a page that is cached.
    map_page_ns: true,
    /// A load of mapped memory: the memory's time, not the CPU's.
    touch_ns: false,
    unmap_page_ns: true,
    submit_io_ns: true,
    writepage_ns: true,
    /// One check of the dirty limits in balance_dirty_pages: the page states of all CPUs summed up.
    balance_ns: true,
    /// Softirq work to end the I/O of one page.
    end_page_ns: true,
    wakeup_ns: true,
    fork_ns: true,
    store_ns: true,
    /// Noted CPU time after which a long loop performs it: the granularity of the model.
    burst_ns: false,
}

impl Costs {
    /// Times on a machine whose CPUs run at `percent` of the reference.
    #[must_use]
    pub fn at_speed(&self, percent: u64) -> Costs {
        self.at_ratio(100, percent.max(1))
    }

    /// Clearing a page of 4 KiB (clear_page).
    #[must_use]
    pub fn zero_page_ns(&self) -> u64 {
        PAGE_BYTES * self.copy_byte_ps * self.clear_percent / 100_000
    }

    /// Clearing 4 KiB of a huge page (clear_huge_page).
    #[must_use]
    pub fn zero_huge_page_ns(&self) -> u64 {
        PAGE_BYTES * self.copy_byte_ps * self.clear_huge_percent / 100_000
    }

    /// A fault that makes one entry.
    #[must_use]
    pub fn fault_ns(&self) -> u64 {
        self.minor_fault_ns + self.map_page_ns
    }

    /// Time of a pass over pages of a list: the look at each page, and freeing or moving it.
    #[must_use]
    pub fn of_scan(&self, sum: &Scanned) -> u64 {
        let unmapped = sum.scanned.saturating_sub(sum.mapped) + sum.aged;
        let mapped = sum.mapped.saturating_sub(sum.passed);
        let looks_ns = unmapped * self.scan_page_ns
            + mapped.min(sum.unmapped) * self.scan_mapped_ns
            + mapped.saturating_sub(sum.unmapped) * self.keep_mapped_ns
            + (sum.passed + sum.skipped) * self.pass_page_ns;
        looks_ns
            + sum.freed * self.free_page_ns
            + sum.buffered * self.drop_buffers_ns
            + sum.unmapped * self.reclaim_mapped_ns
    }

    /// CPU time of an operation on a name, in addition to the model's lookups.
    #[must_use]
    pub fn of_name(&self, op: &Op) -> u64 {
        match op {
            Op::Stat { .. } => self.stat_ns,
            Op::Open { .. } => self.open_ns,
            Op::Close { .. } => self.close_ns,
            Op::Create { .. } => self.create_ns,
            Op::Rename { .. } => self.rename_ns,
            Op::Unlink { .. } => self.unlink_ns,
            Op::List { .. } => self.list_ns,
            _ => 0,
        }
    }
}
