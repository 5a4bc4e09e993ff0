//! Paths of cgroups, and which of them belong to the system.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The path of a cgroup below the mount, such as `/batch.slice/backup.service`: absolute, without empty parts, `.` and
/// `..`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GroupPath(String);

/// Why a text is not the path of a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAGroup;

impl fmt::Display for NotAGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an absolute path of a cgroup below the root group")
    }
}

impl std::error::Error for NotAGroup {}

/// The longest path that the guard handles. A user can nest groups to paths of 4 KiB.
const BYTES_MAX: usize = 512;

impl GroupPath {
    /// Refuses the root group, which contains every process.
    pub fn new(path: &str) -> Result<GroupPath, NotAGroup> {
        let below = path.strip_prefix('/').ok_or(NotAGroup)?;
        let plain = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\0');
        let valid = path.len() <= BYTES_MAX && below.split('/').all(plain);
        valid.then(|| GroupPath(path.to_owned())).ok_or(NotAGroup)
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `other` is this group or a group in it.
    #[must_use]
    pub fn contains(&self, other: &GroupPath) -> bool {
        other.0.strip_prefix(&self.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    fn first_part(&self) -> &str {
        self.0.split('/').nth(1).unwrap_or_default()
    }

    /// Whether the group belongs to the system: services in `system.slice`, `init.scope`, and flatwater's own groups.
    #[must_use]
    pub fn is_of_the_system(&self) -> bool {
        matches!(self.first_part(), "system.slice" | "init.scope") || self.0.split('/').any(is_own)
    }

    /// Whether the group is a user's session or one of the groups that the user made in it.
    #[must_use]
    pub fn is_user_session(&self) -> bool {
        self.first_part() == "user.slice"
    }
}

/// Whether flatwater makes groups of this name: `flatwater-PID-NUMBER` for a run, its units for the daemon.
fn is_own(part: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let numbers = part.strip_prefix("flatwater-").and_then(|rest| rest.split_once('-'));
    numbers.is_some_and(|(pid, count)| number(pid) && number(count)) || part.starts_with("flatwater-watch.")
}

impl TryFrom<String> for GroupPath {
    type Error = NotAGroup;

    fn try_from(path: String) -> Result<GroupPath, NotAGroup> {
        GroupPath::new(&path)
    }
}

impl From<GroupPath> for String {
    fn from(path: GroupPath) -> String {
        path.0
    }
}

impl fmt::Display for GroupPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::GroupPath;

    #[test]
    fn only_plain_absolute_paths_below_the_root_are_groups() {
        for path in ["/a", "/batch.slice/backup.service", "/user.slice/user-1000.slice"] {
            assert!(GroupPath::new(path).is_ok(), "{path}");
        }
        for path in ["", "/", "a", "/a/", "//a", "/a/../b", "/../../a", "/./a", "/a\0b"] {
            assert!(GroupPath::new(path).is_err(), "{path:?}");
        }
        assert!(GroupPath::new(&"/a".repeat(300)).is_err());
        assert!(serde_json_like("/etc/..").is_err());
    }

    fn serde_json_like(path: &str) -> Result<GroupPath, super::NotAGroup> {
        GroupPath::try_from(path.to_owned())
    }

    #[test]
    fn a_group_contains_itself_and_groups_below_and_not_its_namesakes() {
        let of = |path: &str| GroupPath::new(path).expect("a group");
        assert!(of("/jobs").contains(&of("/jobs")) && of("/jobs").contains(&of("/jobs/a/b")));
        assert!(!of("/jobs").contains(&of("/jobs2")) && !of("/jobs/a").contains(&of("/jobs")));
    }

    #[test]
    fn system_groups_are_known_by_their_first_part() {
        let of = |path: &str| GroupPath::new(path).expect("a group");
        for path in ["/system.slice", "/system.slice/cron.service", "/init.scope", "/batch.slice/flatwater-1-0"] {
            assert!(of(path).is_of_the_system(), "{path}");
        }
        for path in ["/jobs/system.slice", "/flatwater-users/x", "/flatwater-1"] {
            assert!(!of(path).is_of_the_system(), "{path}");
        }
        assert!(of("/user.slice/user-1000.slice/session-1.scope").is_user_session());
    }
}
