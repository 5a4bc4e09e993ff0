//! Creates cgroups for one run, sets their limits, and moves processes into them.
//!
//! Versions 1 and 2 are handled per controller, since some machines have memory in v1 and cpu in v2.

use std::io;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::SetupError;
use super::groups::Group;
use super::undo::{Undo, UndoLog};
use crate::proc::mounts::{self, Mount};
use flatwater_recording::ControllerName;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Version {
    V1,
    V2,
}

/// A cgroup made by a run, as a journal names it: relative to the mount of a controller, wherever that is mounted when
/// it is undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupDir {
    controller: String,
    parent: PathBuf,
    name: String,
    /// The cgroup that the run's process came from.
    origin: PathBuf,
}

/// A device limit set by a run, as a journal names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throttle {
    key: String,
    device: String,
    /// In v2 the cgroup whose `io.max` contains the limit; in v1 `None`, for the root cgroup's file.
    cgroup: Option<CgroupDir>,
}

/// The path `below` under `mount`, if it has only plain components and is a cgroup directory (or does not exist).
fn within(mount: &Path, below: &Path) -> Option<PathBuf> {
    let plain = below.components().all(|part| matches!(part, Component::Normal(_)));
    let path = mount.join(below);
    (plain && (!path.exists() || is_cgroup(&path))).then_some(path)
}

/// Whether this directory is on a cgroup file system, v1 or v2. Its files prove nothing: any user can create a
/// directory with a file named `cgroup.procs`.
#[must_use]
pub fn is_cgroup(path: &Path) -> bool {
    /// include/uapi/linux/magic.h.
    const CGROUP: u64 = 0x0027_e0eb;
    const CGROUP2: u64 = 0x6367_7270;
    rustix::fs::statfs(path).is_ok_and(|stat| matches!(stat.f_type.cast_unsigned(), CGROUP | CGROUP2))
}

impl CgroupDir {
    /// The directories of the cgroup and the origin; `None` if the name is not one that flatwater creates.
    #[must_use]
    pub fn paths(&self) -> Option<(PathBuf, PathBuf)> {
        let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let (pid, count) = self.name.strip_prefix("flatwater-")?.split_once('-')?;
        if !number(pid) || !number(count) {
            return None;
        }
        let mount = place(&self.controller).ok()?.mount;
        Some((within(&mount, &self.parent.join(&self.name))?, within(&mount, &self.origin)?))
    }
}

/// The v1 file and the v2 key of `cgroup.write_bps` and the like.
fn throttle_names(key: &str) -> Option<(&'static str, &'static str)> {
    Some(match key {
        "cgroup.write_bps" => ("blkio.throttle.write_bps_device", "wbps"),
        "cgroup.read_bps" => ("blkio.throttle.read_bps_device", "rbps"),
        "cgroup.read_iops" => ("blkio.throttle.read_iops_device", "riops"),
        "cgroup.write_iops" => ("blkio.throttle.write_iops_device", "wiops"),
        _ => return None,
    })
}

impl Throttle {
    /// The file with the limit and the line that removes it; `None` if the record is malformed or the cgroup is gone.
    #[must_use]
    pub fn clearing(&self) -> Option<(PathBuf, String)> {
        let (v1_name, v2_key) = throttle_names(&self.key)?;
        let device = &self.device;
        let plain = device.bytes().all(|byte| byte.is_ascii_digit() || byte == b':');
        match &self.cgroup {
            _ if !plain => None,
            Some(cgroup) => Some((cgroup.paths()?.0.join("io.max"), format!("{device} {v2_key}=max"))),
            None => {
                let place = place("blkio").ok().filter(|place| place.version == Version::V1)?;
                Some((place.mount.join(v1_name), format!("{device} 0")))
            }
        }
    }
}

/// A cgroup that the run made, and the controller.
#[derive(Clone, Debug)]
struct NewCgroup {
    dir: PathBuf,
    /// As named in the journal.
    named: CgroupDir,
    version: Version,
    controller: String,
}

/// The cgroups of one run: at most one in v2, one per controller's hierarchy in v1.
#[derive(Clone, Debug, Default)]
pub struct Cgroups {
    created: Vec<NewCgroup>,
}

/// Where a controller is mounted, from the mounts and /proc/self/cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    version: Version,
    mount: PathBuf,
    /// The cgroup of this process.
    own: PathBuf,
}

