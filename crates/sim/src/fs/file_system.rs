//! Differences between file systems: the log, what a commit writes first, what a sync waits for.
//!
//! Models: ext2 (no log: fsync writes the inode's block), ext3 and reiserfs (ordered: a commit first writes the data of
//! every file written since the last one; journal: the data goes through the log), ext4 (delayed allocation: a commit
//! waits for no other file's data), xfs (a log that only a sync waits for),
//! updates of access times (strictatime, relatime, noatime). Leaves out: extents, log space, flushes of
//! the disk's cache (barriers).

use crate::Machine;
use crate::block::device::{self, DeviceId};
use crate::fs::inode::InodeId;
use crate::fs::journal;
use crate::fs::vfs;
use crate::kernel::Profile;
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
    /// A write of many pages takes one folio for them, and readahead folios that grow.
    pub large_folios: bool,
    pub ahead_folios: bool,
}

const SECOND: u64 = 1_000_000_000;

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
            access_time: if profile.relatime { AccessTime::Relative } else { AccessTime::Strict },
            has_log,
            delays_allocation: matches!(kind, Kind::Ext4 | Kind::Xfs),
            shadows: kind != Kind::Xfs,
            // JBD_DEFAULT_MAX_COMMIT_AGE; xfs_syncd_centisecs; fs/reiserfs/journal.c: JOURNAL_MAX_TRANS_AGE.
            commit_interval_ns: if matches!(kind, Kind::Xfs | Kind::Reiserfs) { 30 } else { 5 } * SECOND,
            large_folios: name.is_some_and(|name| profile.large_folio_systems.contains(&name)),
            ahead_folios: name.is_some_and(|name| profile.ahead_folio_systems.contains(&name)),
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
            "nodelalloc" => self.delays_allocation = false,
            _ => {
                if let Some(seconds) = option.strip_prefix("commit=").and_then(|text| text.parse::<u64>().ok()) {
                    self.commit_interval_ns = seconds.max(1) * SECOND;
                }
            }
        }
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
        let own = ["noatime", "relatime", "strictatime", "atime", "nodelalloc"].contains(option);
        let data = ["data=ordered", "data=writeback", "data=journal"].contains(option);
        let commit = option.strip_prefix("commit=").is_some_and(|text| text.parse::<u64>().is_ok());
        own || data || commit || WITHOUT_EFFECT.contains(option)
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
        journal::sync(m, device, task, changed).await;
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
}
