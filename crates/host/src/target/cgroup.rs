//! Finds the cgroup of a systemd unit, or of a container by the first digits of the id.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::container::container_id;

/// Why no cgroup was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CgroupError {
    #[error("no container id begins with {prefix}; try `find /sys/fs/cgroup -name '*{prefix}*'`")]
    NoContainer { prefix: String },
    #[error("{count} containers have ids that begin with {prefix}: {first} and {second}; give more digits")]
    Ambiguous { prefix: String, count: usize, first: String, second: String },
    #[error("{unit} has no cgroup; is the unit running? (`systemctl status {unit}`)")]
    NoUnit { unit: String },
    #[error(
        "users of this machine have made two such cgroups: {} and {}; give one as --cgroup PATH",
        first.display(),
        second.display()
    )]
    SeveralOwners { first: PathBuf, second: PathBuf },
}

/// Mount points of hierarchies: v2, then v1's; the memory controller's comes before systemd's.
const HIERARCHIES: [&str; 4] =
    ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/systemd"];

/// Do not search below this depth; Kubernetes nests cgroups six deep.
const DEPTH_MAX: usize = 10;

/// The cgroup of the container whose id begins with `prefix` (at least 4 hexadecimal digits). Fails unless exactly one
/// matches.
pub fn find_cgroup(prefix: &str) -> Result<PathBuf, CgroupError> {
    find_cgroup_below(HIERARCHIES.map(Path::new).into_iter(), prefix)
}

fn find_cgroup_below<'a>(roots: impl Iterator<Item = &'a Path>, prefix: &str) -> Result<PathBuf, CgroupError> {
    let wanted = prefix.to_ascii_lowercase();
    for root in roots {
        let mut found: BTreeMap<String, Vec<Match>> = BTreeMap::new();
        walk(root, 0, &mut |name, path| {
            if let Some(id) = container_id(name).filter(|id| id.starts_with(&wanted)) {
                found.entry(id).or_default().extend(Match::of(path));
            }
        });
        let mut ids = found.keys();
        match (ids.next(), ids.next()) {
            (None, _) => {}
            (Some(first), Some(second)) => {
                let (first, second) = (first.clone(), second.clone());
                return Err(CgroupError::Ambiguous { prefix: prefix.to_owned(), count: found.len(), first, second });
            }
            (Some(_), None) => {
                if let Some(path) = choose(&found.into_values().flatten().collect::<Vec<_>>())? {
                    return Ok(path);
                }
            }
        }
    }
    Err(CgroupError::NoContainer { prefix: prefix.to_owned() })
}

/// A cgroup with the wanted name.
struct Match {
    path: PathBuf,
    owner: u32,
}

impl Match {
    /// `None` if the cgroup has been removed.
    fn of(path: &Path) -> Option<Match> {
        Some(Match { path: path.to_owned(), owner: fs::metadata(path).ok()?.uid() })
    }
}

/// One of the cgroups with the same name, outer ones first. Any user can create one with any name below a cgroup that
/// was delegated to them, so root's counts first, then one of this user. Container managers nest a second cgroup with
/// the same id; the outermost one has all tasks.
fn choose(found: &[Match]) -> Result<Option<PathBuf>, CgroupError> {
    let own = rustix::process::geteuid().as_raw();
    let of = |owner: u32| found.iter().find(|one| one.owner == owner);
    let Some(chosen) = of(0).or_else(|| of(own)).or(found.first()) else { return Ok(None) };
    match found.iter().find(|one| one.owner != chosen.owner && ![0, own].contains(&chosen.owner)) {
        Some(other) => Err(CgroupError::SeveralOwners { first: chosen.path.clone(), second: other.path.clone() }),
        None => Ok(Some(chosen.path.clone())),
    }
}

/// The cgroup of a systemd unit; the suffix `.service` is optional.
pub fn find_unit(unit: &str) -> Result<PathBuf, CgroupError> {
    find_unit_below(HIERARCHIES.map(Path::new).into_iter(), unit)
}

fn find_unit_below<'a>(roots: impl Iterator<Item = &'a Path>, unit: &str) -> Result<PathBuf, CgroupError> {
    let unit = if unit.contains('.') { unit.to_owned() } else { format!("{unit}.service") };
    for root in roots {
        let mut found = Vec::new();
        walk(root, 0, &mut |name, path| {
            if name == unit {
                found.extend(Match::of(path));
            }
        });
        if let Some(path) = choose(&found)? {
            return Ok(path);
        }
    }
    Err(CgroupError::NoUnit { unit })
}

/// Calls `visit` for each cgroup below `directory`, outer ones first. Cgroups that are removed during the walk are
/// skipped.
fn walk(directory: &Path, depth: usize, visit: &mut dyn FnMut(&str, &Path)) {
    if depth > DEPTH_MAX {
        return;
    }
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        // Skip directories that are not cgroups: v1 hierarchies are mounted side by side in a tmpfs without
        // cgroup.procs.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) && path.join("cgroup.procs").is_file() {
            visit(&entry.file_name().to_string_lossy(), &path);
            walk(&path, depth + 1, visit);
        }
    }
}

