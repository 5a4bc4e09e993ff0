//! kswapd of 3.9 to 4.7, which balances the zones of a node.
//!
//! Models: balance_pgdat without naps: each zone below its high watermark and a gap is reclaimed from, upwards to the highest that is
//! short. 3.9 and 3.10 scan every target to its end and begin again at DEF_PRIORITY once a cluster was freed; 3.11 asks for so
//! many pages as the high watermark and raises the priority where too few were scanned. kswapd_try_to_sleep's tenth of a second.
//! Leaves out: orders above 0, pfmemalloc throttling, buffer_heads over their limit.

use super::Machine;
use super::constant::constants;
use super::kernel::{KswapdRule, ReclaimWrites};
use super::memory::Mm;
use super::reclaim::{self, CLUSTER, DEF_PRIORITY, Pass};
use super::shrinker;
use super::site::Site;
use super::tail::Tail;
use super::task::Task;
use super::zone::{Zone, ZoneKind};

constants! {
    /// A zone with more than a hundredth of itself above the high watermark is spared.
    const BALANCE_GAP_RATIO: u64 = kernel(100, "include/linux/swap.h", "KSWAPD_ZONE_BALANCE_GAP_RATIO", "3.10");
}

impl Zone {
    /// mm/vmscan.c: zone_balanced, 3.10, for order 0.
    fn is_balanced(&self, gap: u64, highest: ZoneKind) -> bool {
        self.above(self.high + gap, highest)
    }

    /// mm/vmscan.c: balance_pgdat (3.10), kswapd_shrink_zone (3.11): the low watermark or a hundredth, whichever is less.
    fn balance_gap(&self) -> u64 {
        self.low.min(self.managed.div_ceil(BALANCE_GAP_RATIO.get()))
    }
}

impl Mm {
    fn note_scanned(&mut self, zone: usize, shrunk_objects: u64, highest: ZoneKind) {
        self.note_unreclaimable(zone, shrunk_objects);
        self.zones[zone].relieve(highest);
    }

    fn zones_of(&self, node: usize) -> Vec<usize> {
        (0..self.zones.len()).filter(|&zone| self.zones[zone].node == node && self.zones[zone].managed > 0).collect()
    }

    /// mm/vmscan.c: pgdat_balanced, 3.10: every zone of the node, but for those that were given up.
    fn is_pgdat_balanced(&self, node: usize) -> bool {
        let own = self.zones.iter().filter(|zone| zone.node == node && zone.managed > 0);
        own.into_iter().all(|zone| zone.all_unreclaimable || zone.is_balanced(0, zone.kind))
    }

    /// The zones up to the highest that is below its high watermark, from the lowest on; each zone on the way down from the top has
    /// some of its anonymous pages aged, and one that is balanced loses its flags.
    fn zones_to_scan(&mut self, node: usize, priority: u32) -> Vec<usize> {
        let zones = self.zones_of(node);
        let short = zones.iter().rposition(|&zone| {
            if self.zones[zone].all_unreclaimable && priority != DEF_PRIORITY.get() {
                return false;
            }
            self.age_anonymous(zone);
            let slot = &mut self.zones[zone];
            let balanced = slot.is_balanced(0, ZoneKind::Dma);
            if balanced {
                slot.tail = Tail { writeback: slot.tail.writeback, ..Tail::default() };
            }
            !balanced
        });
        short.map_or(Vec::new(), |end| zones[..=end].to_vec())
    }
}

/// kswapd's life on one node.
pub async fn live(m: &Machine, task: &mut Task, node: usize) {
    // Before time 0 it slept soundly.
    sleep(m, node, None).await;
    loop {
        task.begin();
        balance(m, task, node).await;
        task.run(m).await;
        // mm/vmscan.c: kswapd_try_to_sleep: a short sleep first; soundly only if that was not premature.
        let tenth_ns = m.profile.jiffy_ns() * m.profile.hz.get() / 10;
        let rests = || m.mm.borrow().is_pgdat_balanced(node);
        if rests() && !sleep(m, node, Some(m.clock.now() + tenth_ns)).await && rests() {
            sleep(m, node, None).await;
        }
    }
}

