//! The device under the queue: what it has accepted, and when it answers.
//!
//! Models: a drive with an arm (`drive`); flash that serves `depth` commands at once, each after a latency, and moves the data of
//! one after the other; and a device that serves one request at a time and at most so many a second (`iops`), like a limited
//! volume. Leaves out: a flash device's own cache, erasing, and what differs between its channels.

use std::collections::VecDeque;

use super::block::Request;
use super::drive::Drive;

/// Rates and times of the device.
#[derive(Clone, Copy, Debug)]
pub struct DiskModel {
    pub read_bytes_per_s: u64,
    pub write_bytes_per_s: u64,
    pub seek_ns: u64,
    pub rotation_ns: u64,
    /// Per request, where there is no arm: the least time of one that is served alone, or the latency.
    pub access_ns: u64,
    pub pages: u64,
    /// No elevator: writes are served in the order in which they came (6.x: nvme's `none`).
    pub in_order: bool,
    /// Commands that it accepts at once.
    pub depth: usize,
    /// Of a drive with an arm: half for reads, half for writes (of Fujitsu's 2 MiB, manual C141-E104: 1 MiB and 0.94 MiB).
    pub cache_pages: u64,
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

#[derive(Debug)]
pub struct Device {
    pub model: DiskModel,
    drive: Option<Drive>,
    /// Where there is no arm, in the order in which they are done.
    served: VecDeque<(u64, Request)>,
    /// Until when data is being moved.
    moves_until_ns: u64,
    /// Commands accepted and not answered, and since when there are any.
    accepted: usize,
    busy_from_ns: u64,
    pub busy_ns: u64,
    /// blk-throttle: when the next request of a direction may begin.
    capped_until_ns: [u64; 2],
}

impl Device {
    #[must_use]
    pub fn new(model: DiskModel) -> Device {
        let drive = model.has_arm().then(|| Drive::new(model));
        let served = VecDeque::new();
        Device {
            model,
            drive,
            served,
            moves_until_ns: 0,
            accepted: 0,
            busy_from_ns: 0,
            busy_ns: 0,
            capped_until_ns: [0; 2],
        }
    }

    pub fn is_full(&self) -> bool {
        self.accepted >= self.model.depth
    }

    pub fn accepted(&self) -> usize {
        self.accepted
    }

    /// Takes a request, which a limit on its direction makes last so long at least.
    pub fn accept(&mut self, request: Request, capped_ns: u64, now_ns: u64) {
        if self.accepted == 0 {
            self.busy_from_ns = now_ns;
        }
        self.accepted += 1;
        let capped_until = &mut self.capped_until_ns[usize::from(request.write)];
        *capped_until = now_ns.max(*capped_until) + capped_ns;
        let not_before_ns = if capped_ns > 0 { *capped_until } else { 0 };
        if let Some(drive) = self.drive.as_mut() {
            return drive.accept(request, not_before_ns, now_ns);
        }
        let transfer_ns = (f64::from(request.pages) * self.model.page_ns(request.write)) as u64;
        let done_ns = if self.model.depth == 1 {
            now_ns + transfer_ns.max(self.model.access_ns)
        } else {
            (now_ns + self.model.access_ns).max(self.moves_until_ns) + transfer_ns
        };
        self.moves_until_ns = done_ns.max(not_before_ns);
        self.served.push_back((self.moves_until_ns, request));
    }

    /// A request that is done by now.
    pub fn answer(&mut self, now_ns: u64) -> Option<Request> {
        let request = match self.drive.as_mut() {
            Some(drive) => drive.answer(now_ns)?,
            None => {
                self.served.front().filter(|(at_ns, _)| *at_ns <= now_ns)?;
                self.served.pop_front()?.1
            }
        };
        self.accepted -= 1;
        if self.accepted == 0 {
            self.busy_ns += now_ns - self.busy_from_ns;
        }
        Some(request)
    }

    /// When there will be something to do.
    pub fn next_ns(&self) -> Option<u64> {
        match &self.drive {
            Some(drive) => drive.next_ns(),
            None => self.served.front().map(|(at_ns, _)| *at_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Device, DiskModel};
    use crate::block::{Done, Request};

    const FLASH: DiskModel = DiskModel {
        read_bytes_per_s: 4_096_000_000,
        write_bytes_per_s: 4_096_000_000,
        seek_ns: 0,
        rotation_ns: 0,
        access_ns: 100_000,
        pages: 1 << 20,
        in_order: true,
        depth: 32,
        cache_pages: 0,
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
        let times: Vec<u64> = device.served.iter().map(|(at_ns, _)| *at_ns).collect();
        assert_eq!(times, [1_000_000, 2_000_000, 3_000_000]);
    }
}
