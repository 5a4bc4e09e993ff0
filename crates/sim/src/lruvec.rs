//! shrink_lruvec by zone, from 3.9 to 4.7: how far each list of a zone is scanned.
//!
//! Models: a scan target of 1/2^priority for each of the four lists, a cluster of each in turn (an active list is aged only while its
//! inactive one is low), and when that ends: once enough was freed below DEF_PRIORITY (3.9, 3.10); in proportion to the targets
//! for kswapd and at once for others (3.11); one nudge towards proportion for all (3.16). Granularity: a target of less than a
//! cluster is saved up. Leaves out: lists by memory cgroup, too_many_isolated.

use super::Machine;
use super::chunk::{ACTIVE, INACTIVE};
use super::kernel::KswapdRule;
use super::memory::Mm;
use super::reclaim::{self, CLUSTER, DEF_PRIORITY, Pass, Scanned};
use super::tail;
use super::task::Task;

/// include/linux/mmzone.h: enum lru_list, 3.10.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lru {
    InactiveAnon,
    ActiveAnon,
    InactiveFile,
    ActiveFile,
}

use Lru::{ActiveAnon, ActiveFile, InactiveAnon, InactiveFile};

const ALL: [Lru; 4] = [InactiveAnon, ActiveAnon, InactiveFile, ActiveFile];
const OF_ANON: [Lru; 2] = [InactiveAnon, ActiveAnon];
const OF_FILES: [Lru; 2] = [InactiveFile, ActiveFile];

/// What is left to scan of each list, in the kernel's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lists {
    pub left: [u64; 4],
    targets: [u64; 4],
    /// Scanning was brought into proportion, or is not to be (`scan_adjusted`).
    adjusted: bool,
}

impl Lists {
    pub fn of(targets: [u64; 4]) -> Lists {
        Lists { left: targets, targets, adjusted: false }
    }

    /// The active anonymous list alone keeps nobody at it.
    fn is_left(&self) -> bool {
        ALL.iter().any(|&list| list != ActiveAnon && self.left[list as usize] > 0)
    }

    fn take(&mut self, list: Lru, scanned: u64) {
        let left = &mut self.left[list as usize];
        *left = left.saturating_sub(scanned.max(CLUSTER.get()));
    }

    fn sums(&self) -> [u64; 2] {
        [OF_ANON, OF_FILES].map(|kind| kind.iter().map(|&list| self.left[list as usize]).sum())
    }

    /// mm/vmscan.c: shrink_lruvec, 3.11: the kind with less left is done with; of the other as large a part of its target is
    /// scanned as was of that.
    fn adjust(&mut self) {
        let [anonymous, file] = self.sums();
        let (less, more) = if file > anonymous { (OF_ANON, OF_FILES) } else { (OF_FILES, OF_ANON) };
        let target = less.iter().map(|&list| self.targets[list as usize]).sum::<u64>() + 1;
        let percentage = anonymous.min(file) * 100 / target;
        for list in less {
            self.left[list as usize] = 0;
        }
        for list in more.map(|list| list as usize) {
            let scanned = self.targets[list] - self.left[list];
            self.left[list] = (self.targets[list] * (100 - percentage) / 100).saturating_sub(scanned);
        }
        self.adjusted = true;
    }

    /// What becomes of the rest once enough was freed; true if nothing is to follow.
    pub fn ends(&mut self, rule: KswapdRule, pass: Pass, priority: u32) -> bool {
        match rule {
            KswapdRule::Naps | KswapdRule::WholeShares => priority < DEF_PRIORITY.get(),
            _ if self.adjusted => false,
            KswapdRule::Proportional if !pass.kswapd => true,
            KswapdRule::ProportionalOnce if self.sums().contains(&0) => true,
            KswapdRule::Proportional | KswapdRule::ProportionalOnce => {
                self.adjust();
                false
            }
        }
    }
}

impl Mm {
    /// mm/vmscan.c: get_scan_count: what to scan of the four lists of a zone.
    fn lists(&mut self, zone: usize, priority: u32, swappiness: u64) -> Lists {
        let (file, anonymous) = (self.zones[zone].lruvec, self.zones[zone].anonymous_lruvec);
        let file_is_low = self.inactive_is_low(file);
        let fractions = self.fractions(zone, priority, swappiness, file_is_low);
        let mut target = |lruvec: u8, list: usize| {
            let held = &mut self.chunks.lruvecs[usize::from(lruvec)];
            let pages = held.pages[list] >> priority;
            held.saved[list] +=
                if lruvec == file { fractions.file_share(pages) } else { fractions.anonymous_share(pages) };
            if held.saved[list] >= CLUSTER.get() { std::mem::take(&mut held.saved[list]) } else { 0 }
        };
        let own = [(anonymous, INACTIVE), (anonymous, ACTIVE), (file, INACTIVE), (file, ACTIVE)];
        Lists::of(own.map(|(lruvec, list)| target(lruvec, list)))
    }

