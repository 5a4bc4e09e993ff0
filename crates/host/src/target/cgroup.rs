//! Finds the cgroup of a systemd unit, or of a container by the first digits of the id.

use std::collections::BTreeMap;
use std::fs;
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
        let mut found: BTreeMap<String, PathBuf> = BTreeMap::new();
        walk(root, 0, &mut |name, path| {
            if let Some(id) = container_id(name).filter(|id| id.starts_with(&wanted)) {
                // Container managers may nest a second cgroup with the same id; the outermost one has all tasks.
                found.entry(id).or_insert_with(|| path.to_owned());
            }
        });
        let mut ids = found.keys();
        match (ids.next(), ids.next()) {
            (None, _) => {}
            (Some(first), Some(second)) => {
                let (first, second) = (first.clone(), second.clone());
                return Err(CgroupError::Ambiguous { prefix: prefix.to_owned(), count: found.len(), first, second });
            }
            (Some(_), None) => return Ok(found.into_values().next().unwrap_or_default()),
        }
    }
    Err(CgroupError::NoContainer { prefix: prefix.to_owned() })
}

/// The cgroup of a systemd unit; the suffix `.service` is optional.
pub fn find_unit(unit: &str) -> Result<PathBuf, CgroupError> {
    find_unit_below(HIERARCHIES.map(Path::new).into_iter(), unit)
}

fn find_unit_below<'a>(roots: impl Iterator<Item = &'a Path>, unit: &str) -> Result<PathBuf, CgroupError> {
    let unit = if unit.contains('.') { unit.to_owned() } else { format!("{unit}.service") };
    for root in roots {
        let mut found = None;
        walk(root, 0, &mut |name, path| {
            if name == unit && found.is_none() {
                found = Some(path.to_owned());
            }
        });
        if let Some(path) = found {
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
}
