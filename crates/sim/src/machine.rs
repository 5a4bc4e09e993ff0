//! The modelled machine as a whole: what every part reaches through.

use std::cell::{Cell, RefCell};

use rand_core::Rng;

use super::actor::Shared;
use super::ahead::Aheads;
use super::block::{Done, Request};
use super::chunk::{INACTIVE, NONE, bits_from};
use super::clock::{Clock, TaskId, WaitQueue};
use super::cpu::Cpus;
use super::device::{Device, DeviceId};
use super::file_system::Kind;
use super::inode::{FileKey, InodeId};
use super::kernel::{Costs, Profile};
use super::knobs::{Knobs, number};
use super::memory::Mm;
use super::names;
use super::options::Ablations;
use super::readahead::Coming;
use super::recorder::Recorder;
use super::shrinker::Owed;
use super::writeback::Writeback;
use super::zone;
use flatwater_recording::{Series, Setup};
use flatwater_workload::FileId;

pub struct Machine {
    pub(super) clock: Clock,
    pub(super) profile: Profile,
    pub(super) costs: Costs,
    /// As `copying::remote_percent`.
    pub(super) remote_percent: u64,
    pub(super) speed_percent: u64,
    pub(super) knobs: RefCell<Knobs>,
    pub(super) ablations: Ablations,
    pub(super) cpus: RefCell<Cpus>,
    pub(super) mm: RefCell<Mm>,
    pub(super) devices: Vec<Device>,
    pub(super) coming: RefCell<Coming>,
    pub(super) wb: RefCell<Writeback>,
    pub(super) kswapd: RefCell<Vec<Option<TaskId>>>,
    pub(super) owed: Cell<Owed>,
    pub(super) blocked: Cell<u32>,
    pub(super) shared: Vec<RefCell<Shared>>,
    pub(super) aheads: RefCell<Aheads>,
    pub(super) precursor_used: Cell<bool>,
    pub(super) skips_setup: bool,
    /// As `Options::one_by_one`.
    pub(super) one_by_one: bool,
    /// The set-up is performed before the measured part begins, and who waits for that instant.
    pub(super) prepares: bool,
    pub(super) preparing: Cell<u32>,
    pub(super) start_ns: Cell<u64>,
    pub(super) ready: RefCell<WaitQueue>,
    /// The memory, file system and disk of a 2.2 kernel, instead of `mm`, `block` and `wb`.
    pub(super) old: Option<RefCell<super::v22::Old>>,
    pub(super) series: RefCell<Vec<Series>>,
    /// The tables begin here.
    pub(super) samples_from_ns: Cell<u64>,
    pub(super) recorder: RefCell<Recorder>,
    pub(super) dice: RefCell<rand_pcg::Pcg64>,
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine")
            .field("kernel", &self.profile.name)
            .field("now_ns", &self.clock.now())
            .finish_non_exhaustive()
    }
}

