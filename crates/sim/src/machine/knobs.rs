//! Values of the model's knobs, read from a `Setup` and changed by a timeline.

use crate::block::device::Device;
use crate::constant::constants;
use crate::kernel::Profile;
use flatwater_recording::Setup;

constants! {
    const WATERMARK_SCALE_FACTOR: u64 = kernel(10, "mm/page_alloc.c", "watermark_scale_factor", "6.1");
    const SWAPPINESS: u64 = kernel(60, "mm/vmscan.c", "vm_swappiness", "2.6.18");
    const VFS_CACHE_PRESSURE: u64 = kernel(100, "fs/dcache.c", "sysctl_vfs_cache_pressure", "2.6.18");
    const DIRTY_EXPIRE_NS: u64 = kernel(30_000_000_000, "mm/page-writeback.c", "dirty_expire_interval", "2.6.18");
    const WRITEBACK_INTERVAL_NS: u64 =
        kernel(5_000_000_000, "mm/page-writeback.c", "dirty_writeback_interval", "2.6.18");
    const COMMIT_INTERVAL_NS: u64 = kernel(5_000_000_000, "include/linux/jbd.h", "JBD_DEFAULT_MAX_COMMIT_AGE", "2.6.32");
    const READ_AHEAD_PAGES: u64 = kernel(32, "include/linux/mm.h", "VM_MAX_READAHEAD (128 KiB)", "2.6.18");
    pub const NR_REQUESTS: u64 = kernel(128, "include/linux/blkdev.h", "BLKDEV_MAX_RQ", "2.6.18");
}

#[derive(Clone, Debug)]
pub struct Knobs {
    pub zone_reclaim_mode: u64,
    pub min_free_kbytes: u64,
    pub watermark_scale_factor: u64,
    pub vfs_cache_pressure: u64,
    pub swappiness: u64,
    /// Anonymous memory comes in pages of 2 MiB (thp.enabled).
    pub huge_pages: bool,
    pub dirty_ratio: u64,
    pub background_ratio: u64,
    pub dirty_bytes: Option<u64>,
    pub background_bytes: Option<u64>,
    pub dirty_expire_ns: u64,
    pub writeback_interval_ns: u64,
    pub ratelimit_pages: u64,
    pub slabinfo_interval_ns: u64,
    pub precursor: String,
}

/// The knobs of one device.
#[derive(Clone, Debug)]
pub struct DeviceKnobs {
    pub commit_interval_ns: u64,
    /// `None`: the kernel's default (`block::tags`).
    pub nr_requests: Option<u64>,
    /// Read latency that writes are throttled for, us; 0 is off, `None` the kernel's default (`wbt`).
    pub wbt_target_us: Option<u64>,
    /// Pages of the largest request (queue.max_sectors_kb).
    pub request_pages: u64,
    /// Pages of the largest readahead window (queue.read_ahead_kb).
    pub read_ahead_pages: u64,
    /// `deadline` (or mq-deadline), `none` (or noop).
    pub scheduler: String,
    /// The device's part of the dirty limit: its reserved percentage, its maximum in percent and in bytes, and whether
    /// it binds while the machine's does not.
    pub bdi_min_percent: u64,
    pub bdi_max_percent: u64,
    pub bdi_max_bytes: Option<u64>,
    pub bdi_strict: bool,
}

/// A number of a setup that is not negative.
pub fn number(setup: &Setup, key: &str) -> Option<u64> {
    setup.number(key).and_then(|value| u64::try_from(value).ok())
}

/// Copies a number of a setup, if it is set.
fn take(setup: &Setup, key: &str, slot: &mut u64, unit: u64) {
    if let Some(value) = number(setup, key) {
        *slot = value * unit;
    }
}

/// Bytes or a rate; 0 means none.
pub fn bytes(setup: &Setup, key: &str) -> Option<u64> {
    number(setup, key).filter(|value| *value > 0)
}

impl DeviceKnobs {
    /// The kernel's defaults.
    pub fn defaults(profile: &Profile) -> DeviceKnobs {
        DeviceKnobs {
            commit_interval_ns: COMMIT_INTERVAL_NS.get(),
            nr_requests: None,
            wbt_target_us: None,
            request_pages: u64::from(profile.request_pages.get()),
            read_ahead_pages: READ_AHEAD_PAGES.get(),
            scheduler: profile.schedulers.first().copied().unwrap_or("noop").to_owned(),
            bdi_min_percent: 0,
            bdi_max_percent: 100,
            bdi_max_bytes: None,
            bdi_strict: false,
        }
    }

    /// Applies the device's settings of a setup.
    pub fn apply(&mut self, setup: &Setup) {
        take(setup, "journal_commit_interval", &mut self.commit_interval_ns, 1_000_000);
        self.nr_requests = number(setup, "queue.nr_requests").or(self.nr_requests);
        self.wbt_target_us = number(setup, "queue.wbt_lat_usec").or(self.wbt_target_us);
        let mut largest_kib = self.request_pages * 4;
        take(setup, "queue.max_sectors_kb", &mut largest_kib, 1);
        self.request_pages = (largest_kib / 4).clamp(1, 1 << 16);
        let mut ahead_kib = self.read_ahead_pages * 4;
        take(setup, "queue.read_ahead_kb", &mut ahead_kib, 1);
        self.read_ahead_pages = ahead_kib / 4;
        take(setup, "bdi.min_ratio", &mut self.bdi_min_percent, 1);
        take(setup, "bdi.max_ratio", &mut self.bdi_max_percent, 1);
        self.bdi_max_bytes = bytes(setup, "bdi.max_bytes").or(self.bdi_max_bytes);
        if let Some(strict) = setup.get("bdi.strict_limit") {
            self.bdi_strict = strict == "1";
        }
        if let Some(name) = setup.get("queue.scheduler") {
            name.clone_into(&mut self.scheduler);
        }
    }
}

