//! Finds the devices and the cgroup of a target.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::proc::mounts::{self, Mount};

/// A block device, such as `vda` with number `254:0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockDevice {
    pub name: String,
    pub number: String,
    /// The whole disk, to which queue and bdi settings apply: `vda` for `vda1`.
    pub disk: String,
    pub disk_number: String,
}

/// Follow stacked devices (device-mapper, RAID, loop files) at most this deep.
const DEPTH_MAX: usize = 4;

/// The device that holds this path, followed by the devices below it; empty for file systems without a device (tmpfs,
/// NFS).
#[must_use]
pub fn devices_of(path: &Path) -> Vec<BlockDevice> {
    let mut found = Vec::new();
    follow(path, DEPTH_MAX, &mut found);
    found
}

fn follow(path: &Path, depth: usize, found: &mut Vec<BlockDevice>) {
    let Ok(metadata) = fs::metadata(path) else { return };
    let device = metadata.dev();
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    if let Some(device) = device_at(&number) {
        add(device, depth, found);
        return;
    }
    // btrfs and overlayfs use device numbers of no device; use the mount that contains the path.
    let Ok(mounts) = mounts::read() else { return };
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    match holder(&mounts, &path) {
        Some(Holder::Device(source)) => {
            if let Some(device) = number_of(&source).and_then(|number| device_at(&number)) {
                add(device, depth, found);
            }
        }
        Some(Holder::Folder(below)) if depth > 0 => follow(&below, depth - 1, found),
        _ => {}
    }
}

/// Where the files of a mount are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Holder {
    /// `/dev/sda2`.
    Device(PathBuf),
    /// A directory on another file system: the upper directory of an overlay.
    Folder(PathBuf),
}

/// Where this path is stored.
fn holder(mounts: &[Mount], path: &Path) -> Option<Holder> {
    let mount = mounts::above(mounts, path)?;
    if mount.kind == "overlay" {
        return mount.option("upperdir").map(|upper| Holder::Folder(upper.into()));
    }
    let source = PathBuf::from(&mount.source);
    source.starts_with("/dev").then_some(Holder::Device(source))
}

fn add(device: BlockDevice, depth: usize, found: &mut Vec<BlockDevice>) {
    let known = found.iter().any(|other| other.number == device.number);
    let below = PathBuf::from(format!("/sys/dev/block/{}", device.disk_number));
    if known || depth == 0 {
        return;
    }
    found.push(device);
    for slave in fs::read_dir(below.join("slaves")).into_iter().flatten().flatten() {
        let number = fs::read_to_string(slave.path().join("dev")).unwrap_or_default();
        if let Some(device) = device_at(number.trim()) {
            add(device, depth - 1, found);
        }
    }
    if let Ok(backing) = fs::read(below.join("loop/backing_file")) {
        follow(Path::new(OsStr::from_bytes(backing.strip_suffix(b"\n").unwrap_or(&backing))), depth - 1, found);
    }
}

fn device_at(number: &str) -> Option<BlockDevice> {
    let place = fs::canonicalize(format!("/sys/dev/block/{number}")).ok()?;
    let disk = if place.join("partition").exists() { place.parent()?.to_owned() } else { place.clone() };
    let name = |place: &Path| place.file_name().map(|name| name.to_string_lossy().into_owned());
    let disk_number = fs::read_to_string(disk.join("dev")).ok()?.trim().to_owned();
    Some(BlockDevice { name: name(&place)?, number: number.to_owned(), disk: name(&disk)?, disk_number })
}

fn number_of(source: &Path) -> Option<String> {
    let device = fs::metadata(source).ok()?.rdev();
    Some(format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device)))
}

/// The memory cgroup of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetCgroup {
    /// The path in /proc/PID/cgroup, such as `/jobs/feed`.
    pub name: String,
    /// The cgroup version, 1 or 2.
    pub version: u32,
    /// The directory with the memory.* files.
    pub memory: PathBuf,
    /// The directory with cpu.stat, if the cpu controller is in another hierarchy (v1).
    pub cpu: Option<PathBuf>,
}

impl TargetCgroup {
    /// The memory cgroup of a process; `None` for the root cgroup, which has no limits.
    #[must_use]
    pub fn of_process(pid: u32) -> Option<TargetCgroup> {
        let membership = crate::proc::text::read(format!("/proc/{pid}/cgroup")).ok()?;
        TargetCgroup::from_texts(&membership, &mounts::read().ok()?)
    }

    /// The memory cgroup of a directory that the user named (`--cgroup`) or that was made for a run.
    #[must_use]
    pub fn at(directory: &Path) -> Option<TargetCgroup> {
        let version = [(2, "memory.current"), (1, "memory.usage_in_bytes")];
        let (version, _) = version.into_iter().find(|(_, file)| directory.join(file).exists())?;
        let mounts = mounts::read().unwrap_or_default();
        let wanted = if version == 1 { Hierarchy::V1("memory") } else { Hierarchy::V2 };
        let name = mount_of(&mounts, wanted)
            .and_then(|(_, point)| directory.strip_prefix(point).ok().map(|below| format!("/{}", below.display())));
        let name = name.unwrap_or_else(|| directory.display().to_string());
        let cpu = (version == 1).then(|| mount_of(&mounts, Hierarchy::V1("cpu"))).flatten();
        let cpu = cpu.map(|(_, point)| point.join(name.trim_start_matches('/'))).filter(|cpu| cpu.exists());
        Some(TargetCgroup { name, version, memory: directory.to_owned(), cpu })
    }

