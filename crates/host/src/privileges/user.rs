//! The user that a command runs as: looked up once, as root, and switched to between fork and exec.

use std::ffi::{CStr, CString, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::{Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};

/// Why a command cannot run as a user.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UserError {
    #[error("unknown user '{name}': `getent passwd` lists the users of this machine")]
    Unknown { name: String },
    #[error("only root can run a command as another user: run as root, or omit --user")]
    NotRoot,
    #[error("cannot look up the user '{name}': {source}")]
    Lookup { name: String, source: io::Error },
}

/// A user from the system's user database, with all groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub name: OsString,
    pub uid: u32,
    pub gid: u32,
    /// All groups, including the user's primary group.
    pub groups: Vec<u32>,
    pub home: OsString,
    pub shell: OsString,
}

/// An entry of the user database larger than this is an error.
const ENTRY_BYTES_MAX: usize = 1 << 20;
/// NGROUPS_MAX (include/uapi/linux/limits.h).
const GROUPS_MAX: usize = 65_536;
/// The PATH of a login (login.defs: ENV_PATH); root's PATH may contain root's directories.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games";
/// Environment variables to keep: they contain no secrets of root's, and programs misbehave without them.
const KEPT: [&str; 4] = ["TERM", "LANG", "TZ", "LC_ALL"];

impl User {
    /// Finds a user by name, or by number if no user has that name. Fails if this process may not switch users.
    pub fn find(name: &str) -> Result<User, UserError> {
        let user = look_up(name)?;
        if !rustix::process::geteuid().is_root() {
            return Err(UserError::NotRoot);
        }
        Ok(user)
    }

    /// Makes the command run as this user, with the user's groups and environment and without any descriptor above the
    /// standard three. Call this after all other `pre_exec`, which then still run as root.
    pub fn become_in(&self, command: &mut Command) {
        let kept: Vec<(&str, OsString)> =
            KEPT.iter().filter_map(|name| Some((*name, std::env::var_os(name)?))).collect();
        command.env_clear().envs(kept).env("PATH", PATH);
        command.env("HOME", &self.home).env("USER", &self.name).env("LOGNAME", &self.name).env("SHELL", &self.shell);
        let groups: Vec<Gid> = self.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        let own_terminal = terminal_takes_input_from_others();
        // SAFETY: between fork and exec the closure only makes system calls on values made before, and allocates
        // nothing.
        unsafe {
            command.pre_exec(move || {
                close_all_on_exec()?;
                if own_terminal {
                    // Otherwise the command could type into root's shell (ioctl TIOCSTI) after this process has ended.
                    rustix::process::setsid()?;
                }
                rustix::thread::set_thread_groups(&groups)?;
                rustix::thread::set_thread_res_gid(gid, gid, gid)?;
                rustix::thread::set_thread_res_uid(uid, uid, uid)?;
                new_session_keyring()?;
                if !uid.is_root() {
                    let none = CapabilitySet::empty();
                    let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
                    rustix::thread::set_capabilities(None, none)?;
                }
                Ok(())
            });
        }
    }
}

/// Starts a new session keyring: a child would possess root's, and with it the keys in it (session-keyring(7)).
fn new_session_keyring() -> io::Result<()> {
    let nameless: *const libc::c_char = std::ptr::null();
    // SAFETY: the name may be a null pointer.
    let joined = unsafe { libc::syscall(libc::SYS_keyctl, libc::KEYCTL_JOIN_SESSION_KEYRING, nameless) };
    match io::Error::last_os_error().raw_os_error() {
        _ if joined >= 0 => Ok(()),
        // The kernel has no keys, or the container forbids them, so no keyring can be inherited.
        Some(libc::ENOSYS | libc::EPERM | libc::EOPNOTSUPP) => Ok(()),
        code => Err(io::Error::from_raw_os_error(code.unwrap_or(libc::EIO))),
    }
}

/// Makes exec close every descriptor above the standard three.
fn close_all_on_exec() -> io::Result<()> {
    // SAFETY: passes only numbers.
    let marked = unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if marked == 0 {
        return Ok(());
    }
    // Before 5.11: up to the highest possible descriptor. SAFETY: the call fills the limit; fcntl gets only numbers,
    // and an unused descriptor is only an error that is ignored.
    unsafe {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) != 0 {
            return Err(io::Error::last_os_error());
        }
        // The hard limit, because the soft limit may have been lowered since a descriptor was opened.
        let end = i32::try_from(limit.rlim_max).unwrap_or(i32::MAX).min(1 << 20);
        for descriptor in 3..end {
            libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC);
        }
    }
    Ok(())
}

