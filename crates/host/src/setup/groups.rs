//! Cgroups inside and outside another one, without limits of their own: for `probe`.

use std::io;
use std::path::{Path, PathBuf};

use super::cgroup::{self, is_cgroup};
use super::restore;
use super::undo::{Age, UndoLog};
use super::{Log, Restored, SetupError, state};
use flatwater_recording::ControllerName;

/// A cgroup in each hierarchy whose limits can hold back I/O. Dropping it removes all cgroups that it made.
pub struct Groups {
    journal: Option<UndoLog>,
    log: Log,
}

impl std::fmt::Debug for Groups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Groups").field("journal", &self.journal).finish_non_exhaustive()
    }
}

/// The cgroup of one set of processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// The directories, one a hierarchy.
    pub directories: Vec<PathBuf>,
    /// The controllers that do not separate these processes from others: their hierarchy does not have the given cgroup,
    /// is not mounted, or is not enabled for new cgroups.
    pub shared: Vec<ControllerName>,
}

impl Group {
    /// The files to which a process writes its id to join.
    #[must_use]
    pub fn procs(&self) -> Vec<PathBuf> {
        self.directories.iter().map(|directory| directory.join("cgroup.procs")).collect()
    }
}

impl Groups {
    /// Makes nothing yet.
    pub fn new(log: Log) -> Result<Groups, SetupError> {
        let state = state::directory().map_err(|source| SetupError::file("use the state directory", "", source))?;
        let journal = UndoLog::create(&state).map_err(|source| SetupError::file("write", state.path(), source))?;
        Ok(Groups { journal: Some(journal), log })
    }

    /// A cgroup to which the limits of `within` apply. `None`: this process's own.
    pub fn inside(&mut self, within: Option<&Path>) -> Result<Group, SetupError> {
        let Some(journal) = &mut self.journal else { return Ok(Group::default()) };
        cgroup::beside(within, cgroup::Side::Inside, journal)
    }

    /// A new cgroup above or beside `within`, whose limits do not apply to it.
    pub fn outside(&mut self, within: Option<&Path>) -> Result<Group, SetupError> {
        let Some(journal) = &mut self.journal else { return Ok(Group::default()) };
        cgroup::beside(within, cgroup::Side::Outside, journal)
    }

    /// Ends the processes in the cgroups and removes these.
    pub fn remove(mut self) -> Restored {
        self.undo()
    }

    fn undo(&mut self) -> Restored {
        let Some(journal) = self.journal.take() else { return Restored::default() };
        restore::undo_all(journal, Age::SameBoot, &self.log)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        let _ = self.undo();
    }
}

/// The smallest memory limit of a cgroup and those above it, bytes. `None`: no limit.
#[must_use]
pub fn memory_limit(directory: &Path) -> Option<u64> {
    let names = ["memory.max", "memory.high", "memory.limit_in_bytes"];
    let above = directory.ancestors().take_while(|path| is_cgroup(path));
    let limits = above.flat_map(|path| names.map(|name| path.join(name))).filter_map(|file| read_limit(&file).ok()?);
    limits.min()
}

