//! A drive with an arm, and the cache in it.
//!
//! Models: where the platter stands at each instant, so that a sequential request in time costs nothing and a late one a turn;
//! seeks that grow with the root of the distance; commands that are served in the order of the time that the arm takes to reach
//! them (NCQ, shortest access first), none passed over by more than a queueful, nor a write that waits for room in the cache; segments of
//! what was read and read on, until a command comes that needs the arm; a write cache that answers after the drive's time for a
//! command, gathers what touches, is written upwards from where the arm is while no read waits, and is emptied by a flush (a request of
//! no pages). Leaves out: zones of different density, skew, defects, the drive's choice of when to read on (it always does), and time to
//! settle before a write.

use std::collections::VecDeque;

use super::block::Request;
use super::constant::constants;
use super::disk::{Answers, DiskModel};
use super::ranges::Ranges;

constants! {
    const INTERFACE_BYTES_PER_S: u64 = published(300_000_000, "SATA of 3 Gbit/s: 8b/10b");
    /// Its own time for a command that its cache answers.
    const COMMAND_NS: u64 = published(77_000, "github.com/apache/doris issue 512: 11 000 writes of 4 KiB a second, less their transfer");
    const SEGMENTS: usize = assumed(16, "drives divide their cache by need, and their manuals give no number");
    /// The shortest seek's part of the mean one, percent.
    const SEEK_LEAST_PERCENT: u64 = assumed(20, "data sheets: 1 to 2 ms of 8 to 9 from track to track, settling included");
}

/// What was read of one stream, up to where the drive has read on.
#[derive(Clone, Copy, Debug)]
struct Segment {
    start: u64,
    end: u64,
    /// Where its buffer is full.
    limit: u64,
}

impl Segment {
    fn holds(&self, request: &Request) -> bool {
        self.start <= request.position && self.end >= request.position + u64::from(request.pages)
    }
}

/// A command that waits for the arm.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    request: Request,
    not_before_ns: u64,
    /// Commands that came later and were served before it, and runs of cached writes.
    passed: usize,
}

/// What the arm is at.
#[derive(Clone, Copy, Debug)]
enum Work {
    Command(Waiting),
    /// Pages of the write cache.
    Destage(u64),
}

#[derive(Debug)]
pub struct Drive {
    model: DiskModel,
    waiting: Vec<Waiting>,
    /// Least recently used first; the last is the one that is read on.
    segments: VecDeque<Segment>,
    /// Written to the cache and not to the platter: by commands since the last flush began, and before.
    dirty: [Ranges; 2],
    /// Flushes that wait for the second, and those that came later.
    flushes: [Vec<Request>; 2],
    arm: Option<(u64, Work)>,
    /// Where the arm is, and since when it has nothing to do.
    head: u64,
    idle_since_ns: u64,
    reads_on: bool,
    interface_until_ns: u64,
    answers: Answers,
}

impl Drive {
    #[must_use]
    pub fn new(model: DiskModel) -> Drive {
        Drive {
            model,
            waiting: Vec::new(),
            segments: VecDeque::new(),
            dirty: Default::default(),
            flushes: Default::default(),
            arm: None,
            head: 0,
            idle_since_ns: 0,
            reads_on: false,
            interface_until_ns: 0,
            answers: Answers::default(),
        }
    }

    fn segment_pages(&self) -> u64 {
        self.model.cache_pages / 2 / SEGMENTS.get() as u64
    }

    fn track_pages(&self) -> u64 {
        ((self.model.rotation_ns as f64 / self.model.page_ns(false)) as u64).max(128)
    }

    /// Takes a command, and answers it from the cache if that can be.
    pub fn accept(&mut self, request: Request, not_before_ns: u64, now_ns: u64) {
        self.advance(now_ns);
        self.read_on(now_ns);
        let all = Waiting { request, not_before_ns, passed: 0 };
        if request.pages == 0 {
            self.flushes[1].push(request);
        } else if !self.answer_from_cache(all, now_ns) {
            self.waiting.push(all);
        }
        self.start(now_ns);
    }