/// Whether a process on this terminal could type into it: on kernels before 6.2, and later with dev.tty.legacy_tiocsti.
fn terminal_takes_input_from_others() -> bool {
    let terminal = [libc::STDIN_FILENO, libc::STDOUT_FILENO, libc::STDERR_FILENO].into_iter().any(|descriptor| {
        // SAFETY: passes only a number.
        unsafe { libc::isatty(descriptor) == 1 }
    });
    terminal && std::fs::read_to_string("/proc/sys/dev/tty/legacy_tiocsti").map_or(true, |value| value.trim() != "0")
}

fn look_up(name: &str) -> Result<User, UserError> {
    let failed = |source| UserError::Lookup { name: name.to_owned(), source };
    let unknown = || UserError::Unknown { name: name.to_owned() };
    let c_name = CString::new(name).map_err(|_| unknown())?;
    let by_name = entry(|passwd, buffer, bytes, found| {
        // SAFETY: all pointers are valid during the call; `bytes` is the size of the buffer.
        unsafe { libc::getpwnam_r(c_name.as_ptr(), passwd, buffer, bytes, found) }
    });
    if let Some(user) = by_name.map_err(failed)? {
        return Ok(user);
    }
    let uid: u32 = name.parse().map_err(|_| unknown())?;
    let by_number = entry(|passwd, buffer, bytes, found| {
        // SAFETY: as above.
        unsafe { libc::getpwuid_r(uid, passwd, buffer, bytes, found) }
    });
    by_number.map_err(failed)?.ok_or_else(unknown)
}

type Fill<'a> = dyn Fn(*mut libc::passwd, *mut libc::c_char, usize, *mut *mut libc::passwd) -> libc::c_int + 'a;

/// An entry of the user database, in a buffer that grows on ERANGE.
fn entry(
    fill: impl Fn(*mut libc::passwd, *mut libc::c_char, usize, *mut *mut libc::passwd) -> libc::c_int,
) -> io::Result<Option<User>> {
    let fill: &Fill<'_> = &fill;
    let mut buffer = vec![0; 4096];
    loop {
        // SAFETY: a structure of numbers and pointers, filled by the call before it is read.
        let mut passwd: libc::passwd = unsafe { std::mem::zeroed() };
        let mut found = std::ptr::null_mut();
        match fill(&raw mut passwd, buffer.as_mut_ptr(), buffer.len(), &raw mut found) {
            0 if found.is_null() => return Ok(None),
            0 => {
                // SAFETY: the call succeeded, so the fields are strings in `buffer`, which is still alive.
                let text = |field: *const libc::c_char| unsafe { CStr::from_ptr(field) }.to_owned();
                let name = text(passwd.pw_name);
                let groups = groups_of(&name, passwd.pw_gid)?;
                let os = |text: CString| OsString::from_vec(text.into_bytes());
                return Ok(Some(User {
                    uid: passwd.pw_uid,
                    gid: passwd.pw_gid,
                    groups,
                    home: os(text(passwd.pw_dir)),
                    shell: os(text(passwd.pw_shell)),
                    name: os(name),
                }));
            }
            libc::ERANGE if buffer.len() < ENTRY_BYTES_MAX => buffer.resize(buffer.len() * 2, 0),
            // What the C library returns for an unknown user and without a database.
            libc::ENOENT | libc::ESRCH => return Ok(None),
            code => return Err(io::Error::from_raw_os_error(code)),
        }
    }
}

/// The groups that initgroups(3) would set.
fn groups_of(name: &CStr, gid: u32) -> io::Result<Vec<u32>> {
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut count = i32::try_from(groups.len()).unwrap_or(i32::MAX);
        // SAFETY: the name is a C string, and there is room for `count` groups.
        let written = unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
        if written >= 0 {
            groups.truncate(usize::try_from(written).unwrap_or(0));
            return Ok(groups);
        }
        if groups.len() >= GROUPS_MAX {
            return Err(io::Error::other("the user is in more groups than a process can have"));
        }
        groups.resize(groups.len() * 2, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::{User, UserError, look_up};

    #[test]
    fn users_are_found_by_name_and_number() {
        let root = look_up("root").expect("root is everywhere");
        assert_eq!((root.uid, root.gid, root.groups.first()), (0, 0, Some(&0)));
        assert!(!root.home.is_empty());
        assert_eq!(look_up("0").expect("by number"), root);
        for name in ["no-such-user", "", "4294967294", "ro\0ot", "-1", "root "] {
            let refused = look_up(name).expect_err(name);
            assert!(matches!(refused, UserError::Unknown { .. }), "{name:?}: {refused}");
        }
        assert!(User::find("no-such-user").expect_err("unknown").to_string().contains("getent passwd"));
    }
}
