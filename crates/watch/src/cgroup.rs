//! Finds the part of a control group's path that only root can have made, and the unit that this part names.
//!
//! A user who owns a control group (delegation, or chown) can make any number of groups in it, with any names:
//! `x.scope`, `postgresql.service`, 64 hexadecimal digits, `user-1001.slice`. Such names identify nothing.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use flatwater_host::clock::monotonic_ns;
use flatwater_host::target::{Container, container_of};
use rustix::fs::{CWD, Mode, OFlags, fstat, openat};

/// The mounted hierarchies of control groups.
#[derive(Debug)]
pub struct Hierarchies {
    roots: Vec<OwnedFd>,
    /// The length of the part that root made, by path, and when it was found.
    known: Mutex<HashMap<Box<str>, (usize, u64)>>,
}

/// Version 2 and, with version 1, the memory controller's, the unified, and systemd's own hierarchy. The kernel side
/// and `owner` take paths from these.
const ROOTS: &[&str] = &["/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup"];
const OPEN: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const OTHERS_WRITE: u32 = 0o022;
/// Paths are looked at again after this long, because a group can get another owner.
const FRESH_NS: u64 = 10_000_000_000;
const KNOWN_MAX: usize = 4_096;
/// Longer paths are not kept: a user can nest groups to paths of 4 KiB.
const KNOWN_BYTES_MAX: usize = 512;

impl Hierarchies {
    /// The hierarchies of this machine.
    pub fn machine() -> &'static Hierarchies {
        static MACHINE: OnceLock<Hierarchies> = OnceLock::new();
        MACHINE.get_or_init(|| {
            let roots = ROOTS.iter().map(Path::new);
            Hierarchies::open(roots.filter(|root| root.join("cgroup.procs").exists()))
        })
    }

    fn open<'a>(roots: impl Iterator<Item = &'a Path>) -> Hierarchies {
        let roots = roots.filter_map(|root| openat(CWD, root, OPEN, Mode::empty()).ok()).collect();
        Hierarchies { roots, known: Mutex::default() }
    }

    /// The part of the path that only root can have made: up to the first group that another user owns or can write.
    #[must_use]
    pub fn made_by_root<'a>(&self, cgroup: &'a str) -> &'a str {
        let now_ns = monotonic_ns();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = |at_ns: u64| at_ns.saturating_add(FRESH_NS) > now_ns;
        let length = match known.get(cgroup) {
            Some((length, at_ns)) if fresh(*at_ns) => *length,
            _ => {
                let length = self.look(cgroup);
                if known.len() >= KNOWN_MAX {
                    known.retain(|_, (_, at_ns)| fresh(*at_ns));
                }
                if known.len() < KNOWN_MAX && cgroup.len() <= KNOWN_BYTES_MAX {
                    known.insert(cgroup.into(), (length, now_ns));
                }
                length
            }
        };
        cgroup.get(..length).unwrap_or_default()
    }

    /// The length of that part. A hierarchy without the group says nothing about what is below; one in which another
    /// user owns part of the path decides.
    fn look(&self, cgroup: &str) -> usize {
        let walked: Vec<Walked> = self.roots.iter().map(|root| walk(root, cgroup)).collect();
        let owned = walked.iter().filter(|walked| walked.is_owned).map(|walked| walked.length).min();
        let furthest = || walked.iter().map(|walked| walked.length).max();
        owned.or_else(furthest).unwrap_or_else(|| parts(cgroup).next().map_or(0, |(_, end)| end))
    }
}

struct Walked {
    length: usize,
    /// Whether the walk ended at a group that another user owns or can write.
    is_owned: bool,
}

/// Each part of the path with the offset where the part ends. A process outside the daemon's own cgroup namespace has a
/// path that begins with `/..`; the rest is the path from the machine's root.
fn parts(cgroup: &str) -> impl Iterator<Item = (&str, usize)> {
    let end = |part: &str| part.as_ptr() as usize - cgroup.as_ptr() as usize + part.len();
    cgroup.split('/').filter(|part| !part.is_empty() && *part != "..").map(move |part| (part, end(part)))
}

fn walk(root: &OwnedFd, cgroup: &str) -> Walked {
    let mut length = 0;
    let mut above: Option<OwnedFd> = None;
    for (part, end) in parts(cgroup) {
        let dir = above.as_ref().unwrap_or(root);
        if !fstat(dir).is_ok_and(|stat| stat.st_uid == 0 && stat.st_mode & OTHERS_WRITE == 0) {
            return Walked { length, is_owned: true };
        }
        // Only root can have made this part, also one that is gone by now.
        length = end;
        match openat(dir, part, OPEN, Mode::empty()) {
            Ok(dir) => above = Some(dir),
            Err(_) => break,
        }
    }
    Walked { length, is_owned: false }
}