/// The first process in the cgroup or in one below it: a pod's own cgroup is empty, its containers' cgroups are not.
#[must_use]
pub fn first_process(group: &Path) -> Option<u32> {
    let mut waiting = std::collections::VecDeque::from([group.to_owned()]);
    while let Some(group) = waiting.pop_front() {
        let procs = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        if let Some(pid) = procs.lines().find_map(|line| line.trim().parse().ok()) {
            return Some(pid);
        }
        let below = std::fs::read_dir(&group).into_iter().flatten().flatten();
        waiting
            .extend(below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()));
    }
    None
}

#[cfg(test)]
mod tests {
    #[test]
    fn first_process_searches_cgroups_below() {
        let pod = tempfile::tempdir().expect("a directory");
        assert_eq!(super::first_process(pod.path()), None);
        std::fs::create_dir_all(pod.path().join("container/inner")).expect("made");
        std::fs::write(pod.path().join("cgroup.procs"), "").expect("written");
        std::fs::write(pod.path().join("container/inner/cgroup.procs"), "77\n78\n").expect("written");
        assert_eq!(super::first_process(pod.path()), Some(77));
    }

    use super::{CgroupError, find_cgroup_below, find_unit_below};
    use std::path::{Path, PathBuf};

    fn hierarchy(groups: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        for group in groups {
            let mut path = PathBuf::from(root.path());
            for part in group.split('/') {
                path.push(part);
                std::fs::create_dir_all(&path).expect("a group");
                std::fs::write(path.join("cgroup.procs"), "").expect("its list");
            }
        }
        root
    }

    fn id(first: &str) -> String {
        format!("{first:0<64}")
    }

    #[test]
    fn a_container_is_found_by_the_first_digits_of_the_id() {
        let (a, b) = (id("8f3b0c"), id("8f3b11"));
        let docker = format!("system.slice/docker-{a}.scope/payload");
        let root = hierarchy(&[&docker, &format!("kubepods.slice/cri-containerd-{b}.scope")]);
        let find = |prefix: &str| find_cgroup_below([root.path()].into_iter(), prefix);
        assert_eq!(find("8f3b0c"), Ok(root.path().join(format!("system.slice/docker-{a}.scope"))));
        assert_eq!(find("8F3B11"), Ok(root.path().join(format!("kubepods.slice/cri-containerd-{b}.scope"))));
        assert!(matches!(find("8f3b"), Err(CgroupError::Ambiguous { count: 2, .. })));
        assert!(matches!(find("dead"), Err(CgroupError::NoContainer { .. })));
    }

    #[test]
    fn a_unit_is_found_at_any_depth() {
        let root = hierarchy(&["system.slice/system-postgresql.slice/postgresql@16-main.service", "user.slice"]);
        let find = |unit: &str| find_unit_below([Path::new("/nonexistent"), root.path()].into_iter(), unit);
        assert!(find("postgresql@16-main").expect("found").ends_with("postgresql@16-main.service"));
        assert!(find("postgresql@16-main.service").is_ok());
        assert_eq!(find("redis"), Err(CgroupError::NoUnit { unit: "redis.service".to_owned() }));
    }

    /// A user made a cgroup with the name of root's unit or container in a delegated cgroup: it was chosen if the kernel
    /// listed it first.
    #[test]
    fn a_name_that_another_user_took_does_not_hide_roots_cgroup() {
        if !rustix::process::geteuid().is_root() {
            return needs::skip(needs::Need::Root, "cgroups of several users", "needs root to have another owner");
        }
        let id = id("8f3b0c");
        for (first, second) in [("a", "b"), ("b", "a")] {
            let (real, forged) = (format!("{first}.slice"), format!("{second}.slice"));
            let container = |slice: &str| format!("{slice}/docker-{id}.scope");
            let unit = |slice: &str| format!("{slice}/db.service");
            let root = hierarchy(&[&container(&real), &unit(&real), &container(&forged), &unit(&forged)]);
            let give = |group: &str, uid| {
                std::os::unix::fs::chown(root.path().join(group), Some(uid), None).expect("given away");
            };
            let find = || {
                let roots = || [root.path()].into_iter();
                (find_cgroup_below(roots(), "8f3b0c"), find_unit_below(roots(), "db"))
            };
            give(&container(&forged), needs::UNPRIVILEGED_ID);
            give(&unit(&forged), needs::UNPRIVILEGED_ID);
            let path = |group: String| Ok(root.path().join(group));
            assert_eq!(find(), (path(container(&real)), path(unit(&real))));
            give(&container(&real), 12_345);
            give(&unit(&real), 12_345);
            let (container, unit) = find();
            assert!(matches!(container, Err(CgroupError::SeveralOwners { .. })), "{container:?}");
            assert!(matches!(unit, Err(CgroupError::SeveralOwners { .. })), "{unit:?}");
        }
    }
}