fn below(mount: &Path, path: &str) -> PathBuf {
    let own = mount.join(path.trim_start_matches('/'));
    // In a container the path may be relative to another root than the mount's.
    if own.is_dir() { own } else { mount.to_owned() }
}

fn place_of(controller: &str, mounts: &[Mount], own: &str) -> Option<Place> {
    let own_path = |wanted: &dyn Fn(&str, &str) -> bool| {
        own.lines().find_map(|line| {
            let (number, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            wanted(number, controllers).then(|| path.to_owned())
        })
    };
    let mount_of = |kind: &str, option: Option<&str>| {
        let found = mounts.iter().find(|mount| mount.kind == kind && option.is_none_or(|option| mount.has(option)));
        found.map(|mount| mount.point.clone())
    };
    if let Some(mount) = mount_of("cgroup", Some(controller)) {
        let path = own_path(&|_, controllers| controllers.split(',').any(|one| one == controller))?;
        return Some(Place { version: Version::V1, own: below(&mount, &path), mount });
    }
    let mount = mount_of("cgroup2", None)?;
    let controllers = std::fs::read_to_string(mount.join("cgroup.controllers")).ok()?;
    let name = if controller == "blkio" { "io" } else { controller };
    let path = own_path(&|number, controllers| number == "0" && controllers.is_empty())?;
    let has = controllers.split_whitespace().any(|one| one == name);
    has.then(|| Place { version: Version::V2, own: below(&mount, &path), mount })
}

fn place(controller: &str) -> Result<Place, SetupError> {
    let failed = |file: &'static str| move |source: io::Error| SetupError::file("read", file, source);
    let mounts = mounts::read().map_err(failed("/proc/self/mountinfo"))?;
    let own = std::fs::read_to_string("/proc/self/cgroup").map_err(failed("/proc/self/cgroup"))?;
    place_of(controller, &mounts, &own).ok_or_else(|| SetupError::Impossible {
        what: format!("limit {controller} with a cgroup"),
        why: format!("this kernel has no {controller} controller mounted, neither cgroup v1 nor v2"),
        next: "mount it, or run the scenario with `--on vm`".to_owned(),
    })
}

impl Cgroups {
    /// The cgroup for this controller, created now if the run has none yet. `blkio` is `io` in v2.
    fn ensure(&mut self, controller: &str, log: &mut UndoLog) -> Result<NewCgroup, SetupError> {
        if let Some(created) = self.created.iter().find(|created| created.controller == controller) {
            return Ok(created.clone());
        }
        let place = place(controller)?;
        let known = self.created.iter().find(|created| created.version == Version::V2 && place.version == Version::V2);
        let (dir, named) = match known {
            Some(known) => (known.dir.clone(), known.named.clone()),
            None => make(&place, controller, log)?,
        };
        let created = NewCgroup { dir, named, version: place.version, controller: controller.to_owned() };
        self.created.push(created.clone());
        Ok(created)
    }

    /// Sets a limit of the cgroup. `value` is in the knob's unit; 0 means no limit.
    pub fn set(&mut self, key: &str, value: &str, log: &mut UndoLog) -> Result<PathBuf, SetupError> {
        let controller = if key == "cgroup.cpu_quota_us" { "cpu" } else { "memory" };
        let created = self.ensure(controller, log)?;
        let unlimited = value == "0";
        let or = |none: &str| if unlimited { none.to_owned() } else { value.to_owned() };
        let (name, text) = match (key, created.version) {
            ("cgroup.memory_limit", Version::V1) => ("memory.limit_in_bytes", or("-1")),
            ("cgroup.memory_limit", Version::V2) => ("memory.max", or("max")),
            ("cgroup.memory_high", Version::V2) => ("memory.high", or("max")),
            // Protection, for which 0 means none.
            ("cgroup.memory_low", Version::V2) => ("memory.low", value.to_owned()),
            ("cgroup.memory_min", Version::V2) => ("memory.min", value.to_owned()),
            ("cgroup.soft_limit", Version::V1) => ("memory.soft_limit_in_bytes", or("-1")),
            ("cgroup.cpu_quota_us", Version::V1) => ("cpu.cfs_quota_us", or("-1")),
            ("cgroup.cpu_quota_us", Version::V2) => ("cpu.max", format!("{} 100000", or("max"))),
            (_, version) => {
                return Err(SetupError::Impossible {
                    what: format!("set {key}"),
                    why: format!(
                        "this machine's {controller} controller is cgroup {version:?}, which has no such limit"
                    ),
                    next: "use cgroup.memory_limit, which both generations have".to_owned(),
                });
            }
        };
        let file = created.dir.join(name);
        write_limit(&file, &text).map_err(|source| SetupError::file("write", &file, source))?;
        Ok(file)
    }

    /// Limits the I/O to a device. v1 throttles in the root cgroup, because kernel threads there do the writeback; so
    /// only a device that belongs to the run may be throttled.
    pub fn throttle(&mut self, key: &str, value: &str, device: &str, log: &mut UndoLog) -> Result<(), SetupError> {
        let Some((v1_name, v2_key)) = throttle_names(key) else { return Ok(()) };
        let place = place("blkio")?;
        let (file, line, cgroup) = match place.version {
            Version::V1 => (place.mount.join(v1_name), format!("{device} {value}"), None),
            Version::V2 => {
                // Writeback is charged to the owner of the pages only if both controllers are enabled (cgwb).
                self.ensure("memory", log)?;
                let created = self.ensure("blkio", log)?;
                let limit = if value == "0" { "max" } else { value };
                (created.dir.join("io.max"), format!("{device} {v2_key}={limit}"), Some(created.named))
            }
        };
        if !file.exists() {
            let parent = file.parent().and_then(Path::parent).unwrap_or(&place.mount);
            return Err(SetupError::Impossible {
                what: format!("set {key}"),
                why: format!("{} does not enable the io controller for its children", parent.display()),
                next: format!("run `echo +io > {}/cgroup.subtree_control`", parent.display()),
            });
        }
        let undo = Throttle { key: key.to_owned(), device: device.to_owned(), cgroup };
        record(log, Undo::Throttle(undo))?;
        std::fs::write(&file, line).map_err(|source| SetupError::file("write", &file, source))
    }

    /// The `cgroup.procs` files to which a process writes its id to join.
    #[must_use]
    pub fn procs(&self) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = self.created.iter().map(|created| created.dir.join("cgroup.procs")).collect();
        files.dedup();
        files
    }

    #[must_use]
    pub fn memory(&self) -> Option<&Path> {
        self.created.iter().find(|created| created.controller == "memory").map(|created| created.dir.as_path())
    }
}

