//! The owner of a slow call: its program, its cgroup, and the container or unit that this cgroup belongs to.

use std::collections::HashMap;
use std::sync::Arc;

use flatwater_host::proc::text;

use crate::account::Account;
use crate::cgroup::{Hierarchies, unit_of};

/// The owner of one process, when it was first seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// The path within the hierarchy, `/` for the root group; empty if the process ended before it was read.
    pub cgroup: Arc<str>,
    /// `postgresql.service`, `container 8f3b0c1d2e4f`; empty if the part of the path that root made names neither.
    pub container: Arc<str>,
    /// The name of the process, not of the thread.
    pub program: Arc<str>,
}

impl Owner {
    /// The container or unit, else the cgroup; empty if the process ended before it was read.
    #[must_use]
    pub fn name(&self) -> &str {
        if self.container.is_empty() { &self.cgroup } else { &self.container }
    }
}

/// Caches owners, so that /proc is not read for each call of a stalling program.
#[derive(Debug)]
pub struct Owners {
    hierarchies: &'static Hierarchies,
    known: HashMap<u32, (u64, Owner, Account)>,
}

/// Entries are read again after this long, because a process id can be reused and a process can move.
const FRESH_NS: u64 = 10_000_000_000;
const KNOWN_MAX: usize = 4_096;

impl Default for Owners {
    fn default() -> Owners {
        Owners { hierarchies: Hierarchies::machine(), known: HashMap::new() }
    }
}

impl Owners {
    /// The owner and the account of a call. `thread` replaces the program's name if the process has ended, since the
    /// thread of a single-threaded program has the same name. `cgroup` is the group that the kernel side recorded when
    /// the call slept.
    pub fn of(&mut self, pid: u32, thread: &str, cgroup: Option<&str>, now_ns: u64) -> (Owner, Account) {
        if let Some((asked_ns, owner, account)) = self.known.get(&pid) {
            // A process that has ended keeps its entry, because it cannot be read again.
            if asked_ns.saturating_add(FRESH_NS) > now_ns {
                return (owner.clone(), account.clone());
            }
        }
        let hierarchies = self.hierarchies;
        let mut owner = look_up(pid, hierarchies);
        if owner.program.is_empty() {
            owner.program = thread.into();
        }
        // On version 1, /proc shows a zombie in the root group.
        let better = |seen: &&str| owner.cgroup.is_empty() || (&*owner.cgroup == "/" && *seen != "/");
        if let Some(cgroup) = cgroup.filter(better) {
            let unit = unit_of(hierarchies.made_by_root(cgroup));
            owner.container = unit.map_or_else(|| "".into(), |name| name.to_string().into());
            owner.cgroup = cgroup.into();
        }
        let account = Account::of(hierarchies.made_by_root(&owner.cgroup), real_uid(pid));
        if self.known.len() >= KNOWN_MAX {
            self.known.retain(|_, (asked_ns, ..)| asked_ns.saturating_add(FRESH_NS) > now_ns);
        }
        if self.known.len() < KNOWN_MAX {
            self.known.insert(pid, (now_ns, owner.clone(), account.clone()));
        }
        (owner, account)
    }
}

