//! Differences between file systems: the log, what a commit writes first, what a sync waits for.
//!
//! Models: ext2 (no log: fsync writes the inode's block), ext3 and reiserfs (ordered: a commit first writes the data of
//! every file written since the last one; journal: the data goes through the log), ext4 (delayed allocation: a commit
//! waits for no other file's data), xfs (a log that only a sync waits for), flushes of the disk's cache (barriers),
//! updates of access times (strictatime, relatime, noatime). Leaves out: extents, log space.

use crate::Machine;
use crate::block::device::{self, DeviceId};
use crate::fs::inode::InodeId;
use crate::fs::journal;
use crate::fs::vfs;
use crate::kernel::Feature;
use crate::kernel::{Costs, Profile};
use crate::sched::site::Site;
use crate::sched::task::Task;
use crate::writeback;
use flatwater_recording::Setup;
use flatwater_workload::scenario::DiskSpec;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Ext2,
    Ext3,
    Ext4,
    Xfs,
    Reiserfs,
}

/// How a commit treats the data of the transaction's files (`data=`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    Ordered,
    Writeback,
    Journal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessTime {
    /// At each read, at most once a second (128-byte inodes count seconds).
    Strict,
    /// At the first read after a write (2.6.30 and later by default).
    Relative,
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystem {
    pub kind: Kind,
    pub data: Data,
    pub access_time: AccessTime,
    pub has_log: bool,
    /// Blocks are chosen when data is written out.
    pub delays_allocation: bool,
    /// Changes of metadata wait while the block is being logged (jbd: BJ_Shadow).
    pub shadows: bool,
    pub commit_interval_ns: u64,
    /// A commit, and a sync without one, flush the disk's cache.
    pub barriers: bool,
    /// Each page of a write is bracketed by a handle (ext4_write_begin; ext4_da_write_begin up to 5.14).
    pub starts_handles: bool,
    /// The log's blocks and the commit record are written together (`journal_async_commit`).
    pub commits_at_once: bool,
    /// A write of many pages takes one folio for them, and readahead folios that grow.
    pub large_folios: bool,
    pub ahead_folios: bool,
}

const SECOND: u64 = 1_000_000_000;
const ASYNC_COMMIT: &str = "journal_async_commit";

fn kind_of(name: &str) -> Option<Kind> {
    Some(match name {
        "ext2" => Kind::Ext2,
        "ext3" => Kind::Ext3,
        "ext4" => Kind::Ext4,
        "xfs" => Kind::Xfs,
        "reiserfs" => Kind::Reiserfs,
        _ => return None,
    })
}

/// The file system's name in a scenario: of a device, or in its setup.
fn name_of<'a>(disk: &'a DiskSpec, setup: &'a Setup) -> Option<&'a str> {
    disk.file_system.as_deref().or_else(|| setup.get("mount.file_system"))
}

impl FileSystem {
    /// The file system of a device; `refuse` has checked the scenario.
    #[must_use]
    pub fn of(disk: &DiskSpec, setup: &Setup, profile: &Profile) -> FileSystem {
        let named = name_of(disk, setup);
        let name = named.or(profile.file_systems.first().copied());
        let kind = name.and_then(kind_of).unwrap_or(Kind::Ext2);
        let asks_for_log =
            setup.get("journal_commit_interval").is_some() || options(setup).any(|option| option.starts_with("data="));
        // On 2.6 the file system has a log if the scenario names one with a log, or a commit interval.
        let has_log = match kind {
            Kind::Ext2 => false,
            Kind::Ext4 | Kind::Xfs => profile.is_6() || named.is_some(),
            Kind::Ext3 => profile.is_6() || named.is_some() || asks_for_log,
            Kind::Reiserfs => asks_for_log,
        };
        let mut own = FileSystem {
            kind,
            data: Data::Ordered,
            access_time: if profile.has(Feature::Relatime) { AccessTime::Relative } else { AccessTime::Strict },
            has_log,
            delays_allocation: matches!(kind, Kind::Ext4 | Kind::Xfs),
            shadows: kind != Kind::Xfs,
            // JBD_DEFAULT_MAX_COMMIT_AGE; xfs_syncd_centisecs; fs/reiserfs/journal.c: JOURNAL_MAX_TRANS_AGE.
            commit_interval_ns: if matches!(kind, Kind::Xfs | Kind::Reiserfs) { 30 } else { 5 } * SECOND,
            starts_handles: false,
            commits_at_once: false,
            large_folios: name.is_some_and(|name| profile.large_folio_systems.contains(&name)),
            ahead_folios: name.is_some_and(|name| profile.ahead_folio_systems.contains(&name)),
            barriers: match kind {
                Kind::Ext4 | Kind::Xfs => true,
                Kind::Ext2 | Kind::Ext3 | Kind::Reiserfs => false,
            },
        };
        options(setup).for_each(|option| own.take(option));
        own
    }

    fn take(&mut self, option: &str) {
        match option {
            "noatime" => self.access_time = AccessTime::Never,
            "relatime" => self.access_time = AccessTime::Relative,
            "strictatime" | "atime" => self.access_time = AccessTime::Strict,
            "data=ordered" => self.data = Data::Ordered,
            "data=writeback" => self.data = Data::Writeback,
            "data=journal" => (self.data, self.delays_allocation) = (Data::Journal, false),
            "barrier" | "barrier=1" => self.barriers = true,
            "nobarrier" | "barrier=0" => self.barriers = false,
            ASYNC_COMMIT => self.commits_at_once = self.kind == Kind::Ext4,
            "nodelalloc" => {
                (self.delays_allocation, self.starts_handles) = (false, self.kind == Kind::Ext4 && self.has_log);
            }
            _ => {
                if let Some(seconds) = option.strip_prefix("commit=").and_then(|text| text.parse::<u64>().ok()) {
                    self.commit_interval_ns = seconds.max(1) * SECOND;
                }
            }
        }
    }

    /// CPU time of the handle of a page of a write.
    #[must_use]
    pub fn handle_ns(&self, costs: &Costs) -> u64 {
        if self.starts_handles { costs.handle_ns } else { 0 }
    }

    /// fs/ext4/inode.c: ext4_block_write_begin, fs/buffer.c: block_commit_write, 6.16: both go over all buffer_heads of
    /// a folio, of which a write() overwrites a part.
    #[must_use]
    pub fn walk_ns(&self, costs: &Costs, order: u8) -> u64 {
        let walks = self.kind == Kind::Ext4 && self.large_folios && order > 0;
        if walks { costs.buffer_walk_ns << (order + 1) } else { 0 }
    }

    /// Whether fallocate() leaves extents that the first write converts (ext4, xfs; ext3 has none).
    #[must_use]
    pub fn has_extents(&self) -> bool {
        matches!(self.kind, Kind::Ext4 | Kind::Xfs)
    }

    /// Whether a commit writes the data of all files that were written since the last one.
    #[must_use]
    pub fn commit_writes_data(&self) -> bool {
        self.data == Data::Ordered && !self.delays_allocation
    }
}

fn options(setup: &Setup) -> impl Iterator<Item = &str> {
    setup.get("mount.options").unwrap_or_default().split(',').map(str::trim).filter(|option| !option.is_empty())
}

fn is_of_barriers(option: &str) -> bool {
    ["barrier", "barrier=1", "nobarrier", "barrier=0"].contains(&option)
}

/// The mount option about flushes, if set.
#[must_use]
pub fn barrier_option(setup: &Setup) -> Option<&str> {
    options(setup).find(|option| is_of_barriers(option))
}

/// An option of ext4 that is set on another file system.
#[must_use]
pub fn foreign_option<'a>(disk: &DiskSpec, setup: &'a Setup, profile: &Profile) -> Option<&'a str> {
    let is_ext4 = FileSystem::of(disk, setup, profile).kind == Kind::Ext4;
    options(setup).find(|option| *option == ASYNC_COMMIT && !is_ext4)
}

