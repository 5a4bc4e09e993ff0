//! Several drives behind one device: md, or a controller with a command time, a link and a cache with a battery.
//!
//! Models: requests cut by `stripes` into commands of the drives, each with a queue of its own that is served upwards; reads of a
//! mirror by the one that reads on there, else an idle one, else the nearest (raid1.c: read_balance, 2.6.32); a write of raid5
//! waits for the rest of its stripe until the queue above is empty or 256 rows of pages are held (raid5.c: raid5_unplug_device,
//! NR_STRIPES), then reads what it lacks. A controller takes a time for each command, one after the other, moves data over its
//! link, answers writes once they are in its cache, and writes whole stripes from there at once, others when half of it is dirty or
//! an interval is over. Leaves out: missing drives and rebuilding, bitmaps, a controller's own readahead, two controllers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::block::{Done, Request};
use super::constant::constants;
use super::disk::{Answers, DiskModel, Unit};
use super::ranges::Ranges;
use super::stripes::{Geometry, Level, Piece, Plan};

constants! {
    /// Rows of pages that raid5 holds at once.
    const ROWS_HELD: u64 = kernel(256, "drivers/md/raid5.c", "NR_STRIPES", "2.6.32");
    /// Stripes that a controller writes from its cache at once, for each drive.
    const DESTAGES_PER_DRIVE: usize = assumed(2, "one that a drive is at and one that follows it");
    /// How long a part of a stripe stays in its cache.
    const FLUSH_INTERVAL_NS: u64 = published(4_000_000_000, "MegaRAID's MegaCLI manual: CacheFlushInterval, 4 s by default");
    pub const COMMAND_NS: u64 = assumed(20_000, "RAID processors state some ten thousand commands a second");
    pub const LINK_BYTES_PER_S: u64 = published(1_000_000_000, "PCI Express 1.0 with four lanes");
}

/// The processor in front of the drives.
#[derive(Clone, Copy, Debug)]
pub struct Controller {
    pub command_ns: u64,
    pub link_bytes_per_s: u64,
    /// Of the cache whose writes survive a power cut; 0 where there is none.
    pub cache_pages: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct ArrayModel {
    pub geometry: Geometry,
    /// Commands that a drive takes at once.
    pub drive_depth: usize,
    /// None: md.
    pub controller: Option<Controller>,
}

/// A drive and what waits for it.
#[derive(Debug)]
struct Member {
    unit: Unit,
    inside: usize,
    queue: BTreeMap<(u64, u64), Request>,
    /// Where its last command ended.
    at: u64,
}

/// Commands of drives that belong together, and what they do for whom.
#[derive(Debug)]
struct Job {
    left: usize,
    /// To be written once what is read first has come.
    then: Vec<Piece>,
    requests: Vec<u64>,
    /// Of the cache.
    destages: u64,
}

#[derive(Debug)]
struct Open {
    request: Request,
    jobs: usize,
    not_before_ns: u64,
}

/// What is held of one stripe, and for whom.
#[derive(Debug, Default)]
struct Held {
    pages: Ranges,
    requests: Vec<u64>,
}

#[derive(Debug)]
pub struct Array {
    model: ArrayModel,
    members: Vec<Member>,
    open: BTreeMap<u64, Open>,
    jobs: BTreeMap<u64, Job>,
    /// Which job a command of a drive belongs to.
    commands: BTreeMap<u64, u64>,
    next_id: u64,
    held: BTreeMap<u64, Held>,
    /// What the controller has been given and has not looked at: when it does, and not before when it is done.
    arriving: VecDeque<(u64, Request, u64)>,
    link_until_ns: u64,
    /// The controller's cache: what is to be written, stripes that are there as a whole, and pages on their way to the drives.
    dirty: Ranges,
    whole: BTreeSet<u64>,
    destaging: u64,
    destages: usize,
    head: u64,
    /// Writes that wait for room in it.
    short: VecDeque<(Request, u64)>,
    /// When parts of stripes go too, and whether they do now.
    flush_ns: Option<u64>,
    flushes: bool,
    answers: Answers,
}

impl Array {
    /// Of drives like this one, whose pages are the whole array's.
    #[must_use]
    pub fn new(model: ArrayModel, drive: DiskModel) -> Array {
        let pages = drive.pages.div_ceil(model.geometry.data_drives());
        let drive = DiskModel { pages, depth: model.drive_depth, array: None, ..drive };
        let member = |_| Member { unit: Unit::new(drive), inside: 0, queue: BTreeMap::new(), at: 0 };
        Array {
            model,
            members: (0..model.geometry.drives).map(member).collect(),
            open: BTreeMap::new(),
            jobs: BTreeMap::new(),
            commands: BTreeMap::new(),
            next_id: 0,
            held: BTreeMap::new(),
            arriving: VecDeque::new(),
            link_until_ns: 0,
            dirty: Ranges::default(),
            whole: BTreeSet::new(),
            destaging: 0,
            destages: 0,
            head: 0,
            short: VecDeque::new(),
            flush_ns: None,
            flushes: false,
            answers: Answers::default(),
        }
    }

