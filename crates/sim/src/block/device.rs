//! The machine's devices: each has a request queue, a file system with its log, and its part of the dirty pages (the
//! kernel's backing device, `struct backing_dev_info`).

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};

use crate::Machine;
use crate::block::{self, Block, Done, Request};
use crate::fs::file_system::FileSystem;
use crate::fs::inode::InodeId;
use crate::fs::journal::Journal;
use crate::fs::placement::Placement;
use crate::kernel::Profile;
use crate::machine::knobs::{self, DeviceKnobs};
use crate::sched::clock::{Clock, TaskId};
use crate::sched::site::Site;
use crate::sched::task::Task;
use crate::writeback::io_less::Bandwidth;
use crate::writeback::proportions::Local;
use flatwater_recording::Setup;

/// Which of the machine's devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceId(u8);

impl DeviceId {
    /// The scenario's `machine.disk`, which also has the files that no workload made.
    pub const FIRST: DeviceId = DeviceId(0);

    /// The device at a place of the scenario's list (`refuse` has checked that a byte can count them).
    #[must_use]
    pub fn nth(place: usize) -> DeviceId {
        DeviceId(u8::try_from(place).unwrap_or(u8::MAX))
    }

    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

#[derive(Debug)]
pub struct Device {
    /// Its name in the recording.
    pub name: String,
    pub file_system: FileSystem,
    pub knobs: RefCell<DeviceKnobs>,
    pub block: RefCell<Block>,
    pub placement: RefCell<Placement>,
    pub journal: RefCell<Journal>,
    pub bdi: RefCell<Bdi>,
    /// Files with dirty pages, and some that are clean again.
    pub dirty_inodes: RefCell<BTreeSet<InodeId>>,
}

/// Writeback's state of a device (`struct backing_dev_info`, later `struct bdi_writeback`).
#[derive(Debug, Default)]
pub struct Bdi {
    /// The inode at which the round of dirty inodes continues.
    pub next_inode: InodeId,
    pub dirty_exceeded: bool,
    pub flusher: Option<TaskId>,
    pub flusher_parked: bool,
    /// The flusher sleeps until a page is dirtied, and whether one has been since (3.1 and later).
    pub wakes_at_first_dirty: bool,
    pub dirtied_first: bool,
    /// Reclaim has found only dirty pages, so the flusher must write all dirty pages of the device.
    pub full_flush: FullFlush,
    /// Files that the flusher has queued, and those with more to write than one turn takes (3.1 and later).
    pub io: VecDeque<InodeId>,
    pub more_io: VecDeque<InodeId>,
    /// The task that estimates the bandwidth when writeback has ended, while it waits (5.15 and later).
    pub estimator: Option<TaskId>,
    /// Pages dirtied in total.
    pub dirtied: u64,
    /// Its part of the recently written pages.
    pub completions: Local,
    /// The estimated bandwidth (3.1 and later).
    pub bandwidth: Bandwidth,
}

/// Request to write all dirty pages of a device (WB_start_all).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FullFlush {
    #[default]
    No,
    Asked,
    /// In progress; further requests have no effect, since the bit stays set until the flusher is done
    /// (fs/fs-writeback.c: wb_start_writeback and wb_check_start_all, 4.15 and later).
    Running,
}

impl FullFlush {
    pub fn ask(&mut self) {
        if *self == FullFlush::No {
            *self = FullFlush::Asked;
        }
    }

    pub fn is_asked(self) -> bool {
        self == FullFlush::Asked
    }

    /// Whether the flusher must begin to write all pages; with `only_one` further requests are ignored until it has
    /// finished.
    pub fn begin(&mut self, only_one: bool) -> bool {
        let asked = self.is_asked();
        if asked {
            *self = if only_one { FullFlush::Running } else { FullFlush::No };
        }
        asked
    }

    pub fn end(&mut self) {
        if *self == FullFlush::Running {
            *self = FullFlush::No;
        }
    }
}

impl Device {
    pub fn new(name: &str, file_system: FileSystem, knobs: DeviceKnobs, block: Block) -> Device {
        Device {
            name: name.to_owned(),
            file_system,
            knobs: RefCell::new(knobs),
            block: RefCell::new(block),
            placement: RefCell::default(),
            journal: RefCell::default(),
            bdi: RefCell::default(),
            dirty_inodes: RefCell::default(),
        }
    }

    /// Changes settings of this device as a write to /sys would.
    pub fn apply(&self, setup: &Setup, profile: &Profile, clock: &Clock) {
        let mut knobs = self.knobs.borrow_mut();
        knobs.apply(setup);
        let mut block = self.block.borrow_mut();
        block.set_request_pages(knobs.request_pages as u32);
        let caps = ["cgroup.read_bps", "cgroup.write_bps", "cgroup.read_iops", "cgroup.write_iops"];
        block.cap(caps.map(|key| knobs::bytes(setup, key)));
        block.multi_queue = profile.is_6();
        block.set_scheduler(&knobs.scheduler);
        block.set_requests(knobs.nr_requests);
        let woken = block.set_wbt(knobs.wbt_target_us);
        woken.into_iter().for_each(|sleeper| clock.wake(sleeper));
    }

    /// bdi_write_congested.
    pub fn congested(&self) -> bool {
        self.block.borrow().congested()
    }
}

/// Submits one request of a direction, a position and a number of pages, and waits until it is done.
pub async fn perform(m: &Machine, on: DeviceId, task: &mut Task, (write, at, pages): (bool, u64, u64), site: Site) {
    let request = Request::new(write, at, pages as u32, Done::Wake(m.clock.current())).on(on);
    block::submit(m, task, request, if write { Site::GetRequestWait } else { Site::GetRequestRead }).await;
    block::wait_for(m, on, task, site).await;
}

impl Machine {
    #[inline]
    pub(crate) fn device(&self, id: DeviceId) -> &Device {
        &self.devices[id.index()]
    }

    /// The device of a file.
    #[inline]
    pub(crate) fn device_of(&self, inode: InodeId) -> &Device {
        self.device(self.place_of(inode))
    }

    #[inline]
    pub(crate) fn place_of(&self, inode: InodeId) -> DeviceId {
        self.mm.borrow().inodes.get(inode).device
    }

    pub(crate) fn device_ids(&self) -> impl DoubleEndedIterator<Item = DeviceId> + use<> {
        (0..self.devices.len()).map(DeviceId::nth)
    }
}

#[cfg(test)]
mod tests {
    use super::FullFlush;

    #[test]
    fn who_asks_for_a_full_flush_while_one_runs_is_heard_up_to_4_14_only() {
        for (only_one, again) in [(false, true), (true, false)] {
            let mut flush = FullFlush::default();
            assert!(!flush.begin(only_one), "no request");
            flush.ask();
            assert!(flush.begin(only_one) && !flush.is_asked());
            flush.ask();
            assert_eq!(flush.is_asked(), again);
            flush.end();
            assert_eq!(flush.begin(only_one), again);
            flush.end();
            flush.ask();
            assert!(flush.is_asked(), "it is done");
        }
    }
}