/// An option that this kernel's file system no longer accepts.
#[must_use]
pub fn dropped_option<'a>(disk: &DiskSpec, setup: &'a Setup, profile: &Profile) -> Option<&'a str> {
    let name = name_of(disk, setup).or(profile.file_systems.first().copied());
    let gone = name == Some("xfs");
    options(setup).find(|option| gone && is_of_barriers(option))
}

/// Options without effect in the model.
const WITHOUT_EFFECT: &[&str] = &[
    "rw",
    "defaults",
    "nodiratime",
    "nosuid",
    "nodev",
    "delalloc",
    "noquota",
    "errors=remount-ro",
    "inode64",
    "notail",
];

/// The first mount option that the model does not know.
#[must_use]
pub fn unknown_option(setup: &Setup) -> Option<&str> {
    let known = |option: &&str| {
        let own = ["noatime", "relatime", "strictatime", "atime", "nodelalloc", ASYNC_COMMIT].contains(option);
        let data = ["data=ordered", "data=writeback", "data=journal"].contains(option);
        let commit = option.strip_prefix("commit=").is_some_and(|text| text.parse::<u64>().is_ok());
        own || is_of_barriers(option) || data || commit || WITHOUT_EFFECT.contains(option)
    };
    options(setup).find(|option| !known(option))
}