/// The outermost container of a path that root made, else the outermost unit.
#[must_use]
pub fn unit_of(made_by_root: &str) -> Option<Container> {
    let mut units = parts(made_by_root).filter_map(|(_, end)| container_of(made_by_root.get(..end)?));
    let first = units.next()?;
    match first {
        Container::Unit(_) => units.find(|unit| !matches!(unit, Container::Unit(_))).or(Some(first)),
        container => Some(container),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::os::unix::fs::chown;
    use std::path::Path;

    use needs::UNPRIVILEGED_ID;

    use super::{Hierarchies, unit_of};

    const ID: &str = "8f3b0c1d2e4f5a69788796a5b4c3d2e1f00112233445566778899aabbccddeef";

    /// A directory as a hierarchy, with these groups.
    pub(crate) fn hierarchy(groups: &[&str]) -> (tempfile::TempDir, Hierarchies) {
        let place = tempfile::tempdir().expect("a directory");
        groups.iter().for_each(|group| fs::create_dir_all(place.path().join(group)).expect("made"));
        let hierarchies = Hierarchies::open([place.path()].into_iter());
        (place, hierarchies)
    }

    fn give_away(place: &Path, group: &str) {
        chown(place.join(group), Some(UNPRIVILEGED_ID), None).expect("given away, as root");
    }

    #[test]
    fn a_group_that_a_user_owns_is_roots_and_those_in_it_are_not() {
        let scope = format!("delegated/{ID}/x.scope");
        let (place, hierarchies) = hierarchy(&[&scope, "system.slice/x.service/y.service"]);
        give_away(place.path(), "delegated");
        assert_eq!(hierarchies.made_by_root(&format!("/{scope}")), "/delegated");
        assert_eq!(hierarchies.made_by_root("/delegated/user-1001.slice/gone"), "/delegated");
        give_away(place.path(), "system.slice/x.service");
        assert_eq!(hierarchies.made_by_root("/system.slice/x.service/y.service"), "/system.slice/x.service");
        // A unit that has ended, and a daemon in another cgroup namespace.
        assert_eq!(hierarchies.made_by_root("/system.slice/gone.service"), "/system.slice/gone.service");
        assert_eq!(hierarchies.made_by_root("/../../system.slice/z.service/a"), "/../../system.slice/z.service");
        assert_eq!(hierarchies.made_by_root("/"), "");
    }

    #[test]
    fn a_group_that_others_can_write_ends_the_part_that_root_made() {
        use std::os::unix::fs::PermissionsExt;
        let (place, hierarchies) = hierarchy(&["jobs/a"]);
        fs::set_permissions(place.path().join("jobs"), fs::Permissions::from_mode(0o777)).expect("chmod");
        assert_eq!(hierarchies.made_by_root("/jobs/a"), "/jobs");
    }

    #[test]
    fn paths_are_looked_at_once_and_their_number_is_bounded() {
        let (place, hierarchies) = hierarchy(&["jobs/a"]);
        assert_eq!(hierarchies.made_by_root("/jobs/a"), "/jobs/a");
        fs::remove_dir_all(place.path().join("jobs")).expect("removed");
        assert_eq!(hierarchies.made_by_root("/jobs/a"), "/jobs/a");
        let _ = hierarchies.made_by_root(&"/jobs/a".repeat(200));
        assert_eq!(hierarchies.known.lock().expect("not poisoned").len(), 1, "the long path is not kept");
        (0..2 * super::KNOWN_MAX).for_each(|at| _ = hierarchies.made_by_root(&format!("/jobs/{at}")));
        assert!(hierarchies.known.lock().expect("not poisoned").len() <= super::KNOWN_MAX);
    }

    #[test]
    fn the_outermost_container_or_unit_decides() {
        let name = |path: &str| unit_of(path).map(|unit| unit.to_string());
        assert_eq!(name("/system.slice/x.service/postgresql.service").as_deref(), Some("x.service"));
        let nested = format!("/system.slice/docker-{ID}.scope/system.slice/postgresql.service");
        assert_eq!(name(&nested), Some(format!("container {}", &ID[..12])));
        let of_service = format!("/system.slice/docker.service/{ID}");
        assert_eq!(name(&of_service), Some(format!("container {}", &ID[..12])));
        assert_eq!(name("/jobs/a"), None);
    }
}