/// Sleeps until it is woken, or at most so long; true if somebody woke it.
async fn sleep(m: &Machine, node: usize, deadline_ns: Option<u64>) -> bool {
    m.kswapd.borrow_mut()[node] = Some(m.clock.current());
    m.clock.park(deadline_ns).await;
    m.kswapd.borrow_mut()[node].take().is_none()
}

/// What a way over the zones came to.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    scanned: u64,
    freed: u64,
    /// Some zone needed nothing, or was scanned as far as could have brought it to its high watermark (`!raise_priority`).
    enough: bool,
}

/// mm/vmscan.c: balance_pgdat, 3.10 and 3.11.
async fn balance(m: &Machine, task: &mut Task, node: usize) {
    m.mm.borrow_mut().events.pageoutrun += 1;
    let proportional = m.profile.kswapd != KswapdRule::WholeShares;
    let (mut priority, mut scanned) = (DEF_PRIORITY.get(), 0);
    loop {
        let zones = m.mm.borrow_mut().zones_to_scan(node, priority);
        if zones.is_empty() {
            return;
        }
        let round = over_zones(m, task, &zones, priority).await;
        scanned += round.scanned + round.freed;
        let last = if proportional { 1 } else { 0 };
        let raises = if proportional { !round.enough || round.freed == 0 } else { true };
        let ends = !proportional && round.freed >= CLUSTER.get() || raises && priority == last;
        if m.mm.borrow().is_pgdat_balanced(node) || ends {
            break;
        }
        priority -= u32::from(raises);
    }
    if scanned == 0 {
        // Every zone was given up: virtual time has to continue although this loop of the kernel's only spins.
        m.congestion_wait(task, m.profile.jiffy_ns()).await;
    }
    task.begin();
}

async fn over_zones(m: &Machine, task: &mut Task, zones: &[usize], priority: u32) -> Round {
    let mut round = Round::default();
    let Some(highest) = zones.last().map(|&zone| m.mm.borrow().zones[zone].kind) else { return round };
    let lru_pages: u64 = zones.iter().map(|&zone| m.mm.borrow().zone_lru_pages(zone)).sum();
    for &zone in zones {
        let (gap, target, given_up) = {
            let mm = m.mm.borrow();
            let slot = &mm.zones[zone];
            (slot.balance_gap(), slot.high.max(CLUSTER.get()), slot.all_unreclaimable)
        };
        if given_up && priority != DEF_PRIORITY.get() {
            continue;
        }
        if m.mm.borrow().zones[zone].is_balanced(gap, highest) {
            round.enough = true;
            continue;
        }
        let proportional = m.profile.kswapd != KswapdRule::WholeShares;
        let target = if proportional { target } else { u64::MAX };
        let sum = reclaim::shrink_zone(m, task, zone, priority, target, pass(m, task, zone, priority)).await;
        let shrunk = shrinker::shrink_slab(m, task, sum.scanned, lru_pages, true, Site::ShrinkSlab).await;
        round.scanned += sum.scanned;
        round.freed += sum.freed + shrunk.counted(m);
        round.enough |= sum.scanned >= target;
        m.mm.borrow_mut().note_scanned(zone, shrunk.objects, highest);
        task.run(m).await;
        task.begin();
    }
    round
}

impl Zone {
    /// mm/vmscan.c: kswapd_shrink_zone, 3.11: pages under writeback are forgotten each time, the rest once the zone is balanced.
    fn relieve(&mut self, highest: ZoneKind) {
        self.tail.writeback = false;
        if !self.all_unreclaimable && self.is_balanced(0, highest) {
            self.tail = Tail::default();
        }
    }
}

/// What kswapd may do: dirty pages of files are written below priority 10 (3.2 to 3.10), later where they fill the zone's tail.
fn pass(m: &Machine, task: &Task, zone: usize, priority: u32) -> Pass {
    let may_write = match (m.profile.reclaim_writes, m.profile.kswapd) {
        (ReclaimWrites::Nobody, _) => false,
        (ReclaimWrites::Everybody, _) => true,
        (ReclaimWrites::Kswapd, KswapdRule::WholeShares) => priority < DEF_PRIORITY.get() - 2,
        (ReclaimWrites::Kswapd, _) => m.mm.borrow().zones[zone].tail.dirty,
    };
    Pass { may_unmap: true, may_write, cpu: task.cpu, site: Site::DirectReclaim, kswapd: true }
}

