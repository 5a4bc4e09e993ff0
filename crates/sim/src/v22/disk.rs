//! The disk of 2.2: one elevator queue in one direction, adjacent blocks served together.
//!
//! Leaves out: the request table's limit (NR_REQUEST 128) with its waits, read priority, the drive's own cache.

use crate::constant::constants;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::Machine;
use crate::block::disk::DiskModel;
use crate::sched::clock::TaskId;

#[derive(Clone, Debug)]
pub enum Whose {
    Buffer(u32),
    /// Blocks of pages that one reader waits for, counted down.
    Reader(Rc<Cell<u32>>, TaskId),
}

#[derive(Clone, Debug)]
pub struct Request {
    pub blocks: u32,
    pub write: bool,
    pub whose: Whose,
}

#[derive(Debug)]
pub struct Disk {
    model: DiskModel,
    queue: BTreeMap<(u32, u64), Request>,
    order: u64,
    head: u32,
    pub sleeper: Option<TaskId>,
    pub blocks: [u64; 2],
    pub requests: [u64; 2],
    pub busy_ns: u64,
}

constants! {
    /// Most blocks of 1 KiB served together.
    const TOGETHER_MAX: u32 = kernel(64, "include/linux/blkdev.h", "MAX_SECTORS (128)", "2.2.1");
}

impl Disk {
    pub fn new(model: DiskModel) -> Disk {
        let [blocks, requests] = [[0; 2]; 2];
        Disk { model, queue: BTreeMap::new(), order: 0, head: 0, sleeper: None, blocks, requests, busy_ns: 0 }
    }

    pub fn submit(&mut self, m: &Machine, block: u32, request: Request) {
        self.order += 1;
        self.queue.insert((block, self.order), request);
        if let Some(sleeper) = self.sleeper.take() {
            m.clock.wake(sleeper);
        }
    }

    pub fn waiting(&self) -> u64 {
        self.queue.len() as u64
    }

    /// The next requests in the elevator's direction that lie side by side, and their duration.
    pub fn next(&mut self, turn: f64) -> Option<(Vec<Request>, u64)> {
        let ahead = self.queue.range((self.head, 0)..).next().or_else(|| self.queue.iter().next());
        let start = *ahead?.0;
        let write = ahead?.1.write;
        let (mut taken, mut at) = (Vec::new(), start.0);
        while let Some((&key, request)) = self.queue.range((at, 0)..).next() {
            let fits = at - start.0 + request.blocks <= TOGETHER_MAX.get() || taken.is_empty();
            if key.0 != at || request.write != write || !fits {
                break;
            }
            at += request.blocks;
            taken.extend(self.queue.remove(&key));
        }
        let count = u64::from(at - start.0);
        let bytes_per_s = if write { self.model.write_bytes_per_s } else { self.model.read_bytes_per_s };
        let mut ns = count * 1024 * 1_000_000_000 / bytes_per_s;
        if start.0 != self.head {
            // Seek time grows with the root of the distance; a third of the stroke takes the mean.
            let share = f64::from(start.0.abs_diff(self.head)) / (self.model.pages as f64 * 4.0).max(1.0);
            let seek = self.model.seek_ns as f64 * (0.2 + 1.4 * share.min(1.0).sqrt());
            ns += (seek + self.model.rotation_ns as f64 * turn) as u64;
        }
        self.head = at;
        self.blocks[usize::from(write)] += count;
        self.requests[usize::from(write)] += 1;
        self.busy_ns += ns;
        Some((taken, ns))
    }
}

pub async fn serve(m: Rc<Machine>) {
    let Some(old) = &m.old else { return };
    loop {
        let turn = m.random();
        let next = old.borrow_mut().disk.next(turn);
        let Some((requests, ns)) = next else {
            old.borrow_mut().disk.sleeper = Some(m.clock.current());
            m.clock.park(None).await;
            continue;
        };
        m.clock.sleep_until(m.clock.now() + ns).await;
        let mut old = old.borrow_mut();
        for request in requests {
            match request.whose {
                Whose::Buffer(id) => old.buffer_done(&m, id),
                Whose::Reader(left, task) => {
                    left.set(left.get().saturating_sub(request.blocks));
                    if left.get() == 0 {
                        m.clock.wake(task);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Disk, Request, Whose};
    use crate::kernel;
    use crate::machine::build;
    use flatwater_workload::scenario::DiskSpec;

    /// 1 KiB takes 1 ms; seeks and turns take no time unless the test sets them.
    fn disk() -> Disk {
        let spec = DiskSpec { write_bytes_per_s: Some(1_024_000), ..DiskSpec::default() };
        let model = build::disk(&spec, &kernel::find("linux-2.2.5").expect("a profile"));
        Disk::new(crate::block::disk::DiskModel { seek_ns: 0, rotation_ns: 8_000_000, ..model })
    }

    fn queue(disk: &mut Disk, block: u32, write: bool) {
        disk.order += 1;
        disk.queue.insert((block, disk.order), Request { blocks: 1, write, whose: Whose::Buffer(block) });
    }

    #[test]
    fn neighbours_of_one_direction_are_served_together_upwards_and_up_to_64_blocks() {
        let mut disk = disk();
        (0..70).for_each(|block| queue(&mut disk, block, true));
        queue(&mut disk, 70, false);
        let together = |disk: &mut Disk| disk.next(0.5).map(|(requests, ns)| (requests.len(), ns / 1_000_000));
        // The head is at block 0 already: no turn. Then six more blocks, and the read alone.
        assert_eq!([0; 4].map(|_| together(&mut disk)), [Some((64, 64)), Some((6, 6)), Some((1, 1)), None]);
        // From the head's position (71) upwards, then from the lowest; at other positions half a turn comes first.
        [10, 100].into_iter().for_each(|block| queue(&mut disk, block, true));
        assert_eq!([0; 2].map(|_| together(&mut disk)), [Some((1, 5)), Some((1, 5))]);
        assert_eq!((disk.head, disk.blocks, disk.requests), (11, [1, 72], [1, 4]));
    }
}
