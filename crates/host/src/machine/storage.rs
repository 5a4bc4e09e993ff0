//! Where commands apply on this machine: the mounted cgroup controllers, and the file system of a directory.

use std::path::Path;

use flatwater_recording::{Controller, ControllerName, Storage};

use crate::proc::mounts::{self, Mount};
use crate::proc::text;
use crate::sampler::devices_of;

/// The cgroup controllers that are mounted and can limit a program.
#[must_use]
pub fn controllers() -> Vec<Controller> {
    let mounts = mounts::read().unwrap_or_default();
    let enabled = |mount: &Mount| text::read(mount.point.join("cgroup.controllers")).unwrap_or_default();
    ControllerName::ALL.into_iter().filter_map(|name| controller(name, &mounts, enabled)).collect()
}

/// A controller that is mounted as version 1 is not available in version 2 (cgroups(7)).
fn controller(name: ControllerName, mounts: &[Mount], enabled: impl Fn(&Mount) -> String) -> Option<Controller> {
    let of = |version: u32, mount: &Mount| Controller::new(name, version, mount.point.display().to_string());
    let v1 = mounts.iter().find(|mount| mount.kind == "cgroup" && mount.has(name.in_version(1)));
    if let Some(mount) = v1 {
        return Some(of(1, mount));
    }
    let mount = mounts.iter().find(|mount| mount.kind == "cgroup2")?;
    let has = enabled(mount).split_whitespace().any(|one| one == name.in_version(2));
    has.then(|| of(2, mount))
}

/// The file system that contains this path, and its disk.
#[must_use]
pub fn storage_of(path: &Path) -> Option<Storage> {
    let mounts = mounts::read().ok()?;
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mount = mounts::above(&mounts, &path)?;
    let mut storage = Storage::new(mount.point.display().to_string(), &mount.kind);
    if let Some(device) = devices_of(&path).first() {
        let journal = || Path::new("/proc/fs/jbd2").read_dir().ok().map(|names| has_journal(names, &device.name));
        storage.shared_journal = match mount.kind.as_str() {
            // jbd2 makes /proc/fs/jbd2/DEVICE-INODE for each journal (fs/jbd2/journal.c: jbd2_stats_proc_init).
            "ext2" | "ext3" | "ext4" => Some(journal().unwrap_or(false)),
            "xfs" | "btrfs" | "jfs" | "ocfs2" => Some(true),
            _ => None,
        };
        let schedulers = text::read(format!("/sys/block/{}/queue/scheduler", device.disk)).unwrap_or_default();
        storage.schedulers = schedulers.split_whitespace().map(|one| one.trim_matches(['[', ']']).to_owned()).collect();
        storage.disk = Some(device.disk.clone());
    }
    Some(storage)
}

/// Whether one of the journals is on this device: `vda1-8`, or `vda1` if it is an external one.
fn has_journal(journals: std::fs::ReadDir, device: &str) -> bool {
    journals.flatten().any(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.strip_prefix(device).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    })
}

#[cfg(test)]
mod tests {
    use super::{controller, has_journal};
    use crate::proc::mounts::of_mountinfo;
    use flatwater_recording::ControllerName;

    const HYBRID: &str = "\
30 20 0:25 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio
31 20 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
32 20 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
";

    #[test]
    fn each_controller_has_the_hierarchy_in_which_it_is_mounted() {
        let mounts = of_mountinfo(HYBRID.as_bytes());
        let found = |name| {
            let found = controller(name, &mounts, |_| "cpu cpuset".to_owned());
            found.map(|controller| (controller.version, controller.mount_point))
        };
        assert_eq!(found(ControllerName::Memory), Some((1, "/sys/fs/cgroup/memory".to_owned())));
        assert_eq!(found(ControllerName::Io), Some((1, "/sys/fs/cgroup/blkio".to_owned())));
        assert_eq!(found(ControllerName::Cpu), Some((2, "/sys/fs/cgroup/unified".to_owned())));
        assert!(controller(ControllerName::Cpu, &mounts, |_| "io".to_owned()).is_none());
    }

    #[test]
    fn a_journal_belongs_to_its_device_and_not_to_one_whose_name_it_begins_with() {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(directory.path().join("vda10-8")).expect("made");
        let of = |device| has_journal(directory.path().read_dir().expect("readable"), device);
        assert!(of("vda10"));
        assert!(!of("vda1"));
    }
}