#[cfg(test)]
mod tests {
    use crate::build::memory;
    use crate::kernel::find;
    use crate::run;
    use crate::tail::Tail;
    use crate::zone::{Zone, ZoneKind};
    use flatwater_recording::{Entity, Table};
    use flatwater_workload::scenario::Scenario;

    #[test]
    fn a_zone_is_reclaimed_from_up_to_a_gap_above_its_high_watermark() {
        let mut zone = Zone::new(0, ZoneKind::Normal, 100_000, 100_000);
        (zone.low, zone.high) = (1250, 1500);
        // A hundredth of the zone; of a small zone with high watermarks the low one.
        assert_eq!(zone.balance_gap(), 1000);
        zone.low = 600;
        assert_eq!(zone.balance_gap(), 600);
        for (free, balanced) in [(2100, false), (2101, true)] {
            zone.free = free;
            assert_eq!(zone.is_balanced(600, ZoneKind::Normal), balanced, "{free} pages free");
        }
    }

    #[test]
    fn zones_are_scanned_up_to_the_highest_that_is_short() {
        let mut mm = memory(&find("linux-3.11").expect("a profile"), &[5 << 30], 1);
        for zone in &mut mm.zones {
            (zone.free, zone.high) = (1000, 100);
            (zone.tail.dirty, zone.tail.writeback) = (true, true);
        }
        assert!(mm.is_pgdat_balanced(0) && mm.zones_to_scan(0, 12).is_empty());
        assert_eq!(mm.zones[0].tail, Tail { writeback: true, ..Tail::default() }, "what is balanced is not dirty");
        // DMA, DMA32, Normal.
        mm.zones[1].free = 50;
        assert_eq!(mm.zones_to_scan(0, 12), [0, 1]);
        mm.zones[2].free = 50;
        assert_eq!(mm.zones_to_scan(0, 12), [0, 1, 2]);
        // A zone that was given up is tried at DEF_PRIORITY alone, and counts as balanced.
        mm.zones[2].all_unreclaimable = true;
        assert_eq!((mm.zones_to_scan(0, 12).len(), mm.zones_to_scan(0, 11).len()), (3, 2));
        mm.zones[1].free = 1000;
        assert!(mm.is_pgdat_balanced(0));
    }

    /// Pages of a program that fills the highest zone swapped out beside writes that fill the one below.
    fn swapped(kernel: &str) -> i64 {
        let text = format!(
            "name = 'x'\nsentence = 'X.'\nduration = '14s'\nthreshold = '1s'\nkernel = '{kernel}'\n\
             [machine]\ncpus = 4\nnodes = ['4GiB']\nswap = '4GiB'\n\
             disk = {{ size = '16GB', write_bps = '115MB', iops = 20000, file_system = 'ext4' }}\n\
             [setup]\n'queue.scheduler' = 'deadline'\n\
             [[workload]]\nuse = 'memory'\nthreads = 4\nsize = '512MiB'\ncompute = '20us'\n\
             [[workload]]\nuse = 'stream'\nrole = 'neighbour'\nstart = '4s'\nbytes = '1MiB'\nfile_size = '4GiB'\n"
        );
        let ran =
            run(&Scenario::parse("x", &text).expect("parses")).unwrap_or_else(|error| panic!("{kernel}: {error}")).0;
        let vmstat = ran.table(Table::Vmstat).expect("vmstat");
        vmstat.rows_of(&Entity::default()).expect("rows").last("pswpout").unwrap_or(0)
    }

    #[test]
    fn a_writer_has_less_of_a_program_swapped_out_from_3_11_on() {
        let [before, after, later] = ["linux-3.10", "linux-3.11", "linux-3.14"].map(swapped);
        assert!(2 * before > 3 * after && after >= later, "{before}, {after}, {later} pages");
    }

    #[test]
    fn flags_go_with_the_pressure() {
        let mut zone = Zone::new(0, ZoneKind::Normal, 10_000, 10_000);
        (zone.high, zone.free) = (100, 50);
        zone.tail = Tail { dirty: true, writeback: true, congested: true };
        zone.relieve(ZoneKind::Normal);
        assert_eq!(zone.tail, Tail { dirty: true, writeback: false, congested: true });
        zone.free = 101;
        zone.relieve(ZoneKind::Normal);
        assert_eq!(zone.tail, Tail::default());
    }
}
