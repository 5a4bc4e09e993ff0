//! The commands of a fix. They are for a root shell, and name files that exist on the recorded machine.

use flatwater_recording::printable::{is_hostile, shell_quoted as quoted};
use flatwater_recording::{Controller, ControllerName, KnobPlace, knob};

use super::place::Place;
use super::{Limit, Resource};

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Commands {
    pub apply: Vec<String>,
    pub undo: Vec<String>,
}

impl FromIterator<Commands> for Commands {
    fn from_iter<T: IntoIterator<Item = Commands>>(parts: T) -> Commands {
        let mut all = Commands::default();
        for part in parts {
            all.apply.extend(part.apply);
            all.undo.extend(part.undo);
        }
        all
    }
}

impl Commands {
    /// Writes to a file whose present value is known, or is read first.
    fn write(file: &str, value: &str, old: Option<&str>) -> Commands {
        let file = quoted(file);
        let read = old.is_none().then(|| format!("cat {file}"));
        let write = |value: &str| format!("echo {} > {file}", quoted(value));
        Commands { apply: read.into_iter().chain([write(value)]).collect(), undo: vec![write(old.unwrap_or("OLD"))] }
    }
}

/// The commands that set a knob; `None` if it is not set on the machine (a run's own cgroup or mount, a code change).
pub(super) fn of_setting(key: &str, value: &str, place: &Place<'_>) -> Option<Commands> {
    let knob = knob::find(key).ok()?;
    let name = key.split_once('.').map_or(key, |(_, name)| name);
    let old = place.setup.get(key);
    match knob.place {
        KnobPlace::Sysctl => Some(sysctl(key, value, place)),
        KnobPlace::HugePages => {
            Some(Commands::write(&format!("/sys/kernel/mm/transparent_hugepage/{name}"), value, old))
        }
        KnobPlace::LruGen => Some(Commands::write(&format!("/sys/kernel/mm/lru_gen/{name}"), value, old)),
        KnobPlace::Queue => Some(Commands::write(&format!("/sys/block/{}/queue/{name}", place.disk?), value, old)),
        KnobPlace::Cgroup if key == "cgroup.memory_limit" && !place.is_scenario => memory_limit(value, place),
        KnobPlace::Mount if key == "mount.options" && !place.is_scenario => remount(value, place),
        KnobPlace::Placement if key == "placement.fifo_priority" && !place.is_scenario => {
            (!place.threads.is_empty()).then(|| real_time(value, &place.threads))
        }
        _ => None,
    }
}

/// Writing `vm.dirty_bytes` clears `vm.dirty_ratio`, and likewise for the background limit, so that the undo writes
/// the one that was in force.
fn sysctl(key: &str, value: &str, place: &Place<'_>) -> Commands {
    let write = |key: &str, value: &str| format!("sysctl -w {}", quoted(&format!("{key}={value}")));
    let ratio = key.strip_suffix("_bytes").map(|stem| format!("{stem}_ratio"));
    let cleared = ratio.and_then(|key| place.setup.get(&key).filter(|old| *old != "0").map(|old| write(&key, old)));
    let old = place.setup.get(key).filter(|old| *old != "0" || !key.ends_with("_bytes"));
    match old.map(|old| write(key, old)).or(cleared) {
        Some(undo) => Commands { apply: vec![write(key, value)], undo: vec![undo] },
        None => Commands { apply: vec![format!("sysctl {key}"), write(key, value)], undo: vec![write(key, "OLD")] },
    }
}

fn memory_limit(value: &str, place: &Place<'_>) -> Option<Commands> {
    let (path, memory) = (place.own_cgroup.filter(|path| is_usable(path))?, place.controller(ControllerName::Memory)?);
    if let Some(unit) = unit(path).filter(|_| memory.version == 2) {
        return Some(property(unit, &format!("MemoryMax={value}"), "MemoryMax="));
    }
    let file = if memory.version == 2 { "memory.max" } else { "memory.limit_in_bytes" };
    Some(Commands::write(&format!("{}/{file}", directory(memory, path)), value, None))
}

/// Options that are set without a value, each with the option that undoes it.
const REMOUNT: [(&str, &str); 3] = [("lazytime", "nolazytime"), ("noatime", "relatime"), ("nodiscard", "discard")];

fn remount(options: &str, place: &Place<'_>) -> Option<Commands> {
    let storage = place.storage.filter(|storage| !storage.mount_point.contains(is_hostile))?;
    let point = quoted(&storage.mount_point);
    let opposite = |option: &str| REMOUNT.iter().find(|(one, _)| *one == option).map(|(_, undo)| *undo);
    let undo: Option<Vec<&str>> = options.split(',').map(opposite).collect();
    Some(Commands {
        apply: vec![format!("mount -o remount,{options} {point}")],
        undo: vec![format!("mount -o remount,{} {point}", undo?.join(","))],
    })
}

fn real_time(priority: &str, threads: &[u32]) -> Commands {
    Commands {
        apply: threads.iter().map(|tid| format!("chrt -f -p {priority} {tid}")).collect(),
        undo: threads.iter().map(|tid| format!("chrt -o -p 0 {tid}")).collect(),
    }
}

/// Whether the path names a cgroup below the mount point, in characters that a command can contain. A cgroup outside
/// the reader's namespace begins with `/..` (cgroup_namespaces(7)).
fn is_usable(path: &str) -> bool {
    path != "/" && !path.contains(is_hostile) && path.split('/').all(|part| part != "..")
}