    /// mm/vmscan.c: shrink_list: a cluster of one list.
    fn shrink_list(&mut self, zone: usize, list: Lru, pass: Pass) -> Scanned {
        let (file, anonymous) = (self.zones[zone].lruvec, self.zones[zone].anonymous_lruvec);
        let aged = |aged| Scanned { aged, ..Scanned::default() };
        match list {
            InactiveFile => self.scan_cluster(file, pass, None, true),
            ActiveFile if self.inactive_is_low(file) => aged(self.age_active(file, CLUSTER.get())),
            ActiveAnon if self.anonymous_is_low(anonymous) => aged(self.age_active(anonymous, CLUSTER.get())),
            ActiveFile | ActiveAnon => Scanned::default(),
            InactiveAnon => self.scan_cluster(anonymous, pass, None, true),
        }
    }

    /// mm/vmscan.c: age_active_anon: so that pages have a chance to be referenced before they are reclaimed.
    pub fn age_anonymous(&mut self, zone: usize) -> u64 {
        let lruvec = self.zones[zone].anonymous_lruvec;
        if self.anonymous_is_low(lruvec) { self.age_active(lruvec, CLUSTER.get()) } else { 0 }
    }
}

/// mm/vmscan.c: shrink_zone, shrink_lruvec: what was scanned and freed of a zone's lists at one priority.
pub async fn shrink(m: &Machine, task: &mut Task, zone: usize, priority: u32, target: u64, pass: Pass) -> Scanned {
    let rule = m.profile.kswapd;
    let mut lists = m.mm.borrow_mut().lists(zone, priority, m.swappiness());
    lists.adjusted = rule == KswapdRule::ProportionalOnce && !pass.kswapd && priority == DEF_PRIORITY.get();
    let mut sum = Scanned::default();
    while lists.is_left() {
        for list in ALL {
            if lists.left[list as usize] == 0 {
                continue;
            }
            let congested = tail::is_congested(m, zone, list == InactiveFile);
            let step = m.mm.borrow_mut().shrink_list(zone, list, pass);
            lists.take(list, step.scanned + step.aged);
            reclaim::charge_scan(m, task, step, pass.site);
            sum.add(step);
            reclaim::pageout(m, task, pass).await;
            tail::stall(m, task, zone, step, congested, pass).await;
        }
        if task.pending_ns() > m.costs.burst_ns {
            task.run(m).await;
        }
        if sum.freed >= target && lists.ends(rule, pass, priority) {
            break;
        }
    }
    let aged = m.mm.borrow_mut().age_anonymous(zone);
    let step = Scanned { aged, ..Scanned::default() };
    reclaim::charge_scan(m, task, step, pass.site);
    sum.add(step);
    sum
}

#[cfg(test)]
mod tests {
    use super::Lists;
    use crate::kernel::KswapdRule::{Proportional, ProportionalOnce, WholeShares};
    use crate::reclaim::Pass;
    use crate::site::Site;

    const KSWAPD: Pass = Pass { may_unmap: true, may_write: false, cpu: 0, site: Site::DirectReclaim, kswapd: true };
    const DIRECT: Pass = Pass { kswapd: false, ..KSWAPD };

    #[test]
    fn the_longer_lists_are_scanned_as_far_as_the_shorter_ones_were() {
        // Of 400 anonymous and 1000 file pages 100 each were scanned.
        let mut lists = Lists { left: [300, 0, 900, 0], ..Lists::of([400, 0, 1000, 0]) };
        // More file pages are left: percentage 300 * 100 / 401 = 74, so 1000 * 26 / 100 - 100 = 160 of them are to follow.
        lists.adjust();
        assert_eq!(lists.left, [0, 0, 160, 0]);
        // Both lists of a kind count, and each is brought into proportion: (50 + 50) * 100 / 201 = 49; 600 * 51 / 100 - 100.
        let mut lists = Lists { left: [500, 600, 50, 50], ..Lists::of([600, 600, 100, 100]) };
        lists.adjust();
        assert_eq!(lists.left, [206, 306, 0, 0]);
        // No anonymous target: percentage 0, so that the file pages' target is scanned to its end.
        let mut lists = Lists { left: [0, 0, 900, 0], ..Lists::of([0, 0, 1000, 0]) };
        lists.adjust();
        assert_eq!(lists.left, [0, 0, 900, 0]);
    }

    #[test]
    fn when_enough_was_freed_3_10_stops_below_def_priority_3_11_keeps_proportion_and_3_16_once() {
        let lists = || Lists { left: [300, 0, 900, 0], ..Lists::of([400, 0, 1000, 0]) };
        assert!(lists().ends(WholeShares, DIRECT, 11) && !lists().ends(WholeShares, DIRECT, 12));
        assert!(lists().ends(Proportional, DIRECT, 12), "for its caller, what is enough is enough");
        let mut of_kswapd = lists();
        assert!(!of_kswapd.ends(Proportional, KSWAPD, 11) && of_kswapd.left[2] == 160);
        assert!(!of_kswapd.ends(Proportional, KSWAPD, 11) && of_kswapd.left[2] == 160, "no second time");
        let mut of_files = Lists { left: [0, 0, 900, 0], ..Lists::of([0, 0, 1000, 0]) };
        assert!(!of_files.ends(Proportional, KSWAPD, 11) && of_files.left[2] == 900, "to the end");
        let mut of_files = Lists { left: [0, 0, 900, 0], ..Lists::of([0, 0, 1000, 0]) };
        assert!(of_files.ends(ProportionalOnce, KSWAPD, 11), "3.16: nothing to be in proportion to");
    }
}
