//! A profile's CPU times on a machine of which some were measured.
//!
//! What was measured stands as it is; everything else of the kernel is scaled as bringing a page into the page cache is.

use super::{CostTable, Costs};
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
        let inserts_ns = scaled.alloc_page_ns + scaled.add_to_cache_ns + scaled.slab_object_ns + copy_ns;
        Costs {
            copy_byte_ps,
            write_base_ns: speed.call_ns.unwrap_or(scaled.write_base_ns),
            write_page_ns: speed.write_page_ns.map_or(scaled.write_page_ns, |ns| ns.saturating_sub(inserts_ns)),
            free_page_ns: speed.drop_page_ns.unwrap_or(scaled.free_page_ns),
            minor_fault_ns: speed.fault_page_ns.unwrap_or(scaled.minor_fault_ns),
            touch_ns: speed.touch_ns.unwrap_or(scaled.touch_ns),
            unmap_page_ns: speed.unmap_page_ns.unwrap_or(scaled.unmap_page_ns),
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
}
