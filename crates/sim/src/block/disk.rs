//! The device under the queue: accepted requests, and when each is done.
//!
//! Models: a drive with an arm (`drive`); flash that serves `depth` commands at once, each after a latency, and
//! transfers the data of one command after the other; a device that serves one request at a time, with a limit of
//! requests a second (`iops`), like a limited volume. Leaves out: its cache and flushes, erasing, channels.

use std::collections::{BTreeMap, BTreeSet};

use crate::block::Request;
use crate::block::drive::Drive;

/// Rates and times of the device.
#[derive(Clone, Copy, Debug)]
pub struct DiskModel {
    pub read_bytes_per_s: u64,
    pub write_bytes_per_s: u64,
    pub seek_ns: u64,
    pub rotation_ns: u64,
    /// Least time of a request that is served alone, or the latency of a command; 0 for drives with an arm.
    pub access_ns: u64,
    pub pages: u64,
    /// No elevator: writes are served in the order in which they came (6.x: nvme's `none`).
    pub in_order: bool,
    /// Commands that the device accepts at once.
    pub depth: usize,
}

impl DiskModel {
    pub fn has_arm(&self) -> bool {
        self.seek_ns > 0
    }

    pub fn page_ns(&self, write: bool) -> f64 {
        let rate = if write { self.write_bytes_per_s } else { self.read_bytes_per_s };
        4096e9 / rate.max(1) as f64
    }
}

/// Requests in service, by the instant at which they are done.
#[derive(Debug, Default)]
pub struct Answers(BTreeMap<(u64, u64), Request>);

impl Answers {
    pub fn add(&mut self, at_ns: u64, request: Request) {
        self.0.insert((at_ns, request.order), request);
    }

    pub fn take(&mut self, now_ns: u64) -> Option<Request> {
        self.next_ns().filter(|at_ns| *at_ns <= now_ns)?;
        self.0.pop_first().map(|(_, request)| request)
    }

    pub fn next_ns(&self) -> Option<u64> {
        self.0.first_key_value().map(|((at_ns, _), _)| *at_ns)
    }
}

/// A flash device, or one that serves a request at a time.
#[derive(Debug)]
pub struct Flash {
    model: DiskModel,
    served: Answers,
    /// The time at which the device will have transferred the data of accepted commands.
    moves_until_ns: u64,
}

impl Flash {
    fn accept(&mut self, request: Request, not_before_ns: u64, now_ns: u64) {
        let transfer_ns = (f64::from(request.pages) * self.model.page_ns(request.write)) as u64;
        let done_ns = if self.model.depth == 1 {
            now_ns + transfer_ns.max(self.model.access_ns)
        } else {
            (now_ns + self.model.access_ns).max(self.moves_until_ns) + transfer_ns
        };
        self.moves_until_ns = done_ns;
        // A limit delays only requests of the same direction (throtl_charge_bio).
        self.served.add(done_ns.max(not_before_ns), request);
    }
}

/// One drive of either kind.
#[derive(Debug)]
pub enum Unit {
    Arm(Box<Drive>),
    Flash(Flash),
}

impl Unit {
    #[must_use]
    pub fn new(model: DiskModel) -> Unit {
        if model.has_arm() {
            return Unit::Arm(Box::new(Drive::new(model)));
        }
        Unit::Flash(Flash { model, served: Answers::default(), moves_until_ns: 0 })
    }

    pub fn accept(&mut self, request: Request, not_before_ns: u64, now_ns: u64) {
        match self {
            Unit::Arm(drive) => drive.accept(request, not_before_ns, now_ns),
            Unit::Flash(flash) => flash.accept(request, not_before_ns, now_ns),
        }
    }

    pub fn answer(&mut self, now_ns: u64) -> Option<Request> {
        match self {
            Unit::Arm(drive) => drive.answer(now_ns),
            Unit::Flash(flash) => flash.served.take(now_ns),
        }
    }

    pub fn next_ns(&self) -> Option<u64> {
        match self {
            Unit::Arm(drive) => drive.next_ns(),
            Unit::Flash(flash) => flash.served.next_ns(),
        }
    }
}

#[derive(Debug)]
pub struct Device {
    pub model: DiskModel,
    unit: Unit,
    /// Commands accepted and not completed, and the time since which the number is above 0.
    accepted: usize,
    busy_from_ns: u64,
    pub busy_ns: u64,
    /// blk-throttle: when the next request of a direction may begin, and the waiting requests of flash, which do not
    /// count as commands.
    capped_until_ns: [u64; 2],
    held: BTreeSet<u64>,
}

impl Device {
    #[must_use]
    pub fn new(model: DiskModel) -> Device {
        Device {
            model,
            unit: Unit::new(model),
            accepted: 0,
            busy_from_ns: 0,
            busy_ns: 0,
            capped_until_ns: [0; 2],
            held: BTreeSet::new(),
        }
    }