    fn answer_from_cache(&mut self, all: Waiting, now_ns: u64) -> bool {
        let Waiting { request, not_before_ns, .. } = all;
        let (from, to) = (request.position, request.position + u64::from(request.pages));
        let served = if request.write { self.cache_write(from, to) } else { self.find(&request) };
        if served {
            let move_ns = u64::from(request.pages) * 4096 * 1_000_000_000 / INTERFACE_BYTES_PER_S.get();
            self.interface_until_ns = self.interface_until_ns.max(now_ns) + COMMAND_NS.get() + move_ns;
            self.answers.add(self.interface_until_ns.max(not_before_ns), request);
        }
        served
    }

    /// Whether there is room for a write; what was read of these pages is no longer true.
    fn cache_write(&mut self, from: u64, to: u64) -> bool {
        self.segments.retain(|segment| segment.end <= from || segment.start >= to);
        let destaged = if let Some((_, Work::Destage(pages))) = self.arm { pages } else { 0 };
        let held = self.dirty[0].pages() + self.dirty[1].pages() + destaged;
        let has_room = held + (to - from) <= self.model.write_cache_pages();
        if has_room {
            self.dirty[0].insert(from, to);
        }
        has_room
    }

    /// Whether a read is of what is in the cache.
    fn find(&mut self, request: &Request) -> bool {
        let end = request.position + u64::from(request.pages);
        if self.dirty.iter().any(|dirty| dirty.hold(request.position, end)) {
            return true;
        }
        let Some(place) = self.segments.iter().position(|segment| segment.holds(request)) else { return false };
        // The one that is read on goes on with its reader, and stays where it is.
        let last = self.segments.len() - 1;
        if place == last {
            self.segments[last].limit = end + self.segment_pages();
            self.reads_on |= self.arm.is_none() && self.segments[last].end == self.head;
        } else if !self.reads_on
            && let Some(segment) = self.segments.remove(place)
        {
            self.segments.push_back(segment);
        }
        true
    }

    /// What the arm has read since it had nothing else to do.
    fn read_on(&mut self, now_ns: u64) {
        let Some(last) = self.segments.back_mut().filter(|_| self.reads_on && self.arm.is_none()) else { return };
        let page_ns = self.model.page_ns(false);
        let could = ((now_ns - self.idle_since_ns) as f64 / page_ns) as u64;
        let more = could.min(last.limit.saturating_sub(last.end));
        last.end += more;
        self.head = last.end;
        self.idle_since_ns += (more as f64 * page_ns) as u64;
        self.reads_on = last.end < last.limit;
    }

