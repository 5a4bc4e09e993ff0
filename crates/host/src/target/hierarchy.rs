//! Finds the cgroup hierarchy of a directory. In v1 each controller has its own hierarchy, and a cgroup id is valid
//! only in one of them.

use std::io;
use std::path::Path;

use crate::proc::mounts::{self, Mount};

/// The kernel's number of the hierarchy (`struct cgroup_root::hierarchy_id`, the first field of /proc/PID/cgroup); 0 is
/// v2.
pub fn hierarchy_of(directory: &Path) -> io::Result<u32> {
    let mounts = mounts::read()?;
    let own = std::fs::read_to_string("/proc/self/cgroup")?;
    let directory = std::fs::canonicalize(directory)?;
    find(&mounts, &own, &directory).ok_or_else(|| {
        let directory = directory.display();
        io::Error::other(format!("{directory} is in no hierarchy that /proc/self/mountinfo and /proc/self/cgroup list"))
    })
}

/// Finds the number in `own`, the lines `HIERARCHY:CONTROLLERS:PATH` of /proc/self/cgroup (cgroups(7)).
fn find(mounts: &[Mount], own: &str, directory: &Path) -> Option<u32> {
    let mount = mounts::above(mounts, directory)?;
    match mount.kind.as_str() {
        "cgroup2" => Some(0),
        "cgroup" => own.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (number, controllers) = (fields.next()?, fields.next()?);
            (!controllers.is_empty() && controllers.split(',').all(|controller| mount.has(controller)))
                .then(|| number.parse().ok())
                .flatten()
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::find;
    use crate::proc::mounts::of_mountinfo;

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
        let mounts = of_mountinfo(MOUNTS.as_bytes());
        let of = |directory: &str| find(&mounts, OWN, Path::new(directory));
        assert_eq!(of("/sys/fs/cgroup/memory/a/b"), Some(9));
        assert_eq!(of("/sys/fs/cgroup/cpu,cpuacct"), Some(4));
        assert_eq!(of("/sys/fs/cgroup/systemd/user.slice"), Some(1));
        assert_eq!(of("/sys/fs/cgroup/unified/x"), Some(0));
        assert_eq!(of("/sys/fs/cgroup/memoryless"), None, "the tmpfs above");
        assert_eq!(of("/home"), None);
    }
}
