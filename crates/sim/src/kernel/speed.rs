//! A profile's CPU times on a machine of which some were measured.
//!
//! What was measured stands as it is; everything else of the kernel is scaled as bringing a page into the page cache is.

use super::{CostTable, Costs};
use crate::fault::AROUND_PAGES;
use flatwater_recording::Speed;
use flatwater_workload::scenario::MachineSpec;

const PAGE: u64 = 4096;

impl Costs {
    /// clear_page.
    #[must_use]
    pub fn zero_page_ns(&self) -> u64 {
        PAGE * self.copy_byte_ps * self.clear_percent / 100_000
    }

    /// clear_huge_page, for each 4 KiB.
    #[must_use]
    pub fn zero_huge_page_ns(&self) -> u64 {
        PAGE * self.copy_byte_ps * self.clear_huge_percent / 100_000
    }

    /// Times on the machine that was measured.
    #[must_use]
    pub fn measured(&self, speed: &Speed) -> Costs {
        let copy_byte_ps = speed.copy_byte_ps.unwrap_or(self.copy_byte_ps);
        let own_page_ns = (self.alloc_page_ns + self.add_to_cache_ns).max(1);
        let zero_ns = Costs { copy_byte_ps, ..*self }.zero_page_ns();
        let page_ns = speed.cache_page_ns.map_or(own_page_ns, |ns| ns.saturating_sub(zero_ns)).max(1);
        let scaled = self.at_ratio(page_ns, own_page_ns);
        let copy_ns = PAGE * copy_byte_ps / 1000;
        // What the model charges of an operation on a name anyway is its lookups.
        let lookup_ns = speed.stat_ns.map_or(scaled.lookup_ns, |ns| ns.min(scaled.lookup_ns));
        let beside =
            |measured: Option<u64>, own: u64, lookups: u64| measured.map_or(own, |ns| ns.saturating_sub(lookups));
        let inserts_ns = scaled.alloc_page_ns + scaled.add_to_cache_ns + scaled.slab_object_ns + copy_ns;
        let reclaimed_ns =
            speed.pageout_page_ns.zip(speed.drop_page_ns).map(|(out, dropped)| out.saturating_sub(dropped));
        // What else reclaim does with a page takes as much longer as dropping one.
        let with_drop = |own: u64, scaled: u64| {
            speed.drop_page_ns.map_or(scaled, |measured| own * measured / self.free_page_ns.max(1))
        };
        // The pages were touched in order: one fault mapped as many as a block has.
        let faults_ns = |ns: u64| AROUND_PAGES.get() * ns;
        let own_ns = scaled.minor_fault_ns + faults_ns(scaled.map_page_ns);
        let [minor_fault_ns, map_page_ns] = [scaled.minor_fault_ns, scaled.map_page_ns]
            .map(|ns| speed.fault_page_ns.map_or(ns, |page_ns| faults_ns(page_ns) * ns / own_ns.max(1)));
        Costs {
            copy_byte_ps,
            reclaim_mapped_ns: reclaimed_ns.unwrap_or(scaled.reclaim_mapped_ns),
            write_base_ns: speed.call_ns.unwrap_or(scaled.write_base_ns),
            write_page_ns: speed.write_page_ns.map_or(scaled.write_page_ns, |ns| ns.saturating_sub(inserts_ns)),
            free_page_ns: speed.drop_page_ns.unwrap_or(scaled.free_page_ns),
            scan_page_ns: with_drop(self.scan_page_ns, scaled.scan_page_ns),
            drop_buffers_ns: with_drop(self.drop_buffers_ns, scaled.drop_buffers_ns),
            minor_fault_ns,
            map_page_ns,
            touch_ns: speed.touch_ns.unwrap_or(scaled.touch_ns),
            unmap_page_ns: speed.unmap_page_ns.unwrap_or(scaled.unmap_page_ns),
            lookup_ns,
            exec_ns: beside(speed.process_ns, scaled.exec_ns, scaled.fork_ns),
            stat_ns: beside(speed.stat_ns, scaled.stat_ns, lookup_ns),
            open_ns: beside(speed.open_ns, scaled.open_ns, lookup_ns),
            close_ns: beside(speed.close_ns, scaled.close_ns, lookup_ns / 2),
            create_ns: beside(speed.create_ns, scaled.create_ns, lookup_ns),
            rename_ns: beside(speed.rename_ns, scaled.rename_ns, lookup_ns),
            unlink_ns: beside(speed.unlink_ns, scaled.unlink_ns, lookup_ns),
            list_ns: beside(speed.list_ns, scaled.list_ns, 4 * lookup_ns),
            ..scaled
        }
    }
}