fn record(log: &mut UndoLog, undo: Undo) -> Result<(), SetupError> {
    let path = log.path().to_owned();
    log.record(undo).map_err(|source| SetupError::file("write", path, source))
}

/// Writes a limit. Lowering it below the current use must reclaim first and may fail with EBUSY for a while.
fn write_limit(file: &Path, text: &str) -> io::Result<()> {
    let mut last = Ok(());
    for _ in 0..20 {
        last = std::fs::write(file, text);
        match &last {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
            _ => return last,
        }
    }
    last
}

fn make(place: &Place, controller: &str, log: &mut UndoLog) -> Result<(PathBuf, CgroupDir), SetupError> {
    let parent = match place.version {
        // Inside the process's own cgroup, so that existing limits on it still apply.
        Version::V1 => place.own.clone(),
        Version::V2 => v2_parent(place)?,
    };
    make_in(&parent, place, controller, log)
}

fn make_in(
    parent: &Path,
    place: &Place,
    controller: &str,
    log: &mut UndoLog,
) -> Result<(PathBuf, CgroupDir), SetupError> {
    let pid = std::process::id();
    let name = (0..).map(|number| format!("flatwater-{pid}-{number}")).find(|name| !parent.join(name).exists());
    let name = name.unwrap_or_else(|| format!("flatwater-{pid}-0"));
    let dir = parent.join(&name);
    let below = |path: &Path| path.strip_prefix(&place.mount).map(Path::to_owned).unwrap_or_default();
    let (controller, parent, origin) = (controller.to_owned(), below(parent), below(&place.own));
    let named = CgroupDir { controller, parent, name, origin };
    record(log, Undo::Cgroup(named.clone()))?;
    std::fs::create_dir(&dir).map_err(|source| SetupError::file("make the cgroup", &dir, source))?;
    Ok((dir, named))
}

/// Where a new cgroup is created relative to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The other's limits apply. In v1 the other itself, since its limits on I/O do not apply to cgroups below it; in v2 a
    /// new cgroup below it, since a cgroup whose children have controllers cannot have processes.
    Inside,
    /// The other's limits do not apply: a new cgroup above or beside it.
    Outside,
}