    fn cache_pages(&self) -> u64 {
        self.model.controller.map_or(0, |controller| controller.cache_pages)
    }

    pub fn accept(&mut self, request: Request, not_before_ns: u64, now_ns: u64) {
        self.advance(now_ns);
        match self.model.controller {
            Some(controller) => {
                let free_ns = self.arriving.back().map_or(now_ns, |(at_ns, ..)| *at_ns);
                self.arriving.push_back((free_ns.max(now_ns) + controller.command_ns, request, not_before_ns));
            }
            None => self.begin(request, not_before_ns, now_ns),
        }
    }

    fn begin(&mut self, request: Request, not_before_ns: u64, now_ns: u64) {
        if request.pages == 0 {
            return self.flush(request, now_ns);
        }
        if request.write && self.cache_pages() > 0 {
            return self.cache_write(request, not_before_ns, now_ns);
        }
        let (from, pages) = (request.position, u64::from(request.pages));
        if !request.write && self.dirty.hold(from, from + pages) {
            return self.answer_over_link(request, not_before_ns, now_ns);
        }
        self.open.insert(request.order, Open { request, jobs: 0, not_before_ns });
        if !request.write {
            let reads = self.model.geometry.read(from, pages);
            let pieces =
                reads.into_iter().map(|(drives, piece)| Piece { drive: self.choose(&drives, &piece), ..piece });
            let plan = Plan { reads: Vec::new(), writes: pieces.collect() };
            self.start(plan, false, vec![request.order], 0, now_ns);
        } else if self.model.geometry.level == Level::Parity {
            self.hold(&request, now_ns);
            // A controller without a cache has nothing to hold them in.
            if self.model.controller.is_some() {
                self.unplug(now_ns);
            }
        } else {
            self.start(self.model.geometry.write(from, pages), true, vec![request.order], 0, now_ns);
        }
    }

    /// Which of the drives that have it reads a piece.
    fn choose(&self, drives: &[usize], piece: &Piece) -> usize {
        let reads_on = drives.iter().find(|&&drive| self.members[drive].at == piece.position);
        let is_idle = |drive: &&usize| self.members[**drive].inside + self.members[**drive].queue.len() == 0;
        let nearest = drives.iter().min_by_key(|&&drive| self.members[drive].at.abs_diff(piece.position));
        reads_on.or_else(|| drives.iter().find(is_idle)).or(nearest).copied().unwrap_or(piece.drive)
    }

