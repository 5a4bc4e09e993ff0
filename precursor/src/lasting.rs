//! How long shared memory lasts: the machine's boot, or only a container's life or a login.
//!
//! In a container of its own `/dev/shm` goes with the container, and most containers end with their program. And systemd-logind, told
//! `RemoveIPC=yes` (its default), removes what an ordinary user has there when that user's last session ends.

use std::collections::BTreeMap;
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

/// As systemd reads it (logind.conf(5)): of the main files the first one alone; then the drop-ins in the order of their names, of
/// equal names the one in the first folder alone; of all that the last setting, in its section. What is no boolean is not taken.
fn removes_ipc(root: &Path) -> bool {
    const FOLDERS: [&str; 4] = ["etc/systemd", "run/systemd", "usr/local/lib/systemd", "usr/lib/systemd"];
    let folders = FOLDERS.map(|folder| root.join(folder));
    let main = folders.iter().map(|folder| folder.join("logind.conf")).find(|path| path.exists());
    let mut drops = BTreeMap::new();
    for entry in folders.iter().flat_map(|folder| std::fs::read_dir(folder.join("logind.conf.d"))).flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "conf") {
            drops.entry(entry.file_name()).or_insert(path);
        }
    }
    let texts = main.iter().chain(drops.values()).map(|path| std::fs::read_to_string(path).unwrap_or_default());
    texts.filter_map(|text| setting(&text)).next_back().unwrap_or(true)
}

/// What this text sets `RemoveIPC` to.
fn setting(text: &str) -> Option<bool> {
    let (mut section, mut set) = ("", None);
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
        } else if let Some(value) = line.strip_prefix("RemoveIPC").and_then(|rest| rest.trim_start().strip_prefix('='))
            && section == "[Login]"
        {
            set = match value.trim().to_ascii_lowercase().as_str() {
                "1" | "yes" | "y" | "true" | "t" | "on" => Some(true),
                "0" | "no" | "n" | "false" | "f" | "off" => Some(false),
                _ => set,
            };
        }
    }
    set
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
        // A file of the administrator's stands for the distribution's of its name as a whole, whatever is in it.
        let distribution = ("usr/lib/systemd/logind.conf", "[Login]\nRemoveIPC=no\n");
        assert_eq!(with(&[seats, distribution], 1000), None);
        assert_eq!(with(&[seats, distribution, main("[Login]\n")], 1000), Some(Removal::Logout));
        let theirs = ("usr/lib/systemd/logind.conf.d/50-ipc.conf", "[Login]\nRemoveIPC=no\n");
        assert_eq!(with(&[seats, theirs], 1000), None);
        assert_eq!(with(&[seats, theirs, ("etc/systemd/logind.conf.d/50-ipc.conf", "")], 1000), Some(Removal::Logout));
        // What systemd would not take is not taken.
        assert_eq!(with(&[seats, main("RemoveIPC=no\n[Other]\nRemoveIPC=no\n")], 1000), Some(Removal::Logout));
        assert_eq!(with(&[seats, main("[Login]\nRemoveIPC=no\nRemoveIPC=perhaps\n")], 1000), None);
    }
}
