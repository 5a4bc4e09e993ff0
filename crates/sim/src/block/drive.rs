//! A drive with an arm.
//!
//! Models: the platter's angle at each instant, so that a sequential request in time costs nothing and a late one a
//! turn; seeks that grow with the root of the distance; NCQ: of the queued commands the arm serves the one that it
//! reaches first, and no command is passed over by more than a queueful of later ones. Leaves out: the drive's cache,
//! zones of different density, skew, defects, and time to settle before a write.

use crate::block::Request;
use crate::block::disk::{Answers, DiskModel};
use crate::constant::constants;

constants! {
    /// The shortest seek, percent of the mean seek.
    const SEEK_LEAST_PERCENT: u64 = assumed(20, "data sheets: 1 to 2 ms of 8 to 9 from track to track, settling included");
}

/// A command that waits for the arm.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    request: Request,
    not_before_ns: u64,
    /// Commands that came later and were served before it.
    passed: usize,
}

#[derive(Debug)]
pub struct Drive {
    model: DiskModel,
    waiting: Vec<Waiting>,
    /// The command that is being served, and when it ends.
    arm: Option<(u64, Waiting)>,
    /// The arm's position, and since when it is idle.
    head: u64,
    idle_since_ns: u64,
    answers: Answers,
}

impl Drive {
    #[must_use]
    pub fn new(model: DiskModel) -> Drive {
        Drive { model, waiting: Vec::new(), arm: None, head: 0, idle_since_ns: 0, answers: Answers::default() }
    }

    fn track_pages(&self) -> u64 {
        ((self.model.rotation_ns as f64 / self.model.page_ns(false)) as u64).max(128)
    }

    pub fn accept(&mut self, request: Request, not_before_ns: u64, now_ns: u64) {
        self.advance(now_ns);
        self.waiting.push(Waiting { request, not_before_ns, passed: 0 });
        self.start(now_ns);
    }

    /// Time until the beginning of a page is under the head.
    fn reach_ns(&self, to: u64, now_ns: u64) -> u64 {
        let away = to.abs_diff(self.head);
        let page_ns = self.model.page_ns(false);
        if away == 0 && now_ns - self.idle_since_ns < page_ns as u64 {
            return 0;
        }
        let ahead = to >= self.head && away < self.track_pages();
        // Seek time grows with the root of the distance; the mean over random pairs is the given mean.
        let far = (away as f64 / self.model.pages.max(1) as f64).min(1.0).sqrt();
        let least = SEEK_LEAST_PERCENT.get() as f64 / 100.0;
        let seek_ns = if ahead { 0.0 } else { self.model.seek_ns as f64 * (least + (1.0 - least) / 0.533 * far) };
        let turn_ns = self.model.rotation_ns as f64;
        if turn_ns < 1.0 {
            return seek_ns as u64;
        }
        // Page 0 passes under the head at each whole turn, page n after the transfer time of n pages.
        let wait_ns = (to as f64 * page_ns - (now_ns as f64 + seek_ns)).rem_euclid(turn_ns);
        (seek_ns + wait_ns) as u64
    }

    /// The command that the arm reaches first, unless a command was passed over by a queueful.
    fn nearest(&self, now_ns: u64) -> Option<(usize, u64)> {
        let reach_ns = |place: usize| self.reach_ns(self.waiting[place].request.position, now_ns);
        if let Some(place) = self.waiting.iter().position(|waiting| waiting.passed >= self.model.depth) {
            return Some((place, reach_ns(place)));
        }
        (0..self.waiting.len()).map(|place| (place, reach_ns(place))).min_by_key(|one| one.1)
    }

    /// Starts the next command if the arm is idle.
    fn start(&mut self, now_ns: u64) {
        if self.arm.is_some() {
            return;
        }
        let Some((place, reach_ns)) = self.nearest(now_ns) else { return };
        let chosen = self.waiting.remove(place);
        self.waiting.iter_mut().take(place).for_each(|older| older.passed += 1);
        let Request { position, pages, write, .. } = chosen.request;
        self.head = position + u64::from(pages);
        let end_ns = now_ns + reach_ns + (f64::from(pages) * self.model.page_ns(write)) as u64;
        self.arm = Some((end_ns, chosen));
    }