impl CostTable {
    /// Times on the machine of a scenario.
    #[must_use]
    pub fn on(&self, machine: &MachineSpec) -> Costs {
        let own = self.values();
        match &machine.speed {
            Some(speed) => own.measured(speed),
            None => own.at_speed(u64::from(machine.cpu_speed_percent.unwrap_or(100))),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::kernel::find;
    use crate::reclaim::Scanned;
    use flatwater_recording::Speed;

    #[test]
    fn what_was_measured_stands_and_the_rest_follows_the_page_cache() {
        let own = find("linux-6.1").expect("a profile").costs.values();
        let zero_ns = own.zero_page_ns();
        let ten_times = 10 * (own.alloc_page_ns + own.add_to_cache_ns) + zero_ns;
        let costs = own.measured(&Speed { cache_page_ns: Some(ten_times), touch_ns: Some(7), ..Speed::default() });
        assert_eq!((costs.touch_ns, costs.copy_byte_ps), (7, own.copy_byte_ps));
        assert_eq!(costs.scan_page_ns, 10 * own.scan_page_ns);
        assert_eq!(costs.alloc_page_ns + costs.add_to_cache_ns, ten_times - zero_ns);
        assert_eq!(own.measured(&Speed::default()).scan_page_ns, own.scan_page_ns);
    }

    /// Of 40 pages at a tail 30 are mapped and 20 of those are freed: 10 looks at unmapped pages, 20 at mapped ones that go and 10 at such
    /// that stay, 30 pages freed.
    #[test]
    fn a_mapped_page_takes_more_to_free() {
        let own = find("linux-6.1").expect("a profile").costs.values();
        let costs = own.measured(&Speed { drop_page_ns: Some(500), pageout_page_ns: Some(2_100), ..Speed::default() });
        assert_eq!(costs.reclaim_mapped_ns, 1_600, "MADV_PAGEOUT less POSIX_FADV_DONTNEED");
        let sum = Scanned { scanned: 40, mapped: 30, freed: 30, unmapped: 20, ..Scanned::default() };
        let looks_ns = 10 * costs.scan_page_ns + 20 * costs.scan_mapped_ns + 10 * costs.keep_mapped_ns;
        assert_eq!(costs.of_scan(&sum), looks_ns + 30 * 500 + 20 * 1_600);
    }

    /// A stat() is a lookup and what is beside it, a listing four.
    #[test]
    fn operations_on_names_take_what_was_measured() {
        let own = find("linux-6.12").expect("a profile").costs.values();
        let speed = Speed {
            stat_ns: Some(700),
            list_ns: Some(9_000),
            create_ns: Some(500),
            process_ns: Some(2_000_000),
            ..Speed::default()
        };
        let costs = own.measured(&speed);
        assert_eq!(costs.fork_ns + costs.exec_ns, 2_000_000);
        assert_eq!((costs.lookup_ns, costs.stat_ns), (700, 0));
        assert_eq!((4 * costs.lookup_ns + costs.list_ns, costs.create_ns), (9_000, 0));
        assert_eq!(costs.rename_ns, own.rename_ns, "not measured");
    }
}