fn read_limit(file: &Path) -> io::Result<Option<u64>> {
    /// cgroup v1 prints the largest page-aligned number for "no limit".
    const NONE_MIN: u64 = 1 << 62;
    let text = std::fs::read_to_string(file)?;
    Ok(text.trim().parse().ok().filter(|limit| *limit < NONE_MIN))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::chown;
    use std::path::{Path, PathBuf};
    use std::process::{Child, Command};
    use std::sync::{Arc, Mutex, PoisonError};

    use needs::{Need, UNPRIVILEGED_ID, as_unprivileged, skip};

    use super::{ControllerName, Groups, cgroup};

    /// The names of new cgroups contain the process id, which the tests share.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    #[test]
    fn a_group_inside_and_one_outside_are_made_and_removed() {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let mut groups = Groups::new(Arc::new(|_: &str| {})).expect("a journal");
        let inside = match groups.inside(None) {
            Ok(inside) => inside,
            Err(why) => return skip(Need::Memcg, "groups", why),
        };
        let outside = groups.outside(None).expect("the same rights");
        assert!(!inside.directories.is_empty());
        for directory in inside.directories.iter().chain(&outside.directories) {
            assert!(directory.join("cgroup.procs").exists(), "{}", directory.display());
        }
        assert!(inside.directories.iter().all(|directory| !outside.directories.contains(directory)));
        let restored = groups.remove();
        assert!(restored.failed.is_empty(), "{restored:?}");
        assert!(outside.directories.iter().all(|directory| !directory.exists()));
        assert_eq!(super::memory_limit(Path::new("/proc")), None);
    }

    /// A cgroup that was made in an unexpected hierarchy would not be removed.
    #[test]
    fn a_given_cgroup_is_found_by_its_path_below_the_mount_point() {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let mut groups = Groups::new(Arc::new(|_: &str| {})).expect("a journal");
        let given = match groups.outside(None) {
            Ok(given) => given,
            Err(why) => return skip(Need::Memcg, "a given cgroup", why),
        };
        let place = tempfile::tempdir().expect("a directory");
        let link = place.path().join("link");
        std::os::unix::fs::symlink(&given.directories[0], &link).expect("a link");
        let inside = groups.inside(Some(&link)).expect("the same rights").directories;
        assert_eq!(inside.len(), given.directories.len());
        assert!(inside[0].starts_with(&given.directories[0]), "{}", inside[0].display());
        let other = format!("/sys/fs/cgroup/pids/flatwater-test-{}", std::process::id());
        if cgroup::is_cgroup(Path::new("/sys/fs/cgroup/pids")) && std::fs::create_dir(&other).is_ok() {
            let refused = [groups.inside(Some(Path::new(&other))), groups.outside(Some(Path::new(&other)))];
            std::fs::remove_dir(&other).expect("removed");
            for refused in refused {
                assert!(refused.expect_err("it has no limits").to_string().contains(&other));
            }
        }
        let restored = groups.remove();
        assert!(restored.failed.is_empty(), "{restored:?}");
    }

    /// A cgroup that was delegated to another user, and one below it. Removed on drop.
    struct Delegated(PathBuf);

    impl Delegated {
        fn new() -> Option<Delegated> {
            let mounts = crate::proc::mounts::read().ok()?;
            let of = |kind: &str, option| mounts.iter().find(|mount| mount.kind == kind && mount.has(option));
            let mount = of("cgroup", "memory").or_else(|| of("cgroup2", "rw"))?;
            let delegated = Delegated(mount.point.join(format!("delegated-{}", std::process::id())));
            std::fs::create_dir(&delegated.0).ok()?;
            give_away(&delegated.0);
            as_unprivileged(|| std::fs::create_dir(delegated.0.join("sub"))).ok()?;
            Some(delegated)
        }
    }

    fn give_away(group: &Path) {
        for path in [group.to_owned(), group.join("cgroup.procs")] {
            chown(path, Some(UNPRIVILEGED_ID), Some(UNPRIVILEGED_ID)).expect("delegated");
        }
    }

    impl Drop for Delegated {
        fn drop(&mut self) {
            for below in std::fs::read_dir(&self.0).into_iter().flatten().flatten() {
                let _ = std::fs::remove_dir(below.path());
            }
            let _ = std::fs::remove_dir(&self.0);
        }
    }

    /// Replaces a group that `probe` made by another one with the same name and a process in it.
    fn replace(group: &Path) -> Child {
        as_unprivileged(|| {
            std::fs::remove_dir(group).expect("it is empty, and the cgroup above belongs to this user");
            std::fs::create_dir(group).expect("created");
            let child = Command::new("sleep").arg("60").spawn().expect("sleep");
            std::fs::write(group.join("cgroup.procs"), child.id().to_string()).expect("moved");
            child
        })
    }

    /// Root moved the members of the replaced group to its own cgroup: out of the limits of their delegated one.
    #[test]
    fn processes_of_a_user_who_replaced_the_group_stay_where_they_are() {
        if !rustix::process::geteuid().is_root() {
            return skip(Need::Root, "a delegated cgroup", "not root");
        }
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(delegated) = Delegated::new() else {
            return skip(Need::Memcg, "a delegated cgroup", "cannot be created");
        };
        let mut groups = Groups::new(Arc::new(|_: &str| {})).expect("a journal");
        let sub = delegated.0.join("sub");
        // v1 creates a group outside, v2 one inside.
        let made = [groups.inside(Some(&sub)), groups.outside(Some(&sub))].into_iter().flatten();
        let made = made.flat_map(|group| group.directories).find(|path| {
            path.starts_with(&delegated.0) && path.file_name().is_some_and(|name| name.as_encoded_bytes() != b"sub")
        });
        let group = made.expect("a group below the delegated one");
        let mut child = replace(&group);
        let restored = groups.remove();
        let members = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        child.kill().expect("kill");
        let id = child.id().to_string();
        child.wait().expect("wait");
        assert!(members.lines().any(|member| member == id), "moved by root: {restored:?}");
        let why = format!("belongs to uid {UNPRIVILEGED_ID}");
        assert!(
            restored.failed.is_empty() && restored.stepped_back.iter().any(|line| line.contains(&why)),
            "{restored:?}"
        );
    }

    /// The processes were silently measured in this process's cgroup, as if that were the given one.
    #[test]
    fn a_hierarchy_without_the_given_cgroup_separates_nothing() {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = Path::new("/sys/fs/cgroup/memory");
        let only = memory.join(format!("flatwater-only-{}", std::process::id()));
        if !memory.join("memory.limit_in_bytes").exists() || std::fs::create_dir(&only).is_err() {
            return needs::skip(
                needs::Need::Memcg,
                "a cgroup of one v1 hierarchy",
                "no memory controller in cgroup v1",
            );
        }
        let mut groups = Groups::new(Arc::new(|_: &str| {})).expect("a journal");
        let (inside, outside) = (groups.inside(Some(&only)), groups.outside(Some(&only)));
        groups.remove();
        std::fs::remove_dir(&only).expect("removed");
        let (inside, outside) = (inside.expect("inside"), outside.expect("outside"));
        let separated: Vec<_> = outside.directories.iter().filter(|path| !inside.directories.contains(path)).collect();
        assert!(inside.directories.contains(&only) && separated.len() == 1, "{inside:?} {outside:?}");
        assert!(separated[0].starts_with(memory), "{separated:?}");
        for group in [&inside, &outside] {
            assert!(
                group.shared.contains(&ControllerName::Io) && !group.shared.contains(&ControllerName::Memory),
                "{group:?}"
            );
        }
    }
}