/// touch_atime: a read that changes the inode.
pub async fn note_read(m: &Machine, task: &mut Task, id: InodeId) {
    let device = m.place_of(id);
    let file_system = &m.device(device).file_system;
    let seconds = (m.clock.now() / SECOND) as u32 + 1;
    let key = {
        let mut mm = m.mm.borrow_mut();
        let inode = mm.inodes.get_mut(id);
        let due = match file_system.access_time {
            AccessTime::Never => false,
            AccessTime::Strict => inode.read_s != seconds,
            AccessTime::Relative => inode.written_since_read,
        };
        inode.written_since_read = false;
        if !due {
            return;
        }
        inode.read_s = seconds;
        inode.key
    };
    journal::touch(m, device, task).await;
    journal::note_change(m, id, false);
    vfs::metadata(m, task, key, true).await;
}

/// The metadata part of fsync and fdatasync, after the data.
pub async fn sync_metadata(m: &Machine, task: &mut Task, id: InodeId, data_only: bool) {
    let device = m.place_of(id);
    let own = &m.device(device).file_system;
    if own.has_log {
        let changed = m.mm.borrow().inodes.get(id).changed[usize::from(data_only)];
        if !journal::sync(m, device, task, changed).await {
            // ext4_sync_file, xfs_file_fsync: the data is in the disk's cache, and no commit has flushed it.
            flush_disk(m, device, task, Site::SyncWait).await;
        }
        return;
    }
    if own.kind != Kind::Ext2 || m.mm.borrow().inodes.get(id).changed[usize::from(data_only)] == 0 {
        return;
    }
    // fs/ext2/inode.c: ext2_update_inode with do_sync: the inode's block, and the wait for it.
    let key = m.mm.borrow().inodes.get(id).key;
    m.mm.borrow_mut().inodes.get_mut(id).changed = [0; 2];
    m.mm.borrow_mut().events.pgpgout_kib += 4;
    device::perform(m, device, task, (true, m.metadata_page(key), 1), Site::SyncWait).await;
}

/// blkdev_issue_flush: waits until the disk has written its cache.
pub async fn flush_disk(m: &Machine, device: DeviceId, task: &mut Task, site: Site) {
    let own = m.device(device);
    if own.file_system.barriers && own.block.borrow().caches_writes() {
        device::perform(m, device, task, (true, 0, 0), site).await;
    }
}

/// journal_submit_data_buffers: writes the data of the transaction's files before its log blocks, and waits for it.
/// Pages dirtied during that belong to the next transaction and are not written.
pub async fn write_ordered(m: &Machine, device: DeviceId, task: &mut Task, files: Vec<InodeId>) {
    for id in files {
        let dirty = m.mm.borrow().inodes.get(id).dirty.as_deref().map_or(0, |dirty| dirty.pages);
        writeback::write_pages(m, task, id, dirty, Site::GetRequestWait).await;
    }
    task.run(m).await;
    let queue = &m.device(device).block;
    let mark = queue.borrow().mark();
    while !queue.borrow().has_written(mark) {
        writeback::wait_for_pages(m, task, Site::CommitWait).await;
    }
}

#[cfg(test)]
mod tests {
    use super::{AccessTime, Data, FileSystem, Kind, unknown_option};
    use crate::kernel::find;
    use crate::run;
    use flatwater_recording::OpKind;
    use flatwater_workload::scenario::Scenario;

    fn of(kernel: &str, disk: &str, setup: &str) -> FileSystem {
        let text = format!(
            "name = 'x'\nsentence = 'X.'\nkernel = '{kernel}'\n[machine]\nnodes = ['1GiB']\ndisk = {{ {disk} }}\n\
             [setup]\n{setup}\n[[workload]]\nuse = 'journal'\n"
        );
        let scenario = Scenario::parse("x", &text).expect("parses");
        assert_eq!(unknown_option(&scenario.setup), None);
        FileSystem::of(&scenario.machine.disk, &scenario.setup, &find(kernel).expect("a profile"))
    }

    #[test]
    fn mount_options_and_defaults_are_those_of_the_kernel() {
        let ext3 = of("linux-2.6.32", "file_system = 'ext3'", "");
        assert!(ext3.has_log && ext3.commit_writes_data() && ext3.access_time == AccessTime::Relative);
        assert_eq!(
            of("linux-2.6.17", "file_system = 'ext3'", "").access_time,
            AccessTime::Strict,
            "2.6.30 made it relatime"
        );
        let fast = of("linux-2.6.32", "file_system = 'ext3'", "'mount.options' = 'noatime,data=writeback,commit=15'");
        assert_eq!(
            (fast.data, fast.access_time, fast.commit_interval_ns),
            (Data::Writeback, AccessTime::Never, 15_000_000_000)
        );
        assert!(!fast.commit_writes_data());
        let ext4 = of("linux-6.1", "file_system = 'ext4'", "");
        assert!(ext4.delays_allocation && ext4.shadows && !ext4.commit_writes_data());
        let xfs = of("linux-6.1", "file_system = 'xfs'", "");
        assert_eq!((xfs.kind, xfs.shadows, xfs.has_log), (Kind::Xfs, false, true));
        assert!(!of("linux-2.6.32", "file_system = 'ext2'", "").has_log);
        assert!(of("linux-6.1", "", "'mount.options' = 'data=journal'").data == Data::Journal);
    }