impl Knobs {
    /// The kernel's defaults on this machine.
    pub fn defaults(profile: &Profile, min_free_kbytes: u64, zone_reclaim_mode: u64, ratelimit_pages: u64) -> Knobs {
        Knobs {
            zone_reclaim_mode,
            min_free_kbytes,
            watermark_scale_factor: WATERMARK_SCALE_FACTOR.get(),
            vfs_cache_pressure: VFS_CACHE_PRESSURE.get(),
            swappiness: SWAPPINESS.get(),
            huge_pages: profile.is_6(),
            dirty_ratio: profile.dirty_ratio.get(),
            background_ratio: profile.background_ratio.get(),
            dirty_bytes: None,
            background_bytes: None,
            dirty_expire_ns: DIRTY_EXPIRE_NS.get(),
            writeback_interval_ns: WRITEBACK_INTERVAL_NS.get(),
            ratelimit_pages,
            slabinfo_interval_ns: 0,
            precursor: "off".to_owned(),
        }
    }

    /// Applies a setup; knobs that the model does not have are ignored.
    pub fn apply(&mut self, setup: &Setup) {
        let take = |key: &str, slot: &mut u64, unit: u64| take(setup, key, slot, unit);
        let bytes = |key: &str| bytes(setup, key);
        take("vm.zone_reclaim_mode", &mut self.zone_reclaim_mode, 1);
        take("vm.min_free_kbytes", &mut self.min_free_kbytes, 1);
        take("vm.watermark_scale_factor", &mut self.watermark_scale_factor, 1);
        take("vm.vfs_cache_pressure", &mut self.vfs_cache_pressure, 1);
        take("vm.swappiness", &mut self.swappiness, 1);
        take("vm.dirty_ratio", &mut self.dirty_ratio, 1);
        take("vm.dirty_background_ratio", &mut self.background_ratio, 1);
        take("vm.dirty_expire_centisecs", &mut self.dirty_expire_ns, 10_000_000);
        take("vm.dirty_writeback_centisecs", &mut self.writeback_interval_ns, 10_000_000);
        take("ratelimit_pages", &mut self.ratelimit_pages, 1);
        take("monitor.slabinfo_interval", &mut self.slabinfo_interval_ns, 1_000_000);
        // Setting one of a pair clears the other (mm/page-writeback.c: dirty_bytes_handler).
        if setup.get("vm.dirty_bytes").is_some() {
            self.dirty_bytes = bytes("vm.dirty_bytes");
        } else if setup.get("vm.dirty_ratio").is_some() {
            self.dirty_bytes = None;
        }
        if setup.get("vm.dirty_background_bytes").is_some() {
            self.background_bytes = bytes("vm.dirty_background_bytes");
        } else if setup.get("vm.dirty_background_ratio").is_some() {
            self.background_bytes = None;
        }
        if let Some(mode) = setup.get("thp.enabled") {
            self.huge_pages = mode == "always";
        }
        if let Some(mode) = setup.get("precursor") {
            mode.clone_into(&mut self.precursor);
        }
    }

    /// For the recording's header: every knob that the model obeys.
    pub fn observed(&self, on: &Device) -> Setup {
        let mut setup = Setup::default();
        let (device, block) = (on.knobs.borrow(), on.block.borrow());
        for (key, value) in [
            ("vm.zone_reclaim_mode", self.zone_reclaim_mode),
            ("vm.min_free_kbytes", self.min_free_kbytes),
            ("vm.vfs_cache_pressure", self.vfs_cache_pressure),
            ("vm.swappiness", self.swappiness),
            ("vm.dirty_ratio", self.dirty_ratio),
            ("vm.dirty_background_ratio", self.background_ratio),
            ("vm.dirty_bytes", self.dirty_bytes.unwrap_or(0)),
            ("vm.dirty_background_bytes", self.background_bytes.unwrap_or(0)),
            ("vm.dirty_expire_centisecs", self.dirty_expire_ns / 10_000_000),
            ("vm.dirty_writeback_centisecs", self.writeback_interval_ns / 10_000_000),
            ("ratelimit_pages", self.ratelimit_pages),
            ("monitor.slabinfo_interval", self.slabinfo_interval_ns / 1_000_000),
            ("queue.nr_requests", block.requests().into()),
            ("queue.max_sectors_kb", device.request_pages * 4),
            ("queue.read_ahead_kb", device.read_ahead_pages * 4),
        ] {
            setup.observe(key, &value.to_string());
        }
        setup.observe("queue.scheduler", &device.scheduler);
        if let Some(wbt) = &block.wbt {
            setup.observe("queue.wbt_lat_usec", &wbt.target_us().to_string());
        }
        setup.observe("precursor", &self.precursor);
        setup
    }
}