    pub fn is_full(&self) -> bool {
        self.accepted - self.held.len() >= self.model.depth
    }

    pub fn accepted(&self) -> usize {
        self.accepted
    }

    /// Accepts a request, which takes at least `capped_ns` under the direction's limit.
    pub fn accept(&mut self, request: Request, capped_ns: u64, now_ns: u64) {
        if self.accepted == 0 {
            self.busy_from_ns = now_ns;
        }
        self.accepted += 1;
        let capped_until = &mut self.capped_until_ns[usize::from(request.write)];
        *capped_until = now_ns.max(*capped_until) + capped_ns;
        let not_before_ns = if capped_ns > 0 { *capped_until } else { 0 };
        if not_before_ns > now_ns && matches!(self.unit, Unit::Flash(_)) {
            self.held.insert(request.order);
        }
        self.unit.accept(request, not_before_ns, now_ns);
    }

    /// Takes a request that is done by now.
    pub fn answer(&mut self, now_ns: u64) -> Option<Request> {
        let request = self.unit.answer(now_ns)?;
        self.accepted -= 1;
        self.held.remove(&request.order);
        if self.accepted == 0 {
            self.busy_ns += now_ns - self.busy_from_ns;
        }
        Some(request)
    }

    /// When the next request will be done.
    pub fn next_ns(&self) -> Option<u64> {
        self.unit.next_ns()
    }
}

#[cfg(test)]
mod tests {
    use super::{Answers, Device, DiskModel};
    use crate::block::{Done, Request};

    #[test]
    fn answers_come_in_the_order_of_their_instants_then_of_arrival() {
        let mut answers = Answers::default();
        for (at_ns, order) in [(30, 1), (10, 3), (10, 2)] {
            answers.add(at_ns, Request { order, ..read(1) });
        }
        assert_eq!((answers.next_ns(), answers.take(9).is_none()), (Some(10), true));
        let taken: Vec<u64> = std::iter::from_fn(|| answers.take(20)).map(|request| request.order).collect();
        assert_eq!((taken, answers.next_ns()), (vec![2, 3], Some(30)));
    }

    const FLASH: DiskModel = DiskModel {
        read_bytes_per_s: 4_096_000_000,
        write_bytes_per_s: 4_096_000_000,
        seek_ns: 0,
        rotation_ns: 0,
        access_ns: 100_000,
        pages: 1 << 20,
        in_order: true,
        depth: 32,
    };

    fn read(pages: u32) -> Request {
        Request::new(false, 0, pages, Done::Wake(0))
    }

    fn done_at(model: DiskModel, sizes: &[u32]) -> Vec<u64> {
        let mut device = Device::new(model);
        sizes.iter().for_each(|&pages| device.accept(read(pages), 0, 0));
        let mut times = Vec::new();
        while let Some(at_ns) = device.next_ns() {
            device.answer(at_ns);
            times.push(at_ns);
        }
        times
    }

    #[test]
    fn latencies_of_a_flash_device_overlap_and_its_transfers_do_not() {
        // 1 us a page: one alone waits for its latency, three together for one latency and three transfers.
        assert_eq!(done_at(FLASH, &[1]), [101_000]);
        assert_eq!(done_at(FLASH, &[32, 32, 1]), [132_000, 164_000, 165_000]);
        assert_eq!(done_at(DiskModel { depth: 1, ..FLASH }, &[32]), [100_000], "a limit of requests a second");
    }

    #[test]
    fn a_cap_of_a_cgroup_holds_although_the_device_is_faster() {
        let mut device = Device::new(FLASH);
        (0..3).for_each(|_| device.accept(read(1), 1_000_000, 0));
        let mut times = Vec::new();
        while let Some(at_ns) = device.next_ns() {
            times.extend(device.answer(at_ns).map(|_| at_ns));
        }
        assert_eq!(times, [1_000_000, 2_000_000, 3_000_000]);
    }
    /// Forty writes wait for their limit: a read completes as on an idle device, and the writes occupy none of the 32
    /// commands.
    #[test]
    fn a_limit_of_writes_holds_up_no_read_and_takes_no_command() {
        let mut device = Device::new(FLASH);
        for order in 1..=40 {
            device.accept(Request { order, ..Request::new(true, 0, 1, Done::Wake(0)) }, 1_000_000, 0);
        }
        assert!(!device.is_full());
        device.accept(Request { order: 41, ..read(1) }, 0, 0);
        let first = device.next_ns().expect("an answer");
        assert!(first < 200_000 && device.answer(first).is_some_and(|request| !request.write), "{first}");
        assert_eq!(device.next_ns(), Some(1_000_000));
    }
}
