//! The hierarchy of control groups that a directory is in: in v1 each has its own, and an id of a group says nothing in
//! another.

use std::io;
use std::path::Path;

/// Its number as the kernel counts them (`struct cgroup_root::hierarchy_id`, the first field of /proc/PID/cgroup); 0 is v2.
pub fn hierarchy_of(directory: &Path) -> io::Result<u32> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    let own = std::fs::read_to_string("/proc/self/cgroup")?;
    let directory = std::fs::canonicalize(directory)?;
    let directory = directory.to_string_lossy();
    find(&mounts, &own, &directory).ok_or_else(|| {
        io::Error::other(format!("{directory} is in no hierarchy that /proc/self/mountinfo and /proc/self/cgroup list"))
    })
}

/// `ID PARENT MAJ:MIN ROOT MOUNTPOINT OPTIONS [OPTIONAL]... - TYPE SOURCE SUPEROPTIONS` (proc(5)), beside
/// `HIERARCHY:CONTROLLERS:PATH` (cgroups(7)).
fn find(mounts: &str, own: &str, directory: &str) -> Option<u32> {
    let above = mounts.lines().filter_map(|line| {
        let (mount, source) = line.split_once(" - ")?;
        let point = mount.split(' ').nth(4)?;
        let below = directory.strip_prefix(point)?;
        (below.is_empty() || below.starts_with('/')).then_some((point, source))
    });
    // Of two mounts at one point the later one hides the other.
    let (_, source) = above.max_by_key(|(point, _)| point.len())?;
    let mut fields = source.split(' ');
    let (kind, options) = (fields.next()?, fields.nth(1)?);
    match kind {
        "cgroup2" => Some(0),
        "cgroup" => own.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (number, controllers) = (fields.next()?, fields.next()?);
            let has = |wanted: &str| options.split(',').any(|option| option == wanted);
            (!controllers.is_empty() && controllers.split(',').all(has)).then(|| number.parse().ok()).flatten()
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::find;

    const MOUNTS: &str = "\
30 1 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
33 30 0:29 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
34 30 0:30 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate
";
    const OWN: &str = "9:memory:/a\n4:cpu,cpuacct:/\n1:name=systemd:/init.scope\n0::/init.scope\n";

    #[test]
    fn each_hierarchy_has_its_number() {
        let of = |directory| find(MOUNTS, OWN, directory);
        assert_eq!(of("/sys/fs/cgroup/memory/a/b"), Some(9));
        assert_eq!(of("/sys/fs/cgroup/cpu,cpuacct"), Some(4));
        assert_eq!(of("/sys/fs/cgroup/systemd/user.slice"), Some(1));
        assert_eq!(of("/sys/fs/cgroup/unified/x"), Some(0));
        assert_eq!(of("/sys/fs/cgroup/memoryless"), None, "the tmpfs above");
        assert_eq!(of("/home"), None);
    }
}