impl Machine {
    /// From 0 up to and without 1.
    pub(super) fn random(&self) -> f64 {
        (self.dice.borrow_mut().next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Whether reclaim of the cgroup holds writers back, having no dirty limits of its own (`writeback_throttling_sane`).
    pub(super) fn cgroup_v1(&self) -> bool {
        self.knobs.borrow().cgroup_version == 1
    }

    /// CPU time of the workload itself on this machine's CPUs.
    pub(super) fn scaled(&self, ns: u64) -> u64 {
        ns * 100 / self.speed_percent.max(1)
    }

    /// Every knob that the model obeys; those of a device are the first one's.
    pub(super) fn observed(&self) -> Setup {
        self.knobs.borrow().observed(self.device(DeviceId::FIRST))
    }

    pub(super) fn add_blocked(&self, change: i32) {
        self.blocked.set(self.blocked.get().saturating_add_signed(change));
    }

    /// Changes settings as writes to /proc/sys and to /sys would; those of a device are the first one's.
    pub(super) fn apply(&self, setup: &Setup) {
        let mut knobs = self.knobs.borrow_mut();
        knobs.apply(setup);
        let mut mm = self.mm.borrow_mut();
        let anew = ["vm.min_free_kbytes", "vm.watermark_scale_factor"].iter().any(|key| setup.get(key).is_some());
        if anew && self.clock.now() > 0 {
            mm.zones.iter_mut().for_each(|zone| zone.min_at_boot = None);
        }
        zone::set_watermarks(&mut mm.zones, knobs.min_free_kbytes, knobs.watermark_scale_factor, &self.profile);
        let cpus = (self.cpus.borrow().len() / mm.nodes) as u64;
        mm.zones.iter_mut().for_each(|zone| zone.size_blocks(cpus, knobs.watermark_boost_factor));
        if let Some(ratio) = number(setup, "vm.min_unmapped_ratio") {
            mm.zones.iter_mut().for_each(|zone| zone.min_unmapped = zone.managed * ratio / 100);
        }
        if let Some(ratio) = number(setup, "vm.min_slab_ratio") {
            mm.zones.iter_mut().for_each(|zone| zone.min_slab = zone.managed * ratio / 100);
        }
        if let Some(ratios) = setup.get("vm.lowmem_reserve_ratio") {
            let ratios: Vec<u64> = ratios.split_whitespace().filter_map(|ratio| ratio.parse().ok()).collect();
            zone::set_reserves(&mut mm.zones, [0, 1, 2].map(|at| ratios.get(at).copied().unwrap_or(32)));
        }
        if let Some(limit) = number(setup, "cgroup.memory_limit") {
            mm.cgroup.limit = limit / self.profile.page_bytes;
        }
        self.device(DeviceId::FIRST).apply(setup, &self.profile, &self.clock);
        self.precursor_used.set(self.precursor_used.get() || knobs.precursor != "off");
        drop((knobs, mm));
        if ["vm.dirty_ratio", "vm.dirty_bytes"].iter().any(|key| setup.get(key).is_some()) {
            self.set_ratelimit();
        }
    }

    /// The page of the block device that holds this file's inode and directory entry.
    pub(super) fn metadata_page(&self, key: FileKey) -> u64 {
        let (high, low) = (key.1 >> 32, key.1 & 0xffff_ffff);
        let per_block = self.profile.inodes_per_block.get();
        // Files of one directory (one high half) are together, other directories elsewhere. ext4 has workloads' own directories in the group
        // of the run's (fs/ext4/ialloc.c: find_group_orlov).
        let own = self.ext4_directory(key).unwrap_or(high ^ u64::from(key.0) << 24);
        let group = own.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 38;
        if self.profile.names_per_block.is_some() {
            return names::scattered(group, low / per_block);
        }
        (group + low / per_block) % (1 << 26)
    }

    fn ext4_directory(&self, key: FileKey) -> Option<u64> {
        let recorder = self.recorder.borrow();
        let workload = recorder.workloads.get(key.0 as usize)?;
        let is_ext4 = self.device(self.place_of_key(key)).file_system.kind == Kind::Ext4;
        is_ext4.then(|| workload.directory(FileId(key.1)).0)
    }

    pub(super) fn file_under_writeback(&self, inode: InodeId) -> bool {
        self.mm.borrow().inodes.get(inode).under_writeback > 0
    }

    /// A request is done: its pages are clean, or its submitter continues.
    pub(super) fn io_done(&self, request: &Request) {
        let is_file = |inode: InodeId| {
            let mm = self.mm.borrow();
            !mm.is_block_device(inode) && !mm.inodes.get(inode).anonymous
        };
        let of_file = matches!(request.done, Done::Pages { inode, .. } if is_file(inode));
        let device = self.device(request.device);
        if of_file && device.file_system.converts_extents && device.journal.borrow_mut().holds_back(request) {
            return;
        }
        match request.done {
            Done::Pages { inode, first_page, pages } => self.pages_done(inode, first_page, u64::from(pages)),
            Done::Ahead { inode, end } => {
                self.coming.borrow_mut().arrived(inode, end);
                self.wb.borrow_mut().waiting.wake_all(&self.clock);
            }
            Done::Wake(task) => super::block::done_for(self, request.device, task),
        }
        // The completion's softirq runs on whichever CPU took the interrupt.
        let mut cpus = self.cpus.borrow_mut();
        let cpu = ((self.random() * cpus.len() as f64) as usize).min(cpus.len() - 1);
        cpus.interrupt(cpu as u16, self.clock.now(), u64::from(request.pages) * self.costs.end_page_ns);
    }

    fn pages_done(&self, inode: InodeId, first_page: u64, pages: u64) {
        let mut mm = self.mm.borrow_mut();
        let (mut page, end) = (first_page, first_page + pages);
        let own = mm.inodes.get(inode);
        let (dead, device, anonymous) = (own.dead, own.device, own.anonymous);
        while page < end {
            let (window, bits) = bits_from(page, end);
            let mut id = mm.inodes.get(inode).windows.get(window);
            while id != NONE {
                let chunk = mm.chunks.get_mut(id);
                let (done, next, zone) = (chunk.writeback & bits, chunk.sibling, usize::from(chunk.zone));
                chunk.writeback &= !done;
                let written = chunk.reclaim && chunk.writeback | chunk.dirty == 0;
                chunk.reclaim &= !written;
                // mm/swap.c: rotate_reclaimable_page, up to 4.11: not if it is active.
                let rotates = written && (self.profile.is_6() || usize::from(chunk.list) == INACTIVE);
                mm.of_device(inode).writeback -= u64::from(done.count_ones());
                mm.zones[zone].writeback -= u64::from(done.count_ones());
                mm.inodes.get_mut(inode).under_writeback -= done.count_ones();
                if mm.inodes.get(inode).in_cgroup {
                    mm.cgroup.writeback -= u64::from(done.count_ones());
                }
                if rotates && !dead {
                    mm.chunks.move_to_inactive_tail(id);
                }
                if dead && done != 0 {
                    mm.drop_pages(id, done, 0);
                }
                id = next;
            }
            page += u64::from(bits.count_ones());
        }
        if dead && mm.inodes.get(inode).pages == 0 {
            mm.free_inode(inode, 0);
        }
        drop(mm);
        if !anonymous {
            self.note_completed(device, pages);
        }
        let mut wb = self.wb.borrow_mut();
        wb.waiting.wake_all(&self.clock);
        wb.written_for_throttled(pages, &self.clock);
    }
}