/// The real user of a process. The owner of /proc/PID is root if the process is not dumpable, which it can choose.
fn real_uid(pid: u32) -> Option<u32> {
    let status = text::read(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().next()?.parse().ok()
}

fn look_up(pid: u32, hierarchies: &Hierarchies) -> Owner {
    let membership = text::read(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let program = text::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    owner_of(&membership, program.trim(), hierarchies)
}

/// Parses /proc/PID/cgroup: the path of the memory controller on version 1, else the unified path, else any.
fn owner_of(membership: &str, program: &str, hierarchies: &Hierarchies) -> Owner {
    let lines = membership.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let paths: Vec<(&str, &str)> = lines.collect();
    let is =
        |wanted: fn(&str) -> bool| paths.iter().find(|(controllers, _)| wanted(controllers)).map(|(_, path)| *path);
    let unified = is(str::is_empty);
    let memory = is(|controllers| controllers.split(',').any(|name| name == "memory"));
    let cgroup = memory.or(unified).or(paths.first().map(|(_, path)| *path)).unwrap_or_default();
    // systemd's named hierarchy has the unit even without a controller.
    let container = paths.iter().find_map(|(_, path)| unit_of(hierarchies.made_by_root(path)));
    Owner {
        cgroup: cgroup.into(),
        container: container.map_or_else(|| "".into(), |container| container.to_string().into()),
        program: program.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Owners, owner_of};
    use crate::cgroup::Hierarchies;
    use crate::cgroup::tests::hierarchy;

    #[test]
    fn the_owner_is_the_group_of_the_memory_controller() {
        let v1 = "4:memory:/jobs/backup\n1:name=systemd:/system.slice/cron.service\n0::/\n";
        let (_place, hierarchies) = hierarchy(&["system.slice/cron.service", "system.slice/postgresql.service"]);
        let owner_of = |membership: &str, program: &str| owner_of(membership, program, &hierarchies);
        let owner = owner_of(v1, "dd");
        assert_eq!((&*owner.cgroup, owner.name()), ("/jobs/backup", "cron.service"));
        let v2 = owner_of("0::/system.slice/postgresql.service\n", "postgres");
        assert_eq!((&*v2.cgroup, v2.name()), ("/system.slice/postgresql.service", "postgresql.service"));
        assert_eq!(owner_of("", "gone").name(), "");
    }

    /// S9: fails on 5d310ca9, where a user's group named like a unit was taken for it.
    #[test]
    fn s9_a_users_group_does_not_pose_as_a_unit() {
        let path = "/system.slice/x.service/postgresql.service";
        let (place, hierarchies) = hierarchy(&[path.trim_start_matches('/'), "jobs/postgresql.service"]);
        std::os::unix::fs::chown(place.path().join("jobs"), Some(needs::UNPRIVILEGED_ID), None)
            .expect("given away, as root");
        assert_eq!(owner_of(&format!("0::{path}\n"), "dd", &hierarchies).name(), "x.service");
        let owner = owner_of("0::/jobs/postgresql.service\n", "dd", &hierarchies);
        assert_eq!((owner.name(), &*owner.container), ("/jobs/postgresql.service", ""));
    }

    #[test]
    fn a_running_process_has_an_owner() {
        let owner = Owners::default().of(std::process::id(), "", None, 1).0;
        assert!(owner.cgroup.starts_with('/'), "{owner:?}");
        assert!(!owner.program.is_empty());
        let gone = Owners::default().of(u32::MAX, "dd", None, 1).0;
        assert_eq!((&*gone.program, gone.name()), ("dd", ""));
        let (_place, hierarchies) = hierarchy(&["system.slice"]);
        let mut owners = Owners { hierarchies: Box::leak(Box::new(hierarchies)), ..Owners::default() };
        let seen = owners.of(u32::MAX, "dd", Some("/system.slice/cron.service"), 1).0;
        assert_eq!(seen.name(), "cron.service", "the kernel side recorded it in time");
    }

    #[test]
    fn a_process_that_exited_is_in_the_group_that_the_kernel_side_recorded() {
        let mut child = std::process::Command::new("true").spawn().expect("true");
        let stat = format!("/proc/{}/stat", child.id());
        while !std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") Z ")) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let owner = Owners::default().of(child.id(), "true", Some("/jobs/backup"), 1).0;
        child.wait().expect("it has ended");
        // Version 2 shows the last group of a zombie.
        let own = std::fs::read_to_string("/proc/self/cgroup").expect("our groups");
        let expected = owner_of(&own, "", Hierarchies::machine()).cgroup;
        assert!([&*expected, "/jobs/backup"].contains(&&*owner.cgroup) && &*owner.cgroup != "/", "{owner:?}");
    }

    /// A process whose name is not UTF-8 is listed all the same.
    #[test]
    fn a_name_that_is_not_utf8_does_not_hide_a_process() {
        use std::os::unix::ffi::OsStrExt;
        let place = tempfile::tempdir().expect("a directory");
        let program = place.path().join(std::ffi::OsStr::from_bytes(b"evil\xff\xfe\x1b[2J"));
        std::fs::copy("/bin/sleep", &program).expect("copied");
        let mut child = std::process::Command::new(&program).arg("60").spawn().expect("started");
        // The kernel sets the name shortly after it lets the parent continue (fs/exec.c: begin_new_exec).
        let comm = format!("/proc/{}/comm", child.id());
        let named = || std::fs::read(&comm).is_ok_and(|name| name.starts_with(b"evil"));
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while !named() && std::time::Instant::now() < until {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let owner = Owners::default().of(child.id(), "thread", None, 1).0;
        let watched = flatwater_host::target::Processes::read().expect("/proc").get(child.id()).cloned();
        child.kill().and_then(|()| child.wait()).expect("ended");
        assert!(owner.program.starts_with("evil\u{fffd}") && owner.cgroup.starts_with('/'), "{owner:?}");
        assert!(watched.is_some_and(|process| process.name.starts_with("evil\u{fffd}")), "it is among the processes");
    }
}