/// A cgroup inside or outside `within`, created if necessary, in each hierarchy that has the memory, io or cpu
/// controller. `within` is a directory of any hierarchy (`None`: this process's cgroup). A v1 hierarchy without that path
/// separates nothing: the group is then this process's cgroup there, on both sides, and its controllers are `shared`.
pub(super) fn beside(within: Option<&Path>, side: Side, log: &mut UndoLog) -> Result<Group, SetupError> {
    let mut group = Group::default();
    let mut hierarchies: Vec<(Place, Vec<ControllerName>)> = Vec::new();
    let mut last = None;
    for controller in ControllerName::ALL {
        match place(controller.in_version(1)) {
            Ok(place) => match hierarchies.iter_mut().find(|(known, _)| known.mount == place.mount) {
                Some((_, controllers)) => controllers.push(controller),
                None => hierarchies.push((place, vec![controller])),
            },
            Err(why) => {
                last = Some(why);
                group.shared.push(controller);
            }
        }
    }
    if hierarchies.is_empty() {
        return last.map_or(Ok(group), Err);
    }
    let relative = within.map(path_in_hierarchy).transpose()?;
    let given_in = |place: &Place| Some(place.mount.join(relative.as_ref()?)).filter(|path| is_cgroup(path));
    if let Some(within) = within
        && !hierarchies.iter().any(|(place, _)| given_in(place).is_some())
    {
        return Err(SetupError::Impossible {
            what: format!("run in the cgroup {}", within.display()),
            why: "no hierarchy with the memory, blkio or cpu controller has a cgroup with this path".to_owned(),
            next: "give a cgroup with one of these controllers".to_owned(),
        });
    }
    for (place, controllers) in hierarchies {
        let at = match given_in(&place) {
            None if within.is_some() => {
                group.directories.push(place.own);
                group.shared.extend(controllers);
                continue;
            }
            given => given.unwrap_or_else(|| place.own.clone()),
        };
        let parent = match (side, place.version) {
            (Side::Inside, Version::V1) => {
                group.directories.push(at);
                continue;
            }
            (Side::Inside, Version::V2) => at,
            (Side::Outside, Version::V1) if at == place.mount => at,
            (Side::Outside, Version::V1) => at.parent().unwrap_or(&place.mount).to_owned(),
            (Side::Outside, Version::V2) => v2_parent(&Place { own: at, ..place.clone() })?,
        };
        let first = controllers.first().map_or("memory", |controller| controller.in_version(1));
        let (directory, _) = make_in(&parent, &place, first, log)?;
        if side == Side::Outside && place.version == Version::V2 {
            let enabled = std::fs::read_to_string(directory.join("cgroup.controllers")).unwrap_or_default();
            let lacks =
                |controller: &ControllerName| !enabled.split_whitespace().any(|name| name == controller.in_version(2));
            group.shared.extend(controllers.into_iter().filter(lacks));
        }
        group.directories.push(directory);
    }
    Ok(group)
}

/// The path of a cgroup's directory below its hierarchy's mount point.
fn path_in_hierarchy(given: &Path) -> Result<PathBuf, SetupError> {
    // A link, such as /sys/fs/cgroup/cpu, is not below the mount point.
    let path = std::fs::canonicalize(given).map_err(|source| SetupError::file("find", given, source))?;
    let mounts = mounts::read().map_err(|source| SetupError::file("read", "/proc/self/mountinfo", source))?;
    let point = mounts::above(&mounts, &path).map_or(Path::new("/"), |mount| &mount.point);
    Ok(path.components().skip(point.components().count()).collect())
}

/// The controllers that a run's cgroup may need.
const CONTROLLERS: [&str; 3] = ["memory", "io", "cpu"];

/// Selects the parent of a v2 cgroup. A v2 cgroup with processes cannot enable controllers for its children (except the
/// root), so the new cgroup is created beside this process's own, at the nearest ancestor that enables them. Slices are
/// skipped: only systemd creates cgroups there, and it removes unknown ones. A scope or service with child cgroups was
/// delegated with everything in it (Delegate=), as was the root of a container.
fn v2_parent(place: &Place) -> Result<PathBuf, SetupError> {
    let passed_on = |dir: &Path| std::fs::read_to_string(dir.join("cgroup.subtree_control")).unwrap_or_default();
    parent_of(place, passed_on).ok_or_else(|| SetupError::Impossible {
        what: "make a memory cgroup".to_owned(),
        why: format!(
            "no cgroup above {} (except slices) enables the memory controller for its children",
            place.own.display()
        ),
        next: format!("run `echo +memory +io +cpu > {}/cgroup.subtree_control`", place.mount.display()),
    })
}

