//! How long shared memory lasts: the machine's boot, or only a container's life or a login.
//!
//! In a container of its own `/dev/shm` goes with the container, and most containers end with their program. And systemd-logind, told
//! `RemoveIPC=yes` (its default), removes what an ordinary user has there when that user's last session ends.

use std::path::Path;

/// What may take shared memory away while the machine lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Removal {
    /// The end of the container, which the end of this process may be.
    Container,
    /// The end of the user's last login session (`RemoveIPC` in logind.conf).
    Logout,
}

impl Removal {
    /// For people: what it means and what to do.
    pub(crate) fn sentence(self) -> &'static str {
        match self {
            Removal::Container => {
                "in a container /dev/shm ends with it, so bytes not yet in the file may die with the process: \
                 share the host's (--ipc=host), or give shm_dir a tmpfs that outlives the container"
            }
            Removal::Logout => {
                "systemd-logind removes this user's files in /dev/shm at the last logout (RemoveIPC), so a writer that dies then \
                 cannot be recovered: set RemoveIPC=no, or run as a system user"
            }
        }
    }
}

/// Largest number of a system user, whom RemoveIPC spares (`SYSTEM_UID_MAX` of systemd).
const SYSTEM_USER_MAX: u32 = 999;
/// Inode of the first PID namespace (`include/linux/proc_ns.h: PROC_PID_INIT_INO`).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// What may remove files from `/dev/shm`, by what stands under `root`.
pub(crate) fn removal(root: &Path, user: u32, in_container: bool) -> Option<Removal> {
    let there = |path: &str| root.join(path).exists();
    if in_container || there(".dockerenv") || there("run/.containerenv") || there("run/systemd/container") {
        return Some(Removal::Container);
    }
    let logind = there("run/systemd/seats");
    (logind && user > SYSTEM_USER_MAX && removes_ipc(root)).then_some(Removal::Logout)
}

/// Whether this process runs in a PID namespace that is not the machine's first one. Unreadable: not known to.
pub(crate) fn in_container() -> bool {
    std::fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link != Path::new(FIRST_PID_NAMESPACE))
}

/// The last setting counts: the main file first, then its drop-ins in the order of their names, whichever folder they are in.
fn removes_ipc(root: &Path) -> bool {
    const FOLDERS: [&str; 4] = ["usr/lib/systemd", "usr/local/lib/systemd", "run/systemd", "etc/systemd"];
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    let mut texts: Vec<String> = FOLDERS.iter().map(|folder| read(&root.join(folder).join("logind.conf"))).collect();
    let mut drops: Vec<_> = FOLDERS
        .iter()
        .flat_map(|folder| std::fs::read_dir(root.join(folder).join("logind.conf.d")).into_iter().flatten().flatten())
        .map(|entry| (entry.file_name(), entry.path()))
        .filter(|(name, _)| Path::new(name).extension().is_some_and(|extension| extension == "conf"))
        .collect();
    drops.sort();
    texts.extend(drops.iter().map(|(_, path)| read(path)));
    let lines = texts.iter().flat_map(|text| text.lines());
    let mut set = lines.filter_map(|line| line.trim().strip_prefix("RemoveIPC")?.trim_start().strip_prefix('='));
    !set.next_back().is_some_and(|value| matches!(value.trim(), "no" | "false" | "off" | "0" | "n" | "f"))
}

#[cfg(test)]
mod tests {
    use super::{Removal, removal};
    use std::path::Path;

    fn with(files: &[(&str, &str)], user: u32) -> Option<Removal> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        removal(root.path(), user, false)
    }

    #[test]
    fn a_container_is_known_by_its_marks_or_its_namespace() {
        assert_eq!(with(&[], 1000), None);
        for mark in [".dockerenv", "run/.containerenv", "run/systemd/container"] {
            assert_eq!(with(&[(mark, "")], 0), Some(Removal::Container), "{mark}");
        }
        assert_eq!(removal(Path::new("/nonexistent"), 0, true), Some(Removal::Container));
    }

    #[test]
    fn logout_removes_an_ordinary_users_memory_unless_told_not_to() {
        let seats = ("run/systemd/seats/seat0", "");
        assert_eq!(with(&[seats], 1000), Some(Removal::Logout));
        assert_eq!(with(&[seats], 999), None);
        assert_eq!(with(&[("etc/systemd/logind.conf", "")], 1000), None, "no logind runs");
        let main = |text| ("etc/systemd/logind.conf", text);
        assert_eq!(with(&[seats, main("[Login]\n#RemoveIPC=no\n")], 1000), Some(Removal::Logout));
        assert_eq!(with(&[seats, main("[Login]\nRemoveIPC = no\n")], 1000), None);
        let drop_in = ("usr/lib/systemd/logind.conf.d/50-ipc.conf", "[Login]\nRemoveIPC=yes\n");
        assert_eq!(with(&[seats, main("[Login]\nRemoveIPC=no\n"), drop_in], 1000), Some(Removal::Logout));
    }
}