    /// Ends commands that are done by now.
    fn advance(&mut self, now_ns: u64) {
        while let Some((end_ns, done)) = self.arm.filter(|(end_ns, _)| *end_ns <= now_ns) {
            self.arm = None;
            self.idle_since_ns = end_ns;
            self.answers.add(end_ns.max(done.not_before_ns), done.request);
            self.start(end_ns);
        }
    }

    pub fn answer(&mut self, now_ns: u64) -> Option<Request> {
        self.advance(now_ns);
        self.answers.take(now_ns)
    }

    pub fn next_ns(&self) -> Option<u64> {
        self.answers.next_ns().into_iter().chain(self.arm.map(|(end_ns, _)| end_ns)).min()
    }
}

#[cfg(test)]
mod tests {
    use crate::block::disk::{Device, DiskModel};
    use crate::block::{Done, Request};

    const MS: u64 = 1_000_000;

    /// 40 us a page, 200 pages a turn of 8 ms.
    fn device(depth: usize) -> Device {
        Device::new(DiskModel {
            read_bytes_per_s: 102_400_000,
            write_bytes_per_s: 102_400_000,
            seek_ns: 8 * MS,
            rotation_ns: 8 * MS,
            access_ns: 0,
            pages: 1 << 26,
            in_order: false,
            depth,
        })
    }

    fn accept(device: &mut Device, order: u64, (write, position, pages): (bool, u64, u32), now_ns: u64) {
        device.accept(Request { order, ..Request::new(write, position, pages, Done::Wake(0)) }, 0, now_ns);
    }

    /// Which requests were answered, and when.
    fn answers(device: &mut Device) -> Vec<(u64, u64)> {
        let mut all = Vec::new();
        while let Some(at_ns) = device.next_ns() {
            while let Some(request) = device.answer(at_ns) {
                all.push((request.order, at_ns));
            }
        }
        all
    }

    #[test]
    fn a_late_sequential_read_waits_for_the_platter() {
        let mut device = device(32);
        accept(&mut device, 1, (false, 0, 200), 0);
        assert_eq!(answers(&mut device), [(1, 8 * MS)]);
        accept(&mut device, 2, (false, 200, 32), 10 * MS);
        let (at_ns, expected_ns) = (answers(&mut device)[0].1, 16 * MS + 32 * 40_000);
        assert!(at_ns.abs_diff(expected_ns) < 50_000, "{at_ns} {expected_ns}");
    }

    #[test]
    fn queued_commands_are_served_by_how_soon_the_arm_is_there() {
        let mut device = device(32);
        for (order, position) in [(1, 0), (2, 50_000_000), (3, 20), (4, 60)] {
            accept(&mut device, order, (false, position, 8), 0);
        }
        let order: Vec<u64> = answers(&mut device).into_iter().map(|(order, _)| order).collect();
        assert_eq!(order, [1, 3, 4, 2], "without a seek first");
    }

    #[test]
    fn at_most_a_queueful_of_later_writes_passes_a_read_elsewhere() {
        let mut drive = device(32);
        (0..31).for_each(|order| accept(&mut drive, order, (true, order * 128, 128), 0));
        accept(&mut drive, 1000, (false, 50_000_000, 1), 0);
        let (mut order, mut reads_ns) = (31, None);
        while let Some(at_ns) = drive.next_ns().filter(|at_ns| *at_ns < 2000 * MS && reads_ns.is_none()) {
            while let Some(request) = drive.answer(at_ns) {
                reads_ns = reads_ns.or((request.order == 1000).then_some(at_ns));
                accept(&mut drive, order, (true, order * 128, 128), at_ns);
                order += 1;
            }
        }
        // 31 writes came before the read and 32 later ones may pass it; each moves 128 pages of 40 us and follows the
        // one before without a seek. Then the read's seek over 50 million of 2^26 pages, at most one turn, and its
        // page.
        let writes_ns = (31 + 32) * 128 * 40_000;
        let seek_ns = (8e6 * (0.2 + 0.8 / 0.533 * (50e6 / f64::from(1 << 26)).sqrt())) as u64;
        assert!(reads_ns.is_some_and(|at_ns| at_ns <= writes_ns + seek_ns + 8 * MS + 40_000), "{reads_ns:?}");
    }
}