/// The nearest ancestor that enables all controllers, else the nearest that enables memory.
fn parent_of(place: &Place, passed_on: impl Fn(&Path) -> String) -> Option<PathBuf> {
    let above = if place.own == place.mount { place.own.as_path() } else { place.own.parent().unwrap_or(&place.mount) };
    let is_slice = |dir: &Path| dir != place.mount && dir.extension().is_some_and(|extension| extension == "slice");
    let mut partly = None;
    for dir in above.ancestors().take_while(|dir| dir.starts_with(&place.mount)).filter(|dir| !is_slice(dir)) {
        let passed = passed_on(dir);
        let has = |wanted: &&str| passed.split_whitespace().any(|one| one == *wanted);
        if CONTROLLERS.iter().all(has) {
            return Some(dir.to_owned());
        }
        if partly.is_none() && has(&"memory") {
            partly = Some(dir.to_owned());
        }
    }
    partly
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{Place, Version, parent_of, place_of};

    /// The parent of a new cgroup for a process in `own`, if these cgroups enable these controllers.
    fn parent(own: &str, passing: &[(&str, &str)]) -> Option<String> {
        let mount = PathBuf::from("/cg");
        let place = Place { version: Version::V2, own: mount.join(own), mount: mount.clone() };
        let passed_on = |dir: &Path| {
            let below = dir.strip_prefix(&mount).expect("within").to_string_lossy().into_owned();
            passing.iter().find(|(path, _)| *path == below).map_or(String::new(), |(_, passed)| (*passed).to_owned())
        };
        Some(parent_of(&place, passed_on)?.strip_prefix(&mount).expect("within").to_string_lossy().into_owned())
    }

    const ALL: &str = "cpuset cpu io memory pids";

    #[test]
    fn slices_of_systemd_are_skipped() {
        let machine = [("", ALL), ("user.slice", ALL), ("user.slice/user-0.slice", ALL)];
        assert_eq!(parent("user.slice/user-0.slice/session-1.scope", &machine).as_deref(), Some(""));
        assert_eq!(
            parent("system.slice/cron.service", &[("system.slice", ALL)]),
            None,
            "the root enables no controller"
        );
    }

    #[test]
    fn a_delegated_cgroup_is_used() {
        let delegated = [("", ALL), ("system.slice", ALL), ("system.slice/run-1.scope", ALL)];
        let own = parent("system.slice/run-1.scope/main", &delegated);
        assert_eq!(own.as_deref(), Some("system.slice/run-1.scope"));
        // A container whose root has processes, and one that was prepared.
        assert_eq!(parent("", &[]), None);
        assert_eq!(parent("", &[("", "memory")]).as_deref(), Some(""));
    }

    #[test]
    fn an_ancestor_that_enables_all_controllers_is_preferred() {
        let passing = [("", ALL), ("jobs", "memory pids")];
        assert_eq!(parent("jobs/a", &passing).as_deref(), Some(""));
        assert_eq!(parent("jobs/a", &passing[1..]).as_deref(), Some("jobs"));
    }

    const MOUNTS: &str = "30 1 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
        31 30 0:27 / /tmp rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
        34 30 0:30 / /nowhere rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn a_journal_can_name_only_cgroups_of_flatwater() {
        let dir = |parent: &str, name: &str| {
            let (controller, origin) = ("memory".to_owned(), "".into());
            super::CgroupDir { controller, parent: parent.into(), name: name.to_owned(), origin }.paths()
        };
        for (parent, name) in
            [("/etc", "flatwater-1-0"), ("../../etc", "flatwater-1-0"), ("", "init"), ("", "flatwater-1-0/x")]
        {
            assert_eq!(dir(parent, name), None, "{parent} {name}");
        }
        assert!(!super::is_cgroup(std::path::Path::new("/tmp")));
    }

    #[test]
    fn a_controller_is_found_by_its_mount_and_own_cgroup() {
        let mounts = crate::proc::mounts::of_mountinfo(MOUNTS.as_bytes());
        let place = place_of("cpu", &mounts, "2:cpu,cpuacct:/\n0::/user\n").expect("v1");
        assert_eq!((place.version, place.mount.to_str()), (Version::V1, Some("/tmp")));
        assert_eq!(place_of("memory", &mounts, "0::/user\n"), None, "v2 without cgroup.controllers");
        assert_eq!(place_of("cpu", &[], ""), None);
    }
}