/// The systemd unit of a cgroup.
fn unit(path: &str) -> Option<&str> {
    let name = path.rsplit('/').next()?;
    [".service", ".scope", ".slice"].iter().any(|end| name.ends_with(end)).then_some(name)
}

fn property(unit: &str, set: &str, reset: &str) -> Commands {
    let command = |property: &str| format!("systemctl set-property --runtime {} {}", quoted(unit), quoted(property));
    Commands { apply: vec![command(set)], undo: vec![command(reset)] }
}

fn directory(controller: &Controller, path: &str) -> String {
    format!("{}/{}", controller.mount_point.trim_end_matches('/'), path.trim_start_matches('/'))
}

/// Where a resource is limited: the file in each cgroup version, its value, and the value that removes the limit.
struct Control {
    file: &'static str,
    value: String,
    unlimited: String,
    /// The systemd property, as (set, reset).
    property: Option<(String, &'static str)>,
}

/// The commands that limit processes; empty if the machine has no such controller.
pub(super) fn of_limit(limit: &Limit, place: &Place<'_>) -> Commands {
    let name = match limit.resource {
        Resource::WriteRate(_) => ControllerName::Io,
        Resource::Memory => ControllerName::Memory,
        Resource::Cpu => ControllerName::Cpu,
    };
    let Some(controller) = place.controller(name) else { return Commands::default() };
    let mut commands = Commands::default();
    // In version 1 a recorded path may be that of another hierarchy.
    let own = limit
        .cgroup
        .as_deref()
        .filter(|path| is_usable(path))
        .filter(|_| controller.version == 2 || name == ControllerName::Memory);
    let directory = match own {
        Some(path) => directory(controller, path),
        None if limit.pids.is_empty() => return commands,
        None => new_cgroup(controller, name, &limit.pids, &mut commands),
    };
    // Pages stay charged to the old cgroup: the new one uses nothing yet, and its processes no longer fill the old one.
    if own.is_none() && limit.resource == Resource::Memory {
        return commands;
    }
    let Some(control) = control(limit.resource, controller.version, &directory, place.disk) else {
        return Commands::default();
    };
    if let (Some(unit), Some((set, reset)), 2) = (own.and_then(unit), &control.property, controller.version) {
        return property(unit, set, reset);
    }
    let file = format!("{directory}/{}", control.file);
    let file = quoted(&file);
    commands.apply.push(format!("echo {} > {file}", control.value));
    commands.undo.insert(0, format!("echo {} > {file}", control.unlimited));
    commands
}

fn control(resource: Resource, version: u32, directory: &str, disk: Option<&str>) -> Option<Control> {
    let half = |file: &str| format!("$(($(cat {}) / 2))", quoted(&format!("{directory}/{file}")));
    let (file, value, unlimited, property) = match (resource, version) {
        (Resource::WriteRate(bytes), 2) => {
            let number = format!("$(cat /sys/block/{}/dev)", disk?);
            let set = format!("IOWriteBandwidthMax=/dev/{} {bytes}", disk?);
            let value = format!("\"{number} wbps={bytes}\"");
            ("io.max", value, format!("\"{number} wbps=max\""), Some((set, "IOWriteBandwidthMax=")))
        }
        (Resource::WriteRate(bytes), _) => {
            let number = format!("$(cat /sys/block/{}/dev)", disk?);
            ("blkio.throttle.write_bps_device", format!("\"{number} {bytes}\""), format!("\"{number} 0\""), None)
        }
        (Resource::Memory, 2) => ("memory.high", half("memory.current"), "max".to_owned(), None),
        (Resource::Memory, _) => ("memory.limit_in_bytes", half("memory.usage_in_bytes"), "-1".to_owned(), None),
        (Resource::Cpu, 2) => {
            ("cpu.weight", "10".to_owned(), "100".to_owned(), Some(("CPUWeight=10".to_owned(), "CPUWeight=")))
        }
        (Resource::Cpu, _) => ("cpu.shares", "100".to_owned(), "1024".to_owned(), None),
    };
    Some(Control { file, value, unlimited, property })
}

/// Moves processes into a cgroup of their own, and says how to move them back.
fn new_cgroup(controller: &Controller, name: ControllerName, pids: &[u32], commands: &mut Commands) -> String {
    let mount = controller.mount_point.trim_end_matches('/');
    let directory = format!("{mount}/flatwater-limited");
    let shown = quoted(&directory);
    commands.apply.push(format!("mkdir {shown}"));
    if controller.version == 2 {
        let enable = format!("{mount}/cgroup.subtree_control");
        let enable = quoted(&enable);
        commands.apply.push(format!("echo +{} > {enable}", name.in_version(2)));
    }
    let list: String = pids.iter().map(|pid| format!(" {pid}")).collect();
    let version = controller.version;
    let field = if version == 2 { "0::".to_owned() } else { format!("[^:]*:[^:]*\\b{}\\b[^:]*:", name.in_version(1)) };
    let first = pids.first().copied().unwrap_or_default();
    commands.apply.push(format!("sed -n 's/^{field}//p' /proc/{first}/cgroup"));
    commands.apply.push(format!("for pid in{list}; do echo $pid > {shown}/cgroup.procs; done"));
    let back = quoted(mount);
    commands.undo.push(format!("for pid in $(cat {shown}/cgroup.procs); do echo $pid > {back}OLD/cgroup.procs; done"));
    commands.undo.push(format!("rmdir {shown}"));
    directory
}
