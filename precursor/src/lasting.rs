//! How long shared memory lasts: until the machine restarts, or only as long as a container or a login session.
//!
//! A container's own `/dev/shm` ends with the container, and most containers end with their main process.
//! systemd-logind with `RemoveIPC=yes`, the default, removes an ordinary user's files there when the user's last
//! session ends.

use std::collections::BTreeMap;
use std::path::Path;

/// Event that removes shared memory while the machine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Removal {
    /// The end of the container, possibly with the end of this process.
    Container,
    /// The end of the user's last login session (`RemoveIPC` in logind.conf).
    Logout,
}

impl Removal {
    /// What it means and what to do, for people.
    pub(crate) fn sentence(self) -> &'static str {
        match self {
            Removal::Container => {
                "a container's /dev/shm ends with it, so bytes not yet in the file may be lost with the process: \
                 share the host's (--ipc=host), or give shm_dir a tmpfs that outlives the container"
            }
            Removal::Logout => {
                "systemd-logind removes this user's files in /dev/shm at the last logout (RemoveIPC), so a writer that dies then \
                 cannot be recovered: set RemoveIPC=no, or run as a system user"
            }
        }
    }
}

/// Largest user ID of a system user, which RemoveIPC spares (`SYSTEM_UID_MAX` of systemd).
const SYSTEM_USER_MAX: u32 = 999;
/// Inode of the first PID namespace (`include/linux/proc_ns.h: PROC_PID_INIT_INO`).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Event that may remove files from `/dev/shm`, judged from files below `root`.
pub(crate) fn removal(root: &Path, user: u32, in_container: bool) -> Option<Removal> {
    let exists = |path: &str| root.join(path).exists();
    if in_container || exists(".dockerenv") || exists("run/.containerenv") || exists("run/systemd/container") {
        return Some(Removal::Container);
    }
    let logind = exists("run/systemd/seats");
    (logind && user > SYSTEM_USER_MAX && removes_ipc(root)).then_some(Removal::Logout)
}

/// Whether this process is in a PID namespace other than the machine's first; false if that cannot be read.
pub(crate) fn in_container() -> bool {
    std::fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link != Path::new(FIRST_PID_NAMESPACE))
}

/// `RemoveIPC` as systemd reads it (logind.conf(5)): only the first main file; then the drop-ins in the order of their
/// names, each name only from the first directory with it. The last valid setting in `[Login]` wins; yes without
/// one.
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

/// The last valid value of `RemoveIPC` in this text.
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
    fn logout_removes_an_ordinary_users_memory_unless_configured_otherwise() {
        let seats = ("run/systemd/seats/seat0", "");
        assert_eq!(with(&[seats], 1000), Some(Removal::Logout));
        assert_eq!(with(&[seats], 999), None);
        assert_eq!(with(&[("etc/systemd/logind.conf", "")], 1000), None, "no logind runs");
        let main = |text| ("etc/systemd/logind.conf", text);
        assert_eq!(with(&[seats, main("[Login]\n#RemoveIPC=no\n")], 1000), Some(Removal::Logout));
        assert_eq!(with(&[seats, main("[Login]\nRemoveIPC = no\n")], 1000), None);
        let drop_in = ("usr/lib/systemd/logind.conf.d/50-ipc.conf", "[Login]\nRemoveIPC=yes\n");
        assert_eq!(with(&[seats, main("[Login]\nRemoveIPC=no\n"), drop_in], 1000), Some(Removal::Logout));
        // A drop-in or main file of the administrator replaces the distribution's of the same name, even if it is
        // empty.
        let distribution = ("usr/lib/systemd/logind.conf", "[Login]\nRemoveIPC=no\n");
        assert_eq!(with(&[seats, distribution], 1000), None);
        assert_eq!(with(&[seats, distribution, main("[Login]\n")], 1000), Some(Removal::Logout));
        let theirs = ("usr/lib/systemd/logind.conf.d/50-ipc.conf", "[Login]\nRemoveIPC=no\n");
        assert_eq!(with(&[seats, theirs], 1000), None);
        assert_eq!(with(&[seats, theirs, ("etc/systemd/logind.conf.d/50-ipc.conf", "")], 1000), Some(Removal::Logout));
        // Settings that systemd ignores are ignored here.
        assert_eq!(with(&[seats, main("RemoveIPC=no\n[Other]\nRemoveIPC=no\n")], 1000), Some(Removal::Logout));
        assert_eq!(with(&[seats, main("[Login]\nRemoveIPC=no\nRemoveIPC=perhaps\n")], 1000), None);
    }
}