    /// How long the arm takes to be where a page begins.
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
        // The first page passes under the head at each whole turn, a page at a distance so much later.
        let wait_ns = (to as f64 * page_ns - (now_ns as f64 + seek_ns)).rem_euclid(turn_ns);
        (seek_ns + wait_ns) as u64
    }

    /// Where the arm's part of a command begins: behind what is in a segment.
    fn begin_of(&self, request: &Request) -> u64 {
        let begins_in = |held: &&Segment| held.start <= request.position && request.position < held.end;
        let held = self.segments.iter().find(begins_in).filter(|_| !request.write);
        held.map_or(request.position, |held| held.end)
    }

    /// The command that the arm reaches first; before it one that too many have passed.
    fn nearest(&self, now_ns: u64) -> Option<(usize, u64)> {
        if let Some(place) = self.overdue().filter(|&place| self.needs_arm(&self.waiting[place].request)) {
            return Some((place, self.reach_ns(self.begin_of(&self.waiting[place].request), now_ns)));
        }
        let reaches = self.waiting.iter().enumerate().filter(|(_, waiting)| self.needs_arm(&waiting.request));
        reaches.map(|(place, one)| (place, self.reach_ns(self.begin_of(&one.request), now_ns))).min_by_key(|one| one.1)
    }

    /// The first command that too many have passed: one for the arm, or a write that waits for room in the cache.
    fn overdue(&self) -> Option<usize> {
        self.waiting.iter().position(|waiting| waiting.passed >= self.model.depth)
    }

    /// A write waits for room in the cache, where there is one.
    fn needs_arm(&self, request: &Request) -> bool {
        !request.write || self.model.write_cache_pages() < u64::from(request.pages)
    }

    /// Gives the arm something to do.
    fn start(&mut self, now_ns: u64) {
        if self.arm.is_some() {
            return;
        }
        self.begin_flush(now_ns);
        let nearest = self.nearest(now_ns);
        // FLUSH CACHE is no queued command: nothing else is served until it is done.
        let flushes = !self.flushes[0].is_empty();
        let is_short = self.waiting.iter().any(|one| !self.needs_arm(&one.request));
        let overdue = self.overdue().map(|place| self.needs_arm(&self.waiting[place].request));
        let from = usize::from(flushes);
        let run = self.dirty[from].upwards(self.head).map(|(start, _)| (start, self.reach_ns(start, now_ns)));
        match (nearest, run) {
            (Some((_, command_ns)), Some((start, run_ns)))
                if flushes || overdue == Some(false) || (overdue.is_none() && is_short && run_ns < command_ns) =>
            {
                self.destage(from, start, now_ns + run_ns);
            }
            (Some((place, reach_ns)), _) => self.serve(place, now_ns + reach_ns),
            (None, Some((start, run_ns))) => self.destage(from, start, now_ns + run_ns),
            (None, None) => {}
        }
    }

    fn destage(&mut self, from: usize, start: u64, begin_ns: u64) {
        let stop = self.dirty[from].take(start, self.track_pages());
        self.waiting.iter_mut().for_each(|older| older.passed += 1);
        let pages = stop - start;
        self.head = stop;
        self.reads_on = false;
        let end_ns = begin_ns + (pages as f64 * self.model.page_ns(true)) as u64;
        self.arm = Some((end_ns, Work::Destage(pages)));
    }

    fn serve(&mut self, place: usize, begin_ns: u64) {
        let chosen = self.waiting.remove(place);
        self.waiting.iter_mut().take(place).for_each(|older| older.passed += 1);
        let begin = self.begin_of(&chosen.request);
        let end = chosen.request.position + u64::from(chosen.request.pages);
        let pages = end.saturating_sub(begin);
        let end_ns = begin_ns + (pages as f64 * self.model.page_ns(chosen.request.write)) as u64;
        if !chosen.request.write {
            self.note_read(chosen.request.position, end);
        }
        self.reads_on = false;
        self.head = end;
        self.arm = Some((end_ns, Work::Command(chosen)));
    }

    /// A segment of what is being read: the one that ends where this begins, or the one that was not used for longest.
    fn note_read(&mut self, from: u64, to: u64) {
        let limit = to + self.segment_pages();
        let known = self.segments.iter().position(|held| held.start <= from && from <= held.end);
        let start = known.and_then(|place| self.segments.remove(place)).map_or(from, |held| held.start);
        // A segment is a ring: its oldest pages make room.
        let start = start.max(to.saturating_sub(self.segment_pages()));
        self.segments.push_back(Segment { start, end: to, limit });
        if self.segments.len() > SEGMENTS.get() {
            self.segments.pop_front();
        }
    }

    /// A flush begins with what is in the cache now, once the one before it is over.
    fn begin_flush(&mut self, now_ns: u64) {
        if self.dirty[1].is_empty() {
            for request in std::mem::take(&mut self.flushes[0]) {
                self.answers.add(now_ns, request);
            }
            self.flushes.swap(0, 1);
            if !self.flushes[0].is_empty() {
                self.dirty.swap(0, 1);
                if self.dirty[1].is_empty() {
                    self.begin_flush(now_ns);
                }
            }
        }
    }

    /// The arm has done what it was at by now.
    fn advance(&mut self, now_ns: u64) {
        while let Some((end_ns, work)) = self.arm.filter(|(end_ns, _)| *end_ns <= now_ns) {
            self.arm = None;
            self.idle_since_ns = end_ns;
            match work {
                Work::Command(done) => {
                    self.reads_on = !done.request.write && self.model.cache_pages > 0;
                    self.answers.add(end_ns.max(done.not_before_ns), done.request);
                }
                Work::Destage(_) => {
                    let waiting = std::mem::take(&mut self.waiting);
                    for one in waiting {
                        if !one.request.write || !self.answer_from_cache(one, end_ns) {
                            self.waiting.push(one);
                        }
                    }
                }
            }
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
    use super::COMMAND_NS;
    use crate::block::{Done, Request};
    use crate::disk::{Device, DiskModel};

    const MS: u64 = 1_000_000;

    /// 40 us a page, 200 pages a turn of 8 ms.
    fn device(cache_mib: u64, depth: usize) -> Device {
        Device::new(DiskModel {
            read_bytes_per_s: 102_400_000,
            write_bytes_per_s: 102_400_000,
            seek_ns: 8 * MS,
            rotation_ns: 8 * MS,
            access_ns: 0,
            flush_ns: 0,
            pages: 1 << 26,
            in_order: false,
            depth,
            cache_pages: cache_mib << 8,
            caches_writes: true,
            array: None,
            limits: [None; 2],
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
    fn what_the_drive_has_read_on_costs_a_later_read_no_seek_and_no_turn() {
        for (cache_mib, expected_ns) in
            [(16, 10 * MS + COMMAND_NS.get() + 32 * 4096 * 10 / 3), (0, 16 * MS + 32 * 40_000)]
        {
            let mut device = device(cache_mib, 32);
            accept(&mut device, 1, (false, 0, 200), 0);
            assert_eq!(answers(&mut device), [(1, 8 * MS)]);
            // 2 ms later 50 pages more are in the cache; without it the platter has to come round.
            accept(&mut device, 2, (false, 200, 32), 10 * MS);
            let at_ns = answers(&mut device)[0].1;
            assert!(at_ns.abs_diff(expected_ns) < 50_000, "{cache_mib} MiB: {at_ns} {expected_ns}");
        }
    }

    #[test]
    fn queued_commands_are_served_by_how_soon_the_arm_is_there() {
        let order = |depth: usize| {
            let mut device = device(16, depth);
            for (order, position) in [(1, 0), (2, 50_000_000), (3, 20), (4, 60)] {
                accept(&mut device, order, (false, position, 8), 0);
            }
            answers(&mut device).into_iter().map(|(order, _)| order).collect::<Vec<u64>>()
        };
        assert_eq!(order(32), [1, 3, 4, 2], "without a seek first");
        assert!(device(16, 1).model.depth == 1 && order(1).len() == 4);
    }

    #[test]
    fn a_read_elsewhere_is_not_passed_over_for_ever_by_writes_that_follow_each_other() {
        let mut drive = device(16, 32);
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
        // 32 runs of a track of 8 ms at most, and its own seek.
        assert!(reads_ns.is_some_and(|at_ns| at_ns < (32 * 8 + 40) * MS), "{reads_ns:?}");
    }

    #[test]
    fn a_write_that_waits_for_room_in_the_cache_is_not_passed_over_for_ever_by_reads_that_follow_each_other() {
        let mut drive = device(2, 32);
        // The arm is at a read. 1 MiB of cache for writes: the third one waits.
        (0..2).for_each(|read| accept(&mut drive, 3 + read, (false, read * 32, 32), 0));
        (0..3).for_each(|order| accept(&mut drive, order, (true, 50_000_000 + order * 128, 128), 0));
        let (mut reads, mut written) = (2, None);
        while let Some(at_ns) = drive.next_ns().filter(|_| reads < 1000 && written.is_none()) {
            while let Some(request) = drive.answer(at_ns) {
                written = written.or((request.order == 2).then_some(reads));
                if !request.write {
                    accept(&mut drive, 3 + reads, (false, reads * 32, 32), at_ns);
                    reads += 1;
                }
            }
        }
        assert!(written.is_some_and(|reads| (30..40).contains(&reads)), "after {written:?} reads");
    }

    #[test]
    fn a_write_is_answered_from_the_cache_until_it_is_full_and_a_flush_waits_for_the_platter() {
        let mut drive = device(16, 32);
        for order in 0..8 {
            accept(&mut drive, order, (true, order * 7_000_000, 1), 0);
        }
        accept(&mut drive, 8, (true, 0, 0), 0);
        let times = answers(&mut drive);
        assert!(times[..8].iter().all(|(order, at_ns)| *order < 8 && *at_ns < MS), "{times:?}");
        // 77 us and 4096 bytes at 300 MB/s for each, one after the other.
        assert_eq!((times[0].1, times[7].1), (90_653, 8 * 90_653));
        assert!(times[8].0 == 8 && times[8].1 > 8 * 4 * MS, "{times:?}");
        let mut without = device(0, 32);
        (0..8).for_each(|order| accept(&mut without, order, (true, order * 7_000_000, 1), 0));
        assert!(answers(&mut without)[7].1 > 8 * 4 * MS);
        // 8 MiB take writes at 300 MB/s, then as fast as the platter.
        let mut full = device(16, 32);
        (0..24).for_each(|order| accept(&mut full, order, (true, order * 128, 128), 0));
        let times = answers(&mut full);
        assert!(times[15].1 < 30 * MS && times[23].1 > 40 * MS, "{times:?}");
    }
}
