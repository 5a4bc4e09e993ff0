//! Collects what this machine offers to the writer of a file.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::budget::Limits;
use crate::choose::{Facts, FileSystem};
use crate::files::Names;
use crate::handles::Dir;
use crate::lasting::{Removal, in_container, removal};

/// Collects the facts by which `auto` chooses. If a fact cannot be read, the more careful value is used.
pub fn probe(path: &Path, shm_dir: &Path) -> io::Result<Facts> {
    let names = Names::of(path).map_err(io::Error::other)?;
    probe_names(&names, &Dir::named(shm_dir))
}

pub(crate) fn probe_names(names: &Names, shm_dir: &io::Result<Dir>) -> io::Result<Facts> {
    let shm = shm_dir.as_ref().ok().filter(|dir| takes_shm(dir));
    Ok(Facts {
        kernel: kernel(),
        file_system: file_system(names.dir().file_system()?),
        fallocate: allocates(names),
        shm: shm.is_some(),
        removal: shm.and_then(removal_of),
        swap: std::fs::read_to_string("/proc/swaps").is_ok_and(|s| s.lines().count() > 1),
        limits: limits(),
    })
}

/// The kernel's ID of this boot; 0 if it cannot be read.
pub(crate) fn boot_id() -> u128 {
    static BOOT: OnceLock<u128> = OnceLock::new();
    *BOOT.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        u128::from_str_radix(&text.trim().replace('-', ""), 16).unwrap_or(0)
    })
}

fn kernel() -> (u32, u32) {
    let uname = rustix::system::uname();
    parse_release(&uname.release().to_string_lossy())
}

fn parse_release(release: &str) -> (u32, u32) {
    let mut parts = release.split(|c: char| !c.is_ascii_digit()).map(|p| p.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

/// Magic numbers from `include/uapi/linux/magic.h`; ZFS, f2fs and bcachefs from their own headers.
fn file_system(kind: u64) -> FileSystem {
    match kind & 0xffff_ffff {
        0xef53 | 0x5846_5342 => FileSystem::InPlace,
        0x9123_683e | 0xf2f5_2010 | 0xca45_1a4e | 0x2fc1_2fc1 => FileSystem::CopyOnWrite,
        0x6969 | 0xff53_4d42 | 0xfe53_4d42 | 0x6573_5546 | 0x0102_1997 | 0x00c3_6400 => FileSystem::Remote,
        0x0102_1994 | 0x8584_58f6 => FileSystem::Memory,
        other => FileSystem::Unknown(other),
    }
}

/// Tries `fallocate` on a real file in the directory.
fn allocates(names: &Names) -> bool {
    let name = format!(".{:016x}.precursor-probe", random());
    let Ok(file) = names.dir().create(&name) else { return false };
    // Removed before the call, so that a process killed here leaves nothing.
    let _ = names.dir().remove(&name);
    crate::sys::allocate(&file, 0, 64 << 10, false).is_ok()
}

/// Event that may remove files from this directory; judged only for the file system of `/dev/shm`.
fn removal_of(shm: &Dir) -> Option<Removal> {
    let usual = Dir::named(Path::new("/dev/shm")).and_then(|dir| dir.device()).ok();
    let same = usual.is_some() && shm.device().ok() == usual;
    if same { removal(Path::new("/"), crate::handles::me(), in_container()) } else { None }
}

/// Whether a page of shared memory can be created in the directory, by name.
fn takes_shm(dir: &Dir) -> bool {
    if !dir.file_system().is_ok_and(|kind| file_system(kind) == FileSystem::Memory) {
        return false;
    }
    let name = format!("precursor-probe-{:016x}", random());
    let made = crate::live::create_shm(dir, &name, crate::sys::page_bytes()).is_ok();
    let _ = dir.remove(&name);
    made
}

/// A random number for tokens and names.
pub(crate) fn random() -> u64 {
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => u64::from_le_bytes(bytes) | 1,
        // Without getrandom (before 3.17), names rely on O_EXCL, and recovery on owner and boot.
        _ => u64::from(std::process::id()) << 32 | 1,
    }
}

/// The memory limits of this process. A limit that cannot be read counts as none.
pub fn limits() -> Limits {
    Limits {
        memlock_bytes: memlock(),
        cgroup_bytes: cgroup_limit(),
        dirty_bytes: dirty_threshold(),
        ..Limits::default()
    }
}

fn memlock() -> Option<u64> {
    const CAP_IPC_LOCK: u64 = 14;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|l| u64::from_str_radix(l.strip_prefix("CapEff:")?.trim(), 16).ok());
    if effective.is_some_and(|caps| caps >> CAP_IPC_LOCK & 1 == 1) {
        return None;
    }
    rustix::process::getrlimit(rustix::process::Resource::Memlock).current
}

