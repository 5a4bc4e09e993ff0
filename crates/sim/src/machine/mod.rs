//! The modelled machine: all state of a run.

pub mod bounds;
pub mod build;
pub mod knob_support;
pub mod knobs;
pub mod model_inputs;
pub mod refuse;

use crate::kernel::PAGE_BYTES;
use std::cell::{Cell, RefCell};

use rand_core::Rng;

use crate::block::device::{Device, DeviceId};
use crate::block::{Done, Request};
use crate::fs::file_system::Kind;
use crate::fs::inode::{FileKey, InodeId};
use crate::fs::namei;
use crate::kernel::{Costs, Profile};
use crate::machine::knobs::{Knobs, number};
use crate::machine::model_inputs::ModelInputs;
use crate::mm::chunk::{INACTIVE, NONE, bits_from};
use crate::mm::memory::Mm;
use crate::mm::readahead::Coming;
use crate::mm::shrinker::Owed;
use crate::mm::zone;
use crate::run::actor::Shared;
use crate::run::options::Ablations;
use crate::run::precursor_steps::Aheads;
use crate::run::recorder::Recorder;
use crate::sched::clock::{Clock, TaskId, WaitQueue};
use crate::sched::cpu::Cpus;
use crate::writeback::Writeback;
use flatwater_recording::{Series, Setup};
use flatwater_workload::FileId;

pub struct Machine {
    pub(crate) clock: Clock,
    pub(crate) profile: Profile,
    pub(crate) costs: Costs,
    pub(crate) inputs: ModelInputs,
    pub(crate) speed_percent: u64,
    pub(crate) knobs: RefCell<Knobs>,
    pub(crate) ablations: Ablations,
    pub(crate) cpus: RefCell<Cpus>,
    pub(crate) mm: RefCell<Mm>,
    pub(crate) devices: Vec<Device>,
    pub(crate) coming: RefCell<Coming>,
    pub(crate) wb: RefCell<Writeback>,
    pub(crate) kswapd: RefCell<Vec<Option<TaskId>>>,
    pub(crate) owed: Cell<Owed>,
    pub(crate) blocked: Cell<u32>,
    pub(crate) shared: Vec<RefCell<Shared>>,
    pub(crate) aheads: RefCell<Aheads>,
    pub(crate) precursor_used: Cell<bool>,
    pub(crate) skips_setup: bool,
    /// Whether the set-up is performed before the measured part, and the tasks that wait for its end.
    pub(crate) prepares: bool,
    pub(crate) preparing: Cell<u32>,
    pub(crate) start_ns: Cell<u64>,
    pub(crate) ready: RefCell<WaitQueue>,
    /// The memory, file system and disk of a 2.2 kernel, instead of `mm`, `block` and `wb`.
    pub(crate) old: Option<RefCell<crate::v22::Old>>,
    pub(crate) series: RefCell<Vec<Series>>,
    /// The tables begin here.
    pub(crate) samples_from_ns: Cell<u64>,
    pub(crate) recorder: RefCell<Recorder>,
    pub(crate) dice: RefCell<rand_pcg::Pcg64>,
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
    /// A random number in [0, 1).
    pub(crate) fn random(&self) -> f64 {
        (self.dice.borrow_mut().next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Whether the cgroup has no dirty limits, so that its reclaim throttles writers (`writeback_throttling_sane` is
    /// false).
    pub(crate) fn cgroup_v1(&self) -> bool {
        self.inputs.cgroup_version == 1
    }

    /// CPU time of the workload's own computing on this machine.
    pub(crate) fn scaled(&self, ns: u64) -> u64 {
        ns * 100 / self.speed_percent.max(1)
    }

    /// Every knob that the model obeys; those of a device are the first one's.
    pub(crate) fn observed(&self) -> Setup {
        self.knobs.borrow().observed(self.device(DeviceId::FIRST))
    }

    pub(crate) fn add_blocked(&self, change: i32) {
        self.blocked.set(self.blocked.get().saturating_add_signed(change));
    }

    /// Changes settings as writes to /proc/sys and to /sys would; those of a device are the first one's.
    pub(crate) fn apply(&self, setup: &Setup) {
        let mut knobs = self.knobs.borrow_mut();
        knobs.apply(setup);
        let mut mm = self.mm.borrow_mut();
        let anew = ["vm.min_free_kbytes", "vm.watermark_scale_factor"].iter().any(|key| setup.get(key).is_some());
        if anew && self.clock.now() > 0 {
            mm.zones.iter_mut().for_each(|zone| zone.min_at_boot = None);
        }
        zone::set_watermarks(&mut mm.zones, knobs.min_free_kbytes, knobs.watermark_scale_factor, &self.profile);
        let cpus = (self.cpus.borrow().len() / mm.nodes) as u64;
        mm.zones.iter_mut().for_each(|zone| zone.size_pcp(cpus));
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
            mm.cgroup.limit = limit / PAGE_BYTES;
        }
        self.device(DeviceId::FIRST).apply(setup, &self.profile, &self.clock);
        self.precursor_used.set(self.precursor_used.get() || knobs.precursor != "off");
        drop((knobs, mm));
        if ["vm.dirty_ratio", "vm.dirty_bytes"].iter().any(|key| setup.get(key).is_some()) {
            self.set_ratelimit();
        }
    }

    /// The page of the block device that holds this file's inode and directory entry.
    pub(crate) fn metadata_page(&self, key: FileKey) -> u64 {
        let (high, low) = (key.1 >> 32, key.1 & 0xffff_ffff);
        let per_block = self.profile.inodes_per_block.get();
        // Files of one directory (one high half) are together. ext4 has the workloads' directories in the group of the
        // run's directory (fs/ext4/ialloc.c: find_group_orlov).
        let own = self.ext4_directory(key).unwrap_or(high ^ u64::from(key.0) << 24);
        let group = own.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 38;
        if self.profile.names_per_block.is_some() {
            return namei::scattered(group, low / per_block);
        }
        (group + low / per_block) % (1 << 26)
    }

    fn ext4_directory(&self, key: FileKey) -> Option<u64> {
        let recorder = self.recorder.borrow();
        let workload = recorder.workloads.get(key.0 as usize)?;
        let is_ext4 = self.device(self.place_of_key(key)).file_system.kind == Kind::Ext4;
        is_ext4.then(|| workload.directory(FileId(key.1)).0)
    }

    pub(crate) fn file_under_writeback(&self, inode: InodeId) -> bool {
        self.mm.borrow().inodes.get(inode).under_writeback > 0
    }

    /// Completes a request: cleans its pages or wakes its submitter.
    pub(crate) fn io_done(&self, request: &Request) {
        match request.done {
            Done::Pages { inode, first_page, pages } => self.pages_done(inode, first_page, u64::from(pages)),
            Done::Ahead { inode, end } => {
                self.coming.borrow_mut().arrived(inode, end);
                self.wb.borrow_mut().waiting.wake_all(&self.clock);
            }
            Done::Wake(task) => crate::block::done_for(self, request.device, task),
        }
        // The completion's softirq runs on a random CPU.
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