    fn from_texts(membership: &str, mounts: &[Mount]) -> Option<TargetCgroup> {
        let member = |controller: &str| {
            membership.lines().find_map(|line| {
                let mut fields = line.splitn(3, ':').skip(1);
                let controllers = fields.next()?;
                let path = fields.next()?;
                let ours = if controller.is_empty() { controllers.is_empty() } else { has(controllers, controller) };
                ours.then_some(path)
            })
        };
        let place = |path: &str, hierarchy: Hierarchy<'_>| {
            let (root, point) = mount_of(mounts, hierarchy)?;
            // In a container the mount shows only a part of the hierarchy.
            let below = Path::new(path).strip_prefix(root).unwrap_or(Path::new(path.trim_start_matches('/')));
            Some(point.join(below))
        };
        if let Some(path) = member("memory") {
            let cpu = member("cpu").and_then(|path| place(path, Hierarchy::V1("cpu")));
            let memory = place(path, Hierarchy::V1("memory"))?;
            return (path != "/").then(|| TargetCgroup { name: path.to_owned(), version: 1, memory, cpu });
        }
        let path = member("").filter(|&path| path != "/")?;
        Some(TargetCgroup { name: path.to_owned(), version: 2, memory: place(path, Hierarchy::V2)?, cpu: None })
    }
}

#[derive(Clone, Copy)]
enum Hierarchy<'a> {
    V1(&'a str),
    V2,
}

fn has(list: &str, item: &str) -> bool {
    list.split(',').any(|one| one == item)
}

/// The pair (root within the hierarchy, mount point) of a cgroup mount.
fn mount_of<'a>(mounts: &'a [Mount], hierarchy: Hierarchy<'_>) -> Option<(&'a Path, &'a Path)> {
    let found = mounts.iter().find(|mount| match hierarchy {
        Hierarchy::V1(controller) => mount.kind == "cgroup" && mount.has(controller),
        Hierarchy::V2 => mount.kind == "cgroup2",
    });
    found.map(|mount| (mount.root.as_path(), mount.point.as_path()))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{Holder, TargetCgroup, holder};
    use crate::proc::mounts::of_mountinfo;

    const MOUNTS: &str = "\
20 1 254:1 / / rw,relatime - ext4 /dev/vda1 rw
40 20 0:30 /@data /srv/data rw,relatime - btrfs /dev/vdb rw,subvol=/@data
41 20 0:31 / /var/lib/docker/overlay2/ab/merged rw - overlay overlay rw,lowerdir=/l,upperdir=/srv/data/up\\040per,workdir=/w
42 20 0:32 / /tmp rw - tmpfs tmpfs rw
43 20 0:33 / /srv/data/nfs rw - nfs4 server:/x rw
";

    /// Fault 5 of the kernel matrix: no device was found for btrfs and overlay.
    #[test]
    fn btrfs_and_overlay_have_the_device_of_their_mount() {
        let mounts = of_mountinfo(MOUNTS.as_bytes());
        let held = |path: &str| holder(&mounts, Path::new(path));
        assert_eq!(held("/srv/data/journal"), Some(Holder::Device("/dev/vdb".into())));
        let merged = "/var/lib/docker/overlay2/ab/merged/var/log";
        assert_eq!(held(merged), Some(Holder::Folder(PathBuf::from("/srv/data/up per"))));
        assert_eq!(held("/srv/database"), Some(Holder::Device("/dev/vda1".into())), "only the prefix matches");
        assert_eq!((held("/tmp/x"), held("/srv/data/nfs/x")), (None, None));
    }

    const V1_MOUNTS: &str = "\
30 20 0:25 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct
31 20 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
32 20 0:27 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";
    const V2_MOUNTS: &str = "26 20 0:23 /docker/abc /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate\n";

    #[test]
    fn v1_v2_and_hybrid_are_distinguished() {
        let hybrid = TargetCgroup::from_texts(
            "4:memory:/jobs/feed\n1:cpu,cpuacct:/\n0::/jobs\n",
            &of_mountinfo(V1_MOUNTS.as_bytes()),
        );
        assert_eq!(
            hybrid,
            Some(TargetCgroup {
                name: "/jobs/feed".to_owned(),
                version: 1,
                memory: PathBuf::from("/sys/fs/cgroup/memory/jobs/feed"),
                cpu: Some(PathBuf::from("/sys/fs/cgroup/cpu")),
            })
        );
        let unified =
            TargetCgroup::from_texts("0::/docker/abc/app\n", &of_mountinfo(V2_MOUNTS.as_bytes())).expect("a cgroup");
        assert_eq!((unified.version, unified.memory), (2, PathBuf::from("/sys/fs/cgroup/app")));
    }

    #[test]
    fn the_root_cgroup_is_not_sampled() {
        assert_eq!(TargetCgroup::from_texts("0::/\n", &of_mountinfo(V2_MOUNTS.as_bytes())), None);
        assert_eq!(TargetCgroup::from_texts("4:memory:/\n0::/\n", &of_mountinfo(V1_MOUNTS.as_bytes())), None);
        assert_eq!(TargetCgroup::from_texts("", &[]), None);
    }
}