fn cgroup_limit() -> Option<u64> {
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    tightest(&own, &mounts, |path| std::fs::read_to_string(path).ok())
}

/// The smallest `memory.max` (v2) or `memory.limit_in_bytes` (v1) from the process's cgroup up to the root.
fn tightest(own: &str, mounts: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let mut least: Option<u64> = None;
    for line in own.lines() {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, group) = (fields.next()?, fields.next()?, fields.next()?);
        let (kind, file) = match controllers {
            "" => ("cgroup2", "memory.max"),
            c if c.split(',').any(|c| c == "memory") => ("cgroup", "memory.limit_in_bytes"),
            _ => continue,
        };
        let Some(root) = mount_of(mounts, kind) else { continue };
        let mut group = PathBuf::from(group.trim_start_matches('/'));
        loop {
            let limit = read(&root.join(&group).join(file)).and_then(|t| t.trim().parse::<u64>().ok());
            // Without a limit, v1 gives the largest multiple of the page size.
            if let Some(limit) = limit.filter(|l| *l < 1 << 62) {
                least = Some(least.map_or(limit, |l| l.min(limit)));
            }
            if !group.pop() {
                break;
            }
        }
    }
    least
}

fn mount_of(mounts: &str, kind: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let (at, fs, options) = (fields.get(1)?, fields.get(2)?, fields.get(3)?);
        let right = *fs == kind && (kind == "cgroup2" || options.split(',').any(|o| o == "memory"));
        right.then(|| PathBuf::from(at))
    })
}

/// The kernel's dirty threshold, which follows free memory and the sysctls (`mm/page-writeback.c:
/// domain_dirty_limits`).
fn dirty_threshold() -> Option<u64> {
    let vmstat = std::fs::read_to_string("/proc/vmstat").ok()?;
    let pages = vmstat.lines().find_map(|l| l.strip_prefix("nr_dirty_threshold ")?.trim().parse::<u64>().ok())?;
    Some(pages.saturating_mul(crate::sys::page_bytes()))
}

#[cfg(test)]
mod tests {
    use super::{parse_release, tightest};
    use std::path::Path;

    #[test]
    fn releases_of_all_kinds_are_read() {
        assert_eq!(parse_release("6.18.44-fc-v657"), (6, 18));
        assert_eq!(parse_release("2.6.32"), (2, 6));
        assert_eq!(parse_release("6.1-rc3"), (6, 1));
        assert_eq!(parse_release("odd"), (0, 0));
    }

    #[test]
    fn the_tightest_group_on_the_way_up_counts() {
        let mounts =
            "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let read = |path: &Path| match path.to_str().unwrap() {
            "/sys/fs/cgroup/memory/jobs/feed/memory.limit_in_bytes" => Some("9223372036854771712\n".to_owned()),
            "/sys/fs/cgroup/memory/jobs/memory.limit_in_bytes" => Some("536870912\n".to_owned()),
            "/sys/fs/cgroup/unified/x/memory.max" => Some("max\n".to_owned()),
            _ => None,
        };
        assert_eq!(tightest("9:memory:/jobs/feed\n0::/x\n", mounts, read), Some(512 << 20));
        assert_eq!(tightest("0::/x\n", mounts, read), None);
        assert_eq!(tightest("", mounts, read), None);
    }
}