    /// A write of raid5 waits for what else comes of its stripes.
    fn hold(&mut self, request: &Request, now_ns: u64) {
        let size = self.model.geometry.stripe_pages();
        let (mut from, end) = (request.position, request.position + u64::from(request.pages));
        while from < end {
            let stripe = from / size;
            let to = end.min((stripe + 1) * size);
            let held = self.held.entry(stripe).or_default();
            held.pages.insert(from, to);
            held.requests.push(request.order);
            if let Some(open) = self.open.get_mut(&request.order) {
                open.jobs += 1;
            }
            if held.pages.pages() == size {
                self.write_held(stripe, now_ns);
            }
            from = to;
        }
        while self.held.len() as u64 * self.model.geometry.chunk_pages > ROWS_HELD.get() {
            let Some((&first, _)) = self.held.first_key_value() else { break };
            self.write_held(first, now_ns);
        }
    }

    fn write_held(&mut self, stripe: u64, now_ns: u64) {
        let Some(held) = self.held.remove(&stripe) else { return };
        let ranges: Vec<(u64, u64)> = held.pages.within(0, u64::MAX);
        // What `start` counts anew.
        for order in &held.requests {
            if let Some(open) = self.open.get_mut(order) {
                open.jobs -= 1;
            }
        }
        self.start(self.model.geometry.write_stripe(&ranges), true, held.requests, 0, now_ns);
    }

    /// Nothing more is queued: what is held goes as it is.
    pub fn unplug(&mut self, now_ns: u64) {
        while let Some((&first, _)) = self.held.first_key_value() {
            self.write_held(first, now_ns);
        }
    }

    /// A flush of all drives; with a battery nothing needs one.
    fn flush(&mut self, request: Request, now_ns: u64) {
        if self.cache_pages() > 0 {
            return self.answers.add(now_ns, request);
        }
        self.unplug(now_ns);
        self.open.insert(request.order, Open { request, jobs: 0, not_before_ns: 0 });
        let pieces = (0..self.members.len()).map(|drive| Piece { drive, position: 0, pages: 0 });
        self.start(Plan { reads: Vec::new(), writes: pieces.collect() }, true, vec![request.order], 0, now_ns);
    }