    /// fs/ext4/inode.c: ext4_write_begin starts a handle for each page, ext4_da_write_begin does not.
    #[test]
    fn a_write_of_ext4_without_delayed_allocation_takes_handles() {
        let handles = |kernel: &str, disk: &str, setup: &str| {
            let profile = find(kernel).expect("a profile");
            of(kernel, disk, setup).handle_ns(&profile.costs.values())
        };
        let (ext4, plain) = ("file_system = 'ext4'", "'mount.options' = 'nodelalloc'");
        for (kernel, disk, setup, taken) in [
            ("linux-6.1", ext4, "", 0),
            ("linux-6.1", ext4, plain, 560),
            ("linux-2.6.32", "file_system = 'ext3'", "", 0),
            ("linux-6.1", "file_system = 'xfs'", "", 0),
            ("linux-6.1", "file_system = 'ext2'", "", 0),
        ] {
            assert_eq!(handles(kernel, disk, setup), taken, "{kernel} {disk} {setup}");
        }
    }

    /// A folio of 1 MiB has 256 buffer_heads, and two functions go over them.
    #[test]
    fn a_small_write_into_a_large_ext4_folio_walks_all_buffers() {
        let walked = |kernel: &str, disk: &str, order: u8| {
            let costs = find(kernel).expect("a profile").costs.values();
            of(kernel, disk, "").walk_ns(&costs, order) / costs.buffer_walk_ns.max(1)
        };
        let (ext4, xfs) = ("file_system = 'ext4'", "file_system = 'xfs'");
        assert_eq!([0, 2, 8].map(|order| walked("linux-6.18", ext4, order)), [0, 8, 512]);
        assert_eq!((walked("linux-6.12", ext4, 8), walked("linux-6.18", xfs, 8)), (0, 0));
    }

    /// Milliseconds of a mean fsync of 4 KiB into blocks that were only allocated, on flash that takes 10 ms for a
    /// flush.
    fn fsync_ms(options: &str) -> f64 {
        let text = format!(
            "name = 'x'\nsentence = 'X.'\nkernel = 'linux-6.1'\nduration = '2s'\n[machine]\nnodes = ['1GiB']\n\
             disk = {{ file_system = 'ext4', latency = '100us', flush = '10ms' }}\n[setup]\n'mount.options' = '{options}'\n\
             [[workload]]\nuse = 'access'\nreads = 0\nfile_size = '16MiB'\npattern = 'sequential'\nsync = 'fsync'\n\
             fill = 'allocate'\n"
        );
        let ran = run(&Scenario::parse("x", &text).expect("parses")).expect("runs").0;
        let syncs = ran.latency.iter().find(|bucket| bucket.op == OpKind::Fsync).expect("syncs");
        syncs.from_start.unpack().mean() / 1e6
    }

    /// jbd2: the log is on the disk before its commit record, which takes another flush; with journal_async_commit
    /// both go together.
    #[test]
    fn a_commit_flushes_twice_and_with_journal_async_commit_once() {
        let [plain, at_once] = ["barrier=1", "barrier=1,journal_async_commit"].map(fsync_ms);
        assert!((20.0..22.0).contains(&plain) && (10.0..12.0).contains(&at_once), "{plain} {at_once}");
    }

    /// Median time of a write over pages in memory, ns.
    fn write_ns(bytes: &str, setup: &str) -> u64 {
        let text = format!(
            "name = 'x'\nsentence = 'X.'\nkernel = 'linux-6.1'\nduration = '100ms'\n[machine]\nnodes = ['1GiB']\n\
             disk = {{ file_system = 'ext4' }}\n[setup]\n{setup}\n[[workload]]\nuse = 'access'\nreads = 0\n\
             file_size = '1MiB'\nbytes = '{bytes}'\n"
        );
        let ran = run(&Scenario::parse("x", &text).expect("parses")).expect("runs").0;
        let writes = ran.latency.iter().find(|bucket| bucket.op == OpKind::Write).expect("writes");
        writes.from_start.unpack().value_at_quantile(0.5)
    }

    #[test]
    fn a_write_of_four_pages_takes_four_handles() {
        for (bytes, pages) in [("4KiB", 1), ("16KiB", 4)] {
            let more_ns = write_ns(bytes, "'mount.options' = 'nodelalloc'") - write_ns(bytes, "");
            assert!(more_ns.abs_diff(pages * 560) < 30, "{bytes}: {more_ns}");
        }
    }
}