    /// Commands the drives.
    fn start(&mut self, plan: Plan, write: bool, requests: Vec<u64>, destages: u64, now_ns: u64) {
        let id = self.id();
        for order in &requests {
            if let Some(open) = self.open.get_mut(order) {
                open.jobs += 1;
            }
        }
        let Plan { reads, writes } = plan;
        let (first, then, is_write) = if reads.is_empty() { (writes, reads, write) } else { (reads, writes, false) };
        self.jobs.insert(id, Job { left: first.len(), then, requests, destages });
        self.command(id, first, is_write, now_ns);
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn command(&mut self, job: u64, pieces: Vec<Piece>, write: bool, now_ns: u64) {
        for piece in pieces {
            let order = self.id();
            self.commands.insert(order, job);
            let own = Request::new(write, piece.position, piece.pages as u32, Done::Wake(0));
            let member = &mut self.members[piece.drive];
            member.queue.insert((piece.position, order), Request { order, ..own });
            member.feed(self.model.drive_depth, now_ns);
        }
    }

    fn command_done(&mut self, order: u64, now_ns: u64) {
        let Some(id) = self.commands.remove(&order) else { return };
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.left -= 1;
        if job.left > 0 {
            return;
        }
        let then = std::mem::take(&mut job.then);
        if !then.is_empty() {
            job.left = then.len();
            return self.command(id, then, true, now_ns);
        }
        let Some(job) = self.jobs.remove(&id) else { return };
        for order in job.requests {
            self.job_done(order, now_ns);
        }
        if job.destages > 0 {
            (self.destaging, self.destages) = (self.destaging - job.destages, self.destages - 1);
            for (request, not_before_ns) in std::mem::take(&mut self.short) {
                self.cache_write(request, not_before_ns, now_ns);
            }
            self.destage(now_ns);
        }
    }

    fn job_done(&mut self, order: u64, now_ns: u64) {
        let Some(open) = self.open.get_mut(&order) else { return };
        open.jobs -= 1;
        if open.jobs == 0
            && let Some(open) = self.open.remove(&order)
        {
            self.answer_over_link(open.request, open.not_before_ns, now_ns);
        }
    }

    /// Its data has gone over the link, if there is one.
    fn answer_over_link(&mut self, request: Request, not_before_ns: u64, now_ns: u64) {
        let rate = self.model.controller.map_or(u64::MAX, |controller| controller.link_bytes_per_s.max(1));
        let move_ns = (u128::from(request.pages) * 4096 * 1_000_000_000 / u128::from(rate)) as u64;
        self.link_until_ns = (self.link_until_ns + move_ns).max(now_ns);
        self.answers.add(self.link_until_ns.max(not_before_ns), request);
    }

    fn cache_write(&mut self, request: Request, not_before_ns: u64, now_ns: u64) {
        let (from, to) = (request.position, request.position + u64::from(request.pages));
        // Whoever came first has the room first; one larger than the cache has it when it is empty.
        let held = self.dirty.pages() + self.destaging;
        if !self.short.is_empty() || (held > 0 && held + (to - from) > self.cache_pages()) {
            self.short.push_back((request, not_before_ns));
            return self.destage(now_ns);
        }
        self.dirty.insert(from, to);
        let size = self.model.geometry.stripe_pages();
        let whole =
            (from / size..=(to - 1) / size).filter(|stripe| self.dirty.hold(stripe * size, (stripe + 1) * size));
        self.whole.extend(whole);
        if !self.flushes {
            self.flush_ns.get_or_insert(now_ns + FLUSH_INTERVAL_NS.get());
        }
        // What is written comes over the link before it is in the cache; what is read goes over it while it comes.
        self.link_until_ns = self.link_until_ns.max(now_ns);
        self.answer_over_link(request, not_before_ns, now_ns);
        self.destage(now_ns);
    }

    /// Upwards: whole stripes, and parts of them where there is reason to.
    fn destage(&mut self, now_ns: u64) {
        let size = self.model.geometry.stripe_pages();
        while self.destages < DESTAGES_PER_DRIVE.get() * self.members.len() && !self.dirty.is_empty() {
            let after = self.whole.range(self.head / size..).next().or_else(|| self.whole.first()).copied();
            let takes_parts = self.flushes || !self.short.is_empty() || self.dirty.pages() > self.cache_pages() / 2;
            let part = || self.dirty.upwards(self.head).map(|(start, _)| start / size).filter(|_| takes_parts);
            let Some(stripe) = after.or_else(part) else { break };
            let (from, to) = (stripe * size, (stripe + 1) * size);
            let ranges = self.dirty.within(from, to);
            self.dirty.remove(from, to);
            self.whole.remove(&stripe);
            self.head = to;
            let pages = ranges.iter().map(|(from, to)| to - from).sum();
            (self.destaging, self.destages) = (self.destaging + pages, self.destages + 1);
            let plan = self.plan_of(&ranges);
            self.start(plan, true, Vec::new(), pages, now_ns);
        }
        if self.dirty.is_empty() {
            (self.flushes, self.flush_ns) = (false, None);
        }
    }

    fn plan_of(&self, ranges: &[(u64, u64)]) -> Plan {
        let geometry = &self.model.geometry;
        if geometry.level == Level::Parity {
            return geometry.write_stripe(ranges);
        }
        let writes = ranges.iter().flat_map(|&(from, to)| geometry.write(from, to - from).writes);
        Plan { reads: Vec::new(), writes: writes.collect() }
    }

    /// What happens next, beside answers.
    fn next_event_ns(&self) -> Option<u64> {
        let drives = self.members.iter().filter_map(|member| member.unit.next_ns());
        let arrives = self.arriving.front().map(|(at_ns, ..)| *at_ns);
        drives.chain(arrives).chain(self.flush_ns).min()
    }

    fn advance(&mut self, now_ns: u64) {
        while let Some(at_ns) = self.next_event_ns().filter(|at_ns| *at_ns <= now_ns) {
            if self.flush_ns.is_some_and(|flush_ns| flush_ns <= at_ns) {
                (self.flushes, self.flush_ns) = (true, None);
                self.destage(at_ns);
            }
            while let Some((_, request, not_before_ns)) = self.arriving.front().copied().filter(|one| one.0 <= at_ns) {
                self.arriving.pop_front();
                self.begin(request, not_before_ns, at_ns);
            }
            for drive in 0..self.members.len() {
                while let Some(command) = self.members[drive].unit.answer(at_ns) {
                    self.members[drive].inside -= 1;
                    self.members[drive].feed(self.model.drive_depth, at_ns);
                    self.command_done(command.order, at_ns);
                }
            }
        }
    }

    pub fn answer(&mut self, now_ns: u64) -> Option<Request> {
        self.advance(now_ns);
        self.answers.take(now_ns)
    }

    pub fn next_ns(&self) -> Option<u64> {
        self.answers.next_ns().into_iter().chain(self.next_event_ns()).min()
    }
}

impl Member {
    /// Gives the drive as many commands as it takes, upwards.
    fn feed(&mut self, depth: usize, now_ns: u64) {
        while self.inside < depth {
            let next = self.queue.range((self.at, 0)..).next().or_else(|| self.queue.iter().next());
            let Some(key) = next.map(|(key, _)| *key) else { return };
            let Some(command) = self.queue.remove(&key) else { return };
            // A flush moves no arm.
            if command.pages > 0 {
                self.at = command.position + u64::from(command.pages);
            }
            self.inside += 1;
            self.unit.accept(command, 0, now_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ArrayModel, Controller};
    use crate::block::{Done, Request};
    use crate::disk::{Device, DiskModel};
    use crate::stripes::{Geometry, Level};

    /// Drives of 1 us a page and 100 us a command, in chunks of 16 pages; one command at a time.
    fn device(level: Level, drives: u64, controller: Option<Controller>) -> Device {
        let geometry = Geometry { level, drives, chunk_pages: 16 };
        Device::new(DiskModel {
            read_bytes_per_s: 4_096_000_000,
            write_bytes_per_s: 4_096_000_000,
            seek_ns: 0,
            rotation_ns: 0,
            access_ns: 100_000,
            flush_ns: 0,
            pages: 1 << 20,
            in_order: true,
            depth: 32,
            cache_pages: 0,
            caches_writes: false,
            array: Some(ArrayModel { geometry, drive_depth: 32, controller }),
            limits: [None; 2],
        })
    }

    fn accept(device: &mut Device, order: u64, (write, position, pages): (bool, u64, u32), now_ns: u64) {
        device.accept(Request { order, ..Request::new(write, position, pages, Done::Wake(0)) }, 0, now_ns);
    }

    fn answers(device: &mut Device) -> Vec<(u64, u64)> {
        let mut all = Vec::new();
        while let Some(at_ns) = device.next_ns() {
            while let Some(request) = device.answer(at_ns) {
                all.push((request.order, at_ns / 1000));
            }
        }
        all
    }

    #[test]
    fn a_request_over_four_chunks_is_served_by_four_drives_at_once() {
        let mut striped = device(Level::Stripes, 4, None);
        accept(&mut striped, 1, (false, 0, 64), 0);
        // 100 us and 16 pages each, side by side; all on one drive: 64.
        assert_eq!(answers(&mut striped), [(1, 116)]);
        let mut pair = device(Level::Mirrors, 2, None);
        accept(&mut pair, 1, (false, 0, 64), 0);
        accept(&mut pair, 2, (false, 1000, 64), 0);
        assert_eq!(answers(&mut pair), [(1, 164), (2, 164)], "the second of them is read from the idle drive");
        accept(&mut pair, 3, (true, 0, 64), 1_000_000);
        accept(&mut pair, 4, (true, 1000, 64), 1_000_000);
        assert_eq!(answers(&mut pair), [(3, 1164), (4, 1228)], "writes go to both");
    }

    #[test]
    fn a_small_write_of_raid5_takes_two_reads_and_two_writes_and_a_whole_stripe_none() {
        let mut five = device(Level::Parity, 5, None);
        accept(&mut five, 1, (true, 0, 4), 0);
        five.unplug(0);
        // Old data and parity: 104 us; new data and parity: as long again.
        assert_eq!(answers(&mut five), [(1, 208)]);
        // Two halves of a stripe that come together are one stripe: nothing is read.
        accept(&mut five, 2, (true, 64, 32), 1_000_000);
        accept(&mut five, 3, (true, 96, 32), 1_000_000);
        five.unplug(1_000_000);
        assert_eq!(answers(&mut five), [(2, 1116), (3, 1116)]);
    }

    #[test]
    fn a_cache_with_a_battery_answers_writes_at_the_links_pace_until_it_is_full() {
        let controller = Controller { command_ns: 10_000, link_bytes_per_s: 4_096_000_000, cache_pages: 128 };
        let mut array = device(Level::Parity, 5, Some(controller));
        for order in 0..4 {
            accept(&mut array, order, (true, order * 64, 64), 0);
        }
        // Commands at 10, 20, 30 and 40 us; the data of each takes 64 us on the link from then on. The third has room when the first
        // whole stripe is on its drives, at 10 + 100 + 16 us: before its turn on the link.
        assert_eq!(answers(&mut array), [(0, 74), (1, 138), (2, 202), (3, 266)]);
        accept(&mut array, 5, (true, 1 << 16, 0), 1_000_000);
        assert_eq!(answers(&mut array)[0], (5, 1010), "with a battery a flush has nothing to do");
        let none = Controller { cache_pages: 0, ..controller };
        let mut through = device(Level::Parity, 5, Some(none));
        accept(&mut through, 1, (true, 0, 64), 0);
        through.unplug(0);
        assert_eq!(answers(&mut through), [(1, 126)], "command, access and 16 pages of each drive");
    }

    #[test]
    fn a_controller_without_a_cache_holds_no_part_of_a_stripe_back() {
        let none = Controller { command_ns: 10_000, link_bytes_per_s: 4_096_000_000, cache_pages: 0 };
        let mut through = device(Level::Parity, 5, Some(none));
        accept(&mut through, 1, (true, 0, 4), 0);
        // The queue above is empty, and says so, before the controller has looked at the command.
        through.unplug(0);
        assert_eq!(answers(&mut through), [(1, 218)], "command, two reads side by side, two writes");
    }

    #[test]
    fn a_write_without_room_has_parts_of_stripes_written_at_once() {
        let controller = Controller { command_ns: 0, link_bytes_per_s: 4_096_000_000, cache_pages: 128 };
        let mut array = device(Level::Parity, 5, Some(controller));
        accept(&mut array, 1, (true, 0, 4), 0);
        accept(&mut array, 2, (true, 640, 128), 10_000);
        // The four pages are read, modified and written first; then 128 pages come over the link.
        assert_eq!(answers(&mut array)[..2], [(1, 4), (2, 10 + 208 + 128)]);
    }

    #[test]
    fn a_part_of_a_stripe_stays_in_the_cache_for_an_interval() {
        let controller = Controller { command_ns: 0, link_bytes_per_s: 4_096_000_000, cache_pages: 1024 };
        let mut array = device(Level::Parity, 5, Some(controller));
        accept(&mut array, 1, (true, 0, 4), 0);
        assert_eq!(array.answer(4000).map(|request| request.order), Some(1));
        assert_eq!(array.next_ns(), Some(4_000_000_000), "then it is read, modified and written");
        assert_eq!(array.answer(4_000_000_000).map(|request| request.order), None);
        assert_eq!(array.next_ns(), Some(4_000_104_000));
    }
}
